"""One batch: slots, chains, hooks, progress, outcomes."""

from __future__ import annotations

import asyncio
import contextvars
import itertools

import pytest

from perdure.errors import Aborted, CallEnded, ConfigError, OutcomeUnknown, ToolError, ToolPanic
from perdure.testing.clock import settle
from perdure.tools import (
    Call,
    Effect,
    Enter,
    Executor,
    Job,
    Outcome,
    ProgressInfo,
    ToolResult,
    chains,
    current_call,
)
from tests.tools.batches import (
    Bench,
    Log,
    Scripted,
    assert_nothing_is_left,
    forever,
    raises,
    says,
    until_told,
)

# --- chains ---------------------------------------------------------------------------


def jobs(*tools: Scripted | None) -> list[Job]:
    return [Job(tool=tool, call_id=f"c{index}") for index, tool in enumerate(tools)]


def test_jobs_run_beside_each_other_unless_they_say_otherwise() -> None:
    free = Scripted(says(""))
    disk = Scripted(says(""), resource="disk")
    net = Scripted(says(""), resource="net")
    alone = Scripted(says(""), sequential=True)
    assert chains([]) == ()
    assert chains(jobs(free, free)) == ((0,), (1,))
    assert chains(jobs(disk, free, net, disk, None, net)) == ((0, 3), (1,), (2, 5), (4,))
    assert chains(jobs(disk, free, alone)) == ((0, 1, 2),)
    assert chains(jobs(disk, free), sequential=True) == ((0, 1),)
    assert chains([], sequential=True) == ()


# --- running --------------------------------------------------------------------------


async def test_outcomes_stand_in_the_order_of_the_jobs() -> None:
    first_may_end = asyncio.Event()

    async def slow(call: Call) -> object:
        await first_may_end.wait()
        return "slow"

    async def fast(call: Call) -> object:
        first_may_end.set()
        return "fast"

    bench = Bench(Scripted(slow), Scripted(fast))
    outcomes = await bench.run()
    assert [outcome.result for outcome in outcomes] == [ToolResult("slow"), ToolResult("fast")]
    assert bench.log.lines[-2:] == ["settled c1 returned", "settled c0 returned"]
    await assert_nothing_is_left()


async def test_an_empty_batch_ends() -> None:
    assert await Executor().run([]) == ()


@pytest.mark.parametrize("bound", [1, 3, 8])
async def test_no_more_tools_run_at_once_than_the_bound(bound: int) -> None:
    running = most = 0

    async def body(call: Call) -> object:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await settle()
        running -= 1
        return ""

    bench = Bench(*[Scripted(body) for _ in range(20)], max_parallel=bound)
    await bench.run()
    assert most == bound
    starts = [line for line in bench.log.lines if line.startswith("start")]
    assert starts == [f"start c{index}" for index in range(20)]


def test_the_bound_is_eight_and_must_be_positive() -> None:
    assert Executor().max_parallel == 8
    with pytest.raises(ConfigError, match="max_parallel must be at least 1, got 0"):
        Executor(max_parallel=0)


async def test_a_hundred_jobs_end() -> None:
    outcomes = await Executor().run(
        [Job(tool=Scripted(says(n)), call_id=f"{n}") for n in range(100)]
    )
    assert [outcome.result for outcome in outcomes] == [ToolResult(str(n)) for n in range(100)]


async def test_one_failing_tool_leaves_its_siblings_their_results() -> None:
    outcomes = await Bench(
        Scripted(says("a")), Scripted(says("b")), Scripted(raises(ToolError("broken")))
    ).run()
    assert [outcome.status for outcome in outcomes] == ["returned", "returned", "failed"]
    assert outcomes[2].result == ToolResult("Error: broken")
    assert outcomes[2].entered == 1


async def test_an_unknown_tool_fails_without_running() -> None:
    hooks = Log()
    (outcome,) = await Executor().run([Job(tool=None, call_id="c0", name="nope")], hooks)
    assert outcome.result == ToolResult('Error: unknown tool "nope"')
    assert (outcome.entered, outcome.dispatched) == (0, False)
    assert hooks.lines == ["settled c0 failed"]


async def test_an_empty_output_stays_empty() -> None:
    (outcome,) = await Bench(Scripted(says(""))).run()
    assert outcome.result == ToolResult("")


