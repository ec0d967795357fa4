"""Telling a run something: what is taken, what is refused, and what races what (LOG 3, 5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from perdure import Agent, Found, Middleware, NeverRan, OutcomeUnknown, RunFailed, Runs, tool
from perdure.durable.messages import Approve, Late, NotStarted, Resolve, message_of
from perdure.errors import (
    AlreadyResolved,
    ConfigError,
    HaltTooYoung,
    NoRun,
    NotHalted,
    NotHeld,
    PerdureError,
    RunBusy,
    RunFinished,
    RunMismatch,
)
from perdure.log import Lease, Message, go_on
from perdure.loop import NextTool, ToolCallInfo
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call
from perdure.testing.scripted import Script
from perdure.tools import Call, ToolResult, arguments_digest
from perdure.wire import encode, function_call_output, user
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


async def held(store: MemoryStore, world: World) -> Agent:
    agent = agent_of(store, [Act(world=world)], one_call(), middleware=[Holds()])
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    return agent


async def halted(world: World | None = None, **members: object) -> MemoryStore:
    """A run that died inside the tool of its one call."""
    store = MemoryStore()
    agent = agent_of(store, [Act(world=world or World(), **members)], one_call())  # type: ignore[arg-type]
    await agent.run("go", run_id=RUN)
    return await cut_behind(store, "dispatch")


CALL = "call_t0_1"


async def until(holds: Callable[[], bool]) -> None:
    """Let others run until something holds."""
    while not holds():  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.005)


# --- decisions ------------------------------------------------------------------------------------


async def test_an_approval_from_outside_runs_the_call_once() -> None:
    store, world = MemoryStore(), World()
    agent = await held(store, world)
    runs = Runs(store)
    await runs.approve(RUN, CALL, by="ann", reason="looks right")
    await runs.approve(RUN, CALL, by="ann", reason="looks right")  # told twice is told once
    result = await agent.run("go", run_id=RUN)
    assert (result.status, world.count(CALL)) == ("done", 1)
    decision = [e for e in await entries_of(store) if e.type == "decision"][-1].members
    assert (decision["perdure:who"], decision["reason"]) == ("ann", "looks right")
    assert "perdure:message" in decision


async def test_the_first_decision_stands() -> None:
    store, world = MemoryStore(), World()
    agent = await held(store, world)
    runs = Runs(store)
    await runs.deny(RUN, CALL, by="ann", reason="too much")
    with pytest.raises(AlreadyResolved, match="denied by ann"):
        await runs.approve(RUN, CALL, by="bo")
    result = await agent.run("go", run_id=RUN)
    assert (result.status, world.fired) == ("done", [])
    assert outputs(result) == {CALL: "Error: too much"}


async def test_an_approval_may_bring_other_arguments() -> None:
    store, world = MemoryStore(), World()
    seen: list[str] = []

    def look(call: Call) -> str:
        seen.append(call.arguments)
        return "ok"

    agent = agent_of(store, [Act(world=world, does=look)], one_call(), middleware=[Holds()])
    await agent.run("go", run_id=RUN)
    await Runs(store).approve(RUN, CALL, by="ann", arguments='{"n": 7}')
    assert (await agent.run("go", run_id=RUN)).status == "done"
    assert seen == ['{"n": 7}']


async def test_a_decision_is_bound_to_its_arguments_and_to_its_hold() -> None:
    store, world = MemoryStore(), World()
    agent = await held(store, world)
    session = await session_of(store)
    hold = next(e for e in session.entries if e.type == "decision")
    for told in (
        Approve(call_id=CALL, hold=hold.id, digest=arguments_digest('{"n": 2}')),
        Approve(call_id=CALL, hold="sha256:other", digest=arguments_digest('{"n": 1}')),
        Approve(call_id="nobody", hold=hold.id, digest=arguments_digest('{"n": 1}')),
    ):
        name = f"m-{told.hold}-{told.call_id}-{told.digest}"
        message = msgspec.structs.replace(message_of(told, session), id=name)
        await store.put(session.id, message)
    await store.put(session.id, Message(id="nonsense", body=b'{"kind":"nothing"}'))
    result = await agent.run("go", run_id=RUN)
    assert (result.status, world.fired) == ("input_required", [])
    assert [e.type for e in await entries_of(store)].count("perdure:refused") == 4
    assert await store.unconsumed(session.id) == ()


async def test_a_decision_that_is_delivered_again_after_it_was_taken_up_is_no_error() -> None:
    store, world = MemoryStore(), World()
    agent = agent_of(store, [Act(world=world)], two_calls(), middleware=[Holds()])
    first, second = (one.call.call_id for one in (await agent.run("go", run_id=RUN)).pending)
    runs = Runs(store)
    await runs.approve(RUN, first, by="ann")
    await runs.deny(RUN, second, by="bo")
    await agent.run("go", run_id=RUN)
    store = await cut_behind(store, "decision proceed")
    runs = Runs(store)
    await runs.approve(RUN, first, by="ann")
    with pytest.raises(AlreadyResolved, match="approved by ann"):
        await runs.deny(RUN, first, by="ann")


async def test_a_call_that_never_tells_its_outcome_is_run_once_by_each_driver_and_then_halts() -> (
    None
):
    def unsure(call: Call) -> str:
        raise OutcomeUnknown("the bank is silent")

    store, world = MemoryStore(), World()
    agent = agent_of(store, [Act(world=world, effect="keyed", does=unsure)], one_call())
    statuses = [(await agent.run("go", run_id=RUN)).status for _ in range(7)]
    assert statuses == ["aborted"] * 4 + ["halted"] * 3
    assert len(world.fired) == 5
    assert len(world.keys(CALL)) == 1
    await Runs(store).resolve(RUN, CALL, output="it is done", by="ann")
    assert (await agent.run("go", run_id=RUN)).status == "done"


async def test_some_decisions_of_a_batch_are_taken_and_the_others_are_waited_for() -> None:
    store, world = MemoryStore(), World()
    agent = agent_of(store, [Act(world=world)], two_calls(), middleware=[Holds()])
    first, second = (await agent.run("go", run_id=RUN)).pending
    runs = Runs(store)
    await runs.approve(RUN, second.call.call_id, by="ann")
    result = await agent.run("go", run_id=RUN)
    assert [one.call.call_id for one in result.pending] == [first.call.call_id]
    assert (result.status, asked(agent)) == ("input_required", 1)
    await runs.deny(RUN, first.call.call_id, by="bo")
    result = await agent.run("go", run_id=RUN)
    assert (result.status, [one for one, _ in world.fired]) == ("done", [second.call.call_id])


# --- resolutions ----------------------------------------------------------------------------------


async def test_a_resolution_is_the_output_with_who_and_evidence() -> None:
    store = await halted()
    await Runs(store).resolve(RUN, CALL, output="paid", evidence={"tx": 7}, by="ann")
    world = World()
    result = await agent_of(store, [Act(world=world)], one_call()).run("go", run_id=RUN)
    assert (result.status, outputs(result), world.fired) == ("done", {CALL: "paid"}, [])
    decision = [e for e in await entries_of(store) if e.type == "decision"][-1].members
    assert (decision["verdict"], decision["perdure:who"]) == ("answer", "ann")
    assert decision["perdure:evidence"] == {"tx": 7}


async def test_a_call_that_never_ran_is_run_once_under_its_first_key() -> None:
    before = World()
    store = await halted(before)
    await Runs(store).resolve(RUN, CALL, never_ran=True, min_age=0, by="ann")
    world = World()
    result = await agent_of(store, [Act(world=world)], one_call()).run("go", run_id=RUN)
    assert (result.status, world.count(CALL)) == ("done", 1)
    assert world.keys(CALL) == before.keys(CALL)


async def test_two_resolvers_cannot_both_be_right() -> None:
    store = await halted()
    runs = Runs(store)
    await runs.resolve(RUN, CALL, output="paid", by="ann")
    await runs.resolve(RUN, CALL, output="paid", by="ann")
    with pytest.raises(AlreadyResolved, match="paid"):
        await runs.resolve(RUN, CALL, never_ran=True, min_age=0, by="bo")
    agent = agent_of(store, [Act(world=World())], one_call())
    assert (await agent.run("go", run_id=RUN)).status == "done"


async def test_a_call_that_may_still_be_running_is_not_said_to_have_never_run() -> None:
    store = await halted()
    runs = Runs(store)
    with pytest.raises(ConfigError, match="min_age"):
        await runs.resolve(RUN, CALL, never_ran=True)
    with pytest.raises(ConfigError, match="0 or more"):
        await runs.resolve(RUN, CALL, never_ran=True, min_age=-1)
    with pytest.raises(HaltTooYoung) as young:
        await runs.resolve(RUN, CALL, never_ran=True, min_age=3600)
    assert young.value.minimum == 3600
    timed = await halted(timeout=1000.0)
    with pytest.raises(HaltTooYoung) as young:
        await Runs(timed).resolve(RUN, CALL, never_ran=True)
    assert young.value.minimum == 1005, "its timeout and its grace"


async def test_what_is_too_young_is_refused_again_by_whoever_takes_it_up() -> None:
    store = await halted()
    session = await session_of(store)
    dispatch = next(e for e in session.entries if e.type == "dispatch")
    told = Resolve(call_id=CALL, dispatch=dispatch.id, min_age=3600)
    await store.put(session.id, message_of(told, session))
    world = World()
    agent = agent_of(store, [Act(world=world)], one_call())
    assert (await agent.run("go", run_id=RUN)).status == "halted"
    assert world.fired == []
    await Runs(store).resolve(RUN, CALL, output="paid")  # and another may follow
    assert (await agent.run("go", run_id=RUN)).status == "done"


async def test_a_resolution_of_an_older_dispatch_is_refused() -> None:
    store = await halted()
    session = await session_of(store)
    dispatch = next(e for e in session.entries if e.type == "dispatch")
    stale = Resolve(call_id=CALL, dispatch=dispatch.id, output="stale")
    await Runs(store).resolve(RUN, CALL, never_ran=True, min_age=0)

    def unsure(call: Call) -> str:
        raise OutcomeUnknown("the line dropped")

    world = World()
    agent = agent_of(store, [Act(world=world, does=unsure)], one_call())
    assert (await agent.run("go", run_id=RUN)).status == "halted"
    message = msgspec.structs.replace(message_of(stale, session), id="stale")
    await store.put(session.id, message)
    assert (await agent.run("go", run_id=RUN)).status == "halted"
    assert shapes(await entries_of(store))[-1] == "perdure:refused"
    assert world.count(CALL) == 1


# --- what a driver knows of its own dispatch ------------------------------------------------------


async def _tell_late(store: MemoryStore, text: str, call_id: str = CALL) -> None:
    session = await session_of(store)
    dispatch = [e for e in session.entries if e.type == "dispatch"][-1]
    item = msgspec.Raw(encode(function_call_output(call_id, text)))
    told = Late(call_id=call_id, dispatch=dispatch.id, item=item)
    await store.put(session.id, message_of(told, session))


async def test_a_late_output_is_the_output_of_a_halted_call() -> None:
    store = await halted()
    await _tell_late(store, "charged after all")
    world = World()
    result = await agent_of(store, [Act(world=world)], one_call()).run("go", run_id=RUN)
    assert (result.status, outputs(result)) == ("done", {CALL: "charged after all"})
    assert world.fired == []


async def test_of_an_answer_and_a_late_output_the_first_stands() -> None:
    store = await halted()
    await Runs(store).resolve(RUN, CALL, output="paid")
    await _tell_late(store, "charged after all")
    result = await agent_of(store, [Act(world=World())], one_call()).run("go", run_id=RUN)
    assert (result.status, outputs(result)) == ("done", {CALL: "paid"})
    assert "perdure:refused" in shapes(await entries_of(store))


async def test_not_started_does_not_void_a_dispatch_that_somebody_resolved_meanwhile() -> None:
    store = await halted()
    session = await session_of(store)
    dispatch = next(e for e in session.entries if e.type == "dispatch")
    await Runs(store).resolve(RUN, CALL, output="paid")
    world = World()
    agent = agent_of(store, [Act(world=world)], one_call())
    assert (await agent.run("go", run_id=RUN)).status == "done"
    told = NotStarted(call_id=CALL, dispatch=dispatch.id, fence="f")
    await store.put(session.id, message_of(told, session))
    assert (await agent.run("go", run_id=RUN)).status == "done"
    assert world.fired == []
    assert shapes(await entries_of(store))[-1] == "perdure:refused"


async def test_the_late_result_of_a_tool_that_outlived_its_time_is_its_output() -> None:
    store, fired = MemoryStore(), []
    gate = asyncio.Event()

    @tool(timeout=0.05)
    async def charge() -> str:
        """Charge."""
        fired.append(1)
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue  # deaf
        return "charged"

    agent: Agent = Agent(
        ScriptedModel([call("charge"), "Done."]), tools=[charge], store=store, grace=0.01
    )
    result = await agent.run("go", run_id=RUN)
    assert (result.status, fired) == ("halted", [1])
    gate.set()
    from perdure.durable.late import sent

    await asyncio.sleep(0.05)
    await sent()
    result = await agent.run("go", run_id=RUN)
    assert (result.status, outputs(result), fired) == ("done", {CALL: "charged"}, [1])


# --- cancelling -----------------------------------------------------------------------------------


async def test_nothing_with_an_effect_begins_after_a_cancel_returned() -> None:
    store, world = MemoryStore(), World()
    runs = Runs(store)

    class CancelsBefore(Middleware):
        async def wrap_tool_call(self, call: ToolCallInfo, next_: NextTool) -> ToolResult:
            await runs.cancel(RUN, reason="stop", by="ann")
            return await next_()

    agent = agent_of(store, [Act(world=world)], one_call(), middleware=[CancelsBefore()])
    result = await agent.run("go", run_id=RUN)
    assert (result.status, result.cause, world.fired) == ("cancelled", "stop", [])


async def test_a_run_that_nobody_drives_is_closed_by_the_cancel_itself() -> None:
    store, world = MemoryStore(), World()
    await held(store, world)
    runs = Runs(store)
    await runs.cancel(RUN, reason="no need", by="ann")
    state = await runs.get(RUN)
    assert (state.status, state.cause, state.pending) == ("cancelled", "no need", ())
    with pytest.raises(RunFinished):
        await runs.approve(RUN, CALL)


async def test_a_cancel_ends_a_model_call_that_takes_its_time() -> None:
    store = MemoryStore()
    from perdure.durable import Driving, run_by_id

    agent: Agent = Agent(ScriptedModel(["It is a long story."], delay=30.0), store=store)
    driving = Driving(poll=0.01)
    running = asyncio.create_task(run_by_id(agent, store, RUN, [user("go")], driving=driving))
    await until(lambda: asked(agent) > 0)
    await Runs(store).cancel(RUN)
    assert (await running).state.status == "cancelled"


async def test_a_cancelled_call_that_may_have_run_says_so_and_its_late_result_is_refused() -> None:
    store = await halted()
    await Runs(store).cancel(RUN)
    await _tell_late(store, "charged")
    result = await agent_of(store, [Act(world=World())], one_call()).run("go", run_id=RUN)
    assert result.status == "cancelled"
    assert "outcome of this call is unknown" in outputs(result)[CALL]
    assert shapes(await entries_of(store))[-1] == "perdure:refused"


# --- bad input is refused, and nothing is written -------------------------------------------------


async def test_what_cannot_be_told_is_refused_with_a_named_error_and_nothing_is_written() -> None:
    store, world = MemoryStore(), World()
    agent = await held(store, world)
    runs = Runs(store)
    before = len(await entries_of(store))
    session = await session_of(store)
    for refused, telling in (
        (NoRun, runs.get("nobody")),
        (NoRun, runs.approve("nobody", CALL)),
        (NoRun, runs.cancel("nobody")),
        (NoRun, runs.retry("nobody")),
        (NotHeld, runs.approve(RUN, "nobody")),
        (NotHalted, runs.resolve(RUN, CALL, output="x")),
        (NotHalted, runs.resolve(RUN, "nobody", output="x")),
        (ConfigError, runs.resolve(RUN, CALL)),
        (ConfigError, runs.resolve(RUN, CALL, output="x", never_ran=True)),
        (ConfigError, runs.retry(RUN)),
        (NoRun, runs.approve(RUN, CALL, session="elsewhere")),
        (PerdureError, runs.approve(RUN, CALL, arguments="[1]")),
        (RunMismatch, agent.run("something else", run_id=RUN)),
        (ConfigError, agent.run("go", run_id="")),
        (ConfigError, agent.run("go", run_id="x" * 600)),
        (ConfigError, agent.run("go", run_id="a\nb")),
        (ConfigError, agent.run([], run_id="empty")),
    ):
        with pytest.raises(refused):
            await telling
    assert len(await entries_of(store)) == before
    assert await store.unconsumed(session.id) == ()


async def test_a_run_and_a_session_never_share_a_log() -> None:
    store = MemoryStore()
    agent: Agent = Agent(ScriptedModel(["One.", "Two."]), store=store)
    async with agent.session("chat") as chat:
        await chat.send("hi")
    with pytest.raises(RunMismatch, match="no run"):
        await agent.run("hi", run_id="chat")
    await agent.run("hi", run_id="order")
    with pytest.raises(ConfigError, match="id of a run"):
        async with agent.session("order"):
            pass
    assert (await agent.run("hi", run_id="order")).status == "done"


# --- two drivers ----------------------------------------------------------------------------------


async def test_a_second_call_waits_for_the_first_or_is_told_that_it_is_busy() -> None:
    store, world = MemoryStore(), World()
    gate = asyncio.Event()

    @tool
    async def charge() -> str:
        """Charge."""
        world.fired.append(("charge", ""))
        await gate.wait()
        return "charged"

    agent: Agent = Agent(ScriptedModel([call("charge"), "Done."]), tools=[charge], store=store)
    first = asyncio.create_task(agent.run("go", run_id=RUN))
    await until(lambda: bool(world.fired))
    with pytest.raises(RunBusy):
        await agent.run("go", run_id=RUN, wait=False)
    second = asyncio.create_task(agent.run("go", run_id=RUN))
    await asyncio.sleep(0.1)
    gate.set()
    assert (await first) == (await second)
    assert world.fired == [("charge", "")]


async def test_a_caller_that_is_cancelled_leaves_a_run_that_goes_on_elsewhere() -> None:
    store, entered = MemoryStore(), asyncio.Event()

    @tool(effect="idempotent")
    async def slow() -> str:
        """Wait for ever, unless told to stop."""
        if entered.is_set():
            return "quick"
        entered.set()
        await asyncio.sleep(3600)
        return "slow"

    model = ScriptedModel([call("slow"), "Done."])
    agent: Agent = Agent(model, tools=[slow], store=store, grace=0.0)
    running = asyncio.create_task(agent.run("go", run_id=RUN))
    await entered.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    result = await agent.run("go", run_id=RUN)
    assert (result.status, outputs(result)) == ("done", {CALL: "quick"})


async def test_a_driver_that_lost_its_lease_tells_what_its_tool_gave() -> None:
    store, world = MemoryStore(), World()
    taken: list[Lease] = []

    @tool
    async def charge() -> str:
        """Charge; meanwhile somebody takes the run away."""
        world.fired.append(("charge", ""))
        session = await session_of(store)
        await store.release(lease)
        taken.append(await store.lease(session.id, holder="another"))
        return "charged"

    agent: Agent = Agent(ScriptedModel([call("charge"), "Done."]), tools=[charge], store=store)
    from perdure.durable import Driving, begin_run, drive_until_rest

    session = await begin_run(agent, store, RUN, [user("go")])
    recording = await go_on(store, session.id)
    lease = recording.lease
    rested = await drive_until_rest(agent, recording, Driving())
    assert rested.lost
    (message,) = await store.unconsumed(session.id)
    assert b"charged" in message.body
    await store.release(taken[0])
    result = await agent.run("go", run_id=RUN)
    assert (result.status, outputs(result)) == ("done", {CALL: "charged"})
    assert world.fired == [("charge", "")]


async def test_a_driver_that_is_not_sure_of_its_lease_enters_no_tool_and_says_so() -> None:
    store, world = MemoryStore(), World()
    agent = agent_of(store, [Act(world=world)], one_call())
    from perdure.durable import Driving, begin_run, drive_until_rest

    session = await begin_run(agent, store, RUN, [user("go")])
    recording = await go_on(store, session.id)
    recording.held._boot = lambda: float("inf")  # it slept past its lease
    rested = await drive_until_rest(agent, recording, Driving())
    assert (rested.lost, world.fired) == (True, [])
    assert "perdure:not_started" in shapes(await entries_of(store))
    await recording.close()
    result = await agent.run("go", run_id=RUN)
    assert (result.status, len(world.fired)) == ("done", 1)


# --- reconcilers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "status", "fires"),
    [
        (Found("paid", evidence={"tx": 1}), "done", 0),
        (NeverRan(min_age=0), "done", 1),
        (NeverRan(min_age=3600), "halted", 0),
        (NeverRan(), "halted", 0),
        (None, "halted", 0),
    ],
)
async def test_a_reconciler_looks_before_a_person_is_asked(
    found: Found | NeverRan | None, status: str, fires: int
) -> None:
    fired: list[int] = []

    @tool
    async def charge(cents: int) -> str:
        """Charge."""
        fired.append(cents)
        return "paid"

    script: Script = [call("charge", {"cents": 5}), "Done."]
    whole = MemoryStore()
    await Agent(ScriptedModel(script), tools=[charge], store=whole).run("go", run_id=RUN)
    store = await cut_behind(whole, "dispatch")
    dispatch = next(e for e in await entries_of(store) if e.type == "dispatch").members
    fired.clear()
    asked_for: list[tuple[str, str]] = []

    @charge.reconcile
    async def look_up(call: Call) -> Found | NeverRan | None:
        asked_for.append((call.arguments, call.idempotency_key))
        return found

    result = await Agent(ScriptedModel(script), tools=[charge], store=store).run("go", run_id=RUN)
    assert (result.status, len(fired)) == (status, fires)
    assert asked_for == [('{"cents":5}', dispatch["idempotency_key"])]
    if isinstance(found, Found):
        decision = next(e for e in await entries_of(store) if e.type == "decision").members
        assert (decision["by"], decision["perdure:evidence"]) == ("policy", {"tx": 1})


async def test_a_reconciler_that_fails_leaves_the_call_halted() -> None:
    @tool
    async def charge() -> str:
        """Charge."""
        raise OutcomeUnknown("the line dropped")

    @charge.reconcile
    def look_up(call: Call) -> None:
        raise RuntimeError("the bank is closed")

    agent: Agent = Agent(
        ScriptedModel([call("charge"), "Done."]), tools=[charge], store=MemoryStore()
    )
    assert (await agent.run("go", run_id=RUN)).status == "halted"


async def test_a_failed_run_raises_with_its_result_and_goes_on_later() -> None:
    store = MemoryStore()
    with pytest.raises(RunFailed) as failed:
        await agent_of(store, [Act(world=World())], [call("act")]).run("go", run_id=RUN)
    assert failed.value.result.status == "failed"
    assert failed.value.result.run_id == RUN
    await Runs(store).cancel(RUN)
    assert (await Runs(store).get(RUN)).status == "cancelled"
