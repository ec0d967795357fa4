"""Steps: work inside a call that is recorded, and taken once.

A call that enters its tool again gets the results of its steps from the record. Without a record
they run in place.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast, overload

import msgspec
from msgspec import Raw

from perdure.counts import check_count
from perdure.durable.callwork import (
    ProgramPort,
    Recorded,
    around_step,
    check_between_steps,
    recorded_now,
    step_now,
)
from perdure.durable.given import check_name, check_work
from perdure.durable.invoked import link_child, suspend_for_agent
from perdure.errors import ConfigError, OutcomeUnknown, StepFailed, Suspend, ToolError
from perdure.log.entries import Json, StepEntry
from perdure.log.nested import INVOKED, encodable, nested_place
from perdure.loop import LoopPort
from perdure.loop.config import RunNested
from perdure.seconds import check_seconds
from perdure.tools import Call, Effect, Tool, ToolResult, current_call, effect_of
from perdure.tools.effect import is_effect
from perdure.tools.result import given_json
from perdure.tools.tool import is_subsession
from perdure.wire import FunctionCallOutput, decode_item, encode, function_call_output

T = TypeVar("T")

Work: TypeAlias = Callable[[], Awaitable[T]] | Callable[[], T]
"""What a step does: a function without arguments, async or sync."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Planned:
    """A step that is to be taken."""

    name: str
    work: Work[object]
    effect: Effect = "once"
    retries: int = 0
    timeout: float | None = None
    asked: Json = dataclasses.field(default_factory=dict[str, object])
    """What its start says besides."""
    told: Json = dataclasses.field(default_factory=dict[str, object])
    """What its end says besides; the work puts it there."""

    def check(self) -> None:
        """Refuse what cannot be taken.

        Raises:
            ConfigError: It cannot.
        """
        check_name(self.name, "step")
        check_work(self.name, self.work)
        if not is_effect(self.effect) or self.effect == "transactional":
            raise ConfigError(
                f"step {self.name!r} cannot have the effect {self.effect!r}: "
                "it is none, idempotent, keyed or once"
            )
        check_count(f"retries of step {self.name!r}", self.retries, least=0)
        if self.retries and self.effect == "once":
            raise ConfigError(
                f"step {self.name!r} is not tried again, as its effect is 'once': leave out retries"
            )
        if self.timeout is not None:
            check_seconds(f"the timeout of step {self.name!r}", self.timeout)


@overload
async def step(
    name: str,
    work: Callable[[], Awaitable[T]],
    *,
    effect: Effect = ...,
    retries: int = ...,
    timeout: float | None = ...,  # noqa: ASYNC109
) -> T: ...
@overload
async def step(
    name: str,
    work: Callable[[], T],
    *,
    effect: Effect = ...,
    retries: int = ...,
    timeout: float | None = ...,  # noqa: ASYNC109
) -> T: ...
async def step(
    name: str,
    work: Work[T],
    *,
    effect: Effect = "once",
    retries: int = 0,
    timeout: float | None = None,  # noqa: ASYNC109 - the step's own time, not the caller's
) -> T:
    """Do a named piece of work, and record what it gave; a call that is entered again gets that.

    A step whose effect is `once` and that a crash cut halts its run. One that fails with a
    `ToolError` did nothing, for certain, and fails again when it is asked for again; whatever else
    a `once` step raises leaves open what it did.

    Args:
        name: Unique within the call; the same name again gives the first result.
        work: A function without arguments. What it returns must be JSON, and comes back as the
            plain values of its JSON.
        effect: What it does to the world; any but `transactional`.
        retries: How often it is tried again if it fails; not for `once`.
        timeout: Seconds that one try may take.

    Raises:
        StepFailed: It failed before, and the record says so.
        OutcomeUnknown: It may have taken effect, and must not be tried again.
        ConfigError: The name, the effect or the retries cannot be used, or no call is running.
        CallEnded: The call has ended.
    """
    planned = _Planned(name, work, effect, retries, timeout)
    planned.check()
    check_between_steps(f"step {name!r}")
    recorded = recorded_now()
    if recorded is None:
        return cast("T", msgspec.json.decode(_json(planned, await _tried(planned))))
    return cast("T", await _step(recorded, planned))


