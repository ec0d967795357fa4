"""Sagas: which calls of a run failed, whether that tripped it, and what was undone since.

A run that is a *saga* is all or nothing: the first failure of a call *trips* it, and then what ran
is *compensated*, the last first. What a session says of its own failures stands in that session;
what is undone, of a whole tree of sub-agents, stands in the session of the root.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import msgspec

from perdure.log.entries import AnyEntry, ClosedEntry, CompensationEntry, Json, SagaEntry

TRIPS = frozenset({"tripped", "cancelled"})
"""The phases of a saga with which a rollback begins."""

FAILURES = frozenset({"tripped", "failed"})


class Done(NamedTuple):
    """What is compensated: a call, or a call that it made as a step."""

    session: str
    target: str
    """The call's item."""
    step: str = ""


@dataclasses.dataclass(slots=True, eq=False)
class Undoing:
    """What the record says of undoing one thing."""

    attempts: int = 0
    """How often its compensator was about to be entered."""
    last: CompensationEntry | None = None

    @property
    def is_over(self) -> bool:
        """Whether it was undone, or somebody decided about it."""
        last = self.last
        return last is not None and (last.phase == "settled" or (last.phase == "end" and self.ok))

    @property
    def ok(self) -> bool:
        return self.last is not None and not self.last.error

    @property
    def error(self) -> str:
        """What its last attempt failed with."""
        return self.last.error if self.last is not None else ""


class SagaFold:
    """What a path says of its saga, entry by entry."""

    def __init__(self) -> None:
        self.tripped: SagaEntry | None = None
        """What it is rolled back for; the first that came stands."""
        self.failed: dict[str, SagaEntry] = {}
        """The calls that failed for certain, by the entries of their items."""
        self.never_ran: dict[str, SagaEntry] = {}
        """Those of which somebody said, during the rollback, that they never ran."""
        self.undoings: dict[Done, Undoing] = {}
        self.halted: SagaEntry | None = None
        """Why the rollback waits for somebody; None if it does not."""
        self.undone: SagaEntry | None = None
        """Says that nothing is left to be undone, and with which result."""
        self.last: CompensationEntry | None = None
        """The last word about a compensation."""
        self._report: Json | None = None

    @property
    def status(self) -> str:
        """How a rollback stands that is not over; empty if there is none."""
        if self.tripped is None:
            return ""
        if self.halted is not None:
            return "halted"
        return "failed" if self.last is not None and self.last.error else "running"

    @property
    def report(self) -> SagaReport | None:
        """What came of the rollback, as far as it was told."""
        return read_report(self._report)

    def of(self, done: Done) -> Undoing:
        """What is said of undoing something."""
        return self.undoings.get(done) or Undoing()

    def apply(self, entry: AnyEntry) -> None:
        """Take an entry."""
        self.halted = None  # whatever it is, the next driver has to look again
        match entry:
            case SagaEntry():
                self._saga(entry)
            case ClosedEntry():
                self._report = self._report if entry.report is None else entry.report
            case CompensationEntry():
                self._compensation(entry)
            case _:
                pass

    def _saga(self, entry: SagaEntry) -> None:
        self._report = self._report if entry.report is None else entry.report
        if entry.phase in TRIPS:
            self.tripped = self.tripped or entry
        if entry.phase in FAILURES:
            self.failed.setdefault(entry.target, entry)
        elif entry.phase == "never_ran":
            self.never_ran.setdefault(entry.target, entry)
        elif entry.phase == "undone":
            self.undone = self.undone or entry
        elif entry.phase == "halted":
            self.halted = entry

    def _compensation(self, entry: CompensationEntry) -> None:
        done = Done(entry.session, entry.target, entry.step)
        undoing = self.undoings.setdefault(done, Undoing())
        if undoing.is_over:
            return  # the first word stands
        undoing.last = entry
        undoing.attempts += entry.phase == "start"
        self.last = entry


# --- the report ----------------------------------------------------------------------------------


class Undone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call of a saga that ran, or may have run, and what became of its effect."""

    call_id: str
    tool: str
    session: str = ""
    """The session that has the call."""
    path: tuple[str, ...] = ()
    """The calls whose sub-agents lead to it, from the root."""
    step: str = ""
    """The step of the call, if it is a call that its tool made."""
    reason: str = ""
    """Why it was not undone, or is unknown."""
    arguments: str = ""
    """Of a call that its tool made: what it was made with, as JSON text, where that is known."""


class SagaReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a rollback made of the effects of a saga, in the order of the rollback."""

    compensated: tuple[Undone, ...] = ()
    """Undone by their compensators, or by hand."""
    uncompensated: tuple[Undone, ...] = ()
    """They stand."""
    unknown: tuple[Undone, ...] = ()
    """Nobody knows whether they took effect."""


def read_report(recorded: Json | None) -> SagaReport | None:
    """The report of an entry, if it has one."""
    if recorded is None:
        return None
    try:
        return msgspec.convert(recorded, SagaReport)
    except msgspec.ValidationError:
        return None
