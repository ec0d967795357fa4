"""A run that goes in circles is noticed, told, and stopped.

What a run has repeated is computed from its transcript, from what the user said last; so a session
that goes on, in another process too, goes on counting, and a new word from the user clears it.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, cast

import msgspec

from perdure.counts import check_count
from perdure.errors import DecodeError, LoopDetected, NotIJson
from perdure.loop import (
    Hidden,
    Items,
    Middleware,
    ModelRequest,
    RunEnd,
    RunInfo,
    ToolCallInfo,
    ToolDecision,
    TurnInfo,
    TurnStartInfo,
    current_run_id,
)
from perdure.middleware.doom_detector import (
    ACTIONS,
    Action,
    CallPrint,
    Kind,
    Ladder,
    LoopState,
    after_round,
    after_text,
    streak_of,
)
from perdure.middleware.doom_fingerprint import LoopKey, call_fingerprint, fingerprint
from perdure.wire import (
    FunctionCall,
    FunctionCallOutput,
    FunctionChoice,
    Item,
    Message,
    UnknownItem,
    developer,
    encode,
)
from perdure.wire.jsontext import loads

logger = logging.getLogger("perdure.doom_loop")

STEER = (
    "You have done the same thing {count} times in a row ({what}), and it will give the same again."
    " Do something else, or say what keeps you from going on."
)
BLOCKED = (
    "not run: the same call was made {count} times in a row, and its result will be the same."
    " Do something else, or answer with what you have."
)
SEALED = "not run: the run was stopped, because it repeats itself"


class Detection(msgspec.Struct, frozen=True, kw_only=True):
    """Something that repeats itself.

    Attributes:
        kind: What it is.
        name: The tool; empty for a text.
        fingerprint: Its fingerprint.
        streak: How many rounds or responses in a row had it.
        action: What is done about it.
    """

    run_id: str
    kind: Kind
    name: str
    fingerprint: str
    streak: int
    action: Action


OnDetected = (
    Callable[[Detection], "Action | None"] | Callable[[Detection], "Awaitable[Action | None]"]
)
"""Called once for each detection, before anything is done about it. It may give another action;
None keeps it. What it raises is a warning."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Escalation:
    """What one turn is given to get out of a loop.

    Attributes:
        model: The `model` member of its request; the same provider serves it.
        tool: A tool that it has to call: somebody to ask for advice, say.
        budget: How many turns of a drive are given that.
    """

    model: str = ""
    tool: str = ""
    budget: int = 2

    def __post_init__(self) -> None:
        check_count("Escalation(budget=...)", self.budget, least=0)


@dataclasses.dataclass(slots=True)
class _Run:
    """What is known of a drive while it runs."""

    state: LoopState
    turn: int = -1
    """The turn whose calls were counted."""
    actions: dict[CallPrint, Action] = dataclasses.field(default_factory=dict[CallPrint, Action])
    """What is done about the calls of that turn."""
    found: Detection | None = None
    """The first that stops the drive."""
    prints: dict[str, CallPrint | None] = dataclasses.field(
        default_factory=dict[str, "CallPrint | None"]
    )
    """The calls of the turn by their ids, so that each key is made once."""
    last: list[CallPrint] = dataclasses.field(default_factory=list[CallPrint])
    """The calls of the last response before the drive."""
    steered: set[tuple[Kind, CallPrint]] = dataclasses.field(
        default_factory=set["tuple[Kind, CallPrint]"]
    )
    """What the model was told of."""
    steers: list[str] = dataclasses.field(default_factory=list[str])
    """What it is to be told next."""
    escalate: bool = False
    escalations: int = 0


