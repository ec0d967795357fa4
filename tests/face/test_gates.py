"""Approvals where no run by id is: conversations, drives without a record, forks, sagas."""

from __future__ import annotations

import pytest

from perdure import Agent, Approval, Runs, answer_with, approve, deny, outcome_unknown
from perdure.ballots import Verifier
from perdure.durable import read_run
from perdure.errors import ConfigError, InputRequired, NeedsApproval, NoRun, VoteRefused
from perdure.log import Filters
from perdure.log.entries import DecisionEntry
from perdure.loop import Config, Transcript, begin
from perdure.loop.drive import Opening
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock, ScriptedModel, call
from perdure.wire import FunctionCallOutput, user
from tests.ballots.people import key
from tests.durable.voters import CALL, PUBLIC, TWO_OF_THREE, Gated
from tests.durable.world import World

CHAT = "chat-7"


def agent_of(world: World, approval: Approval | bool = TWO_OF_THREE, **members: object) -> Agent:
    model = ScriptedModel([call("act", {"n": 1}), "All done.", "More."])
    agent: Agent = Agent(model)
    tools = [Gated(world=world, approval=approval)]
    return agent.with_(**{"tools": tools, "approvers": PUBLIC, **members})


async def cast(store: MemoryStore, *names: str, approves: bool = True, name: str = CHAT) -> None:
    runs = Runs(store)
    ballot = await runs.ballot(name, CALL)
    for one in names:
        signature = ballot.sign(key(one), one, approves=approves)
        tell = runs.approve if approves else runs.deny
        await tell(name, CALL, by=one, signature=signature)


# --- conversations -------------------------------------------------------------------------------


async def test_a_recorded_conversation_takes_votes_and_goes_on_with_them() -> None:
    store, world = MemoryStore(), World()
    async with agent_of(world, store=store).session(CHAT) as chat:
        assert (await chat.send("go")).status == "input_required"
        with pytest.raises(NeedsApproval, match="2 of ann, bo, cy"):
            await chat.resume(approve(CALL, by="human"))
        with pytest.raises(NeedsApproval):
            await chat.resume(approve(CALL, by="human", run_again=True))
        await cast(store, "ann")
        with pytest.raises(InputRequired):
            await chat.continue_()
        await cast(store, "cy")
        result = await chat.continue_()
        assert (result.status, world.count(CALL)) == ("done", 1)


async def test_votes_outlive_the_process_that_held_the_conversation() -> None:
    store, world = MemoryStore(), World()
    async with agent_of(world, store=store).session(CHAT) as chat:
        await chat.send("go")
    await cast(store, "ann", "bo")
    async with agent_of(world, store=store).session(CHAT) as chat:
        result = await chat.resume(approve(CALL, by="human", reason="they have voted"))
        assert (result.status, world.count(CALL)) == ("done", 1)


async def test_a_denial_in_a_conversation_is_final() -> None:
    store, world = MemoryStore(), World()
    async with agent_of(world, store=store).session(CHAT) as chat:
        await chat.send("go")
        await cast(store, "ann", "bo", approves=False)
        with pytest.raises(NeedsApproval):
            await chat.resume(approve(CALL, by="human"))
        result = await chat.send("and?")
        (output,) = [one for one in result.items if isinstance(one, FunctionCallOutput)]
        assert (output.text, world.fired) == ("Error: denied by ann, bo", [])


async def test_whoever_holds_a_conversation_may_end_the_call() -> None:
    store, world = MemoryStore(), World()
    async with agent_of(world, store=store).session(CHAT) as chat:
        await chat.send("go")
        with pytest.raises(VoteRefused, match="not signed"):
            await Runs(store).deny(CHAT, CALL, by="ann")
        with pytest.raises(NoRun):
            await Runs(store).deny(CHAT, CALL, by="an operator")
        assert (await chat.resume(deny(CALL, by="human"))).status == "done"
        assert world.fired == []


async def test_a_conversation_that_cannot_be_entered_is_free_for_the_next() -> None:
    store, world = MemoryStore(), World()
    agent = agent_of(world, store=store)
    async with agent.session(CHAT) as chat:
        await chat.send("go")
    await cast(store, "ann", "bo")

    def down(name: str) -> Verifier | None:
        raise OSError("the key server is down")

    blind = Agent(agent.model, store=store, approvers=down)
    with pytest.raises(ConfigError, match="could not be had"):
        async with blind.session(CHAT):
            pass
    async with agent_of(world, store=store).session(CHAT) as chat:
        assert (await chat.continue_()).status == "done"


async def test_an_approval_that_expired_is_told_when_the_conversation_goes_on() -> None:
    store, world, clock = MemoryStore(), World(), FakeClock()
    agent = agent_of(world, Approval(of=["ann"], expires=60), store=store, clock=clock)
    async with agent.session(CHAT) as chat:
        await chat.send("go")
        await clock.advance(61)
        result = await chat.continue_()
        (output,) = [one for one in result.items if isinstance(one, FunctionCallOutput)]
        assert output.text.startswith("Error: the approval expired")


