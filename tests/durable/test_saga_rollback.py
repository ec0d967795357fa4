"""Rollbacks: calls that may have run, compensators that fail, and what people say of both."""

from __future__ import annotations

import asyncio
import threading

import pytest

from perdure import Agent, RunFailed, Runs, ToolError, recover, step, tool, wait_for
from perdure.durable import Driving, run_by_id
from perdure.errors import ConfigError, NotHalted, RunFinished
from perdure.loop import invoke
from perdure.stores.memory import MemoryStore
from perdure.testing import call, turn
from perdure.testing.scripted import TurnLike
from perdure.tools import Call, Compensation, Compensator, Effect, current_call, wrap
from perdure.wire import user
from tests.durable.bank import (
    Bank,
    Deed,
    Payment,
    cut_in_flight,
    failing,
    names,
    reasons,
    report,
    run,
    saga,
)
from tests.durable.told import until
from tests.durable.world import RUN, Holds, cut_behind, entries_of, session_of, shapes

# --- calls of which nobody knows -----------------------------------------------------------------


async def test_a_call_that_may_run_again_is_run_forward_and_undone() -> None:
    effects: tuple[Effect, ...] = ("idempotent", "keyed")
    for effect in effects:
        store, bank = await cut_in_flight(effect)
        slow = Payment(bank=bank, name="slow", effect=effect, does=lambda _: "done at last")
        result = await run(saga(store, [], slow, failing(bank), Payment(bank=bank)))
        assert result.status == "rolled_back"
        assert bank.did == ["slow {}"]
        assert [(one.tool, one.text) for one in bank.undone] == [
            ("slow", "done at last"),
            ("pay", "pay did it"),
        ]


async def test_one_that_fails_when_it_is_run_forward_is_not_undone() -> None:
    store, bank = await cut_in_flight("idempotent")
    slow = Payment(bank=bank, name="slow", effect="idempotent", does=failing(bank).does)
    result = await run(saga(store, [], slow, failing(bank), Payment(bank=bank)))
    assert (names(report(result).compensated), bank.undid) == (["pay"], ["pay {}"])


async def test_a_failure_behind_a_try_that_was_cut_is_listed_as_unknown() -> None:
    store, bank = await cut_in_flight("idempotent")
    script: list[TurnLike] = []
    slow = Payment(bank=bank, name="slow", effect="idempotent", does=failing(bank).does)
    result = await run(saga(store, script, slow, failing(bank), Payment(bank=bank)))
    why = "it failed, and a try before that was cut may have taken effect"
    assert reasons(report(result).unknown) == {"slow": why}
    assert bank.undid == ["pay {}"]


async def test_one_that_may_run_again_and_has_no_compensator_is_listed() -> None:
    store, bank = await cut_in_flight("idempotent")
    slow = Deed(bank=bank, name="slow", effect="idempotent")
    result = await run(saga(store, [], slow, failing(bank), Payment(bank=bank)))
    assert bank.did == []
    why = "it may have run, and its tool has no compensator"
    assert reasons(report(result).uncompensated) == {"slow": why}


async def test_a_call_of_which_nobody_knows_halts_the_rollback_until_somebody_says() -> None:
    store, bank = await cut_in_flight("once")
    slow = Payment(bank=bank, name="slow")
    agent = saga(store, [], slow, failing(bank), Payment(bank=bank))
    result = await run(agent)
    assert (result.status, bank.undone) == ("halted", [])
    assert names(report(result).unknown) == ["slow"]
    version = (await session_of(store)).version
    assert (await run(agent)).status == "halted"
    assert (await session_of(store)).version == version
    await Runs(store).resolve(RUN, "call_t1_1", output="it did", by="ann", evidence={"seen": 1})
    assert (await run(agent)).status == "rolled_back"
    assert [(one.tool, one.text) for one in bank.undone] == [
        ("slow", "it did"),
        ("pay", "pay did it"),
    ]


async def test_a_tool_that_is_gone_in_the_middle_of_a_call_halts() -> None:
    store, bank = await cut_in_flight("idempotent")
    agent = saga(store, [], failing(bank))
    result = await run(agent)
    assert (result.status, reasons(report(result).unknown)) == (
        "halted",
        {"slow": "its tool is gone"},
    )


