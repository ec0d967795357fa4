"""The nine built-in hooks: what each is told, and what its handlers may answer."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, Generic, TypeVar, cast, overload

import msgspec

from perdure.compose.lifecycle import (
    EndReason,
    ModelCalled,
    Permission,
    Risk,
    SessionConfig,
    UsageTotals,
)
from perdure.errors import ConfigError

P = TypeVar("P")
R = TypeVar("R")

DEFAULT_ASYNC_TIMEOUT = 30.0
"""Seconds that detached work of a handler is waited for, unless it says otherwise."""


class Hook(msgspec.Struct, Generic[P, R], frozen=True, kw_only=True, eq=False):
    """A hook: a name, what its handlers are told, and what they may answer.

    Made with `hook`; the nine built-in ones are constants.

    Attributes:
        payload: The type of what handlers are told.
        result: The type of what they answer; None if whatever they return is ignored.
        pipes: A member of the result that becomes a member of the payload for the next handler.
        stops: A member of the result that ends the chain where it is True or a text.
        scoped: It is about a tool, so that entries may match the tool's name.
    """

    name: str
    payload: object
    result: object = None
    pipes: tuple[str, str] | None = None
    stops: str = ""
    scoped: bool = False


# --- what handlers are told and answer ----------------------------------------------------


class _Payload(msgspec.Struct, frozen=True, kw_only=True):
    pass


class _Result(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class PreToolUse(_Payload, frozen=True, kw_only=True):
    """A tool is about to be entered."""

    tool_name: str
    tool_input: dict[str, object]


class PreToolUseResult(_Result, frozen=True, kw_only=True):
    """Other arguments for the call, or that it must not run."""

    mutated_input: dict[str, object] | None = None
    block: bool | str = False
    """True, or the reason, which the model reads. An empty text blocks nothing."""


class PostToolUse(_Payload, frozen=True, kw_only=True):
    """The body of a tool ran and gave a result."""

    tool_name: str
    tool_input: dict[str, object]
    tool_output: object
    seconds: float


class PostToolUseFailure(_Payload, frozen=True, kw_only=True):
    """The body of a tool ran and failed. Never told of a call that did not run."""

    tool_name: str
    tool_input: dict[str, object]
    error: BaseException


class UserPromptSubmit(_Payload, frozen=True, kw_only=True):
    """What the user says, before the first request."""

    prompt: str


class UserPromptSubmitResult(_Result, frozen=True, kw_only=True):
    """Another prompt, or that there is to be no run."""

    mutated_prompt: str | None = None
    reject: bool | str = False


class PermissionRequest(_Payload, frozen=True, kw_only=True):
    """A call needs approval, and nobody has been asked yet."""

    tool_name: str
    tool_input: dict[str, object]
    risk_level: Risk


class PermissionRequestResult(_Result, frozen=True, kw_only=True):
    """What is decided; of several answers the last one stands."""

    decision: Permission = "ask_user"
    reason: str = ""


class Stop(_Payload, frozen=True, kw_only=True):
    """A condition is about to stop the run."""

    reason: str = "max_turns"


class StopResult(_Result, frozen=True, kw_only=True):
    """Whether the run goes on, and what the user says then."""

    force_resume: bool = False
    append_prompt: str = ""


class SessionStart(_Payload, frozen=True, kw_only=True):
    """A run begins; one that goes on with decisions does not begin again."""

    config: SessionConfig


class SessionEnd(_Payload, frozen=True, kw_only=True):
    """A run that began is over."""

    reason: EndReason
    total_usage: UsageTotals


PRE_TOOL_USE = Hook[PreToolUse, PreToolUseResult](
    name="PreToolUse",
    payload=PreToolUse,
    result=PreToolUseResult,
    pipes=("mutated_input", "tool_input"),
    stops="block",
    scoped=True,
)
POST_TOOL_USE = Hook[PostToolUse, object](name="PostToolUse", payload=PostToolUse, scoped=True)
POST_TOOL_USE_FAILURE = Hook[PostToolUseFailure, object](
    name="PostToolUseFailure", payload=PostToolUseFailure, scoped=True
)
USER_PROMPT_SUBMIT = Hook[UserPromptSubmit, UserPromptSubmitResult](
    name="UserPromptSubmit",
    payload=UserPromptSubmit,
    result=UserPromptSubmitResult,
    pipes=("mutated_prompt", "prompt"),
    stops="reject",
)
PERMISSION_REQUEST = Hook[PermissionRequest, PermissionRequestResult](
    name="PermissionRequest",
    payload=PermissionRequest,
    result=PermissionRequestResult,
    scoped=True,
)
STOP = Hook[Stop, StopResult](name="Stop", payload=Stop, result=StopResult)
SESSION_START = Hook[SessionStart, object](name="SessionStart", payload=SessionStart)
SESSION_END = Hook[SessionEnd, object](name="SessionEnd", payload=SessionEnd)
POST_MODEL_CALL = Hook[ModelCalled, object](name="PostModelCall", payload=ModelCalled)

BUILT_IN: Mapping[str, Hook[Any, Any]] = {
    one.name: one
    for one in cast(
        "tuple[Hook[Any, Any], ...]",
        (
            PRE_TOOL_USE,
            POST_TOOL_USE,
            POST_TOOL_USE_FAILURE,
            USER_PROMPT_SUBMIT,
            STOP,
            PERMISSION_REQUEST,
            SESSION_START,
            SESSION_END,
            POST_MODEL_CALL,
        ),
    )
}


def is_built_in_hook(name: str) -> bool:
    """Whether a name is one of the nine."""
    return name in BUILT_IN


@overload
def hook(name: str, payload: type[P], result: None = None) -> Hook[P, object]: ...


@overload
def hook(name: str, payload: type[P], result: type[R]) -> Hook[P, R]: ...


def hook(name: str, payload: type[P], result: type[R] | None = None) -> Hook[P, R]:
    """A hook of your own; it neither pipes nor blocks.

    Args:
        name: What it is called.
        payload: What handlers are told.
        result: What they answer; without one, whatever they return is ignored.

    Raises:
        ConfigError: The name is empty, or that of a built-in hook.
    """
    if not name or is_built_in_hook(name):
        what = "is a built-in hook" if name else "is empty"
        raise ConfigError(f"a hook cannot be named {name!r}: it {what}")
    return Hook(name=name, payload=payload, result=result)


class AsyncWork(msgspec.Struct, frozen=True, eq=False):
    """What a handler returns in place of a result to leave work behind that nobody waits for.

    Attributes:
        work: The work; None if there is nothing to keep track of.
        timeout: Seconds after which it is not waited for any longer. It is told then, by the
            signal of its context, and not cancelled.
    """

    work: Awaitable[object] | None = None
    timeout: float = DEFAULT_ASYNC_TIMEOUT
