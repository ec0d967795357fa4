"""One run: what `call_model` asked for, carried out by drives of perdure's loop.

A run is usually one drive. A second follows where the forced final answer is asked for again. The
run loads the state, opens the drive with what the caller said or decided, and saves how it ended;
everything between is the loop's.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import cast

from perdure.compose.answers import is_empty_answer, is_empty_item
from perdure.compose.binding import bound, tell_settled
from perdure.compose.kinds import ClientTool, Origin
from perdure.compose.ledger import RunLedger
from perdure.compose.lifecycle import UsageTotals
from perdure.compose.logged import state_now, write_facts
from perdure.compose.moments import Moments
from perdure.compose.openings import Opened, open_run
from perdure.compose.request import Layers
from perdure.compose.rounds import FINAL_RESPONSE_DIRECTIVE, Rounds
from perdure.compose.saving import facts_of_run, pending_of_run, snapshot, status_of_run
from perdure.compose.shared_context import ContextLog, ContextStore, Snapshot, initial_slots
from perdure.compose.spec import Spec
from perdure.compose.state import (
    AsyncTask,
    ConversationState,
    PendingWhy,
    create_initial_state,
    unsent_results_to_items,
)
from perdure.compose.stops import StepResult
from perdure.compose.streams import RunLog
from perdure.compose.tasks import LiveTask, Tasks
from perdure.compose.turns import ToolCall, TurnContext, settled
from perdure.errors import Aborted, ConfigError, EmptyAnswer, PerdureError, StateNotSaved
from perdure.log import Recording
from perdure.loop import (
    CallIds,
    Config,
    DriveHandle,
    Opening,
    Queues,
    RunEnd,
    Transcript,
    begin,
    ids_of,
    request_settings,
    resolve_tools,
)
from perdure.loop.model import check as check_model
from perdure.prompts import Input
from perdure.wire import FunctionCall, Item, Request

logger = logging.getLogger("perdure.compose")


class Run:
    """A run and everything it knows. `go` carries it out, once."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.log = RunLog()
        self.contexts = ContextLog()
        self.transcript = Transcript()
        self.queues = Queues()
        self.state: ConversationState | None = None
        self.store = ContextStore()
        self.recording: Recording | None = None
        self.end: RunEnd | None = None
        self.failure: Exception | None = None
        # What the rounds decide, and what the requests are made of.
        self.layers = Layers(dynamic={})
        self.steps: list[StepResult] = []
        self.rounds = 0
        self.round_calls: tuple[ToolCall, ...] = ()
        self.whys: dict[str, PendingWhy] = {}
        self.undecided: dict[str, PendingWhy] = {}
        self.next_input: tuple[Item, ...] | None = None
        self.turn_open = False
        self.final_next = False
        """The request after this round is the final one."""
        self.final = False
        """No further round: the next request is the final one, or was."""
        self.retrying = False
        self.stopped = False
        """A condition or the limit stopped the run."""
        self.halted = False
        """It was stopped and there is to be no final answer."""
        self.extra_turns = 0
        self.interrupted_by = ""
        self.entered: set[str] = set()
        self.deferred_now = False
        self.telling: list[LiveTask] = []
        self._handle: DriveHandle | None = None
        self._aborted: str | None = None
        self._left_out: frozenset[int] = frozenset()
        """By identity; the transcript keeps the items alive."""
        self._call_ids: CallIds | None = None
        self.ledger = self._new_ledger(0)
        self.moments = Moments(self)
        self.tasks = self._new_tasks(())

    # --- small views -----------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """The id of the conversation."""
        return self.state.id if self.state is not None else ""

    @property
    def run_id(self) -> str:
        """The id of the drive that goes on; empty between drives."""
        return self._handle.run_id if self._handle is not None else ""

    @property
    def forbids_calls(self) -> bool:
        """Whether the request that is made now, or was made last, forbids calls."""
        return self.final or self.retrying or self.extra_turns > 0

    @property
    def directive(self) -> str:
        """What the user says in the final request; empty for nothing."""
        wanted = self.spec.final_response
        if isinstance(wanted, str):
            return wanted
        return FINAL_RESPONSE_DIRECTIVE if wanted else ""

    @property
    def reached_limit(self) -> bool:
        """Whether the rounds are used up."""
        return self.spec.max_rounds is not None and self.rounds >= self.spec.max_rounds

    def client(self, name: str) -> ClientTool | None:
        """The tool of a name that does not run at the provider's; None if there is none."""
        return next((tool for tool in self.spec.clients if tool.name == name), None)

    def turn(self, call: FunctionCall | None = None) -> TurnContext:
        """Where the run is."""
        return TurnContext(
            number_of_turns=self.rounds, tool_call=call, turn_request=self.ledger.request
        )

    def working_request(self) -> Mapping[str, object]:
        """The settings of the next request as they stand, by name."""
        return self.layers.view(self.ledger.request or Request())

    def tell(self, outcomes: Sequence[LiveTask]) -> None:
        """Note that a message with outcomes is on its way."""
        self.telling += outcomes
        for task in outcomes:
            task.telling = True

    def totals(self) -> UsageTotals:
        """What the responses so far used."""
        return UsageTotals(
            usage=self.ledger.usage, model_calls=self.ledger.model_calls, cost=self.ledger.cost
        )

    # --- the course of a run ---------------------------------------------------------------

    async def go(self) -> None:
        """Carry the run out. It raises nothing; `failure` says what ended it in error."""
        leave = None
        if self.spec.signal is not None:
            leave = self.spec.signal.listen(self.abort)
        try:
            await self._whole()
        except asyncio.CancelledError:
            self.failure = Aborted("the event loop is closing")
            raise
        except Exception as error:  # noqa: BLE001 - every accessor raises it
            self.failure = error
        finally:
            if leave is not None:
                leave()
            self.log.finish(self.failure)
            self.contexts.close()

    def abort(self, reason: str = "aborted") -> None:
        """Stop the run; it ends with `Aborted`."""
        self._aborted = self._aborted or reason
        if self._handle is not None:
            self._handle.abort(reason)
        self.tasks.cancel()

    def _check_aborted(self) -> None:
        if self._aborted is not None:
            raise Aborted(self._aborted)

    async def _whole(self) -> None:
        if self.spec.signal is not None:
            self.spec.signal.check()
        self._check_aborted()
        await check_model(self.spec.asking.router)
        try:
            await self._load()
            await self._course()
        except Exception as error:
            await self._leave(error)
            raise
        else:
            await self._leave(None)
        finally:
            await self._close()  # after `_leave` there is nothing left to close

    async def _course(self) -> None:
        opened = await self._open()
        end = await self._drive(opened)
        if self._wants_retry(end):
            self.retrying = True
            self._left_out = frozenset(map(id, self._empty_tail()))
            end = await self._drive(Opened(Opening()))
        self._check_answer(end)
        if self.spec.on_run_end == "drain":
            await self.tasks.drain_all()
        elif self.spec.on_run_end == "cancel":
            await self.tasks.stop()
        else:
            self.tasks.let_go()
        self._check_aborted()
        await self._conclude(end)

    # --- loading and opening ---------------------------------------------------------------

    async def _load(self) -> None:
        spec, kept = self.spec, self.spec.conversation
        if kept.logged is not None:
            self.recording = await kept.logged.open(keep=spec.keep, clock=spec.clock, ids=spec.ids)
            self.state = state_now(self.recording)
            self.transcript = self.recording.transcript
            self._call_ids = self.recording.call_ids
        else:
            loaded = await kept.accessor.load() if kept.accessor is not None else kept.initial
            self.state = loaded or create_initial_state(clock=spec.clock, ids=spec.ids)
            known = (*self.state.messages, *unsent_results_to_items(self.state.unsent_tool_results))
            self.transcript = Transcript(known)
            self._call_ids = CallIds(ids_of(known))
        self.ledger = self._new_ledger(len(self.state.messages))
        self.ledger.running |= set(self.state.running_call_ids)
        self.tasks = self._new_tasks(self.state.tasks)
        self.layers = Layers(
            dynamic=spec.asking.dynamic,
            additional_instructions=spec.additional_instructions,
            tools=spec.tools,
            consumed=self.state.consumed_tool_choice,
        )

    async def _open(self) -> Opened:
        spec, state = self.spec, self._loaded()
        given: object = spec.input
        if callable(given):
            given = await settled(given(self.turn()))
        await self._resolve_context()
        opened = await open_run(self, state, _as_input(given))
        self.undecided = dict(opened.undecided)
        self.ledger.commits_answers = spec.conversation.decides or opened.recovers
        if await spec.conversation.interruption() is not None:
            await spec.conversation.clear_interruption()
        fresh = not (spec.conversation.decides or opened.answers_pauses)
        if fresh and spec.conversation.accessor is not None:
            await self._save(snapshot(self, state, "in_progress"))
        if spec.conversation.decides:
            return opened
        await self.moments.begin()
        return await self.moments.prompted(opened)

    async def _resolve_context(self) -> None:
        given: object = self.spec.context
        if callable(given):
            given = await settled(given(self.turn()))
        self.store = ContextStore(initial_slots(given or {}))
        loop, here = asyncio.get_running_loop(), threading.get_ident()

        def changed(snapshot: Snapshot) -> None:
            if threading.get_ident() == here:
                self.contexts.append(snapshot)
            else:  # a sync tool's thread
                loop.call_soon_threadsafe(self.contexts.append, snapshot)

        self.store.subscribe(changed)

    # --- driving ---------------------------------------------------------------------------

    async def _drive(self, opened: Opened) -> RunEnd:
        self._check_aborted()
        for waiting in opened.waiting:
            self.queues.put(waiting, "")
        config = self._config()
        if self.recording is not None:
            self.recording.recorder.use(request_settings(config, await resolve_tools(config)))
        self._handle = handle = begin(
            self.transcript,
            opened.opening,
            config,
            consumers=self.log,
            ledger=self.ledger,
            queues=self.queues,
            call_ids=self._call_ids,
            pending=opened.pending,
        )
        if self._aborted is not None:
            handle.abort(self._aborted)
        self.end = end = await handle.wait()
        if end.reason == "error":
            raise end.error or PerdureError("the run failed")
        if end.reason == "aborted":
            cause = end.error
            raise cause if isinstance(cause, Exception) else Aborted("aborted")
        return end

    def _config(self) -> Config:
        spec = self.spec
        recording = self.recording
        return Config(
            model=spec.asking.router,
            model_name=spec.asking.model_name,
            tools=tuple(bound(self, tool) for tool in spec.clients),
            settings=spec.asking.base,
            max_parallel=spec.max_parallel,
            middleware=(Rounds(self), *spec.middleware),
            retry=spec.retry,
            elicitor=spec.elicitor,
            recorder=recording.write_record if recording is not None else None,
            keep=self._keeps,
            grace=spec.grace,
            wind_down=spec.wind_down,
            clock=spec.clock,
            ids=spec.ids,
        )

    def _keeps(self, item: Item) -> bool:
        """Whether a request carries an item; not an empty answer that is asked for again."""
        return id(item) not in self._left_out and self.spec.keep(item)

    def _empty_tail(self) -> list[Item]:
        """What the last answer left at the end of the transcript, which says nothing."""
        tail: list[Item] = []
        for item in reversed(self.transcript.snapshot()):
            if not is_empty_item(item):
                break
            tail.append(item)
        return tail

    async def check_interruption(self) -> bool:
        """Whether somebody asked the run to stop; who is remembered."""
        by = await self.spec.conversation.interruption()
        if by is not None:
            self.interrupted_by = by
        return by is not None

    # --- the end ---------------------------------------------------------------------------

    def _wants_retry(self, end: RunEnd) -> bool:
        """Whether the answer is empty after rounds, so that it is asked for once more."""
        if self.spec.strict_final_response or not self.rounds or self.interrupted_by:
            return False
        if self.halted or end.pending or end.withheld or self.tasks.waits:
            return False
        response = self.ledger.response
        return response is not None and is_empty_answer(
            response, calls_count=not self.forbids_calls
        )

    def _check_answer(self, end: RunEnd) -> None:
        """Refuse an answer without a word, unless it was asked for twice.

        Raises:
            EmptyAnswer: It says nothing.
        """
        response = self.ledger.response
        if response is None or end.pending or end.withheld or self.retrying or self.interrupted_by:
            return
        if is_empty_answer(response):
            raise EmptyAnswer(response.id, status=str(response.status or ""))

    async def _conclude(self, end: RunEnd) -> None:
        pending = pending_of_run(self, end.pending)
        status = status_of_run(self, pending)
        if status in ("complete", "interrupted"):
            self.layers.consumed = ""
            if self.interrupted_by:
                await self.spec.conversation.clear_interruption()
        if self.recording is not None:
            await write_facts(self.recording, facts_of_run(self))
            self.state = state_now(self.recording)
            return
        self.ledger.committed = len(self.transcript)
        self.ledger.running -= {one.id for one in pending}
        await self._save(snapshot(self, self._loaded(), status, pending))
        self.ledger.mark_saved()

    # --- the state -------------------------------------------------------------------------

    def _loaded(self) -> ConversationState:
        if self.state is None:
            raise ConfigError("the run has not begun")
        return self.state

    async def _save(self, state: ConversationState) -> None:
        self.state = state
        if self.spec.conversation.accessor is None:
            return
        try:
            await self.spec.conversation.accessor.save(state)
        except PerdureError:
            raise
        except Exception as error:
            raise StateNotSaved(error) from error

    async def _save_progress(self) -> None:
        """Save what is committed while the run goes on."""
        state = self._loaded()
        pauses = state.status.startswith("awaiting") and self.ledger.response is None
        await self._save(snapshot(self, state, state.status if pauses else "in_progress"))

    def _new_ledger(self, committed: int) -> RunLedger:
        recording = self.recording
        return RunLedger(
            self.transcript,
            committed=committed,
            clock=self.spec.clock,
            source=self.source_of,
            save=self._save_progress if self.spec.conversation.accessor is not None else None,
            inner=recording.recorder if recording is not None else None,
        )

    def _new_tasks(self, known: Iterable[AsyncTask]) -> Tasks:
        return Tasks(
            known,
            log=self.log,
            clock=self.spec.clock,
            ids=self.spec.ids,
            most=self.spec.background_concurrency,
            on_settled=partial(tell_settled, self),
        )

    def source_of(self, name: str) -> Origin:
        """Where a tool comes from."""
        tool = self.client(name)
        return tool.source if tool is not None else "client"

    # --- leaving ---------------------------------------------------------------------------

    async def _leave(self, error: Exception | None) -> None:
        """Whatever happened: save what is committed, stop the tasks, tell the hooks.

        What fails here is added to the error that ended the run and never takes its place. Of a run
        that ended well, a hook's failure is logged; that the record could not be written is raised.
        """
        failures: list[Exception] = []
        for step in (self._keep_progress, self._stop_tasks, self.moments.end):
            try:
                await step(error)
            except Exception as failure:  # noqa: BLE001 - the next step is taken all the same
                failures.append(failure)
        try:
            await self._close()
        except Exception as unwritten:
            if error is None:
                raise
            failures.append(unwritten)
        for failed in failures:
            if error is None:
                logger.error("a hook failed at the end of a run", exc_info=failed)
            else:
                error.add_note(f"while ending: {type(failed).__name__}: {failed}")

    async def _close(self) -> None:
        """Let go of the record, if there is one."""
        recording, self.recording = self.recording, None
        if recording is not None:
            await recording.close()

    async def _keep_progress(self, error: Exception | None) -> None:
        if error is not None and self.state is not None and self.recording is None:
            await self.ledger.flush()

    async def _stop_tasks(self, error: Exception | None) -> None:
        if error is not None:
            await self.tasks.stop()


def _as_input(given: object) -> Input | None:
    """What the caller said; `prompt_items` refuses what is none."""
    return cast("Input | None", given)
