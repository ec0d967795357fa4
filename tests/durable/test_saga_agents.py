"""Sagas across sub-agents: one fate for the whole tree (LOG 5.9)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from perdure import Agent, RunFailed, Runs, ToolError, recover, tool
from perdure.cli.runs_seen import look_at
from perdure.errors import LogError
from perdure.log import AnyEntry, Appended, Fence, Filters, Store, Summary, read_lines
from perdure.loop import invoke
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call, fail, turn
from perdure.testing.scripted import Turn, TurnLike
from perdure.tools import Tool
from tests.durable.bank import Bank, Deed, Payment, failing, names, report, run, saga
from tests.durable.world import RUN, Holds, shapes


def worker(name: str, script: Sequence[TurnLike], *tools: Tool, **members: object) -> Tool:
    agent: Agent = Agent(ScriptedModel(script), name=name, tools=list(tools))
    return (agent.with_(**members) if members else agent).as_tool()


def task(name: str) -> Turn:
    return call(name, {"task": "Go."})


def three_levels(bank: Bank, *last: Tool) -> list[Tool]:
    """A payment at each of three levels, below one of the root's own."""
    pays = [Payment(bank=bank, name=f"pay{level}") for level in range(3)]
    low = worker("low", [call("pay2"), *(call(one.name) for one in last), "ok"], pays[2], *last)
    middle = worker("middle", [call("pay1"), task("low"), "ok"], pays[1], low)
    return [pays[0], middle]


async def sessions(store: Store) -> dict[str, list[AnyEntry]]:
    """The entries of every session of the tree, verified, by agent."""
    found: dict[str, list[AnyEntry]] = {}
    for listed in (await store.list(Filters())).sessions:
        stored = await store.read(listed.id)
        reading = read_lines(stored.header, stored.lines)
        assert reading.faults == ()
        found[listed.header.agent] = reading.session.entries
    return found


async def test_what_sub_agents_did_is_undone_the_last_first() -> None:
    store, bank = MemoryStore(), Bank()
    script: list[TurnLike] = [call("pay0"), task("middle"), call("ship"), "never"]
    agent = saga(store, script, *three_levels(bank), failing(bank))
    found = report(await run(agent))
    assert names(found.compensated) == ["pay2", "pay1", "pay0"]
    assert [one.path for one in found.compensated] == [
        ("call_t1_1", "call_t1_1"),
        ("call_t1_1",),
        (),
    ]
    assert len({one.session for one in found.compensated}) == 3
    assert bank.undid == ["pay2 {}", "pay1 {}", "pay0 {}"]
    closed = {name: shapes(entries)[-1] for name, entries in (await sessions(store)).items()}
    assert closed == {
        "agent": "perdure:closed rolled_back",
        "middle": "perdure:closed done",
        "low": "perdure:closed done",
    }


async def test_a_failure_deep_down_rolls_back_the_whole() -> None:
    store, bank = MemoryStore(), Bank()
    script: list[TurnLike] = [call("pay0"), task("middle"), "never"]
    result = await run(saga(store, script, *three_levels(bank, failing(bank))))
    assert result.cause == (
        "middle failed: agent 'middle' gave no answer: low failed: agent 'low' gave no answer: "
        "ship failed: ship broke"
    )
    assert bank.undid == ["pay2 {}", "pay1 {}", "pay0 {}"]
    told = {name: shapes(entries) for name, entries in (await sessions(store)).items()}
    for entries in told.values():
        assert "perdure:saga tripped" in entries
        assert entries[-1] == "perdure:closed rolled_back"
    assert "perdure:compensation start" not in told["low"]


async def test_an_agent_whose_model_failed_is_walked_too() -> None:
    store, bank = MemoryStore(), Bank()
    helper = worker("helper", [call("pay"), fail("no model")], Payment(bank=bank))
    found = report(await run(saga(store, [task("helper"), "never"], helper)))
    assert (names(found.compensated), bank.undid) == (["pay"], ["pay {}"])


async def test_a_call_of_a_sub_agent_of_which_nobody_knows_is_resolved_in_its_session() -> None:
    store, bank = MemoryStore(), Bank()
    inside = asyncio.Event()

    async def hang(_: object) -> str:
        inside.set()
        await asyncio.sleep(60)
        return "never"

    async def late(_: object) -> str:
        await inside.wait()
        raise ToolError("too late")

    slow = Payment(bank=bank, name="slow", does=hang)
    helper = worker("helper", [task("deep"), "ok"], worker("deep", [call("slow"), "ok"], slow))
    ship = Deed(bank=bank, name="ship", does=late)
    script: list[TurnLike] = [turn(task("helper"), call("ship")), "never"]
    agent = saga(store, script, helper, ship, grace=0.01)
    result = await run(agent)
    (unknown,) = report(result).unknown
    assert (result.status, unknown.tool, len(unknown.path)) == ("halted", "slow", 2)
    runs = Runs(store)
    for (one,) in (result.pending, (await runs.get(RUN)).pending):
        assert (one.call.name, one.session, one.path) == ("slow", unknown.session, unknown.path)
        assert (one.call.call_id, one.may_have_run) == (unknown.call_id, True)
    (seen,) = (await look_at(store, RUN)).waiting
    assert (seen.call.call.name, seen.call.path) == ("slow", unknown.path)
    assert seen.why == "the rollback stops at it: it may have run, and must not be run again"
    await runs.resolve(RUN, unknown.call_id, session=unknown.session, output="it did")
    (recovered,) = await recover(agent, store=store)
    assert recovered.status == "rolled_back"
    assert [one.text for one in bank.undone] == ["it did"]


