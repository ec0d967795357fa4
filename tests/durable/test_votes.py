"""Approvals of runs by id: who opens a gate, what does not, and what is final (LOG 5.7, 9)."""

from __future__ import annotations

import dataclasses
from collections.abc import Coroutine
from typing import Any, cast

import msgspec
import pytest

from perdure import (
    Agent,
    Approval,
    Keyring,
    Middleware,
    Program,
    Reminder,
    Runs,
    StandingApprovals,
    ToolDecision,
    ToolError,
    always,
    invoke,
    recover,
    tool,
)
from perdure.ballots import Verifier, check_evidence, read_evidence
from perdure.durable import run_agent
from perdure.durable.messages import Approve, Deny, Vote, message_of
from perdure.errors import (
    AlreadyResolved,
    ConfigError,
    NotHeld,
    RunFinished,
    VoteRefused,
)
from perdure.loop import ToolCallInfo
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock, ScriptedModel, call, turn
from perdure.testing.scripted import Script
from perdure.tools import Call
from tests.ballots.people import NAMES, key
from tests.durable.voters import (
    CALL,
    PUBLIC,
    TWO_OF_THREE,
    Gated,
    gated_agent,
    kinds,
    refusals,
    smuggle,
    tally_of,
    told_of,
    vote,
    votes_in,
)
from tests.durable.world import (
    RUN,
    Act,
    Holds,
    World,
    agent_of,
    asked,
    cut_behind,
    entries_of,
    one_call,
    outputs,
    session_of,
    shapes,
    two_calls,
)

ANN = Approval(of=["ann"])


# --- one person, by a word -----------------------------------------------------------------------


async def test_a_word_of_anybody_with_a_name_opens_the_simplest_gate() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world, approval=True)
    first = await agent.run("go", run_id=RUN)
    assert (first.status, first.pending[0].gate is not None) == ("input_required", True)
    with pytest.raises(VoteRefused, match="names nobody"):
        await Runs(store).approve(RUN, CALL)
    await Runs(store).approve(RUN, CALL, by="somebody")
    assert (await agent.run("go", run_id=RUN)).text == "All done."
    assert world.count(CALL) == 1
    tally = await tally_of(store)
    assert (tally.outcome, tally.approved_by, tally.signed) == ("approved", ("somebody",), False)


async def ask_a_service() -> bool:
    return False


class Distant:
    """Verifies with a service, and so too late."""

    alg = "ed25519"

    def __init__(self, name: str) -> None:
        self.key_ids = (name,)

    async def verify(self, message: bytes, signature: bytes) -> bool:
        return await ask_a_service()


class Late(Distant):
    """The same, and its `verify` does not look like it."""

    def verify(self, message: bytes, signature: bytes) -> Coroutine[Any, Any, bool]:
        return ask_a_service()


def people_with(kind: type[Distant]) -> dict[str, Verifier]:
    return {name: cast("Verifier", kind(name)) for name in NAMES}


async def test_a_verifier_that_is_asynchronous_opens_no_gate() -> None:
    with pytest.raises(ConfigError, match="verify is asynchronous"):
        Approval(need=2, of=people_with(Distant))
    store, world = MemoryStore(), World()
    approval = Approval(need=2, of=people_with(Late))
    agent = gated_agent(store, world, approval=approval)
    await agent.run("go", run_id=RUN)
    await vote(store, "ann", "bo")
    with pytest.raises(ConfigError, match="gave 'coroutine', and not True or False"):
        await agent.run("go", run_id=RUN)
    assert world.count(CALL) == 0


async def test_a_word_of_a_person_who_was_not_asked_opens_nothing() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world, approval=ANN)
    await agent.run("go", run_id=RUN)
    with pytest.raises(VoteRefused, match="'bo' is none of the approvers: ann"):
        await Runs(store).approve(RUN, CALL, by="bo")
    with pytest.raises(VoteRefused, match="a word is enough"):
        await Runs(store).approve(RUN, CALL, by="ann", signature=key("ann").sign(b""))
    await Runs(store).approve(RUN, CALL, by="ann")
    assert (await agent.run("go", run_id=RUN)).status == "done"


async def test_a_denial_is_what_the_model_reads_and_the_run_goes_on() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world, approval=ANN)
    await agent.run("go", run_id=RUN)
    await Runs(store).deny(RUN, CALL, by="ann", reason="too much")
    result = await agent.run("go", run_id=RUN)
    assert result.status == "done"
    assert outputs(result) == {CALL: "Error: denied by ann: too much"}
    assert world.fired == []


