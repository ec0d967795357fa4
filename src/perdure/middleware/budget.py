"""Budgets: what a run may take, in tokens, money, turns and time."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import cast

from perdure.clock import Clock
from perdure.counts import check_count
from perdure.errors import ConfigError
from perdure.loop import Limits
from perdure.loop.account import Account, PriceOf, Spent
from perdure.loop.spend import Price
from perdure.middleware.cost import prices_of
from perdure.middleware.prices import KnownPrices, Prices, Rates, amount_of
from perdure.middleware.recorded_prices import prices_on_record, recorded_prices
from perdure.seconds import check_seconds
from perdure.wire import Usage


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a run may take; None is no limit.

    ```python
    agent = Agent("openai:gpt-5-mini", budget=Budget(tokens=200_000, cost="0.50"))
    ```

    Tokens and money count for the run and all the agents it calls as tools, for every request that
    was sent, whatever came of it, and over restarts. A request is refused where what is spent, what
    calls in flight have reserved and what it may take itself would cross the limit: the drive ends
    as `stopped`, its cause is `budget`, and the run goes on when it is driven with a higher one, or
    when somebody retries it. An answer that crossed the limit is kept.

    In a chat every send is a run of its own.

    Args:
        tokens: Input and output together.
        cost: US dollars, as text, a whole number or a `Decimal`. Every model that is asked needs a
            price.
        turns: Model calls of the agent itself, not of those it calls.
        seconds: Time for which it is driven; what it waits for people and timers does not count. A
            turn that began is not cut short.
        prices: Rates for all models, rates by model, or a function; with `cost`, the tables of
            genai-prices unless given.
        output: Tokens of output that a request reserves whose settings have no `max_tokens`; 2,048
            unless given.

    Raises:
        ConfigError: A limit is none.
    """

    tokens: int | None = None
    cost: Decimal | str | int | None = None
    turns: int | None = None
    seconds: float | None = None
    prices: Prices | Rates | Mapping[str, Rates] | None = None
    output: int | None = None

    def __post_init__(self) -> None:
        for name in ("tokens", "turns", "output"):
            count: object = getattr(self, name)
            if count is not None:
                check_count(f"Budget({name}=...)", count)
        if self.seconds is not None:
            check_seconds("Budget(seconds=...)", self.seconds)
        object.__setattr__(self, "cost", _money(self.cost))
        if self.prices is not None:
            prices_of(self.prices)

    def over(self, other: Budget | None) -> Budget:
        """This budget, with what it leaves open as in another."""
        if other is None:
            return self
        names = [one.name for one in dataclasses.fields(Budget)]
        given = {name: getattr(self, name) for name in names}
        return Budget(**{n: getattr(other, n) if v is None else v for n, v in given.items()})

    def limits(self, *, turns: int | None, seconds: float | None) -> Limits:
        """Its limits; turns and seconds as given where it says nothing of them."""
        return Limits(
            turns=turns if self.turns is None else self.turns,
            seconds=seconds if self.seconds is None else self.seconds,
            tokens=self.tokens,
            usd=cast("Decimal | None", self.cost),
            output=self.output,
            prices=recorded_prices(self.prices),
        )

    @classmethod
    def of(cls, limits: Limits) -> Budget:
        """The budget that limits on a record are of.

        Raises:
            ConfigError: Its prices are none.
        """
        return cls(
            tokens=limits.tokens,
            cost=limits.usd,
            turns=limits.turns,
            seconds=limits.seconds,
            output=limits.output,
            prices=prices_on_record(limits.prices) if limits.prices else None,
        )

    def account(self, parent: Account | None, *, spent: Spent, clock: Clock) -> Account:
        """An account with its limits. Prices that it leaves open are its parent's.

        Raises:
            ConfigError: It limits money, has no prices, and genai-prices is not installed.
        """
        return Account(
            parent,
            tokens=self.tokens,
            usd=cast("Decimal | None", self.cost),
            price=self._price(clock, inherited=parent is not None and parent.price is not None),
            spent=spent,
            output=self.output,
        )

    def _price(self, clock: Clock, *, inherited: bool) -> PriceOf | None:
        if self.prices is None and (self.cost is None or inherited):
            return None
        if self.prices is None:
            known = KnownPrices()
            known.check()
            prices: Prices = known
        else:
            prices = prices_of(self.prices)

        def price(model: str, usage: Usage) -> Price | None:
            return prices(model, usage, dt.datetime.fromtimestamp(clock.wall() / 1e9, dt.UTC))

        return price


def _money(given: object) -> Decimal | None:
    if given is None:
        return None
    money = amount_of("Budget(cost=...)", given)
    if not money:
        raise ConfigError(f"Budget(cost=...) is a positive amount, got {given!r}")
    return money
