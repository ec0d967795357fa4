"""Runs the scenarios of `tests/scenarios`; their format stands in the README there."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, cast

import msgspec

from perdure import wire
from perdure.agent import Agent
from perdure.errors import ConfigError, Guard, RunFailed, ToolError, Truncated, rejection
from perdure.log import Store
from perdure.loop import (
    Answer,
    Event,
    Hidden,
    ItemEnd,
    ItemStart,
    MessageInfo,
    Middleware,
    ModelBlocked,
    ModelRequest,
    ModelRetry,
    PendingCall,
    Queued,
    ResponseEnd,
    Retry,
    RunEnd,
    RunStart,
    ToolCallInfo,
    ToolDecision,
    ToolDispatch,
    ToolEnd,
    ToolOverride,
    ToolResultInfo,
    ToolStart,
    ToolUpdate,
    TurnEnd,
    TurnInfo,
    TurnStart,
    TurnStartInfo,
    alongside_model_call,
    invoke,
)
from perdure.session import Session
from perdure.testing import FakeClock, ScriptedModel, attempts, call, error, fail, turn
from perdure.testing.clock import settle
from perdure.testing.event_check import check_events
from perdure.testing.scripted import Turn, TurnLike, reasoning, text
from perdure.tools import Call, Question, Reply, ToolResult
from perdure.wire import FunctionCall, Item, Message, function_call_output, user
from tests.loop.fakes import Failure, Tool
from tests.loop.scenario_format import (
    UNSHOWN,
    Answering,
    Deed,
    DriveScript,
    Expect,
    HookScript,
    Members,
    Part,
    Scenario,
    ToolScript,
    TurnScript,
)

# --- the parts --------------------------------------------------------------------------


@dataclasses.dataclass
class Stage:
    """What the parts of one scenario share."""

    scenario: Scenario
    gates: dict[str, asyncio.Event] = dataclasses.field(default_factory=dict[str, asyncio.Event])

    def gate(self, name: str) -> asyncio.Event:
        return self.gates.setdefault(name, asyncio.Event())


def work(stage: Stage, script: ToolScript) -> Callable[[Call], Awaitable[ToolResult]]:
    async def does(call: Call) -> ToolResult:
        invoked = ""
        for step in script.does:
            if step.wait is not None:
                await stage.gate(step.wait).wait()
            if step.until_told:
                await call.cancelled
            if step.never:
                await asyncio.Event().wait()
            if step.progress is not None:
                call.progress(step.progress)
            if step.raises is not None:
                raise ToolError(step.raises)
            if step.invoke is not None:
                try:
                    invoked = str((await invoke(step.invoke, step.arguments)).output)
                except ToolError as refused:
                    invoked = f"failed: {refused}"
            if step.return_invoked:
                return ToolResult(invoked)
            if step.returns is not None:
                return ToolResult(step.returns, terminate=step.terminate)
        return ToolResult("ok")

    return does


def tools_of(stage: Stage) -> list[Tool]:
    return [
        Tool(
            name,
            work(stage, script),
            effect=script.effect,
            sequential=script.sequential,
            resource=script.resource,
            timeout=script.timeout,
        )
        for name, script in stage.scenario.tools.items()
    ]


class Hooked(Middleware):
    """Middleware with the one hook that a script describes."""

    def __init__(self, script: HookScript) -> None:
        self.script = script

    def speaks(self, hook: str, *, tool: str = "", turn: int = 0, message: str = "") -> bool:
        script = self.script
        if script.hook != hook:
            return False
        fits = script.tool in {None, tool} and script.turn in {None, turn}
        return fits and (script.message is None or script.message in message)

    def stumble(self) -> None:
        if self.script.guard is not None:
            raise Guard(self.script.guard)
        if self.script.fail is not None:
            raise Failure(self.script.fail)

    async def before_run(self, info: object) -> None:
        if self.speaks("before_run"):
            self.stumble()

    async def before_turn(self, info: TurnStartInfo) -> Sequence[Item | Hidden]:
        if not self.speaks("before_turn", turn=info.turn):
            return ()
        self.stumble()
        return [wire.developer(said) for said in self.script.add]

    async def before_model_call(self, request: ModelRequest) -> None:
        if self.speaks("before_model_call"):
            self.stumble()

    async def on_message(self, message: Message, info: MessageInfo) -> Message | None:
        if not self.speaks("on_message", turn=info.turn, message=message.text):
            return None
        self.stumble()
        if self.script.replace is None:
            return None
        return wire.assistant(self.script.replace, id=message.id or "msg")

    async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
        if not self.speaks("before_tool_call", tool=info.call.name, turn=info.turn):
            return None
        self.stumble()
        given = self.script.decide
        return None if given is None else ToolDecision(**msgspec.structs.asdict(given))

    async def after_tool_call(self, info: ToolResultInfo) -> ToolOverride | None:
        if not self.speaks("after_tool_call", tool=info.call.name, turn=info.turn):
            return None
        self.stumble()
        if self.script.replace is None:
            return None
        return ToolOverride(result=ToolResult(self.script.replace))

    async def should_stop(self, info: TurnInfo) -> bool:
        if not self.speaks("should_stop", turn=info.turn):
            return False
        self.stumble()
        return self.script.stop


def hook_of(stage: Stage, script: HookScript) -> Middleware:
    if script.hook != "alongside":
        return Hooked(script)

    async def guard(request: ModelRequest) -> None:
        if script.wait is not None:
            await stage.gate(script.wait).wait()
        if script.guard is not None:
            raise Guard(script.guard)

    return alongside_model_call(guard)


def turn_of(script: TurnScript) -> TurnLike:
    if script.attempts:
        return attempts(*(turn_of(one) for one in script.attempts))
    if script.events:
        return [wire.decode_event(bytes(one)) for one in script.events]
    return turn(*(said(part) for part in script.say), incomplete=script.incomplete)


def said(part: Part) -> Turn:
    if part.text is not None:
        return text(part.text)
    if part.reasoning is not None:
        return reasoning(part.reasoning)
    if part.call is not None:
        return call(part.call, part.arguments, part.id)
    if part.status is not None:
        return error(rejection("refused", status=part.status))
    if part.fail is not None:
        return fail(part.fail)
    assert part.cut_off
    return error(Truncated())


class Person:
    """Whoever is asked about held nested calls."""

    def __init__(self, reply: Literal["accept", "decline", "cancel"]) -> None:
        self._reply: Literal["accept", "decline", "cancel"] = reply

    async def ask(self, question: Question) -> Reply:
        return Reply(action=self._reply)


def item_of(given: str | Members) -> Item:
    return user(given) if isinstance(given, str) else wire.decode_item(msgspec.json.encode(given))


def answer_of(given: Answering) -> Answer:
    output = None if given.output is None else function_call_output(given.call_id, given.output)
    return Answer(
        call_id=given.call_id,
        output=output,
        arguments=given.arguments,
        note=given.note,
        terminate=given.terminate,
        run_again=given.run_again,
        idempotency_key=given.idempotency_key,
        by=given.by,
    )


class Watcher:
    """Hears every event, and does what the scenario does at some."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.session: Session | None = None
        self.events: list[Event] = []
        self.left = list(stage.scenario.actions)

    async def __call__(self, event: Event) -> None:
        self.events.append(event)
        for action in list(self.left):
            if matches(shown(event), action.at):
                self.left.remove(action)
                for deed in action.do:
                    self.perform(deed)

    def perform(self, deed: Deed) -> None:
        assert self.session is not None
        if deed.abort is not None:
            self.session.abort(deed.abort)
        if deed.steer is not None:
            self.session.steer(deed.steer, skip=deed.skip)
        if deed.follow_up is not None:
            self.session.follow_up(deed.follow_up)
        if deed.open is not None:
            self.stage.gate(deed.open).set()
        if deed.fail is not None:
            raise Failure(deed.fail)