async def test_the_first_word_of_a_person_stands() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world, approval=Approval(of=["ann", "bo"]))
    await agent.run("go", run_id=RUN)
    runs = Runs(store)
    await runs.deny(RUN, CALL, by="ann")
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    await runs.deny(RUN, CALL, by="ann")
    with pytest.raises(AlreadyResolved, match="deny by ann"):
        await runs.approve(RUN, CALL, by="ann")
    await runs.approve(RUN, CALL, by="bo")
    assert (await agent.run("go", run_id=RUN)).status == "done"
    assert world.count(CALL) == 1


# --- several people, signed ----------------------------------------------------------------------


async def test_two_of_three_open_the_gate_and_the_tally_stands_before_the_tool_runs() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world)
    await agent.run("go", run_id=RUN)
    await vote(store, "ann")
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    assert "perdure:tally" not in await kinds(store)
    await vote(store, "cy")
    assert (await agent.run("go", run_id=RUN)).status == "done"
    assert world.count(CALL) == 1
    shown = shapes(await entries_of(store))
    assert shown.index("perdure:tally") < shown.index("decision proceed") < shown.index("dispatch")
    assert await votes_in(store) != []


async def test_votes_are_taken_while_nobody_drives_and_count_later() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world)
    await agent.run("go", run_id=RUN)
    await vote(store, *NAMES)
    ballot = await Runs(store).ballot(RUN, CALL)
    assert (ballot.outcome, ballot.votes) == ("pending", ())
    assert (await agent.run("go", run_id=RUN)).status == "done"
    tally = await tally_of(store)
    assert tally.approved_by == ("ann", "bo")
    assert [one["reason"] for one in tally.uncounted] == ["decided before"]


async def test_the_same_vote_put_again_changes_nothing() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world)
    await agent.run("go", run_id=RUN)
    await vote(store, "ann")
    await vote(store, "ann")
    await agent.run("go", run_id=RUN)
    await vote(store, "ann")
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    assert len(await votes_in(store)) == 1


async def test_it_is_denied_when_the_others_are_not_enough() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world)
    await agent.run("go", run_id=RUN)
    await vote(store, "ann", approves=False)
    await vote(store, "bo")
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    await vote(store, "cy", approves=False)
    result = await agent.run("go", run_id=RUN)
    assert (result.status, outputs(result)) == ("done", {CALL: "Error: denied by ann, cy"})
    assert world.fired == []


async def test_a_forged_vote_does_not_take_the_seat_of_the_real_one() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world)
    await agent.run("go", run_id=RUN)
    await vote(store, "ann", by_key="mallory", approves=False)
    await vote(store, "bo", by_key="mallory", approves=False)
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    await vote(store, "ann", "bo")
    assert (await agent.run("go", run_id=RUN)).status == "done"
    tally = await tally_of(store)
    assert tally.approved_by == ("ann", "bo")
    assert [one["reason"] for one in tally.uncounted] == ["bad signature", "bad signature"]


async def test_evidence_is_checked_without_the_store() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world)
    await agent.run("go", run_id=RUN)
    runs = Runs(store)
    with pytest.raises(NotHeld, match="no votes have decided"):
        await runs.evidence(RUN, CALL)
    await vote(store, "ann", by_key="bo")
    await vote(store, "ann", "bo", "cy")
    await agent.run("go", run_id=RUN)
    evidence = read_evidence(await runs.evidence(RUN, CALL))
    checked = check_evidence(evidence, keys=PUBLIC, policy=TWO_OF_THREE.policy)
    assert (checked.ok, checked.outcome) == (True, "approved")
    assert (evidence.arguments, evidence.subject.tool) == ('{"n":1}', "act")
    assert (await runs.ballot(RUN, CALL)).outcome == "approved"


async def test_an_operator_ends_what_they_have_no_vote_in() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world)
    await agent.run("go", run_id=RUN)
    with pytest.raises(VoteRefused, match="not signed"):
        await Runs(store).deny(RUN, CALL, by="ann")
    await Runs(store).deny(RUN, CALL, by="the operator", reason="wrong customer")
    result = await agent.run("go", run_id=RUN)
    assert (result.status, outputs(result)) == ("done", {CALL: "Error: wrong customer"})
    assert world.fired == []


# --- what does not open a gate -------------------------------------------------------------------


class Waves(Middleware):
    """A hook that lets everything through."""

    async def before_tool_call(self, call: ToolCallInfo) -> ToolDecision | None:
        return ToolDecision(action="proceed", by="human", reason="I say so")


class Refuses(Middleware):
    async def before_tool_call(self, call: ToolCallInfo) -> ToolDecision | None:
        return ToolDecision(action="reject", reason="never")


