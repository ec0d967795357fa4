"""Programs without a model: an async function whose run finishes once (LOG 5.5, DESIGN 8)."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

import perdure.durable
from perdure import (
    Agent,
    Program,
    RunResult,
    Runs,
    current_call,
    events_of,
    interrupt,
    invoke,
    receive,
    recover,
    recovering,
    run_agent,
    sleep,
    step,
    step_key,
    tool,
    wait_for,
)
from perdure.errors import (
    AlreadyResolved,
    ConfigError,
    OutcomeUnknown,
    RunBusy,
    RunFailed,
    RunFinished,
    RunMismatch,
    StepFailed,
    SuspendSwallowed,
    ToolError,
    WrongAnswer,
)
from perdure.log import Appended, Fence, Message, Put, Summary
from perdure.log.entries import AnyEntry, StepEntry, WaitEntry
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock, ScriptedModel, call
from perdure.tools import Effect
from tests.durable.world import RUN, Holds, cut_after, cut_behind, entries_of, session_of, shapes

Body = Callable[[], Awaitable[object]]


class Desk:
    """A program that does what a test says, and what it did."""

    def __init__(self, body: Body) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore()
        self.did: list[str] = []
        self.body = body

    @property
    def runs(self) -> Runs:
        return Runs(self.store, clock=self.clock)

    @property
    def program(self) -> Program[object]:
        async def work() -> object:
            self.did.append("enter")
            return await self.body()

        return Program(work, store=self.store, clock=self.clock, lease=0.2)

    async def run(self) -> RunResult[object]:
        return await self.program.run(run_id=RUN)

    async def does(self, what: str) -> str:
        self.did.append(what)
        return f"{what} done"

    async def step(self, name: str, effect: Effect = "once") -> object:
        return await step(name, lambda: self.does(name), effect=effect)

    @property
    def effects(self) -> list[str]:
        return [one for one in self.did if one != "enter"]


def desk_of(make: Callable[[Desk], Body]) -> Desk:
    desk = Desk(lambda: asyncio.sleep(0))
    desk.body = make(desk)
    return desk


# --- the whole way -------------------------------------------------------------------------------


async def test_a_program_waits_and_goes_on_and_takes_its_steps_once() -> None:
    def make(desk: Desk) -> Body:
        async def body() -> object:
            first = await desk.step("invoice")
            paid = await wait_for("paid")
            await sleep("cool off", 60)
            note = await receive("notes")
            await note.ack()
            sure = await interrupt("sure", "Ship it?", bool)
            return [first, paid, note.value, sure, await desk.step("ship")]

        return body

    desk = desk_of(make)
    assert (await desk.run()).status == "suspended"
    await desk.runs.signal(RUN, "paid", {"cents": 5})
    assert (await desk.run()).status == "suspended"
    await desk.clock.advance(61)
    assert (await desk.run()).status == "suspended"
    await desk.runs.send(RUN, "notes", "mind the step", key="note-1")
    asks = await desk.run()
    assert asks.status == "input_required"
    assert [one.call.call_id for one in asks.pending] == [""]
    assert (asks.pending[0].wait or {})["prompt"] == "Ship it?"
    assert not asks.has_output
    with pytest.raises(WrongAnswer):
        await desk.runs.answer(RUN, "", "sure", "perhaps")
    await desk.runs.answer(RUN, "", "sure", True)
    result = await desk.run()
    assert result.status == "done"
    assert result.output == ["invoice done", {"cents": 5}, "mind the step", True, "ship done"]
    assert desk.effects == ["invoice", "ship"]
    entries = [e for e in await entries_of(desk.store) if isinstance(e, StepEntry | WaitEntry)]
    assert len(entries) == 12
    assert all("call_id" not in one.members and "target" not in one.members for one in entries)


async def test_what_a_program_returned_is_given_again_and_it_is_not_entered() -> None:
    def make(desk: Desk) -> Body:
        async def body() -> object:
            return {"receipt": await desk.step("charge")}

        return body

    desk = desk_of(make)
    first = await desk.run()
    entries = await entries_of(desk.store)
    second = await desk.run()
    assert first.output == second.output == {"receipt": "charge done"}
    assert desk.did == ["enter", "charge"]
    assert await entries_of(desk.store) == entries
    with pytest.raises(RunFinished):
        await desk.runs.signal(RUN, "late")


@dataclasses.dataclass
class Order:
    """What a program is given."""

    number: int
    lines: list[str]


async def fulfil(order: Order) -> str:
    return f"{order.number}: {', '.join(order.lines)}"


async def test_a_program_gets_its_input_as_its_type() -> None:
    program = Program(fulfil, store=MemoryStore())
    result = await program.run(Order(7, ["a lamp"]), run_id="order-7")
    assert result.output == "7: a lamp"
    assert (await program.run({"number": 7, "lines": ["a lamp"]}, run_id="order-7")).output
    with pytest.raises(ConfigError, match=r"does not fit.*number"):
        await program.run({"number": "x", "lines": []}, run_id="order-8")
    with pytest.raises(RunMismatch):
        await program.run(Order(8, []), run_id="order-7")


async def test_one_call_runs_a_function_in_a_store_that_a_url_names(tmp_path: Path) -> None:
    did: list[str] = []

    async def charge(cents: int) -> str:
        async def work() -> str:
            did.append("charge")
            return f"{cents} charged"

        return await step("charge", work)

    for _ in range(2):
        result = await perdure.durable.run(
            charge, 500, run_id=RUN, store=f"sqlite:///{tmp_path}/runs.db"
        )
        assert result.output == "500 charged"
    assert did == ["charge"]


# --- crashes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["none", "idempotent", "keyed", "once"])
async def test_a_program_cut_behind_any_entry_doubles_no_step_that_must_not(
    effect: Effect,
) -> None:
    keys: set[str] = set()

    def make(desk: Desk) -> Body:
        async def taken(name: str) -> str:
            keys.add(step_key())
            return await desk.does(name)

        async def body() -> object:
            first = await step("one", lambda: taken("one"), effect=effect)
            await sleep("night", 60)
            return [first, await step("two", lambda: taken("two"), effect=effect)]

        return body

    whole = desk_of(make)
    assert (await whole.run()).status == "suspended"
    await whole.clock.advance(61)
    assert (await whole.run()).status == "done"
    for keep in range(1, len(await entries_of(whole.store)) + 1):
        desk = desk_of(make)
        desk.store = await cut_after(whole.store, keep)
        keys.clear()
        for _ in range(4):
            result = await desk.run()
            if result.status == "suspended":
                await desk.clock.advance(61)
            if result.status == "halted":
                assert effect == "once"
                halted = (await session_of(desk.store)).view().work.of("").halted_steps
                await desk.runs.resolve(RUN, step=halted[0], value=f"{halted[0]} done")
        assert result.status == "done"
        assert result.output == ["one done", "two done"]
        assert all(desk.did.count(name) <= 1 for name in ("one", "two"))
        assert len(keys) <= 2


async def test_a_once_step_that_a_crash_cut_halts_its_program_until_somebody_says_so() -> None:
    def make(desk: Desk) -> Body:
        async def body() -> object:
            return await desk.step("charge")

        return body

    whole = desk_of(make)
    await whole.run()
    desk = desk_of(make)
    desk.store = await cut_behind(whole.store, "perdure:step start")
    halted = await desk.run()
    assert (halted.status, desk.effects) == ("halted", [])
    assert [one.reason for one in halted.pending] == ["unknown"]
    assert await recover(programs=[desk.program]) == []
    with pytest.raises(ConfigError, match="min_age"):
        await desk.runs.resolve(RUN, step="charge", never_ran=True)
    await desk.clock.advance(10)
    await desk.runs.resolve(RUN, step="charge", never_ran=True, min_age=5)
    assert (await desk.run()).output == "charge done"
    assert desk.effects == ["charge"]


async def test_a_once_step_that_fails_halts_whatever_its_program_makes_of_it() -> None:
    def make(desk: Desk) -> Body:
        async def fails() -> str:
            raise ConnectionError("hung up")

        async def body() -> object:
            with contextlib.suppress(OutcomeUnknown):
                await step("charge", fails)
            return "fine"

        return body

    desk = desk_of(make)
    assert (await desk.run()).status == "halted"
    await desk.runs.resolve(RUN, step="charge", value="ch_1", evidence="the ledger", by="ann")
    with pytest.raises(AlreadyResolved):
        await desk.runs.resolve(RUN, step="charge", value="ch_2")
    assert (await desk.run()).output == "fine"


async def test_a_program_that_fails_goes_on_from_its_steps() -> None:
    fails = [True]

    def make(desk: Desk) -> Body:
        async def body() -> object:
            charged = await desk.step("charge")
            if fails[0]:
                raise LookupError("no such shelf")
            return charged

        return body

    desk = desk_of(make)
    with pytest.raises(RunFailed) as failed:
        await desk.run()
    assert isinstance(failed.value.cause, LookupError)
    assert failed.value.result.status == "failed"
    state = await desk.runs.get(RUN)
    assert (state.status, state.cause) == ("failed", "no such shelf")
    fails[0] = False
    (recovered,) = await recover(programs=[desk.program])
    assert recovered.status == "done"
    assert (await desk.run()).output == "charge done"
    assert desk.effects == ["charge"]


async def test_a_result_that_is_not_json_is_a_failure() -> None:
    desk = desk_of(lambda _: lambda: _value(object()))
    with pytest.raises(RunFailed, match="JSON"):
        await desk.run()


async def _value(value: object) -> object:
    return value


@pytest.mark.parametrize("kind", ["perdure:signal", "perdure:wait end"])
async def test_a_program_that_was_told_before_a_crash_is_driven_by_a_recovery(kind: str) -> None:
    def make(desk: Desk) -> Body:
        async def body() -> object:
            if kind == "perdure:signal":
                return await wait_for("paid")
            return await interrupt("sure", "?", bool)

        return body

    whole = desk_of(make)
    await whole.run()
    if kind == "perdure:signal":
        await whole.runs.signal(RUN, "paid", 1)
    else:
        await whole.runs.answer(RUN, "", "sure", True)
    await whole.run()
    desk = desk_of(make)
    desk.store = await cut_behind(whole.store, kind)
    (recovered,) = await recover(programs=[desk.program])
    assert recovered.status == "done"


# --- ids, drivers, cancelling --------------------------------------------------------------------


async def test_an_id_is_bound_to_its_program_and_its_kind() -> None:
    store = MemoryStore()

    async def one() -> str:
        return "one"

    async def two() -> str:
        return "two"

    agent = Agent(ScriptedModel(["Hello."]), store=store)
    await Program(one, store=store).run(run_id="a")
    await agent.run("null", run_id="b")
    with pytest.raises(RunMismatch, match="program 'one', not 'two'"):
        await Program(two, store=store).run(run_id="a")
    with pytest.raises(RunMismatch, match="kind"):
        await Program(one, store=store).run(run_id="b")
    with pytest.raises(RunMismatch, match="kind"):
        await agent.run("null", run_id="a")
    assert (await Program(two, name="one", store=store).run(run_id="a")).output == "one"


async def test_a_program_that_somebody_drives_is_waited_for_or_refused() -> None:
    go = asyncio.Event()

    entered = asyncio.Event()

    def make(desk: Desk) -> Body:
        async def body() -> object:
            entered.set()
            await go.wait()
            return await desk.step("charge")

        return body

    desk = desk_of(make)
    first = asyncio.create_task(desk.run())
    await entered.wait()
    with pytest.raises(RunBusy):
        await desk.program.run(run_id=RUN, wait=False)
    assert await recover(programs=[desk.program]) == []
    second = asyncio.create_task(desk.run())
    await asyncio.sleep(0)
    go.set()
    assert (await first).output == (await second).output == "charge done"
    assert desk.did == ["enter", "charge"]


async def test_a_program_that_waits_is_cancelled_at_once() -> None:
    desk = desk_of(lambda _: lambda: sleep("night", 60))
    await desk.run()
    await desk.runs.cancel(RUN, reason="changed our mind", by="ann")
    state = await desk.runs.get(RUN)
    assert (state.status, state.cause, state.due) == ("cancelled", "changed our mind", None)
    await desk.clock.advance(61)
    assert (await desk.run()).status == "cancelled"
    assert desk.did == ["enter"]


async def test_no_step_with_an_effect_begins_in_a_program_that_was_cancelled() -> None:
    def make(desk: Desk) -> Body:
        async def body() -> object:
            await desk.runs.cancel(RUN)
            return await desk.step("charge")

        return body

    desk = desk_of(make)
    result = await desk.run()
    assert (result.status, desk.effects) == ("cancelled", [])


class Stopping(MemoryStore):
    """Cancels its run before one of the appends."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self.place = place

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
        self.place -= 1
        if self.place == -1:
            await Runs(self).cancel(RUN, reason="no")
        return await super().append(
            session, version, fence, batch, consumed=consumed, summary=summary
        )