RECORDED = "scenario"
"""What the session of a recorded scenario is called."""


# --- the run ----------------------------------------------------------------------------


async def play(scenario: Scenario, store: Store | None = None) -> list[list[Members]]:
    """Run a scenario and check what it expects.

    Args:
        scenario: The scenario; one that begins with a transcript cannot be recorded.
        store: Where it is recorded, under the name `RECORDED`.

    Returns:
        The events of each drive, as shown, and the transcript after the last.
    """
    stage = Stage(scenario)
    clock = FakeClock()
    tools = tools_of(stage)
    model = ScriptedModel([turn_of(one) for one in scenario.model], after=turns(scenario))
    agent = Agent(
        model,
        model_name=scenario.config.model_name,
        tools=tools,
        max_turns=scenario.config.max_turns,
        max_parallel=scenario.config.max_parallel,
        sequential=scenario.config.sequential,
        retry=Retry(max_attempts=scenario.config.attempts, random=lambda: 1.0),
        middleware=[hook_of(stage, one) for one in scenario.hooks],
        elicitor=None if scenario.person is None else Person(scenario.person),
        grace=scenario.config.grace,
        clock=clock,
        store=store or "",
    )
    transcript = [item_of(one) for one in scenario.transcript]
    if store is None:
        session = agent.session(transcript=transcript, pending=known(scenario, transcript))
    else:
        session = await agent.session(RECORDED).__aenter__()
    watcher = Watcher(stage)
    watcher.session = session
    session.subscribe(watcher)
    told: list[list[Members]] = []
    for drive in scenario.drives:
        before = len(watcher.events)
        outcome = await driven(session, drive, clock)
        events = watcher.events[before:]
        check_drive(scenario, drive.expect, outcome, events)
        told.append([shown(event) for event in events if is_shown(scenario, event)])
    if store is not None:
        await session.__aexit__(None, None, None)
    check_events(watcher.events)
    assert watcher.left == [], "an action found no event"
    assert len(model.requests) == scenario.requests
    entered = {tool.name: len(tool.entered) for tool in tools if tool.entered}
    assert entered == scenario.entered
    final = [plain(item) for item in session.state.transcript]
    assert scenario.final is None or matches(final, scenario.final), final
    return [*told, final]


