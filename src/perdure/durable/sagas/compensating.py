"""Running a compensator: told before it is entered, told when it ended, and entered again if not.

A crash between the two lets it run again (LOG 5.9), so it gets the same key each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
from collections.abc import Callable, Generator

from perdure.durable.control import Control
from perdure.durable.sagas.plan import Undo
from perdure.errors import Aborted, CompensationFailed, Suspend, ToolTimeout
from perdure.log import Draft, Recording
from perdure.log.entries import Json
from perdure.loop import DEFAULT_GRACE
from perdure.tools import Call, Compensation
from perdure.tools.call import CallState, running_call
from perdure.tools.compensation import call_compensator
from perdure.tools.tool import compensator_of, timeout_of


async def compensate(
    recording: Recording, control: Control, undo: Undo
) -> CompensationFailed | None:
    """Undo one call; gives what kept it from being undone.

    Raises:
        Aborted: The driver was told to stop; what the compensator did is not known.
        LeaseExpired: The lease is not safe any more; the compensator was not entered.
        LogError: The store refuses.
    """
    named: Json = {
        "call_id": undo.call.call_id,
        "target": undo.call.entry,
        "session": undo.branch.session.id,
        "tool": undo.name,
        **({"step": undo.step} if undo.step else {}),
    }
    start: Json = {**named, "phase": "start", "idempotency_key": undo.key}
    await recording.append(Draft("perdure:compensation", start))
    recording.held.check()
    error = await _undone(recording, control, undo)
    end: Json = {**named, "phase": "end", **({"error": error} if error else {})}
    await recording.append(Draft("perdure:compensation", end))
    return CompensationFailed(undo.call.call_id, undo.name, error) if error else None


async def _undone(recording: Recording, control: Control, undo: Undo) -> str:
    """Enter the compensator; gives what it failed with, in words."""
    saga = recording.view.saga
    run = recording.session.header.run
    compensation = Compensation(
        call_id=undo.call.call_id,
        tool=undo.name,
        arguments=undo.arguments,
        output=undo.output,
        idempotency_key=undo.key,
        attempt=saga.of(undo.done).attempts,
        run_id=run.id if run is not None else "",
        cause=saga.tripped.cause if saga.tripped is not None else "",
    )
    state = CallState()
    context = contextvars.copy_context()
    context.run(running_call.set, _handle(undo, state))
    task = asyncio.get_running_loop().create_task(
        _entered(undo, compensation), name=f"perdure-undo-{undo.call.call_id}", context=context
    )
    lost: list[Exception] = []
    try:
        with _stopping(recording, control, task, lost.append):
            await asyncio.wait([task])
    finally:
        state.closed = True
        task.cancel()
    if lost:
        raise lost[0]
    if task.cancelled():
        raise Aborted(str(control.cause or "cancelled"))
    error = task.exception()
    if error is None:
        return ""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise error
    return str(error) or type(error).__name__


def _handle(undo: Undo, state: CallState) -> Call:
    """What `current_call` gives in a compensator."""
    return Call(
        id=undo.call.call_id,
        name=undo.name,
        arguments=undo.arguments,
        idempotency_key=undo.key,
        effect="idempotent",
        state=state,
    )


async def _entered(undo: Undo, compensation: Compensation) -> None:
    compensator = compensator_of(undo.tool) if undo.tool is not None else None
    if compensator is None or undo.tool is None:
        return
    timeout = timeout_of(undo.tool)
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            await call_compensator(functools.partial(compensator, compensation))
    except TimeoutError:
        if timeout is not None and limit.expired():
            raise ToolTimeout(undo.name, timeout) from None
        raise
    except Suspend:
        raise RuntimeError("a compensator cannot wait for a signal, a time or a person") from None


@contextlib.contextmanager
def _stopping(
    recording: Recording,
    control: Control,
    task: asyncio.Task[None],
    tell: Callable[[Exception], None],
) -> Generator[None]:
    """Cancel a compensator when its driver is told to stop, or at once when its lease is lost."""
    held, loop = recording.held, asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []

    def lost(error: Exception) -> None:
        tell(error)
        task.cancel()

    def stop() -> None:
        timers.append(loop.call_later(DEFAULT_GRACE, task.cancel))

    before, held.on_lost = held.on_lost, lost
    try:
        with control.listening(stop):
            yield
    finally:
        held.on_lost = before
        for timer in timers:
            timer.cancel()
