"""Gates: a tool that somebody has to agree to is entered only where the record says they did.

Whatever decides about a call, a hook, a resume, a standing approval, a resolution, is asked here
once more. There is nothing that an answer could carry to get past: what opens a gate is a tally
on the record, and the loop looks for that itself (DESIGN 5).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import msgspec

from perdure.ballots import Outcome
from perdure.loop.decisions import Provenance, ToolDecision
from perdure.tools import Approval, Gate, arguments_digest

APPROVED = "approved"
"""Why a call proceeds whose tally stands, if nobody says more."""


DENIED = "denied"
"""Why a call is rejected whose tally denied it: that is final."""


class Standing(NamedTuple):
    """What the record says of the last gate of a call."""

    gate: Gate
    outcome: Outcome
    tally: str = ""
    """The entry of the tally; empty while it is pending."""
    approved_by: tuple[str, ...] = ()
    used: bool = False
    """A dispatch that counts follows the gate, or stands on another branch."""


Gates: TypeAlias = Callable[[str], Standing | None]
"""Tells how the last gate of a call stands; None if it never had one."""


class Asked(NamedTuple):
    """A call that is to be let in, or not."""

    call_id: str
    arguments: str
    """What the tool is to get."""
    now: int
    """Nanoseconds since the Unix epoch."""


def gated(
    asked: Asked, approval: Approval, gates: Gates | None, given: ToolDecision | None
) -> ToolDecision | None:
    """A decision about a call whose tool has an approval: it holds, unless a tally lets it in.

    Args:
        asked: The call.
        approval: What its tool asks for today.
        gates: What the record says; None if there is none.
        given: What was decided; it does not reject.
    """
    standing = gates(asked.call_id) if gates is not None else None
    digest = arguments_digest(asked.arguments)
    again = given is not None and given.run_again
    if standing is not None and _lets_in(standing, approval, digest, again=again):
        return _let_in(standing, given)
    if standing is not None and standing.outcome == "denied":
        return ToolDecision(action="reject", reason=DENIED, by="human")
    level = _level(standing, approval)
    asks = approval.at(level) or approval
    return _held(asks.gate(digest, asked.now, level), given)


def _lets_in(standing: Standing, approval: Approval, digest: str, *, again: bool) -> bool:
    """Whether a tally opens the gate: for these arguments, by today's policy too, and once."""
    gate = standing.gate
    today = approval.at(gate.level) or approval
    return (
        standing.outcome == "approved"
        and gate.digest == digest
        and today.accepts(standing.approved_by, signed=gate.signed)
        and not (again and standing.used)
    )


def _let_in(standing: Standing, given: ToolDecision | None) -> ToolDecision | None:
    if given is not None and given.action == "hold":
        return given  # somebody else holds it, which the tally does not answer
    if given is None:
        given = ToolDecision(by="policy", reason=APPROVED)
    said = given.provenance or Provenance()
    return msgspec.structs.replace(
        given, provenance=msgspec.structs.replace(said, tally=standing.tally)
    )


def _level(standing: Standing | None, approval: Approval) -> int:
    """How far a gate is escalated: one further, if the last one expired and there is more."""
    if standing is None or standing.outcome != "expired":
        return 0
    level = standing.gate.level + 1
    return level if approval.at(level) is not None else 0


def _held(gate: Gate, given: ToolDecision | None) -> ToolDecision:
    reason = f"needs the approval of {gate.asks}"
    if given is None:
        return ToolDecision(action="hold", reason=reason, by="policy", gate=gate)
    if given.action == "hold" and given.reason:
        reason = f"{reason}: {given.reason}"
    return msgspec.structs.replace(given, action="hold", reason=reason, by="policy", gate=gate)
