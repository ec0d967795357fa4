"""Any batch, stopped in any way at any time, keeps the executor's promises."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Literal

from hypothesis import given, strategies as st

from perdure.errors import ToolError
from perdure.testing.clock import FakeClock, settle
from perdure.tools import (
    EFFECTS,
    Call,
    Effect,
    Executor,
    Job,
    Outcome,
    ToolResult,
    abandoned,
    chains,
)
from tests.tools.batches import Log, Scripted, assert_nothing_is_left

GRACE, LINGER = 5.0, 1.0

WITHOUT_EFFECT: tuple[Effect, ...] = ("none", "transactional")
"""Effects whose bodies do nothing to the world; a transactional one's does, in the store."""

Behaviour = Literal["returns", "raises", "obeys", "swallows", "deaf", "cancels itself"]
Stop = Literal["none", "stop", "stop twice", "cancel", "cancel twice"]


@dataclasses.dataclass(frozen=True)
class Planned:
    """What one tool does."""

    behaviour: Behaviour
    seconds: float
    effect: Effect
    resource: str | None
    timeout: float | None
    shows: int


TIMES = st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0])

PLANNED = st.builds(
    Planned,
    behaviour=st.sampled_from(["returns", "raises", "obeys", "swallows", "deaf", "cancels itself"]),
    seconds=TIMES,
    effect=st.sampled_from(EFFECTS),
    resource=st.sampled_from([None, "disk", "net"]),
    timeout=st.sampled_from([None, None, 0.5, 3.0]),
    shows=st.integers(0, 2),
)


def tool_of(plan: Planned, clock: FakeClock) -> Scripted:
    async def body(call: Call) -> object:
        for number in range(plan.shows):
            call.progress(f"{number}")
        match plan.behaviour:
            case "obeys":
                await call.cancelled
            case "swallows":
                try:
                    await clock.sleep(plan.seconds)
                except asyncio.CancelledError:
                    return "swallowed"
            case "deaf":
                end = clock.monotonic() + 20
                while clock.monotonic() < end:
                    try:
                        await clock.sleep(end - clock.monotonic())
                    except asyncio.CancelledError:
                        continue
            case "cancels itself":
                await clock.sleep(plan.seconds)
                raise asyncio.CancelledError
            case "raises":
                await clock.sleep(plan.seconds)
                raise ToolError("raised")
            case "returns":
                await clock.sleep(plan.seconds)
        return "returned"

    return Scripted(
        body, effect=plan.effect, resource=plan.resource, timeout=plan.timeout, name="tool"
    )


@given(
    plans=st.lists(PLANNED, max_size=6),
    stop=st.sampled_from(["none", "stop", "stop twice", "cancel", "cancel twice"]),
    when=TIMES,
    max_parallel=st.integers(1, 4),
)
def test_every_job_has_one_outcome_that_tells_the_truth(
    plans: list[Planned], stop: Stop, when: float, max_parallel: int
) -> None:
    asyncio.run(scenario(plans, stop, when, max_parallel))


async def scenario(plans: list[Planned], stop: Stop, when: float, max_parallel: int) -> None:
    clock, hooks = FakeClock(), Log()
    if stop == "none":  # else a tool that obeys never ends
        plans = [
            dataclasses.replace(plan, timeout=plan.timeout or 3.0)
            if plan.behaviour == "obeys"
            else plan
            for plan in plans
        ]
    jobs = [Job(tool=tool_of(plan, clock), call_id=f"c{n}") for n, plan in enumerate(plans)]
    executor = Executor(clock=clock, grace=GRACE, linger=LINGER, max_parallel=max_parallel)
    batch = executor.batch(jobs, hooks)
    task = asyncio.create_task(batch.run())
    await clock.advance(when)
    if stop.startswith("stop"):
        batch.stop()
    if stop.startswith("cancel"):
        task.cancel()
    if stop.endswith("twice"):
        await settle()
        if stop == "stop twice":
            batch.stop(grace=False)
        else:
            task.cancel()
    await clock.advance(200)
    assert task.done()

    outcomes = hooks.outcomes
    assert sorted(outcomes) == sorted(job.call_id for job in jobs)
    for plan, job in zip(plans, jobs, strict=True):
        (outcome,) = outcomes[job.call_id]
        check(plan, outcome)
        check_progress(hooks.lines, job.call_id, plan, outcome)
        if job.call_id in hooks.late:
            assert outcome.status == "abandoned"
            assert plan.effect not in WITHOUT_EFFECT
    check_chains(hooks.lines, jobs)
    assert not abandoned()
    await assert_nothing_is_left()


def check(plan: Planned, outcome: Outcome) -> None:
    assert (outcome.entered == 0) == (outcome.status == "not_started")
    assert outcome.dispatched == (outcome.entered > 0)
    unknown = outcome.status in {"cancelled", "abandoned"}
    assert outcome.may_have_run == (unknown and plan.effect not in WITHOUT_EFFECT)
    assert (outcome.result is None) == (unknown or outcome.status == "not_started")
    assert (outcome.error is None) == (outcome.status == "returned")
    match outcome.status:
        case "returned":
            assert outcome.result in {ToolResult("returned"), ToolResult("swallowed")}
        case "failed":
            assert plan.behaviour in {"raises", "cancels itself"} or (
                plan.effect in WITHOUT_EFFECT and plan.timeout is not None
            )
        case "abandoned":
            assert plan.behaviour == "deaf"
        case _:
            pass


def check_progress(lines: list[str], call_id: str, plan: Planned, outcome: Outcome) -> None:
    """In order, all of it, and none after the outcome."""
    mine = [line for line in lines if line.split()[1] == call_id and not line.startswith("late")]
    shown = [f"progress {call_id} {n}" for n in range(plan.shows)] if outcome.entered else []
    started = [f"start {call_id}"] if outcome.entered else []
    assert mine == [*started, *shown, f"settled {call_id} {outcome.status}"]


def check_chains(lines: list[str], jobs: list[Job]) -> None:
    """What starts in a chain starts after all before it have settled."""
    for chain in chains(jobs):
        names = {jobs[index].call_id for index in chain}
        inside = [line.split()[:2] for line in lines if line.split()[1] in names]
        running = 0
        for what, _ in inside:
            running += (what == "start") - (what == "settled" and running > 0)
            assert running <= 1
