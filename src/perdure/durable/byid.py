"""Runs by id: called again, whatever died meanwhile, they go on, or give what was recorded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from perdure.durable.control import LOST, Rested
from perdure.durable.driven import Driven
from perdure.durable.driver import Driving, drive_until_rest
from perdure.durable.late import send_again
from perdure.durable.leftovers import waiting_below
from perdure.durable.spending import tree_spend, with_own_limits
from perdure.durable.starting import begin_run
from perdure.durable.state import RunState, read_run, state_of, waiting_calls
from perdure.errors import Leased, LogError, RunBusy
from perdure.log import Header, Recording, Session, Store, go_on
from perdure.loop import Hidden
from perdure.wire import Item

LOOK_AGAIN = (0.02, 0.05, 0.1, 0.25, 0.5)
"""Seconds between looks at a run that somebody else drives; the last stays."""


class Ran:
    """How a run stands after somebody asked for it, and what its last drive failed with."""

    __slots__ = ("error", "state")

    def __init__(self, state: RunState, error: BaseException | None = None) -> None:
        self.state = state
        self.error = error


class Taken(NamedTuple):
    """How a run stands after somebody took it up."""

    status: str
    due: int | None
    """When it wants to be driven, in nanoseconds since the Unix epoch."""
    error: BaseException | None = None
    """What its last drive failed with."""


async def run_by_id(
    driven: Driven,
    store: Store,
    run_id: str,
    prompts: Sequence[Item | Hidden],
    *,
    kind: str = "run",
    saga: bool = False,
    wait: bool = True,
    driving: Driving | None = None,
) -> Ran:
    """Begin a run, go on with it, wait for whoever drives it, or give what was recorded.

    Args:
        driven: The agent.
        store: Where the run is.
        run_id: What it is called.
        prompts: Its input, which an id is bound to.
        kind: What kind of run it is.
        saga: Whether it is all or nothing.
        wait: Wait for another driver; else it is refused.
        driving: How it is driven.

    Raises:
        ConfigError: The id or the input cannot begin a run, or no request can be sent.
        RunMismatch: The id is bound to another input or kind.
        RunBusy: Another driver has it, and `wait` is false.
        LogError: The store refuses.
    """
    driving = driving or Driving()
    session = await begin_run(
        driven,
        store,
        run_id,
        prompts,
        kind=kind,
        saga=saga,
        trigger=driving.trigger,
        principal=driving.principal,
    )
    return await go_on_with(driven, store, session, wait=wait, driving=driving)


async def go_on_with(
    driven: Driven,
    store: Store,
    session: Session,
    *,
    wait: bool = True,
    driving: Driving | None = None,
) -> Ran:
    """Drive a run that was begun, until it rests. Arguments and errors are `run_by_id`'s."""
    driving = driving or Driving()
    run_id = session.header.run.id if session.header.run is not None else session.id
    await send_again(store)
    while True:
        driving.watcher.look(session)
        if driving.control.cause is not None or await _is_over(store, session):
            return Ran(await _state(driven, store, session))
        recording = await _opened(driven, store, session.id, run_id, driving, wait=wait)
        if recording is None:
            session = await read_run(store, session.id)
            continue
        driving.watcher.look(recording.session)
        rested = await _owned(driven, recording, driving)
        session = await read_run(store, session.id)
        driving.watcher.look(session)
        if not rested.lost:
            status = rested.status if rested.error is None else "failed"
            return Ran(await _state(driven, store, session, status), rested.error)
        if not wait:
            raise RunBusy(run_id)


async def take_up(
    driven: Driven, store: Store, header: Header, driving: Driving | None = None
) -> Taken | None:
    """Drive a run that nobody drives, as a recovery does; it is read once it is ours.

    Returns:
        How it stands; None if it was over, and there was nothing to do.

    Raises:
        RunBusy: Another driver has it; nothing of it was read.
        NoSession: It was deleted.
        LogError: The store refuses.
    """
    driving = driving or Driving()
    run_id = header.run.id if header.run is not None else header.id
    await send_again(store)
    recording = await _opened(driven, store, header.id, run_id, driving, wait=False)
    if recording is None:
        raise RunBusy(run_id)
    driving.watcher.look(recording.session)
    found = recording.session.version
    rested = await _owned(driven, recording, driving)
    if rested.lost:
        raise RunBusy(run_id)
    view = recording.session.view()
    if view.closed is not None and recording.session.version == found:
        return None
    status = rested.status if rested.error is None else "failed"
    return Taken(status, view.due, rested.error)


_drivers: set[asyncio.Task[Rested]] = set()


async def _owned(driven: Driven, recording: Recording, driving: Driving) -> Rested:
    """Drive in a task of our own: a caller that is cancelled leaves, the driver ends in order."""
    task = asyncio.get_running_loop().create_task(
        _driven(driven, recording, driving), name=f"perdure-driver-{recording.session.id}"
    )
    _drivers.add(task)
    task.add_done_callback(_drivers.discard)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            driving.control.abort("the caller was cancelled")
            await _wind_down(task, driven)
        raise


async def _wind_down(task: asyncio.Task[Rested], driven: Driven) -> None:
    """Wait for a driver to end, for at most `wind_down` seconds, also if cancelled again."""
    timer = asyncio.get_running_loop().create_task(driven.clock.sleep(driven.wind_down))
    try:
        while not (task.done() or timer.done()):
            waited: set[asyncio.Task[Rested] | asyncio.Task[None]] = {task, timer}
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
    if task.done() and not task.cancelled():
        _ = task.exception()


async def _driven(driven: Driven, recording: Recording, driving: Driving) -> Rested:
    recording.keep_lease(max_stall=driven.max_stall)
    try:
        driven = with_own_limits(driven, recording.view)
        return await drive_until_rest(driven, recording, driving)
    except LOST:  # the record says what became of the run
        return Rested(status="running", gone=True)
    finally:
        with contextlib.suppress(LogError):  # what could not be written was told to the inbox
            await recording.close()


async def _is_over(store: Store, session: Session) -> bool:
    """Whether the run was closed, and nobody has told it, or one of its sub-agents, anything."""
    if session.view().closed is None or await store.unconsumed(session.id):
        return False
    return not await waiting_below(store, session)


async def _state(driven: Driven, store: Store, session: Session, status: str = "") -> RunState:
    pending = await waiting_calls(store, session, await driven.tools_now())
    return state_of(session, pending, status, spend=await tree_spend(store, session))


async def _opened(
    driven: Driven, store: Store, session: str, run_id: str, driving: Driving, *, wait: bool
) -> Recording | None:
    """The run under a lease of ours; None if there is nothing to wait for any more.

    Whoever drove it has closed it meanwhile, or we were told to stop.
    """
    delays = list(LOOK_AGAIN)
    while True:
        try:
            return await go_on(
                store,
                session,
                seconds=driven.lease,
                keep=driven.keep,
                clock=driven.clock,
                ids=driven.ids,
            )
        except Leased as leased:
            if not wait:
                raise RunBusy(run_id, leased.holder) from None
        await asyncio.sleep(delays[0] if len(delays) == 1 else delays.pop(0))
        found = await read_run(store, session)
        driving.watcher.look(found, waits=True)
        if found.view().closed is not None or driving.control.cause is not None:
            return None
