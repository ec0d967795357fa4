"""Approvals: the gates of calls, the votes about them, and what the votes came to.

A gate is a hold that says whose approval it waits for. Votes and tallies name the hold, so that
what was said of one moment of a call never counts for another (LOG 5.7). What stands in the prefix
of a fork is history there, and opens nothing (LOG 5.8).
"""

from __future__ import annotations

import dataclasses
from typing import Protocol, cast

from perdure.ballots import Outcome, Subject, Vote
from perdure.log.calls import Call, CallsFold
from perdure.log.entries import (
    AnyEntry,
    DecisionEntry,
    DispatchEntry,
    ReminderEntry,
    TallyEntry,
    VoteEntry,
)
from perdure.loop.gates import Standing
from perdure.tools import Gate


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class HeldGate:
    """One gate of a call."""

    hold: DecisionEntry
    gate: Gate
    votes: list[VoteEntry] = dataclasses.field(default_factory=list[VoteEntry])
    tally: TallyEntry | None = None
    """What they came to; the first one stands."""
    reminded: set[int] = dataclasses.field(default_factory=set[int])
    """The reminders that were sent, from 1."""
    dispatches: list[str] = dataclasses.field(default_factory=list[str])
    """The dispatches behind it."""

    @property
    def outcome(self) -> Outcome:
        return cast("Outcome", self.tally.outcome) if self.tally is not None else "pending"

    @property
    def next_reminder(self) -> int:
        """The next reminder that is owed, from 1; 0 if there is none."""
        numbers = range(1, len(self.gate.reminders) + 1)
        return next((number for number in numbers if number not in self.reminded), 0)

    @property
    def due(self) -> int | None:
        """When it wants to be looked at: to remind somebody, or because it expires."""
        number = self.next_reminder
        times = [self.gate.reminders[number - 1]] if number else []
        return min((*times, *(() if self.gate.due is None else (self.gate.due,))), default=None)


class ApprovalsFold:
    """The gates of a path, entry by entry."""

    def __init__(self) -> None:
        self._last: dict[str, HeldGate] = {}
        self._by_hold: dict[str, HeldGate] = {}

    def of(self, target: str) -> HeldGate | None:
        """The last gate of the call whose item an entry holds."""
        return self._last.get(target)

    def at(self, hold: str) -> HeldGate | None:
        """The gate of a hold."""
        return self._by_hold.get(hold)

    def apply(self, entry: AnyEntry, *, own: bool) -> None:
        """Take an entry; those of a fork's prefix open nothing."""
        if isinstance(entry, DecisionEntry):
            if own and entry.gate is not None and entry.verdict == "hold":
                gate = HeldGate(hold=entry, gate=entry.gate)
                self._last[entry.target] = self._by_hold[entry.id] = gate
        elif self._last:
            self._about(entry)

    def _about(self, entry: AnyEntry) -> None:
        """Take an entry that may be about a gate."""
        match entry:
            case VoteEntry() if (voted := self._by_hold.get(entry.hold)) and voted.tally is None:
                voted.votes.append(entry)
            case TallyEntry() if tallied := self._by_hold.get(entry.hold):
                tallied.tally = tallied.tally or entry
            case ReminderEntry() if reminded := self._by_hold.get(entry.hold):
                reminded.reminded.add(entry.number)
            case DispatchEntry() if entry.target in self._last:
                self._last[entry.target].dispatches.append(entry.id)
            case _:
                pass

    def waiting(self, call: Call) -> HeldGate | None:
        """The gate that a call waits at; None if it does not."""
        gate = self._last.get(call.entry)
        if gate is None or not call.waits or call.decisions[-1].id != gate.hold.id:
            return None
        return gate

    def due(self, calls: CallsFold) -> int | None:
        """When the first of the gates wants to be looked at."""
        if not self._last:
            return None
        gates = [self.waiting(call) for call in calls.open.values()]
        dues = [gate.due for gate in gates if gate is not None and gate.tally is None]
        return min((due for due in dues if due is not None), default=None)


class Places(Protocol):
    """Where the entries of a session stand, on all its branches."""

    def __contains__(self, entry: str, /) -> bool: ...
    def place(self, entry: str) -> int: ...


def standing_of(call: Call | None, approvals: ApprovalsFold, places: Places) -> Standing | None:
    """How the last gate of an open call stands; None if it never had one.

    Args:
        call: The call.
        approvals: The gates of its path.
        places: Its session, whose other branches may have used an approval.
    """
    gate = approvals.of(call.entry) if call is not None else None
    if call is None or gate is None:
        return None
    tally = gate.tally
    used = any(dispatch not in call.voided for dispatch in gate.dispatches)
    return Standing(
        gate=gate.gate,
        outcome=gate.outcome,
        tally=tally.id if tally is not None else "",
        approved_by=tally.approved_by if tally is not None else (),
        used=used or (tally is not None and _used_elsewhere(places, call, tally)),
    )


def _used_elsewhere(places: Places, call: Call, tally: TallyEntry) -> bool:
    """Whether another branch dispatched a call after its tally stood."""
    if tally.id not in places:
        return False
    since = places.place(tally.id)
    return any(places.place(one.id) > since for one in call.elsewhere if one.id in places)


def subject_of(session: str, call: Call, gate: HeldGate) -> Subject:
    """What is voted about at a gate."""
    return Subject(
        session=session,
        call=call.call_id,
        tool=call.call.name,
        digest=gate.gate.digest,
        hold=gate.hold.id,
    )


def votes_of(gate: HeldGate) -> tuple[Vote, ...]:
    """The votes about a gate, as they are counted."""
    return tuple(
        Vote(
            id=entry.id,
            approver=entry.approver,
            approves=entry.verdict == "approve",
            signature=entry.signature,
            at=entry.at,
        )
        for entry in gate.votes
    )
