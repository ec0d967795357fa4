"""What runs cost, by two counts: what was sent, and what was answered.

*spend* counts every request that was sent: those that failed, those that a hedge gave up.
*answers* counts the responses that a run took, each once. What is between them was *discarded*.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncGenerator, Mapping
from decimal import Decimal
from typing import cast

import msgspec
from msgspec.structs import replace

from perdure.clock import Clock, SystemClock
from perdure.errors import BadBody, ConfigError
from perdure.loop import Event, Middleware, ModelRequest, NextModel, ResponseEnd, RunInfo
from perdure.loop.model import close, is_terminal
from perdure.loop.spend import Price, is_amount, price_in, priced
from perdure.middleware.prices import KnownPrices, Prices, Rates, Tokens
from perdure.wire import (
    Response,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    StreamEvent,
    Usage,
)


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over requests."""

    requests: int = 0
    tokens: Tokens = Tokens(0, 0, 0, 0)
    usd: Decimal = Decimal(0)
    uncounted: int = 0
    """Requests whose tokens their server never told: cut, failed, given up."""
    unpriced: int = 0
    """Requests whose tokens are known and whose price is not."""

    def plus(self, usage: Usage | None, price: Price | None) -> Totals:
        """With one more request."""
        return self._with(
            requests=1,
            tokens=Tokens.of(usage) if usage else Tokens(0, 0, 0, 0),
            usd=price.usd if price else Decimal(0),
            uncounted=usage is None,
            unpriced=usage is not None and price is None,
        )

    def minus(self, other: Totals) -> Totals:
        """What this has beyond another."""
        return self._with(
            requests=-other.requests,
            tokens=Tokens(*(-count for count in other.tokens)),
            usd=-other.usd,
            uncounted=-other.uncounted,
            unpriced=-other.unpriced,
        )

    def _with(
        self, *, requests: int, tokens: Tokens, usd: Decimal, uncounted: int, unpriced: int
    ) -> Totals:
        summed = (a + b for a, b in zip(self.tokens, tokens, strict=True))
        return Totals(
            requests=self.requests + requests,
            tokens=Tokens(*summed),
            usd=self.usd + usd,
            uncounted=self.uncounted + uncounted,
            unpriced=self.unpriced + unpriced,
        )


class Meter:
    """What the agents that share it have spent in this process."""

    def __init__(self) -> None:
        self.spend = Totals()
        """Every request that was sent."""
        self.answers = Totals()
        """The responses that runs took."""

    @property
    def discarded(self) -> Totals:
        """What was sent for nothing."""
        return self.spend.minus(self.answers)


class Cost(Middleware):
    """Counts tokens and their price, for each request that is sent.

    The price of a response stands in its usage, as `perdure:cost`, and so in the record. A model
    whose price nobody knows is counted as `unpriced`, and nothing is guessed.

    Args:
        meter: Where it is summed up; a new one unless given.
        prices: Rates for all models, rates by model, or a function; `KnownPrices()`, the tables of
            genai-prices, unless given.
        clock: Where the time comes from.

    Raises:
        ConfigError: `prices` is none of these.
    """

    per_request = True

    def __init__(
        self,
        meter: Meter | None = None,
        *,
        prices: Prices | Rates | Mapping[str, Rates] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.meter = meter or Meter()
        self._prices = KnownPrices() if prices is None else prices_of(prices)
        self._clock: Clock = clock or SystemClock()

    async def before_run(self, info: RunInfo) -> None:
        """See that prices can be had. Raises `ConfigError` if genai-prices is not installed."""
        del info
        if isinstance(self._prices, KnownPrices):
            self._prices.check()

    async def wrap_model_call(
        self,
        request: ModelRequest,
        next: NextModel,  # noqa: A002 - the hook's own name
    ) -> AsyncGenerator[StreamEvent, None]:
        """Count one request.

        Raises:
            BadBody: The server counted fewer than no tokens.
        """
        usage: Usage | None = None
        price: Price | None = None
        stream = next(request)
        try:
            async for event in stream:
                told = _response_of(event)
                if told is not None and told.usage:
                    usage = _checked(told.usage)
                    if is_terminal(event):
                        price = self._price(told, request, usage)
                        event = _marked(event, told, usage, price)
                yield event
        finally:
            self.meter.spend = self.meter.spend.plus(usage, price)
            await close(stream)

    async def on_event(self, event: Event) -> None:
        """Count one answer."""
        if isinstance(event, ResponseEnd):
            usage = event.response.usage or None
            price = price_in(usage) if usage else None
            self.meter.answers = self.meter.answers.plus(usage, price)

    def _price(self, told: Response, request: ModelRequest, usage: Usage) -> Price | None:
        when = dt.datetime.fromtimestamp(self._clock.wall() / 1e9, dt.UTC)
        names = [name for name in (told.model, request.settings.model) if name]
        for model in names or [""]:
            price = self._prices(model, usage, when)
            if price is not None:
                return price
        return None


def _marked(event: StreamEvent, told: Response, usage: Usage, price: Price | None) -> StreamEvent:
    """The terminal event with its price."""
    if price is None or not isinstance(
        event, ResponseCompleted | ResponseIncomplete | ResponseFailed
    ):
        return event
    return replace(event, response=replace(told, usage=priced(usage, price)))


def _response_of(event: StreamEvent) -> Response | None:
    if isinstance(
        event,
        ResponseCreated
        | ResponseInProgress
        | ResponseCompleted
        | ResponseIncomplete
        | ResponseFailed,
    ):
        return event.response
    return None


def _checked(usage: Usage) -> Usage:
    if min(usage.input_tokens, *Tokens.of(usage)) < 0:
        raise BadBody("the server counted fewer than no tokens")
    return usage


def prices_of(given: Prices | Rates | Mapping[str, Rates]) -> Prices:
    """Prices as a function, what it gives checked. Raises `ConfigError` for what are none.

    So does the function, if that which was given raises or gives no price.
    """
    if isinstance(given, KnownPrices):
        return given
    if isinstance(given, Rates):
        return lambda _model, usage, _when: given.price(usage)
    if callable(given):
        return _checked_prices(given)
    if not isinstance(cast("object", given), Mapping):
        raise ConfigError(f"prices are rates, rates by model, or a function, not {given!r}")
    rates_of = dict(given)
    for model, rates in cast("dict[object, object]", rates_of).items():
        if not (isinstance(model, str) and isinstance(rates, Rates)):
            raise ConfigError(f"prices by model are perdure.Rates, got {rates!r} for {model!r}")

    def price(model: str, usage: Usage, when: dt.datetime) -> Price | None:
        del when
        rates = rates_of.get(model)
        return rates.price(usage) if rates is not None else None

    return price


def _checked_prices(given: Prices) -> Prices:
    def price(model: str, usage: Usage, when: dt.datetime) -> Price | None:
        try:
            found = given(model, usage, when)
        except Exception as error:
            raise ConfigError(f"the prices function failed for {model!r}: {error!r}") from error
        if found is None:
            return None
        usd: object = getattr(found, "usd", None)
        if not (isinstance(cast("object", found), Price) and isinstance(usd, Decimal)):
            raise ConfigError(
                f"the prices function gave {found!r} for {model!r}; it gives a Price with "
                "its usd as a Decimal (perdure.middleware.Price), or None"
            )
        if not is_amount(usd):
            raise ConfigError(f"the prices function gave {usd} US dollars for {model!r}")
        return found

    return price