@pytest.mark.parametrize(
    "middleware", [[Waves()], [StandingApprovals(Holds(), [always("act")])], [Holds()]]
)
async def test_no_hook_opens_a_gate(middleware: list[Middleware]) -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world, middleware=middleware)
    result = await agent.run("go", run_id=RUN)
    assert (result.status, world.fired) == ("input_required", [])
    gate = result.pending[0].gate
    assert gate is not None
    assert (gate.need, gate.of) == (2, NAMES)
    await vote(store, "ann", "bo")
    assert (await agent.run("go", run_id=RUN)).status == "done"
    assert world.count(CALL) == 1


async def test_a_hook_that_rejects_is_not_overruled() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world, middleware=[Refuses()])
    result = await agent.run("go", run_id=RUN)
    assert (result.status, outputs(result)) == ("done", {CALL: "Error: never"})


async def test_arguments_that_a_hook_rewrote_are_those_that_are_voted_about() -> None:
    class Edits(Middleware):
        async def before_tool_call(self, call: ToolCallInfo) -> ToolDecision | None:
            return ToolDecision(action="proceed", arguments='{"n": 7}')

    store, seen = MemoryStore(), list[str]()

    def keep(handle: object) -> str:
        seen.append(handle.arguments)  # type: ignore[attr-defined]
        return "ok"

    agent = gated_agent(store, World(), middleware=[Edits()])
    agent = agent.with_(tools=[Gated(world=World(), does=keep)])
    await agent.run("go", run_id=RUN)
    assert (await Runs(store).ballot(RUN, CALL)).arguments == '{"n":7}'
    with pytest.raises(ConfigError, match="as they are"):
        await Runs(store).approve(RUN, CALL, by="ann", arguments='{"n": 8}')
    await vote(store, "ann", "bo")
    assert (await agent.run("go", run_id=RUN)).status == "done"
    assert seen == ['{"n": 7}']


async def test_arguments_that_do_not_fit_are_told_to_the_model_and_nobody_is_asked() -> None:
    @tool(approval=TWO_OF_THREE)
    async def charge(cents: int) -> str:
        """Charge."""
        return f"charged {cents}"

    store = MemoryStore()
    script: Script = [call("charge", {"cents": "five"}), "Sorry."]
    agent = agent_of(store, [], script).with_(approvers=PUBLIC, tools=[charge])
    result = await agent.run("go", run_id=RUN)
    assert result.status == "done"
    assert "cents" in outputs(result)[CALL]


async def test_a_person_who_lets_it_run_again_does_not_open_the_gate() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world)
    await agent.run("go", run_id=RUN)
    await vote(store, "ann", "bo")
    await agent.run("go", run_id=RUN)
    cut = await cut_behind(store, "dispatch")
    agent = gated_agent(cut, world)
    assert (await agent.run("go", run_id=RUN)).status == "halted"
    first = await Runs(cut).ballot(RUN, CALL)
    await Runs(cut).resolve(RUN, CALL, never_ran=True, min_age=0, by="ann", evidence={"seen": 0})
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    again = await Runs(cut).ballot(RUN, CALL)
    assert again.subject.hold != first.subject.hold
    await vote(cut, "ann", ballot=first)
    await vote(cut, "cy")
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    await vote(cut, "bo")
    assert (await agent.run("go", run_id=RUN)).status == "done"
    assert world.count(CALL) == 2
    assert len(world.keys(CALL)) == 1


async def test_a_call_that_runs_again_as_its_effect_allows_needs_no_second_approval() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world).with_(
        tools=[Gated(world=world, effect="idempotent")], approvers=PUBLIC
    )
    await agent.run("go", run_id=RUN)
    await vote(store, "ann", "bo")
    await agent.run("go", run_id=RUN)
    cut = await cut_behind(store, "dispatch")
    again = agent.with_(store=cut, model=ScriptedModel(one_call()))
    assert (await again.run("go", run_id=RUN)).status == "done"
    assert world.count(CALL) == 2


# --- policies that change ------------------------------------------------------------------------


async def test_a_gate_that_was_tightened_after_the_approval_asks_again() -> None:
    store, world = MemoryStore(), World()
    await gated_agent(store, world, approval=ANN).run("go", run_id=RUN)
    await Runs(store).approve(RUN, CALL, by="ann")
    tighter = gated_agent(store, world)
    assert (await tighter.run("go", run_id=RUN)).status == "input_required"
    assert world.fired == []
    await vote(store, "ann", "bo")
    assert (await tighter.run("go", run_id=RUN)).status == "done"
    assert world.count(CALL) == 1