async def test_one_that_never_ran_is_not_undone_and_not_run() -> None:
    store, bank = await cut_in_flight("once")
    agent = saga(store, [], Payment(bank=bank, name="slow"), failing(bank), Payment(bank=bank))
    await run(agent)
    await Runs(store).resolve(RUN, "call_t1_1", never_ran=True, min_age=0, by="ann")
    result = await run(agent)
    assert (bank.did, bank.undid) == ([], ["pay {}"])
    assert report(result).unknown == ()
    assert "perdure:saga never_ran" in shapes(await entries_of(store))


async def test_a_sibling_that_is_cut_in_its_tool_halts_the_rollback() -> None:
    store, bank = MemoryStore(), Bank()
    inside = asyncio.Event()

    async def hang(call: Call) -> str:
        inside.set()
        await asyncio.sleep(60)
        return "never"

    async def wait_and_fail(call: Call) -> str:
        await inside.wait()
        raise ToolError("no")

    tools = (
        Payment(bank=bank, name="slow", does=hang),
        Deed(bank=bank, name="ship", does=wait_and_fail),
    )
    script: list[TurnLike] = [turn(call("slow"), call("ship"), call("later")), "never"]
    agent = saga(store, script, *tools, Payment(bank=bank, name="later"), grace=0.01)
    result = await run(agent)
    assert (result.status, names(report(result).unknown)) == ("halted", ["slow"])


async def test_a_suspended_sibling_is_closed_and_its_steps_are_listed() -> None:
    store, bank = MemoryStore(), Bank()

    @tool(effect="idempotent")
    async def patient() -> str:
        await step("reserve", lambda: "reserved", effect="once")
        await step("look", lambda: "seen", effect="none")
        await wait_for("paid")
        return "never"

    script: list[TurnLike] = [turn(call("patient"), call("risky")), "never"]
    risky = failing(bank, "risky")
    agent = saga(store, script, patient, risky, middleware=(Holds("risky"),))
    await run(agent)
    await Runs(store).approve(RUN, "call_t0_3")
    result = await run(agent)
    assert result.status == "rolled_back"
    assert reasons(report(result).uncompensated) == {"patient": "it waits, after 'reserve'"}
    assert result.pending == ()


async def test_a_call_that_somebody_says_has_failed_trips_the_saga() -> None:
    store, bank = MemoryStore(), Bank()
    script: list[TurnLike] = [call("pay"), call("slow"), "never"]
    slow = Payment(bank=bank, name="slow", does=lambda _: asyncio.sleep(60, "never"), timeout=0.01)
    agent = saga(store, script, Payment(bank=bank), slow, grace=0.01)
    assert (await run(agent)).status == "halted"
    assert bank.undone == []
    await Runs(store).resolve(RUN, "call_t1_1", failed="the card was refused", by="ann")
    result = await run(agent)
    assert (result.status, result.cause) == ("rolled_back", "slow failed: the card was refused")
    assert bank.undid == ["pay {}"]


async def test_of_a_run_that_is_no_saga_the_model_reads_it() -> None:
    store, bank = MemoryStore(), Bank()
    slow = Payment(bank=bank, name="slow", does=lambda _: asyncio.sleep(60, "never"), timeout=0.01)
    agent = saga(store, [call("slow"), "I see."], slow, grace=0.01)
    await agent.run("go", run_id=RUN)
    with pytest.raises(ConfigError, match="a resolution is output="):
        await Runs(store).resolve(RUN, "call_t0_1", failed="no", output="yes")
    await Runs(store).resolve(RUN, "call_t0_1", failed="the card was refused")
    result = await agent.run("go", run_id=RUN)
    assert (result.text, bank.undone) == ("I see.", [])
    assert "Error: the card was refused" in str(result.items)


