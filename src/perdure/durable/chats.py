"""The inbox of a session that is no run by id: what came too late for it is refused on record."""

from __future__ import annotations

from perdure.clock import Clock
from perdure.durable.consuming import Authority, consume
from perdure.log import Recording


async def refuse_messages(recording: Recording, *, clock: Clock) -> bool:
    """Write what becomes of the messages that nothing waits for, between two drives.

    A late result of a call that has no output yet is left where it is: the next drive tells the
    model that the outcome is unknown, and then it is late (LOG 5.10).

    Returns:
        Whether something was written, so that the record has to be read anew.

    Raises:
        LogError: The store refuses.
    """
    messages = await recording.store.unconsumed(recording.session.id)
    if not messages:
        return False
    drafts = consume(Authority(view=recording.view, now=clock.wall()), messages).drafts
    if drafts:
        await recording.append(*drafts)
    return bool(drafts)