async def test_a_panic_is_one_line_and_its_stack_is_for_the_host() -> None:
    (outcome,) = await Bench(Scripted(raises(ValueError("a\nb")), name="sum")).run()
    assert outcome.result == ToolResult("Error: tool 'sum' panicked: a b")
    assert isinstance(outcome.error, ToolPanic)
    assert outcome.error.__cause__ is not None
    assert outcome.error.__cause__.__traceback__ is not None


async def test_the_details_of_a_failure_and_its_wish_to_terminate_are_kept() -> None:
    error = ToolError("no", details=7, terminate=True)
    (outcome,) = await Bench(Scripted(raises(error))).run()
    assert outcome.result == ToolResult("Error: no", details=7, terminate=True)


async def test_a_timeout_inside_a_tool_is_an_ordinary_error() -> None:
    async def body(call: Call) -> object:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()
        return ""

    (outcome,) = await Bench(Scripted(body)).run()
    assert outcome.result == ToolResult("Error: tool 't' panicked: TimeoutError")
    assert not outcome.may_have_run


async def test_a_task_group_inside_a_tool_shows_the_error_inside_it() -> None:
    async def body(call: Call) -> object:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.Event().wait())
            group.create_task(fails())
        return ""

    async def fails() -> None:
        raise ToolError("inside")

    (outcome,) = await Bench(Scripted(body)).run()
    assert outcome.result == ToolResult("Error: inside")
    await assert_nothing_is_left()


async def test_a_cancellation_that_nobody_asked_for_is_an_ordinary_error() -> None:
    (outcome,) = await Bench(Scripted(raises(asyncio.CancelledError()))).run()
    assert outcome.status == "failed"
    assert outcome.result == ToolResult("Error: tool 't' panicked: CancelledError")
    assert not outcome.may_have_run


class Waits(BaseException):
    """As a durable wait is."""


async def test_a_signal_is_not_a_failure() -> None:
    signal = Waits()
    (outcome,) = await Bench(Scripted(raises(signal))).run()
    assert (outcome.status, outcome.error, outcome.result) == ("signalled", signal, None)


async def test_a_tool_that_does_not_know_its_outcome_may_have_run() -> None:
    bench = Bench(
        Scripted(raises(OutcomeUnknown("lost"))), Scripted(raises(OutcomeUnknown()), effect="none")
    )
    lost, looked = await bench.run()
    assert (lost.status, lost.may_have_run, lost.result) == ("failed", True, None)
    assert (looked.may_have_run, looked.result) == (False, ToolResult("Error: OutcomeUnknown"))


async def test_a_tool_by_hand_may_return_any_value() -> None:
    class Odd(Scripted):
        async def execute(self, call: Call) -> ToolResult:
            return {"a": 1}  # type: ignore[return-value]

    (outcome,) = await Bench(Odd(says(""))).run()
    assert outcome.result == ToolResult('{"a":1}')


# --- the chain ------------------------------------------------------------------------


async def test_the_next_of_a_chain_starts_when_the_one_before_has_settled() -> None:
    class Slow(Log):
        async def on_settled(self, job: Job, outcome: Outcome) -> None:
            self.lines.append(f"judging {job.call_id}")
            await settle()
            await super().on_settled(job, outcome)

    bench = Bench(
        Scripted(says("a"), resource="disk"), Scripted(says("b"), resource="disk"), hooks=Slow()
    )
    await bench.run()
    assert bench.log.lines == [
        "start c0",
        "judging c0",
        "settled c0 returned",
        "start c1",
        "judging c1",
        "settled c1 returned",
    ]


async def test_the_order_of_a_chain_is_the_models_order_whatever_fails() -> None:
    tools = [
        Scripted(raises(ToolError("x")) if index % 2 else says(""), sequential=index == 2)
        for index in range(5)
    ]
    bench = Bench(*tools)
    await bench.run()
    starts = [line for line in bench.log.lines if line.startswith("start")]
    assert starts == [f"start c{index}" for index in range(5)]
    for before, after in itertools.pairwise(range(5)):
        settled = next(n for n, line in enumerate(bench.log.lines) if f"settled c{before}" in line)
        assert settled < bench.log.lines.index(f"start c{after}")


# --- on_start -------------------------------------------------------------------------


