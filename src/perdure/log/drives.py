"""Drives: what each start and end of a run on a path says, and what it should say.

The reason of an end is recomputed from core entries alone, so that a foreign reader finds the same
(LOG 4.3). A drive's *segment* is what stands between its start and its end.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from perdure.log.calls import Call, CallsFold
from perdure.log.entries import (
    AnyEntry,
    DecisionEntry,
    DispatchEntry,
    EndEntry,
    ItemEntry,
    ResponseEntry,
    RunEntry,
)

CoreReason = Literal["error", "input_required", "aborted", "done", "stopped"]
"""What a drive's end is recomputed to."""

STANDING_REASONS = frozenset({"error", "interrupted"})
"""Reasons that stand over whatever the segment says."""


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Drive:
    """One drive on a path."""

    start: RunEntry
    end: RunEntry | None = None
    told: EndEntry | None = None
    """The loop's own reason and cause."""
    reason: CoreReason = "aborted"
    """Recomputed; once it has ended."""
    pending: tuple[str, ...] = ()
    """Recomputed, in path order; once it has ended."""
    content: bool = False
    """An item or a response stands in it."""
    first_action: Literal["input", "resume", ""] = ""
    """What its first output, decision or dispatch says it began from."""
    response: ResponseEntry | None = None
    """Its last response."""
    acted: bool = False
    """An output or a decision stands in it."""
    calls: dict[str, Call] = dataclasses.field(default_factory=dict[str, Call])
    """By entry: those it made, and earlier ones it has a decision, dispatch or output for."""

    @property
    def run_id(self) -> str:
        return self.start.run_id

    @property
    def source(self) -> Literal["input", "resume", ""]:
        """Recomputed; empty if the segment is, and either would do."""
        return self.first_action or ("input" if self.content else "")


class DrivesFold:
    """The drives of a path, entry by entry."""

    def __init__(self) -> None:
        self.all: list[Drive] = []
        self.open: Drive | None = None
        """The drive that has not ended."""
        self.response: ResponseEntry | None = None
        """The last response of the path."""
        self.response_calls = 0
        """How many calls it made."""
        self.fault = ""
        """What is wrong with the last entry: drives do not nest."""
        self._before: frozenset[str] = frozenset()  # the calls pending when the open one started

    @property
    def last(self) -> Drive | None:
        return self.all[-1] if self.all else None

    def apply(
        self, entry: AnyEntry, about: Call | None, calls: CallsFold, response_calls: int
    ) -> None:
        """Take an entry, after `calls` has; `response_calls` are those a response made."""
        self.fault = ""
        match entry:
            case RunEntry():
                self._run(entry, calls)
            case ResponseEntry():
                self.response, self.response_calls = entry, response_calls
                if self.open:
                    self.open.response = entry
                    self.open.content = True
            case ItemEntry() | DecisionEntry() | DispatchEntry():
                if self.open:
                    self._touch(self.open, entry, about)
            case EndEntry():
                if self.open:
                    self.open.told = entry
            case _:
                pass

    def _run(self, entry: RunEntry, calls: CallsFold) -> None:
        if entry.phase == "start":
            if self.open:
                self.fault = f"run {self.open.run_id!r} has not ended"
            self.open = Drive(start=entry)
            self.all.append(self.open)
            self._before = frozenset(call.entry for call in calls.open.values())
        elif entry.phase != "end":
            self.fault = f"a run has no phase {entry.phase!r}"
        elif self.open is None or self.open.run_id != entry.run_id:
            self.fault = f"run {entry.run_id!r} is not open"
        else:
            drive, self.open = self.open, None
            drive.end = entry
            drive.pending, drive.reason = self.verdict(drive, calls)

    def _touch(
        self, drive: Drive, entry: ItemEntry | DecisionEntry | DispatchEntry, about: Call | None
    ) -> None:
        drive.content = drive.content or isinstance(entry, ItemEntry)
        if about is None:
            return
        drive.calls.setdefault(about.entry, about)
        if about.entry == entry.id:  # its function call, which takes nothing up
            return
        if not drive.first_action:
            drive.first_action = "resume" if about.entry in self._before else "input"
        drive.acted = drive.acted or not isinstance(entry, DispatchEntry)

    def verdict(self, drive: Drive, calls: CallsFold) -> tuple[tuple[str, ...], CoreReason]:
        """The pending calls and the reason that an end of `drive` has now."""
        open_calls = [call for call in calls.open.values() if call.entry in drive.calls]
        return tuple(call.call_id for call in open_calls), self._reason(drive, open_calls, calls)

    def _reason(self, drive: Drive, pending: list[Call], calls: CallsFold) -> CoreReason:
        response = drive.response
        if response is not None and response.error:
            return "error"
        states = {_core_state(call) for call in pending}
        if "held" in states and "in_flight" not in states:
            return "input_required"
        if pending or (response is not None and response.incomplete):
            return "aborted"
        if response is not None and not self.response_calls:
            return "done"
        if self.response_calls and not calls.open and drive.acted:
            return "stopped"
        return "aborted"


def _core_state(call: Call) -> str:
    """The state without perdure's own entries, which a foreign reader does not know."""
    verdict = call.decisions[-1].verdict if call.decisions else ""
    if verdict in ("reject", "answer"):
        return verdict
    if call.waits:
        return "held"
    return "in_flight" if call.dispatches or call.elsewhere else "never_started"
