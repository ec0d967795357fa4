"""What is decided about a call, and how several decisions become one."""

from __future__ import annotations

from typing import Literal

import msgspec

from perdure.tools import Gate

Action = Literal["proceed", "hold", "reject"]
"""Let the call run, let it wait for an answer, refuse it."""

Decider = Literal["human", "policy", "agent"]
"""Who decided."""

_STRICTNESS: dict[Action, int] = {"proceed": 0, "hold": 1, "reject": 2}


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """How a decision or an answer came from outside the drive, for the record."""

    message: str = ""
    """The inbox message it came by; the entry it becomes names it (LOG 3.1)."""
    who: str = ""
    """The person or the program, by name."""
    evidence: str = ""
    """JSON text: what it rests on."""
    tally: str = ""
    """The entry of the tally that opened the call's gate; the loop fills it in from the record."""


class ToolDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What is decided about a call before it runs."""

    action: Action = "proceed"
    reason: str = ""
    """Why. The model reads it if the call is rejected; otherwise it is for the record."""
    arguments: str | None = None
    """JSON text in place of what the model gave."""
    note: str = ""
    """What the model is told after the outputs of the batch, if the call proceeds."""
    terminate: bool = False
    """End the drive after this batch."""
    by: Decider | None = None
    """Who decided; nobody named is read as a policy."""
    run_again: bool = False
    """Somebody accepted that a call which may have run runs once more."""
    provenance: Provenance | None = None
    """How it came, if it came from outside the drive."""
    gate: Gate | None = None
    """Of a hold: whose approval it waits for. Nothing but their tally opens it."""


def stricter(first: ToolDecision | None, second: ToolDecision | None) -> ToolDecision | None:
    """Both decisions as one: reject over hold over proceed.

    The reason and the decider are those of the decision that stands; of two alike, the first that
    gives one. The first note stands, the last arguments, and `terminate` if either sets it.
    """
    if first is None or second is None:
        return first or second
    if _STRICTNESS[second.action] > _STRICTNESS[first.action]:
        standing, reason, by = second, second.reason, second.by
    else:
        alike = second.action == first.action
        standing = first
        reason = first.reason or (second.reason if alike else "")
        by = first.by or (second.by if alike else None)
    return ToolDecision(
        action=standing.action,
        reason=reason,
        arguments=first.arguments if second.arguments is None else second.arguments,
        note=first.note or second.note,
        terminate=first.terminate or second.terminate,
        by=by,
        provenance=first.provenance or second.provenance,
    )