async def test_on_start_is_awaited_before_the_tool_and_inside_its_slot() -> None:
    running = most = 0
    entered: list[str] = []

    class Dispatch(Log):
        async def on_start(self, job: Job) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await settle()
            assert job.call_id not in entered

    async def body(call: Call) -> object:
        nonlocal running
        entered.append(call.id)
        await settle()
        running -= 1
        return ""

    bench = Bench(*[Scripted(body)] * 6, hooks=Dispatch(), max_parallel=2)
    outcomes = await bench.run()
    assert most == 2
    assert len(entered) == 6
    assert all(outcome.dispatched for outcome in outcomes)


async def test_on_start_that_raises_keeps_the_tool_from_running() -> None:
    refused = OSError("disk full")
    ran: list[str] = []

    class Refusing(Log):
        async def on_start(self, job: Job) -> None:
            if job.call_id == "c0":
                raise refused

    async def body(call: Call) -> object:
        ran.append(call.id)
        return ""

    first, second = await Bench(Scripted(body), Scripted(body), hooks=Refusing()).run()
    assert (first.status, first.error, first.entered) == ("not_started", refused, 0)
    assert not first.dispatched
    assert second.status == "returned"
    assert ran == ["c1"]


# --- around ---------------------------------------------------------------------------


class Around(Log):
    """Hooks whose `around` a test gives."""

    def __init__(self, body: object) -> None:
        super().__init__()
        self._body = body

    async def around(self, job: Job, enter: Enter) -> ToolResult:
        return await self._body(job, enter)  # type: ignore[operator,no-any-return]


async def test_around_can_answer_without_entering() -> None:
    async def cached(job: Job, enter: Enter) -> ToolResult:
        return ToolResult("cached")

    bench = Bench(Scripted(forever), hooks=Around(cached))
    (outcome,) = await bench.run()
    assert outcome == Outcome(status="returned", result=ToolResult("cached"))
    assert "start c0" not in bench.log.lines


async def test_around_can_change_a_result() -> None:
    async def shout(job: Job, enter: Enter) -> ToolResult:
        return ToolResult(f"{(await enter()).output}!")

    (outcome,) = await Bench(Scripted(says("a")), hooks=Around(shout)).run()
    assert outcome.result == ToolResult("a!")
    assert outcome.entered == 1


async def test_around_can_turn_a_failure_into_a_result() -> None:
    async def forgive(job: Job, enter: Enter) -> ToolResult:
        try:
            return await enter()
        except ToolError as error:
            return ToolResult(f"never mind: {error}")

    (outcome,) = await Bench(Scripted(raises(ToolError("x"))), hooks=Around(forgive)).run()
    assert (outcome.status, outcome.result) == ("returned", ToolResult("never mind: x"))


async def test_what_around_raises_is_the_failure_of_the_job() -> None:
    async def forbid(job: Job, enter: Enter) -> ToolResult:
        raise ToolError("not today")

    (outcome,) = await Bench(Scripted(forever), hooks=Around(forbid)).run()
    assert (outcome.status, outcome.result) == ("failed", ToolResult("Error: not today"))
    assert outcome.entered == 0


async def again(job: Job, enter: Enter) -> ToolResult:
    try:
        return await enter()
    except ToolError:
        return await enter()


def failing_once() -> Scripted:
    tries = itertools.count()

    async def body(call: Call) -> object:
        if next(tries) == 0:
            raise ToolError("first")
        return "second"

    return Scripted(body)


@pytest.mark.parametrize("effect", ["none", "idempotent", "keyed"])
async def test_around_may_enter_again_where_the_effect_allows_it(effect: str) -> None:
    tool = failing_once()
    tool.effect = effect  # type: ignore[assignment]
    bench = Bench(tool, hooks=Around(again))
    (outcome,) = await bench.run()
    assert (outcome.result, outcome.entered) == (ToolResult("second"), 2)
    assert bench.log.lines == ["start c0", "start c0", "settled c0 returned"]


@pytest.mark.parametrize("effect", ["once", "transactional"])
async def test_nothing_enters_a_second_time_what_must_not_run_twice(effect: str) -> None:
    tool = failing_once()
    tool.effect = effect  # type: ignore[assignment]
    (outcome,) = await Bench(tool, hooks=Around(again)).run()
    assert (outcome.result, outcome.entered) == (ToolResult("Error: first"), 1)


