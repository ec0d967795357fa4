"""A machine that does what may happen to a session, in any order, and checks after every step.

Nothing happens by itself here: the model speaks when a rule lets it, a tool ends when a rule lets
it, time goes on when a rule moves it. After each step the world has settled, and what must hold at
every moment is checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Literal

from hypothesis import HealthCheck, note, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from perdure.agent import Agent
from perdure.errors import ConfigError, Guard, OutcomeUnknown, RunFailed, ToolError, Truncated
from perdure.loop import (
    Answer,
    Event,
    Middleware,
    ModelRequest,
    PendingCall,
    Queued,
    Retry,
    RunEnd,
    ToolCallInfo,
    ToolDecision,
    ToolEnd,
    ToolResultInfo,
    TurnInfo,
    TurnStartInfo,
    alongside_model_call,
    answer_with,
    approve,
    current_run_id,
    deny,
    invoke,
    refuse,
    unanswered,
)
from perdure.session import Session
from perdure.testing import FakeClock, ScriptedModel, call, error, turn
from perdure.testing.event_check import EventCheck, check_input
from perdure.testing.scripted import Turn, reasoning
from perdure.tools import Call, ToolResult
from perdure.wire import FunctionCall, FunctionCallOutput, Item, StreamEvent
from tests.loop.fakes import Ear, Failure, Tool

NAMES = ["look", "pay", "keyed", "twice", "alone", "db", "held", "barred", "outer", "deaf", "gone"]
"""What a model may call; no tool has the last name."""

EVENTS = [
    "run_start",
    "item_start",
    "item_update",
    "item_end",
    "turn_start",
    "response_end",
    "tool_start",
    "tool_dispatch",
    "tool_update",
    "tool_end",
    "turn_end",
    "run_end",
    "queued",
    "model_retry",
]
HOOKS = ["before_turn", "before_model_call", "before_tool_call", "after_tool_call", "should_stop"]
HookName = Literal[
    "before_turn", "before_model_call", "before_tool_call", "after_tool_call", "should_stop"
]
How = Literal["ok", "end", "fail", "panic", "unknown", "cancel", "show"]


async def quiet() -> None:
    """Let every task run until nothing is left that could."""
    ready: Sequence[object] = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    while ready:  # noqa: ASYNC110
        await asyncio.sleep(0)


# --- what the rules hold in their hands -------------------------------------------------


class Model:
    """A model that waits until it is told what to say."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[tuple[Turn, int]]] = []
        self.paused: list[asyncio.Event] = []
        self.requests: list[tuple[str, ModelRequest]] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        check_input(list(request.input))
        self.requests.append((current_run_id(), request))
        told: asyncio.Future[tuple[Turn, int]] = asyncio.get_running_loop().create_future()
        self.waiting.append(told)
        try:
            script, pause = await told
        finally:
            self.waiting.remove(told)
        count = 0
        async for event in ScriptedModel(lambda number: script).stream(request):
            if count == pause:
                await self._pause()
            count += 1
            yield event

    async def _pause(self) -> None:
        gate = asyncio.Event()
        self.paused.append(gate)
        try:
            await gate.wait()
        finally:
            self.paused.remove(gate)


@dataclasses.dataclass(eq=False)
class Inside:
    """A call that is in its tool."""

    call: Call
    how: asyncio.Future[How]


class Tools:
    """Tools whose calls end when they are told how."""

    def __init__(self) -> None:
        self.inside: list[Inside] = []
        self.entered: Counter[str] = Counter()
        self.returned: set[str] = set()
        self.released = asyncio.Event()
        traits: dict[str, dict[str, object]] = {
            "look": {"effect": "none"},
            "pay": {},
            "keyed": {"effect": "keyed"},
            "twice": {"effect": "idempotent"},
            "alone": {"sequential": True},
            "db": {"resource": "db", "timeout": 7.0},
            "held": {},
            "barred": {},
        }
        self.all = [Tool(name, self._work, **more) for name, more in traits.items()]  # type: ignore[arg-type]
        self.all += [Tool("outer", self._outer), Tool("deaf", self._deaf)]

    async def _work(self, call: Call) -> ToolResult:
        self.entered[call.id] += 1
        while (how := await self._told(call)) == "show":
            call.progress("on it")
        if how == "fail":
            raise ToolError("it failed")
        if how == "panic":
            raise ExceptionGroup("two", [ValueError("bug"), ToolError("known")])
        if how == "unknown":
            raise OutcomeUnknown("who knows")
        if how == "cancel":
            here = asyncio.current_task()
            assert here is not None
            here.cancel()
            await asyncio.sleep(0)
        self.returned.add(call.id)
        return ToolResult(f"result of {call.id}", terminate=how == "end")

    async def _told(self, call: Call) -> How:
        how: asyncio.Future[How] = asyncio.get_running_loop().create_future()
        inside = Inside(call, how)
        self.inside.append(inside)
        stop = asyncio.ensure_future(call.cancelled.wait())
        both: set[asyncio.Future[How] | asyncio.Future[None]] = {how, stop}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            return how.result() if how.done() else "ok"
        finally:
            self.inside.remove(inside)
            stop.cancel()

    async def _outer(self, call: Call) -> ToolResult:
        self.entered[call.id] += 1
        said = "refused"
        with contextlib.suppress(ToolError):
            said = str((await invoke("look", {})).output)
        self.returned.add(call.id)
        return ToolResult(f"inside: {said}")

    async def _deaf(self, call: Call) -> ToolResult:
        self.entered[call.id] += 1
        how: asyncio.Future[How] = asyncio.get_running_loop().create_future()
        inside = Inside(call, how)
        self.inside.append(inside)
        released = asyncio.ensure_future(self.released.wait())
        both: set[asyncio.Future[How] | asyncio.Future[Literal[True]]] = {how, released}
        while not how.done() and not released.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        released.cancel()
        self.inside.remove(inside)
        return ToolResult("at last")