async def test_a_gate_that_was_added_later_holds_what_was_not_dispatched() -> None:
    store, world = MemoryStore(), World()
    agent = agent_of(store, [Act(world=world)], one_call(), middleware=[Holds()])
    await agent.run("go", run_id=RUN)
    await Runs(store).approve(RUN, CALL, by="ann")
    assert (await gated_agent(store, world).run("go", run_id=RUN)).status == "input_required"
    assert world.fired == []


async def test_a_gate_that_was_removed_still_waits_for_its_votes() -> None:
    store, world = MemoryStore(), World()
    await gated_agent(store, world).run("go", run_id=RUN)
    loose = gated_agent(store, world, approval=None)
    assert (await loose.run("go", run_id=RUN)).status == "input_required"
    await vote(store, "ann", "bo")
    assert (await loose.run("go", run_id=RUN)).status == "done"


@pytest.mark.parametrize(
    "later", [None, True, Approval(of=["bo"]), Approval(need=2, of=["x", "y"])]
)
async def test_a_denial_is_final_whatever_the_gate_is_later(later: Approval | bool | None) -> None:
    store, world = MemoryStore(), World()
    first = gated_agent(store, world, approval=ANN)
    await first.run("go", run_id=RUN)
    await Runs(store).deny(RUN, CALL, by="ann")
    await first.run("go", run_id=RUN)
    cut = await cut_behind(store, "perdure:tally")
    keys = {**PUBLIC, "x": key("x").public, "y": key("y").public}
    agent = gated_agent(cut, world, approval=later, approvers=keys)
    with pytest.raises(AlreadyResolved, match="denied"):
        await Runs(cut).approve(RUN, CALL, by="ann")
    result = await agent.run("go", run_id=RUN)
    assert (result.status, outputs(result)) == ("done", {CALL: "Error: denied by ann"})
    assert world.fired == []


async def test_a_tally_is_not_counted_again_when_keys_change() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world)
    await agent.run("go", run_id=RUN)
    await vote(store, "ann", "bo")
    await agent.run("go", run_id=RUN)
    cut = await cut_behind(store, "perdure:tally")
    rotated = {name: key(f"{name}/2").public for name in NAMES}
    again = gated_agent(cut, world, approvers=rotated)
    assert (await again.run("go", run_id=RUN)).status == "done"
    assert (await tally_of(cut)).keys == PUBLIC


async def test_votes_without_a_tally_count_by_the_keys_of_today() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world)
    await agent.run("go", run_id=RUN)
    await vote(store, "ann", "bo")
    await agent.run("go", run_id=RUN)
    cut = await cut_behind(store, "perdure:vote approve", "perdure:vote approve")
    rotated = {name: key(f"{name}/2").public for name in NAMES}
    again = gated_agent(cut, world, approvers=rotated)
    assert (await again.run("go", run_id=RUN)).status == "input_required"
    back = gated_agent(cut, world)
    assert (await back.run("go", run_id=RUN)).status == "done"


async def test_keys_in_the_policy_are_enough_and_go_before_those_of_the_agent() -> None:
    store, world = MemoryStore(), World()
    policy = Approval(need=2, of={name: key(f"{name}/own").public for name in NAMES})
    agent = gated_agent(store, world, approval=policy)
    await agent.run("go", run_id=RUN)
    await vote(store, "ann", "bo")
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    runs = Runs(store)
    ballot = await runs.ballot(RUN, CALL)
    for name in ("ann", "bo"):
        signature = ballot.sign(key(f"{name}/own"), name)
        await runs.approve(RUN, CALL, by=name, signature=signature)
    assert (await agent.run("go", run_id=RUN)).status == "done"


async def test_an_approval_that_was_not_used_is_not_asked_for_again() -> None:
    """A crash at every entry behind the votes asks nobody twice, and runs the tool once at most."""
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world)
    await agent.run("go", run_id=RUN)
    await vote(store, "ann", "bo")
    await agent.run("go", run_id=RUN)
    for kind in ("perdure:vote approve", "perdure:tally", "decision proceed"):
        cut = await cut_behind(store, *[kind] * (2 if "vote" in kind else 1))
        fresh = World()
        result = await gated_agent(cut, fresh).run("go", run_id=RUN)
        assert (kind, result.status, fresh.count(CALL)) == (kind, "done", 1)


# --- refused on record ---------------------------------------------------------------------------


async def test_what_is_refused_leaves_nothing_but_the_refusal() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world)
    await agent.run("go", run_id=RUN)
    before = await kinds(store)
    ballot = await Runs(store).ballot(RUN, CALL)
    real = told_of(ballot, "ann")
    bad = [
        _with(real, call_id="other"),
        _with(real, digest="00" * 32),
        _with(real, hold="sha256:another"),
        _with(real, who="dan"),
        _with(real, who=""),
        _with(real, signature=""),
        _with(real, signature="ed25519:AAAA"),
        _with(real, signature="yes"),
    ]
    for one in bad:
        await smuggle(store, one)
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    assert (await kinds(store))[len(before) :] == ["perdure:refused"] * len(bad)
    assert world.fired == []