@pytest.mark.parametrize("what", ["program", "agent"])
async def test_a_run_that_was_cancelled_never_ends_as_done(what: str) -> None:
    """The stop lands before any append of the run, the one that ends it among them."""

    @tool(effect="idempotent")
    async def look() -> object:
        """Look."""
        return await step("look", lambda: 1, effect="idempotent")

    async def program() -> object:
        return await step("look", lambda: 1, effect="idempotent")

    async def run(store: MemoryStore) -> str:
        if what == "program":
            return str((await Program(program, store=store).run(run_id=RUN)).status)
        model = ScriptedModel([call("look"), "Done."])
        agent = Agent(model, name="clerk", tools=[look], store=store)
        return str((await agent.run("Go.", run_id=RUN)).status)

    for place in itertools.count():
        store = Stopping(place)
        status = await run(store)
        if store.place >= 0:
            break
        state = await Runs(store).get(RUN)
        assert (status, state.status, state.cause) == ("cancelled", "cancelled", "no")
        assert not await store.unconsumed(state.session)
    assert place >= 3
    assert status == "done"


async def test_a_cancel_that_comes_behind_the_end_of_its_run_says_so() -> None:
    class Slow(MemoryStore):
        async def put(self, session: str, message: Message, *, stop: bool = False) -> Put:
            if stop:  # the run ends between the look and the word
                await clock.advance(61)
                await program.run(run_id=RUN)
            return await super().put(session, message, stop=stop)

    async def nap() -> int:
        await sleep("night", 60)
        return 1

    clock, store = FakeClock(), Slow()
    program = Program(nap, store=store, clock=clock)
    await program.run(run_id=RUN)
    with pytest.raises(RunFinished, match="done"):
        await Runs(store, clock=clock).cancel(RUN)
    assert (await program.run(run_id=RUN)).output == 1


