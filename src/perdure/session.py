"""A live conversation: one transcript, one drive at a time, and queues for what comes meanwhile."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Generic, NamedTuple, Self

from perdure.errors import AlreadyRunning, ConfigError, InputRequired, NotPending
from perdure.loop import (
    Answer,
    Broadcast,
    CallIds,
    DriveHandle,
    Hidden,
    Items,
    Opening,
    PendingCall,
    QueueMode,
    Queues,
    RunEnd,
    Subscriber,
    Transcript,
    Trigger,
    Waiting,
    check_answers,
    check_opening,
    holds_up,
    ids_of,
    refuse_references,
    unhide,
)
from perdure.loop.drive import refuse_strange_outputs
from perdure.loop.pending import pending_in
from perdure.output.contract import OutputT
from perdure.prompts import Input, prompt_items
from perdure.result import RunResult, exchange_result, read_result
from perdure.stream import RunStream
from perdure.tools import ToolResult, ToolSet
from perdure.wire import FunctionCallOutput, Item

if TYPE_CHECKING:
    from perdure.agent import Agent
    from perdure.log import Recording, Store


class Delivered(NamedTuple, Generic[OutputT]):
    """What became of a delivery."""

    joined: bool
    """A request of the run that was going on carried it."""
    result: RunResult[OutputT] | None = None
    """The run that the delivery started, or that took it and ended before a request carried it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """A session at one moment."""

    transcript: Items
    running: bool
    """From the start of a drive until its end was told to everybody."""
    run_id: str
    turn: int
    steering: tuple[Item | Hidden, ...]
    follow_ups: tuple[Item | Hidden, ...]
    pending: tuple[PendingCall, ...]


