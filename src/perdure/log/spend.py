"""Spend: what the requests of a session took, from its record alone.

A request is *reserved* by an entry before it is sent, and *settled* by the response that it got, or
by an entry of its own where nobody took its answer. What was reserved and never settled counts as
spent, as it was estimated: the process that sent it died (LOG 9). What a sub-agent spent is
*carried* in its parent's record once its call has ended; until then it stands in its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import NamedTuple, cast

import msgspec
from msgspec.structs import replace

from perdure.errors import DecodeError
from perdure.log.entries import (
    AnyEntry,
    BranchSummaryEntry,
    CompactionEntry,
    Json,
    LinkEntry,
    ResponseEntry,
    RunEntry,
    SpendEntry,
)
from perdure.loop.spend import (
    ABSURD,
    COST_MEMBER,
    DISCARDED,
    NO_SPEND,
    Came,
    Charge,
    Spend,
    Tokens,
    is_amount,
    is_sound,
)
from perdure.loop.usage import NO_USAGE, add
from perdure.wire import Usage
from perdure.wire.codec import decode_usage

__all__ = ["Spend", "SpendFold", "Tokens", "own_spend", "usage_in", "usage_of"]

SUBSESSION = "subsession"


class Below(NamedTuple):
    """A sub-agent, as its parent's record tells of its spend."""

    call_id: str
    spend: Spend | None = None
    """None while nothing is carried."""


_TELLING = (
    ResponseEntry,
    SpendEntry,
    RunEntry,
    LinkEntry,
    CompactionEntry,
    BranchSummaryEntry,
)


class SpendFold:
    """The spend of a path or of a session, entry by entry. It is summed when somebody asks."""

    def __init__(self) -> None:
        self._taken: list[tuple[AnyEntry, str]] = []  # and not summed yet
        self._sum = NO_SPEND
        self._open: dict[str, SpendEntry] = {}
        self._rows = 0  # requests that were settled since the last response
        self._below: dict[str, Below] = {}

    def apply(self, entry: AnyEntry, model: str = "") -> None:
        """Take an entry; `model` is the one in force, for an entry that names none."""
        if isinstance(entry, _TELLING):
            self._taken.append((entry, model))

    @property
    def own(self) -> Spend:
        """What the session's own requests took, those that are on their way as estimated."""
        self._fold()
        total = self._sum
        for entry in self._open.values():
            total = total.plus(_reserved(entry, "lost"))
        return total

    @property
    def below(self) -> Mapping[str, Below]:
        """The sub-agents, by session."""
        self._fold()
        return self._below

    def spend(self) -> Spend:
        """What they took, with what is carried of sub-agents."""
        carried = (one.spend for one in self.below.values() if one.spend is not None)
        return sum(carried, self.own)

    def _fold(self) -> None:
        taken, self._taken = self._taken, []
        for entry, model in taken:
            self._apply(entry, model)

    def _apply(self, entry: AnyEntry, model: str) -> None:
        match entry:
            case ResponseEntry():
                self._response(entry, entry.model or model)
            case SpendEntry():
                self._spend(entry)
            case RunEntry() if entry.phase == "start":
                for cut in self._open.values():  # its process died, and will settle nothing
                    self._sum = self._sum.plus(_reserved(cut, "lost"))
                self._open.clear()
                self._rows = 0
            case LinkEntry() if entry.rel == SUBSESSION:
                self._below.setdefault(entry.session, Below(entry.call_id))
            case CompactionEntry() | BranchSummaryEntry() if entry.usage:
                tokens = _tokens(entry.usage)
                if tokens is not None:
                    charged = self._sum.plus(Charge(model=model, tokens=tokens))
                    self._sum = replace(charged, responses=self._sum.responses)
            case _:
                pass

    def _spend(self, entry: SpendEntry) -> None:
        if entry.phase == "reserve":
            self._open[entry.id] = entry
        elif entry.phase == "child":
            self._below[entry.session] = Below(entry.call_id, entry.spend)
        elif entry.phase == "settle":
            self._open.pop(entry.target, None)
            if entry.came in ("answered", "dropped", "failed", "lost", "refused"):
                self._rows += 1
                self._sum = self._sum.plus(
                    Charge(
                        model=entry.model,
                        tokens=entry.tokens,
                        usd=entry.usd,
                        came=entry.came,
                        estimated=entry.estimated,
                    )
                )

    def _response(self, entry: ResponseEntry, model: str) -> None:
        rows, self._rows = self._rows, 0
        if entry.settled:
            return
        reserved = self._open.pop(entry.reserved or next(iter(self._open), ""), None)
        tokens = _tokens(entry.usage) if entry.usage else None
        if tokens is not None and entry.usage:
            came: Came = "failed" if entry.error else "answered"
            usd = _cost_in(entry.usage)
            self._sum = self._sum.plus(Charge(model=model, tokens=tokens, usd=usd, came=came))
            self._sum += _discarded_in(entry.usage)
        elif reserved is not None:
            came = "lost" if entry.error or entry.incomplete else "answered"
            self._sum = self._sum.plus(_reserved(reserved, came))
        elif rows:  # a crash cut it behind the entry that settles it
            return
        else:
            self._sum = self._sum.plus(Charge(model=model))
        more = max(entry.attempts - rows, 1) - 1  # of a writer that settles none
        self._sum = replace(self._sum, requests=self._sum.requests + more)


