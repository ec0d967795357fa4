"""What tokens cost: rates of one's own, or those of genai-prices.

Counts are those of `Usage`: cached and written tokens are parts of `input_tokens`, so each is paid
once, whichever provider counted it.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from importlib import import_module
from typing import NamedTuple, Protocol, cast

import msgspec

from perdure.errors import ConfigError
from perdure.loop.spend import Price, is_amount
from perdure.wire import InputTokensDetails, Usage

MILLION = 1_000_000


class Tokens(NamedTuple):
    """The tokens of one response, each counted once."""

    plain: int
    """Read, and neither cached nor written to a cache."""
    cached: int
    written: int
    """Written to a cache."""
    output: int
    """Thoughts included."""

    @classmethod
    def of(cls, usage: Usage) -> Tokens:
        """The tokens that a provider counted."""
        details = usage.input_tokens_details or InputTokensDetails()
        cached = details.cached_tokens or 0
        written = details.cache_creation_tokens or 0
        plain = max(0, usage.input_tokens - cached - written)
        return cls(plain, cached, written, usage.output_tokens)


_AMOUNT = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
_MOST = Decimal(10) ** 12
_PLACES = 30


def amount_of(name: str, given: object) -> Decimal:
    """An amount of US dollars as a program gives it.

    Args:
        name: What it is of, for the error.
        given: Text of digits with or without a point, a whole number, or a `Decimal`.

    Raises:
        ConfigError: It is none of these, negative, not finite, or no amount that anybody has.
    """
    if isinstance(given, bool) or not isinstance(given, Decimal | str | int):
        raise ConfigError(f'money is exact: write {name} as "0.50", not {given!r}')
    if isinstance(given, str) and not _AMOUNT.fullmatch(given):
        raise ConfigError(f'{name} is an amount of US dollars, as "0.50", not {given!r}')
    money = Decimal(given)
    if not is_amount(money) or money > _MOST or cast("int", money.as_tuple().exponent) < -_PLACES:
        raise ConfigError(f"{name} is an amount of US dollars, got {given!r}")
    return money


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars for a million tokens of each kind: text, whole numbers or `Decimal`, no floats.

    Raises:
        ConfigError: A rate is no amount of money.
    """

    input: Decimal | str | int
    output: Decimal | str | int
    cached: Decimal | str | int | None = None
    """Read from a cache; as `input` unless given."""
    cache_write: Decimal | str | int | None = None
    """Written to one; as `input` unless given."""
    date: str = ""
    """The day they are of."""
    source: str = "given"

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached", "cache_write"):
            rate: object = getattr(self, name)
            if rate is not None or name in ("input", "output"):
                amount_of(f"Rates({name}=...)", rate)

    def price(self, usage: Usage) -> Price:
        """What a response costs."""
        tokens = Tokens.of(usage)
        cached = self.input if self.cached is None else self.cached
        written = self.input if self.cache_write is None else self.cache_write
        counted = zip(tokens, (self.input, cached, written, self.output), strict=True)
        usd = sum((count * Decimal(rate) for count, rate in counted), Decimal(0)) / MILLION
        return Price(usd=usd, date=self.date, source=self.source)


Prices = Callable[[str, Usage, dt.datetime], Price | None]
"""What a response of a model costs that was asked at a time; None if nobody knows."""


class _Calculated(Protocol):
    @property
    def total_price(self) -> Decimal: ...


class _GenaiPrices(Protocol):
    """What is used of genai-prices, which says less of its types than it knows."""

    __version__: str

    def Usage(self, **counts: int) -> object: ...  # noqa: N802 - its own name

    def calc_price(
        self,
        usage: object,
        model_ref: str,
        *,
        provider_id: str | None,
        genai_request_timestamp: dt.datetime,
    ) -> _Calculated: ...


@cache
def _library() -> _GenaiPrices:
    try:
        return cast("_GenaiPrices", import_module("genai_prices"))
    except ModuleNotFoundError as error:
        raise ConfigError(
            "prices need genai-prices: pip install 'perdure[prices]', or give Cost(prices=...)"
        ) from error


_ON_BEDROCK = re.compile(
    r"(?:\w+\.)?(?:ai21|amazon|anthropic|cohere|deepseek|meta|mistral|openai|qwen)\."
)


class KnownPrices:
    """Prices by the tables of genai-prices, as they were on the day.

    What a provider itself says that a response costs, as OpenRouter does, stands over the tables.

    Args:
        provider: Who is asked, by the name that genai-prices has for it, as `groq`: many have the
            same models at prices of their own. Told by the model's name unless given.
    """

    def __init__(self, provider: str = "") -> None:
        self._provider = provider

    def check(self) -> None:
        """Whether the tables are there.

        Raises:
            ConfigError: genai-prices is not installed.
        """
        _library()

    def __call__(self, model: str, usage: Usage, when: dt.datetime) -> Price | None:
        """What a response of a model costs. Raises as `check`."""
        date = when.date().isoformat()
        told = usage.unknown.get("cost")
        if isinstance(told, int | float) and not isinstance(told, bool):
            usd = Decimal(repr(told))
            if is_amount(usd):
                return Price(usd=usd, date=date, source="told by the provider")
        library, tokens = _library(), Tokens.of(usage)
        counts = library.Usage(
            input_tokens=usage.input_tokens,
            cache_read_tokens=tokens.cached,
            cache_write_tokens=tokens.written,
            output_tokens=tokens.output,
        )
        try:
            found = library.calc_price(
                counts,
                model,
                provider_id=self._provider or _provider_of(model),
                genai_request_timestamp=when,
            )
        except LookupError:
            return None
        source = f"genai-prices {library.__version__}"
        return Price(usd=found.total_price, date=date, source=source)


def _provider_of(model: str) -> str | None:
    if "/" in model:
        return "openrouter"
    return "aws" if _ON_BEDROCK.match(model) else None
