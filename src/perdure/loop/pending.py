"""Calls without an output, and why they have none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from perdure.wire import FunctionCall, FunctionCallOutput, Item

PendingReason = Literal[
    "held", "suspended", "aborted", "undispatched", "unknown", "answered", "rejected"
]
"""`aborted`: it was dispatched and cut, so it may have run. `undispatched`: it never entered its
tool. `unknown`: nobody can say."""


class PendingCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call without an output."""

    call: FunctionCall
    reason: PendingReason
    idempotency_key: str = ""
    """The key of its last dispatch."""

    @property
    def may_have_run(self) -> bool:
        """Whether it may have entered its tool."""
        return self.reason in ("aborted", "unknown")


def unanswered(items: Iterable[Item]) -> tuple[FunctionCall, ...]:
    """The function calls that no output names, in order."""
    calls: dict[str, FunctionCall] = {}
    for item in items:
        if isinstance(item, FunctionCall):
            calls[item.call_id] = item
        elif isinstance(item, FunctionCallOutput):
            calls.pop(item.call_id, None)
    return tuple(calls.values())