@pytest.mark.parametrize("verdict", ["compensated", "left"])
async def test_what_a_sub_agent_did_is_settled_at_the_run(verdict: str) -> None:
    store, bank = MemoryStore(), Bank()
    helper = worker("helper", [call("pay"), "ok"], Payment(bank=bank, fails=99))
    script: list[TurnLike] = [task("helper"), call("ship"), "never"]
    agent = saga(store, script, helper, failing(bank))
    with pytest.raises(RunFailed):
        await agent.run("go", run_id=RUN, saga=True)
    state = await Runs(store).get(RUN)
    assert state.report is not None
    (stuck,) = state.report.uncompensated
    left, by_hand = verdict == "left", verdict == "compensated"
    await Runs(store).resolve(
        RUN, stuck.call_id, session=stuck.session, left=left, compensated=by_hand
    )
    found = report(await run(agent))
    assert names(found.compensated if by_hand else found.uncompensated) == ["pay"]


class Breaks(MemoryStore):
    """Refuses what a sub-agent's session says of its first call, once."""

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
        header = (await self.read(session)).header
        if self.broken and header.spawned_by and any(one.type == "dispatch" for one in batch):
            self.broken = False
            raise LogError("the disk is full")
        return await super().append(
            session, version, fence, batch, consumed=consumed, summary=summary
        )


async def test_a_store_that_fails_below_a_call_is_no_failure_of_it() -> None:
    store, bank = Breaks(), Bank()
    helper = worker("helper", [call("pay"), "Paid."], Payment(bank=bank))
    agent = saga(store, [task("helper"), "All done."], helper)
    first = await run(agent)
    assert (first.status, bank.did) == ("suspended", [])
    result = await run(agent)
    assert (result.status, result.text) == ("done", "All done.")
    assert (bank.did, bank.undone) == (["pay {}"], [])


async def test_a_pause_in_a_sub_agent_is_closed_with_the_rollback() -> None:
    store, bank = MemoryStore(), Bank()
    helper = worker(
        "helper",
        [call("pay"), call("risky"), "ok"],
        Payment(bank=bank),
        Deed(bank=bank, name="risky"),
        middleware=(Holds("risky"),),
    )
    script: list[TurnLike] = [turn(task("helper"), call("guarded")), "never"]
    guarded = failing(bank, "guarded")
    agent = saga(store, script, helper, guarded, middleware=(Holds("guarded"),))
    await run(agent)
    await Runs(store).approve(RUN, "call_t0_3")
    result = await run(agent)
    assert (result.status, result.pending, bank.undid) == ("rolled_back", (), ["pay {}"])
    assert "risky {}" not in bank.did
    told = shapes((await sessions(store))["helper"])
    assert told[-1] == "perdure:closed rolled_back"
    assert "decision reject" in told


async def test_a_cancelled_saga_undoes_what_its_sub_agents_did() -> None:
    store, bank = MemoryStore(), Bank()
    script: list[TurnLike] = [task("middle"), call("risky"), "never"]
    tools = (*three_levels(bank), Deed(bank=bank, name="risky"))
    agent = saga(store, script, *tools, middleware=(Holds("risky"),))
    await run(agent)
    await Runs(store).cancel(RUN, reason="enough")
    result = await run(agent)
    assert (result.status, bank.undid) == ("cancelled", ["pay2 {}", "pay1 {}"])


async def test_an_agent_that_a_tool_calls_is_walked_as_well() -> None:
    store, bank = MemoryStore(), Bank()
    helper = worker("helper", [call("pay"), "Paid."], Payment(bank=bank))

    @tool(effect="idempotent")
    async def boss() -> str:
        return str((await invoke("helper", {"task": "Go."})).output)

    result = await run(saga(store, [call("boss"), call("ship"), "no"], boss, helper, failing(bank)))
    assert (names(report(result).compensated), bank.undid) == (["pay"], ["pay {}"])


async def test_an_agent_that_is_gone_leaves_what_it_did() -> None:
    store, bank = MemoryStore(), Bank()
    helper = worker("helper", [call("pay"), "Paid."], Payment(bank=bank, fails=1))
    script: list[TurnLike] = [task("helper"), call("ship"), "never"]
    agent = saga(store, script, helper, failing(bank))
    with pytest.raises(RunFailed):
        await agent.run("go", run_id=RUN, saga=True)
    found = report(await run(saga(store, [], failing(bank))))
    assert [(one.tool, one.reason) for one in found.uncompensated] == [("pay", "its tool is gone")]
