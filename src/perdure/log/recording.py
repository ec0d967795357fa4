"""A session that is being driven: its lease, its recorder, and what a drive begins with.

`record` makes a session, `go_on` takes up one that is there, `open_named` does what is called for:
each takes the lease, so that nobody else drives it, and gives a `Recording`, whose recorder is the
ledger of the drives to come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from perdure.clock import Clock, Ids, RandomIds, SystemClock
from perdure.errors import CorruptLog, NameTaken
from perdure.log.agents_below import come_below
from perdure.log.appender import Appender
from perdure.log.approvals import standing_of
from perdure.log.context import item_of
from perdure.log.elicitations import RecordedElicitor
from perdure.log.entries import MESSAGE, Json
from perdure.log.environment import Env, EnvAsked, EnvSource, ask, env_of
from perdure.log.header import Header, new_header
from perdure.log.ids import new_session_id
from perdure.log.leases import DEFAULT_SECONDS, MAX_STALL, Held, take_lease
from perdure.log.origins import origins_of
from perdure.log.path import View
from perdure.log.reading import read_lines
from perdure.log.recorded_requests import RequestLog
from perdure.log.recorder import Keep, Recorder
from perdure.log.resuming import (
    close_drive,
    mend_response,
    owed_inputs,
    owed_results,
    pending_of,
    recorded_items,
    replay_answers,
    reserved_call_ids,
    stale_outputs,
    transcript_of,
)
from perdure.log.session import Session
from perdure.log.store import Lease, Store, named_session
from perdure.log.timestamps import timestamp
from perdure.log.writing import Draft
from perdure.loop import Answer, CallIds, PendingCall, Transcript, Trigger, Waiting
from perdure.loop.config import visible_to_model
from perdure.loop.gates import Standing
from perdure.tools import Call, Elicitor, ToolResult, ToolSet
from perdure.wire import Request


class Recording:
    """A session under a lease. Entering it is not needed; leaving it lets go of the session."""

    def __init__(
        self,
        store: Store,
        held: Held,
        recorder: Recorder,
        again: Callable[[], Recording],
        clock: Clock,
    ) -> None:
        self.clock = clock
        self._again = again
        self.store = store
        self.held = held
        recorder.recording = self
        self.recorder = recorder
        """The ledger for `perdure.loop.begin`."""
        self.session = recorder.appender.session
        view = recorder.appender.view
        self.transcript: Transcript = transcript_of(view)
        """What drives go on from; it grows with them."""
        self.call_ids = CallIds(reserved_call_ids(self.session))
        self.host: EnvSource | None = None
        """Says where the work of its drives happens."""
        self.inherited: Env | None = None
        """Of a sub-agent's session: where its parent works, in case there is no host."""
        self.on_late: Callable[[str, ToolResult], None] | None = None
        """Hears of a result that comes after its call's drive gave it up."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Write what is queued, and give the lease back."""
        try:
            await self.recorder.close()
        finally:
            if not self.session.header.root:
                await self.held.release()

    @property
    def halts(self) -> bool:
        """Whether it is a run by id, which halts on a call whose outcome is unknown (DESIGN 5)."""
        return self.session.header.run is not None

    @property
    def lease(self) -> Lease:
        """The lease it is written under."""
        return self.held.lease

    @property
    def view(self) -> View:
        """What the record says, with what is queued to be written."""
        return self.recorder.appender.view

    def keep_lease(self, *, max_stall: float = MAX_STALL) -> None:
        """Renew the lease from time to time, until `close`, where it lapses.

        Args:
            max_stall: Seconds for which the event loop may be blocked and still keep it.
        """
        self.held.keep(max_stall=max_stall)

    def again(self) -> Recording:
        """Make it anew from the record, after its driver wrote entries of its own."""
        made = self._again()
        made.host, made.inherited = self.host, self.inherited
        return made

    async def ask_environment(self) -> None:
        """Ask where the work of the next drive happens; its start writes what has changed.

        Raises:
            ConfigError: What the host says is no environment.
        """
        in_force = env_of(self.view.env)
        before = self.inherited if in_force is None else in_force
        if self.host is None:
            self.recorder.environment = before
            return
        header = self.session.header
        asked = EnvAsked(
            session=header.id,
            parent=header.parent_session if header.spawned_by else "",
            call_id=header.spawned_by,
            agent=header.agent,
            before=before,
        )
        self.recorder.environment = await ask(self.host, asked)

    async def append(self, *drafts: Draft) -> None:
        """Write entries of the driver's own, durably; those that name a message consume it.

        Raises:
            LogError: The store refuses.
        """
        consumed = [str(draft.body[MESSAGE]) for draft in drafts if MESSAGE in draft.body]
        await self.recorder.appender.add(drafts, consumed=consumed)

    def pending(self, tools: ToolSet) -> tuple[PendingCall, ...]:
        """The calls that have no output, from the record."""
        return pending_of(self.recorder.appender.view, self.session, tools)

    def standing(self, call_id: str) -> Standing | None:
        """What the record says of the last gate of a call; the `gates` of a loop's config."""
        view = self.view
        return standing_of(view.calls.open.get(call_id), view.approvals, self.session)

    def replay(self, tools: ToolSet) -> tuple[Answer, ...]:
        """What the record and the tools' effects answer to pending calls."""
        return replay_answers(self.view, self.session, tools)

    def waiting(self) -> tuple[Waiting, ...]:
        """The inputs that are owed, for the queues of the next drive.

        Whoever takes them up owes them from now on; the end of the next drive closes what nobody
        took up.
        """
        view = self.recorder.appender.view
        self.recorder.claim(owed_inputs(view))
        owed = view.queues.owed.values()
        return tuple(
            Waiting(
                id=one.queue_id or one.id,
                item=item_of(one.item),
                mode="follow_up" if one.mode == "followup" else "steer",
                hidden=not one.visible,
                trigger=_trigger(one.trigger),
            )
            for one in owed
        )

    def elicitor(self, elicitor: Elicitor) -> Elicitor:
        """The same, with every question recorded before it is put, and every reply."""
        return RecordedElicitor(elicitor, self.recorder)

    async def write_record(self, call: Call, namespace: str, data: object) -> None:
        """The `recorder` of a loop's config: a tool's own record, durable when it returns."""
        await self.recorder.write_record(call.id, namespace, data)


