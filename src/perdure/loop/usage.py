"""Sums of token counts."""

from __future__ import annotations

from perdure.loop.spend import tokens_of
from perdure.wire import (
    ABSENT,
    Absent,
    InputTokensDetails,
    OutputTokensDetails,
    Usage,
)

NO_USAGE = Usage(
    input_tokens=0,
    output_tokens=0,
    total_tokens=0,
    input_tokens_details=InputTokensDetails(cached_tokens=0),
    output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
)


def add(total: Usage, more: Usage | None | Absent) -> Usage:
    """The sum of two usages; a response without one, or with one that cannot be, adds nothing."""
    if not more or tokens_of(more) is None:
        return total
    return Usage(
        input_tokens=total.input_tokens + more.input_tokens,
        output_tokens=total.output_tokens + more.output_tokens,
        total_tokens=total.total_tokens + more.total_tokens,
        input_tokens_details=InputTokensDetails(
            cached_tokens=_cached(total) + _cached(more),
            cache_creation_tokens=_created(total) + _created(more) or ABSENT,
        ),
        output_tokens_details=OutputTokensDetails(
            reasoning_tokens=_reasoning(total) + _reasoning(more)
        ),
    )


def _cached(usage: Usage) -> int:
    details = usage.input_tokens_details
    return (details.cached_tokens or 0) if details else 0


def _created(usage: Usage) -> int:
    details = usage.input_tokens_details
    return (details.cache_creation_tokens or 0) if details else 0


def _reasoning(usage: Usage) -> int:
    details = usage.output_tokens_details
    return (details.reasoning_tokens or 0) if details else 0
