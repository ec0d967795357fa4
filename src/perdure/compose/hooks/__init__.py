"""Lifecycle hooks: functions that hear of the moments of a run, and may change or stop it.

A *hook* is a moment with a name. Its *handlers* form a chain: each gets the *payload* as the one
before it left it, and may give a *result*. An *entry* is a handler with a *matcher* over tool names
and a *filter* over payloads. To *emit* is to run the chain once. What a handler leaves behind as
`AsyncWork` is *detached*: nobody waits for it but `drain`.
"""

from perdure.compose.hooks.chain import (
    EmitResult,
    Handler,
    HookContext,
    HookEntry,
    Matcher,
    matches_tool,
)
from perdure.compose.hooks.manager import HooksManager, resolve_hooks
from perdure.compose.hooks.middleware import HooksMiddleware
from perdure.compose.hooks.words import (
    BUILT_IN,
    DEFAULT_ASYNC_TIMEOUT,
    PERMISSION_REQUEST,
    POST_MODEL_CALL,
    POST_TOOL_USE,
    POST_TOOL_USE_FAILURE,
    PRE_TOOL_USE,
    SESSION_END,
    SESSION_START,
    STOP,
    USER_PROMPT_SUBMIT,
    AsyncWork,
    Hook,
    PermissionRequest,
    PermissionRequestResult,
    PostToolUse,
    PostToolUseFailure,
    PreToolUse,
    PreToolUseResult,
    SessionEnd,
    SessionStart,
    Stop,
    StopResult,
    UserPromptSubmit,
    UserPromptSubmitResult,
    hook,
    is_built_in_hook,
)
from perdure.compose.hooks.work import HookSignal

__all__ = [
    "BUILT_IN",
    "DEFAULT_ASYNC_TIMEOUT",
    "PERMISSION_REQUEST",
    "POST_MODEL_CALL",
    "POST_TOOL_USE",
    "POST_TOOL_USE_FAILURE",
    "PRE_TOOL_USE",
    "SESSION_END",
    "SESSION_START",
    "STOP",
    "USER_PROMPT_SUBMIT",
    "AsyncWork",
    "EmitResult",
    "Handler",
    "Hook",
    "HookContext",
    "HookEntry",
    "HookSignal",
    "HooksManager",
    "HooksMiddleware",
    "Matcher",
    "PermissionRequest",
    "PermissionRequestResult",
    "PostToolUse",
    "PostToolUseFailure",
    "PreToolUse",
    "PreToolUseResult",
    "SessionEnd",
    "SessionStart",
    "Stop",
    "StopResult",
    "UserPromptSubmit",
    "UserPromptSubmitResult",
    "hook",
    "is_built_in_hook",
    "matches_tool",
    "resolve_hooks",
]