class DoomLoop(Middleware):
    """Notices calls and texts that repeat themselves, and does what its ladder says.

    `observe` tells `on_detected` alone. `steer` tells the model, once for each thing, with a
    developer message. `escalate` gives the next turn another model or a tool that it must call.
    `block` lets the call not run; the model reads why. `stop` ends the drive as stopped, with
    `LoopDetected`; no call of the round runs. Nothing that goes wrong in here ends a run.

    Args:
        ladder: From which streak on what is done.
        keys: For tools by name, what makes their calls the same.
        escalation: What `escalate` does; without it, nothing.
        on_detected: Hears of each detection, and may choose another action.
        warn: Told of keys and callbacks that fail; the logger `perdure.doom_loop` by default.
    """

    def __init__(
        self,
        ladder: Ladder | None = None,
        *,
        keys: Mapping[str, LoopKey] | None = None,
        escalation: Escalation | None = None,
        on_detected: OnDetected | None = None,
        warn: Callable[[str], object] = logger.warning,
    ) -> None:
        self._ladder = ladder or Ladder()
        self._keys: dict[str, LoopKey] = {**(keys or {})}
        self._escalation = escalation or Escalation(budget=0)
        self._on_detected = on_detected
        self._warn = warn
        self._runs: dict[str, _Run] = {}

    async def before_run(self, info: RunInfo) -> None:
        """Count what the transcript has repeated since the user last spoke."""
        run = self._runs[info.run_id] = _Run(LoopState())
        for output, told in _responses(_since_user(info.transcript)):
            calls = (self._print(item) for item in output if isinstance(item, FunctionCall))
            run.last = _distinct(calls)
            counted = after_round(run.state, [*run.last, *_distinct(map(_server_print, output))])
            run.state = after_text(counted, _said(output))
            for one in run.last:
                text = _steer("call", one, streak_of(run.state, one))
                run.steered |= {("call", one)} if text in told else set()

    async def before_turn(self, info: TurnStartInfo) -> Sequence[Item | Hidden]:
        """Forget everything if the user has spoken; tell the model what it repeats.

        Raises:
            LoopDetected: The drive goes on from a transcript that had to be stopped before.
        """
        run = self._runs[info.run_id]
        if any(_is_users(one.item) for one in info.inputs):
            self._runs[info.run_id] = _Run(LoopState(), escalations=run.escalations)
            return ()
        if info.turn == 1:
            await self._check(run, info.run_id)
        steers, run.steers = run.steers, []
        return [developer(text) for text in steers]

    async def _check(self, run: _Run, run_id: str) -> None:
        """What is due about the last calls before this drive, and was not done, is done now."""
        for one in run.last:
            streak = streak_of(run.state, one)
            if self._ladder.action(streak) in {"steer", "escalate", "stop"}:
                await self._detect(run, run_id, "call", one, streak)
        if run.found is not None:
            raise LoopDetected(run.found.kind, run.found.name, run.found.streak)

    async def before_model_call(self, request: ModelRequest) -> ModelRequest | None:
        """Give one turn another model, or a tool that it must call."""
        run = self._runs.get(current_run_id())
        if run is None or not run.escalate:
            return None
        run.escalate = False
        if run.escalations >= self._escalation.budget:
            return None
        run.escalations += 1
        settings = request.settings
        if self._escalation.model:
            settings = msgspec.structs.replace(settings, model=self._escalation.model)
        if self._escalation.tool:
            choice = FunctionChoice(name=self._escalation.tool)
            settings = msgspec.structs.replace(settings, tool_choice=choice)
        return msgspec.structs.replace(request, settings=settings)

    async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
        """Reject a call that is to be blocked, and every call of a round that stops the drive."""
        if info.parent or info.turn == 0:
            return None  # of a tool's own, or decided before: neither is the model's last word
        run = self._runs[info.run_id]
        await self._count_calls(run, info.run_id, info.turn, info.batch)
        if run.found is not None:
            return ToolDecision(action="reject", reason=SEALED, by="policy")
        call = run.prints.get(info.call.call_id)
        if call is None or run.actions.get(call) != "block":
            return None
        reason = BLOCKED.format(count=streak_of(run.state, call))
        return ToolDecision(action="reject", reason=reason, by="policy")

    async def should_stop(self, info: TurnInfo) -> bool:
        """Count what was said and what the provider ran; stop the drive if that is due.

        Raises:
            LoopDetected: It is.
        """
        run = self._runs[info.run_id]
        output = info.response.output
        calls = [item for item in output if isinstance(item, FunctionCall)]
        await self._count_calls(run, info.run_id, info.turn, calls)
        await self._count_rest(run, info.run_id, output)
        if run.found is not None and not info.final:
            found = run.found
            raise LoopDetected(found.kind, found.name, found.streak)
        return False

    async def on_end(self, end: RunEnd) -> None:
        """Forget the drive."""
        self._runs.pop(end.run_id or current_run_id(), None)

    # --- counting ------------------------------------------------------------------------------

    async def _count_calls(
        self, run: _Run, run_id: str, turn: int, calls: Iterable[FunctionCall]
    ) -> None:
        """Count the calls of a turn, once, before any is judged."""
        if run.turn == turn:
            return
        run.turn, run.actions = turn, {}
        run.prints = {call.call_id: self._print(call) for call in calls}
        prints = _distinct(run.prints.values())
        run.state = after_round(run.state, prints)
        for one in prints:
            action = await self._detect(run, run_id, "call", one, streak_of(run.state, one))
            if action is not None:
                run.actions[one] = action

    async def _count_rest(self, run: _Run, run_id: str, output: Sequence[Item]) -> None:
        """Count what the provider ran, which nobody can keep from running, and what was said."""
        prints = _distinct(map(_server_print, output))
        said = _said(output)
        run.state = after_text(after_round(run.state, prints), said)
        for one in prints:
            await self._detect(run, run_id, "server_call", one, streak_of(run.state, one))
        if said.strip():
            text = run.state.text
            same = CallPrint("", text.last)
            await self._detect(run, run_id, "text", same, text.same)
            await self._detect(run, run_id, "words", same, text.looping)

    async def _detect(
        self, run: _Run, run_id: str, kind: Kind, what: CallPrint, streak: int
    ) -> Action | None:
        """What is done about a streak; None if it is none. Noted for whoever has to do it."""
        due = self._ladder.action(streak, without=() if kind == "call" else ("block",))
        if due is None:
            return None
        found = Detection(
            run_id=run_id,
            kind=kind,
            name=what.tool,
            fingerprint=what.fingerprint,
            streak=streak,
            action=due,
        )
        found = msgspec.structs.replace(found, action=await self._chosen(found))
        match found.action:
            case "stop":
                run.found = run.found or found
            case "steer" if (kind, what) not in run.steered:
                run.steered.add((kind, what))
                run.steers.append(_steer(kind, what, streak))
            case "escalate":
                run.escalate = True
            case _:
                pass
        return found.action

    async def _chosen(self, found: Detection) -> Action:
        """The action that `on_detected` chooses, or the ladder's."""
        if self._on_detected is None:
            return found.action
        try:
            chosen = self._on_detected(found)
            chosen = await chosen if inspect.isawaitable(chosen) else chosen
        except Exception as error:  # noqa: BLE001 - a callback may raise anything
            self._warn(f"on_detected failed: {error!r}")
            return found.action
        return chosen if chosen in ACTIONS else found.action

    def _print(self, call: FunctionCall) -> CallPrint | None:
        """A call as it counts; None if it is exempt."""
        key = self._keys.get(call.name)
        found = call_fingerprint(call.name, call.arguments, key, self._warn)
        return None if found is None else CallPrint(call.name, found)


