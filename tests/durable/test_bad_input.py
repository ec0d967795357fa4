"""Bad input to steps, waits, programs and words for them: it is named, and changes nothing.

Each error names what it is about and what was given.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

import perdure.durable
from perdure import (
    Agent,
    Program,
    Runs,
    ack,
    current_call,
    interrupt,
    parallel,
    race,
    receive,
    recover,
    recovering,
    run_agent,
    sleep,
    sleep_until,
    step,
    wait_for,
)
from perdure.errors import (
    AlreadyResolved,
    ConfigError,
    NoRun,
    NotHalted,
    NotHeld,
    OutcomeUnknown,
    RunFailed,
    ToolError,
    WrongAnswer,
)
from perdure.log.entries import StepEntry, WaitEntry
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock, ScriptedModel
from tests.durable.test_work import CALL, Bench, Body, bench_of
from tests.durable.world import RUN, entries_of, outputs


class Odd:
    """What nobody expects, and no JSON says."""

    def __repr__(self) -> str:
        return "Odd()"


async def look() -> int:
    return 1


def clerk() -> Agent:
    return Agent(ScriptedModel(["Done."]), name="clerk")


ODD = Odd()
NAN, INF = float("nan"), float("inf")
NAIVE = dt.datetime(2026, 1, 31)  # noqa: DTZ001 - that is the point

NAMES: list[Any] = [
    None,
    True,
    5,
    b"x",
    [],
    ODD,
    look,
    "",
    " ",
    "a\nb",
    "a\u200bb",
    "\ud800",
    "x" * 201,
    "perdure:x",
]
SPANS: list[Any] = [True, False, b"5", "5", NAN, INF, -1, -0.5, 10**10, [], ODD, look, NAIVE]
SPANS.append(dt.timedelta(days=1))
COUNTS: list[Any] = [None, True, b"5", "2", NAN, INF, -1, 1.5, [], ODD, look]
TEXTS: list[Any] = [None, True, 5, b"x", NAN, [], ODD, look, "\ud800"]
OTHERS: list[Any] = [None, True, 5, b"x", "look", NAN, [], ODD]
TIMES: list[Any] = [None, True, b"5", "5", "2026-01-31", NAN, 1.5e18, -1, 10**19, [], ODD]
TIMES += [NAIVE, NAIVE.replace(tzinfo=dt.UTC), dt.timedelta(days=1)]

RUN_IDS: list[Any] = [None, True, 5, b"x", [], ODD, "", "\ud800"]
STORES: list[Any] = [True, 5, b"x", NAN, ODD, look, MemoryStore]

Given = Callable[[Any], Awaitable[object]]

PARAMETERS: list[tuple[str, Given, list[Any], str]] = [
    ("step name", lambda v: step(v, look), NAMES, "the name of a step"),
    ("step work", lambda v: step("a", v), OTHERS, "step 'a' needs a function"),
    ("step effect", lambda v: step("a", look, effect=v), OTHERS, "cannot have the effect"),
    (
        "step retries",
        lambda v: step("a", look, effect="none", retries=v),
        COUNTS,
        "retries of step 'a' must be a whole number of at least 0, got",
    ),
    (
        "step timeout",
        lambda v: step("a", look, effect="none", timeout=v),
        [*SPANS, 0],
        "the timeout of step 'a'",
    ),
    ("parallel steps", parallel, [*OTHERS[:6], ODD, {"ab": look}], "takes a list"),
    ("parallel step", lambda v: parallel([v]), [*OTHERS, (), ("a",)], "parallel takes pairs"),
    ("parallel name", lambda v: parallel([(v, look)]), NAMES, "the name of a step"),
    ("parallel work", lambda v: parallel([("a", v)]), OTHERS, "step 'a' needs a function"),
    (
        "parallel effect",
        lambda v: parallel([("a", look)], effect=v),
        OTHERS,
        "step 'a' cannot have the effect",
    ),
    (
        "parallel most",
        lambda v: parallel([("a", look)], most=v),
        [*COUNTS[1:], 0],
        "most must be a whole",
    ),
    ("sleep name", lambda v: sleep(v, 1), NAMES, "the name of a sleep"),
    ("sleep seconds", lambda v: sleep("a", v), [*SPANS, None], "the time of sleep 'a'"),
    ("sleep_until name", lambda v: sleep_until(v, 1), NAMES, "the name of a sleep"),
    (
        "sleep_until wall",
        lambda v: sleep_until("a", v),
        TIMES,
        "sleep 'a' got",
    ),
    ("wait_for name", wait_for, NAMES, "the name of a signal"),
    ("wait_for timeout", lambda v: wait_for("a", timeout=v), SPANS, "the timeout of signal 'a'"),
    ("race name", lambda v: race(v, {"a": sleep("a", 1)}), NAMES, "the name of a race"),
    ("race waits", lambda v: race("a", v), [*OTHERS, [1]], "race 'a' takes its waits by words"),
    ("race of nothing", lambda v: race("a", v), [{}], "race 'a' has nothing to wait for: give it"),
    (
        "race word",
        lambda v: race("a", {v: sleep("a", 1)}),
        [one for one in NAMES if not isinstance(one, list)],
        "the name of a wait of race 'a'",
    ),
    ("race wait", lambda v: race("a", {"b": v}), OTHERS, "'b' of race 'a' is no wait: give it"),
    ("interrupt key", lambda v: interrupt(v, "Who?", str), NAMES, "the name of a question"),
    ("interrupt prompt", lambda v: interrupt("a", v, str), TEXTS, "the prompt of question 'a'"),
    ("interrupt type", lambda v: interrupt("a", "Who?", v), OTHERS[1:], "the answer to 'a'"),
    ("receive channel", receive, NAMES, "the name of a channel"),
    ("ack channel", lambda v: ack(v, "k"), NAMES, "the name of a channel"),
    ("ack key", lambda v: ack("c", v), NAMES, "the name of a message"),
    ("run_agent name", lambda v: run_agent(v, clerk(), "Go."), NAMES, "the name of an agent"),
    ("run_agent agent", lambda v: run_agent("a", v, "Go."), [*OTHERS, Agent], "agent 'a' is no Ag"),
    ("run_agent task", lambda v: run_agent("a", clerk(), v), TEXTS, "the task of agent 'a'"),
]


@pytest.mark.parametrize(
    ("make", "value", "match"),
    [
        pytest.param(make, value, match, id=f"{what}-{place}")
        for what, make, values, match in PARAMETERS
        for place, value in enumerate(values)
    ],
)
async def test_what_no_step_and_no_wait_takes_is_refused_by_name(
    make: Given, value: object, match: str
) -> None:
    async def work() -> object:
        return await make(value)

    store = MemoryStore()
    with pytest.raises(RunFailed) as caught:
        await Program(work, store=store, clock=FakeClock()).run(run_id=RUN)
    error = caught.value.cause
    assert isinstance(error, ConfigError)
    assert match in str(error)
    assert not [e for e in await entries_of(store) if isinstance(e, StepEntry | WaitEntry)]


@pytest.mark.parametrize(
    ("work", "match"),
    [
        (lambda x: x, "wants 'x': hand over functools.partial"),
        (max, None),
        (dict, None),
        (lambda *_args, **_kwargs: 1, None),
        (lambda x=1: x, None),
    ],
)
async def test_a_function_that_wants_arguments_is_no_work_of_a_step(
    work: Any, match: str | None
) -> None:
    def make(_: Bench) -> Body:
        async def body() -> object:
            try:
                await step("charge", work)
            except ConfigError as error:
                return str(error)
            return "taken"

        return body

    bench = bench_of(make)
    status = await bench.run()
    if match is not None:
        assert (status, match in outputs(bench.result)[CALL]) == ("done", True)
    elif work is max:  # it does not say what it wants
        assert status == "halted"
    else:
        assert outputs(bench.result)[CALL] == "taken"


async def test_steps_at_once_outside_a_call_or_inside_a_step_are_refused_before_any_runs() -> None:
    taken: list[str] = []
    pairs = [(name, lambda: taken.append("taken")) for name in ("a", "b")]
    with pytest.raises(ConfigError, match="outside a tool"):
        await parallel(pairs)

    async def work() -> object:
        return await step("outer", lambda: parallel(pairs), effect="none")

    with pytest.raises(RunFailed, match="step 'a' is asked for inside step 'outer'"):
        await Program(work, store=MemoryStore()).run(run_id=RUN)
    assert taken == []


async def test_a_coroutine_is_no_work_of_a_step_and_is_closed() -> None:
    async def work() -> object:
        return await step("look", look())  # type: ignore[call-overload]

    with pytest.raises(RunFailed, match=r"hand over look, not look\(\)"):
        await Program(work, store=MemoryStore()).run(run_id=RUN)


@pytest.mark.parametrize("given", [ODD, NAN, look, "\ud800", {"a": [ODD]}, {None: 1}], ids=repr)
@pytest.mark.parametrize("recorded", [True, False])
async def test_what_a_step_gives_and_is_not_json_is_said_of_the_step(
    recorded: bool, given: object
) -> None:
    def make(_: Bench) -> Body:
        async def body() -> object:
            try:
                await step("look", lambda: given, effect="none")
            except ConfigError as error:
                return str(error)
            return "taken"

        return body

    bench = bench_of(make)
    if recorded:
        assert await bench.run() == "done"
        text = outputs(bench.result)[CALL]
    else:
        text = outputs(await bench.agent.with_(store="").run("go"))[CALL]
    assert text.startswith("step 'look' ran, and what it returned is not JSON: ")
    assert "tool" not in text


async def test_a_once_step_that_gives_no_json_halts_and_says_so() -> None:
    said: list[str] = []

    def make(_: Bench) -> Body:
        async def body() -> object:
            try:
                return await step("charge", lambda: ODD)
            except OutcomeUnknown as error:
                said.append(str(error))
                raise

        return body

    assert await bench_of(make).run() == "halted"
    assert said == ["step 'charge' ran, and what it returned is not JSON: 'Odd' is not a JSON type"]


@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_a_timeout_of_the_work_itself_is_not_said_to_be_that_of_its_step(
    effect: Any,
) -> None:
    def fails() -> None:
        raise TimeoutError("the bank took too long")

    async def slow() -> None:
        await asyncio.Event().wait()

    said: list[str] = []

    def make(_: Bench) -> Body:
        async def body() -> object:
            for work, seconds in ((fails, None), (fails, 30.0), (slow, 0.01)):
                try:
                    await step(f"a {len(said)}", work, effect=effect, timeout=seconds)
                except (OutcomeUnknown, TimeoutError) as error:
                    said.append(f"{type(error).__name__}: {error}")
            return "done"

        return body

    await bench_of(make).run()
    if effect == "once":
        assert said == [
            "OutcomeUnknown: step 'a 0' may have taken effect: the bank took too long",
            "OutcomeUnknown: step 'a 1' may have taken effect: the bank took too long",
            "OutcomeUnknown: step 'a 2' outlived its 0.01 s",
        ]
    else:
        assert said == [
            "TimeoutError: the bank took too long",
            "TimeoutError: the bank took too long",
            "TimeoutError: step 'a 2' outlived its 0.01 s",
        ]


# --- programs ------------------------------------------------------------------------------------


async def takes(given: object) -> object:
    return given


async def asks() -> int:
    return await interrupt("q", "How many?", int)


@pytest.mark.parametrize("given", [ODD, NAN, look, "\ud800"], ids=repr)
async def test_the_input_and_the_result_of_a_program_are_json(given: object) -> None:
    with pytest.raises(ConfigError, match=r"^the input of program 'takes' is not JSON: "):
        await perdure.durable.run(takes, given, run_id=RUN, store=MemoryStore())

    async def gives() -> object:
        return given

    with pytest.raises(RunFailed, match="program 'gives' ran, and what it returned is not JSON: "):
        await perdure.durable.run(gives, run_id=RUN, store=MemoryStore())


@pytest.mark.parametrize(
    ("options", "match"),
    [({"run_id": one}, "a run id") for one in RUN_IDS]
    + [({"store": one}, "a store is") for one in STORES]
    + [({"store": one}, "no store") for one in (None, "")],
)
async def test_what_cannot_drive_a_program_is_refused_by_name(
    options: dict[str, Any], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        await perdure.durable.run(look, **{"run_id": RUN, "store": MemoryStore(), **options})


@pytest.mark.parametrize("function", [None, True, 5, b"x", "look", ODD, max, Odd, lambda: 1])
async def test_what_is_no_async_function_is_no_program(function: Any) -> None:
    with pytest.raises(ConfigError):
        await perdure.durable.run(function, run_id=RUN, store=MemoryStore())


@pytest.mark.parametrize("name", ["grace", "wind_down", "lease", "max_stall"])
@pytest.mark.parametrize("span", [None, *SPANS], ids=repr)
def test_the_spans_of_time_of_a_program_are_checked(name: str, span: object) -> None:
    options: dict[str, Any] = {name: span}
    with pytest.raises(ConfigError, match=rf"^Program\({name}=...\)"):
        Program(look, store="memory:", **options)


# --- telling -------------------------------------------------------------------------------------


@pytest.fixture
async def runs() -> Runs:
    store = MemoryStore()
    await Program(asks, store=store).run(run_id=RUN)
    return Runs(store)


Telling = Callable[[Runs, Any], Awaitable[object]]

TOLD: list[tuple[str, Telling, list[Any], str]] = [
    ("signal name", lambda r, v: r.signal(RUN, v, 1), NAMES, "the name of a signal"),
    (
        "signal value",
        lambda r, v: r.signal(RUN, "paid", v),
        [NAN, ODD, look, "\ud800", {None: 1}],
        "the value of signal 'paid' is not JSON",
    ),
    ("signal by", lambda r, v: r.signal(RUN, "paid", by=v), TEXTS, "by "),
    ("signal session", lambda r, v: r.signal(RUN, "paid", session=v), TEXTS, "session "),
    ("send channel", lambda r, v: r.send(RUN, v, 1, key="k"), NAMES, "the name of a channel"),
    ("send key", lambda r, v: r.send(RUN, "c", 1, key=v), NAMES, "the name of a message"),
    (
        "send value",
        lambda r, v: r.send(RUN, "c", v, key="k"),
        [NAN, ODD, look, "\ud800"],
        "message 'k' of channel 'c' is not JSON",
    ),
    ("send by", lambda r, v: r.send(RUN, "c", 1, key="k", by=v), TEXTS, "by "),
    ("answer call", lambda r, v: r.answer(RUN, v, "q", 1), TEXTS, "call_id "),
    ("answer key", lambda r, v: r.answer(RUN, "", v, 1), NAMES, "the name of a question"),
    (
        "answer value",
        lambda r, v: r.answer(RUN, "", "q", v),
        [NAN, ODD, look, "\ud800"],
        "the answer to 'q' is not JSON",
    ),
    ("answer by", lambda r, v: r.answer(RUN, "", "q", 1, by=v), TEXTS, "by "),
    (
        "evidence",
        lambda r, v: r.resolve(RUN, "c", output="x", evidence=v),
        [NAN, ODD],
        "the evidence is not JSON",
    ),
]


@pytest.mark.parametrize(
    ("tell", "value", "match"),
    [
        pytest.param(tell, value, match, id=f"{what}-{place}")
        for what, tell, values, match in TOLD
        for place, value in enumerate(values)
    ],
)
async def test_what_nobody_can_be_told_is_refused_by_name(
    runs: Runs, tell: Telling, value: object, match: str
) -> None:
    before = (await runs.record(RUN)).version
    with pytest.raises(ConfigError) as caught:
        await tell(runs, value)
    assert match in str(caught.value)
    assert not isinstance(caught.value, ToolError)
    assert (await runs.record(RUN)).version == before


@pytest.mark.parametrize("value", [None, True, b"x", "5", 5.5, -0.5, INF, [], {}], ids=repr)
async def test_an_answer_of_the_wrong_type_names_the_run_of_a_program(
    runs: Runs, value: object
) -> None:
    with pytest.raises((WrongAnswer, ConfigError)) as caught:
        await runs.answer(RUN, "", "q", value)
    if isinstance(caught.value, WrongAnswer):
        assert str(caught.value).startswith(f"the answer to run {RUN!r} does not fit: answer: ")


@pytest.mark.parametrize("run_id", [None, True, 5, b"x", [], ODD, "", "another"], ids=repr)
async def test_a_run_that_has_no_such_id_is_told_nothing(runs: Runs, run_id: Any) -> None:
    for telling in (
        runs.get(run_id),
        runs.record(run_id),
        runs.ballot(run_id, "c"),
        runs.cancel(run_id),
        runs.retry(run_id),
        runs.signal(run_id, "paid"),
        runs.send(run_id, "c", 1, key="k"),
        runs.answer(run_id, "", "q", 1),
        runs.resolve(run_id, "c", output="x"),
    ):
        with pytest.raises((NoRun, ConfigError)):
            await telling
    assert (await runs.get(RUN)).status == "input_required"


@pytest.mark.parametrize("driven", [True, False])
async def test_another_word_names_what_it_is_about(driven: bool) -> None:
    store = MemoryStore()
    program = Program(asks, store=store)
    runs = Runs(store)
    await program.run(run_id=RUN)
    await runs.signal(RUN, "paid", 1)
    await runs.send(RUN, "orders", 1, key="k")
    if driven:
        await program.run(run_id=RUN)
    with pytest.raises(AlreadyResolved) as signalled:
        await runs.signal(RUN, "paid", 2)
    with pytest.raises(AlreadyResolved) as sent:
        await runs.send(RUN, "orders", 2, key="k")
    await runs.answer(RUN, "", "q", 1)
    with pytest.raises(AlreadyResolved) as answered:
        await runs.answer(RUN, "", "q", 2)
    assert [str(one.value) for one in (signalled, sent, answered)] == [
        f"signal 'paid' of run {RUN!r} was told before: 1",
        f"message 'k' of channel 'orders' of run {RUN!r} was told before: 1",
        f"run {RUN!r} was resolved before: 1",
    ]
    with pytest.raises(NotHalted, match=rf"^run {RUN!r} is not halted: step 's'"):
        await runs.resolve(RUN, step="s", value=1)
    with pytest.raises(NotHeld, match=rf"^run {RUN!r} waits for no decision: it does not ask 'x'"):
        await runs.answer(RUN, "", "x", 1)


@pytest.mark.parametrize("driven", [True, False])
async def test_the_same_value_once_more_is_the_same_word_whoever_gives_it(driven: bool) -> None:
    async def work() -> int:
        asked = await interrupt("q", "How many?", int)
        await wait_for("more")
        return asked

    store = MemoryStore()
    program, runs = Program(work, store=store), Runs(store)
    await program.run(run_id=RUN)
    for who in ("ann", "bo"):
        await runs.signal(RUN, "paid", 1, by=who)
        await runs.send(RUN, "orders", 1, key="k", by=who)
        await runs.answer(RUN, "", "q", 1, by=who)
        if driven:
            assert (await program.run(run_id=RUN)).status == "suspended"
    await runs.signal(RUN, "more")
    assert (await program.run(run_id=RUN)).output == 1


async def test_a_value_that_is_nested_deeper_than_every_process_reads_is_refused(
    runs: Runs,
) -> None:
    deep: list[object] = []
    for _ in range(700):
        deep = [deep]
    for telling in (
        runs.signal(RUN, "paid", deep),
        runs.send(RUN, "c", deep, key="k"),
        runs.answer(RUN, "", "q", deep),
    ):
        with pytest.raises(ConfigError, match="nested too deeply"):
            await telling
    with pytest.raises(ConfigError, match="the input of program"):
        await perdure.durable.run(takes, deep, run_id="deep", store=MemoryStore())
    wide = [[n] for n in range(700)]
    await runs.signal(RUN, "paid", wide)


# --- recovery ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [*COUNTS, 0], ids=repr)
async def test_the_concurrency_of_a_recovery_is_a_count(count: Any) -> None:
    with pytest.raises(ConfigError, match="concurrency must be a whole number of at least 1, got"):
        await recover(clerk(), store=MemoryStore(), concurrency=count)


@pytest.mark.parametrize("driver", [None, True, 5, b"x", "clerk", [], ODD, look, Agent], ids=repr)
async def test_what_is_no_agent_is_not_recovered(driver: Any) -> None:
    for recovery in (
        recover(driver, store=MemoryStore()),
        recover(clerk(), store=MemoryStore(), programs=[driver]),
    ):
        with pytest.raises(ConfigError, match=r"to be recovered: .* is none"):
            await recovery


async def test_programs_and_agents_each_have_their_place_in_a_recovery() -> None:
    program: Any = Program(look, store="memory:")
    agent: Any = clerk()
    for recovery in (
        recover(program, store=MemoryStore()),
        recover(store=MemoryStore(), programs=[agent]),
    ):
        with pytest.raises(ConfigError, match="does not stand among"):
            await recovery
    others: list[Any] = [None, 5, "x", program]
    for wrong in others:
        with pytest.raises(ConfigError, match="programs is a list"):
            await recover(agent, store=MemoryStore(), programs=wrong)


@pytest.mark.parametrize("store", STORES, ids=repr)
async def test_what_is_no_store_is_not_looked_at(store: Any) -> None:
    with pytest.raises(ConfigError, match="a store is a URL"):
        await recover(clerk(), store=store)
    with pytest.raises(ConfigError, match="a store is a URL"):
        await Runs(store).get(RUN)


@pytest.mark.parametrize("every", [None, 0, *SPANS], ids=repr)
def test_the_pause_of_a_recovery_is_a_span_of_time(every: Any) -> None:
    with pytest.raises(ConfigError, match=r"^every "):
        recovering(clerk(), store=MemoryStore(), every=every)
    with pytest.raises(ConfigError, match="on_recovered is a function"):
        recovering(clerk(), store=MemoryStore(), on_recovered=cast("Any", 5))


async def test_a_handle_writes_no_record_that_is_not_json() -> None:
    async def work() -> object:
        await current_call().write_record("acme:job", ODD)
        return None

    with pytest.raises(RunFailed, match="record 'acme:job' is not JSON: "):
        await Program(work, store=MemoryStore()).run(run_id=RUN)
