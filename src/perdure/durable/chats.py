"""The inbox of a session that is no run by id: votes are taken, what came too late is refused."""

from __future__ import annotations

from perdure.durable.consuming import Authority, consume
from perdure.durable.driven import Driven
from perdure.durable.gates import settle_gates
from perdure.durable.voting import tallied_answers
from perdure.log import Recording
from perdure.loop import Answer
from perdure.tools import ToolSet


async def take_messages(driven: Driven, recording: Recording) -> Recording | None:
    """Write what becomes of the messages that wait, between two drives, and what votes come to.

    A late result of a call that has no output yet is left where it is: the next drive tells the
    model that the outcome is unknown, and then it is late (LOG 5.10).

    Returns:
        The record anew, if something was written.

    Raises:
        ConfigError: The keys of an approver could not be had, or a verifier failed.
        LogError: The store refuses.
    """
    before = recording
    messages = await recording.store.unconsumed(recording.session.id)
    now = driven.clock.wall()
    drafts = consume(Authority(view=recording.view, now=now), messages).drafts if messages else ()
    if drafts:
        await recording.append(*drafts)
        recording = recording.again()
    if await settle_gates(driven, recording, ()):
        recording = recording.again()
    return None if recording is before else recording


def recorded_answers(recording: Recording, tools: ToolSet) -> tuple[Answer, ...]:
    """What the record answers to pending calls: votes that were counted, and what must not run."""
    voted = tallied_answers(recording.view, tools)
    others = [one for one in recording.replay(tools) if one.call_id not in voted]
    order = list(recording.view.calls.open)
    return tuple(sorted((*voted.values(), *others), key=lambda one: order.index(one.call_id)))
