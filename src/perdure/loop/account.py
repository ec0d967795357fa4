"""Accounts: what runs may spend, and what they have spent and reserved.

Every run has an *account*, below that of whoever started it. A request *reserves* what it may take
in its own account and in all above, before it is sent, and is *settled* with what it took. It is
refused where what is spent, what is reserved and its own reservation would cross a limit; so no
limit is overshot by more than the calls in flight took beyond what they reserved. A tree of
accounts belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import NamedTuple

from perdure.clock import Clock
from perdure.errors import BudgetExceeded, ConfigError
from perdure.loop.estimate import DEFAULT_OUTPUT, Estimator
from perdure.loop.model import ModelRequest
from perdure.loop.spend import NO_SPEND, ZERO, Charge, Price, Spend, Tokens, price_in
from perdure.wire import Usage

PriceOf = Callable[[str, Usage], Price | None]
"""What a usage of a model costs; None if nobody knows."""


class Spent(NamedTuple):
    """What counts against limits."""

    tokens: int = 0
    usd: Decimal = ZERO


@dataclasses.dataclass(slots=True, eq=False)
class Reservation:
    """What a request may take: reserved, then sent, then settled."""

    model: str
    request: ModelRequest
    _estimator: Estimator
    usd: Decimal | None = None
    entry: object = None
    """What the ledger keeps of it."""
    response_id: str = ""
    settled: bool = False
    _tokens: Tokens | None = None

    @property
    def tokens(self) -> Tokens:
        """What it may take; worked out when somebody asks."""
        if self._tokens is None:
            self._tokens = self._estimator.of(self.request)
        return self._tokens


NOTHING = Spent()


class Account:
    """What a run may spend.

    Args:
        parent: The account of whoever started it.
        tokens: The most tokens, input and output together; None for no limit.
        usd: The most money.
        price: What a usage costs; the parent's unless given.
        spent: What the record says was spent before, what is below included. Accounts above it have
            counted that already.
        output: Tokens of output that a request reserves which sets no limit of its own.
    """

    def __init__(
        self,
        parent: Account | None = None,
        *,
        tokens: int | None = None,
        usd: Decimal | None = None,
        price: PriceOf | None = None,
        spent: Spent = NOTHING,
        output: int | None = None,
    ) -> None:
        self.parent = parent
        self.tokens = tokens
        self.usd = usd
        self.price: PriceOf | None = price or (parent.price if parent is not None else None)
        self.output: int = output or (parent.output if parent is not None else DEFAULT_OUTPUT)
        self.is_limited: bool = (
            tokens is not None or usd is not None or (parent is not None and parent.is_limited)
        )
        """Whether it, or one above it, limits tokens or money."""
        self._summed = NO_SPEND
        self._charges: list[Charge] = []  # not summed yet
        self._before = spent
        self._since = NOTHING
        self._reserved = NOTHING
        self._deadline: tuple[Clock, float, float] | None = None
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def spend(self) -> Spend:
        """What was spent since it was opened, below it included."""
        charges, self._charges = self._charges, []
        for charge in charges:
            self._summed = self._summed.plus(charge)
        return self._summed

    @property
    def spent(self) -> Spent:
        """What counts against its limits, without what is reserved."""
        return Spent(self._before.tokens + self._since.tokens, self._before.usd + self._since.usd)

    def check(self, model: str) -> None:
        """See that a model may be asked at all.

        Raises:
            ConfigError: Money is limited, and nobody knows what it costs.
        """
        limited = any(one.usd is not None for one in self._chain())
        if (
            limited
            and self.cost(Usage(input_tokens=1, output_tokens=1, total_tokens=2), model) is None
        ):
            raise ConfigError(
                f"nobody knows what {model!r} costs, so its money cannot be limited; "
                "give Budget(prices=...)"
            )

    def end_at(self, clock: Clock, at: float, *, seconds: float) -> None:
        """Send nothing more after a reading of the monotonic clock; what is below it heeds that.

        Args:
            clock: Whose reading.
            at: The reading.
            seconds: The limit that this is of.
        """
        self._deadline = clock, at, seconds

    def reserve(self, reservation: Reservation) -> asyncio.Future[None] | None:
        """Reserve what a request may take.

        Returns:
            None if that is done. Where only calls in flight are in its way, what tells that one has
            landed: then it is to be tried again.

        Raises:
            BudgetExceeded: It would cross a limit.
            ConfigError: Money is limited, and nobody knows the price of the model.
        """
        node = self._try(reservation, wait=True)
        if node is None:
            return None
        landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        node._waiting.append(landed)
        return landed

    def reserve_now(self, reservation: Reservation) -> None:
        """The same without waiting for calls in flight. Raises as `reserve`."""
        self._try(reservation, wait=False)

    def settle(self, reservation: Reservation, charge: Charge | None) -> None:
        """Say what a request took; None if it was not sent."""
        if reservation.settled:
            return
        reservation.settled = True
        limited = self.is_limited
        for node in self._chain():
            if limited:
                node._reserve(reservation, -1)
            if charge is not None:
                node._charges.append(charge)
                node._count(charge.tokens.total, charge.usd or ZERO)
            if node._waiting:
                node._wake()

    def drop(self, charge: Charge) -> None:
        """An answer that was settled was taken by nobody."""
        for node in self._chain():
            node._summed = node.spend.dropping(charge)

    def carry(self, spend: Spend) -> None:
        """Add what was spent elsewhere on its behalf."""
        for node in self._chain():
            node._summed = node.spend + spend
            node._count(spend.tokens.total, spend.usd)

    def cost(self, usage: Usage, *models: str) -> Price | None:
        """What a usage costs, of the first of some names of its model that has a price.

        A price that stands in it is the price.
        """
        found = price_in(usage)
        if found is not None or self.price is None:
            return found
        return next(filter(None, (self.price(model, usage) for model in models)), None)

    def _count(self, tokens: int, usd: Decimal) -> None:
        self._since = Spent(self._since.tokens + tokens, self._since.usd + usd)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    def _chain(self) -> Iterator[Account]:
        node: Account | None = self
        while node is not None:
            yield node
            node = node.parent

    def _try(self, reservation: Reservation, *, wait: bool) -> Account | None:
        """Reserve, or give the account whose calls in flight are to be waited for."""
        for above, node in enumerate(self._chain()):
            node._check_time(above)
        if not self.is_limited:
            return None
        needed = self._needed(reservation)
        blocked: Account | None = None
        for above, node in enumerate(self._chain()):
            if node._fits(needed, node._reserved):
                continue
            if not wait or not node._fits(needed, NOTHING):
                raise node._exceeded(needed, above)
            blocked = node
        if blocked is None:
            for node in self._chain():
                node._reserve(reservation, 1)
        return blocked

    def _needed(self, reservation: Reservation) -> Spent:
        tokens = reservation.tokens
        usage = Usage(
            input_tokens=tokens.input, output_tokens=tokens.output, total_tokens=tokens.total
        )
        price = self.cost(usage, reservation.model)
        reservation.usd = price.usd if price is not None else None
        if price is None:
            self.check(reservation.model)
        return Spent(tokens.total, reservation.usd or ZERO)

    def _fits(self, needed: Spent, reserved: Spent) -> bool:
        spent = self.spent
        tokens = spent.tokens + reserved.tokens + needed.tokens
        usd = spent.usd + reserved.usd + needed.usd
        return (self.tokens is None or tokens <= self.tokens) and (
            self.usd is None or usd <= self.usd
        )

    def _exceeded(self, needed: Spent, above: int) -> BudgetExceeded:
        """What a limit says that a request would cross, with the calls in flight if need be."""
        spent, reserved = self.spent, self._reserved
        for also in (NOTHING, reserved):
            tokens = spent.tokens + also.tokens + needed.tokens
            if self.tokens is not None and tokens > self.tokens:
                return BudgetExceeded("tokens", self.tokens, spent.tokens, tokens, above=above)
            usd = spent.usd + also.usd + needed.usd
            if self.usd is not None and usd > self.usd:
                return BudgetExceeded("cost", self.usd, spent.usd, usd, above=above)
        raise AssertionError("a request that fits was refused")

    def _reserve(self, reservation: Reservation, sign: int) -> None:
        before, usd = self._reserved, reservation.usd or ZERO
        self._reserved = Spent(
            before.tokens + sign * reservation.tokens.total, before.usd + sign * usd
        )

    def _check_time(self, above: int) -> None:
        if self._deadline is None or not above:  # its own time is looked at between turns
            return
        clock, at, seconds = self._deadline
        late = clock.monotonic() - at
        if late >= 0:
            raise BudgetExceeded("seconds", seconds, seconds, seconds + late, above=above)
