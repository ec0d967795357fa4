"""The work inside a call: steps that are taken once, and waits that outlive the process.

A *step* is a named piece of work whose result is recorded: a call that enters its tool again gets
it from the record. A *wait* unwinds the tool and frees the process; the call is entered again when
what it waits for has come, and finds its steps and its waits answered. Without a record both work
in place, for as long as the process lives.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, TypeAlias, TypeVar, cast, overload
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw

from perdure.clock import Clock, SystemClock
from perdure.errors import ConfigError, OutcomeUnknown, StepFailed, Suspend, ToolError
from perdure.log import Draft, Recording
from perdure.log.entries import Json, StepEntry
from perdure.log.recorder import Recorder
from perdure.log.work import CallWork, Wait
from perdure.loop import LoopPort
from perdure.loop.config import RunNested
from perdure.tools import Call, Effect, Tool, ToolResult, current_call, effect_of
from perdure.tools.effect import is_effect
from perdure.tools.result import json_text
from perdure.wire import FunctionCallOutput, decode_item, encode, function_call_output

T = TypeVar("T")

Work: TypeAlias = Callable[[], Awaitable[T]] | Callable[[], T]
"""What a step does: a function without arguments, async or sync."""

MAX_NAME = 200
"""How many characters the name of a step or a wait may have."""

INVOKED = "perdure:invoke/"
"""What the name of the step of a nested call begins with."""

RESERVED = "perdure:"
"""What no name of a step or a wait may begin with."""

WAITING: frozenset[Effect] = frozenset({"none", "idempotent", "keyed"})
"""The effects of tools that may wait: their calls are entered more than once (LOG 5.4)."""

_in_step: ContextVar[str] = ContextVar("perdure_step", default="")


class Recorded:
    """The work of one call, on the record of its drive."""

    def __init__(self, call: Call, recording: Recording, target: str) -> None:
        self.call = call
        self.recording = recording
        self.target = target
        self.running: dict[str, asyncio.Task[object]] = {}
        self.calls: dict[str, int] = {}
        """How many calls it has made, by tool."""

    @property
    def work(self) -> CallWork:
        """What the record says of it, with what is queued to be written."""
        return self.recording.view.work.of(self.target)

    async def write(self, kind: str, body: Json) -> None:
        """Write an entry about the call, durably."""
        named = {"call_id": self.call.id, "target": self.target, **body}
        await self.recording.append(Draft(kind, {n: v for n, v in named.items() if v is not None}))

    async def settle(self) -> None:
        """Wait until no step of the call runs; a wait unwinds only then (DESIGN 8)."""
        while self.running:
            await asyncio.wait(set(self.running.values()))


_works: WeakKeyDictionary[Call, Recorded] = WeakKeyDictionary()


def recorded_now() -> Recorded | None:
    """The work of the call that is running; None where nothing is recorded.

    Raises:
        ConfigError: No call is running here.
    """
    call = current_call()
    if call in _works:
        return _works[call]
    port = call.port
    ledger = port.ledger if isinstance(port, LoopPort) else None
    recording = ledger.recording if isinstance(ledger, Recorder) else None
    if recording is None:
        return None
    made = recording.view.calls.named(call.id)
    if made is None:  # a nested call, which is the work of the call that makes it
        return None
    _works[call] = Recorded(call, recording, made.entry)
    return _works[call]


@dataclasses.dataclass(frozen=True, slots=True)
class _Planned:
    """A step that is to be taken."""

    name: str
    work: Work[object]
    effect: Effect = "once"
    retries: int = 0
    timeout: float | None = None

    def check(self) -> None:
        """Refuse what cannot be taken.

        Raises:
            ConfigError: It cannot.
        """
        _check_name(self.name, "step")
        if not is_effect(self.effect) or self.effect == "transactional":
            raise ConfigError(f"a step cannot have the effect {self.effect!r}")
        if self.retries < 0:
            raise ConfigError(f"retries must not be negative, got {self.retries!r}")
        if self.retries and self.effect == "once":
            raise ConfigError("a step whose effect is 'once' is not tried again")
        if self.timeout is not None and not self.timeout > 0:
            raise ConfigError(f"timeout must be positive, got {self.timeout!r}")


# --- steps ---------------------------------------------------------------------------------------


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
    if _in_step.get():
        raise ConfigError(f"step {name!r} is asked for inside step {_in_step.get()!r}")
    recorded = recorded_now()
    if recorded is None:
        return cast("T", msgspec.json.decode(json_text(await _tried(planned))))
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
    names = [name for name, _ in steps]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"two steps are named {twice[0]!r}")
    for name, work in steps:
        _Planned(name, work, effect).check()
    if most is not None and most < 1:
        raise ConfigError(f"most must be at least 1, got {most!r}")
    slots = asyncio.Semaphore(most or max(len(steps), 1))

    async def one(name: str, work: Work[object]) -> object:
        async with slots:
            return await step(name, work, effect=effect)

    tasks = [asyncio.ensure_future(one(name, work)) for name, work in steps]
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


async def _step(recorded: Recorded, planned: _Planned) -> object:
    """A step on the record: what it gave, or what it gives now."""
    name, effect = planned.name, planned.effect
    if name in recorded.running:
        raise ConfigError(f"step {name!r} of this call is running; give another a name of its own")
    known = recorded.work.steps.get(name)
    if known is not None and known.end is not None:
        return _result(known.end)
    if known is not None and known.start is not None and "once" in (known.start.effect, effect):
        raise OutcomeUnknown(f"step {name!r} may have taken effect")
    task = asyncio.get_running_loop().create_task(
        _taken(recorded, planned), name=f"perdure-step-{name}"
    )
    recorded.running[name] = task
    task.add_done_callback(lambda _: recorded.running.pop(name, None))
    port = recorded.call.port
    if isinstance(port, LoopPort):
        port.attend(task)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if effect == "none":
            task.cancel()
        raise


async def nested_step(call: Call, tool: Tool, arguments: str, run: RunNested) -> ToolResult:
    """A call that a tool makes, as a step of its own call, with the effect of its tool (LOG 5.5).

    It is named by its tool and its place among the calls of that tool, so a tool that makes its
    calls in the same order again gets their results from the record.

    Raises:
        ToolError: It failed or was refused, now or before.
        OutcomeUnknown: It may have taken effect, and must not be made again.
    """
    recorded = recorded_now()
    if recorded is None or recorded.call is not call or _in_step.get():
        return await run("")
    place = recorded.calls[tool.name] = recorded.calls.get(tool.name, 0) + 1
    name = f"{INVOKED}{tool.name}/{place}"
    key = f"{call.idempotency_key}/{name}"

    async def work() -> object:
        given = await run(key)
        shown = function_call_output(call.id, given.output)
        return msgspec.json.decode(encode(shown))

    effect = effect_of(tool, arguments or "{}")
    item = await _step(recorded, _Planned(name, work, effect))
    output = decode_item(msgspec.json.encode(item))
    return ToolResult(output.output) if isinstance(output, FunctionCallOutput) else ToolResult("")


async def _taken(recorded: Recorded, planned: _Planned) -> object:
    name, effect = planned.name, planned.effect
    if effect in ("once", "keyed"):
        key = f"{recorded.call.idempotency_key}/{name}"
        start: Json = {"phase": "start", "name": name, "effect": effect, "idempotency_key": key}
        await recorded.write("perdure:step", start)
        recorded.recording.held.check()
    end: Json = {"phase": "end", "name": name, "effect": effect}
    try:
        text = json_text(await _tried(planned))
    except OutcomeUnknown:
        raise
    except ToolError as error:
        await recorded.write("perdure:step", {**end, "error": str(error)})
        raise
    except Exception as error:
        if effect != "once":
            raise
        raise OutcomeUnknown(f"step {name!r} may have taken effect: {error}") from error
    await recorded.write("perdure:step", {**end, "result": Raw(text.encode())})
    return msgspec.json.decode(text)


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
    context.run(_in_step.set, planned.name)
    task = asyncio.get_running_loop().create_task(_called(planned.work), context=context)
    try:
        async with asyncio.timeout(planned.timeout):
            return await task
    except TimeoutError:
        if planned.effect != "once":
            raise
        late = f"step {planned.name!r} outlived its {planned.timeout} s"
        raise OutcomeUnknown(late) from None


async def _called(work: Work[object]) -> object:
    given = work()
    return await given if inspect.isawaitable(given) else given


def _result(end: StepEntry) -> object:
    if end.error:
        raise StepFailed(end.name, end.error)
    return msgspec.json.decode(bytes(end.result))


def _check_name(name: str, what: str) -> None:
    if not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise ConfigError(f"a {what} has a printable name of 1 to {MAX_NAME} characters")
    if name.startswith(RESERVED):
        raise ConfigError(f"the name {name!r} is reserved; names do not begin with {RESERVED!r}")


# --- waits ---------------------------------------------------------------------------------------


async def sleep(name: str, seconds: float) -> None:
    """Wait for some time; the process may die meanwhile.

    The time counts from when the call first came here.

    Args:
        name: Unique among the sleeps of the call.
        seconds: How long.

    Raises:
        ConfigError: The name cannot be used, or the effect of the tool forbids a wait.
    """
    if not seconds >= 0:
        raise ConfigError(f"seconds must not be negative, got {seconds!r}")
    await _sleep(name, lambda clock: clock.wall() + round(seconds * 1e9))


async def sleep_until(name: str, wall: int) -> None:
    """Wait until a time, in nanoseconds since the Unix epoch. Raises as `sleep`."""
    await _sleep(name, lambda _: wall)


async def _sleep(name: str, due: Callable[[Clock], int]) -> None:
    recorded = _waiting(name, "sleep")
    if recorded is None:
        here = SystemClock()
        await here.sleep((due(here) - here.wall()) / 1e9)
        return
    clock = recorded.recording.clock
    wait = await _begun(recorded, "sleep", name, due(clock))
    if wait.end is None:
        if (wait.begin.due or 0) > clock.wall():
            await _suspend(recorded, f"it sleeps: {name}")
        await _ended(recorded, wait, "due")


async def wait_for(
    name: str,
    *,
    timeout: float | None = None,  # noqa: ASYNC109 - how long it may take over restarts
) -> object:
    """Wait for a signal of the run; one that came before counts.

    Args:
        name: The signal, as `Runs.signal` gives it.
        timeout: Seconds from when the call first came here; None to wait for ever.

    Returns:
        What came with the signal, as plain JSON values.

    Raises:
        TimeoutError: The time was up first. That stands, also if the signal comes later.
        ConfigError: The name cannot be used, the effect of the tool forbids a wait, or nothing is
            recorded here.
    """
    if timeout is not None and not timeout >= 0:
        raise ConfigError(f"timeout must not be negative, got {timeout!r}")
    recorded = _must_be_recorded(_waiting(name, "signal"), "a signal")
    clock = recorded.recording.clock
    due = None if timeout is None else clock.wall() + round(timeout * 1e9)
    wait = await _begun(recorded, "signal", name, due)
    if wait.end is None:
        signal = recorded.recording.view.work.signals.get(name)
        if signal is not None:
            await _ended(recorded, wait, "signal", signal.value)
        elif wait.begin.due is not None and wait.begin.due <= clock.wall():
            await _ended(recorded, wait, "timeout")
        else:
            await _suspend(recorded, f"it waits for the signal {name!r}")
    end = recorded.work.waits["signal", name].end
    if end is None or end.outcome == "timeout":
        raise TimeoutError(f"the signal {name!r} did not come in time")
    return msgspec.json.decode(bytes(end.value))


async def interrupt(key: str, prompt: str, type: type[T]) -> T:  # noqa: A002 - the natural word
    """Ask a person, and wait for the answer, however long it takes.

    Args:
        key: Unique among the questions of the call.
        prompt: What is asked; it is shown with the call that waits.
        type: What the answer has to be. One that is not is refused.

    Raises:
        ConfigError: The key cannot be used, the effect of the tool forbids a wait, or nothing is
            recorded here.
    """
    recorded = _must_be_recorded(_waiting(key, "interrupt"), "a question")
    schema = msgspec.json.schema(type)
    wait = await _begun(recorded, "interrupt", key, None)
    if wait.end is None:
        asked = {"prompt": prompt, "schema": schema, "status": "input_required"}
        await _suspend(recorded, f"it asks: {prompt}", {"kind": "interrupt", "name": key, **asked})
    end = recorded.work.waits["interrupt", key].end
    return msgspec.json.decode(bytes(end.value) if end is not None else b"null", type=type)


def _waiting(name: str, kind: str) -> Recorded | None:
    _check_name(name, kind)
    if _in_step.get():
        raise ConfigError(f"step {_in_step.get()!r} cannot wait; wait between steps")
    call = current_call()
    if call.effect not in WAITING:
        raise ConfigError(
            f"tool {call.name!r} has the effect {call.effect!r} and cannot wait: declare none, "
            "idempotent or keyed, and put what it does to the world into steps"
        )
    return recorded_now()


def _must_be_recorded(recorded: Recorded | None, what: str) -> Recorded:
    if recorded is None:
        raise ConfigError(f"nobody could answer {what} here: give the agent a store")
    return recorded


async def _begun(recorded: Recorded, kind: str, name: str, due: int | None) -> Wait:
    """The wait of a name, as it began first."""
    key = kind, name
    if key not in recorded.work.waits:
        body: Json = {"phase": "begin", "kind": kind, "name": name, "due": due}
        await recorded.write("perdure:wait", body)
    return recorded.work.waits[key]


async def _ended(recorded: Recorded, wait: Wait, outcome: str, value: Raw | None = None) -> None:
    begin = wait.begin
    body: Json = {"phase": "end", "kind": begin.kind, "name": begin.name, "outcome": outcome}
    await recorded.write("perdure:wait", {**body, "value": value})


async def _suspend(recorded: Recorded, why: str, wait: Json | None = None) -> None:
    """Unwind the tool.

    Raises:
        Suspend: Always.
    """
    await recorded.settle()
    recorded.call.suspend()
    due = recorded.work.due
    begun = recorded.work.open_waits
    shown: Json = wait or {"kind": begun[-1].begin.kind, "name": begun[-1].begin.name}
    raise Suspend(why, wait={**shown, **({"due": due} if due is not None else {})}, due=due)