async def test_a_second_entry_after_a_result_keeps_the_result() -> None:
    async def twice(job: Job, enter: Enter) -> ToolResult:
        await enter()
        return await enter()

    (outcome,) = await Bench(Scripted(says("a")), hooks=Around(twice)).run()
    assert (outcome.status, outcome.result, outcome.entered) == ("returned", ToolResult("a"), 1)


async def both(job: Job, enter: Enter) -> ToolResult:
    first, second = await asyncio.gather(enter(), enter(), return_exceptions=True)
    return first if isinstance(first, ToolResult) else ToolResult(f"{first} {second}")


@pytest.mark.parametrize(("effect", "entries"), [("once", 1), ("transactional", 1), ("keyed", 2)])
async def test_entering_twice_at_once_is_entering_a_second_time(
    effect: Effect, entries: int
) -> None:
    class Slow(Around):
        async def on_start(self, job: Job) -> None:
            await settle()

    (outcome,) = await Bench(Scripted(says("a"), effect=effect), hooks=Slow(both)).run()
    assert (outcome.result, outcome.entered) == (ToolResult("a"), entries)


async def in_time(job: Job, enter: Enter) -> ToolResult:
    """A hook with a time limit of its own; it passes at once."""
    try:
        async with asyncio.timeout(0.001):
            return await enter()
    except TimeoutError:
        raise ToolError("took too long") from None


async def test_a_time_limit_around_a_tool_without_an_effect_cancels_it() -> None:
    bench = Bench(Scripted(forever, effect="none"), Scripted(says("b")), hooks=Around(in_time))
    outcome, other = await bench.run()
    assert (outcome.status, outcome.result) == ("failed", ToolResult("Error: took too long"))
    assert not outcome.may_have_run
    assert other.result == ToolResult("b")
    await assert_nothing_is_left()


async def test_a_time_limit_around_a_tool_with_an_effect_leaves_it_its_grace() -> None:
    bench = Bench(Scripted(forever), hooks=Around(in_time), grace=5.0)
    task = bench.start()
    await asyncio.sleep(0.05)
    await bench.clock.advance(4.9)
    assert not task.done()
    await bench.clock.advance(0.1)
    (outcome,) = await task
    assert (outcome.status, outcome.may_have_run, outcome.result) == ("cancelled", True, None)


async def test_a_result_that_a_time_limit_around_the_tool_did_not_wait_for_is_not_lost() -> None:
    (outcome,) = await Bench(Scripted(until_told), hooks=Around(in_time)).run()
    assert (outcome.status, outcome.result) == ("returned", ToolResult("stopped: cancelled"))


async def test_an_entry_that_nobody_waits_for_ends_before_the_job_settles() -> None:
    entered = asyncio.Event()
    strays: list[asyncio.Future[ToolResult]] = []

    async def impatient(job: Job, enter: Enter) -> ToolResult:
        strays.append(asyncio.ensure_future(enter()))
        await entered.wait()
        return ToolResult("whatever")

    async def body(call: Call) -> object:
        entered.set()
        return await forever(call)

    bench = Bench(Scripted(body), hooks=Around(impatient), grace=5.0)
    task = bench.start()
    await bench.clock.advance(4.9)
    assert not task.done()
    await bench.clock.advance(0.1)
    (outcome,) = await task
    assert (outcome.status, outcome.may_have_run) == ("cancelled", True)
    with pytest.raises(Aborted):
        await strays[0]
    await assert_nothing_is_left()


async def test_nothing_enters_a_job_that_has_settled() -> None:
    kept: list[Enter] = []

    async def keeps(job: Job, enter: Enter) -> ToolResult:
        kept.append(enter)
        return ToolResult("")

    (outcome,) = await Bench(Scripted(says("a")), hooks=Around(keeps)).run()
    assert outcome.entered == 0
    with pytest.raises(CallEnded):
        await kept[0]()


async def test_around_cannot_make_known_what_nobody_knows() -> None:
    async def pretend(job: Job, enter: Enter) -> ToolResult:
        try:
            return await enter()
        except BaseException:  # noqa: BLE001 - that is the point
            return ToolResult("all is well")

    bench = Bench(
        Scripted(forever, timeout=1),
        Scripted(raises(Waits())),
        Scripted(raises(OutcomeUnknown())),
        hooks=Around(pretend),
        grace=1.0,
    )
    task = bench.start()
    await bench.clock.advance(5)
    slow, waiting, lost = await task
    assert (slow.status, slow.may_have_run, slow.result) == ("cancelled", True, None)
    assert waiting.status == "signalled"
    assert (lost.status, lost.may_have_run, lost.result) == ("failed", True, None)