async def test_a_call_that_a_tool_made_and_of_which_somebody_told_is_undone() -> None:
    store, bank = MemoryStore(), Bank()

    @tool(effect="idempotent")
    async def trip() -> str:
        await invoke("pay", {"for": "flight"})
        await invoke("pay", {"for": "hotel"})
        return "booked"

    tools = (trip, Payment(bank=bank), failing(bank))
    await run(saga(store, [call("trip"), call("ship"), "never"], *tools))
    bank.undone.clear()
    cut = await cut_behind(store, "perdure:step start", "custom")
    agent = saga(cut, [call("trip"), call("ship"), "never"], *tools)
    assert (await run(agent)).status == "halted"
    (step,) = (await session_of(cut)).view().calls.open["call_t0_1"].open_steps
    await Runs(cut).resolve(RUN, "call_t0_1", step=step, value="it did")
    assert (await run(agent)).status == "rolled_back"
    assert [(one.arguments, one.text) for one in bank.undone] == [
        ('{"for":"hotel"}', "pay did it"),
        ('{"for":"flight"}', "it did"),
    ]


async def test_calls_made_at_once_and_of_which_somebody_told_are_undone_with_their_own() -> None:
    store, bank = MemoryStore(), Bank()

    @tool(effect="idempotent")
    async def trip() -> str:
        async with asyncio.TaskGroup() as group:
            for what in ("flight", "hotel"):
                group.create_task(invoke("pay", {"for": what}))
        return "booked"

    tools = (trip, Payment(bank=bank), failing(bank))
    await run(saga(store, [call("trip"), call("ship"), "never"], *tools))
    bank.undone.clear()
    cut = await cut_behind(store, "perdure:step start", "perdure:step start", "custom")
    agent = saga(cut, [call("trip"), call("ship"), "never"], *tools)
    assert (await run(agent)).status == "halted"
    for name in (await session_of(cut)).view().calls.open["call_t0_1"].open_steps:
        await Runs(cut).resolve(RUN, "call_t0_1", step=name, value="it did")
    found = report(await run(agent))
    assert [one.arguments for one in bank.undone] == ['{"for":"flight"}']
    assert {one.tool: one.reason for one in found.uncompensated if one.step} == {
        "pay": "nobody recorded its arguments"
    }


async def test_a_call_that_a_tool_made_and_of_which_nobody_knows_is_settled_by_hand() -> None:
    store, bank = MemoryStore(), Bank()

    @tool(effect="idempotent")
    async def trip() -> str:
        await invoke("pay")
        return "booked"

    tools = (trip, Payment(bank=bank), failing(bank))
    agent = saga(store, [call("trip"), call("ship"), "never"], *tools)
    await run(agent)
    bank.undone.clear()
    cut = await cut_behind(store, "perdure:step start")
    agent = saga(cut, [call("ship"), "never"], *tools)
    assert (await run(agent)).status == "halted"
    runs = Runs(cut)
    await runs.resolve(RUN, "call_t0_1", failed="it was cut")
    result = await run(agent)
    (unknown,) = report(result).unknown
    assert (result.status, unknown.tool, unknown.arguments) == ("halted", "pay", "{}")
    await runs.resolve(RUN, "call_t0_1", step=unknown.step, compensated=True)
    found = report(await run(agent))
    assert (names(found.compensated), bank.undone) == (["pay"], [])


async def test_a_result_that_comes_late_is_undone() -> None:
    store, bank = MemoryStore(), Bank()
    inside, may = threading.Event(), threading.Event()

    async def refund(result: str) -> None:
        bank.did.append(f"refunded {result}")

    @tool(effect="once", compensate=refund)
    def slow() -> str:
        inside.set()
        may.wait(30)
        return "paid at last"

    async def late(_: Call) -> str:
        await asyncio.to_thread(inside.wait, 30)
        raise ToolError("no")

    ship = Deed(bank=bank, name="ship", does=late)
    agent = saga(store, [turn(call("slow"), call("ship")), "never"], slow, ship, grace=0.01)
    assert (await run(agent)).status == "halted"
    may.set()

    async def is_told() -> bool:
        return bool(await store.unconsumed((await session_of(store)).id))

    await until(is_told)
    assert (await run(agent)).status == "rolled_back"
    assert bank.did[-1] == "refunded paid at last"


async def test_what_was_edited_is_undone_also_where_somebody_said_what_came_of_it() -> None:
    store, bank = MemoryStore(), Bank()
    slow = Payment(bank=bank, does=lambda _: asyncio.sleep(60, "never"), timeout=0.01)
    script: list[TurnLike] = [call("pay", {"cents": 5}), call("ship"), "never"]
    agent = saga(store, script, slow, failing(bank), middleware=(Holds("pay"),), grace=0.01)
    await run(agent)
    await Runs(store).approve(RUN, "call_t0_1", arguments='{"cents": 500}')
    assert (await run(agent)).status == "halted"
    await Runs(store).resolve(RUN, "call_t0_1", output="it did")
    assert (await run(agent)).status == "rolled_back"
    assert bank.undid == ['pay {"cents": 500}']


