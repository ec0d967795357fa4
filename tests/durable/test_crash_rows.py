"""What the next drive does with each log that a crash can leave (LOG 9)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from perdure import Agent, Runs
from perdure.durable import find_run, read_run
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock, ScriptedModel, call, turn
from perdure.testing.scripted import TurnLike
from perdure.tools import Call, Effect, ToolResult
from tests.durable.world import (
    RUN,
    Act,
    Holds,
    World,
    agent_of,
    asked,
    cut_after,
    cut_behind,
    entries_of,
    one_call,
    outputs,
    session_of,
    shapes,
    two_calls,
)

SAFE: tuple[Effect, ...] = ("none", "idempotent", "keyed")


async def driven(effect: Effect = "once", *, world: World | None = None) -> MemoryStore:
    """A run that went to its end."""
    store = MemoryStore()
    agent = agent_of(store, [Act(world=world or World(), effect=effect)])
    assert (await agent.run("go", run_id=RUN)).status == "done"
    return store


async def test_a_header_with_its_input_calls_the_model() -> None:
    store = await cut_behind(await driven(), "item")
    world = World()
    agent = agent_of(store, [Act(world=world)])
    result = await agent.run("go", run_id=RUN)
    assert (result.status, result.text, len(world.fired)) == ("done", "All done.", 2)


async def test_calls_of_a_response_without_its_entry_are_rejected_as_cut() -> None:
    whole = await driven()
    store = await cut_after(whole, shapes(await entries_of(whole)).index("response"))
    world = World()
    agent = agent_of(store, [Act(world=world)], [*two_calls(), "Asked again."])
    result = await agent.run("go", run_id=RUN)
    assert result.status == "done"
    assert world.fired == []
    assert all("was cut" in text for text in outputs(result).values())


async def test_a_cut_answer_is_never_taken_as_the_answer() -> None:
    whole = await driven()
    shown = shapes(await entries_of(whole))
    last = len(shown) - 1 - shown[::-1].index("response")
    store = await cut_after(whole, last)
    world = World()
    agent = agent_of(store, [Act(world=world)])
    result = await agent.run("go", run_id=RUN)
    assert (result.status, result.text) == ("done", "All done.")
    assert asked(agent) == 1
    assert world.fired == []


async def test_items_and_response_entry_of_a_turn_decide_and_run_its_calls() -> None:
    store = await cut_behind(await driven(), "response")
    world = World()
    agent = agent_of(store, [Act(world=world)])
    result = await agent.run("go", run_id=RUN)
    assert (result.status, asked(agent)) == ("done", 1)
    assert sorted(one for one, _ in world.fired) == sorted(outputs(result))


async def test_a_hold_waits_for_the_decision() -> None:
    store, world = MemoryStore(), World()
    agent = agent_of(store, [Act(world=world)], middleware=[Holds()])
    first = await agent.run("go", run_id=RUN)
    assert (first.status, [one.reason for one in first.pending]) == (
        "input_required",
        ["held", "held"],
    )
    written = len(await entries_of(store))
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    assert (asked(agent), world.fired) == (1, [])
    assert len(await entries_of(store)) == written, (
        "a drive that finds nothing to do writes nothing"
    )


@pytest.mark.parametrize("cut", ["decision proceed", "dispatch"])
async def test_what_follows_an_approval_is_done_once(cut: str) -> None:
    store, world = MemoryStore(), World()
    agent = agent_of(store, [Act(world=world)], one_call(), middleware=[Holds()])
    (held,) = (await agent.run("go", run_id=RUN)).pending
    await Runs(store).approve(RUN, held.call.call_id, by="ann")
    assert (await agent.run("go", run_id=RUN)).status == "done"

    crashed, again = await cut_behind(store, cut), World()
    other = agent_of(crashed, [Act(world=again)], one_call(), middleware=[Holds()])
    result = await other.run("go", run_id=RUN)
    if cut == "decision proceed":
        assert (result.status, len(again.fired)) == ("done", 1)
    else:
        assert (result.status, again.fired) == ("halted", [])


async def test_a_dispatch_without_an_output_halts_a_call_that_must_not_run_twice() -> None:
    store = await cut_behind(await driven(), "dispatch", "dispatch")
    world = World()
    agent = agent_of(store, [Act(world=world)])
    result = await agent.run("go", run_id=RUN)
    assert (result.status, world.fired, asked(agent)) == ("halted", [], 0)
    assert all(one.attempted_at is not None for one in result.pending)

    runs = Runs(store)
    for one in result.pending:
        await runs.resolve(RUN, one.call.call_id, output="it went through", by="ann")
    result = await agent.run("go", run_id=RUN)
    assert (result.status, world.fired) == ("done", [])
    assert set(outputs(result).values()) == {"it went through"}


@pytest.mark.parametrize("effect", SAFE)
async def test_a_dispatch_without_an_output_runs_again_where_the_effect_allows(
    effect: Effect,
) -> None:
    whole = await driven(effect)
    store = await cut_behind(whole, "dispatch", "dispatch")
    keys = {
        str(entry.members["idempotency_key"])
        for entry in await entries_of(whole)
        if entry.type == "dispatch"
    }
    world = World()
    agent = agent_of(store, [Act(world=world, effect=effect)])
    result = await agent.run("go", run_id=RUN)
    assert (result.status, len(world.fired)) == ("done", 2)
    if effect == "keyed":
        assert {key for _, key in world.fired} == keys


@pytest.mark.parametrize(
    ("recorded", "today"), [("once", "idempotent"), ("idempotent", "once"), ("once", "none")]
)
async def test_both_the_recorded_effect_and_todays_must_allow_a_second_run(
    recorded: Effect, today: Effect
) -> None:
    store = await cut_behind(await driven(recorded), "dispatch", "dispatch")
    world = World()
    result = await agent_of(store, [Act(world=world, effect=today)]).run("go", run_id=RUN)
    assert (result.status, world.fired) == ("halted", [])


async def test_a_call_whose_tool_is_gone_halts() -> None:
    store = await cut_behind(await driven("idempotent"), "dispatch", "dispatch")
    result = await agent_of(store, []).run("go", run_id=RUN)
    assert result.status == "halted"


async def test_a_dispatch_that_was_not_started_is_dispatched_again() -> None:
    store = MemoryStore()
    world = World()
    agent = agent_of(store, [Act(world=world)], one_call())
    crashed = await cut_behind(await _ran(agent, store), "dispatch")
    session = await session_of(crashed)
    dispatch = next(entry for entry in session.entries if entry.type == "dispatch")
    call_id = str(dispatch.members["call_id"])
    from perdure.durable.messages import NotStarted, message_of

    told = NotStarted(call_id=call_id, dispatch=dispatch.id, fence="f")
    await crashed.put(session.id, message_of(told, session))
    again = World()
    result = await agent_of(crashed, [Act(world=again)], one_call()).run("go", run_id=RUN)
    assert (result.status, again.count(call_id)) == ("done", 1)


async def _ran(agent: Agent, store: MemoryStore) -> MemoryStore:
    assert (await agent.run("go", run_id=RUN)).status == "done"
    return store


async def test_some_outputs_of_a_batch_run_only_what_has_none() -> None:
    whole = await driven("idempotent")
    shown = shapes(await entries_of(whole))
    first_output = shown.index("item", shown.index("dispatch"))
    store = await cut_after(whole, first_output + 1)
    world = World()
    result = await agent_of(store, [Act(world=world, effect="idempotent")]).run("go", run_id=RUN)
    assert (result.status, len(world.fired)) == ("done", 1)


async def test_outputs_that_all_ask_to_end_the_drive_end_it_without_a_model_call() -> None:
    def ends(call: object) -> ToolResult:
        return ToolResult("enough", terminate=True)

    store, world = MemoryStore(), World()
    agent = agent_of(store, [Act(world=world, does=ends)])
    assert (await agent.run("go", run_id=RUN)).status == "stopped"
    shown = shapes(await entries_of(store))
    crashed = await cut_after(store, shown.index("perdure:end"))
    again = agent_of(crashed, [Act(world=World(), does=ends)])
    result = await again.run("go", run_id=RUN)
    assert (result.status, result.cause, asked(again)) == ("stopped", "terminate", 0)


async def test_any_other_complete_batch_calls_the_model() -> None:
    whole = await driven()
    shown = shapes(await entries_of(whole))
    place = shown.index("response", shown.index("dispatch")) - 1
    store = await cut_after(whole, place)
    world = World()
    agent = agent_of(store, [Act(world=world)])
    result = await agent.run("go", run_id=RUN)
    assert (result.status, asked(agent), world.fired) == ("done", 1, [])


@pytest.mark.parametrize("cut", ["before the end", "behind perdure:end", "behind the end"])
async def test_a_complete_answer_closes_the_run_without_a_model_call(cut: str) -> None:
    whole = await driven()
    shown = shapes(await entries_of(whole))
    end = len(shown) - 1 - shown[::-1].index("run end")
    place = {"before the end": end - 1, "behind perdure:end": end, "behind the end": end + 1}[cut]
    store = await cut_after(whole, place)
    agent = agent_of(store, [Act(world=World())])
    result = await agent.run("go", run_id=RUN)
    assert (result.status, result.text, asked(agent)) == ("done", "All done.", 0)
    assert shapes(await entries_of(store))[-1] == "perdure:closed done"


async def test_a_closed_run_gives_the_recorded_result_and_writes_nothing() -> None:
    store = await driven()
    before = await entries_of(store)
    agent = agent_of(store, [Act(world=World())])
    first = await agent.run("go", run_id=RUN)
    second = await agent.run("go", run_id=RUN)
    assert first == second
    assert (first.status, asked(agent)) == ("done", 0)
    assert [one.id for one in await entries_of(store)] == [one.id for one in before]


async def test_late_messages_of_a_closed_run_are_refused_on_record() -> None:
    from perdure.durable.messages import Deny, message_of

    store = await driven()
    session = await read_run(store, await find_run(store, RUN))
    told = Deny(call_id="call_t0_1", hold="nothing", digest="")
    await store.put(session.id, message_of(told, session))
    agent = agent_of(store, [Act(world=World())])
    assert (await agent.run("go", run_id=RUN)).status == "done"
    assert shapes(await entries_of(store))[-1] == "perdure:refused"
    assert await store.unconsumed(session.id) == ()


async def test_an_unconsumed_stop_cancels_and_closes_the_open_calls() -> None:
    whole = await driven()
    store = await cut_behind(whole, "dispatch")
    from perdure.durable.messages import Cancel, message_of

    session = await session_of(store)
    await store.put(session.id, message_of(Cancel(reason="no more"), session), stop=True)
    world = World()
    agent = agent_of(store, [Act(world=world)])
    result = await agent.run("go", run_id=RUN)
    assert (result.status, result.cause, world.fired) == ("cancelled", "no more", [])
    assert len(outputs(result)) == 2
    assert shapes(await entries_of(store))[-1] == "perdure:closed cancelled"


async def test_an_error_is_driven_again_where_it_stopped() -> None:
    store, world = MemoryStore(), World()
    failing = agent_of(store, [Act(world=world)], [turn(call("act", {"n": 1}))])
    with pytest.raises(Exception, match="turn 1"):
        await failing.run("go", run_id=RUN)
    agent = agent_of(store, [Act(world=world)], one_call())
    result = await agent.run("go", run_id=RUN)
    assert (result.status, asked(agent), len(world.fired)) == ("done", 1, 1)


async def test_a_stop_by_a_limit_is_returned_as_recorded_until_the_limit_is_raised() -> None:
    store, world = MemoryStore(), World()
    script = [call("act", {"n": n}) for n in range(4)]
    agent = agent_of(store, [Act(world=world)], [*script, "All done."], max_turns=2)
    assert (await agent.run("go", run_id=RUN)).cause == "max_turns"
    written = len(await entries_of(store))
    again = await agent.run("go", run_id=RUN)
    assert (again.status, again.cause, asked(agent)) == ("stopped", "max_turns", 2)
    assert len(await entries_of(store)) == written
    raised = await agent.with_(max_turns=3).run("go", run_id=RUN)
    assert (raised.status, raised.turns) == ("stopped", 3)
    await Runs(store).retry(RUN, by="ann")
    assert (await agent.run("go", run_id=RUN)).status == "done"


async def test_the_turns_of_a_run_count_over_crashes() -> None:
    store = MemoryStore()
    script = [call("act", {"n": n}) for n in range(4)]
    agent = agent_of(store, [Act(world=World())], script, max_turns=3)
    assert (await agent.run("go", run_id=RUN)).turns == 3
    shown = shapes(await entries_of(store))
    crashed = await cut_after(store, shown.index("response", shown.index("response") + 1) + 1)
    again = agent_of(crashed, [Act(world=World(), effect="none")], script, max_turns=3)
    result = await again.run("go", run_id=RUN)
    assert (result.cause, result.turns, asked(again)) == ("max_turns", 3, 1)


@pytest.mark.parametrize("effect", ["none", "idempotent", "keyed", "once"])
@pytest.mark.parametrize("script", ["one after another", "at once"])
async def test_a_run_cut_behind_any_entry_ends_and_loses_and_doubles_nothing(
    effect: Effect, script: str
) -> None:
    turns = two_calls()
    if script == "one after another":
        turns = [call("act", {"n": 1}), call("act", {"n": 2}), "All done."]
    store, before = MemoryStore(), World()
    whole = await agent_of(store, [Act(world=before, effect=effect)], turns).run("go", run_id=RUN)
    entries = await entries_of(store)
    for keep in range(1, len(entries) + 1):
        crashed = await cut_after(store, keep)
        done = {
            str(entry.members["call_id"]) for entry in entries[:keep] if entry.type == "dispatch"
        }
        world = World()
        agent = agent_of(crashed, [Act(world=world, effect=effect)], turns)
        result = await agent.run("go", run_id=RUN)
        if result.status == "halted":
            assert effect == "once", keep
            for one in result.pending:
                if one.may_have_run:
                    output = f"done {one.call.call_id}"
                    await Runs(crashed).resolve(RUN, one.call.call_id, output=output, by="ann")
            result = await agent.run("go", run_id=RUN)
        assert result.status == "done", keep
        if effect == "once":
            assert not done & {one for one, _ in world.fired}, keep
        for call_id in outputs(whole):
            keys = {k for one, k in [*before.fired, *world.fired] if one == call_id}
            assert effect != "keyed" or call_id not in done or len(keys) == 1, keep
        if set(outputs(result)) == set(outputs(whole)):
            assert result.text == whole.text, keep
        session = await session_of(crashed)
        assert session.view().closed is not None


async def test_a_model_that_cannot_be_asked_leaves_a_run_that_goes_on() -> None:
    store = MemoryStore()
    with pytest.raises(Exception, match="script"):
        await agent_of(store, [], []).run("go", run_id=RUN)
    assert (await Runs(store).get(RUN)).status == "failed"
    agent: Agent = Agent(ScriptedModel(["Here I am."]), store=store)
    assert (await agent.run("go", run_id=RUN)).text == "Here I am."


async def test_the_deadline_of_a_run_leaves_out_what_it_waits_for_people() -> None:
    clock = FakeClock()
    store, world = MemoryStore(), World()

    async def slow(call: object) -> str:
        await clock.advance(20)
        return "ok"

    script: list[TurnLike] = [call("act", {"n": 1}), call("act", {"n": 2}), "All done."]
    agent = agent_of(
        store,
        [Act(world=world, does=slow)],
        script,
        middleware=[Holds()],
        clock=clock,
        max_seconds=30.0,
    )
    (held,) = (await agent.run("go", run_id=RUN)).pending
    await clock.advance(3600)  # somebody was at lunch
    await Runs(store, clock=clock).approve(RUN, held.call.call_id)
    (held,) = (await agent.run("go", run_id=RUN)).pending
    await clock.advance(3600)
    await Runs(store, clock=clock).approve(RUN, held.call.call_id)
    result = await agent.run("go", run_id=RUN)
    assert (result.status, result.cause, len(world.fired)) == ("stopped", "budget", 2)
    raised = await agent.with_(max_seconds=60.0).run("go", run_id=RUN)
    assert (raised.status, raised.text) == ("done", "All done.")


async def test_what_a_crashed_run_lay_about_is_not_charged_to_its_time() -> None:
    clock = FakeClock()
    store, world = MemoryStore(), World()
    agent = agent_of(store, [Act(world=world, effect="none")], clock=clock, max_seconds=30.0)
    await agent.run("go", run_id=RUN)
    crashed = await cut_behind(store, "dispatch")
    await clock.advance(86_400)
    again = agent_of(crashed, [Act(world=world, effect="none")], clock=clock, max_seconds=30.0)
    assert (await again.run("go", run_id=RUN)).status == "done"


@pytest.mark.parametrize("effect", ["idempotent", "once"])
async def test_outputs_stand_in_the_order_of_the_calls_though_they_landed_in_another(
    effect: Effect,
) -> None:
    def slow_first(call: Call) -> Awaitable[str]:
        async def work() -> str:
            await asyncio.sleep(0.05 if call.arguments == '{"n":1}' else 0)
            return f"done {call.id}"

        return work()

    script: list[TurnLike] = [
        turn(*(call("act", {"n": n}) for n in (1, 2, 3))),
        "All done.",
    ]
    store = MemoryStore()
    act = Act(world=World(), effect=effect, does=slow_first)
    whole = await agent_of(store, [act], script).run("go", run_id=RUN)
    entries = await entries_of(store)
    shown = shapes(entries)
    first = next(
        place for place in range(shown.index("dispatch"), len(shown)) if shown[place] == "item"
    )
    assert shown[:first].count("perdure:result") == 2
    crashed = await cut_after(store, first)
    world = World()
    agent = agent_of(crashed, [Act(world=world, effect=effect)], script)
    result = await agent.run("go", run_id=RUN)
    if effect == "once":
        (open_call,) = (one for one in result.pending if one.may_have_run)
        assert result.status == "halted"
        output = f"done {open_call.call.call_id}"
        await Runs(crashed).resolve(RUN, open_call.call.call_id, output=output)
        result = await agent.run("go", run_id=RUN)
    assert (result.status, result.items) == (whole.status, whole.items)
    assert len(world.fired) == (0 if effect == "once" else 1)