def _with(told: Vote, **members: object) -> Vote:
    return msgspec.structs.replace(told, **members)


async def test_a_vote_that_comes_behind_the_decision_is_refused() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world, script=[call("act", {}), call("act", {}), "Done."])
    await agent.run("go", run_id=RUN)
    ballot = await Runs(store).ballot(RUN, CALL)
    await vote(store, "ann", "bo")
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    await vote(store, "ann", call_id="call_t1_1")
    await smuggle(store, told_of(ballot, "cy"))
    await agent.run("go", run_id=RUN)
    assert await refusals(store) == [f"call {CALL!r}: it does not wait for this vote any more"]
    with pytest.raises(NotHeld):
        await vote(store, "cy", ballot=ballot)


async def test_nothing_can_be_voted_about_a_run_that_is_over() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world)
    await agent.run("go", run_id=RUN)
    ballot = await Runs(store).ballot(RUN, CALL)
    await vote(store, "ann", "bo", approves=False)
    await agent.run("go", run_id=RUN)
    with pytest.raises(RunFinished):
        await vote(store, "ann", ballot=ballot)
    with pytest.raises(RunFinished):
        await Runs(store).approve(RUN, CALL, by="ann")
    await smuggle(store, told_of(ballot, "ann"))
    await agent.run("go", run_id=RUN)
    assert (await refusals(store), world.fired) == (["the run is over"], [])


async def test_a_word_about_a_call_that_waits_for_votes_is_refused_on_record() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world)
    await agent.run("go", run_id=RUN)
    ballot = await Runs(store).ballot(RUN, CALL)
    members = {"call_id": CALL, "hold": ballot.subject.hold, "digest": ballot.subject.digest}
    session = await session_of(store)
    for told in (Approve(who="root", **members), Deny(who="ann", **members)):
        await store.put(session.id, message_of(told, await session_of(store)))
        assert (await agent.run("go", run_id=RUN)).status == "input_required"
    assert len(await refusals(store)) == 2
    assert world.fired == []


# --- time ----------------------------------------------------------------------------------------


async def test_an_approval_that_expires_is_told_to_the_model_and_later_votes_are_refused() -> None:
    store, world, clock = MemoryStore(), World(), FakeClock()
    policy = dataclasses.replace(TWO_OF_THREE, expires=60)
    agent = gated_agent(store, world, approval=policy, clock=clock)
    first = await agent.run("go", run_id=RUN)
    runs = Runs(store, clock=clock)
    assert first.status == "input_required"
    due = (await runs.get(RUN)).due
    assert due is not None
    assert list(await store.due(due - 1)) == []
    assert list(await store.due(due)) == [first.pending[0].session]
    ballot = await runs.ballot(RUN, CALL)
    await runs.approve(RUN, CALL, by="ann", signature=ballot.sign(key("ann"), "ann"))
    await clock.advance(61)
    with pytest.raises(VoteRefused, match="expired"):
        await runs.approve(RUN, CALL, by="bo", signature=ballot.sign(key("bo"), "bo"))
    (recovered,) = await recover(agent)
    assert recovered.status == "done"
    result = await agent.run("go", run_id=RUN)
    assert outputs(result) == {CALL: "Error: the approval expired: 1 of 2 approved in time"}
    assert ((await tally_of(store)).outcome, world.fired) == ("expired", [])


async def test_votes_that_were_put_in_time_count_however_late_they_are_taken_up() -> None:
    store, world, clock = MemoryStore(), World(), FakeClock()
    policy = dataclasses.replace(TWO_OF_THREE, expires=60)
    agent = gated_agent(store, world, approval=policy, clock=clock)
    await agent.run("go", run_id=RUN)
    runs = Runs(store, clock=clock)
    ballot = await runs.ballot(RUN, CALL)
    await clock.advance(59)
    for name in ("ann", "bo"):
        await runs.approve(RUN, CALL, by=name, signature=ballot.sign(key(name), name))
    await clock.advance(3600)
    assert (await agent.run("go", run_id=RUN)).status == "done"
    assert world.count(CALL) == 1


