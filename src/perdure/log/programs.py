"""Programs without a model: how their runs stand, from their drives and their work.

A program is an async function that takes steps and waits. They belong to no call (LOG 5.5), so a
*suspended* program is told by the end of its last drive, which says what it waits for.
"""

from __future__ import annotations

from perdure.log.drives import DrivesFold
from perdure.log.entries import ClosedEntry, Json
from perdure.log.work import NOW, CallWork, WorkFold

OWN = ""
"""What the work of a program is bound to, in place of the entry of a call."""


def program_status(drives: DrivesFold, work: WorkFold, closed: ClosedEntry | None) -> str:
    """The status of the run of a program, in the words of `status_of`."""
    if closed is not None:
        return closed.status
    if drives.open is not None:
        return "running"
    if drives.last is None:
        return "idle"
    if work.of(OWN).halted_steps:
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
