"""Status: how a run stands, from its last drive, its calls and whether it was closed."""

from __future__ import annotations

from typing import Literal

from perdure.log.calls import CallsFold
from perdure.log.drives import Drive, DrivesFold
from perdure.log.entries import ClosedEntry

_OF_REASON: dict[str, Literal["done", "stopped", "failed", "aborted"]] = {
    "done": "done",
    "stopped": "stopped",
    "error": "failed",
    "aborted": "aborted",
    "interrupted": "aborted",
}


def status_of(drives: DrivesFold, calls: CallsFold, closed: ClosedEntry | None) -> str:
    """The status of a path.

    `idle` before the first drive, `running` while one is open; then as DESIGN 4 lists: done,
    stopped, input_required, suspended, failed, aborted, and whatever closed a run.
    """
    if closed is not None:
        return closed.status
    if drives.open is not None:
        return "running"
    if drives.last is None:
        return "idle"
    return _of_end(drives.last, calls)


def _of_end(drive: Drive, calls: CallsFold) -> str:
    end = drive.end
    reason = end.reason if end is not None else ""
    if drive.told is not None and reason != "error":
        reason = drive.told.reason
    if reason != "input_required":
        return _OF_REASON.get(reason, "aborted")
    held = [call for call in calls.open.values() if call.waits]
    return "suspended" if held and all(call.suspended for call in held) else "input_required"
