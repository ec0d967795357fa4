"""Pending calls in a fork: what was decided before it is history, not authority (LOG 5.8)."""

from __future__ import annotations

import pytest

from perdure import Agent, tool
from perdure.clock import RandomIds, SystemClock
from perdure.errors import AmbiguousCall, InputRequired
from perdure.log.branching import fork
from perdure.log.entries import DecisionEntry
from perdure.log.header import Origin, new_header
from perdure.log.reading import read_lines
from perdure.log.resuming import pending_of, replay_answers
from perdure.log.session import Session
from perdure.loop import Middleware, ToolCallInfo, ToolDecision, approve, deny
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call
from perdure.tools import Effect, ToolSet
from tests.log.building import Built
from tests.log.driving import Counted


class Holds(Middleware):
    """Every call waits for somebody."""

    async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision:
        return ToolDecision(action="hold", reason="who says so?")


async def test_a_fork_before_an_approval_asks_again() -> None:
    """Approved and run in the origin, the call waits in a fork from before the approval."""
    charged: list[int] = []

    @tool
    async def charge(cents: int) -> str:
        charged.append(cents)
        return "charged"

    store = MemoryStore()
    model = ScriptedModel([call("charge", {"cents": 5}), "It is done."])
    agent = Agent(model, tools=[charge], middleware=[Holds()], store=store)
    async with agent.session("chat") as chat:
        await chat.send("Charge my card.")
        (pending,) = chat.state.pending
        assert (await chat.resume(approve(pending.call.call_id))).text == "It is done."
    ((listed,), _) = await store.list()
    origin = await store.read(listed.id)
    session = read_lines(origin.header, origin.lines).session
    decisions = [one for one in session.entries if isinstance(one, DecisionEntry)]
    assert [one.verdict for one in decisions] == ["hold", "proceed"]
    before = decisions[1].parent
    assert before is not None
    begun = fork(session, before, clock=SystemClock(), ids=RandomIds(), name="fork")
    await store.create(begun.header, batch=begun.entries)

    async with agent.session("fork") as other:
        (again,) = other.state.pending
        assert again.reason == "held"
        with pytest.raises(InputRequired):
            await other.send("Go on.")
        with pytest.raises(AmbiguousCall):  # it ran in the origin
            await other.resume(approve(again.call.call_id))
        assert (await other.resume(deny(again.call.call_id))).text == "It is done."
    assert charged == [5]
    assert (await store.read(listed.id)).lines == origin.lines


def forked(built: Built, base: str) -> Session:
    header = new_header("f", "2026-10-02T00:00:00Z", origin=Origin(built.session.id, base))
    return Session(header, built.session.path(base), origins=[built.session])


@pytest.mark.parametrize(
    ("effect", "reason"), [("none", "unknown"), ("idempotent", "held"), ("once", "held")]
)
def test_a_decision_in_the_prefix_lets_nothing_run(effect: Effect, reason: str) -> None:
    built = Built()
    built.call("c")
    built.response()
    base = built.decide("c", "proceed", by="human")
    fork = forked(built, base)
    tools = ToolSet([Counted("t", effect)])
    (pending,) = pending_of(fork.at(), fork, tools)
    assert pending.reason == reason
    assert len(replay_answers(fork.at(), fork, tools)) == (reason == "unknown")


def test_a_decision_in_the_fork_counts() -> None:
    built = Built()
    built.call("c")
    base = built.response()
    fork = Built(forked(built, base).header, built.session.path(base))
    item = built.session.entries[0].id
    fork.add("decision", {"call_id": "c", "target": item, "verdict": "proceed", "by": "human"})
    tools = ToolSet([Counted("t", "idempotent")])
    (pending,) = pending_of(fork.session.at(), fork.session, tools)
    assert pending.reason != "held"