async def test_a_caller_that_is_cancelled_aborts_its_program_which_goes_on_later() -> None:
    went = asyncio.Event()

    def make(desk: Desk) -> Body:
        async def body() -> object:
            charged = await desk.step("charge")
            if not went.is_set():
                went.set()
                await asyncio.Event().wait()
            return charged

        return body

    desk = desk_of(make)
    caller = asyncio.create_task(dataclasses.replace(desk.program, grace=0.0).run(run_id=RUN))
    await went.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert (await desk.runs.get(RUN)).status == "aborted"
    assert (await desk.run()).output == "charge done"
    assert desk.effects == ["charge"]


# --- recovery, looking ---------------------------------------------------------------------------


async def test_a_recovery_knows_programs_by_name_and_agents_beside_them() -> None:
    store, clock = MemoryStore(), FakeClock()

    @tool(effect="idempotent")
    async def rest() -> str:
        """Rest."""
        await sleep("night", 60)
        return "rested"

    async def clerk() -> str:
        await sleep("night", 30)
        return "awake"

    program = Program(clerk, store=store, clock=clock)
    agent = Agent(
        ScriptedModel([call("rest"), "Done."]), name="clerk", tools=[rest], store=store, clock=clock
    )
    await program.run(run_id="p")
    await agent.run("Rest.", run_id="a")
    with pytest.raises(ConfigError, match="two programs"):
        await recover(programs=[program, program])
    with pytest.raises(ConfigError, match="agents or programs"):
        await recover()
    assert await recover(agent, programs=[program]) == []
    await clock.advance(61)
    found = await recover(agent, programs=[program])
    assert [(one.run_id, one.status) for one in found] == [("p", "done"), ("a", "done")]
    runs = Runs(store)
    listed = sorted((one.run_id, one.kind, one.status) for one in await runs.list())
    assert listed == [("a", "run", "done"), ("p", "program", "done")]


