"""Spend: what requests took, each counted once, whatever came of them.

A *charge* is what one request took. It is *estimated* where no server said it: the connection broke
off, a process died, the server counted nonsense. It is *discarded* where nobody took its answer:
it failed, was made again, or lost a race. Money is decimal, never a float.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace

from perdure.wire import InputTokensDetails, OutputTokensDetails, Usage, with_unknown
from perdure.wire.marks import is_mark
from perdure.wire.values import Kept

ABSURD = 10**9
"""A server that says that one response took as many tokens is not believed."""

COST_MEMBER = "perdure:cost"
"""The member of a response's usage, in events and in the record, that says what it cost: `usd` as
text, the `date` of the rates, and their `source`."""

DISCARDED = "perdure:discarded"
"""The member of a usage that a replayed answer has: what the record discarded on the way to it."""

Came = Literal["answered", "dropped", "failed", "lost", "refused"]
"""What came of a request. `answered`: a response, whole, that was taken. `dropped`: one that nobody
took. `failed`: one that says so. `lost`: it broke off, or was given up. `refused`: the server said
no, and bills nothing for it."""


class RecordedUsage(Usage, frozen=True, kw_only=True):
    """A usage of which perdure itself wrote what is perdure's: it comes from a record.

    No bytes decode to it, so a server cannot say what its answers cost or what was discarded.
    """


class Price(Struct, frozen=True, kw_only=True):
    """What one response costs."""

    usd: Decimal
    date: str = ""
    """The day that the rates are of, as `2026-11-30`."""
    source: str = ""
    """Whose rates they are."""


class Tokens(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sums of tokens. What servers did not say counts as nothing, unless it was estimated."""

    input: int = 0
    output: int = 0
    total: int = 0
    cached: int = 0
    """Of the input, read from a cache."""
    reasoning: int = 0
    """Of the output, thoughts."""

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            input=self.input + other.input,
            output=self.output + other.output,
            total=self.total + other.total,
            cached=self.cached + other.cached,
            reasoning=self.reasoning + other.reasoning,
        )

    def __sub__(self, other: Tokens) -> Tokens:
        return Tokens(
            input=self.input - other.input,
            output=self.output - other.output,
            total=self.total - other.total,
            cached=self.cached - other.cached,
            reasoning=self.reasoning - other.reasoning,
        )


NO_TOKENS = Tokens()
ZERO = Decimal(0)


class Charge(Struct, frozen=True, kw_only=True, gc=False):
    """What one request took."""

    model: str
    tokens: Tokens = NO_TOKENS
    usd: Decimal | None = None
    """None if nobody knows its price."""
    came: Came = "answered"
    estimated: bool = False


