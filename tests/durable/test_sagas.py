"""Sagas: what trips them, what is undone, in which order, and what the report says (LOG 5.9, 9)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from perdure import (
    Approval,
    Middleware,
    RunFailed,
    Runs,
    SagaRolledBack,
    ToolError,
    ToolOverride,
    events_of,
    recover,
    step,
    tool,
)
from perdure.errors import ConfigError, FenceLost, LogError, RunMismatch
from perdure.log import AnyEntry, Appended, Fence, Store, Summary
from perdure.loop import ToolResultInfo, invoke
from perdure.stores.memory import MemoryStore
from perdure.testing import call, turn
from perdure.testing.event_check import check_events
from perdure.testing.scripted import TurnLike
from perdure.tools import Call, ToolResult, wrap
from tests.durable.bank import Bank, Deed, Payment, failing, names, reasons, report, run, saga
from tests.durable.told import until
from tests.durable.world import RUN, Holds, asked, cut_behind, entries_of, session_of, shapes

# --- the whole -----------------------------------------------------------------------------------


async def test_a_failure_undoes_what_ran_the_last_first() -> None:
    store, bank = MemoryStore(), Bank()
    agent = saga(
        store,
        [
            turn(call("pay", {"n": 1}), call("book", {"n": 2})),
            call("pay", {"n": 3}),
            call("ship", {"n": 4}),
            "never",
        ],
        Payment(bank=bank),
        Payment(bank=bank, name="book"),
        failing(bank),
    )
    with pytest.raises(SagaRolledBack, match="the saga was rolled back: ship failed: ship broke"):
        await agent.run("go", run_id=RUN, saga=True)
    assert bank.undid == ['pay {"n":3}', 'book {"n":2}', 'pay {"n":1}']
    assert [one.text for one in bank.undone] == ["pay did it", "book did it", "pay did it"]
    assert {(one.run_id, one.cause, one.attempt) for one in bank.undone} == {
        (RUN, "ship failed: ship broke", 1)
    }
    assert len({one.idempotency_key for one in bank.undone}) == 3
    assert asked(agent) == 3


async def test_a_rolled_back_saga_stays_so() -> None:
    store, bank = MemoryStore(), Bank()
    agent = saga(store, [call("pay"), call("ship"), "never"], Payment(bank=bank), failing(bank))
    first = await run(agent)
    version = (await session_of(store)).version
    again = await run(agent)
    assert (again.status, again.report, again.cause) == ("rolled_back", first.report, first.cause)
    assert await recover(agent, store=store) == []
    assert ((await session_of(store)).version, asked(agent)) == (version, 2)
    state = await Runs(store).get(RUN)
    assert (state.status, state.report, state.saga) == ("rolled_back", first.report, True)


async def test_a_saga_that_succeeds_undoes_nothing() -> None:
    store, bank = MemoryStore(), Bank()
    result = await run(saga(store, [call("pay"), "Paid."], Payment(bank=bank)))
    assert (result.status, result.text, result.report, bank.undone) == ("done", "Paid.", None, [])


async def test_what_a_rollback_writes() -> None:
    store, bank = MemoryStore(), Bank()
    await run(saga(store, [call("pay"), call("ship"), "never"], Payment(bank=bank), failing(bank)))
    told = shapes(await entries_of(store))
    assert told[told.index("perdure:saga tripped") :] == [
        "perdure:saga tripped",
        "item",
        "perdure:end",
        "run end",
        "perdure:compensation start",
        "perdure:compensation end",
        "perdure:saga undone",
        "perdure:closed rolled_back",
    ]


async def test_a_saga_needs_an_id_and_an_id_is_bound_to_it() -> None:
    agent = saga(MemoryStore(), ["Done."])
    with pytest.raises(ConfigError, match="give it a run_id"):
        await agent.run("go", saga=True)
    with pytest.raises(ConfigError, match="give it a run_id"):
        agent.stream("go", saga=True)
    await agent.run("go", run_id=RUN, saga=True)
    with pytest.raises(RunMismatch, match="is a saga"):
        await agent.run("go", run_id=RUN)
    await agent.run("go", run_id="plain")
    with pytest.raises(RunMismatch, match="not as a saga"):
        await agent.run("go", run_id="plain", saga=True)


async def test_a_run_that_is_no_saga_tells_the_model_of_a_failure() -> None:
    store, bank = MemoryStore(), Bank()
    agent = saga(store, [call("pay"), call("ship"), "Well."], Payment(bank=bank), failing(bank))
    assert (await agent.run("go", run_id=RUN)).text == "Well."
    assert bank.undone == []


async def test_its_events_are_whole_live_and_from_the_record() -> None:
    store, bank = MemoryStore(), Bank()
    slow = Deed(bank=bank, name="slow", effect="none", does=lambda _: asyncio.sleep(60, "no"))
    script: list[TurnLike] = [call("pay"), turn(call("slow"), call("ship")), "never"]
    agent = saga(store, script, Payment(bank=bank), failing(bank), slow)
    for _ in range(2):
        async with agent.stream("go", run_id=RUN, saga=True) as stream:
            check_events([event async for event in stream.events()])
            with pytest.raises(SagaRolledBack):
                await stream.result()
    check_events(events_of(await Runs(store).record(RUN)))


# --- what trips a saga ---------------------------------------------------------------------------


async def test_what_a_person_rejected_is_no_failure() -> None:
    store, bank = MemoryStore(), Bank()
    script: list[TurnLike] = [call("pay"), call("risky"), "Then not."]
    tools = (Payment(bank=bank), Deed(bank=bank, name="risky"))
    agent = saga(store, script, *tools, middleware=(Holds("risky"),))
    assert (await run(agent)).status == "input_required"
    await Runs(store).deny(RUN, "call_t1_1", by="ann", reason="too risky")
    result = await run(agent)
    assert (result.status, result.text, bank.undone) == ("done", "Then not.", [])


async def test_nor_is_what_approvers_deny() -> None:
    store, bank = MemoryStore(), Bank()
    risky = wrap(Deed(bank=bank, name="risky"), approval=Approval(of=["ann"]))
    agent = saga(store, [call("pay"), call("risky"), "Then not."], Payment(bank=bank), risky)
    assert (await run(agent)).status == "input_required"
    await Runs(store).deny(RUN, "call_t1_1", by="ann", reason="too risky")
    result = await run(agent)
    assert (result.status, result.text, bank.undone) == ("done", "Then not.", [])


async def test_a_call_that_entered_no_tool_is_no_failure() -> None:
    store, bank = MemoryStore(), Bank()

    @tool
    async def count(n: int) -> int:
        return n

    script: list[TurnLike] = [
        call("pay"),
        turn(call("count", {"n": "x"}), call("nobody")),
        "Corrected.",
    ]
    result = await run(saga(store, script, Payment(bank=bank), count))
    assert (result.text, bank.undone) == ("Corrected.", [])


async def test_an_abort_and_a_failed_model_call_leave_it_to_go_on() -> None:
    store, bank = MemoryStore(), Bank()
    started = asyncio.Event()

    async def wait(call: Call) -> str:
        started.set()
        await call.cancelled
        raise ToolError("stopped")

    waits = Deed(bank=bank, name="wait", effect="idempotent", does=wait)
    agent = saga(store, [call("pay"), call("wait"), "Going on."], Payment(bank=bank), waits)
    task = asyncio.create_task(agent.run("go", run_id=RUN, saga=True))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bank.undone == []
    result = await run(agent)
    assert (result.status, result.text, bank.undone) == ("done", "Going on.", [])


async def test_a_failure_that_a_hook_made_is_one_and_what_the_tool_did_is_undone() -> None:
    class Strict(Middleware):
        async def after_tool_call(self, result: ToolResultInfo) -> ToolOverride | None:
            if result.call.name != "book":
                return None
            return ToolOverride(result=ToolResult("Error: no"), error=ToolError("not good enough"))

    store, bank = MemoryStore(), Bank()
    tools = (Payment(bank=bank), Payment(bank=bank, name="book"))
    agent = saga(store, [call("pay"), call("book"), "never"], *tools, middleware=(Strict(),))
    result = await run(agent)
    assert result.cause == "book failed: not good enough"
    assert [(one.tool, one.text) for one in bank.undone] == [
        ("book", "book did it"),
        ("pay", "pay did it"),
    ]


class DiskFull(LogError):
    """The store cannot write, for certain."""


class FailsToSay(MemoryStore):
    """Refuses the appends that say that a saga tripped."""

    broken = True

    async def append(
        self,
        session: str,
        version: int,
        fence: Fence,
        batch: Sequence[AnyEntry],
        *,
        consumed: Sequence[str] = (),
        summary: Summary | None = None,
    ) -> Appended:
        if self.broken and any(one.type == "perdure:saga" for one in batch):
            raise self.error()
        return await super().append(
            session, version, fence, batch, consumed=consumed, summary=summary
        )

    def error(self) -> Exception:
        return DiskFull("the disk is full")


class LosesItsLease(FailsToSay):
    def error(self) -> Exception:
        return FenceLost("a session")


async def test_a_failure_that_could_not_be_written_undoes_nothing() -> None:
    store, bank = FailsToSay(), Bank()
    agent = saga(store, [call("pay"), call("ship"), "never"], Payment(bank=bank), failing(bank))
    with pytest.raises(DiskFull):
        await agent.run("go", run_id=RUN, saga=True)
    assert bank.undone == []
    store.broken = False
    assert (await run(agent)).status == "rolled_back"
    assert (bank.did.count("ship {}"), bank.undid) == (1, ["pay {}"])


async def test_a_failure_that_a_displaced_driver_knows_trips_it_later() -> None:
    store, bank = LosesItsLease(), Bank()
    agent = saga(store, [call("pay"), call("ship"), "never"], Payment(bank=bank), failing(bank))
    task = asyncio.create_task(run(agent))

    async def is_told() -> bool:
        return bool(bank.did) and bool(await store.unconsumed((await session_of(store)).id))

    await until(is_told)
    store.broken = False
    assert (await task).status == "rolled_back"
    assert (bank.did.count("ship {}"), bank.undid) == (1, ["pay {}"])


# --- what is undone, and what is not -------------------------------------------------------------


async def test_what_has_no_compensator_is_listed() -> None:
    store, bank = MemoryStore(), Bank()
    script: list[TurnLike] = [
        turn(call("mail"), call("look"), call("note"), call("pay")),
        call("ship"),
        "never",
    ]
    tools = (
        Deed(bank=bank, name="mail"),
        Deed(bank=bank, name="look", effect="none"),
        Deed(bank=bank, name="note", effect="idempotent"),
        Payment(bank=bank, effect="keyed"),
    )
    found = report(await run(saga(store, script, *tools, failing(bank))))
    assert names(found.compensated) == ["pay"]
    assert reasons(found.uncompensated) == {
        "note": "its tool has no compensator",
        "mail": "its tool has no compensator",
    }
    assert found.unknown == ()


async def tripped(store: Store, bank: Bank) -> MemoryStore:
    """What is left of a saga that died when its failure was on record."""
    agent = saga(store, [call("pay"), call("ship"), "never"], Payment(bank=bank), failing(bank))
    await run(agent)
    bank.undone.clear()
    return await cut_behind(store, "perdure:saga tripped")


async def test_the_effect_that_was_recorded_counts_and_not_what_the_tool_says_today() -> None:
    bank = Bank()
    store = await tripped(MemoryStore(), bank)
    relabelled = Payment(bank=bank, effect="none")
    await run(saga(store, [], relabelled, failing(bank)))
    assert bank.undid == ["pay {}"]


async def test_a_tool_that_is_gone_leaves_what_it_did() -> None:
    bank = Bank()
    store = await tripped(MemoryStore(), bank)
    found = report(await run(saga(store, [], failing(bank))))
    assert reasons(found.uncompensated) == {"pay": "its tool is gone"}


async def test_edited_arguments_are_those_that_are_undone() -> None:
    store, bank = MemoryStore(), Bank()
    script: list[TurnLike] = [call("pay", {"cents": 5}), call("ship"), "never"]
    agent = saga(store, script, Payment(bank=bank), failing(bank), middleware=(Holds("pay"),))
    await run(agent)
    await Runs(store).approve(RUN, "call_t0_1", arguments='{"cents": 500}')
    await run(agent)
    assert bank.did[0] == 'pay {"cents": 500}'
    assert bank.undid == ['pay {"cents": 500}']


async def test_a_typed_compensator_gets_the_arguments_of_its_tool_and_the_result() -> None:
    refunds: list[tuple[str, int, dict[str, str]]] = []

    async def refund(card: str, cents: int, result: dict[str, str]) -> None:
        refunds.append((card, cents, result))

    @tool(effect="once", compensate=refund)
    async def charge(card: str, cents: int = 100) -> dict[str, str]:
        return {"charge": f"ch_{card}"}

    store, bank = MemoryStore(), Bank()
    script: list[TurnLike] = [call("charge", {"card": "visa"}), call("ship"), "never"]
    await run(saga(store, script, charge, failing(bank)))
    assert refunds == [("visa", 100, {"charge": "ch_visa"})]


# --- calls that tools make -----------------------------------------------------------------------


async def test_the_calls_that_a_tool_makes_are_undone_too() -> None:
    store, bank = MemoryStore(), Bank()

    async def undo_trip() -> None:
        bank.undone.clear()

    @tool(effect="idempotent")
    async def trip() -> str:
        await invoke("pay", {"for": "hotel"})
        await invoke("pay", {"for": "flight"})
        await invoke("look")
        return "booked"

    tools = (Payment(bank=bank), Deed(bank=bank, name="look", effect="none"), failing(bank))
    result = await run(saga(store, [call("trip"), call("ship"), "never"], trip, *tools))
    assert bank.undid == ['pay {"for":"flight"}', 'pay {"for":"hotel"}']
    found = report(result)
    assert [(one.tool, one.arguments) for one in found.compensated] == [
        ("pay", '{"for":"flight"}'),
        ("pay", '{"for":"hotel"}'),
    ]
    assert len({one.step for one in found.compensated}) == 2
    assert names(found.uncompensated) == ["trip"]


async def test_what_a_tool_did_before_it_failed_is_undone_or_listed() -> None:
    store, bank = MemoryStore(), Bank()

    @tool(effect="idempotent")
    async def trip() -> str:
        await invoke("pay")
        await step("reserve", lambda: "reserved", effect="once")
        raise ToolError("no seats")

    result = await run(saga(store, [call("trip"), "never"], trip, Payment(bank=bank)))
    assert bank.undid == ["pay {}"]
    assert reasons(report(result).uncompensated) == {"trip": "it failed after 'reserve'"}


async def test_a_tool_that_handles_the_failure_of_a_call_it_made_does_not_fail() -> None:
    store, bank = MemoryStore(), Bank()

    @tool(effect="idempotent")
    async def careful() -> str:
        try:
            await invoke("ship")
        except ToolError:
            return "by another way"
        return "never"

    result = await run(saga(store, [call("careful"), "Done."], careful, failing(bank)))
    assert (result.status, result.text) == ("done", "Done.")


# --- cancelling ----------------------------------------------------------------------------------


async def test_a_cancelled_saga_is_rolled_back_and_closed_as_cancelled() -> None:
    store, bank = MemoryStore(), Bank()
    script: list[TurnLike] = [call("pay"), call("risky"), "never"]
    tools = (Payment(bank=bank), Deed(bank=bank, name="risky"))
    agent = saga(store, script, *tools, middleware=(Holds("risky"),))
    await run(agent)
    await Runs(store).cancel(RUN, reason="changed my mind", by="ann")
    assert bank.undone == []
    (recovered,) = await recover(agent, store=store)
    assert (recovered.status, bank.undid) == ("cancelled", ["pay {}"])
    result = await run(agent)
    assert (result.status, result.cause) == ("cancelled", "changed my mind")
    assert names(report(result).compensated) == ["pay"]
    closed = (await entries_of(store))[-1]
    assert closed.members["who"] == "ann"


async def test_a_saga_that_is_being_rolled_back_is_not_cancelled() -> None:
    store, bank = MemoryStore(), Bank()
    pay = Payment(bank=bank, fails=1)
    agent = saga(store, [call("pay"), call("ship"), "never"], pay, failing(bank))
    with pytest.raises(RunFailed):
        await agent.run("go", run_id=RUN, saga=True)
    await Runs(store).cancel(RUN)
    assert (await run(agent)).status == "rolled_back"
    assert "perdure:refused" in shapes(await entries_of(store))