def _distinct(prints: Iterable[CallPrint | None]) -> list[CallPrint]:
    return list(dict.fromkeys(one for one in prints if one is not None))


def _steer(kind: Kind, what: CallPrint, streak: int) -> str:
    """What the model is told of a streak."""
    named = {
        "call": f"a call of {what.tool}",
        "server_call": f"a {what.tool}",
        "text": "the same text",
        "words": "the same words over and over",
    }
    return STEER.format(count=streak, what=named[kind])


# --- reading transcripts -----------------------------------------------------------------------

_RESULTS = frozenset({"id", "status", "output", "outputs", "results", "result", "error"})
"""Members of a provider's call that say what came of it."""


def _server_print(item: Item) -> CallPrint | None:
    """A call that the provider made itself, by what it asked for."""
    if not isinstance(item, UnknownItem) or not item.type.endswith(("_call", "_tool_use")):
        return None
    try:
        source = cast("dict[str, object]", loads(encode(item)))
        block = source.get("block")
        asked = cast("dict[str, object]", block) if isinstance(block, dict) else source
        key = {name: value for name, value in asked.items() if name not in _RESULTS}
        return CallPrint(item.type, fingerprint(key, item.type))
    except (NotIJson, DecodeError):
        return None


def _since_user(transcript: Items) -> list[Item]:
    """What stands after the user's last message."""
    found: list[Item] = []
    for item in reversed(transcript):
        if _is_users(item):
            break
        found.append(item)
    return found[::-1]


class _Past(NamedTuple):
    """A response of the transcript, and what the model was told after it."""

    output: list[Item]
    told: list[str]


def _responses(items: Iterable[Item]) -> list[_Past]:
    found: list[_Past] = []
    is_open = False
    for item in items:
        if isinstance(item, FunctionCallOutput) or _is_said_to_model(item):
            is_open = False
            if found and isinstance(item, Message):
                found[-1].told.append(item.text)
        else:
            if not is_open:
                found.append(_Past([], []))
            is_open = True
            found[-1].output.append(item)
    return found


def _said(output: Iterable[Item]) -> str:
    return "\n".join(item.text for item in output if isinstance(item, Message))


def _is_said_to_model(item: Item) -> bool:
    return isinstance(item, Message) and item.role != "assistant"


def _is_users(item: Item) -> bool:
    return isinstance(item, Message) and item.role == "user"
