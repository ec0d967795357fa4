"""The hooks of a manager around the loop of an agent.

A drive from an input is a session of the hooks; one that goes on with answers is no new session and
has no start or end of its own. Every drive has its own session id, that of its run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from perdure.compose.lifecycle import (
    EndReason,
    ModelCalled,
    SessionConfig,
    TurnType,
    UsageTotals,
)
from perdure.errors import Guard, LoopDetected
from perdure.loop import (
    Hidden,
    Items,
    Middleware,
    ModelRequest,
    NextModel,
    NextTool,
    RunEnd,
    RunInfo,
    ToolCallInfo,
    ToolDecision,
    ToolOverride,
    ToolResultInfo,
    TurnInfo,
    TurnStartInfo,
    current_run_id,
)
from perdure.loop.model import close
from perdure.loop.usage import NO_USAGE, add
from perdure.tools import ToolResult, plain_arguments
from perdure.tools.result import json_text
from perdure.wire import (
    InputText,
    Item,
    Message,
    Response,
    ResponseCompleted,
    ResponseIncomplete,
    StreamEvent,
    Usage,
    user,
)

if TYPE_CHECKING:
    from perdure.compose.hooks.manager import HooksManager

DENIED = "denied by a hook"
CHANGED = "a hook changed the arguments that a person approved"


@dataclasses.dataclass(slots=True, kw_only=True)
class _Run:
    """What is known of a drive while it runs."""

    fresh: bool
    """It came from an input, not from answers."""
    opened: bool = False
    """Its SessionStart was told."""
    model_calls: int = 0
    usage: Usage = NO_USAGE
    asked: set[str] = dataclasses.field(default_factory=set[str])
    """The calls that PreToolUse was told of."""
    entered: dict[str, float] = dataclasses.field(default_factory=dict[str, float])
    """The calls that entered their tool: when, and then how long they took."""
    prompt: tuple[Item, Item] | None = None
    """What the user said, and what requests say instead."""
    said: str = ""
    """What the user says before the next turn, because a Stop hook has it so."""


class HooksMiddleware(Middleware):
    """A manager's hooks as middleware; made by `HooksManager.middleware`.

    Args:
        manager: The manager.
        policy: What holds calls, and what stops drives.
    """

    def __init__(self, manager: HooksManager, policy: Middleware | None = None) -> None:
        self._manager = manager
        self._policy = policy or Middleware()
        self._gated = policy is not None
        self._runs: dict[str, _Run] = {}

    # --- the drive ---------------------------------------------------------------------------

    async def before_run(self, info: RunInfo) -> None:
        """SessionStart, for a drive from an input."""
        run = self._runs[info.run_id] = _Run(fresh=info.source == "input")
        if run.fresh:
            config = SessionConfig(has_tools=True, has_approval=self._gated, has_state=False)
            await self._manager.session_start(info.run_id, config)
            run.opened = True

    async def before_turn(self, info: TurnStartInfo) -> Sequence[Item | Hidden]:
        """UserPromptSubmit before the first turn; what a Stop hook adds, before a later one."""
        run = self._runs[info.run_id]
        if info.turn == 1 and run.fresh:
            await self._submit(run, info)
        said, run.said = run.said, ""
        return (user(said),) if said else ()

    async def _submit(self, run: _Run, info: TurnStartInfo) -> None:
        prompts = [one.item for one in info.inputs if one.mode == "prompt"]
        said = next((one for one in reversed(prompts) if _is_users(one)), None)
        if not isinstance(said, Message) or not _is_text(said):
            return
        verdict = await self._manager.user_prompt(info.run_id, said.text)
        if verdict.rejected is not None:
            raise Guard(verdict.rejected)
        if verdict.text is not None:
            run.prompt = (said, msgspec.structs.replace(said, content=user(verdict.text).content))

    async def before_model_call(self, request: ModelRequest) -> ModelRequest | None:
        """Put the prompt that a hook changed in place of the one that was given."""
        run = self._runs.get(current_run_id())
        if run is None or run.prompt is None:
            return None
        said, instead = run.prompt
        kept = [instead if item is said else item for item in request.input]
        return msgspec.structs.replace(request, input=Items.of(kept))

    async def on_end(self, end: RunEnd) -> None:
        """SessionEnd, if there was a SessionStart; then wait for what hooks left behind."""
        run_id = end.run_id or current_run_id()
        run = self._runs.pop(run_id, None)
        try:
            if run is not None and run.opened:
                totals = UsageTotals(usage=run.usage, model_calls=run.model_calls)
                await self._manager.session_end(run_id, _reason(end), totals)
        finally:
            await self._manager.drain()

    # --- the model -----------------------------------------------------------------------------

    async def wrap_model_call(
        self,
        request: ModelRequest,
        next: NextModel,  # noqa: A002 - the hook's own name
    ) -> AsyncIterator[StreamEvent]:
        """PostModelCall, as soon as a response is whole, before anybody acts on it."""
        run_id, clock = current_run_id(), self._manager.clock
        started = clock.monotonic()
        stream = next(request)
        try:
            async for event in stream:
                if isinstance(event, ResponseCompleted | ResponseIncomplete):
                    await self._called(run_id, event.response, clock.monotonic() - started)
                yield event
        finally:
            await close(stream)

    async def _called(self, run_id: str, response: Response, seconds: float) -> None:
        run = self._runs.get(run_id)
        if run is None:
            return
        turn_type: TurnType = "tool_round"
        if run.model_calls == 0:
            turn_type = "initial" if run.fresh else "resume"
        usage = response.usage or None
        called = ModelCalled(
            session_id=run_id,
            response_id=response.id,
            model=response.model or "",
            seconds=seconds,
            turn_type=turn_type,
            turn_number=run.model_calls,
            usage=usage,
        )
        run.model_calls += 1
        run.usage = add(run.usage, usage)
        await self._manager.post_model_call(called)

    # --- calls -------------------------------------------------------------------------------

    async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
        """The policy, PermissionRequest for what it holds, PreToolUse for what is to run."""
        decision = await self._policy.before_tool_call(info)
        if info.tool is None:
            return decision
        if decision is not None and decision.action == "hold":
            decision = await self._permitted(info, decision)
        if decision is not None and decision.action != "proceed":
            return decision
        given = info.arguments
        if decision is not None and decision.arguments is not None:
            given = decision.arguments
        return await self._pre_tool_use(info, given, decision)

    async def _permitted(self, info: ToolCallInfo, held: ToolDecision) -> ToolDecision:
        arguments = plain_arguments(held.arguments or info.arguments)
        verdict = await self._manager.permission_request(
            info.run_id, info.call.name, arguments, "high"
        )
        if verdict.decision == "ask_user":
            return held
        action = "proceed" if verdict.decision == "allow" else "reject"
        reason = verdict.reason or (DENIED if action == "reject" else held.reason)
        return msgspec.structs.replace(held, action=action, reason=reason, by="policy")

    async def _pre_tool_use(
        self, info: ToolCallInfo, given: str, decision: ToolDecision | None
    ) -> ToolDecision | None:
        self._runs[info.run_id].asked.add(info.call.call_id)
        verdict = await self._manager.pre_tool_use(
            info.run_id, info.call.name, plain_arguments(given)
        )
        if verdict.blocked is not None:
            return ToolDecision(action="reject", reason=verdict.blocked, by="policy")
        if verdict.arguments is None:
            return decision
        changed = json_text(dict(verdict.arguments))
        return msgspec.structs.replace(decision or ToolDecision(), arguments=changed)

    async def wrap_tool_call(self, info: ToolCallInfo, next: NextTool) -> ToolResult:  # noqa: A002
        """Time the call. One that a person approved was not put to PreToolUse yet: do so."""
        run, call_id = self._runs[info.run_id], info.call.call_id
        if call_id not in run.asked:
            decided = await self._pre_tool_use(info, info.arguments, None)
            if decided is not None:
                # A decision is bound to the arguments it was made about (DESIGN 6.5).
                return ToolResult(f"Error: {decided.reason or CHANGED}")
        started = self._manager.clock.monotonic()
        run.entered[call_id] = 0.0
        try:
            return await next()
        finally:
            run.entered[call_id] = self._manager.clock.monotonic() - started

    async def after_tool_call(self, info: ToolResultInfo) -> ToolOverride | None:
        """PostToolUse or PostToolUseFailure, of a call whose body ran."""
        seconds = self._runs[info.run_id].entered.pop(info.call.call_id, None)
        if seconds is None:
            return None
        name, arguments = info.call.name, plain_arguments(info.arguments)
        if info.error is not None:
            await self._manager.post_tool_use_failure(info.run_id, name, arguments, info.error)
        else:
            output = info.result.output
            await self._manager.post_tool_use(info.run_id, name, arguments, output, seconds)
        return None

    async def should_stop(self, info: TurnInfo) -> bool:
        """Stop, if the policy stops a drive that would go on."""
        if not await self._policy.should_stop(info):
            return False
        if info.final:
            return True
        verdict = await self._manager.stop(info.run_id)
        if verdict.resume:
            self._runs[info.run_id].said = verdict.prompt
        return not verdict.resume


def _is_users(item: Item) -> bool:
    return isinstance(item, Message) and item.role == "user"


def _is_text(message: Message) -> bool:
    content = message.content
    return isinstance(content, str) or all(isinstance(part, InputText) for part in content)


def _reason(end: RunEnd) -> EndReason:
    """Why a session is over. A pause is complete: what goes on is another drive."""
    if isinstance(end.error, LoopDetected):
        return "doom_loop"
    if end.reason == "error" or end.cause == "guard":
        return "error"
    if end.reason == "aborted":
        return "user"
    return "max_turns" if end.cause in {"max_turns", "hook"} else "complete"