async def test_a_recovery_loop_drives_programs() -> None:
    desk = desk_of(lambda _: lambda: sleep("night", 60))
    await desk.run()
    await desk.clock.advance(61)
    done = asyncio.Event()
    async with recovering(programs=[desk.program], every=0.01, on_recovered=lambda _: done.set()):
        await done.wait()
    assert (await desk.runs.get(RUN)).status == "done"


async def test_the_record_of_a_program_tells_its_drives() -> None:
    desk = desk_of(lambda _: lambda: sleep("night", 60))
    await desk.run()
    await desk.clock.advance(61)
    await desk.run()
    told = events_of(await desk.runs.record(RUN))
    assert [event.type for event in told] == ["run_start", "run_end"] * 2
    assert shapes(await entries_of(desk.store)) == [
        "item",
        "run start",
        "perdure:wait begin",
        "perdure:end",
        "run end",
        "run start",
        "perdure:wait end",
        "perdure:end",
        "run end",
        "perdure:closed done",
    ]


# --- what is around a wait -----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["group", "gather", "timeout", "finally"])
async def test_a_wait_of_a_program_passes_what_is_around_it(how: str) -> None:
    def make(desk: Desk) -> Body:
        async def grouped() -> object:
            async with asyncio.TaskGroup() as group:
                looked = group.create_task(desk.step("look"))
                group.create_task(sleep("night", 60))
            return looked.result()

        async def gathered() -> object:
            return (await asyncio.gather(desk.step("look"), sleep("night", 60)))[0]

        async def timed() -> object:
            async with asyncio.timeout(30):
                await sleep("night", 60)
            return await desk.step("look")

        async def tidied() -> object:
            try:
                await sleep("night", 60)
            finally:
                desk.did.append("enter")
            return await desk.step("look")

        bodies: dict[str, Body] = {
            "group": grouped,
            "gather": gathered,
            "timeout": timed,
            "finally": tidied,
        }
        return bodies[how]

    desk = desk_of(make)
    assert (await desk.run()).status == "suspended"
    await desk.clock.advance(61)
    assert (await desk.run()).output == "look done"
    assert desk.effects == ["look"]