class Spend(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run took, what it started below it included."""

    tokens: Tokens = NO_TOKENS
    by_model: Mapping[str, Tokens] = {}
    responses: int = 0
    """The responses that were taken."""
    requests: int = 0
    """All that were sent, those that failed before an answer began among them."""
    usd: Decimal = ZERO
    """What those whose price is known cost, in US dollars."""
    unpriced: int = 0
    """Requests that took tokens whose price nobody knew."""
    estimated: Tokens = NO_TOKENS
    """The part of `tokens` that no server told."""
    estimated_usd: Decimal = ZERO
    uncounted: int = 0
    """How many requests that part is of."""
    discarded: Tokens = NO_TOKENS
    """The part of `tokens` whose answers nobody took: failed, made again, hedged, lost."""
    discarded_usd: Decimal = ZERO

    def plus(self, charge: Charge) -> Spend:
        """With one more request."""
        tokens, usd = charge.tokens, charge.usd or ZERO
        taken, told = charge.came == "answered", not charge.estimated
        by_model = self.by_model
        if tokens != NO_TOKENS:
            before = by_model.get(charge.model, NO_TOKENS)
            by_model = {**by_model, charge.model: before + tokens}
        return Spend(
            tokens=self.tokens + tokens,
            by_model=by_model,
            responses=self.responses + taken,
            requests=self.requests + 1,
            usd=self.usd + usd,
            unpriced=self.unpriced + (charge.usd is None and tokens.total > 0),
            estimated=self.estimated if told else self.estimated + tokens,
            estimated_usd=self.estimated_usd if told else self.estimated_usd + usd,
            uncounted=self.uncounted + (not told),
            discarded=self.discarded if taken else self.discarded + tokens,
            discarded_usd=self.discarded_usd if taken else self.discarded_usd + usd,
        )

    def dropping(self, charge: Charge) -> Spend:
        """With an answer among it that nobody took after all."""
        return replace(
            self,
            responses=self.responses - 1,
            discarded=self.discarded + charge.tokens,
            discarded_usd=self.discarded_usd + (charge.usd or ZERO),
        )

    def __add__(self, other: Spend) -> Spend:
        by_model = dict(self.by_model)
        for model, tokens in other.by_model.items():
            by_model[model] = by_model.get(model, NO_TOKENS) + tokens
        return Spend(
            tokens=self.tokens + other.tokens,
            by_model=by_model,
            responses=self.responses + other.responses,
            requests=self.requests + other.requests,
            usd=self.usd + other.usd,
            unpriced=self.unpriced + other.unpriced,
            estimated=self.estimated + other.estimated,
            estimated_usd=self.estimated_usd + other.estimated_usd,
            uncounted=self.uncounted + other.uncounted,
            discarded=self.discarded + other.discarded,
            discarded_usd=self.discarded_usd + other.discarded_usd,
        )


NO_SPEND = Spend()


def tokens_of(usage: Usage) -> Tokens | None:
    """The tokens that a server counted; None if it cannot have counted so.

    Cached tokens and thoughts are parts of the input and the output, whichever provider counted.
    """
    ins = usage.input_tokens_details or InputTokensDetails()
    outs = usage.output_tokens_details or OutputTokensDetails()
    cached, written = ins.cached_tokens or 0, ins.cache_creation_tokens or 0
    thoughts = outs.reasoning_tokens or 0
    counts = (usage.input_tokens, usage.output_tokens, cached, written, thoughts)
    if min(counts) < 0 or max(*counts, usage.total_tokens) >= ABSURD:
        return None
    return Tokens(
        input=usage.input_tokens,
        output=usage.output_tokens,
        total=max(usage.total_tokens, usage.input_tokens + usage.output_tokens),
        cached=cached,
        reasoning=thoughts,
    )


def believed(usage: Usage) -> Usage:
    """A usage as it enters the loop: without what is perdure's, unless it comes from a record."""
    own = isinstance(usage, RecordedUsage)
    kept = usage.kept
    if kept and not own and any(is_mark(name) for name in kept.members):
        members = {name: raw for name, raw in kept.members.items() if not is_mark(name)}
        return replace(usage, kept=Kept(members, kept.absent))
    return _as(Usage, usage) if own else usage


def from_record(usage: Usage) -> RecordedUsage:
    """A usage of a record, whose price and what else perdure says in it is believed."""
    return _as(RecordedUsage, usage)


UsageT = TypeVar("UsageT", bound=Usage)


def _as(kind: type[UsageT], usage: Usage) -> UsageT:
    return kind(**{name: getattr(usage, name) for name in usage.__struct_fields__})


def is_amount(usd: Decimal) -> bool:
    """Whether it is an amount of money that can have been spent: finite, and not negative."""
    return usd.is_finite() and usd >= 0


def is_sound(spend: Spend) -> bool:
    """Whether it can have been spent: nothing of it is negative, absurd or infinite."""
    tokens = (spend.tokens, spend.estimated, spend.discarded, *spend.by_model.values())
    counts = (spend.responses, spend.requests, spend.unpriced, spend.uncounted)
    money = (spend.usd, spend.estimated_usd, spend.discarded_usd)
    return (
        all(count >= 0 for one in tokens for count in astuple(one))
        and all(count >= 0 for count in counts)
        and all(is_amount(usd) for usd in money)
    )


def priced(usage: Usage, price: Price | None) -> Usage:
    """A usage that says what it cost."""
    if price is None:
        return usage
    members = {"usd": f"{price.usd:f}", "date": price.date, "source": price.source}
    return with_unknown(usage, {COST_MEMBER: members})


def price_in(usage: Usage) -> Price | None:
    """The price that a response was marked with; None if it has none."""
    found = _read(usage, COST_MEMBER, Price)
    return found if found is not None and is_amount(found.usd) else None


def discarded_in(usage: Usage) -> Spend | None:
    """What a replayed answer says that the record discarded on the way to it."""
    found = _read(usage, DISCARDED, Spend)
    return found if found is not None and is_sound(found) else None


T = TypeVar("T")


def _read(usage: Usage, member: str, kind: type[T]) -> T | None:
    found = usage.unknown.get(member)
    if found is None:
        return None
    try:
        return msgspec.convert(found, kind, strict=False)
    except msgspec.ValidationError:  # a server may say anything
        return None