@overload
async def parallel(
    steps: Sequence[tuple[str, Callable[[], Awaitable[T]]]],
    *,
    effect: Effect = ...,
    most: int | None = ...,
) -> list[T]: ...
@overload
async def parallel(
    steps: Sequence[tuple[str, Callable[[], T]]], *, effect: Effect = ..., most: int | None = ...
) -> list[T]: ...
async def parallel(
    steps: Sequence[tuple[str, Work[object]]], *, effect: Effect = "once", most: int | None = None
) -> list[Any]:
    """Take several steps at once; every one is taken, also if another fails.

    Args:
        steps: A name and a function for each.
        effect: What each does to the world.
        most: How many run at once; None for all.

    Returns:
        What they gave, in their order.

    Raises:
        ConfigError: Two share a name, or a name cannot be used; nothing has run.
        ExceptionGroup: What those raised that failed.
    """
    pairs = _pairs(steps)
    for name, work in pairs:
        _Planned(name, work, effect).check()
    twice = [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]
    if twice:
        raise ConfigError(f"two steps are named {min(twice)!r}; give each a name of its own")
    if most is not None:
        check_count("most", most)
    if pairs:
        check_between_steps(f"step {pairs[0][0]!r}")
        _ = recorded_now()  # a call has to be running
    slots = asyncio.Semaphore(most or max(len(pairs), 1))

    async def one(name: str, work: Work[object]) -> object:
        async with slots:
            return await step(name, work, effect=effect)

    tasks = [asyncio.ensure_future(one(name, work)) for name, work in pairs]
    if tasks:
        try:
            await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
    errors = [error for task in tasks if (error := task.exception()) is not None]
    if errors:
        raise BaseExceptionGroup("steps failed", errors)
    return [task.result() for task in tasks]


def _pairs(steps: object) -> list[tuple[str, Work[object]]]:
    """The steps of a `parallel`, each a name and a function.

    Raises:
        ConfigError: They are none.
    """
    pairs: list[tuple[str, Work[object]]] = []
    if not isinstance(steps, Iterable) or isinstance(steps, str | bytes | Mapping):
        raise ConfigError(f"parallel takes a list, as [('look', look)], not {steps!r:.60}")
    for one in cast("Iterable[object]", steps):
        if not isinstance(one, tuple | list) or len(cast("Sequence[object]", one)) != 2:
            raise ConfigError(f"parallel takes pairs, as ('look', look), not {one!r:.60}")
        pairs.append(cast("tuple[str, Work[object]]", one))
    return pairs


async def _step(recorded: Recorded, planned: _Planned) -> object:
    """A step on the record: what it gave, or what it gives now."""
    name, effect = planned.name, planned.effect
    if name in recorded.running:
        raise ConfigError(f"step {name!r} of this call is running; give another a name of its own")
    known = recorded.work.steps.get(name)
    if known is not None and known.end is not None:
        return _result(known.end)
    if known is not None and known.start is not None and "once" in (known.start.effect, effect):
        error = OutcomeUnknown(f"step {name!r} may have taken effect")
        recorded.doubt(error)
        raise error
    task = asyncio.get_running_loop().create_task(
        _taken(recorded, planned), name=f"perdure-step-{name}"
    )
    recorded.running[name] = task
    task.add_done_callback(lambda _: recorded.running.pop(name, None))
    task.add_done_callback(_retrieved)
    port = recorded.call.port
    if isinstance(port, LoopPort | ProgramPort):
        port.attend(task)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if effect == "none":
            task.cancel()
        raise


async def nested_step(call: Call, tool: Tool, arguments: str, run: RunNested) -> ToolResult:
    """A call that a tool makes, as a step of its own call, with the effect of its tool (LOG 5.5).

    It is known by its tool and its arguments, and among equal ones by its number, so a tool that
    makes the same calls again gets their results from the record, in whatever order it makes them.

    Raises:
        ToolError: It failed or was refused, now or before.
        OutcomeUnknown: It may have taken effect, and must not be made again; or it is an agent that
            waits, and the call cannot.
        ConfigError: It is an agent, and its work could not be found again.
        Suspend: It is an agent that waits.
    """
    recorded = recorded_now()
    if recorded is None or recorded.call is not call or step_now.get():
        if is_subsession(tool):
            raise ConfigError(
                f"agent {tool.name!r} is invoked inside a step or by a tool that was invoked, and "
                "would begin anew after a crash: invoke it in the tool that the model calls"
            )
        return (await run("", "")).result
    place = nested_place(recorded.calls, tool.name, arguments)
    name = f"{INVOKED}{place}"
    key = f"{call.idempotency_key}/{name}"
    child = f"{call.id}/{place}" if is_subsession(tool) else ""

    asked: Json = {"arguments": encodable(arguments or "{}")}
    told: Json = {}

    async def work() -> object:
        if child:
            await link_child(recorded, child)
        given, told["arguments"] = await run(key, child)
        shown = function_call_output(call.id, given.output)
        return msgspec.json.decode(encode(shown))

    effect = effect_of(tool, arguments or "{}")
    try:
        item = await _step(recorded, _Planned(name, work, effect, asked=asked, told=told))
    except Suspend as waits:
        await suspend_for_agent(recorded, name, waits)
    if isinstance(item, str):  # somebody said what it gave
        return ToolResult(item)
    output = decode_item(msgspec.json.encode(item))
    return ToolResult(output.output) if isinstance(output, FunctionCallOutput) else ToolResult("")