async def test_a_program_that_swallows_the_signal_of_a_wait_fails() -> None:
    def make(_: Desk) -> Body:
        async def body() -> object:
            with contextlib.suppress(BaseException):
                await sleep("night", 60)
            return "not so"

        return body

    desk = desk_of(make)
    with pytest.raises(RunFailed) as failed:
        await desk.run()
    assert isinstance(failed.value.cause, SuspendSwallowed)


# --- what is refused -----------------------------------------------------------------------------


async def _two(one: int, two: int) -> int:
    return one + two


async def _none() -> None:
    """Nothing."""


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Program(_two), "takes one argument"),
        (lambda: Program(len), "async"),  # type: ignore[arg-type]
        (lambda: Program(functools.partial(_two, 1)), "name"),
        (lambda: Program(5), "name"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_program_is_refused(make: Callable[[], object], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        make()


async def test_a_program_needs_a_store_and_the_input_that_it_takes() -> None:
    with pytest.raises(ConfigError, match="store"):
        await Program(_none).run(run_id=RUN)
    with pytest.raises(ConfigError, match="takes no input"):
        await Program(_none, store=MemoryStore()).run(5, run_id=RUN)
    with pytest.raises(ConfigError, match="run id"):
        await Program(_none, store=MemoryStore()).run(run_id="")


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (lambda: step("", dict), "1 to"),
        (lambda: step("perdure:mine", dict), "reserved"),
        (lambda: sleep("a", -1), "0 or more"),
        (lambda: invoke("a"), "loop"),
        (lambda: step("a", lambda: sleep("b", 1), effect="none"), "do not wait"),
    ],
)
async def test_what_no_program_can_do_is_refused(wrong: Body, match: str) -> None:
    desk = desk_of(lambda _: wrong)
    with pytest.raises(RunFailed, match=match):
        await desk.run()


async def test_a_program_has_a_handle_with_a_key_and_a_fence() -> None:
    seen: list[str] = []

    def make(_: Desk) -> Body:
        async def body() -> object:
            handle = current_call()
            seen.append(handle.idempotency_key)
            assert handle.fence
            await handle.write_record("acme:note", {"n": 1})
            await sleep("night", 60)
            return handle.next_key("charge")

        return body

    desk = desk_of(make)
    await desk.run()
    await desk.clock.advance(61)
    assert (await desk.run()).output == f"{seen[0]}/charge/1"
    assert len(set(seen)) == 1


# --- agents --------------------------------------------------------------------------------------


