"""The prices of a run's own budget, as its record holds them, for whoever goes on with it.

Rates are data, and are recorded. A function is not: whoever goes on has its agent's prices.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import cast

import msgspec

from perdure.errors import ConfigError
from perdure.middleware.prices import Prices, Rates

_AMOUNTS = ("input", "output", "cached", "cache_write")


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    """The rates of a model; of all models, if it names none."""

    model: str | None = None
    input: str
    output: str
    cached: str | None = None
    cache_write: str | None = None
    date: str = ""
    source: str = "given"


def recorded_prices(
    prices: Prices | Rates | Mapping[str, Rates] | None,
) -> tuple[Mapping[str, object], ...]:
    """Prices as a record holds them; empty for a function, and for none."""
    if isinstance(prices, Rates):
        return (_row(prices),)
    if isinstance(prices, Mapping):
        by_model = cast("Mapping[str, Rates]", cast("object", prices))
        return tuple({"model": model, **_row(rates)} for model, rates in by_model.items())
    return ()


def prices_on_record(rows: tuple[Mapping[str, object], ...]) -> Rates | Mapping[str, Rates]:
    """The rates that a record holds.

    Raises:
        ConfigError: They are none.
    """
    try:
        known = [msgspec.convert(dict(row), _Row) for row in rows]
    except msgspec.ValidationError as error:
        raise ConfigError(f"the record has prices that are none: {error}") from error
    rates = {row.model: _rates(row) for row in known}
    if None in rates:
        return rates[None]
    return cast("dict[str, Rates]", rates)


def _row(rates: Rates) -> dict[str, object]:
    amounts = {name: getattr(rates, name) for name in _AMOUNTS}
    texts = {name: f"{Decimal(one):f}" for name, one in amounts.items() if one is not None}
    dated = {"date": rates.date} if rates.date else {}
    return {**texts, **dated, "source": rates.source}


def _rates(row: _Row) -> Rates:
    return Rates(
        input=row.input,
        output=row.output,
        cached=row.cached,
        cache_write=row.cache_write,
        date=row.date,
        source=row.source,
    )
