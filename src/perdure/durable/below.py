"""Signals and messages that are told to a run, and that only its sub-agents wait for.

What comes to a run is its own: its sub-agents have sessions and names of their own. So one that
nobody in the run waits for, and somebody below it does, is refused with the session that it is for.
"""

from __future__ import annotations

from perdure.durable.addressing import Addressed, Target
from perdure.durable.messages import Sent, Signal, message_of
from perdure.durable.state import waiting_calls
from perdure.errors import WaitsBelow
from perdure.log import Store
from perdure.log.work import named_waits
from perdure.loop import PendingCall
from perdure.tools import ToolSet


async def check_is_here(store: Store, target: Target, at: Addressed, told: Signal | Sent) -> None:
    """Refuse what is told to a run, and is waited for below it alone, unless its session is named.

    Args:
        store: Where the run is.
        target: The run.
        at: Its sessions.
        told: What is told.

    Raises:
        WaitsBelow: Nobody in the run waits for it, and a sub-agent's call does. What the run was
            told already, and has not taken up, is its own.
    """
    if target.session:
        return
    kind, name = ("signal", told.name) if isinstance(told, Signal) else ("channel", told.channel)
    pending = await waiting_calls(store, at.root, ToolSet())
    sessions = tuple(one.session for one in pending if _waits_for(one, kind, name))
    if not sessions or at.root.id in sessions:
        return
    known = message_of(told, at.root).id
    if all(one.id != known for one in await store.unconsumed(at.root.id)):
        raise WaitsBelow(target.run_id, kind, name, sessions, at.root.id)


def _waits_for(pending: PendingCall, kind: str, name: str) -> bool:
    """Whether a call waits for a signal, or for a message of a channel, at whatever place."""
    for wait in named_waits(pending.wait or {}):
        known = wait.name.rpartition("#")[0] if wait.kind == "channel" else wait.name
        if (wait.kind, known) == (kind, name):
            return True
    return False