# --- the handle -----------------------------------------------------------------------


async def test_a_tool_finds_its_call() -> None:
    async def body(call: Call) -> object:
        assert current_call() is call
        await asyncio.sleep(0)
        return f"{current_call().id} {call.name} {call.idempotency_key} {call.effect}"

    tool = Scripted(body, effect="keyed")
    batch = [
        Job(tool=tool, call_id=f"c{n}", name=f"n{n}", idempotency_key=f"k{n}") for n in range(3)
    ]
    outcomes = await Executor().run(batch)
    assert [outcome.result for outcome in outcomes] == [
        ToolResult(f"c{n} n{n} k{n} keyed") for n in range(3)
    ]
    with pytest.raises(ConfigError, match="outside a tool"):
        current_call()


async def test_a_tool_sees_the_context_of_the_job_that_enters_it() -> None:
    span: contextvars.ContextVar[str] = contextvars.ContextVar("span", default="")

    async def traced(job: Job, enter: Enter) -> ToolResult:
        span.set(f"{span.get()}/{job.call_id}")
        return await enter()

    async def body(call: Call) -> object:
        return span.get()

    span.set("run")
    first, second = await Bench(Scripted(body), Scripted(body), hooks=Around(traced)).run()
    assert first.result == ToolResult("run/c0")
    assert second.result == ToolResult("run/c1")
    assert span.get() == "run"


async def test_a_handle_refuses_after_its_call_has_ended() -> None:
    handles: list[Call] = []

    async def body(call: Call) -> object:
        handles.append(call)
        call.progress("open")
        await call.write_record("acme:job", {"id": 7})
        return ""

    await Bench(Scripted(body)).run()
    (handle,) = handles
    assert handle.id == "c0"
    with pytest.raises(CallEnded, match="'c0' has ended"):
        handle.progress("closed")
    with pytest.raises(CallEnded):
        await handle.write_record("acme:job", {})
    with pytest.raises(CallEnded):
        _ = handle.port


async def test_a_stray_task_that_uses_the_handle_later_is_refused() -> None:
    may_go = asyncio.Event()
    strays: list[asyncio.Task[None]] = []

    async def stray() -> None:
        await may_go.wait()
        current_call().progress("boo")

    async def body(call: Call) -> object:
        strays.append(asyncio.create_task(stray()))
        return ""

    await Bench(Scripted(body)).run()
    may_go.set()
    with pytest.raises(CallEnded):
        await strays[0]


async def test_records_go_to_the_port_of_the_job() -> None:
    class Port:
        def __init__(self) -> None:
            self.records: list[tuple[str, str, object]] = []

        async def write_record(self, call: Call, namespace: str, data: object) -> None:
            await asyncio.sleep(0)
            self.records.append((call.id, namespace, data))

    async def body(call: Call) -> object:
        await call.write_record("acme:job", {"id": 7})
        assert call.port is port
        return len(port.records)

    port = Port()
    (outcome,) = await Executor().run([Job(tool=Scripted(body), call_id="c", port=port)])
    assert outcome.result == ToolResult("1")
    assert port.records == [("c", "acme:job", {"id": 7})]