def helper(desk: Desk, body: Body, name: str = "helper") -> Agent:
    """An agent with one tool."""

    @tool(effect="idempotent")
    async def work() -> object:
        """Work."""
        return await body()

    return Agent(
        ScriptedModel([call("work"), f"{name} is done."]),
        name=name,
        tools=[work],
        clock=desk.clock,
    )


async def test_a_program_drives_agents_and_takes_their_answers_once() -> None:
    def make(desk: Desk) -> Body:
        async def wait() -> object:
            await desk.step("look")
            return await interrupt("sure", "Sure?", bool)

        async def body() -> object:
            first = await run_agent("first", helper(desk, lambda: desk.step("charge")), "Go.")
            second = await run_agent("second", helper(desk, wait, "other"), "Go.")
            return [first, second]

        return body

    desk = desk_of(make)
    asks = await desk.run()
    assert asks.status == "input_required"
    own, below = asks.pending
    assert (own.call.call_id, own.path, below.path) == ("", (), ("second",))
    assert (below.wait or {})["prompt"] == "Sure?"
    await desk.runs.answer(RUN, below.call.call_id, "sure", True, session=below.session)
    (recovered,) = await recover(programs=[desk.program])
    assert recovered.status == "done"
    assert (await desk.run()).output == ["helper is done.", "other is done."]
    assert desk.effects == ["charge", "look"]


async def test_agents_that_run_at_once_come_to_rest_before_their_program_unwinds() -> None:
    def make(desk: Desk) -> Body:
        async def slow() -> object:
            for _ in range(20):
                await asyncio.sleep(0)
            return await desk.step("slow")

        async def body() -> object:
            async with asyncio.TaskGroup() as group:
                naps = helper(desk, lambda: sleep("night", 60), "naps")
                group.create_task(run_agent("naps", naps, "Nap."))
                works = group.create_task(run_agent("slow", helper(desk, slow, "slow"), "Work."))
            return works.result()

        return body

    desk = desk_of(make)
    assert (await desk.run()).status == "suspended"
    assert desk.effects == ["slow"]
    assert (await desk.runs.get(RUN)).due is not None
    await desk.clock.advance(61)
    (recovered,) = await recover(programs=[desk.program])
    assert recovered.status == "done"
    assert desk.effects == ["slow"]


async def test_an_agent_on_a_clock_of_its_own_keeps_no_program_busy() -> None:
    def make(desk: Desk) -> Body:
        async def body() -> object:
            agent = helper(desk, lambda: sleep("night", 60)).with_(clock=slow)
            return await run_agent("part", agent, "Go.")

        return body

    slow = FakeClock()
    desk = desk_of(make)
    await desk.run()
    await desk.clock.advance(61)
    assert (await desk.run()).status == "suspended"
    assert desk.did == ["enter", "enter"]
    await slow.advance(61)
    assert (await desk.run()).status == "done"


async def test_an_agent_that_fails_fails_its_part_of_the_program_and_no_more() -> None:
    def make(desk: Desk) -> Body:
        async def body() -> object:
            failing = Agent(ScriptedModel([ValueError("no")]), name="broken", clock=desk.clock)
            errors: list[str] = []
            for _ in range(2):
                try:
                    await run_agent("part", failing, "Go.")
                except ToolError as error:
                    errors.append(type(error).__name__)
            await sleep("night", 60)
            return errors

        return body

    desk = desk_of(make)
    assert (await desk.run()).status == "suspended"
    await desk.clock.advance(61)
    assert (await desk.run()).output == [StepFailed.__name__] * 2


async def test_cancelling_a_program_cancels_its_agents() -> None:
    def make(desk: Desk) -> Body:
        return lambda: run_agent("part", helper(desk, lambda: sleep("night", 60)), "Go.")

    desk = desk_of(make)
    below = (await desk.run()).pending[1]
    await desk.runs.cancel(RUN)
    listed = (await desk.store.read(below.session)).lines
    assert b'"cancelled"' in listed[-1]


async def test_a_held_call_of_an_agent_holds_its_program() -> None:
    def make(desk: Desk) -> Body:
        agent = helper(desk, lambda: desk.step("charge")).with_(middleware=(Holds("work"),))
        return lambda: run_agent("part", agent, "Go.")

    desk = desk_of(make)
    held = await desk.run()
    assert (held.status, [one.reason for one in held.pending]) == (
        "input_required",
        ["suspended", "held"],
    )
    below = held.pending[1]
    await desk.runs.approve(RUN, below.call.call_id, session=below.session, by="ann")
    assert (await desk.run()).output == "helper is done."
    assert desk.effects == ["charge"]