def _trigger(members: Json | None) -> Trigger | None:
    if members is None:
        return None
    named = {name: members.get(name) for name in ("kind", "ref", "source")}
    extra = {name: value for name, value in members.items() if name not in named}
    return Trigger(**{n: str(v) for n, v in named.items() if v}, extra=extra)


async def record(
    store: Store,
    *,
    header: Header | None = None,
    name: str = "",
    cwd: str = "",
    holder: str = "",
    seconds: float = DEFAULT_SECONDS,
    settings: Request | None = None,
    keep: Keep = visible_to_model,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> Recording:
    """Make a session and record into it.

    Args:
        store: Where.
        header: What it is; a fresh id by default.
        name: A name by which to find it again.
        cwd: The directory that it is listed under.
        holder: Who drives it, for those who find it leased; this process unless given.
        seconds: How long its lease holds without being renewed, after its process died, say.
        settings: The settings of its drives, so that they stand first.
        keep: Which items a model is shown.
        clock: Where timestamps come from.
        ids: Where ids and salts come from.

    Raises:
        LogError: The store refuses, as its methods say.
    """
    clock, ids = clock or SystemClock(), ids or RandomIds()
    if header is None:
        made = new_session_id(clock, ids)
        header = new_header(made, timestamp(clock.wall()), name=name, cwd=cwd)
    await store.create(header, name=name)
    held = await take_lease(store, header.lease_root, holder=holder, seconds=seconds)
    return _recording(store, held, Session(header), settings, keep, clock, ids)


async def go_on(
    store: Store,
    session: str,
    *,
    holder: str = "",
    seconds: float = DEFAULT_SECONDS,
    settings: Request | None = None,
    keep: Keep = visible_to_model,
    clock: Clock | None = None,
    ids: Ids | None = None,
    held: Held | None = None,
    wait: float = 0.0,
) -> Recording:
    """Take up a session, and mend what a crash left of it (LOG 9). The arguments are `record`'s.

    What it was forked from is read from the store. A child goes on under the lease of its root,
    which `held` gives. Another's lease is waited for, `wait` seconds at most: that of a process
    that was killed lapses in time.

    Raises:
        CorruptLog: The session does not verify; nothing is written to it.
        Leased: Another driver has it.
        LogError: The store refuses, as its methods say.
    """
    clock, ids = clock or SystemClock(), ids or RandomIds()
    own = held is None
    if held is None:
        held = await take_lease(store, session, holder=holder, seconds=seconds, wait=wait)
    try:
        stored = await store.read(session)
        origins = await origins_of(store, stored.header)
        reading = read_lines(stored.header, stored.lines, origins=origins)
        if reading.faults:
            first = reading.faults[0]
            raise CorruptLog(f"{first.kind}: {first.reason}", line=first.line)
        recording = _recording(store, held, reading.session, settings, keep, clock, ids)
        return await _mended(recording)
    except BaseException:
        if own:
            await held.release()
        raise


async def _mended(recording: Recording) -> Recording:
    appender = recording.recorder.appender
    version = appender.session.version
    until = appender.view.path[-1].ts if appender.view.path else ""
    is_cut = appender.view.is_program and appender.view.drives.open is not None
    session = appender.session.id
    below = await come_below(recording.store, session, appender.view) if is_cut else 0

    def close(view: View) -> Sequence[Draft]:
        return close_drive(view, until, below)

    def place(view: View) -> Sequence[Draft]:
        return owed_results(view, in_order=recording.halts)

    mends = (mend_response, place, close) if appender.view.drives.open else ()
    for mend in (stale_outputs, *mends):
        _ = appender.add(mend)
    await appender.ticket
    if appender.session.version == version:
        return recording
    return recording.again()


def _recording(  # noqa: PLR0917 - what both ways in have
    store: Store,
    held: Held,
    session: Session,
    settings: Request | None,
    keep: Keep,
    clock: Clock,
    ids: Ids,
) -> Recording:
    appender = Appender(store, session, held.lease.fence, clock=clock, ids=ids)
    view = appender.view
    recorder = Recorder(
        appender,
        RequestLog(view.folding.settings.current, recorded_items(view)),
        clock=clock,
        ids=ids,
        settings=settings,
        keep=keep,
        may_enter=held.check,
    )

    def again() -> Recording:
        return _recording(store, held, session, settings, keep, clock, ids)

    return Recording(store, held, recorder, again, clock)


async def open_named(
    store: Store,
    name: str,
    *,
    cwd: str = "",
    holder: str = "",
    seconds: float = DEFAULT_SECONDS,
    keep: Keep = visible_to_model,
    clock: Clock | None = None,
    ids: Ids | None = None,
    wait: float = 0.0,
) -> Recording:
    """Take up the session of a name, or make it. The arguments are `record`'s and `go_on`'s.

    Raises:
        Leased: Another driver has it.
        LogError: The store refuses, as its methods say.
    """
    found = await named_session(store, name)
    session = found.id if found is not None else ""
    if not session:
        try:
            return await record(
                store,
                name=name,
                cwd=cwd,
                holder=holder,
                seconds=seconds,
                keep=keep,
                clock=clock,
                ids=ids,
            )
        except NameTaken as error:  # somebody was faster
            session = error.session
    return await go_on(
        store,
        session,
        holder=holder,
        seconds=seconds,
        keep=keep,
        clock=clock,
        ids=ids,
        wait=wait,
    )
