"""Driving a run: whoever holds the lease does what the record says is next, until it rests.

Each pass takes the messages that wait, makes a plan from the record, and does it. Nothing is kept
between two passes but the record, so it does not matter whose process does the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Literal, Protocol, TypeAlias

from perdure.durable.cancelling import cancel_children, cancel_run, saga_cancelled
from perdure.durable.consuming import Authority, Taken, consume
from perdure.durable.control import LOST, Control, Rested
from perdure.durable.driven import Driven, Handle
from perdure.durable.gates import settle_gates
from perdure.durable.late import late_sink, report_unrecorded
from perdure.durable.leftovers import refuse_leftovers
from perdure.durable.plan import NO_LIMITS, Close, Drive, Outlook, Rest, limits_left, plan
from perdure.durable.progress import Progress
from perdure.durable.readiness import ready_calls
from perdure.durable.reconciling import reconcile
from perdure.durable.sagas.rollback import is_rolled_back, roll_back
from perdure.durable.spending import account_of
from perdure.errors import Aborted, LeaseExpired, StopRequested, Tripped
from perdure.log import Draft, Recording, Session
from perdure.loop import Answer, Broadcast, Limits, Opening, RunEnd, Trigger
from perdure.loop.account import Account

POLL = 1.0
"""Seconds between two looks for a stop while a drive runs."""

Point = Literal["taken", "counted", "planned", "driven", "closing", "closed"]
"""Named places at which a test may stop a driver: messages were judged, votes were counted, the
next step is known, a drive has ended, the run is about to be closed, it was."""

At: TypeAlias = Callable[[Point], None]


def passing(point: Point) -> None:
    """Go on: what drivers do at every point unless a test says otherwise."""


class Watcher(Protocol):
    """Watches how a run is driven."""

    def look(self, session: Session, *, waits: bool = False) -> None:
        """See the record of the run, each time it was read.

        Args:
            session: The record; it may grow later.
            waits: Somebody else drives the run, and is waited for.
        """
        ...

    def ended(self, end: RunEnd) -> None:
        """Hear how a drive of ours ended, also if that could not be made durable."""
        ...


class Nobody:
    """Watches nothing."""

    __slots__ = ()

    def look(self, session: Session, *, waits: bool = False) -> None:
        """See the record."""

    def ended(self, end: RunEnd) -> None:
        """Hear how a drive ended."""


NOBODY = Nobody()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Driving:
    """How a run is driven."""

    consumers: Broadcast | None = None
    trigger: Trigger | None = None
    principal: str = ""
    """For whom a run is begun; what the record says of one that is there stands."""
    poll: float = POLL
    at: At = passing
    watcher: Watcher = NOBODY
    account: Account | None = None
    """That of whoever started the run."""
    control: Control = dataclasses.field(default_factory=Control)


async def drive_until_rest(driven: Driven, recording: Recording, driving: Driving) -> Rested:
    """Drive a run under its lease until there is nothing more to do.

    Raises:
        ConfigError: The agent could not send a request; what was written stands.
        LogError: The store refuses.
        NoProgress: Its drives end, and its record does not say so.
    """
    end: RunEnd | None = None
    progress = Progress(recording.session)
    while True:
        settled = await _settle(driven, recording, driving)
        if isinstance(settled, Rested):
            return settled
        if isinstance(settled, Recording):
            recording = settled
            continue
        outlook = await _outlook(driven, recording, progress.begun)
        step = progress.planned(plan(outlook, settled))
        if isinstance(step, Rest) and step.status == "halted":
            step = plan(outlook, await reconcile(_authority(driven, recording), outlook.tools))
        driving.at("planned")
        if driving.control.cause is not None and isinstance(step, Drive):
            return Rested(status="aborted", end=end)
        match step:
            case Drive(opening):
                end = progress.ended(
                    await _drive(driven, recording, driving, opening, limits_left(outlook)),
                    recording.session,
                )
                driving.at("driven")
                if isinstance(end.error, Tripped):
                    await recording.recorder.appender.ticket  # raises if the failure is not durable
                    end = None
                elif end.reason in ("error", "aborted"):
                    if not await _told_to_stop(recording, end):
                        status = "failed" if end.reason == "error" else "aborted"
                        return Rested(status=status, end=end)
                    end = None  # the stop is what comes of it
            case Close(status, cause):
                driving.at("closing")
                await _close(recording, status, cause)
                driving.at("closed")
            case Rest(status):
                await refuse_leftovers(driven, recording)
                return Rested(status=status, end=end)


# --- before the plan ---------------------------------------------------------------------------


async def _settle(
    driven: Driven, recording: Recording, driving: Driving
) -> Mapping[str, Answer] | Recording | Rested:
    """Do what comes before any plan: a rollback, what the run was told, what votes decide.

    Returns:
        Answers by call, for the plan. Or a recording, if something was written: the next pass has
        that. Or where the driver stopped.
    """
    if is_rolled_back(recording):
        return await _roll_back(driven, recording, driving) or recording.again()
    taken = await _take(driven, recording)
    driving.at("taken")
    if taken.drafts:
        await recording.append(*taken.drafts)
        return recording.again()
    if taken.cancel is not None and recording.session.header.is_saga:
        await recording.append(saga_cancelled(*taken.cancel))
        return recording
    if taken.cancel is not None:
        await cancel_children(recording, ids=driven.ids)
        await cancel_run(recording, *taken.cancel, ids=driven.ids)
        return recording.again()
    if await settle_gates(driven, recording, taken.answers):
        driving.at("counted")
        return recording.again()
    return taken.answers


async def _roll_back(driven: Driven, recording: Recording, driving: Driving) -> Rested | None:
    async def forth(driven: Driven, recording: Recording, opening: Opening) -> RunEnd:
        return await _drive(driven, recording, driving, opening, NO_LIMITS)

    try:
        return await roll_back(driven, recording, driving.control, forth)
    except Aborted:
        return Rested(status="aborted")


async def _take(driven: Driven, recording: Recording) -> Taken:
    messages = await recording.store.unconsumed(recording.session.id)
    if not messages:
        return Taken()
    return consume(_authority(driven, recording), messages)


def _authority(driven: Driven, recording: Recording) -> Authority:
    return Authority(view=recording.view, now=driven.clock.wall())


async def _outlook(driven: Driven, recording: Recording, begun: int) -> Outlook:
    tools = await driven.tools_now()
    now = driven.clock.wall()

    def is_ours(entry: str) -> bool:
        return recording.session.place(entry) >= begun

    return Outlook(
        session=recording.session,
        view=recording.view,
        tools=tools,
        limits=driven.limits,
        begun=begun,
        correction=driven.correction(recording.transcript.snapshot()),
        ready=await ready_calls(
            recording.store,
            recording.view,
            tools,
            now,
            is_ours=is_ours,
            limits=driven.limits,
        ),
    )


async def _close(recording: Recording, status: str, cause: str) -> None:
    """Close a run, unless it was told to stop: the next pass takes that up (LOG 9)."""
    body = {"status": status, "cause": cause}
    with contextlib.suppress(StopRequested):
        await recording.append(Draft("perdure:closed", {n: v for n, v in body.items() if v}))


# --- one drive ---------------------------------------------------------------------------------


async def _drive(
    driven: Driven,
    recording: Recording,
    driving: Driving,
    opening: Opening,
    limits: Limits,
) -> RunEnd:
    tools = await driven.tools_now()
    recording.on_late = late_sink(recording)
    account = await account_of(driven, recording.store, recording.session, driving.account)
    handle = await driven.begin(
        recording.transcript,
        opening,
        consumers=driving.consumers,
        call_ids=recording.call_ids,
        trigger=driving.trigger,
        pending=recording.pending(tools),
        recording=recording,
        limits=limits,
        account=account,
    )
    driving.control.handle = handle
    if driving.control.cause is not None:
        handle.abort(driving.control.cause)
    async with _watching(recording, handle, driving.poll):
        end = await handle.wait()
    driving.watcher.ended(end)
    if end.reason in ("error", "aborted"):
        await report_unrecorded(recording)
    return end


@contextlib.asynccontextmanager
async def _watching(recording: Recording, handle: Handle, poll: float) -> AsyncGenerator[None]:
    """Stop the drive when a stop is put, or when the lease is not safe any more (LOG 2.3)."""
    task = asyncio.get_running_loop().create_task(
        _watch(recording, handle, poll), name=f"perdure-watch-{recording.session.id}"
    )
    held = recording.held
    first = held.on_lost is None  # a child's end comes with that of its root's drive
    if first:
        held.on_lost = handle.abort
    try:
        yield
    finally:
        if first:
            held.on_lost = None
        task.cancel()
        await asyncio.wait([task])


async def _watch(recording: Recording, handle: Handle, poll: float) -> None:
    while not handle.done:
        await asyncio.sleep(poll)
        if not recording.held.is_safe():
            handle.abort(LeaseExpired(recording.lease.root))
        elif await _stop_waits(recording):
            handle.abort("the run was cancelled")
            return


async def _told_to_stop(recording: Recording, end: RunEnd) -> bool:
    """Whether a stop waits that this driver takes up: the root's, not a child's."""
    if recording.session.id != recording.lease.root:
        return False
    return not isinstance(end.error, LOST) and await _stop_waits(recording)


async def _stop_waits(recording: Recording) -> bool:
    messages = await recording.store.unconsumed(recording.lease.root)
    return any(message.stop for message in messages)
