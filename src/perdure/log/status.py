"""Status: how a run stands, from its last drive, its calls and whether it was closed."""

from __future__ import annotations

from typing import Literal

from perdure.log.calls import Call, CallsFold
from perdure.log.drives import Drive, DrivesFold
from perdure.log.entries import ClosedEntry

_OF_REASON: dict[str, Literal["done", "stopped", "failed", "aborted"]] = {
    "done": "done",
    "stopped": "stopped",
    "error": "failed",
    "aborted": "aborted",
    "interrupted": "aborted",
}


Paused = Literal["halted", "input_required", "suspended", "stopped", "aborted"]
"""How a run stands whose calls wait."""

RUNS_AGAIN = frozenset({"none", "idempotent", "transactional"})
"""The effects under which a call that may have run runs again (DESIGN 5); `keyed` needs its key."""


MAX_TRIES = 5
"""How often a call is entered without an outcome before a person has to look."""


def status_of(
    drives: DrivesFold, calls: CallsFold, closed: ClosedEntry | None, *, halts: bool = False
) -> str:
    """The status of a path.

    `idle` before the first drive, `running` while one is open; then as DESIGN 4 lists: done,
    stopped, input_required, suspended, halted, failed, aborted, and whatever closed a run.

    Args:
        drives: The drives of the path.
        calls: Its calls.
        closed: What closed the run.
        halts: Whether it is a run by id, which halts on a call whose outcome is unknown.
    """
    if closed is not None:
        return closed.status
    if drives.open is not None:
        return "running"
    if drives.last is None:
        return "idle"
    if halts and any(map(is_halted, calls.open.values())):
        return "halted"
    if halts and any(map(was_cut, calls.open.values())):
        return "aborted"
    if halts and calls.open and all(call.waits for call in calls.open.values()):
        return _waiting_status(calls)  # whatever ended the last drive, the next has nothing to do
    return _of_end(drives.last, calls)


def is_halted(call: Call) -> bool:
    """Whether a call may have run and must not run again, by the effect that was recorded."""
    if not was_cut(call):
        return False
    if call.open_steps or call.tries >= MAX_TRIES:
        return True
    last = call.last_dispatch
    effect = last.effect if last is not None else ""
    return not (effect in RUNS_AGAIN or (effect == "keyed" and call.key))


def was_cut(call: Call) -> bool:
    """Whether a call may have run, and nobody has said what came of it."""
    return call.state in ("in_flight", "unknown")


def paused_status(calls: CallsFold) -> Paused:
    """The status of a run whose calls wait, by what was recorded of them. A halt goes first."""
    if any(map(is_halted, calls.open.values())):
        return "halted"
    return "aborted" if any(map(was_cut, calls.open.values())) else _waiting_status(calls)


def _waiting_status(calls: CallsFold) -> Paused:
    held = {_held_status(call) for call in calls.open.values() if call.waits}
    if "halted" in held:
        return "halted"
    if not held or held - {"suspended", "stopped"}:
        return "input_required"
    return "stopped" if "stopped" in held else "suspended"


def _held_status(call: Call) -> str:
    """How a held call waits; a sub-agent's waits as the sub-agent does."""
    if not call.suspended:
        return "input_required"
    return str(call.wait.get("status") or "suspended")


def due_of(calls: CallsFold) -> int | None:
    """When the first of the waits of a path is due, in nanoseconds since the Unix epoch."""
    dues = [call.wait.get("due") for call in calls.open.values() if call.suspended]
    return min((due for due in dues if isinstance(due, int)), default=None)


def _of_end(drive: Drive, calls: CallsFold) -> str:
    end = drive.end
    reason = end.reason if end is not None else ""
    if drive.told is not None and reason != "error":
        reason = drive.told.reason
    if reason != "input_required":
        return _OF_REASON.get(reason, "aborted")
    return _waiting_status(calls)