async def test_an_approval_that_escalates_asks_others_anew() -> None:
    store, world, clock = MemoryStore(), World(), FakeClock()
    policy = Approval(
        need=2,
        of=["ann", "bo"],
        expires=60,
        escalate=Approval(of=["cy"], signed=True, expires=60),
    )
    agent = gated_agent(store, world, approval=policy, clock=clock)
    await agent.run("go", run_id=RUN)
    runs = Runs(store, clock=clock)
    first = await runs.ballot(RUN, CALL)
    await runs.approve(RUN, CALL, by="ann", signature=first.sign(key("ann"), "ann"))
    await clock.advance(61)
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    second = await runs.ballot(RUN, CALL)
    assert (second.level, second.policy.approvers) == (1, ("cy",))
    with pytest.raises(VoteRefused, match="none of the approvers"):
        await runs.approve(RUN, CALL, by="ann", signature=first.sign(key("ann"), "ann"))
    stale = _with(told_of(first, "cy"), hold=second.subject.hold)
    await smuggle(store, stale)  # what cy would have signed about the first hold
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    await runs.approve(RUN, CALL, by="cy", signature=second.sign(key("cy"), "cy"))
    assert (await agent.run("go", run_id=RUN)).status == "done"
    assert world.count(CALL) == 1
    before = read_evidence(await runs.evidence(RUN, CALL, hold=first.subject.hold))
    assert check_evidence(before, keys=PUBLIC).outcome == "expired"
    assert check_evidence(read_evidence(await runs.evidence(RUN, CALL))).outcome == "approved"
    with pytest.raises(NotHeld):
        await runs.evidence(RUN, CALL, hold="sha256:nothing")


async def test_the_last_of_those_it_escalates_to_can_let_it_expire() -> None:
    store, world, clock = MemoryStore(), World(), FakeClock()
    policy = Approval(of=["ann"], expires=60, escalate=Approval(of=["bo"], expires=60))
    agent = gated_agent(store, world, approval=policy, clock=clock)
    await agent.run("go", run_id=RUN)
    await clock.advance(61)
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    await clock.advance(61)
    result = await agent.run("go", run_id=RUN)
    assert outputs(result) == {CALL: "Error: the approval expired: 0 of 1 approved in time"}


async def test_people_are_reminded_once_also_after_a_crash() -> None:
    store, world, clock = MemoryStore(), World(), FakeClock()
    told: list[Reminder] = []
    policy = dataclasses.replace(TWO_OF_THREE, remind=[60, 120], expires=600)
    agent = gated_agent(store, world, approval=policy, clock=clock, on_reminder=told.append)
    await agent.run("go", run_id=RUN)
    await vote(store, "bo", clock=clock)
    assert told == []
    await clock.advance(61)
    await recover(agent)
    assert [(one.number, one.approvers, one.run_id) for one in told] == [(1, ("ann", "cy"), RUN)]
    await agent.run("go", run_id=RUN)
    cut = await cut_behind(store, "perdure:reminder")
    await agent.with_(store=cut).run("go", run_id=RUN)
    assert len(told) == 1
    await clock.advance(61)
    await agent.run("go", run_id=RUN)
    assert [one.number for one in told] == [1, 2]


async def test_several_reminders_that_were_missed_are_one() -> None:
    store, world, clock = MemoryStore(), World(), FakeClock()
    told: list[Reminder] = []

    async def remind(reminder: Reminder) -> None:
        told.append(reminder)
        raise RuntimeError("the mail server is down")

    policy = dataclasses.replace(TWO_OF_THREE, remind=[60, 120])
    agent = gated_agent(store, world, approval=policy, clock=clock, on_reminder=remind)
    await agent.run("go", run_id=RUN)
    await clock.advance(500)
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    assert [one.number for one in told] == [2]
    assert (await Runs(store).get(RUN)).due is None


async def test_what_people_take_counts_for_no_limit_and_a_poll_denies_nothing() -> None:
    store, world, clock = MemoryStore(), World(), FakeClock()
    agent = gated_agent(store, world, clock=clock, max_seconds=30)
    await agent.run("go", run_id=RUN)
    for _ in range(3):
        await clock.advance(1000)
        assert (await agent.run("go", run_id=RUN)).status == "input_required"
    await vote(store, "ann", "bo")
    assert (await agent.run("go", run_id=RUN)).status == "done"


# --- where calls are made ------------------------------------------------------------------------


def parent_of(store: MemoryStore, child: Agent, **asks: Any) -> Agent:
    helper = child.with_(name="helper", store="").as_tool("helper", "Helps.", **asks)
    return agent_of(store, [helper], [call("helper", {"task": "Help."}), "Parent done."])


