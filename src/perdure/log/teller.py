"""A session as it is told to a person: what happened, entry by entry, in the words of its run.

`entry_line` says what an entry is by itself. A `Teller` has seen those before it: it knows that the
first item of a program is its input, and how the calls stand that a drive leaves behind.
"""

from __future__ import annotations

from perdure.log.calls import SUBSESSION
from perdure.log.context import item_of
from perdure.log.entries import (
    AnyEntry,
    DecisionEntry,
    DispatchEntry,
    EndEntry,
    ItemEntry,
    LinkEntry,
    RunEntry,
    SagaEntry,
    StepEntry,
)
from perdure.log.timeline import end_line, entry_line
from perdure.wire import Message

HALTED, SUSPENDED = "halted", "suspended"


class Teller:
    """Tells what happened, entry by entry, in the order of a path.

    The loop's own reason for the end of a drive stands in an entry before that end, and both are
    told at once.

    Args:
        program: Whether it is the run of a program, which has an input and asks no model.
    """

    __slots__ = ("_end", "_program", "_stands", "_tripped")

    def __init__(self, *, program: bool = False) -> None:
        self._program = program
        self._end: EndEntry | None = None
        self._tripped = False
        self._stands: dict[str, str] = {}
        """How the run stands by a call, as far as its entries were told: by its id."""

    def tell(self, entry: AnyEntry) -> str:
        """What happened by an entry; empty if the next ones say it."""
        if entry.erased:
            return entry_line(entry)
        self._note(entry)
        if isinstance(entry, EndEntry):
            self._end = entry
            return ""
        end, self._end = self._end, None
        if self._program and isinstance(entry, ItemEntry):
            item = item_of(entry.item)
            return f"input: {item.text}" if isinstance(item, Message) else entry_line(entry)
        if self._program and isinstance(entry, LinkEntry) and entry.rel == SUBSESSION:
            return f"its agent {entry.call_id} has session {entry.session}"
        if end is None or not isinstance(entry, RunEntry) or entry.reason == "error":
            return entry_line(entry)
        return end_line(entry.run_id, self._reason(end, entry), end.cause, entry.pending)

    def _note(self, entry: AnyEntry) -> None:
        match entry:
            case DispatchEntry():
                may_run_again = entry.effect not in ("", "once")
                self._stands[entry.call_id] = "aborted" if may_run_again else HALTED
            case DecisionEntry(verdict="hold"):
                asks = str((entry.wait or {}).get("status") or SUSPENDED)
                self._stands[entry.call_id] = asks if entry.suspended else "input_required"
            case StepEntry(effect="once") if entry.call_id:
                self._stands[entry.call_id] = HALTED if entry.phase == "start" else "aborted"
            case SagaEntry(phase="tripped" | "cancelled"):
                self._tripped = True
            case _:
                pass

    def _reason(self, end: EndEntry, entry: RunEntry) -> str:
        """Why a drive ended, in the words in which the status of its run is told."""
        if end.reason == "aborted" and self._tripped:
            return "the saga is to be rolled back"
        if end.reason != "input_required":
            return end.reason
        if self._program:
            return str(end.wait.get("status") or SUSPENDED) if end.wait else HALTED
        stands = {self._stands.get(call_id, "") for call_id in entry.pending}
        if HALTED in stands:
            return HALTED
        return SUSPENDED if stands == {SUSPENDED} else end.reason