async def test_a_saga_that_is_cancelled_while_it_is_driven_is_rolled_back_by_its_driver() -> None:
    store, bank = MemoryStore(), Bank()
    inside = asyncio.Event()

    async def wait(call: Call) -> str:
        inside.set()
        await call.cancelled
        return "done all the same"

    tools = (Payment(bank=bank), Payment(bank=bank, name="slow", does=wait))
    agent = saga(store, [call("pay"), call("slow"), "never"], *tools)
    driving = Driving(poll=0.01)
    task = asyncio.create_task(
        run_by_id(agent, store, RUN, [user("go")], saga=True, driving=driving)
    )
    await inside.wait()
    await Runs(store).cancel(RUN, reason="enough")
    ran = await task
    assert (ran.state.status, bank.undid) == ("cancelled", ["slow {}", "pay {}"])


# --- what a compensator may do -------------------------------------------------------------------


async def undone_by(
    compensator: Compensator, seconds: float | None = None
) -> tuple[Agent, MemoryStore]:
    store, bank = MemoryStore(), Bank()
    pay = wrap(Payment(bank=bank), compensator=compensator, timeout=seconds)
    return saga(store, [call("pay"), call("ship"), "never"], pay, failing(bank)), store


async def test_it_knows_its_call_and_may_take_steps_in_place() -> None:
    seen: list[object] = []

    async def undo(compensation: Compensation) -> None:
        here = current_call()
        seen.append((here.id, here.idempotency_key == compensation.idempotency_key))
        seen.append(await step("refund", lambda: "refunded"))

    agent, store = await undone_by(undo)
    assert (await run(agent)).status == "rolled_back"
    assert seen == [("call_t0_1", True), "refunded"]
    assert "perdure:step start" not in shapes(await entries_of(store))


async def test_it_cannot_wait_for_somebody() -> None:
    async def undo(compensation: Compensation) -> None:
        await wait_for("paid back")

    agent, _ = await undone_by(undo)
    with pytest.raises(RunFailed, match="nobody could answer a signal here"):
        await agent.run("go", run_id=RUN, saga=True)


async def test_it_has_the_time_of_its_tool() -> None:
    async def undo(compensation: Compensation) -> None:
        await asyncio.sleep(60)

    agent, _ = await undone_by(undo, seconds=0.01)
    with pytest.raises(RunFailed, match="'pay' could not be undone: tool 'pay' timed out"):
        await agent.run("go", run_id=RUN, saga=True)


async def test_a_caller_that_is_cancelled_stops_the_rollback_and_it_goes_on_later() -> None:
    inside, may = asyncio.Event(), asyncio.Event()
    tries: list[int] = []

    async def undo(compensation: Compensation) -> None:
        tries.append(compensation.attempt)
        inside.set()
        await may.wait()

    agent, store = await undone_by(undo)
    agent = agent.with_(wind_down=0.01)
    task = asyncio.create_task(agent.run("go", run_id=RUN, saga=True))
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    may.set()
    result = await run(agent)
    assert (result.status, len((await session_of(store)).entries) > 0) == ("rolled_back", True)
    assert tries[0] == 1


# --- compensators that fail ----------------------------------------------------------------------


async def test_a_compensator_that_fails_stops_the_rollback_and_is_tried_again_in_its_place() -> (
    None
):
    store, bank = MemoryStore(), Bank()
    script: list[TurnLike] = [call("pay"), call("book"), call("ship"), "never"]
    tools = (Payment(bank=bank), Payment(bank=bank, name="book", fails=1), failing(bank))
    agent = saga(store, script, *tools)
    with pytest.raises(RunFailed, match="'book' could not be undone: the bank does not answer"):
        await agent.run("go", run_id=RUN, saga=True)
    state = await Runs(store).get(RUN)
    assert (state.status, state.cause) == ("failed", "ship failed: ship broke")
    assert state.report is not None
    assert reasons(state.report.uncompensated) == {
        "book": "the bank does not answer",
        "pay": "not undone yet",
    }
    assert (await run(agent)).status == "rolled_back"
    assert bank.undid == ["book {}", "book {}", "pay {}"]
    assert [one.attempt for one in bank.undone] == [1, 2, 1]
    assert bank.undone[0].idempotency_key == bank.undone[1].idempotency_key


