"""One emit: the handlers of a hook, one after the other."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar, cast

import msgspec

from perdure.compose.hooks.words import AsyncWork, Hook
from perdure.compose.hooks.work import Detached, HookSignal
from perdure.errors import ConfigError

P = TypeVar("P")
R = TypeVar("R")

Matcher: TypeAlias = str | re.Pattern[str] | Callable[[str], object]
"""Which tools an entry is for: a name, a pattern that is searched for, or a function."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HookContext:
    """What a handler knows beside its payload."""

    hook: str
    session_id: str
    signal: HookSignal
    """Set when work is to stop: by `abort_inflight`, or when detached work outlives its time."""


Answer: TypeAlias = R | AsyncWork | None
Handler: TypeAlias = Callable[[P, HookContext], Answer[R] | Awaitable[Answer[R]]]
"""Called with the payload as the handlers before it left it. What it raises is a warning and skips
it, unless the manager is strict; an abort does not cut it short."""


@dataclasses.dataclass(frozen=True, slots=True)
class HookEntry(Generic[P, R]):
    """One handler of a hook.

    Attributes:
        matcher: Which tools it is for; looked at first. Where no tool is named, an entry with a
            matcher is skipped.
        filter: Which payloads it is for.
    """

    handler: Handler[P, R]
    _: dataclasses.KW_ONLY
    matcher: Matcher | None = None
    filter: Callable[[P], object] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EmitResult(Generic[P, R]):
    """What an emit gave.

    Attributes:
        results: What the handlers answered, in order.
        payload: The payload as the last handler left it.
        blocked: A handler ended the chain.
        reason: Why, if it said so.
        mutated: A handler changed the payload.
        pending: The work that was left behind.
    """

    results: tuple[R, ...] = ()
    payload: P
    blocked: bool = False
    reason: str = ""
    mutated: bool = False
    pending: tuple[asyncio.Task[None], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What becomes of failures."""

    strict: bool
    warn: Callable[[str], None]

    def failed(self, what: str, error: Exception) -> None:
        """Warn, or raise the error if failures are to be raised."""
        if self.strict:
            raise error
        self.warn(f"{what}: {error!r}; skipped")


def matches_tool(matcher: Matcher | None, tool_name: str) -> bool:
    """Whether a matcher is for a tool. None is for all."""
    if matcher is None:
        return True
    if isinstance(matcher, str):
        return matcher == tool_name
    if isinstance(matcher, re.Pattern):
        return matcher.search(tool_name) is not None
    return bool(matcher(tool_name))


async def run_chain(
    hook: Hook[P, R],
    entries: Sequence[HookEntry[P, R]],
    given: P | Mapping[str, object],
    context: HookContext,
    policy: Policy,
    *,
    tool_name: str | None,
    detached: Detached,
) -> EmitResult[P, R]:
    """Run handlers in order until one of them ends the chain.

    Raises:
        ConfigError: Failures are to be raised, and the payload or a result is not of its type.
        Exception: Failures are to be raised, and a handler raised this.
    """
    try:
        payload = read_payload(hook, given)
    except ConfigError as error:
        policy.failed(f"the payload of {hook.name!r}", error)
        return EmitResult(payload=cast("P", given))
    results: list[R] = []
    pending: list[asyncio.Task[None]] = []
    blocked, mutated, reason = False, False, ""
    for entry in entries:
        if context.signal:
            break
        try:
            answer = await _answer(entry, payload, context, tool_name)
            if isinstance(answer, AsyncWork):
                task = detached.track(answer, context.signal, hook.name)
                pending += [] if task is None else [task]
                continue
            result = _read_result(hook, answer)
        except Exception as error:  # noqa: BLE001 - a handler, a filter, a matcher may raise anything
            policy.failed(f"a handler of {hook.name!r}", error)
            continue
        if result is None:
            continue
        results.append(result)
        payload, changed = _piped(hook, payload, result)
        mutated = mutated or changed
        blocked, reason = _stopped(hook, result)
        if blocked:
            break
    return EmitResult(
        results=tuple(results),
        payload=payload,
        blocked=blocked,
        reason=reason,
        mutated=mutated,
        pending=tuple(pending),
    )


async def _answer(
    entry: HookEntry[P, R], payload: P, context: HookContext, tool_name: str | None
) -> object:
    if entry.matcher is not None and (
        tool_name is None or not matches_tool(entry.matcher, tool_name)
    ):
        return None
    if entry.filter is not None and not entry.filter(_own(payload)):
        return None
    answer = entry.handler(_own(payload), context)
    return await answer if inspect.isawaitable(answer) else answer


def _own(payload: P) -> P:
    """The payload for one handler: what it changes in place is its own affair."""
    if isinstance(payload, dict):
        return cast("P", dict(cast("dict[str, object]", payload)))
    if not isinstance(payload, msgspec.Struct):
        return payload
    copies: dict[str, Any] = {
        name: dict(cast("dict[str, object]", value))
        for name in payload.__struct_fields__
        if isinstance(value := getattr(payload, name), dict)
    }
    return cast("P", msgspec.structs.replace(payload, **copies)) if copies else payload


# --- values ---------------------------------------------------------------------------------


def read_payload(hook: Hook[P, R], given: object) -> P:
    """A payload of the hook's type, with its defaults.

    Raises:
        ConfigError: It is not of that type.
    """
    if isinstance(hook.payload, type) and isinstance(given, hook.payload):
        return cast("P", given)
    return cast("P", _converted(hook, given, hook.payload, "payload"))


def _read_result(hook: Hook[P, R], answer: object) -> R | None:
    if answer is None or hook.result is None:
        return None
    if isinstance(hook.result, type) and isinstance(answer, hook.result):
        return cast("R", answer)
    return cast("R", _converted(hook, answer, hook.result, "result"))


def _converted(hook: Hook[Any, Any], value: object, wanted: object, what: str) -> object:
    try:
        return msgspec.convert(value, cast("type[object]", wanted))
    except (msgspec.ValidationError, TypeError) as error:
        raise ConfigError(f"a {what} of the hook {hook.name!r} does not fit: {error}") from error


def _piped(hook: Hook[P, R], payload: P, result: R) -> tuple[P, bool]:
    if hook.pipes is None:
        return payload, False
    source, target = hook.pipes
    value: object = getattr(result, source)
    if value is None:
        return payload, False
    changed = msgspec.structs.replace(cast("msgspec.Struct", payload), **{target: value})
    return cast("P", changed), True


def _stopped(hook: Hook[P, R], result: R) -> tuple[bool, str]:
    value: object = getattr(result, hook.stops) if hook.stops else None
    if isinstance(value, str):
        return bool(value), value
    return value is True, ""