@pytest.mark.parametrize("approval", [True, TWO_OF_THREE])
async def test_without_a_record_nothing_opens_a_gate(approval: Approval | bool) -> None:
    world = World()
    async with agent_of(world, approval).session() as chat:
        held = await chat.send("go")
        assert held.pending[0].gate is not None
        with pytest.raises(NeedsApproval):
            await chat.resume(approve(CALL, by="human"))
        assert (await chat.resume(answer_with(CALL, "by hand", by="human"))).status == "done"
    assert world.fired == []


async def test_an_answer_that_says_it_was_let_in_is_not_believed() -> None:
    """The loop asks the record, and nothing that an answer carries."""
    world = World()
    agent = agent_of(world)
    held = await agent.run("go")
    config = Config(model=ScriptedModel(["Done."]), tools=[Gated(world=world)])
    transcript = Transcript(held.items)
    said = approve(CALL, by="human", run_again=True)
    handle = begin(transcript, Opening(answers=(said,)), config, pending=held.pending)
    end = await handle.wait()
    assert (end.reason, world.fired) == ("input_required", [])


async def test_what_may_have_run_and_has_a_gate_now_is_answered_and_not_run() -> None:
    world = World()
    plain: Agent = Agent(ScriptedModel([call("act", {"n": 1})]))
    transcript = Transcript([user("go"), *(await agent_of(world).run("go")).items[1:2]])
    async with agent_of(world).session(transcript=transcript) as chat:
        result = await chat.resume(approve(CALL, by="human", run_again=True))
        assert (result.status, world.fired) == ("input_required", [])
        assert (await chat.resume(outcome_unknown(CALL))).status == "done"
    assert plain.tools == ()


# --- forks ---------------------------------------------------------------------------------------


async def test_votes_and_holds_of_a_prefix_open_nothing_in_a_fork() -> None:
    store, world = MemoryStore(), World()
    agent = agent_of(world, store=store)
    async with agent.session(CHAT) as chat:
        await chat.send("go")
        await cast(store, "ann", "bo")
        await chat.wait_for_idle()
        async with await chat.fork("fork-1") as fork:
            again = await fork.resume(approve(CALL, by="human"))
            assert (again.status, world.fired) == ("input_required", [])
            ours = await Runs(store).ballot("fork-1", CALL)
            theirs = await Runs(store).ballot(CHAT, CALL)
            assert ours.subject.session != theirs.subject.session
            for name in ("ann", "bo"):
                signature = theirs.sign(key(name), name)
                await Runs(store).approve("fork-1", CALL, by=name, signature=signature)
            with pytest.raises(InputRequired):
                await fork.continue_()
            await cast(store, "ann", "bo", name="fork-1")
            assert (await fork.continue_()).status == "done"
        assert world.count(CALL) == 1


async def test_a_fork_behind_an_approval_does_not_have_it() -> None:
    """The call was approved when the fork began, and ran in its origin: here it is held anew."""
    store, world = MemoryStore(), World()
    async with agent_of(world, store=store).session(CHAT) as chat:
        await chat.send("go")
        await cast(store, "ann", "bo")
        await chat.continue_()
        (listed,) = (await store.list(Filters(name=CHAT))).sessions
        entries = (await read_run(store, listed.id)).entries
        proceed = next(
            one for one in entries if isinstance(one, DecisionEntry) and one.verdict == "proceed"
        )
        async with await chat.fork("fork-1", entry=proceed.id) as fork:
            result = await fork.resume(approve(CALL, by="human", run_again=True))
            assert result.status == "input_required"
    assert world.count(CALL) == 1


async def test_an_approval_is_used_once_whatever_branch_used_it() -> None:
    store, world = MemoryStore(), World()
    async with agent_of(world, store=store).session(CHAT) as chat:
        await chat.send("go")
        await cast(store, "ann", "bo")
        await chat.continue_()
        (listed,) = (await store.list(Filters(name=CHAT))).sessions
        entries = (await read_run(store, listed.id)).entries
        tally = next(one for one in entries if one.type == "perdure:tally")
        await chat.rewind(tally.id, keep_effects=True)
        again = await chat.resume(approve(CALL, by="human", run_again=True))
        assert (again.status, world.count(CALL)) == ("input_required", 1)
        await cast(store, "ann", "cy")
        await chat.continue_()
    assert world.count(CALL) == 2


# --- sagas ---------------------------------------------------------------------------------------


async def test_the_denial_of_an_approval_is_no_failure_of_a_saga() -> None:
    store, world = MemoryStore(), World()
    agent = agent_of(world, store=store)
    first = await agent.run("go", run_id="order-1", saga=True)
    assert first.status == "input_required"
    await cast(store, "ann", "bo", approves=False, name="order-1")
    assert (await agent.run("go", run_id="order-1", saga=True)).status == "done"
    assert world.fired == []


def test_an_agent_as_a_tool_refuses_an_approval_that_is_none() -> None:
    with pytest.raises(ConfigError, match="give True or an Approval"):
        agent_of(World()).as_tool(approval="ann")  # type: ignore[arg-type]