async def test_recovery_tries_it_again() -> None:
    store, bank = MemoryStore(), Bank()
    pay = Payment(bank=bank, fails=1)
    agent = saga(store, [call("pay"), call("ship"), "never"], pay, failing(bank))
    with pytest.raises(RunFailed):
        await agent.run("go", run_id=RUN, saga=True)
    (recovered,) = await recover(agent, store=store)
    assert (recovered.status, recovered.error) == ("rolled_back", None)


async def stuck() -> tuple[MemoryStore, Bank, Agent]:
    """A saga of which a compensator fails again and again."""
    store, bank = MemoryStore(), Bank()
    pay = Payment(bank=bank, fails=99)
    agent = saga(store, [call("pay"), call("ship"), "never"], pay, failing(bank))
    with pytest.raises(RunFailed):
        await agent.run("go", run_id=RUN, saga=True)
    return store, bank, agent


async def test_somebody_undoes_by_hand_what_a_compensator_cannot() -> None:
    store, bank, agent = await stuck()
    runs = Runs(store)
    await runs.resolve(RUN, "call_t0_1", compensated=True, by="ann", evidence={"slip": 7})
    found = report(await run(agent))
    assert (names(found.compensated), len(bank.undone)) == (["pay"], 1)
    (settled,) = [one for one in await entries_of(store) if one.members.get("phase") == "settled"]
    assert (settled.members["perdure:who"], settled.members["perdure:evidence"]) == (
        "ann",
        {"slip": 7},
    )


async def test_somebody_leaves_what_cannot_be_undone() -> None:
    store, bank, agent = await stuck()
    await Runs(store).resolve(RUN, "call_t0_1", left=True, by="ann", reason="the card is gone")
    found = report(await run(agent))
    assert reasons(found.uncompensated) == {"pay": "left as it is: the card is gone"}
    assert len(bank.undone) == 1


async def test_a_call_of_which_nobody_will_ever_know_is_left_as_unknown() -> None:
    store, bank = await cut_in_flight("once")
    agent = saga(store, [], Payment(bank=bank, name="slow"), failing(bank), Payment(bank=bank))
    await run(agent)
    await Runs(store).resolve(RUN, "call_t1_1", left=True, reason="the shop has closed")
    found = report(await run(agent))
    assert reasons(found.unknown) == {"slow": "left as it is: the shop has closed"}
    assert names(found.compensated) == ["pay"]


async def test_nobody_settles_what_a_rollback_does_not_stop_at() -> None:
    store, _, agent = await stuck()
    runs = Runs(store)
    with pytest.raises(NotHalted, match="no rollback stops at it"):
        await runs.resolve(RUN, "call_t1_1", compensated=True)
    with pytest.raises(NotHalted, match="there is no such call"):
        await runs.resolve(RUN, "nothing", compensated=True)
    with pytest.raises(ConfigError, match="says one thing"):
        await runs.resolve(RUN, "call_t0_1", compensated=True, left=True)
    await runs.resolve(RUN, "call_t0_1", compensated=True)
    await run(agent)
    with pytest.raises(RunFinished):
        await runs.resolve(RUN, "call_t0_1", compensated=True)


async def test_a_compensator_runs_again_where_a_crash_came_before_its_end() -> None:
    store, bank = MemoryStore(), Bank()
    tools = (Payment(bank=bank), failing(bank))
    await run(saga(store, [call("pay"), call("ship"), "never"], *tools))
    cut = await cut_behind(store, "perdure:compensation start")
    await run(saga(cut, [], *tools))
    assert bank.undid == ["pay {}", "pay {}"]
    assert len({one.idempotency_key for one in bank.undone}) == 1
    behind = await cut_behind(store, "perdure:compensation end")
    await run(saga(behind, [], *tools))
    assert len(bank.undone) == 2