async def test_a_call_of_a_sub_agent_shows_its_path_and_takes_votes_about_its_own_session() -> None:
    store, world = MemoryStore(), World()
    agent = parent_of(store, gated_agent(store, world))
    first = await agent.run("go", run_id=RUN)
    inner = first.pending[-1]
    assert (first.status, inner.path, inner.call.name) == ("input_required", (CALL,), "act")
    runs, call_id, session = Runs(store), inner.call.call_id, inner.session
    ballot = await runs.ballot(RUN, call_id, session=session)
    root = dataclasses.replace(ballot.subject, session=first.pending[0].session)
    wrong = dataclasses.replace(ballot, subject=root)
    await vote(store, "ann", "bo", ballot=wrong, call_id=call_id, session=session)
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    await vote(store, "ann", "bo", call_id=call_id, session=session)
    assert (await recover(agent))[0].status == "done"
    assert world.count(inner.call.call_id) == 1
    evidence = read_evidence(await runs.evidence(RUN, call_id, session=session))
    assert [one.reason for one in evidence.tally.uncounted] == ["bad signature", "bad signature"]
    policy = Approval(need=evidence.policy.need, of=evidence.policy.approvers, signed=True).policy
    assert check_evidence(evidence, keys=PUBLIC, policy=policy).ok


async def test_a_sub_agent_gets_to_work_when_it_may() -> None:
    store, world = MemoryStore(), World()
    child = agent_of(store, [Act(world=world)], one_call())
    agent = parent_of(store, child, approval=Approval(of=["ann"]))
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    assert world.fired == []
    await Runs(store).approve(RUN, CALL, by="ann")
    assert (await agent.run("go", run_id=RUN)).text == "Parent done."


async def test_an_approval_of_a_sub_agent_expires_though_its_parent_sleeps() -> None:
    store, world, clock = MemoryStore(), World(), FakeClock()
    policy = dataclasses.replace(TWO_OF_THREE, expires=60)
    child = gated_agent(store, world, approval=policy, clock=clock)
    agent = parent_of(store, child).with_(clock=clock)
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    assert await recover(agent) == []
    await clock.advance(61)
    (recovered,) = await recover(agent)
    assert (recovered.status, world.fired) == ("done", [])


@pytest.mark.parametrize("approves", [True, False])
async def test_a_call_of_an_agent_of_a_program_takes_votes_too(*, approves: bool) -> None:
    store, world = MemoryStore(), World()
    child = gated_agent(store, world).with_(name="helper", store="")

    async def work() -> str:
        return await run_agent("help", child, "Help.")

    program = Program(work, store=store)
    first = await program.run(run_id=RUN)
    inner = first.pending[-1]
    assert (first.status, inner.path) == ("input_required", ("help",))
    await vote(
        store,
        "ann",
        "bo",
        approves=approves,
        session=inner.session,
        call_id=inner.call.call_id,
    )
    (recovered,) = await recover(programs=[program], store=store)
    assert (recovered.status, len(world.fired)) == ("done", int(approves))


async def test_a_tool_cannot_open_the_gate_of_another() -> None:
    store, world = MemoryStore(), World()

    async def around(handle: Call) -> str:
        try:
            return str((await invoke("act", {})).output)
        except ToolError as error:
            return f"refused: {error}"

    agent = gated_agent(store, world, script=[call("around", {}), "Done."])
    outer = Act(world=World(), name="around", does=around)
    agent = agent.with_(tools=[Gated(world=world), outer])
    result = await agent.run("go", run_id=RUN)
    assert outputs(result)[CALL].startswith("refused: needs the approval of 2 of ann, bo, cy: a")
    assert world.fired == []


async def test_one_call_of_a_batch_waits_and_the_others_run() -> None:
    store, world = MemoryStore(), World()
    script: Script = [turn(call("act", {"n": 1}), call("free", {"n": 2})), "All done."]
    agent = gated_agent(store, world, script=script)
    agent = agent.with_(tools=[Gated(world=world), Act(world=world, name="free")])
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    assert [call_id for call_id, _ in world.fired] == ["call_t0_3"]
    await vote(store, "ann", "bo")
    result = await agent.run("go", run_id=RUN)
    assert set(outputs(result)) == {CALL, "call_t0_3"}
    assert asked(agent) == 2


async def test_one_denied_and_one_approved_call_of_a_batch_both_get_their_outputs() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world, script=two_calls())
    await agent.run("go", run_id=RUN)
    await vote(store, "ann", "bo", approves=False)
    await vote(store, "ann", "bo", call_id="call_t0_3")
    result = await agent.run("go", run_id=RUN)
    assert outputs(result) == {
        CALL: "Error: denied by ann, bo",
        "call_t0_3": "done call_t0_3",
    }


async def test_a_run_that_is_cancelled_takes_no_votes_any_more() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world)
    await agent.run("go", run_id=RUN)
    await vote(store, "ann", "bo")
    await Runs(store).cancel(RUN)
    assert (await agent.run("go", run_id=RUN)).status == "cancelled"
    assert world.fired == []


