"""Spend: the tokens that the responses of a path say they took."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import cast

import msgspec
from msgspec import Struct

from perdure.log.entries import AnyEntry, BranchSummaryEntry, CompactionEntry, Json, ResponseEntry
from perdure.loop.usage import NO_USAGE, add
from perdure.wire import Usage


class Tokens(Struct, frozen=True, kw_only=True):
    """Sums over what servers said; what they did not say counts as nothing."""

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


class Spend(Struct, frozen=True, kw_only=True):
    """What a path took."""

    tokens: Tokens = Tokens()
    by_model: Mapping[str, Tokens] = {}
    responses: int = 0
    requests: int = 0
    """All that were sent, those that failed before an answer began among them."""


class SpendFold:
    """The spend of a path, entry by entry."""

    def __init__(self) -> None:
        self._by_model: dict[str, Tokens] = {}
        self._responses = 0
        self._requests = 0

    def apply(self, entry: AnyEntry, model: str) -> None:
        """Take an entry; `model` is the one in force, for an entry that names none."""
        match entry:
            case ResponseEntry():
                self._responses += 1
                self._requests += max(entry.attempts, 1)
                self._take(entry.usage, entry.model or model)
            case CompactionEntry() | BranchSummaryEntry() if entry.usage:
                self._requests += 1
                self._take(entry.usage, model)
            case _:
                pass

    def _take(self, usage: Json | None, model: str) -> None:
        if usage:
            self._by_model[model] = self._by_model.get(model, Tokens()) + tokens_of(usage)

    def spend(self) -> Spend:
        """The spend now."""
        return Spend(
            tokens=sum(self._by_model.values(), Tokens()),
            by_model=dict(self._by_model),
            responses=self._responses,
            requests=self._requests,
        )


def usage_of(responses: Iterable[ResponseEntry]) -> Usage:
    """What the servers of responses said they used, as on the wire."""
    total = NO_USAGE
    for response in responses:
        if response.usage:
            with contextlib.suppress(msgspec.ValidationError):  # a server may say anything
                total = add(total, msgspec.convert(response.usage, Usage))
    return total


def tokens_of(usage: Json) -> Tokens:
    """The tokens of a response's `usage`."""
    return Tokens(
        input=_count(usage, "input_tokens"),
        output=_count(usage, "output_tokens"),
        total=_count(usage, "total_tokens"),
        cached=_count(usage.get("input_tokens_details"), "cached_tokens"),
        reasoning=_count(usage.get("output_tokens_details"), "reasoning_tokens"),
    )


def _count(of: object, name: str) -> int:
    if not isinstance(of, dict):
        return 0
    count = cast("Json", of).get(name)
    return int(count) if isinstance(count, int | float) else 0
