"""Messages for sub-agents that are over: what came too late for them (LOG 3.1, 3.4).

A tool of a sub-agent may tell its result when the sub-agent has ended, and the store then lists the
root as due. Nobody enters the sub-agent again, so the driver of the root puts the refusal on the
record: in the session of the sub-agent, whose call it is, and not in its parent's.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.durable.cancelling import tree_of
from perdure.durable.consuming import OVER
from perdure.durable.driven import Driven
from perdure.log import Draft, Message, Recording, Session, Store, go_on
from perdure.log.entries import MESSAGE, LinkEntry


async def refuse_leftovers(driven: Driven, recording: Recording) -> None:
    """Refuse what waits for sessions below a root that nothing is driven in any more.

    Raises:
        LogError: The store refuses.
    """
    store = recording.store
    if recording.session.header.root:
        return
    over = recording.view.closed is not None
    for session, messages in (await waiting_below(store, recording.session)).items():
        child = await go_on(
            store,
            session,
            keep=driven.keep,
            clock=driven.clock,
            ids=driven.ids,
            held=recording.held,
        )
        if over or child.view.closed is not None:
            refused = ({"reason": OVER, MESSAGE: message.id} for message in messages)
            await child.append(*(Draft("perdure:refused", body) for body in refused))


async def waiting_below(store: Store, root: Session) -> dict[str, Sequence[Message]]:
    """The messages that wait for sessions below a root, by session."""
    if not any(isinstance(one, LinkEntry) for one in root.entries):
        return {}
    below = [listed.id async for listed in tree_of(store, root.id) if listed.id != root.id]
    found = {session: await store.unconsumed(session) for session in below}
    return {session: messages for session, messages in found.items() if messages}
