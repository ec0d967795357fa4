"""The manager: handlers by hook, and what emits them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from perdure.clock import Clock, Ids, RandomIds, SystemClock
from perdure.compose.hooks.chain import (
    EmitResult,
    Handler,
    HookContext,
    HookEntry,
    Matcher,
    Policy,
    run_chain,
)
from perdure.compose.hooks.words import (
    BUILT_IN,
    PERMISSION_REQUEST,
    POST_MODEL_CALL,
    POST_TOOL_USE,
    POST_TOOL_USE_FAILURE,
    PRE_TOOL_USE,
    SESSION_END,
    SESSION_START,
    STOP,
    USER_PROMPT_SUBMIT,
    Hook,
    PermissionRequest,
    PostToolUse,
    PostToolUseFailure,
    PreToolUse,
    SessionEnd,
    SessionStart,
    Stop,
    UserPromptSubmit,
)
from perdure.compose.hooks.work import Detached
from perdure.compose.lifecycle import (
    EndReason,
    Lifecycle,
    ModelCalled,
    PermissionVerdict,
    PromptVerdict,
    Risk,
    SessionConfig,
    StopVerdict,
    ToolVerdict,
    UsageTotals,
)
from perdure.errors import ConfigError
from perdure.loop import Middleware

if TYPE_CHECKING:
    from perdure.compose.hooks.middleware import HooksMiddleware

P = TypeVar("P")
R = TypeVar("R")
AnyHook = Hook[Any, Any]

logger = logging.getLogger("perdure.hooks")

BLOCKED = "blocked by a hook"
"""What the model reads of a blocked call, if nobody said why."""

REJECTED = "the prompt was rejected by a hook"


class HooksManager(Lifecycle):
    """Handlers of lifecycle hooks, the nine built-in ones and others.

    One manager serves any number of runs at once: each emit has its own session id. Give it to
    `call_model(hooks=...)`, or its `middleware()` to an agent.

    Args:
        strict: Raise what handlers, filters and matchers raise, and values of the wrong type.
            Otherwise each is a warning, and the entry is skipped.
        warn: Where warnings go; to the logger `perdure.hooks` by default.
        clock: What timeouts are measured with.
        ids: Where the default session id comes from.
    """

    def __init__(
        self,
        *,
        strict: bool = False,
        warn: Callable[[str], None] = logger.warning,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self._policy = Policy(strict=strict, warn=warn)
        self._detached = Detached(self.clock, warn)
        self._entries: dict[str, list[HookEntry[Any, Any]]] = {}
        self._custom: dict[str, AnyHook] = {}
        self._session_id = (ids or RandomIds()).new("session_")

    # --- registering -----------------------------------------------------------------------

    @overload
    def on(
        self,
        hook: Hook[P, R],
        handler: Handler[P, R],
        *,
        matcher: Matcher | None = None,
        filter: Callable[[P], object] | None = None,
    ) -> Callable[[], None]: ...

    @overload
    def on(
        self,
        hook: str,
        handler: Callable[..., object],
        *,
        matcher: Matcher | None = None,
        filter: Callable[..., object] | None = None,
    ) -> Callable[[], None]: ...

    def on(
        self,
        hook: AnyHook | str,
        handler: Callable[..., Any],
        *,
        matcher: Matcher | None = None,
        filter: Callable[..., object] | None = None,  # noqa: A002 - the natural word
    ) -> Callable[[], None]:
        """Add a handler; those of a hook run in the order in which they were added.

        Args:
            hook: The hook, or its name.
            handler: Called with the payload and a `HookContext`; sync or async.
            matcher: Which tools it is for.
            filter: Which payloads it is for.

        Returns:
            A function that removes it, and does nothing the second time.

        Raises:
            ConfigError: There is no such hook, or another one of the same name.
        """
        return self.add(hook, HookEntry(handler, matcher=matcher, filter=filter))

    def add(self, hook: Hook[P, R] | str, entry: HookEntry[P, R]) -> Callable[[], None]:
        """`on`, for an entry. Raises as `on`."""
        entries = self._entries.setdefault(self._hook(hook).name, [])
        entries.append(entry)

        def remove() -> None:
            for place, one in enumerate(entries):
                if one is entry:
                    del entries[place]
                    return

        return remove

    def off(self, hook: AnyHook | str, handler: Callable[..., object]) -> bool:
        """Remove the first entry of a handler; whether there was one."""
        entries = self._entries.get(_name(hook), [])
        for place, entry in enumerate(entries):
            # a bound method is another object each time it is asked for, and equal to itself
            if entry.handler is handler or entry.handler == handler:
                del entries[place]
                return True
        return False

    def remove_all(self, hook: AnyHook | str | None = None) -> None:
        """Remove the handlers of a hook, or of all."""
        if hook is None:
            for entries in self._entries.values():
                entries.clear()
        elif _name(hook) in self._entries:
            self._entries[_name(hook)].clear()

    def has_handlers(self, hook: AnyHook | str) -> bool:
        """Whether a hook has handlers."""
        return bool(self._entries.get(_name(hook)))

    def _hook(self, hook: AnyHook | str) -> AnyHook:
        name = _name(hook)
        known = BUILT_IN.get(name) or self._custom.get(name)
        if isinstance(hook, str):
            if known is None:
                raise ConfigError(f"no hook is named {name!r}; give the hook itself")
            return known
        if known is None:
            known = self._custom[name] = hook
        if known is not hook and (known.payload, known.result) != (hook.payload, hook.result):
            raise ConfigError(f"another hook is named {name!r}")
        return known

    # --- emitting --------------------------------------------------------------------------

    @overload
    async def emit(
        self,
        hook: Hook[P, R],
        payload: P | Mapping[str, object],
        *,
        tool_name: str | None = None,
        session_id: str | None = None,
    ) -> EmitResult[P, R]: ...

    @overload
    async def emit(
        self,
        hook: str,
        payload: object,
        *,
        tool_name: str | None = None,
        session_id: str | None = None,
    ) -> EmitResult[object, object]: ...

    async def emit(
        self,
        hook: AnyHook | str,
        payload: object,
        *,
        tool_name: str | None = None,
        session_id: str | None = None,
    ) -> EmitResult[Any, Any]:
        """Run the handlers of a hook, those that are there now.

        Args:
            hook: The hook, or its name.
            payload: What they are told, or its members.
            tool_name: The tool that matchers look at.
            session_id: Whose session; the manager's default if nobody says.

        Raises:
            ConfigError: There is no such hook; in a strict manager, also a value of the wrong type.
            Exception: In a strict manager, what a handler raised.
        """
        found = self._hook(hook)
        entries = tuple(self._entries.get(found.name, ()))
        with self._detached.emitting() as signal:
            context = HookContext(
                hook=found.name,
                session_id=self._session_id if session_id is None else session_id,
                signal=signal,
            )
            return await run_chain(
                found,
                entries,
                payload,
                context,
                self._policy,
                tool_name=tool_name,
                detached=self._detached,
            )

    def set_session_id(self, session_id: str) -> None:
        """The session of emits that name none. The last one who says it is right."""
        self._session_id = session_id

    async def drain(self) -> None:
        """Wait until no detached work is left; runs do at their end, however they end."""
        await self._detached.drain()

    def abort_inflight(self, reason: str = "aborted") -> None:
        """Tell the emits that run, and the detached work that is left, to stop.

        A chain that is told starts no further handler. Nothing is cancelled; `drain` waits.
        """
        self._detached.abort(reason)

    def middleware(self, policy: Middleware | None = None) -> HooksMiddleware:
        """The hooks as middleware of an agent.

        Args:
            policy: What holds calls and stops drives. What it holds is put to PermissionRequest,
                what it stops to Stop; give it here in place of `Agent(middleware=...)`.
        """
        from perdure.compose.hooks.middleware import HooksMiddleware

        return HooksMiddleware(self, policy)

    # --- the moments of a run, as call_model tells them ---------------------------------------

    async def session_start(self, session_id: str, config: SessionConfig) -> None:
        await self.emit(SESSION_START, SessionStart(config=config), session_id=session_id)

    async def user_prompt(self, session_id: str, prompt: str) -> PromptVerdict:
        given = UserPromptSubmit(prompt=prompt)
        emitted = await self.emit(USER_PROMPT_SUBMIT, given, session_id=session_id)
        return PromptVerdict(
            text=emitted.payload.prompt if emitted.mutated else None,
            rejected=(emitted.reason or REJECTED) if emitted.blocked else None,
        )

    async def pre_tool_use(
        self, session_id: str, tool: str, arguments: Mapping[str, object]
    ) -> ToolVerdict:
        given = PreToolUse(tool_name=tool, tool_input=dict(arguments))
        emitted = await self.emit(PRE_TOOL_USE, given, tool_name=tool, session_id=session_id)
        return ToolVerdict(
            arguments=emitted.payload.tool_input if emitted.mutated else None,
            blocked=(emitted.reason or BLOCKED) if emitted.blocked else None,
        )

    async def post_tool_use(
        self,
        session_id: str,
        tool: str,
        arguments: Mapping[str, object],
        output: object,
        seconds: float,
    ) -> None:
        given = PostToolUse(
            tool_name=tool, tool_input=dict(arguments), tool_output=output, seconds=seconds
        )
        await self.emit(POST_TOOL_USE, given, tool_name=tool, session_id=session_id)

    async def post_tool_use_failure(
        self, session_id: str, tool: str, arguments: Mapping[str, object], error: BaseException
    ) -> None:
        given = PostToolUseFailure(tool_name=tool, tool_input=dict(arguments), error=error)
        await self.emit(POST_TOOL_USE_FAILURE, given, tool_name=tool, session_id=session_id)

    async def permission_request(
        self, session_id: str, tool: str, arguments: Mapping[str, object], risk: Risk
    ) -> PermissionVerdict:
        given = PermissionRequest(tool_name=tool, tool_input=dict(arguments), risk_level=risk)
        emitted = await self.emit(PERMISSION_REQUEST, given, tool_name=tool, session_id=session_id)
        if not emitted.results:
            return PermissionVerdict()
        last = emitted.results[-1]
        return PermissionVerdict(last.decision, last.reason)

    async def stop(self, session_id: str) -> StopVerdict:
        emitted = await self.emit(STOP, Stop(), session_id=session_id)
        said = [one.append_prompt for one in emitted.results if one.append_prompt]
        return StopVerdict(
            resume=any(one.force_resume for one in emitted.results), prompt="\n".join(said)
        )

    async def post_model_call(self, called: ModelCalled) -> None:
        await self.emit(POST_MODEL_CALL, called, session_id=called.session_id)

    async def session_end(self, session_id: str, reason: EndReason, totals: UsageTotals) -> None:
        given = SessionEnd(reason=reason, total_usage=totals)
        await self.emit(SESSION_END, given, session_id=session_id)


def _name(hook: AnyHook | str) -> str:
    return hook if isinstance(hook, str) else hook.name


Inline = Mapping[str, object]
"""Built-in hooks by name, each with a handler, a `HookEntry`, or a list of those."""


def resolve_hooks(hooks: HooksManager | Inline | None) -> HooksManager | None:
    """The manager that is meant: itself, one made of inline hooks, or none.

    Raises:
        ConfigError: A name is no built-in hook's. A policy under a misspelt name would never run.
    """
    if isinstance(hooks, HooksManager):
        return hooks
    if not hooks:
        return None
    manager = HooksManager()
    for name, given in hooks.items():
        if name not in BUILT_IN:
            known = ", ".join(sorted(BUILT_IN))
            raise ConfigError(f"{name!r} is no built-in hook; those are {known}")
        for one in _several(given):
            manager.add(name, _entry(name, one))
    return manager


def _several(given: object) -> Iterable[object]:
    return cast("Iterable[object]", given) if isinstance(given, list | tuple) else (given,)


def _entry(name: str, given: object) -> HookEntry[Any, Any]:
    if isinstance(given, HookEntry):
        return given  # pyright: ignore[reportUnknownVariableType]
    if not callable(given):
        raise ConfigError(f"a handler of {name!r} is a function, got {given!r}")
    return HookEntry(cast("Handler[Any, Any]", given))