# --- definitions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"need": 0}, "cannot be needed"),
        ({"need": 2}, "cannot be needed"),
        ({"need": 3, "of": ["ann", "bo"]}, "cannot be needed"),
        ({"need": 2, "of": ["ann", "bo"], "signed": False}, "signed"),
        ({"signed": True}, "names"),
        ({"of": "ann"}, "list of names"),
        ({"of": [1]}, "list of names"),
        ({"of": ["ann", "Ann"]}, "look alike"),
        ({"of": {"ann": "no key"}}, "no public key"),
        ({"of": {"ann": PUBLIC["ann"], "bo": PUBLIC["ann"]}}, "share a key"),
        ({"expires": 0}, "positive"),
        ({"remind": -1}, "positive"),
        ({"escalate": Approval()}, "never expires"),
        ({"expires": 1, "escalate": True}, "is an Approval"),
    ],
)
def test_an_approval_that_nobody_could_give_is_refused(members: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Approval(**members)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({}, ""),
        ({"ann": PUBLIC["ann"], "Ann": PUBLIC["bo"]}, "look alike"),
        ({"ann": PUBLIC["ann"], "bo": PUBLIC["ann"]}, "share a key"),
        ({"ann": "ed25519:" + "A" * 43}, "small order"),
        ({"ann": 7}, "a text or a verifier"),
    ],
)
def test_keys_that_cannot_be_used_are_refused(keys: Any, why: str) -> None:
    if not why:
        assert Keyring(keys)("ann") is None
        return
    with pytest.raises(ConfigError, match=why):
        Keyring(keys)


def test_an_agent_whose_approvals_nobody_could_give_is_refused() -> None:
    store, world = MemoryStore(), World()
    with pytest.raises(ConfigError, match="nobody says the key of 'ann'"):
        gated_agent(store, world, approvers=None)
    with pytest.raises(ConfigError, match="nobody says the key of 'cy'"):
        gated_agent(store, world, approvers={"ann": PUBLIC["ann"], "bo": PUBLIC["bo"]})
    one_for_all = Keyring({"ann": PUBLIC["ann"]})("ann")
    with pytest.raises(ConfigError, match="share a key"):
        gated_agent(store, world, approvers=lambda name: one_for_all)
    with pytest.raises(ConfigError, match="nobody does"):
        gated_agent(store, world, approval=dataclasses.replace(TWO_OF_THREE, remind=5))
    with pytest.raises(ConfigError, match="give True or an Approval"):
        gated_agent(store, world, approval="ann")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="approvers"):
        gated_agent(store, world, approvers=7)


async def test_keys_that_cannot_be_had_stop_the_run_and_nothing_is_decided() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world)
    await agent.run("go", run_id=RUN)
    await vote(store, "ann", "bo")
    there = Keyring(PUBLIC)
    down = [False]

    def source(name: str) -> Verifier | None:
        if down[0]:
            raise OSError("the key server is down")
        return there(name)

    agent = agent.with_(approvers=source)
    down[0] = True
    with pytest.raises(ConfigError, match="could not be had"):
        await agent.run("go", run_id=RUN)
    down[0] = False
    assert (await agent.run("go", run_id=RUN)).status == "done"


async def test_a_provider_whose_tools_nobody_could_approve_is_refused_before_anything_happens() -> (
    None
):
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world).with_(
        tools=[], approvers=None, tool_provider=lambda: [Gated(world=world)]
    )
    with pytest.raises(ConfigError, match="nobody says the key of 'ann'"):
        await agent.run("go", run_id=RUN)
    assert asked(agent) == 0


async def test_votes_that_nobody_could_check_stop_the_run_and_are_not_lost() -> None:
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world)
    await agent.run("go", run_id=RUN)
    await vote(store, "ann", "bo")
    blind = agent.with_(tools=[Act(world=world)], approvers=None)
    with pytest.raises(ConfigError, match="nobody says any key"):
        await blind.run("go", run_id=RUN)
    assert (await agent.run("go", run_id=RUN)).status == "done"


async def test_a_failing_drive_leaves_the_approval_where_it_is() -> None:
    """What goes wrong when a run is taken up does not use up what people said."""
    store, world = MemoryStore(), World()
    agent = gated_agent(store, world)
    await agent.run("go", run_id=RUN)
    await vote(store, "ann", "bo")

    def broken() -> str:
        raise RuntimeError("no instructions today")

    with pytest.raises(RuntimeError):
        await agent.with_(instructions=broken).run("go", run_id=RUN)
    assert world.fired == []
    assert (await agent.run("go", run_id=RUN)).status == "done"
    assert world.count(CALL) == 1