@pytest.mark.parametrize(
    ("namespace", "data", "error"),
    [
        ("job", {}, ConfigError),
        ("", {}, ConfigError),
        (":job", {}, ConfigError),
        ("acme:", {}, ConfigError),
        ("acme:job", object(), ConfigError),
    ],
)
async def test_a_record_that_no_log_could_hold_is_refused_where_nobody_records_too(
    namespace: str, data: object, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await Call(id="c", name="t").write_record(namespace, data)


# --- progress -------------------------------------------------------------------------


async def test_progress_comes_in_order_and_before_the_outcome() -> None:
    async def body(call: Call) -> object:
        for n in range(3):
            call.progress(f"{n}")
        await asyncio.sleep(0)
        call.progress("last")
        return ""

    bench = Bench(Scripted(body))
    await bench.run()
    assert bench.log.lines == [
        "start c0",
        "progress c0 0",
        "progress c0 1",
        "progress c0 2",
        "progress c0 last",
        "settled c0 returned",
    ]


async def test_progress_is_delivered_one_at_a_time() -> None:
    inside = 0

    class Slow(Log):
        async def on_progress(self, job: Job, partial: ToolResult) -> None:
            nonlocal inside
            inside += 1
            assert inside == 1
            await settle()
            inside -= 1
            await super().on_progress(job, partial)

    async def body(call: Call) -> object:
        for n in range(3):
            call.progress(f"{n}")
            await asyncio.sleep(0)
        return ""

    bench = Bench(*[Scripted(body) for _ in range(4)], hooks=Slow())
    await bench.run()
    for index in range(4):
        mine = [line for line in bench.log.lines if f" c{index}" in line]
        assert mine == [
            f"start c{index}",
            *[f"progress c{index} {n}" for n in range(3)],
            f"settled c{index} returned",
        ]
    await assert_nothing_is_left()


async def test_progress_carries_how_far_the_tool_is() -> None:
    seen: list[ToolResult] = []

    class Watch(Log):
        async def on_progress(self, job: Job, partial: ToolResult) -> None:
            seen.append(partial)

    async def body(call: Call) -> object:
        call.progress("half", done=1, total=2)
        call.progress(details={"rows": 3})
        return ""

    await Bench(Scripted(body), hooks=Watch()).run()
    assert seen == [
        ToolResult("half", details=ProgressInfo(done=1, total=2)),
        ToolResult("", details={"rows": 3}),
    ]


async def test_progress_does_not_run_in_the_context_of_the_tool() -> None:
    seen: list[str] = []

    class Watch(Log):
        async def on_progress(self, job: Job, partial: ToolResult) -> None:
            with pytest.raises(ConfigError):
                current_call()
            seen.append(job.call_id)

    async def body(call: Call) -> object:
        call.progress("x")
        return ""

    await Bench(Scripted(body), hooks=Watch()).run()
    assert seen == ["c0"]


# --- hooks that fail ------------------------------------------------------------------


async def test_a_subscriber_that_fails_stops_the_batch_and_every_job_still_settles() -> None:
    broken = OSError("subscriber")

    class Broken(Log):
        async def on_settled(self, job: Job, outcome: Outcome) -> None:
            await super().on_settled(job, outcome)
            if job.call_id == "c0":
                raise broken

    bench = Bench(
        Scripted(says("a"), name="quick"),
        Scripted(forever),
        Scripted(forever, resource="x"),
        Scripted(says("never"), resource="x"),
        hooks=Broken(),
        grace=1.0,
    )
    task = bench.start()
    await bench.clock.advance(10)
    with pytest.raises(OSError, match="subscriber") as caught:
        await task
    assert caught.value is broken
    statuses = {name: [one.status for one in each] for name, each in bench.log.outcomes.items()}
    assert statuses == {
        "c0": ["returned"],
        "c1": ["cancelled"],
        "c2": ["cancelled"],
        "c3": ["not_started"],
    }
    await assert_nothing_is_left()


async def test_a_failing_progress_subscriber_stops_the_batch() -> None:
    class Broken(Log):
        async def on_progress(self, job: Job, partial: ToolResult) -> None:
            await super().on_progress(job, partial)
            raise OSError("subscriber")

    async def body(call: Call) -> object:
        call.progress("a")
        call.progress("b")
        await asyncio.Event().wait()
        return ""

    bench = Bench(Scripted(body, effect="none"), hooks=Broken())
    with pytest.raises(OSError, match="subscriber"):
        await bench.batch.run()
    assert bench.log.lines == ["start c0", "progress c0 a", "settled c0 cancelled"]
    outcome = bench.log.outcomes["c0"][0]
    assert isinstance(outcome.error, Aborted)
    await assert_nothing_is_left()


async def test_outputs_of_finished_siblings_are_delivered_when_a_hook_fails() -> None:
    class Broken(Log):
        async def on_settled(self, job: Job, outcome: Outcome) -> None:
            await super().on_settled(job, outcome)
            raise OSError(job.call_id)

    bench = Bench(Scripted(says("a")), Scripted(says("b")), hooks=Broken())
    with pytest.raises(OSError, match="c0"):
        await bench.batch.run()
    results = [each[0].result for each in bench.log.outcomes.values()]
    assert results == [ToolResult("a"), ToolResult("b")]