class Session(Generic[OutputT]):
    """A conversation that is kept. Enter it; leaving it aborts what still runs.

    One drive runs at a time. A second `send` waits for its turn; `steer`, `follow_up` and `queue`
    never wait, and may be called from anywhere, also from a subscriber. A subscriber that steers on
    the events of what it steered feeds the session for ever.
    """

    def __init__(
        self,
        agent: Agent[OutputT],
        *,
        transcript: Transcript | Iterable[Item] = (),
        pending: Sequence[PendingCall] = (),
        name: str = "",
        store: str | Store = "",
        wait: float = 0.0,
        principal: str = "",
    ) -> None:
        self._principal = principal
        self._agent = agent
        self._name = name
        self._store = store
        self._wait = wait
        self._recording: Recording | None = None
        self._transcript = (
            transcript if isinstance(transcript, Transcript) else Transcript(transcript)
        )
        self._call_ids = CallIds(ids_of(self._transcript.snapshot()))
        self._queues = Queues()
        self._subscribers: list[Subscriber] = []
        self._turn_to_drive = asyncio.Lock()
        self._keys: dict[str, asyncio.Lock] = {}
        self._late = False
        """A result came late, and is in the inbox, or on its way there."""
        self._handle: DriveHandle | None = None
        self._starting = False
        self._stopped: BaseException | str | None = None
        """Why the drive that is being started is to stop."""
        self._closed = False
        self._pending = pending_in(self._transcript.snapshot(), pending)

    async def __aenter__(self) -> Self:
        self._closed = False
        if self._store and self._recording is None:
            await self._record(self._agent.opened(self._store))
        return self

    async def _record(self, store: Store) -> None:
        """Take up the recorded session, or make it."""
        from perdure.session_record import take_up

        recording, tools = await take_up(self._agent, store, self._name, wait=self._wait)
        self._take_up(recording, tools)
        try:
            await self._take_messages(recording)
        except BaseException:  # whoever could not enter does not leave, and keeps no lease
            self._recording = None
            await recording.close()
            raise

    async def _take_votes(self) -> None:
        """Take up what people said of calls that wait for their votes."""
        waits = any(one.gate is not None for one in self._pending)
        if waits and self._recording is not None and not self._is_running():
            await self._take_messages(self._recording)

    async def _take_messages(self, recording: Recording) -> None:
        """Take up what the inbox holds: votes; a late result is refused on record (LOG 5.10)."""
        from perdure.durable.chats import take_messages
        from perdure.durable.late import sent

        self._late = False
        await sent()
        again = await take_messages(self._agent, recording)
        if again is not None:
            self._take_up(again, await self._agent.tools_now())

    def _heard_late(self, call_id: str, result: ToolResult) -> None:
        """A tool that was given up gave a result."""
        from perdure.durable.late import late_sink

        if self._recording is not None:
            self._late = True
            late_sink(self._recording)(call_id, result)

    def _take_up(self, recording: Recording, tools: ToolSet) -> None:
        """Go on from what the record says."""
        self._recording = recording
        recording.held.on_lost = self.abort  # the loser does no more (LOG 2.3)
        recording.on_late = self._heard_late
        self._transcript = recording.transcript
        self._call_ids = recording.call_ids
        self._pending = recording.pending(tools)
        known = {one.id for one in (*self._queues.steering, *self._queues.follow_ups)}
        for waiting in recording.waiting():
            if waiting.id not in known:
                self._queues.owe(waiting)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closed = True
        self.abort("the session was closed")
        try:
            if self._handle is not None:
                await self._handle.wind_down()
        finally:
            if self._recording is not None:
                self._write_queued()
                recording, self._recording = self._recording, None
                await recording.close()

    # --- driving ---------------------------------------------------------------------

    async def send(
        self,
        input: Input,  # noqa: A002
        *,
        key: str = "",
        trigger: Trigger | None = None,
    ) -> RunResult[OutputT]:
        """Say something and run until the agent is idle. While a drive runs, wait for its end.

        While calls are pending, an input that opens with an output for each of them answers them.

        Args:
            input: What is said.
            key: Of a recorded session: what is said under a key is said once. Said again, after a
                crash or because a message was delivered twice, it goes on where the record ends,
                or gives the recorded answer.
            trigger: What caused it.

        Raises:
            ConfigError: The key was used for another input, or the session is not recorded.
            RunFailed: The drive ended in error.
            InputRequired: Calls are pending and the input does not answer them.
            NotPending: A leading output names a call that is not pending.
            AlreadyRunning: It was called from inside the drive that it would wait for.
        """
        prompts = prompt_items(input)
        if not key:
            return await self._send(prompts, trigger)
        async with self._keys.setdefault(key, asyncio.Lock()):
            return await self._send_once(key, prompts, trigger)

    async def _send_once(
        self, key: str, prompts: Sequence[Item | Hidden], trigger: Trigger | None
    ) -> RunResult[OutputT]:
        from perdure.session_record import said_under, under_key

        if self._recording is None:
            raise ConfigError("a key needs a record: give the agent a store, the session a name")
        await self.wait_for_idle()
        exchange = said_under(self._recording, key, prompts)
        if exchange is None:
            return await self._send(prompts, under_key(trigger, key))
        if exchange.finished or exchange.superseded:
            return exchange_result(exchange, self._agent.plan)
        replay = await self._replay()
        if self._pending and not replay:
            paused = exchange_result(exchange, self._agent.plan)
            return dataclasses.replace(paused, status="input_required", pending=self._pending)
        return await self._drive(Opening(answers=replay), trigger)

    async def _send(
        self, prompts: Sequence[Item | Hidden], trigger: Trigger | None
    ) -> RunResult[OutputT]:
        return await self._drive(await self._saying(prompts, trigger), trigger)

    async def _saying(self, prompts: Sequence[Item | Hidden], trigger: Trigger | None) -> Opening:
        """How a drive opens that says something: behind what the record answers, if it does."""
        replay = await self._replay(prompts)
        for item in prompts if replay else ():
            self._put(item, "steer", trigger)
        return Opening(answers=replay) if replay else Opening(prompts=tuple(prompts))

    async def _replay(self, prompts: Sequence[Item | Hidden] = ()) -> tuple[Answer, ...]:
        """What the record answers to the pending calls, if it answers them all.

        A call that may have run and must not run again is answered with that (DESIGN 5). Nothing
        is answered if the input does, or if a call waits for somebody.
        """
        if self._recording is None or not self._pending or self._is_running():
            return ()
        if prompts and isinstance(unhide(prompts[0])[0], FunctionCallOutput):
            return ()
        from perdure.session_record import answers_to

        await self._take_votes()
        return answers_to(self._recording, self._pending, await self._agent.tools_now())

    async def continue_(self, *, trigger: Trigger | None = None) -> RunResult[OutputT]:
        """Run from the transcript as it stands. Raises as `send`, and `CannotContinue`.

        Where the transcript ends with a typed answer that was accepted, that is the answer, and the
        model is not asked. One that does not fit is sent back.
        """
        return await self._drive(await self._continuing(), trigger)

    async def _continuing(self) -> Opening:
        """How a drive opens that goes on from the transcript as it stands."""
        self._refuse_if_running()
        correction = self._agent.correction(self._transcript.snapshot())
        if correction is not None:
            return Opening(prompts=(Hidden(correction),))
        return Opening(answers=await self._replay())

    async def resume(self, *answers: Answer, trigger: Trigger | None = None) -> RunResult[OutputT]:
        """Answer every pending call, and run on.

        Outputs are appended first, then approved calls run as one batch, in transcript order.

        Raises:
            RunFailed: The drive ended in error.
            NotPending: Not every pending call has exactly one answer.
            AmbiguousCall: An approved call may have run, and its effect forbids running it again.
            CallAnswered: An approved call is owed an output.
            NeedsApproval: An approved call waits for votes, which no answer stands for.
            AlreadyRunning: A drive is running.
        """
        return await self._drive(await self._answering(answers), trigger)

    async def _answering(self, answers: Sequence[Answer]) -> Opening:
        """How a drive opens that answers the pending calls."""
        self._refuse_if_running()
        await self._take_votes()
        return Opening(answers=check_answers(self._pending, answers, await self._agent.tools_now()))

    def stream(
        self,
        input: Input,  # noqa: A002
        *,
        trigger: Trigger | None = None,
        owned: bool = False,
    ) -> RunStream[OutputT]:
        """`send`, shown while it happens.

        Args:
            input: What is said.
            trigger: What caused it.
            owned: Enter the session with the stream, and leave it with it.
        """
        prompts = prompt_items(input)

        async def start(consumers: Broadcast) -> DriveHandle:
            if owned:
                await self.__aenter__()
            return await self._start(await self._saying(prompts, trigger), trigger, consumers)

        return RunStream(start, on_exit=self._leave if owned else None, plan=self._agent.plan)

    async def _leave(self) -> None:
        await self.__aexit__(None, None, None)

    def stream_resume(self, *answers: Answer, trigger: Trigger | None = None) -> RunStream[OutputT]:
        """`resume`, shown while it happens. What it refuses, entering the stream raises."""

        async def start(consumers: Broadcast) -> DriveHandle:
            return await self._start(await self._answering(answers), trigger, consumers)

        return RunStream(start, plan=self._agent.plan)

    def stream_continue(self, *, trigger: Trigger | None = None) -> RunStream[OutputT]:
        """`continue_`, shown while it happens. What it refuses, entering the stream raises."""

        async def start(consumers: Broadcast) -> DriveHandle:
            return await self._start(await self._continuing(), trigger, consumers)

        return RunStream(start, plan=self._agent.plan)

    def abort(self, cause: BaseException | str = "aborted") -> None:
        """Stop the drive that runs, if one does. The queues stay as they are."""
        if self._starting:
            self._stopped = self._stopped or cause
        elif self._handle is not None:
            self._handle.abort(cause)

    async def wait_for_idle(self) -> None:
        """Wait until no drive runs.

        Raises:
            AlreadyRunning: It was called from inside the drive that it would wait for.
        """
        if self._inside():
            raise AlreadyRunning("a drive cannot wait for its own end")
        while self._handle is not None and not self._handle.done:
            await self._handle.settled()

    # --- queues ----------------------------------------------------------------------

    def steer(self, *items: Input, skip: bool = False) -> None:
        """Queue what joins after the batch that runs, before the next model call.

        While idle it joins the next drive, after its prompt.

        Args:
            items: Texts or items.
            skip: Let the calls of a sequential batch that have not started be skipped.
        """
        self.queue(*items, mode="steer", skip=skip)

    def follow_up(self, *items: Input) -> None:
        """Queue what joins when the drive would otherwise end."""
        self.queue(*items, mode="follow_up")

    def queue(
        self,
        *items: Input,
        mode: QueueMode = "steer",
        trigger: Trigger | None = None,
        skip: bool = False,
    ) -> None:
        """Queue items with a trigger of their own. Never waits."""
        for given in items:
            for item in prompt_items(given):
                self._put(item, mode, trigger, skip=skip)

    async def deliver(self, *items: Input, trigger: Trigger | None = None) -> Delivered[OutputT]:
        """Hand over what arrives on its own time, and wait until a request has carried it.

        A drive that runs takes it; one that stops before leaves it, and then, as when idle, a drive
        is started for it. Called from inside the drive, it does not wait.

        Raises:
            InputRequired: Calls are pending; the items stay queued.
            AlreadyRunning: It was called from inside a drive that takes nothing more; they stay
                queued.
            RunFailed: The drive it started ended in error.
        """
        taken = asyncio.get_running_loop().create_future()
        for given in items:
            for item in prompt_items(given):
                self._put(item, "deliver", trigger, taken=taken)
        if self._inside():
            if self._handle is not None and self._handle.taking:
                return Delivered(joined=True)
            raise AlreadyRunning("this drive takes nothing more; the items wait for the next")
        return await self._delivered(taken, trigger)

    async def _delivered(
        self, taken: asyncio.Future[bool], trigger: Trigger | None
    ) -> Delivered[OutputT]:
        handle = self._handle
        while not taken.done():
            handle = self._handle
            if handle is not None and not handle.done:
                await _first(taken, handle)
                if not taken.done():
                    await handle.settled()
                continue
            if self._pending:
                raise InputRequired(tuple(one.call.call_id for one in self._pending))
            async with self._turn_to_drive:
                if not (self._is_running() or taken.done()):
                    started = await self._begin(Opening(), trigger, None)
                    plan = self._agent.plan
                    await started.wait()
                    return Delivered(joined=False, result=read_result(started, plan))
        if taken.result() or handle is None:
            return Delivered(joined=taken.result())
        await handle.settled()
        return Delivered(joined=False, result=read_result(handle, self._agent.plan))

    def _put(
        self,
        given: Item | Hidden,
        mode: QueueMode,
        trigger: Trigger | None,
        *,
        skip: bool = False,
        taken: asyncio.Future[bool] | None = None,
    ) -> None:
        item, hidden = unhide(given)
        refuse_references((item,))
        taking = self._handle is not None and not self._handle.done and self._handle.taking
        waiting = Waiting(
            id=self._agent.ids.new("queued_"),
            item=item,
            mode=mode,
            hidden=hidden,
            trigger=trigger,
            taken=taken,
            skip=skip,
        )
        self._queues.put(waiting, self._handle.run_id if taking and self._handle else "")
        if not self._is_running():
            self._write_queued()

    def _write_queued(self) -> None:
        """Write what was queued while no drive runs that would."""
        if self._recording is not None:
            self._queues.note_reports(self._recording.recorder.note)

    # --- what it is --------------------------------------------------------------------

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Let `subscriber` hear every event, as a barrier, in the order of subscription.

        Returns:
            A function that ends the subscription.
        """
        self._subscribers.append(subscriber)

        def unsubscribe() -> None:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)

        return unsubscribe

    @property
    def state(self) -> SessionState:
        """The session now."""
        running = self._handle is not None and not self._handle.done
        return SessionState(
            transcript=self._transcript.snapshot(),
            running=running,
            run_id=self._handle.run_id if running and self._handle else "",
            turn=self._handle.turn if running and self._handle else 0,
            steering=tuple(_as_given(one) for one in self._queues.steering),
            follow_ups=tuple(_as_given(one) for one in self._queues.follow_ups),
            pending=self._pending,
        )

    @property
    def agent(self) -> Agent[OutputT]:
        """Whose turn it is to answer."""
        return self._agent

    def use(self, agent: Agent[OutputT]) -> None:
        """Let another agent go on with the same transcript and queues.

        Thoughts of another model stay in the transcript and are left out of the requests.

        Raises:
            AlreadyRunning: A drive is running.
        """
        self._refuse_if_running()
        self._agent = agent

    def set_transcript(self, items: Iterable[Item]) -> None:
        """Go on from another transcript.

        A call that was pending and is still in it keeps what is known of it; any other without an
        output is taken for one that may have run. The ids of calls stay taken.

        Raises:
            AlreadyRunning: A drive is running.
            ConfigError: The session is recorded; its record says what was said.
        """
        self._refuse_if_running()
        if self._recording is not None:
            raise ConfigError("a recorded session goes on from its record; start another instead")
        before = self._transcript
        self._transcript = Transcript(items)
        for item in self._transcript.snapshot():
            self._transcript.attribute(item, before.maker(item))
        snapshot = self._transcript.snapshot()
        self._call_ids.reserve(ids_of(snapshot))
        self._pending = pending_in(snapshot, self._pending)

    async def rewind(self, entry: str, *, keep_effects: bool = False) -> None:
        """Go on from an entry of the record, and leave what is behind it as a branch (LOG 5.8).

        Args:
            entry: The id of the entry.
            keep_effects: Leave behind what tools with effects did. It stays done.

        Raises:
            AlreadyRunning: A drive is running.
            ConfigError: The session is not recorded.
            NoEntry: There is no such entry.
            RewindRefused: The session cannot go on there; or tools with effects were entered behind
                it, and `keep_effects` is not set.
        """
        from perdure.log.rewinding import rewind

        recording = self._recorded("rewound")
        rewound = await rewind(recording, entry, keep_effects=keep_effects)
        self._take_up(rewound, await self._agent.tools_now())

    async def fork(self, name: str, *, entry: str = "") -> Session[OutputT]:
        """A session of its own that goes on from an entry of this one, which stays as it is.

        Args:
            name: What it is called in the store.
            entry: The id of the entry; where this session is unless given.

        Returns:
            The fork, to be entered. A call that waits has to be decided there anew.

        Raises:
            AlreadyRunning: A drive is running.
            ConfigError: The session is not recorded.
            NameTaken: Another session has the name.
            NoEntry: There is no such entry.
            EntryRefused: A fork cannot begin there.
        """
        from perdure.session_record import branch_off

        recording = self._recorded("forked")
        await branch_off(self._agent, recording, name, entry)
        return Session(
            self._agent,
            name=name,
            store=recording.store,
            wait=self._wait,
            principal=self._principal,
        )

    def _recorded(self, what: str) -> Recording:
        """The record, between two drives."""
        self._refuse_if_running()
        if self._recording is None:
            raise ConfigError(f"only a recorded session that was entered can be {what}")
        return self._recording

    def set_pending(self, pending: Sequence[PendingCall]) -> None:
        """Say what is known of the calls without an output; ones it does not match are ignored.

        Raises:
            AlreadyRunning: A drive is running.
        """
        self._refuse_if_running()
        self._pending = pending_in(self._transcript.snapshot(), (*pending, *self._pending))

    def reserve_call_ids(self, ids: Iterable[str]) -> None:
        """Take ids that no new call may have.

        Raises:
            AlreadyRunning: A drive is running.
        """
        self._refuse_if_running()
        self._call_ids.reserve(ids)

    # --- one drive at a time -------------------------------------------------------------

    async def _drive(self, opening: Opening, trigger: Trigger | None) -> RunResult[OutputT]:
        plan = self._agent.plan
        handle = await self._start(opening, trigger, None)
        await handle.wait()
        return read_result(handle, plan)

    async def _start(
        self, opening: Opening, trigger: Trigger | None, consumers: Broadcast | None
    ) -> DriveHandle:
        if self._inside():
            raise AlreadyRunning("a drive cannot wait for itself; steer, follow_up or deliver")
        async with self._turn_to_drive:
            await self.wait_for_idle()
            return await self._begin(opening, trigger, consumers)

    async def _begin(
        self, opening: Opening, trigger: Trigger | None, consumers: Broadcast | None
    ) -> DriveHandle:
        """Start a drive. The caller holds the turn to drive, and none is running."""
        if self._closed:
            raise ConfigError("the session was closed; enter it again")
        if self._store and self._recording is None:  # else nothing would be recorded
            raise ConfigError(
                "a session with a store or a name is recorded once it is entered: "
                "async with agent.session(...) as chat"
            )
        if self._late and self._recording is not None:
            await self._take_messages(self._recording)
        self._check(opening)
        self._starting = True
        try:
            self._handle = handle = await self._agent.begin(
                self._transcript,
                opening,
                consumers=consumers,
                subscribers=self._subscribers,
                queues=self._queues,
                call_ids=self._call_ids,
                trigger=trigger,
                pending=self._pending,
                recording=self._recording,
                principal=self._principal,
            )
        finally:
            self._starting = False
            stopped, self._stopped = self._stopped, None
        handle.when_done(self._ended)
        if stopped is not None:
            handle.abort(stopped)
        return handle

    def _ended(self, end: RunEnd) -> None:
        self._pending = end.pending

    def _check(self, opening: Opening) -> None:
        snapshot = self._transcript.snapshot()
        if opening.answers:
            waiting = {one.call.call_id for one in self._pending}
            if {answer.call_id for answer in opening.answers} != waiting:
                raise NotPending("what is pending has changed meanwhile")
            return
        if not opening.prompts and not self._queues.steering:
            check_opening(snapshot, ())
        refuse_strange_outputs(snapshot, opening.prompts)
        check_opening(snapshot, opening.prompts, waiting=bool(self._queues.steering))

    def _is_running(self) -> bool:
        return self._handle is not None and not self._handle.done

    def _refuse_if_running(self) -> None:
        if self._is_running() or self._starting:
            raise AlreadyRunning("a drive is running; wait for it, or abort it")

    def _inside(self) -> bool:
        """Whether this code runs inside the drive of this session."""
        handle = self._handle
        return handle is not None and not handle.done and holds_up(handle.run_id)


async def _first(taken: asyncio.Future[bool], handle: DriveHandle) -> None:
    """Wait until a delivery was decided on, or the drive has ended."""
    ended = asyncio.create_task(handle.settled())
    both: set[asyncio.Future[bool] | asyncio.Task[None]] = {taken, ended}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended.cancel()


def _as_given(waiting: Waiting) -> Item | Hidden:
    return Hidden(waiting.item) if waiting.hidden else waiting.item