def turns(scenario: Scenario) -> int:
    """How many turns of a model the given transcript holds: its unbroken runs of model's items."""
    models = [
        not isinstance(one, str)
        and (one.get("role") == "assistant" or one["type"] == "function_call")
        for one in scenario.transcript
    ]
    return sum(now and not before for before, now in zip([False, *models], models, strict=False))


def is_model_s(one: str | Members) -> bool:
    if isinstance(one, str):
        return False
    return one.get("role") == "assistant" or one["type"] in {"function_call", "reasoning"}


def known(scenario: Scenario, transcript: Sequence[Item]) -> list[PendingCall]:
    calls = {one.call_id: one for one in transcript if isinstance(one, FunctionCall)}
    return [
        PendingCall(
            call=calls[one.call_id],
            reason=one.reason,
            idempotency_key=one.idempotency_key,
            dispatched=one.dispatched,
        )
        for one in scenario.pending
    ]


async def driven(session: Session, drive: DriveScript, clock: FakeClock) -> str | Exception:
    """One drive: the text of its answer, or what it raised."""
    if drive.send is not None:
        running = asyncio.create_task(session.send([item_of(one) for one in drive.send]))
    elif drive.resume is not None:
        running = asyncio.create_task(session.resume(*map(answer_of, drive.resume)))
    else:
        running = asyncio.create_task(session.continue_())
    for _ in range(200):
        await settle()
        if running.done():
            break
        await clock.advance(0.5)
    try:
        async with asyncio.timeout(5):
            return (await running).text
    except (ConfigError, RunFailed) as refused:
        return refused


def is_shown(scenario: Scenario, event: Event) -> bool:
    return event.type not in UNSHOWN or event.type in scenario.shown


def check_drive(
    scenario: Scenario, expect: Expect, outcome: str | Exception, events: Sequence[Event]
) -> None:
    if expect.refused is not None:
        assert type(outcome).__name__ == expect.refused, outcome
        assert events == []
        return
    end = events[-1]
    assert isinstance(end, RunEnd)
    assert isinstance(outcome, RunFailed) == (end.reason == "error"), outcome
    told = shown(end)
    assert matches(told, expect.end), f"end: {told}"
    if expect.text is not None:
        assert outcome == expect.text
    if expect.events is not None:
        check_order([shown(one) for one in events if is_shown(scenario, one)], expect.events)


