"""Calls without an output, and why they have none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from perdure.tools import Effect, Gate, Tool
from perdure.wire import FunctionCall, FunctionCallOutput, Item

PendingReason = Literal[
    "held", "suspended", "aborted", "undispatched", "unknown", "answered", "rejected"
]
"""Why a call has no output.

`held`: a decision lets it wait. `suspended`: its tool waits. `aborted`: it was cut in its tool, so
it may have run. `undispatched`: it never entered its tool. `unknown`: nobody can say. `answered`
and `rejected`: a record says so, and is owed the output.
"""


class PendingCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call without an output."""

    call: FunctionCall
    reason: PendingReason
    tool: Tool | None = None
    """The tool it resolved to in the drive that made it."""
    decided: bool = False
    """A decision on the record lets it run, and it has not entered its tool since."""
    dispatched: bool = False
    """A held call that entered its tool before it was held."""
    idempotency_key: str = ""
    """The key of its last dispatch; empty if it never had one."""
    effect: Effect | None = None
    """What its tool did to the world, as of its last dispatch; None if nobody knows."""
    arguments: str | None = None
    """What an approval runs it with, if not what the model gave: the arguments of its last
    dispatch, or those that the decision that holds it gave."""
    ran: FunctionCallOutput | None = None
    """The output it has where it ran, off the path that continues."""
    ran_where: str = ""
    """Where that was, in words: the reason of the answer that gives it."""
    refused: str = ""
    """The text of the refusal it is owed, for a rejected call."""
    attempted_at: int | None = None
    """When it last entered its tool, in nanoseconds since the Unix epoch, if a record says so."""
    gate: Gate | None = None
    """Whose approval a held call waits for; None if any answer will do."""
    wait: Mapping[str, object] | None = None
    """What its tool waits for, as JSON values; None if it does not. docs/steps-and-waits.md lists
    its members."""
    session: str = ""
    """The session that made it, where its answers go; empty without a record."""
    path: tuple[str, ...] = ()
    """The calls whose sub-agents lead to it, from the root; empty for a call of the root's own."""

    @property
    def runs_with(self) -> str:
        """The arguments it is let run with, as JSON text: what whoever approves it has to see."""
        return self.call.arguments if self.arguments is None else self.arguments

    @property
    def may_have_run(self) -> bool:
        """Whether it may have entered its tool, so that running it again needs a rule."""
        return self.reason in ("aborted", "unknown") or (self.reason == "held" and self.dispatched)


def unanswered(items: Iterable[Item]) -> tuple[FunctionCall, ...]:
    """The function calls that no later output names, in order."""
    calls: dict[str, FunctionCall] = {}
    for item in items:
        if isinstance(item, FunctionCall):
            calls[item.call_id] = item
        elif isinstance(item, FunctionCallOutput):
            calls.pop(item.call_id, None)
    return tuple(calls.values())


def pending_in(items: Iterable[Item], known: Sequence[PendingCall]) -> tuple[PendingCall, ...]:
    """The calls without an output, each with what is known of that very call."""
    by_call: dict[tuple[str, str, str], PendingCall] = {}
    for one in known:
        by_call.setdefault((one.call.call_id, one.call.name, one.call.arguments), one)
    return tuple(
        by_call.get((call.call_id, call.name, call.arguments))
        or PendingCall(call=call, reason="unknown")
        for call in unanswered(items)
    )
