"""Agents that a tool calls: each a session below that of its call, as the model's own are.

The child is found again by the call, the agent and what it was asked, so a call that is entered
again goes on with it. What the child waits for, the call waits for.
"""

from __future__ import annotations

from typing import NoReturn

from perdure.durable.callwork import Recorded
from perdure.durable.waits import WAITING, suspend
from perdure.errors import OutcomeUnknown, Suspend
from perdure.log import Draft, subsession_id
from perdure.log.calls import SUBSESSION
from perdure.log.nested import shown_step


async def link_child(recorded: Recorded, call_id: str) -> None:
    """Write where an agent is about to begin, before it does, so that it is found."""
    child = subsession_id(recorded.recording.session.id, call_id)
    if child not in recorded.recording.view.linked:
        link = {"rel": SUBSESSION, "session": child, "call_id": call_id}
        await recorded.recording.append(Draft("link", link))


async def suspend_for_agent(recorded: Recorded, name: str, waits: Suspend) -> NoReturn:
    """Let a call wait for what the agent of one of its nested calls waits for.

    Raises:
        Suspend: The call is entered again when the agent has something to do.
        OutcomeUnknown: The effect of its tool forbids that, so nobody may enter it again.
    """
    effect, agent = recorded.call.effect, shown_step(name)
    if effect not in WAITING:
        error = OutcomeUnknown(
            f"agent {agent!r} waits, and a tool whose effect is {effect!r} cannot: declare none, "
            "idempotent or keyed, and put what the tool does to the world into steps"
        )
        recorded.doubt(error)
        raise error
    recorded.agents[name] = {n: v for n, v in waits.wait.items() if n != "kind"}
    await suspend(recorded, f"agent {agent!r} waits")
