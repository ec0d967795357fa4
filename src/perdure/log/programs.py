"""Programs without a model: how their runs stand, from their drives and their work.

A program is an async function that takes steps and waits. They belong to no call (LOG 5.5), so a
*suspended* program is told by the end of its last drive, which says what it waits for.
"""

from __future__ import annotations

from perdure.log.drives import DrivesFold
from perdure.log.entries import (
    AnyEntry,
    ClosedEntry,
    EndEntry,
    Json,
    RetryEntry,
    RunEntry,
    StepEntry,
    WaitEntry,
)
from perdure.log.status import MAX_TRIES
from perdure.log.work import NOW, CallWork, WorkFold

OWN = ""
"""What the work of a program is bound to, in place of the entry of a call."""


class TriesFold:
    """How often a program was entered, its process died in it, and it had come no further.

    The rule is that of calls (`Call.tries`): a try in which a step or a wait ended does not count,
    nor one in which an agent of the program came further, whose calls have tries of their own. That
    stands on the agents' records; the end of a drive that was cut says how far they are. A wait
    that unwound the program, and what somebody said, let it begin to count anew.
    """

    __slots__ = ("_advanced", "_below", "_told", "count")

    def __init__(self) -> None:
        self.count = 0
        self._told = False
        self._advanced = False
        self._below = 0  # how far its agents were when a drive was last cut

    @property
    def are_used_up(self) -> bool:
        """Whether it is entered no more until somebody says so."""
        return self.count >= MAX_TRIES

    def apply(self, entry: AnyEntry) -> None:
        """Take an entry."""
        match entry:
            case RunEntry() if entry.phase == "start":
                self._told = self._advanced = False
            case RunEntry():
                further = self._advanced or entry.below != self._below
                self._below = entry.below
                self.count += not (self._told or further)
            case EndEntry():
                self._told = True
                self.count = 0 if entry.wait else self.count
            case StepEntry() | WaitEntry() if not entry.target:
                self._work(entry)
            case RetryEntry():
                self.count = 0
            case _:
                pass

    def _work(self, entry: StepEntry | WaitEntry) -> None:
        self._advanced = self._advanced or entry.phase == "end"
        self.count = 0 if entry.message else self.count


def program_status(
    drives: DrivesFold, work: WorkFold, tries: TriesFold, closed: ClosedEntry | None
) -> str:
    """The status of the run of a program, in the words of `status_of`."""
    if closed is not None:
        return closed.status
    if drives.open is not None:
        return "running"
    if drives.last is None:
        return "idle"
    if work.of(OWN).halted_steps or tries.are_used_up:
        return "halted"
    told = drives.last.told
    if told is None:
        return "aborted"  # a crash cut it
    wait = program_wait(drives)
    if wait:
        return str(wait.get("status") or "suspended")
    return "failed" if told.reason == "error" else "aborted"


def program_wait(drives: DrivesFold) -> Json:
    """What a program waits for; empty if it does not."""
    last = drives.last
    told = last.told if last is not None and last.end is not None else None
    return (told.wait if told is not None else None) or {}


def program_due(drives: DrivesFold, work: WorkFold) -> int | None:
    """When a program wants to be driven, in nanoseconds since the Unix epoch."""
    wait = program_wait(drives)
    if work.has_come(OWN, wait):
        return NOW
    due = wait.get("due")
    return due if isinstance(due, int) else None


def program_work(work: WorkFold) -> CallWork:
    """The steps and waits of a program."""
    return work.of(OWN)
