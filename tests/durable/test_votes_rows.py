"""What a log with votes may end after, and what the next driver does (LOG 9)."""

from __future__ import annotations

import dataclasses

import pytest

from perdure import Agent, Approval, Runs
from perdure.errors import PerdureError
from perdure.log.entries import TallyEntry
from perdure.loop import ToolDispatch
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock, ScriptedModel
from tests.ballots.people import NAMES, key
from tests.durable.voters import CALL, gated_agent, vote
from tests.durable.world import (
    RUN,
    World,
    asked,
    cut_after,
    cut_behind,
    entries_of,
    one_call,
    outputs,
    shapes,
)

ESCALATES = Approval(
    need=2, of=NAMES, expires=60, escalate=Approval(of=["cy"], signed=True, expires=60)
)


def agent_of(store: MemoryStore, world: World, clock: FakeClock) -> Agent:
    return gated_agent(store, world, ESCALATES, clock=clock)


async def asked_for(clock: FakeClock) -> MemoryStore:
    """A run that waits for votes."""
    store = MemoryStore()
    await agent_of(store, World(), clock).run("go", run_id=RUN)
    return store


async def finish(store: MemoryStore, world: World, clock: FakeClock, *, approves: bool) -> str:
    """Drive a run from where its record ends, with everybody voting whenever it waits."""
    agent = agent_of(store, world, clock)
    for _ in range(4):
        result = await agent.run("go", run_id=RUN)
        if result.status == "halted":
            return "halted"
        if result.status == "done":
            return outputs(result)[CALL]
        for name in NAMES:
            try:
                await vote(store, name, approves=approves, clock=clock)
            except PerdureError:
                continue  # it has no vote at this level
    raise AssertionError(result.status)


@pytest.mark.parametrize("flow", ["approved", "denied", "escalated and approved", "expired"])
async def test_a_crash_behind_any_entry_changes_nothing_but_when(flow: str) -> None:
    clock = FakeClock()
    approves = flow != "denied"
    store = await asked_for(clock)
    agent = agent_of(store, World(), clock)
    first = len(await entries_of(store))
    if flow[0] == "e":
        await vote(store, "ann", clock=clock)
        await clock.advance(61)
        await agent.run("go", run_id=RUN)
    if flow == "expired":
        await clock.advance(61)
        await agent.run("go", run_id=RUN)
    else:
        assert await finish(store, World(), clock, approves=approves)
    whole = await entries_of(store)
    (last,) = [one.outcome for one in whole if isinstance(one, TallyEntry)][-1:]
    for keep in range(first, len(whole)):
        cut, world = await cut_after(store, keep), World()
        came = await finish(cut, world, clock, approves=approves)
        tallies = [o.outcome for o in await entries_of(cut) if isinstance(o, TallyEntry)]
        entered = any(entry.type == "dispatch" for entry in whole[:keep])
        ended = any("function_call_output" in entry.line.decode() for entry in whole[:keep])
        assert world.count(CALL) == int(tallies[-1] == "approved" and not entered)
        if came == "halted":
            assert entered
            assert not ended
        else:
            assert came.startswith(
                {"approved": "done", "denied": "Error: denied", "expired": "Error: the approval"}[
                    tallies[-1]
                ]
            )
        if keep > shapes(whole).index("perdure:tally"):
            assert tallies[0] == next(o.outcome for o in whole if isinstance(o, TallyEntry))
    assert last == {"e": "approved", "a": "approved", "d": "denied"}[flow[0]] or flow == "expired"


async def test_votes_without_a_tally_are_counted_before_the_model_is_asked_again() -> None:
    clock = FakeClock()
    store = await asked_for(clock)
    await vote(store, "ann", "bo", clock=clock)
    await agent_of(store, World(), clock).run("go", run_id=RUN)
    cut, world = await cut_behind(store, "perdure:vote approve", "perdure:vote approve"), World()
    agent = agent_of(cut, world, clock)
    async with agent.stream("go", run_id=RUN) as stream:
        events = [one async for one in stream.events()]
    assert any(isinstance(one, ToolDispatch) for one in events)
    shown = shapes(await entries_of(cut))
    assert shown.index("perdure:tally") < shown.index("dispatch")
    assert (world.count(CALL), asked(agent)) == (1, 1)


async def test_a_tally_is_never_counted_again() -> None:
    """With it on the record, neither other keys nor votes that came later change what follows."""
    clock = FakeClock()
    store = await asked_for(clock)
    await vote(store, "ann", "bo", approves=False, clock=clock)
    await agent_of(store, World(), clock).run("go", run_id=RUN)
    cut, world = await cut_behind(store, "perdure:tally"), World()
    rotated = {name: key(f"{name}/2").public for name in NAMES}
    agent = agent_of(cut, world, clock).with_(
        approvers=rotated, model=ScriptedModel(one_call()), store=cut
    )
    with pytest.raises(PerdureError):
        await vote(cut, "cy", clock=clock)
    result = await agent.run("go", run_id=RUN)
    assert (result.status, world.fired) == ("done", [])
    assert sum(isinstance(one, TallyEntry) for one in await entries_of(cut)) == 1
    ballot = await Runs(cut).ballot(RUN, CALL)
    assert ballot.outcome == "denied"
    assert dataclasses.asdict(ballot)["level"] == 0
