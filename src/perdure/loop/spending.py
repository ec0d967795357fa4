"""Every request of a drive, reserved before it is sent and settled when it has ended.

It is counted where it leaves the loop, below all middleware, so that nothing which sends can hide:
a retry, a fallback, a racer of a hedge are requests like the first. The reservation of a turn is
noted before its request is told, so it is durable with what the loop waits for anyway (DESIGN 7);
one that a middleware adds within the turn waits for its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar, runtime_checkable

from msgspec.structs import replace

from perdure.errors import (
    BudgetExceeded,
    ConfigError,
    PerdureError,
    RecordedFailure,
    Rejected,
    Transport,
)
from perdure.loop.account import Account, Reservation
from perdure.loop.estimate import Estimator, tokens_in
from perdure.loop.ledger import Ticket
from perdure.loop.model import ModelRequest, close
from perdure.loop.spend import (
    Came,
    Charge,
    Spend,
    Tokens,
    believed,
    discarded_in,
    priced,
    tokens_of,
)
from perdure.wire import (
    Response,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    StreamEvent,
    Usage,
    encode,
)


@runtime_checkable
class SpendLedger(Protocol):
    """A ledger that writes down what requests reserve and take."""

    def reserve(self, reservation: Reservation) -> Ticket:
        """Take a reservation, before its request is sent."""
        ...

    def settle(self, reservation: Reservation, charge: Charge | None, *, told: bool) -> None:
        """Take what came of it.

        Args:
            reservation: What was reserved.
            charge: What the request took; None if it was not sent.
            told: Its server said so at its end, so a response that is recorded says it too.
        """
        ...


TELLING = frozenset(
    {ResponseCreated, ResponseInProgress, ResponseCompleted, ResponseIncomplete, ResponseFailed}
)
"""The events that say what a request took, or who answers it."""


class Sent:
    """A request on its way, and what was heard of it."""

    __slots__ = ("_account", "began", "failed", "last", "model", "reservation", "usage")

    def __init__(self, reservation: Reservation, account: Account) -> None:
        self._account = account
        self.reservation = reservation
        self.model = reservation.model
        """Who answers: as the server says, else as it was asked."""
        self.began = False
        """Something came."""
        self.usage: Usage | None = None
        """What the server said last that it took."""
        self.last: Response | None = None
        """The response of the terminal event."""
        self.failed = False

    def hear(self, event: StreamEvent) -> StreamEvent:
        """Take an event and give it on, a terminal one with its price if that is known.

        Here events enter the loop: what perdure says in a usage is left out if a server said it.
        """
        if self.began and type(event) not in TELLING:
            return event
        self.began = True
        match event:
            case ResponseCreated() | ResponseInProgress():
                event = _believed(event)
                self._told(event.response)
            case ResponseCompleted() | ResponseIncomplete() | ResponseFailed():
                event = _believed(event)
                self._told(event.response)
                self.last, self.failed = event.response, isinstance(event, ResponseFailed)
                return self._marked(event, event.response)
            case _:
                pass
        return event

    def _told(self, response: Response) -> None:
        self.reservation.response_id = response.id or self.reservation.response_id
        self.model = response.model or self.model
        self.usage = response.usage or self.usage

    def _marked(
        self, event: ResponseCompleted | ResponseIncomplete | ResponseFailed, response: Response
    ) -> StreamEvent:
        usage = response.usage
        if not usage or self._account.price is None or tokens_of(usage) is None:
            return event
        self.usage = priced(usage, self._account.cost(usage, self.model, self.reservation.model))
        return replace(event, response=replace(response, usage=self.usage))


class Spending:
    """The requests of one drive.

    Args:
        account: What they are charged to.
        ledger: What writes them down, if anything does.
    """

    def __init__(self, account: Account, ledger: SpendLedger | None) -> None:
        self.account = account
        self._ledger = ledger
        self._estimator = Estimator(account.output)
        self._ready: Reservation | None = None
        self._open: list[Reservation] = []
        self._answered: list[tuple[Reservation, Charge]] = []
        self.exceeded: BudgetExceeded | None = None
        """What an account above refused to a run that this one started."""

    @property
    def spend(self) -> Spend:
        """What the drive has spent, and what it started below it."""
        return self.account.spend

    def reserve(self, request: ModelRequest) -> Awaitable[None] | None:
        """Reserve what a request may take that is about to be told.

        Returns:
            None if that is done; else what waits for the calls in flight that are in its way.

        Raises:
            BudgetExceeded: It would cross a budget.
            ConfigError: Money is limited, and nobody knows the price of the model.
        """
        self.release()
        self.taken(None)
        reservation = self._made(request)
        landed = self.account.reserve(reservation)
        if landed is not None:
            return self._when_landed(reservation, landed)
        self._reserved(reservation)
        return None

    async def _when_landed(self, reservation: Reservation, landed: Awaitable[None]) -> None:
        waiting: Awaitable[None] | None = landed
        while waiting is not None:
            await waiting
            waiting = self.account.reserve(reservation)
        self._reserved(reservation)

    def _reserved(self, reservation: Reservation) -> None:
        self._ready = reservation
        self._note(reservation)

    def release(self) -> None:
        """Give back what was reserved and not sent."""
        ready, self._ready = self._ready, None
        for one in (*self._open, *((ready,) if ready is not None else ())):
            self._settle(one, None, told=False)

    def taken(self, response: Response | None) -> None:
        """A response is taken: what else was answered was answered for nobody.

        Args:
            response: The response; None if there is none.
        """
        answered, self._answered = self._answered, []
        if response is not None and answered:
            named = [one for one in answered if one[0].response_id == response.id]
            answered.remove((named or answered)[-1])
        for _, charge in answered:
            self.account.drop(charge)

    def close(self) -> None:
        """The drive has ended."""
        self.release()
        self.taken(None)

    def take(self, request: ModelRequest) -> Sent | None:
        """The reservation that was made for a request; None if it needs one of its own."""
        ready = self._ready
        if ready is None or ready.model != (request.settings.model or ""):
            return None
        self._ready = None
        self._open.append(ready)
        return Sent(ready, self.account)

    async def metered(
        self,
        request: ModelRequest,
        sent: Sent | None,
        send: Callable[[ModelRequest], AsyncIterator[StreamEvent]],
    ) -> AsyncGenerator[StreamEvent, None]:
        """Send a request that middleware stands around, and settle it.

        Raises:
            BudgetExceeded: It has no reservation, and one would cross a budget.
        """
        if sent is None:
            sent = await self._reserved_now(request)
        said, error = 0, None
        stream: AsyncIterator[StreamEvent] | None = None
        try:
            stream = send(request)
            async for event in stream:
                delta: object = getattr(event, "delta", None)
                said += len(delta) if isinstance(delta, str) else 0
                yield sent.hear(event)
        except BaseException as failure:
            error = failure
            raise
        finally:
            try:
                if stream is not None:
                    await close(stream)
            finally:
                self.end(sent, error, lambda: said)

    def end(self, sent: Sent, error: BaseException | None, said: Callable[[], int]) -> None:
        """A request has ended.

        Args:
            sent: The request.
            error: What its stream raised.
            said: How many bytes of an answer came, asked if no server said what it took.
        """
        charge = self._charge(sent, error, said)
        told = sent.last is not None and charge is not None and not charge.estimated
        self._settle(sent.reservation, charge, told=told)
        if charge is not None and charge.came == "answered":
            self._answered.append((sent.reservation, charge))
        discarded = discarded_in(sent.usage) if told and sent.usage else None
        if discarded is not None:
            self.account.carry(discarded)

    async def _reserved_now(self, request: ModelRequest) -> Sent:
        reservation = self._made(request)
        self.account.reserve_now(reservation)
        self._open.append(reservation)
        ticket = self._note(reservation)
        if ticket is not None:
            await ticket
        return Sent(reservation, self.account)

    def _made(self, request: ModelRequest) -> Reservation:
        return Reservation(request.settings.model or "", request, self._estimator)

    def _note(self, reservation: Reservation) -> Ticket | None:
        return self._ledger.reserve(reservation) if self._ledger is not None else None

    def _settle(self, reservation: Reservation, charge: Charge | None, *, told: bool) -> None:
        if reservation.settled:
            return
        if reservation in self._open:
            self._open.remove(reservation)
        self.account.settle(reservation, charge)
        if self._ledger is not None:
            with contextlib.suppress(PerdureError):  # unsettled, it counts as estimated (LOG 9)
                self._ledger.settle(reservation, charge, told=told)

    def _charge(
        self, sent: Sent, error: BaseException | None, said: Callable[[], int]
    ) -> Charge | None:
        """What a request took: as its server said, else as far as that shows from here."""
        if isinstance(error, RecordedFailure) and isinstance(error.took, Charge):
            return error.took
        came: Came = "lost" if sent.last is None else "failed" if sent.failed else "answered"
        told = tokens_of(sent.usage) if sent.last is not None and sent.usage else None
        if told is not None and sent.usage:
            return self._charged(sent, sent.usage, told, came, estimated=False)
        if not sent.began:
            if isinstance(error, ConfigError):
                return None
            if _was_refused(error):
                return Charge(model=sent.model, came="refused")
            whole = sent.reservation.tokens
            return self._charged(sent, _usage(whole.input, whole.output), whole, "lost")
        size = max(said(), size_of_output(sent.last) if sent.last is not None else 0)
        heard = (tokens_of(sent.usage) if sent.usage else None) or Tokens()
        ins, outs = heard.input or sent.reservation.tokens.input, max(tokens_in(size), heard.output)
        tokens = Tokens(input=ins, output=outs, total=ins + outs)
        return self._charged(sent, _usage(ins, outs), tokens, came)

    def _charged(
        self, sent: Sent, usage: Usage, tokens: Tokens, came: Came, *, estimated: bool = True
    ) -> Charge:
        try:
            price = self.account.cost(usage, sent.model, sent.reservation.model)
            usd = price.usd if price is not None else None
        except ConfigError:  # its price failed, which ends the drive: it took what it reserved
            usd, estimated = sent.reservation.usd, True
        return Charge(
            model=sent.model,
            tokens=tokens,
            usd=usd,
            came=came,
            estimated=estimated,
        )


TellingT = TypeVar(
    "TellingT",
    bound=ResponseCreated
    | ResponseInProgress
    | ResponseCompleted
    | ResponseIncomplete
    | ResponseFailed,
)


def _believed(event: TellingT) -> TellingT:
    usage = event.response.usage
    taken = believed(usage) if usage else usage
    if taken is usage:
        return event
    return replace(event, response=replace(event.response, usage=taken))


def _usage(ins: int, outs: int) -> Usage:
    return Usage(input_tokens=ins, output_tokens=outs, total_tokens=ins + outs)


def _was_refused(error: BaseException | None) -> bool:
    """Whether a server said no, or was never reached: nobody bills that."""
    return isinstance(error, Rejected) or (isinstance(error, Transport) and not error.sent)


def size_of_output(response: Response) -> int:
    """How many bytes of an answer came."""
    return sum(len(encode(item)) for item in response.output)


def spending_of(account: Account | None, ledger: object) -> Spending:
    """The spending of a drive; without an account it has no limit."""
    writes = ledger if isinstance(ledger, SpendLedger) else None
    return Spending(account or Account(), writes)
