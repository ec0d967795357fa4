"""How a run opens: what the caller said, decided and answered, against the calls that are open.

An open call *waits* if the state lists it; only its caller can move it. Any other open call was
left by a process that died: it runs if it never ran, again if its effect allows that, and else the
model is told that its outcome is unknown (DESIGN 5).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

import msgspec

from perdure.compose.bodies import content_parts, model_output
from perdure.compose.kinds import ClientTool
from perdure.compose.shared_context import ToolContext, current
from perdure.compose.state import ConversationState, PendingWhy
from perdure.compose.tasks import envelope
from perdure.compose.turns import settled
from perdure.errors import InputRequired, NotPending
from perdure.loop import (
    RUN_AGAIN_SAFE,
    Answer,
    Hidden,
    Items,
    Opening,
    PendingCall,
    PendingReason,
    Waiting,
    approve,
    can_continue,
    check_opening,
    deny,
    outcome_unknown,
    unanswered,
    unhide,
)
from perdure.prompts import Input, prompt_items
from perdure.tools import ToolSet, effect_of
from perdure.tools.result import json_text
from perdure.wire import (
    FunctionCall,
    FunctionCallOutput,
    InputText,
    Item,
    Message,
    Part,
    encode,
    input_text,
    user,
)

if TYPE_CHECKING:
    from perdure.compose.run import Run

_RUNS_AGAIN = frozenset({"none", "idempotent", "transactional"})
_NOTHING: Mapping[str, PendingWhy] = MappingProxyType({})

REJECTED = "rejected by the user"
"""What the model reads of a call that was rejected without a word."""


@dataclasses.dataclass(frozen=True, slots=True)
class Opened:
    """What a drive begins with.

    Attributes:
        opening: Its prompts or answers.
        pending: What is known of the open calls.
        waiting: What joins behind the answers.
        undecided: The calls that go on waiting, each with whom for.
        answers_pauses: The caller answers calls that waited for it.
        recovers: Calls of a process that died are taken up.
    """

    opening: Opening
    pending: tuple[PendingCall, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    undecided: Mapping[str, PendingWhy] = dataclasses.field(default_factory=lambda: _NOTHING)
    answers_pauses: bool = False
    recovers: bool = False


async def open_run(run: Run, state: ConversationState, given: Input | None) -> Opened:
    """What a run begins with.

    Raises:
        InputRequired: Calls wait, and what was given leaves some of them waiting.
        NotPending: A decision or an output names a call that does not wait.
        ConfigError: There is nothing to begin with, or nothing that a model could answer.
    """
    snapshot = run.transcript.snapshot()
    open_calls = unanswered(snapshot)
    prompts = prompt_items(given) if given is not None else ()
    outputs, rest = _split(prompts, open_calls)
    said = await _received_in(run, rest)
    if not open_calls:
        _refuse_decisions(run, ())
        return _fresh(run, snapshot, said)
    waits: dict[str, PendingWhy] = {one.id: one.why for one in state.pending_tool_calls}
    _refuse_decisions(run, tuple(waits))
    return await _answering(run, open_calls, outputs, said, waits)


def _split(
    prompts: Sequence[Item | Hidden], open_calls: Sequence[FunctionCall]
) -> tuple[dict[str, FunctionCallOutput], list[Item | Hidden]]:
    """The outputs that answer open calls, and everything else."""
    waiting = {call.call_id for call in open_calls}
    items = [unhide(one)[0] for one in prompts]
    own = {item.call_id for item in items if isinstance(item, FunctionCall)}
    outputs: dict[str, FunctionCallOutput] = {}
    rest: list[Item | Hidden] = []
    for given in prompts:
        item = unhide(given)[0]
        if not isinstance(item, FunctionCallOutput) or item.call_id in own:
            rest.append(given)
        elif item.call_id in waiting and item.call_id not in outputs:
            outputs[item.call_id] = item
        else:
            raise NotPending(f"the output names the call {item.call_id!r}, which is not pending")
    return outputs, rest


def _refuse_decisions(run: Run, waiting: Sequence[str]) -> None:
    for call_id in (*run.spec.conversation.approve, *run.spec.conversation.reject):
        if call_id not in waiting:
            known = f"; these do: {', '.join(waiting)}" if waiting else ""
            raise NotPending(f"call {call_id!r} waits for no decision{known}")


def _fresh(run: Run, snapshot: Items, prompts: Sequence[Item | Hidden]) -> Opened:
    """An opening where no call is open."""
    outcomes = run.tasks.take_outcomes()
    last = snapshot[-1] if len(snapshot) else None
    if not prompts and outcomes and not (last is not None and can_continue(last)):
        run.tell(outcomes)
        prompts = (envelope(outcomes),)
    check_opening(snapshot, prompts)
    return Opened(Opening(prompts=tuple(prompts)))


async def _answering(
    run: Run,
    open_calls: Sequence[FunctionCall],
    outputs: Mapping[str, FunctionCallOutput],
    rest: Sequence[Item | Hidden],
    waits: Mapping[str, PendingWhy],
) -> Opened:
    known, replays = _recorded(run)
    answers: list[Answer] = []
    pending: list[PendingCall] = []
    undecided: dict[str, PendingWhy] = {}
    recovers = False
    for call in open_calls:
        name = call.call_id
        one = known.get(name) or PendingCall(call=call, reason=_reason(run, name, waits))
        if name in outputs:
            output = await received(run, outputs[name], call)
            answers.append(Answer(call_id=name, output=output, by="human"))
        elif name in run.spec.conversation.approve:
            # Put to every hook again: an approval passes no gate but its own (DESIGN 5).
            one = msgspec.structs.replace(one, reason="undispatched")
            answers.append(approve(name, by="human"))
        elif name in run.spec.conversation.reject:
            answers.append(deny(name, run.spec.conversation.reject[name] or REJECTED, by="human"))
        elif name in waits:
            undecided[name] = waits[name]
        else:
            recovers = True
            answers.append(replays.get(name) or _recovered(run, one))
        pending.append(one)
    moves = bool(outputs) or run.spec.conversation.decides
    if undecided and (rest or not moves):
        raise InputRequired(tuple(undecided))
    return Opened(
        Opening(answers=tuple(answers)),
        pending=tuple(pending),
        waiting=tuple(_queued(run, one) for one in rest),
        undecided=undecided,
        answers_pauses=bool(outputs),
        recovers=recovers,
    )


def _recorded(run: Run) -> tuple[dict[str, PendingCall], dict[str, Answer]]:
    """What a log knows of the open calls, and answers to them."""
    if run.recording is None:
        return {}, {}
    tools = ToolSet(run.spec.clients)
    pending = {one.call.call_id: one for one in run.recording.pending(tools)}
    return pending, {one.call_id: one for one in run.recording.replay(tools)}


def _reason(run: Run, call_id: str, waits: Mapping[str, PendingWhy]) -> PendingReason:
    if call_id in waits:
        return "suspended" if waits[call_id] == "hitl" else "held"
    return "unknown" if call_id in run.ledger.running else "undispatched"


def _recovered(run: Run, call: PendingCall) -> Answer:
    """What becomes of a call that a dead process left."""
    if not call.may_have_run:
        return approve(call.call.call_id)
    tool = run.client(call.call.name)
    arguments = call.arguments if call.arguments is not None else call.call.arguments
    if tool is not None and effect_of(tool, arguments) in _RUNS_AGAIN:
        return approve(call.call.call_id, reason=RUN_AGAIN_SAFE)
    return outcome_unknown(call.call.call_id)


def _queued(run: Run, given: Item | Hidden) -> Waiting:
    item, hidden = unhide(given)
    return Waiting(id=run.spec.ids.new("queued_"), item=item, mode="steer", hidden=hidden)


# --- answers of people ----------------------------------------------------------------------


async def _received_in(run: Run, prompts: Sequence[Item | Hidden]) -> Sequence[Item | Hidden]:
    """Prompts whose outputs answer calls of the prompts themselves, each put to its tool."""
    calls = {
        item.call_id: item
        for item in (unhide(one)[0] for one in prompts)
        if isinstance(item, FunctionCall)
    }
    made: list[Item | Hidden] = []
    for given in prompts:
        item, hidden = unhide(given)
        if isinstance(item, FunctionCallOutput) and item.call_id in calls:
            item = await received(run, item, calls[item.call_id])
            made.append(Hidden(item) if hidden else item)
        else:
            made.append(given)
    return made


async def received(run: Run, output: FunctionCallOutput, call: FunctionCall) -> FunctionCallOutput:
    """What stands for an output that a person sent; that of any other tool is left as it is.

    What the tool makes of it is held to its output's schema. If that fails, the model reads what
    was wrong, and what was sent.
    """
    tool = run.client(call.name)
    if tool is None or tool.kind != "hitl":
        return output
    raw = _raw(output)
    try:
        value = await _asked(run, tool, raw)
        if tool.output_schema is not None:
            value = tool.output_schema.read(value)
        if tool.on_response_received is None:
            return output
        made: str | tuple[Part, ...] = model_output(value).output
    except Exception as error:  # noqa: BLE001 - whatever it is, the model reads it
        made = _refused(output, raw, error)
    return msgspec.structs.replace(output, output=made)


async def _asked(run: Run, tool: ClientTool, raw: object) -> object:
    if tool.on_response_received is None:
        return raw
    context = ToolContext(
        tool=tool.name,
        store=run.store,
        conversation_id=run.session_id,
        own=tool.context_schema,
        shared=run.spec.shared_context,
    )
    token = current.set(context)
    try:
        return await settled(tool.on_response_received(raw))
    finally:
        current.reset(token)


def _raw(output: FunctionCallOutput) -> object:
    """What was sent: the JSON of a text, the text if it is none, or the content array."""
    if not isinstance(output.output, str):
        return [cast("object", msgspec.json.decode(encode(part))) for part in output.output]
    try:
        return cast("object", msgspec.json.decode(output.output))
    except msgspec.DecodeError:
        return output.output


def _refused(output: FunctionCallOutput, raw: object, error: Exception) -> str | tuple[Part, ...]:
    said = str(error) or type(error).__name__
    if isinstance(output.output, str):
        return json_text({"error": said, "originalOutput": raw})
    parts = content_parts(raw) or output.output
    return (input_text(json_text({"error": said})), *parts)


# --- the prompt -----------------------------------------------------------------------------


def said_prompt(opened: Opened) -> str | None:
    """The last thing the user says, if it is a text."""
    found = _last_said(opened)
    return found.text if found is not None else None


def replace_prompt(opened: Opened, text: str) -> Opened:
    """The same with another text in its place."""
    found = _last_said(opened)
    if found is None:
        return opened
    said = user(text)

    def swapped(given: Item | Hidden) -> Item | Hidden:
        item, hidden = unhide(given)
        if item is not found:
            return given
        return Hidden(said) if hidden else said

    for waiting in opened.waiting:
        if waiting.item is found:
            waiting.item = said
    prompts = tuple(swapped(one) for one in opened.opening.prompts)
    return dataclasses.replace(opened, opening=dataclasses.replace(opened.opening, prompts=prompts))


def _last_said(opened: Opened) -> Message | None:
    items = [unhide(one)[0] for one in opened.opening.prompts]
    items += [one.item for one in opened.waiting]
    for item in reversed(items):
        if isinstance(item, Message) and item.role == "user":
            return item if _is_text(item) else None
    return None


def _is_text(message: Message) -> bool:
    if isinstance(message.content, str):
        return True
    return len(message.content) == 1 and isinstance(message.content[0], InputText)