def _reserved(entry: SpendEntry, came: Came) -> Charge:
    """A request of which nothing more is known took what it reserved."""
    return Charge(
        model=entry.model,
        tokens=entry.tokens,
        usd=entry.usd,
        came=came,
        estimated=True,
    )


def own_spend(entries: Iterable[AnyEntry]) -> SpendFold:
    """The spend of a session, on all its branches: a branch that was left was paid for, too."""
    fold = SpendFold()
    for entry in entries:
        fold.apply(entry)
    return fold


def usage_of(responses: Iterable[ResponseEntry]) -> Usage:
    """What the servers of responses said they used, as on the wire."""
    total = NO_USAGE
    for response in responses:
        if response.usage:
            total = add(total, usage_in(response.usage))
    return total


def usage_in(members: Json) -> Usage | None:
    """A recorded usage as the wire has it, with what it holds beside; None if it is none."""
    try:
        return decode_usage(msgspec.json.encode(members))
    except DecodeError:  # a server may say anything
        return None


def _tokens(usage: Json) -> Tokens | None:
    """The tokens of a recorded usage; None if its server cannot have counted so."""
    ins, outs = _count(usage, "input_tokens"), _count(usage, "output_tokens")
    details = usage.get("input_tokens_details")
    cached, written = _count(details, "cached_tokens"), _count(details, "cache_creation_tokens")
    thoughts = _count(usage.get("output_tokens_details"), "reasoning_tokens")
    total = _count(usage, "total_tokens")
    if min(ins, outs, cached, written, thoughts) < 0:
        return None
    if max(ins, outs, cached, written, thoughts, total) >= ABSURD:
        return None
    return Tokens(
        input=ins, output=outs, total=max(total, ins + outs), cached=cached, reasoning=thoughts
    )


def _count(of: object, name: str) -> int:
    if not isinstance(of, dict):
        return 0
    count = cast("Json", of).get(name)
    return int(count) if isinstance(count, int | float) else 0


def _cost_in(usage: Mapping[str, object]) -> Decimal | None:
    found = usage.get(COST_MEMBER)
    if not isinstance(found, dict):
        return None
    try:
        usd = Decimal(str(cast("Json", found).get("usd")))
    except InvalidOperation:
        return None
    return usd if is_amount(usd) else None


def _discarded_in(usage: Mapping[str, object]) -> Spend:
    found = usage.get(DISCARDED)
    if found is None:
        return NO_SPEND
    try:
        spend = msgspec.convert(found, Spend, strict=False)
    except msgspec.ValidationError:
        return NO_SPEND
    return spend if is_sound(spend) else NO_SPEND
