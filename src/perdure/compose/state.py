"""The state of a conversation, version 1: one value that a program stores between two runs.

A *pending* call waits for somebody; every other call of `messages` has its output there. A *task*
outlives its call. The stored text is opaque: members that this version does not know are kept.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, cast, get_args

import msgspec

from perdure.clock import Clock, Ids, RandomIds, SystemClock
from perdure.compose.bodies import model_output
from perdure.compose.turns import ToolCall
from perdure.errors import ConfigError, DecodeError, InvalidState, UnsupportedStateVersion
from perdure.wire import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    decode_items,
    encode,
    function_call_output,
)

STATE_VERSION = 1
"""The version that is written."""

Status = Literal[
    "in_progress",
    "complete",
    "interrupted",
    "awaiting_approval",
    "awaiting_hitl",
    "awaiting_client_tools",
    "awaiting_async_tools",
]
"""How a conversation stands. One whose run failed stays as it was last saved."""

PendingWhy = Literal["approval", "hitl", "client"]
"""Whom a call waits for: somebody who approves it, a person's answer, the caller's own tool."""

TaskStatus = Literal["pending", "completed", "failed", "cancelled", "expired", "orphaned"]


class PendingToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that waits."""

    id: str
    name: str
    arguments: dict[str, object] | str
    """A dict, or the text as it came if that is no JSON object."""
    why: PendingWhy = "approval"


class UnsentToolResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a call that no request has carried.

    Only states of others hold them: here, a result that is known stands in `messages` at once.
    """

    call_id: str
    name: str
    output: object = None
    error: str = ""


class PartialResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a response had said when its run was interrupted."""

    text: str = ""
    tool_calls: tuple[PendingToolCall, ...] = ()