class Policy(Middleware):
    """Holds and bars by name, and fails where it is armed."""

    def __init__(self) -> None:
        self.armed: dict[str, Exception] = {}
        self.stop = False
        self.inside = 0
        self.twice = False

    async def _enter(self, hook: str) -> None:
        self.inside += 1
        self.twice = self.twice or (self.inside > 1 and hook.endswith("_tool_call"))
        try:
            await asyncio.sleep(0)
            failure = self.armed.pop(hook, None)
            if failure is not None:
                raise failure
        finally:
            self.inside -= 1

    async def before_turn(self, info: TurnStartInfo) -> Sequence[Item]:
        await self._enter("before_turn")
        return ()

    async def before_model_call(self, request: ModelRequest) -> None:
        await self._enter("before_model_call")

    async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
        await self._enter("before_tool_call")
        if info.call.name == "held":
            return ToolDecision(action="hold", reason="ask", note="a note")
        if info.call.name == "barred":
            return ToolDecision(action="reject", reason="never")
        return ToolDecision(note="mind it") if info.call.name == "twice" else None

    async def after_tool_call(self, info: ToolResultInfo) -> None:
        await self._enter("after_tool_call")

    async def should_stop(self, info: TurnInfo) -> bool:
        await self._enter("should_stop")
        stop, self.stop = self.stop, False
        return stop


class Saboteur:
    """A subscriber that fails on the next event of a type."""

    def __init__(self) -> None:
        self.armed = ""

    async def __call__(self, event: Event) -> None:
        await asyncio.sleep(0)
        if event.type == self.armed:
            self.armed = ""
            raise Failure(f"on {event.type}")


# --- strategies --------------------------------------------------------------------------

CALLS = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from(["c1", "c2", "c3", None]),
        st.sampled_from(["{}", '{"n": 1}', "[1]", ""]),
    ),
    min_size=1,
    max_size=4,
)
SAYS = st.one_of(
    st.just(turn("so")),
    st.just(turn(reasoning("hm"), "so it is")),
    st.just(turn("cut", incomplete="max_output_tokens")),
    st.builds(
        lambda calls, before, cut: turn(
            *([before] if before else []),
            *(call(name, given, call_id) for name, call_id, given in calls),
            incomplete="max_output_tokens" if cut else None,
        ),
        CALLS,
        st.sampled_from(["", "let me see"]),
        st.sampled_from([False, False, False, True]),
    ),
    st.just(turn(reasoning("hm"), error(Truncated()))),
    st.just(turn("half a sen", error(Truncated()))),
    st.just(turn(call("pay", "{}", "c1"), error(Truncated()))),
)
PAUSE = st.sampled_from([-1, -1, -1, 1, 2, 4, 6])
ENDS: st.SearchStrategy[How] = st.sampled_from(
    ["ok", "ok", "ok", "end", "fail", "panic", "unknown", "cancel", "show"]
)


