"""What is told to a run and waited for below it; steps and waits where there can be none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

import perdure.durable
from perdure import (
    Agent,
    Program,
    RunResult,
    Runs,
    interrupt,
    invoke,
    parallel,
    race,
    receive,
    run_agent,
    sleep,
    sleep_until,
    step,
    tool,
    wait_for,
)
from perdure.errors import AlreadyResolved, ConfigError, WaitsBelow
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call
from perdure.wire import FunctionCallOutput

RUN = "run-1"


@tool(effect="idempotent")
async def signalled() -> str:
    """Wait for a signal."""
    return str(await wait_for("paid"))


@tool(effect="idempotent")
async def sent() -> str:
    """Wait for a message."""
    message = await receive("orders")
    await message.ack()
    return str(message.value)


def clerk(store: MemoryStore, *, root_waits: bool = False) -> Agent:
    """An agent whose sub-agent waits, for a signal and for a message; it itself may, too."""
    below = Agent(
        ScriptedModel([call("signalled"), call("sent"), "below"]),
        name="below",
        description="Waits.",
        tools=[signalled, sent],
    )
    turn = [call("signalled"), "above"] if root_waits else ["above"]
    model = ScriptedModel([call("below", {"task": "Wait."}), *turn])
    return Agent(model, tools=[below.as_tool(), signalled], store=store)


async def tell(runs: Runs, kind: str, session: str = "", value: int = 1) -> None:
    if kind == "signal":
        await runs.signal(RUN, "paid", value, session=session)
    else:
        await runs.send(RUN, "orders", value, key="k", session=session)


async def resting(store: MemoryStore, kind: str) -> RunResult[str]:
    """A run whose sub-agent waits for what is told in this way."""
    result = await clerk(store).run("Go.", run_id=RUN)
    if kind == "message":
        await Runs(store).signal(RUN, "paid", 1, session=result.pending[1].session)
        result = await clerk(store).run("Go.", run_id=RUN)
    return result


@pytest.mark.parametrize("kind", ["signal", "message"])
async def test_what_only_a_sub_agent_waits_for_is_refused_without_its_session(kind: str) -> None:
    store = MemoryStore()
    _, below = (await resting(store, kind)).pending
    runs = Runs(store)
    with pytest.raises(WaitsBelow, match="a sub-agent of it does: give its session") as refused:
        await tell(runs, kind)
    assert refused.value.sessions == (below.session,)
    assert below.session in str(refused.value)
    root = (await runs.get(RUN)).session
    assert refused.value.root == root
    assert not await store.unconsumed(root)
    await tell(runs, kind, below.session)
    await clerk(store).run("Go.", run_id=RUN)
    after = [one.call.name for one in (await runs.get(RUN)).pending if one.session == below.session]
    assert after == (["sent"] if kind == "signal" else [])


@pytest.mark.parametrize("kind", ["signal", "message"])
async def test_naming_the_session_of_the_run_tells_the_run_itself(kind: str) -> None:
    store = MemoryStore()
    await resting(store, kind)
    runs = Runs(store)
    root = (await runs.get(RUN)).session
    await tell(runs, kind, root)
    assert len(await store.unconsumed(root)) == 1


@pytest.mark.parametrize("kind", ["signal", "message"])
async def test_what_the_run_was_told_is_told_once_more_without_its_session(kind: str) -> None:
    store = MemoryStore()
    await resting(store, kind)
    runs = Runs(store)
    root = (await runs.get(RUN)).session
    await tell(runs, kind, root)
    await tell(runs, kind)
    assert len(await store.unconsumed(root)) == 1
    with pytest.raises(AlreadyResolved):
        await tell(runs, kind, value=2)
    await clerk(store).run("Go.", run_id=RUN)
    await tell(runs, kind)


async def test_what_came_before_a_sub_agent_waits_is_the_runs_own() -> None:
    store = MemoryStore()
    runs = Runs(store)
    agent = clerk(store, root_waits=True)
    await agent.run("Go.", run_id=RUN)
    root, below = (await runs.get(RUN)).pending
    await runs.signal(RUN, "paid", "above", session=root.session)
    await runs.signal(RUN, "paid", "below", session=below.session)
    await agent.run("Go.", run_id=RUN)
    await runs.signal(RUN, "paid", "above")  # once more is no error, wherever somebody waits
    await runs.send(RUN, "orders", 1, key="k", session=below.session)
    result = await agent.run("Go.", run_id=RUN)
    assert (result.status, result.text) == ("done", "above")
    assert [one.output for one in result.items if isinstance(one, FunctionCallOutput)] == [
        "below",
        "above",
    ]


async def test_a_signal_that_only_an_agent_of_a_program_waits_for_names_its_session() -> None:
    store = MemoryStore()

    async def deal() -> str:
        below = Agent(ScriptedModel([call("signalled"), "ok"]), name="below", tools=[signalled])
        return await run_agent("part", below, "Wait.")

    program = Program(deal, store=store)
    _, below = (await program.run(run_id=RUN)).pending
    runs = Runs(store)
    with pytest.raises(WaitsBelow):
        await runs.signal(RUN, "paid", 1)
    await runs.signal(RUN, "unpaid", 1)  # nobody waits for it yet, so it is kept
    await runs.signal(RUN, "paid", 1, session=below.session)
    assert (await program.run(run_id=RUN)).output == "ok"


# --- where there are no steps and no waits -------------------------------------------------------

ASKED: dict[str, Callable[[], Awaitable[object]]] = {
    "step 'a'": lambda: step("a", lambda: 1),
    "step 'b'": lambda: parallel([("b", lambda: 1)]),
    "the sleep 'c'": lambda: sleep("c", 1),
    "the sleep 'd'": lambda: sleep_until("d", 1),
    "the signal 'e'": lambda: wait_for("e"),
    "the question 'f'": lambda: interrupt("f", "?", int),
    "the channel 'g'": lambda: receive("g"),
    "the race 'h'": lambda: race("h", {"e": wait_for("e")}),
}


async def refusal(asked: Callable[[], Awaitable[object]]) -> str:
    """Why something is refused; `parallel` refuses each of its steps."""
    said = ""
    try:
        await asked()
    except* ConfigError as group:
        said = str(group.exceptions[0])
    return said


@pytest.mark.parametrize("what", ASKED)
async def test_a_tool_that_was_invoked_is_told_where_to_take_its_steps_and_waits(what: str) -> None:
    asked = ASKED[what]

    @tool(effect="idempotent")
    async def inner() -> str:
        """Does what it cannot."""
        return await refusal(asked)

    @tool(effect="idempotent")
    async def outer() -> object:
        """Invokes it."""
        return (await invoke("inner", {})).output

    agent = Agent(ScriptedModel([call("outer"), "ok"]), tools=[inner, outer], store=MemoryStore())
    said = str((await agent.run("Go.", run_id=RUN)).items[2])
    assert f"{what} is asked for in tool 'inner', which another tool invoked" in said
    assert "Take them in the tool that the model calls" in said


@pytest.mark.parametrize("what", ASKED)
async def test_what_is_asked_for_inside_a_step_belongs_before_it_or_behind_it(what: str) -> None:
    async def body() -> str:
        return await refusal(lambda: step("outer", ASKED[what], effect="none"))

    result = await Program(body, store=MemoryStore()).run(run_id=RUN)
    assert f"{what} is asked for inside step 'outer'" in str(result.output)


async def test_a_name_that_cannot_be_used_is_said_with_what_it_should_name() -> None:
    async def body() -> list[str]:
        said: list[str] = []
        for asked in (step("", lambda: 1), interrupt("a\nb", "?", int), wait_for("x" * 201)):
            with pytest.raises(ConfigError) as refused:
                await asked
            said.append(str(refused.value)[:60])
        return said

    assert (await Program(body, store=MemoryStore()).run(run_id=RUN)).output == [
        "the name of a step has 1 to 200 printable characters, not ''",
        "the name of a question has 1 to 200 printable characters, no",
        "the name of a signal has 1 to 200 printable characters, not ",
    ]


@pytest.mark.parametrize("wall", [1.5, True, "tomorrow", -1, 8_000_000_000 * 10**9])
async def test_a_time_that_no_clock_shows_is_refused(wall: int) -> None:
    async def body() -> str:
        with pytest.raises(ConfigError, match="a time is "):
            await sleep_until("night", wall)
        return "refused"

    assert (await Program(body, store=MemoryStore()).run(run_id=RUN)).output == "refused"


# --- stores that a program does not outlive ------------------------------------------------------


async def test_a_run_in_a_memory_that_nobody_keeps_is_refused() -> None:
    taken: list[int] = []

    async def work() -> object:
        await step("a", lambda: taken.append(1))
        return await wait_for("go")

    with pytest.raises(ConfigError, match="'memory:jobs'"):
        await perdure.durable.run(work, run_id=RUN, store="memory:")
    assert not taken
    for _ in range(2):
        await perdure.durable.run(work, run_id=RUN, store="memory:told-below")
    await Runs("memory:told-below").signal(RUN, "go", 7)
    result = await perdure.durable.run(work, run_id=RUN, store="memory:told-below")
    assert (result.output, taken) == (7, [1])