def check_order(told: list[Members], expected: Sequence[Members]) -> None:
    """Match events one by one; of `interleaved` lists each is in order, and nothing else is."""
    place = 0
    for wanted in expected:
        strands = [
            [*one] for one in cast("list[list[Members]]", wanted.get("interleaved", [[wanted]]))
        ]
        for event in told[place : place + sum(map(len, strands))]:
            strand = next((one for one in strands if one and matches(event, one[0])), None)
            assert strand is not None, f"event {place} is {event}, wanted one of {strands}"
            del strand[0]
            place += 1
        assert not any(strands), f"event {place} is missing, wanted one of {strands}"
    assert told[place:] == [], f"more than was expected: {told[place:]}"


def matches(given: object, wanted: object) -> bool:
    """Whether a value has what is wanted: objects may have more members, lists no more elements.

    A wanted text that ends in `…` is the beginning of what is given.
    """
    if isinstance(wanted, str) and wanted.endswith("…"):
        return isinstance(given, str) and given.startswith(wanted[:-1])
    if isinstance(wanted, Mapping):
        members = cast("Mapping[str, object]", wanted)
        if not isinstance(given, Mapping):
            return False
        has = cast("Mapping[str, object]", given)
        return all(name in has and matches(has[name], one) for name, one in members.items())
    if isinstance(wanted, list):
        elements = cast("list[object]", wanted)
        if not isinstance(given, list):
            return False
        others = cast("list[object]", given)
        return len(others) == len(elements) and all(map(matches, others, elements))
    return given == wanted


# --- events as JSON ---------------------------------------------------------------------


def plain(item: Item) -> Members:
    """An item as JSON; `text` is all the text of its content or output."""
    value: Members = msgspec.json.decode(wire.encode(item))
    said = getattr(item, "text", None)
    return value if said is None else {**value, "text": said}


def plain_error(error: BaseException | None) -> object:
    return None if error is None else str(error)


def plain_decision(decision: ToolDecision | None) -> object:
    return None if decision is None else msgspec.to_builtins(decision)


def shown(event: Event) -> Members:
    """An event as a scenario sees it."""
    told: Members = {"type": event.type}
    if not isinstance(event, RunStart | RunEnd | Queued):
        told["turn"] = event.turn
    return {**told, **members(event)}


def members(event: Event) -> Members:
    match event:
        case RunStart():
            return {"source": event.source}
        case TurnStart():
            given = [{"mode": one.mode, "item": plain(one.item)} for one in event.inputs]
            return {"inputs": given, "request": [plain(one) for one in event.request.input]}
        case ModelRetry():
            return {"attempt": event.attempt, "error": str(event.error), "delay": event.delay}
        case ModelBlocked():
            return {"error": str(event.error)}
        case ItemStart():
            return {"item": plain(event.item), "hidden": event.hidden}
        case ItemEnd():
            return {
                "item": plain(event.item),
                "hidden": event.hidden,
                "model_call_id": event.model_call_id,
                "queued": bool(event.queue_id),
            }
        case ResponseEnd():
            calls = [one.call_id for one in event.response.output if isinstance(one, FunctionCall)]
            return {
                "status": event.response.status,
                "withheld": event.withheld,
                "attempts": event.attempts,
                "calls": calls,
            }
        case ToolStart() | ToolDispatch() | ToolUpdate() | ToolEnd():
            return {"call_id": event.call_id, "name": event.name, **of_call(event)}
        case TurnEnd():
            return {"results": [one.output for one in event.tool_results]}
        case RunEnd():
            return {
                "reason": event.reason,
                "cause": event.cause,
                "error": plain_error(event.error),
                "pending": [
                    {"call_id": one.call.call_id, "reason": one.reason} for one in event.pending
                ],
                "withheld": event.withheld,
                "turns": event.turns,
                "partial": [plain(one) for one in event.partial],
            }
        case Queued():
            return {"mode": event.mode, "item": plain(event.item)}
        case _:
            return {}


def of_call(event: ToolStart | ToolDispatch | ToolUpdate | ToolEnd) -> Members:
    told: Members = {"nested": bool(event.parent)}
    match event:
        case ToolStart():
            decision = plain_decision(event.decision)
            return {**told, "arguments": event.arguments, "decision": decision}
        case ToolDispatch():
            return {**told, "effect": event.effect}
        case ToolUpdate():
            return {**told, "partial": event.partial.output}
        case ToolEnd():
            return {
                **told,
                "output": None if event.output is None else event.output.text,
                "error": plain_error(event.error),
                "rejected": event.rejected,
                "held": event.held,
                "entered": event.entered,
                "reason": event.reason,
            }