class AsyncTask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task that outlives its call, as the state remembers it."""

    task_id: str
    call_id: str
    name: str
    mode: Literal["background", "deferred"]
    status: TaskStatus = "pending"
    result: object = None
    error: str = ""
    delivered: bool = False
    """The model was told its outcome."""
    log: tuple[object, ...] = ()


_NOTHING: Mapping[str, object] = MappingProxyType({})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConversationState:
    """A conversation between two runs. Times are Unix milliseconds.

    Attributes:
        messages: The transcript.
        previous_response_id: The id of the last response; never sent.
        running_call_ids: Calls that may have run when the state was saved. If their process died,
            they run again only where their effect allows it.
        interrupted_by: Who interrupted the last run.
        consumed_tool_choice: The forced tool choice that has had its tool call.
        tasks: Tasks that have not been told of, and those that were.
        extra: Members of the stored text that this version does not know.
    """

    id: str
    status: Status = "in_progress"
    created_at: int | float
    updated_at: int | float
    messages: tuple[Item, ...] = ()
    previous_response_id: str = ""
    pending_tool_calls: tuple[PendingToolCall, ...] = ()
    unsent_tool_results: tuple[UnsentToolResult, ...] = ()
    partial_response: PartialResponse | None = None
    interrupted_by: str = ""
    running_call_ids: tuple[str, ...] = ()
    consumed_tool_choice: str = ""
    tasks: tuple[AsyncTask, ...] = ()
    extra: Mapping[str, object] = dataclasses.field(default_factory=lambda: _NOTHING)

    @property
    def version(self) -> int:
        """The version of the contract it keeps."""
        return STATE_VERSION

    @property
    def requires_approval(self) -> bool:
        """Whether it waits for somebody who approves calls."""
        return self.status == "awaiting_approval"


def create_initial_state(
    conversation_id: str = "", *, clock: Clock | None = None, ids: Ids | None = None
) -> ConversationState:
    """An empty conversation, with a fresh id unless one is given."""
    now = _now(clock)
    chosen = conversation_id or generate_conversation_id(ids)
    return ConversationState(id=chosen, created_at=now, updated_at=now)


def generate_conversation_id(ids: Ids | None = None) -> str:
    """A fresh id of a conversation."""
    return (ids or RandomIds()).new("conv_")


def append_to_messages(
    state: ConversationState, items: Iterable[Item], *, clock: Clock | None = None
) -> ConversationState:
    """The state with items at its end."""
    return update_state(state, clock=clock, messages=(*state.messages, *items))


def update_state(
    state: ConversationState,
    change: Callable[[ConversationState], ConversationState] | None = None,
    *,
    clock: Clock | None = None,
    **members: object,
) -> ConversationState:
    """A changed copy: `members` replaced, then `change` applied; it was updated now.

    Raises:
        ConfigError: It would change the id, the version or when it was created.
    """
    fixed = {"id", "version", "created_at", "updated_at"} & members.keys()
    if fixed:
        raise ConfigError(f"the {min(fixed)} of a state cannot be changed")
    changed = dataclasses.replace(state, **members)  # type: ignore[arg-type]
    if change is not None:
        changed = change(changed)
        if (changed.id, changed.created_at) != (state.id, state.created_at):
            raise ConfigError("the id of a state and when it was created cannot be changed")
    return dataclasses.replace(changed, updated_at=max(_now(clock), state.updated_at))


def _now(clock: Clock | None) -> int:
    return (clock or SystemClock()).wall() // 1_000_000


# --- results that no request has carried ------------------------------------------------


def create_unsent_result(call: ToolCall | PendingToolCall, output: object) -> UnsentToolResult:
    """The result of a call."""
    return UnsentToolResult(call_id=call.id, name=call.name, output=output)


def create_rejected_result(
    call: ToolCall | PendingToolCall, reason: str = "rejected by the user"
) -> UnsentToolResult:
    """The refusal of a call."""
    return UnsentToolResult(call_id=call.id, name=call.name, error=reason)


def unsent_results_to_items(
    results: Sequence[UnsentToolResult],
) -> tuple[FunctionCallOutput, ...]:
    """The results as items of the transcript.

    Raises:
        ToolError: An output is not JSON.
    """
    return tuple(_item_of(one) for one in results)


def _item_of(result: UnsentToolResult) -> FunctionCallOutput:
    if result.error:
        return function_call_output(result.call_id, f"Error: {result.error}")
    return function_call_output(result.call_id, model_output(result.output).output)


# --- text -----------------------------------------------------------------------------

_ALIASES = {
    "previousResponseId": "previous_response_id",
    "pendingToolCalls": "pending_tool_calls",
    "unsentToolResults": "unsent_tool_results",
    "partialResponse": "partial_response",
    "interruptedBy": "interrupted_by",
    "createdAt": "created_at",
    "updatedAt": "updated_at",
    "callId": "call_id",
    "toolCalls": "tool_calls",
}
"""As other libraries spell the members; read, and never written."""

_TYPED: Mapping[str, object] = {
    "previous_response_id": str,
    "pending_tool_calls": tuple[PendingToolCall, ...],
    "unsent_tool_results": tuple[UnsentToolResult, ...],
    "partial_response": PartialResponse,
    "interrupted_by": str,
    "running_call_ids": tuple[str, ...],
    "consumed_tool_choice": str,
    "tasks": tuple[AsyncTask, ...],
}
"""The members that may be missing, with their types."""


def serialize_conversation_state(state: ConversationState) -> str:
    """The state as text to be stored, with its version.

    Raises:
        InvalidState: A member is not JSON.
    """
    members: dict[str, object] = {
        **state.extra,
        "version": STATE_VERSION,
        "id": state.id,
        "status": state.status,
        "created_at": state.created_at,
        "updated_at": state.updated_at,
        "messages": [msgspec.Raw(encode(item)) for item in state.messages],
    }
    for name in _TYPED:
        value = getattr(state, name)
        if value:
            members[name] = value
    try:
        return msgspec.json.encode(members).decode()
    except (TypeError, ValueError) as error:
        raise InvalidState(str(error)) from error


def deserialize_conversation_state(text: str | bytes) -> ConversationState:
    """The state that a text holds.

    A text without a version has version 1. The version is looked at before anything else.

    Raises:
        UnsupportedStateVersion: It has another version.
        InvalidState: It is no state.
    """
    try:
        raw = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError as error:
        raise InvalidState("it is no JSON object") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidState(f"it is not JSON: {error}") from error
    given: dict[str, object] = {
        _ALIASES.get(name, name): value if name == "messages" else msgspec.json.decode(value)
        for name, value in raw.items()
    }
    _check_version(given.pop("version", STATE_VERSION))
    return _state_of(given)


def _check_version(version: object) -> None:
    if isinstance(version, bool) or not isinstance(version, int | float):
        raise InvalidState(f"expected a number, got {version!r}", member="version")
    if version != STATE_VERSION:
        raise UnsupportedStateVersion(version, (STATE_VERSION,))


def _state_of(given: dict[str, object]) -> ConversationState:
    conversation_id = _text(given, "id")
    status = _text(given, "status")
    if status not in get_args(Status):
        raise InvalidState(f"there is no status {status!r}", member="status")
    created, updated = _time(given, "created_at"), _time(given, "updated_at")
    messages = _messages(given)
    typed: dict[str, object] = {}
    for name, kind in _TYPED.items():
        value = given.pop(name, None)
        if value is not None:
            typed[name] = _typed(name, value, kind)
    return ConversationState(
        id=conversation_id,
        status=cast("Status", status),
        created_at=created,
        updated_at=updated,
        messages=messages,
        extra=MappingProxyType(given) if given else _NOTHING,
        **typed,  # type: ignore[arg-type]
    )


def _text(given: dict[str, object], name: str) -> str:
    value = given.pop(name, None)
    if not isinstance(value, str):
        raise InvalidState(f"expected a string, got {value!r}", member=name)
    return value


def _time(given: dict[str, object], name: str) -> int | float:
    value = given.pop(name, None)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidState(f"expected a number, got {value!r}", member=name)
    return value


def _messages(given: dict[str, object]) -> tuple[Item, ...]:
    value = given.pop("messages", None)
    if not isinstance(value, msgspec.Raw) or not bytes(value).lstrip().startswith(b"["):
        raise InvalidState("expected a list of items", member="messages")
    try:
        return tuple(decode_items(bytes(value)))  # from its own bytes, so that nothing is respelled
    except (DecodeError, ValueError) as error:
        raise InvalidState(str(error), member="messages") from error


def _typed(name: str, value: object, kind: object) -> object:
    try:
        return msgspec.convert(_renamed(value), kind, strict=True)
    except (msgspec.ValidationError, ValueError) as error:
        raise InvalidState(str(error), member=name) from error


def _renamed(value: object) -> object:
    """The same with the members of its objects spelled as they are written here."""
    if isinstance(value, list):
        return [_renamed(one) for one in cast("list[object]", value)]
    if isinstance(value, dict):
        return {_ALIASES.get(n, n): v for n, v in cast("dict[str, object]", value).items()}
    return value


def answered(items: Sequence[Item]) -> frozenset[str]:
    """The ids of the calls that have an output."""
    return frozenset(one.call_id for one in items if isinstance(one, FunctionCallOutput))


def dangling(state: ConversationState) -> tuple[FunctionCall, ...]:
    """The calls of a state that have no output, and do not wait for somebody."""
    waiting = {one.id for one in state.pending_tool_calls}
    done = answered(state.messages)
    return tuple(
        item
        for item in state.messages
        if isinstance(item, FunctionCall)
        and item.call_id not in done
        and item.call_id not in waiting
    )
