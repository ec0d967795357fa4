"""Rewinding: a session goes on from an entry that it left behind (LOG 5.8).

Nothing is removed: a leaf label says where to go on, and what was behind stays as a branch that was
left. What tools did there stays done.
"""

from __future__ import annotations

from perdure.errors import RewindRefused
from perdure.log.branching import interrupted
from perdure.log.entries import DispatchEntry
from perdure.log.leaf import LEAF, is_leaf_label
from perdure.log.recording import Recording
from perdure.log.writing import Draft


async def rewind(recording: Recording, entry: str, *, keep_effects: bool = False) -> Recording:
    """Go on from `entry`. Only the session's driver can, and between two drives.

    Args:
        recording: The session, under its driver's lease.
        entry: Where to go on: any entry behind the base of a fork.
        keep_effects: Leave a branch in which tools with effects were entered. What they did stays
            done, and the model does not see it any more.

    Returns:
        The session as it is now; the one given is of no use any more.

    Raises:
        RewindRefused: It cannot go on there.
        NoEntry: There is no such entry.
        LogError: The store refuses.
    """
    fault = _fault(recording, entry, keep_effects=keep_effects)
    if fault:
        raise RewindRefused(recording.session.id, entry, fault)
    await recording.append(Draft("label", {"target": entry, "label": LEAF}))
    closing = interrupted(recording.view, f"rewound to {entry}")
    if closing:
        await recording.append(*closing)
    return recording.again()


def _fault(recording: Recording, entry: str, *, keep_effects: bool) -> str:
    session, view = recording.session, recording.view
    path = session.path(entry)
    if session.header.run is not None:
        return "a run by id goes forward only"
    if view.drives.open is not None:
        return "a drive is open; let it end first"
    if is_leaf_label(path[-1]):
        return "it is a leaf label"
    if session.depth(entry) < session.base_depth:
        return f"it stands above the base {session.header.base!r} of this fork"
    stays = {one.id for one in path}
    left = [one for one in view.path if one.id not in stays]
    entered = [one for one in left if isinstance(one, DispatchEntry) and one.effect != "none"]
    if entered and not keep_effects:
        calls = ", ".join(dict.fromkeys(one.call_id for one in entered))
        return f"behind it tools with effects were entered ({calls}); keep_effects=True leaves them"
    return ""