DEEP_TELLS = ("signal", "message", "answer", "approval", "step", "call")


async def told_deep(runs: Runs, kind: str, session: str, call_id: str) -> None:
    """Say what a call waits for that is two agents below a program."""
    match kind:
        case "signal":
            await runs.signal(RUN, "go", 1, session=session)
        case "message":
            await runs.send(RUN, "orders", 1, key="k", session=session)
        case "answer":
            await runs.answer(RUN, call_id, "sure", 1, session=session)
        case "approval":
            await runs.approve(RUN, call_id, session=session, by="ann")
        case "step":
            await runs.resolve(RUN, call_id, step="pay", value=1, session=session)
        case _:
            await runs.resolve(RUN, call_id, output="1", session=session)


@pytest.mark.parametrize("kind", DEEP_TELLS)
async def test_what_an_agent_below_an_agent_of_a_program_is_told_wakes_the_program(
    kind: str,
) -> None:
    async def fails() -> object:
        raise OSError("cut")

    async def waits() -> object:
        match kind:
            case "signal":
                return await wait_for("go")
            case "message":
                return (await receive("orders")).value
            case "answer":
                return await interrupt("sure", "Sure?", int)
            case "step":
                return await step("pay", fails, effect="once")
            case "call":
                raise OutcomeUnknown("cut")
            case _:
                return 1

    def make(desk: Desk) -> Body:
        @tool(effect="once" if kind == "call" else "idempotent")
        async def work() -> object:
            """Work."""
            return await waits()

        inner = Agent(
            ScriptedModel([call("work"), "inner is done."]),
            name="inner",
            description="Works.",
            tools=[work],
            clock=desk.clock,
            middleware=(Holds("work"),) if kind == "approval" else (),
        )
        outer = Agent(
            ScriptedModel([call("inner", {"task": "Go."}), "outer is done."]),
            name="outer",
            tools=[inner.as_tool()],
            clock=desk.clock,
        )
        return lambda: run_agent("part", outer, "Go.")

    desk = desk_of(make)
    deep = (await desk.run()).pending[-1]
    assert len(deep.path) == 2
    await told_deep(desk.runs, kind, deep.session, deep.call.call_id)
    (recovered,) = await recover(programs=[desk.program])
    assert recovered.status == "done"
    assert (await desk.run()).output == "outer is done."
    assert await recover(programs=[desk.program]) == []


async def test_an_agent_is_a_part_of_a_program_alone() -> None:
    desk = Desk(lambda: asyncio.sleep(0))
    other = helper(desk, lambda: desk.step("charge"))

    @tool(effect="idempotent")
    async def work() -> object:
        """Work."""
        return await run_agent("part", other, "Go.")

    agent = Agent(ScriptedModel([call("work"), "Done."]), tools=[work], store=desk.store)
    result = await agent.run("Go.", run_id="agent-1")
    assert "programs" in str(result.items[2])
    desk.body = lambda: step("a", lambda: run_agent("part", other, "Go."), effect="none")
    with pytest.raises(RunFailed, match="inside step"):
        await desk.run()


@pytest.mark.parametrize("name", ["\ud800", 5, " ", " a", "x" * 5000, "a\nb"])
def test_a_program_is_not_named_by_what_cannot_be_shown(name: str) -> None:
    async def work() -> None:
        """Nothing."""

    with pytest.raises(ConfigError, match="printable name"):
        Program(work, name=name)


async def test_a_run_id_is_text_and_a_part_is_an_agent() -> None:
    desk = Desk(lambda: run_agent("part", cast("Agent", "helper"), "Go."))
    with pytest.raises(ConfigError, match="a run id is text"):
        await desk.program.run(run_id=cast("str", 5))
    with pytest.raises(RunFailed, match="is no Agent"):
        await desk.run()


async def test_a_program_without_an_input_has_its_own() -> None:
    async def work(n: int = 3) -> int:
        return n

    program = Program(work, store=MemoryStore())
    assert (await program.run(run_id="a")).output == 3
    assert (await program.run(5, run_id="b")).output == 5