class Machine(RuleBasedStateMachine):
    """A session, and everything that may happen to it."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.running: list[asyncio.Task[None]] = []
        self.model = Model()
        self.policy = Policy()
        self.saboteur = Saboteur()
        self.ear = Ear()
        self.clock = FakeClock()
        self.check = EventCheck()
        self.fed = 0
        self.count = 0
        self.queued: list[str] = []
        self.reruns: Counter[str] = Counter()
        self.aborted: dict[str, int] = {}
        self.guard = asyncio.Event()
        self.guard.set()
        self.streams: list[tuple[str, list[Event]]] = []
        self.tools: Tools
        self.session: Session

    def do(self, work: Coroutine[object, object, object]) -> None:
        self.loop.run_until_complete(work)

    def settled(self) -> None:
        self.do(quiet())

    @initialize(
        sequential=st.booleans(),
        max_parallel=st.sampled_from([1, 2, 8]),
        max_turns=st.sampled_from([1, 3, None]),
        attempts=st.sampled_from([1, 3]),
        guarded=st.booleans(),
    )
    def begins(
        self,
        sequential: bool,
        max_parallel: int,
        max_turns: int | None,
        attempts: int,
        guarded: bool,
    ) -> None:
        @alongside_model_call
        async def beside(request: ModelRequest) -> None:
            await self.guard.wait()

        async def begin() -> None:
            self.tools = Tools()
            agent = Agent(
                self.model,
                tools=self.tools.all,
                sequential=sequential,
                max_parallel=max_parallel,
                max_turns=max_turns,
                retry=Retry(max_attempts=attempts, random=lambda: 1.0),
                middleware=[self.policy, beside] if guarded else [self.policy],
                clock=self.clock,
                grace=3,
                wind_down=20,
            )
            self.session = agent.session()
            self.session.subscribe(self.ear)
            self.session.subscribe(self.saboteur)

        self.do(begin())

    # --- what happens -------------------------------------------------------------------

    def start(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        async def guarded() -> None:
            with contextlib.suppress(ConfigError, RunFailed):
                await work()

        async def begin() -> None:
            self.running.append(asyncio.get_running_loop().create_task(guarded()))
            await quiet()

        self.do(begin())

    @property
    def busy(self) -> bool:
        return any(not task.done() for task in self.running)

    @rule(streamed=st.booleans())
    def send(self, streamed: bool) -> None:
        self.count += 1
        words = f"prompt {self.count}"

        async def send() -> None:
            if not streamed:
                await self.session.send(words)
                return
            async with self.session.stream(words) as stream:
                events = [event async for event in stream.events()]
                self.streams.append((events[0].run_id if events else "", events))
                await stream.result()

        if sum(not task.done() for task in self.running) < 3:
            self.start(send)

    @precondition(lambda self: not self.busy and self.session.state.pending)
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        answers = [self.answer(one, data) for one in self.session.state.pending]
        note(f"resume {answers}")

        async def resume() -> None:
            await self.session.resume(*answers)

        self.start(resume)

    def answer(self, pending: PendingCall, data: st.DataObject) -> Answer:
        call_id = pending.call.call_id
        how = data.draw(st.sampled_from(["approve", "again", "output", "deny", "refuse"]))
        if how == "approve":
            return approve(call_id, note="go on")
        if how == "again":
            self.reruns[call_id] += 1
            return approve(call_id, run_again=True)
        if how == "output":
            return answer_with(call_id, "by hand")
        return deny(call_id) if how == "deny" else refuse(call_id)

    @precondition(lambda self: not self.busy)
    @rule()
    def go_on(self) -> None:
        async def go_on() -> None:
            await self.session.continue_()

        self.start(go_on)

    @precondition(lambda self: self.model.waiting)
    @rule(script=SAYS, pause=PAUSE)
    def model_speaks(self, script: Turn, pause: int) -> None:
        self.model.waiting[0].set_result((script, pause))
        self.settled()

    @precondition(lambda self: self.model.paused)
    @rule()
    def model_goes_on(self) -> None:
        self.model.paused[0].set()
        self.settled()

    @precondition(lambda self: self.tools.inside)
    @rule(data=st.data(), how=ENDS)
    def tool_ends(self, data: st.DataObject, how: How) -> None:
        inside = data.draw(st.sampled_from(self.tools.inside))
        if not inside.how.done():
            inside.how.set_result(how)
        self.settled()

    @rule(seconds=st.sampled_from([0.5, 2, 4, 10]))
    def time_goes_on(self, seconds: float) -> None:
        self.do(self.clock.advance(seconds))
        self.settled()

    @rule()
    def abort(self) -> None:
        run_id = self.session.state.run_id
        if run_id:
            asked = sum(one == run_id for one, _ in self.model.requests)
            self.aborted.setdefault(run_id, asked)

        async def abort() -> None:
            self.session.abort("esc")
            await quiet()

        self.do(abort())

    @rule(mode=st.sampled_from(["steer", "skip", "follow_up", "deliver"]))
    def something_comes(self, mode: str) -> None:
        self.count += 1
        words = f"{mode} {self.count}"
        self.queued.append(words)

        async def deliver() -> None:
            await self.session.deliver(words)

        if mode == "deliver":
            self.start(deliver)
        elif mode == "follow_up":
            self.session.follow_up(words)
        else:
            self.session.steer(words, skip=mode == "skip")

    @rule(kind=st.sampled_from(EVENTS))
    def a_subscriber_will_fail(self, kind: str) -> None:
        self.saboteur.armed = kind

    @rule(hook=st.sampled_from(HOOKS), guard=st.booleans())
    def a_hook_will_fail(self, hook: HookName, guard: bool) -> None:
        self.policy.armed[hook] = Guard("a guard's words") if guard else Failure(hook)

    @rule()
    def a_hook_will_stop(self) -> None:
        self.policy.stop = True

    @rule()
    def the_guard_beside_the_model_takes_its_time(self) -> None:
        self.guard.clear()

    @rule()
    def the_guard_beside_the_model_agrees(self) -> None:
        self.guard.set()
        self.settled()

    # --- what must hold -----------------------------------------------------------------

    @invariant()
    def events_are_in_order(self) -> None:
        if not hasattr(self, "session"):
            return
        for event in self.ear.events[self.fed :]:
            self.check.feed(event)
        self.fed = len(self.ear.events)
        assert not self.ear.twice, "an event was told while another was"
        assert not self.policy.twice, "two calls were decided or judged at once"

    @invariant()
    def nothing_runs_twice_that_must_not(self) -> None:
        if not hasattr(self, "session"):
            return
        names = {
            one.call_id: one.name
            for one in self.session.state.transcript
            if isinstance(one, FunctionCall)
        }
        for call_id, count in self.tools.entered.items():
            if names.get(call_id) in {"pay", "alone", "db", "held", "outer", "deaf"}:
                allowed = 1 + self.reruns[call_id]
                assert count <= allowed, f"{call_id} entered its tool {count} times"
            assert names.get(call_id) != "barred"

    @invariant()
    def no_request_follows_an_abort(self) -> None:
        for run_id, asked in self.aborted.items():
            now = sum(one == run_id for one, _ in self.model.requests)
            assert now == asked, f"{run_id} asked the model after it was aborted"

    @invariant()
    def what_was_queued_is_in_one_place(self) -> None:
        if not hasattr(self, "session"):
            return
        state = self.session.state
        waiting = [*state.steering, *state.follow_ups, *state.transcript]
        said = Counter(getattr(one, "text", "") for one in waiting)
        for words in self.queued:
            assert said[words] == 1, f"{words!r} is in {said[words]} places"

    @invariant()
    def an_idle_session_can_go_on(self) -> None:
        if not hasattr(self, "session") or self.busy or self.session.state.running:
            return
        state = self.session.state
        pending = [one.call.call_id for one in state.pending]
        assert pending == [one.call_id for one in unanswered(state.transcript)]
        answered = {
            one.call_id: one.text for one in state.transcript if isinstance(one, FunctionCallOutput)
        }
        check_input([*state.transcript, *(output_for(one) for one in pending)])
        for call_id in self.tools.returned & set(calls_in(state.transcript)):
            assert call_id in answered, f"the result of {call_id} was lost"
        for call_id, said in answered.items():
            if said.startswith("result of "):
                assert said == f"result of {call_id}"
        assert not any("a guard's words" in said for said in answered.values())

    @invariant()
    def every_consumer_saw_everything(self) -> None:
        for run_id, events in self.streams:
            heard = [event for event in self.ear.events if belongs(event, run_id)]
            seen = [event for event in events if belongs(event, run_id)]
            assert kinds(seen) == kinds(heard)

    def teardown(self) -> None:
        if hasattr(self, "session"):
            self.do(self.ends())
        left = asyncio.all_tasks(self.loop)
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        assert not left, f"tasks are left: {left}"
        if hasattr(self, "session"):
            self.events_are_in_order()
            self.check.end()
            ends = [event for event in self.ear.events if isinstance(event, RunEnd)]
            assert len(ends) == self.check.drives

    async def ends(self) -> None:
        self.saboteur.armed = ""
        self.policy.armed.clear()
        self.guard.set()
        self.session.steer("the last word")
        leaving = asyncio.get_running_loop().create_task(self.leave())
        await quiet()
        self.tools.released.set()
        for _ in range(12):
            await self.clock.advance(5)
            await quiet()
        async with asyncio.timeout(5):
            await leaving
            for task in self.running:
                await task
        await quiet()

    async def leave(self) -> None:
        async with self.session:
            pass


def output_for(call_id: str) -> FunctionCallOutput:
    return FunctionCallOutput(call_id=call_id, output="x")


def calls_in(items: Sequence[Item]) -> list[str]:
    return [one.call_id for one in items if isinstance(one, FunctionCall)]


def belongs(event: Event, run_id: str) -> bool:
    return event.run_id == run_id and not isinstance(event, Queued)


def kinds(events: Sequence[Event]) -> list[tuple[str, str]]:
    """What happened, in short; neighbouring deltas as one."""
    told: list[tuple[str, str]] = []
    for event in events:
        one = (event.type, event.call_id if isinstance(event, ToolEnd) else "")
        if one[0] != "item_update" or not told or told[-1] != one:
            told.append(one)
    return told


def test_a_session_keeps_its_promises_whatever_happens() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