async def _taken(recorded: Recorded, planned: _Planned) -> object:
    name, effect = planned.name, planned.effect
    if effect in ("once", "keyed"):
        key = f"{recorded.call.idempotency_key}/{name}"
        start: Json = {"phase": "start", "name": name, "effect": effect, "idempotency_key": key}
        await recorded.write("perdure:step", {**start, **planned.asked})
        recorded.recording.held.check()
    end: Json = {"phase": "end", "name": name, "effect": effect}
    try:
        given = await _tried(planned)
    except OutcomeUnknown as error:
        raise _doubted(recorded, planned, error) from None
    except ToolError as error:
        await recorded.write("perdure:step", {**end, "error": str(error)})
        raise
    except Exception as error:
        if effect != "once":
            raise
        why = str(error) or type(error).__name__
        unknown = OutcomeUnknown(f"step {name!r} may have taken effect: {why}")
        raise _doubted(recorded, planned, unknown) from error
    except BaseException as error:
        unknown = OutcomeUnknown(f"step {name!r} was cut off, and may have taken effect")
        _ = _doubted(recorded, planned, unknown)
        if effect != "once" or not isinstance(error, asyncio.CancelledError) or _is_cancelled():
            raise
        raise unknown from error
    try:
        text = _json(planned, given)
    except ConfigError as error:
        if effect != "once":
            raise
        raise _doubted(recorded, planned, OutcomeUnknown(str(error))) from None
    await recorded.write("perdure:step", {**end, **planned.told, "result": Raw(text.encode())})
    return msgspec.json.decode(text)


def _json(planned: _Planned, given: object) -> str:
    """What a step gave, as JSON text.

    Raises:
        ConfigError: It has none.
    """
    return given_json(given, f"step {planned.name!r} ran, and what it returned")


def _doubted(recorded: Recorded, planned: _Planned, error: OutcomeUnknown) -> OutcomeUnknown:
    """The error, noted where its call is judged: no tool can make it up (DESIGN 8)."""
    if planned.effect == "once":
        recorded.doubt(error)
    return error


def _retrieved(task: asyncio.Task[object]) -> None:
    """Have seen what a step failed with: its call may be cut before, and it stands noted."""
    if not task.cancelled():
        _ = task.exception()


def _is_cancelled() -> bool:
    here = asyncio.current_task()
    return here is not None and here.cancelling() > 0


def step_key() -> str:
    """The idempotency key of the step that is being taken: the same when it is taken again.

    Raises:
        ConfigError: No step is being taken here, or its call has no key.
    """
    name, key = step_now.get(), current_call().idempotency_key
    if not name or not key:
        raise ConfigError("step_key() was called outside a step")
    return f"{key}/{name}"


async def _tried(planned: _Planned) -> object:
    """Do the work, again where it failed and may be tried again."""
    for _ in range(planned.retries):
        try:
            return await _once(planned)
        except ToolError:
            raise
        except Exception:  # noqa: BLE001, S112 - the work may raise anything, and is tried again
            continue
    return await _once(planned)


async def _once(planned: _Planned) -> object:
    context = contextvars.copy_context()
    context.run(step_now.set, planned.name)
    task = asyncio.get_running_loop().create_task(_called(planned), context=context)
    limit = asyncio.timeout(planned.timeout)
    try:
        async with limit:
            return await task
    except TimeoutError:
        if not limit.expired():  # the work's own
            raise
        late = f"step {planned.name!r} outlived its {planned.timeout:g} s"
        raise (OutcomeUnknown if planned.effect == "once" else TimeoutError)(late) from None


async def _called(planned: _Planned) -> object:
    around = around_step.get()
    if around is None:
        return await _worked(planned.work)
    return await around(planned.name, planned.effect, lambda: _worked(planned.work))


async def _worked(work: Work[object]) -> object:
    given = work()
    return await given if inspect.isawaitable(given) else given


def _result(end: StepEntry) -> object:
    if end.error:
        raise StepFailed(end.name, end.error)
    return msgspec.json.decode(bytes(end.result))
