"""The rounds of a run, as middleware around the loop.

A round is planned when its first call is put to a decision: whether the run stops, which calls
need somebody, which may run. Every other decision of the loop, an approval gate of several people
among them, is folded with the plan's, and the strictest stands.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from perdure.compose.bodies import value_of
from perdure.compose.lifecycle import Risk
from perdure.compose.logged import BY_CALLER, NEEDS_APPROVAL
from perdure.compose.predicates import is_auto_resolvable
from perdure.compose.state import PendingWhy
from perdure.compose.stops import StepResult, is_stop_condition_met, server_results
from perdure.compose.tasks import envelope
from perdure.compose.turns import ToolCall, settled, tool_call_of
from perdure.errors import CallEnded, ConfigError, InputRequired
from perdure.loop import (
    Hidden,
    Items,
    Middleware,
    ModelRequest,
    NextTool,
    ToolCallInfo,
    ToolDecision,
    TurnInfo,
    TurnStartInfo,
    Waiting,
    unanswered,
)
from perdure.prompts import prompt_items
from perdure.tools import ToolResult
from perdure.tools.result import json_text
from perdure.wire import ABSENT, FunctionCall, Item, Response, user

if TYPE_CHECKING:
    from perdure.compose.run import Run

logger = logging.getLogger("perdure.compose")

FINAL_RESPONSE_DIRECTIVE = (
    "You have reached the limit of tool use for this request. Tools are not available any more; "
    "do not try to call one. Answer now, from what you have."
)
"""What the user is made to say in the forced final request. To forbid calls alone is not enough:
some models then write them as text."""

NOT_RUN_LIMIT = "not run: limit"
"""What the model reads of a call where calls are not allowed any more."""

NOT_RUN_INTERRUPTED = "not run: interrupted"
"""What the model reads of a call that an interruption kept from running."""

NOT_RUNNABLE = "not run: there is no such tool here, or the caller runs it"
"""What the model reads of an approved call that nothing here can run."""

BLOCKED = "blocked by a hook"
"""What the model reads of a call that a hook blocked without saying why."""

DENIED = "denied by a permission hook"
"""The same of a call whose permission a hook denied."""

EXTRA_TURNS = 2
"""How many requests more a run makes at its end to tell the outcomes of background tasks."""


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What is decided of a round's calls, by call id. None lets a call proceed."""

    turn: int
    decisions: Mapping[str, ToolDecision | None]


class Rounds(Middleware):
    """The middleware of one run; what it knows and decides lives in the run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._plan: Plan | None = None
        self._answered = 0
        """The request whose response was taken note of."""
        self._gates: dict[str, asyncio.Semaphore] = {}

    # --- requests ----------------------------------------------------------------------

    async def before_turn(self, info: TurnStartInfo) -> Sequence[Item | Hidden]:
        """Change the settings as tools and functions say, and tell outcomes of tasks."""
        del info
        run = self._run
        self._plan = None
        if run.round_calls:
            await self._next_turn_params()
            run.round_calls = ()
        await run.layers.resolve(run.turn())
        outcomes = run.tasks.take_outcomes()
        if not outcomes:
            return ()
        run.tell(outcomes)
        return (envelope(outcomes),)

    async def before_model_call(self, request: ModelRequest) -> ModelRequest:
        """Build the settings from their layers; in the final request, forbid calls and say so."""
        run = self._run
        final = run.forbids_calls
        settings = run.layers.settings(request.settings, forbid_tools=final)
        name = run.spec.asking.router.name(settings.model or "")
        settings = msgspec.structs.replace(settings, model=name or ABSENT)
        items: Items = request.input
        if run.next_input is not None:
            items, run.next_input = Items.of(run.next_input), None
        if run.final and run.directive:
            items = Items.of((*items, user(run.directive)))
        return msgspec.structs.replace(request, settings=settings, input=items)

    async def _next_turn_params(self) -> None:
        """Let the tools that ran change the requests to come, in the order of the tools."""
        run = self._run
        done = run.ledger.executions
        for tool in run.spec.clients:
            for call in run.round_calls:
                execution = done.get(call.id)
                if call.name != tool.name or execution is None or not execution.entered:
                    continue
                if not execution.call.readable:
                    continue
                for name, function in tool.next_turn_params.items():
                    value = await settled(function(execution.call.members, run.working_request()))
                    self._change(name, value)

    def _change(self, name: str, value: object) -> None:
        run = self._run
        if name != "input":
            run.layers.sticky[name] = value
            return
        if value is None:
            return
        items = tuple(
            one.item if isinstance(one, Hidden) else one
            for one in prompt_items(value)  # type: ignore[arg-type]
        )
        missing = unanswered(items)
        if missing:
            raise InputRequired(tuple(call.call_id for call in missing))
        run.next_input = items

    # --- responses ---------------------------------------------------------------------

    async def _take_response(self) -> None:
        """Tell of the newest response, once: that it came, and that the round before is over."""
        run = self._run
        response = run.ledger.response
        if response is None or self._answered == run.ledger.requests:
            return
        self._answered = run.ledger.requests
        called = any(isinstance(item, FunctionCall) for item in response.output)
        run.layers.responded(called=called)
        for task in run.telling:
            task.delivered = True
        run.telling = []
        await run.moments.model_call(response)
        if run.turn_open and run.spec.on_turn_end is not None:
            run.turn_open = False
            await settled(run.spec.on_turn_end(run.turn(), response))

    # --- calls -------------------------------------------------------------------------

    async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
        """Decide about a call as the plan of its round says."""
        if info.parent:
            return await self._nested(info)
        if self._plan is None or self._plan.turn != info.turn:
            await self._take_response()
            self._plan = Plan(info.turn, await self._decide_all(info))
        decision = self._plan.decisions.get(info.call.call_id)
        if decision is not None and decision.action != "proceed":
            return decision
        return await self._pre_tool_use(info, decision)

    async def _decide_all(self, info: ToolCallInfo) -> dict[str, ToolDecision | None]:
        run = self._run
        calls = [tool_call_of(item, max(run.ledger.requests - 1, 0)) for item in info.batch]
        run.round_calls = tuple(calls)
        if run.forbids_calls:
            return _reject_all(calls, NOT_RUN_LIMIT)
        if info.turn and await run.check_interruption():
            return _reject_all(calls, NOT_RUN_INTERRUPTED)
        decisions: dict[str, ToolDecision | None] = {}
        auto = [call for call in calls if self._resolves(call)]
        stopped = bool(info.turn and auto) and await self._stops()
        if stopped and run.spec.final_response is False:
            run.halted = True
            return _reject_all(calls, NOT_RUN_LIMIT)
        for call in calls:
            if not call.readable:
                continue
            decisions[call.id] = await self._decide(call, resumed=info.turn == 0, stopped=stopped)
        run.final_next = run.final_next or stopped
        waits = any(one is not None and one.action == "hold" for one in decisions.values())
        if not waits:
            await self._begin_round()
        return decisions

    async def _begin_round(self) -> None:
        run = self._run
        run.rounds += 1
        run.turn_open = True
        if run.spec.on_turn_start is not None:
            await settled(run.spec.on_turn_start(run.turn()))

    def _resolves(self, call: ToolCall) -> bool:
        tool = self._run.client(call.name)
        return tool is not None and is_auto_resolvable(tool)

    async def _stops(self) -> bool:
        """Whether a condition stops the run, and no hook has it go on."""
        run = self._run
        if not await is_stop_condition_met(run.spec.stop_when, run.steps):
            return False
        return await self._confirm_stop()

    async def _confirm_stop(self) -> bool:
        run = self._run
        verdict = await run.spec.lifecycle.stop(run.session_id)
        if verdict.prompt:
            # It joins after the outputs of the round, never between a call and its output.
            run.queues.put(
                Waiting(id=run.spec.ids.new("queued_"), item=user(verdict.prompt), mode="steer"),
                run.run_id,
            )
        return not verdict.resume

    async def _decide(self, call: ToolCall, *, resumed: bool, stopped: bool) -> ToolDecision | None:
        run = self._run
        if resumed and call.id in run.spec.conversation.approve:
            if not self._resolves(call):
                return ToolDecision(action="reject", by="policy", reason=NOT_RUNNABLE)
            return ToolDecision(action="proceed", by="human", reason="approved")
        if resumed and call.id in run.undecided:
            return self._hold(call, run.undecided[call.id])
        if not self._resolves(call):
            if stopped:
                return ToolDecision(action="reject", reason=NOT_RUN_LIMIT, by="policy")
            return self._hold(call, "client")
        if await self._gated(call):
            return await self._ask_permission(call)
        return None

    def _hold(self, call: ToolCall, why: PendingWhy) -> ToolDecision:
        self._run.whys[call.id] = why
        reason = BY_CALLER if why == "client" else NEEDS_APPROVAL
        return ToolDecision(action="hold", reason=reason, by="policy")

    async def _gated(self, call: ToolCall) -> bool:
        """Whether a call needs approval: the run's own check, if there is one, speaks alone."""
        run = self._run
        tool = run.client(call.name)
        check: object = run.spec.require_approval
        if check is None:
            check = tool.require_approval if tool is not None else False
        if not callable(check):
            return bool(check)
        try:
            needs: object = await settled(check(call, run.turn(call.item)))
        except Exception:
            # Nobody said that the call may run, so somebody has to.
            logger.exception("the approval check of call %r failed", call.id)
            return True
        return bool(needs)

    async def _ask_permission(self, call: ToolCall) -> ToolDecision | None:
        run = self._run
        verdict = await run.spec.lifecycle.permission_request(
            run.session_id, call.name, call.members, self._risk(call)
        )
        if verdict.decision == "allow":
            return None
        if verdict.decision == "deny":
            return ToolDecision(action="reject", reason=verdict.reason or DENIED, by="policy")
        return self._hold(call, "approval")

    def _risk(self, call: ToolCall) -> Risk:
        tool = self._run.client(call.name)
        gate: object = tool.require_approval if tool is not None else False
        if callable(self._run.spec.require_approval) or callable(gate):
            return "high"
        return "medium" if gate else "low"

    async def _nested(self, info: ToolCallInfo) -> ToolDecision | None:
        """A call that a tool makes: it needs what any call needs."""
        call = tool_call_of(info.call, max(self._run.ledger.requests - 1, 0))
        if not self._resolves(call):
            reason = f"{call.name} cannot be called by a tool"
            return ToolDecision(action="reject", reason=reason, by="policy")
        decision = await self._ask_permission(call) if await self._gated(call) else None
        self._run.whys.pop(call.id, None)
        return decision if decision is not None else await self._pre_tool_use(info, None)

    async def _pre_tool_use(
        self, info: ToolCallInfo, decision: ToolDecision | None
    ) -> ToolDecision | None:
        run = self._run
        given = tool_call_of(info.call, arguments=info.arguments).members
        verdict = await run.spec.lifecycle.pre_tool_use(run.session_id, info.call.name, given)
        if verdict.blocked is not None:
            return ToolDecision(action="reject", reason=verdict.blocked or BLOCKED, by="policy")
        if verdict.arguments is None:
            return decision
        changed = json_text(dict(verdict.arguments))
        return msgspec.structs.replace(decision or ToolDecision(), arguments=changed)

    # --- tools -------------------------------------------------------------------------

    async def wrap_tool_call(self, info: ToolCallInfo, next: NextTool) -> ToolResult:  # noqa: A002
        """Wait for the tool's own turn, and tell how it went."""
        tool = self._run.client(info.call.name)
        if tool is None or tool.max_concurrency is None or tool.lifecycle == "background":
            return await self._told(info, next)
        gate = self._gates.get(tool.name)
        if gate is None:
            gate = self._gates[tool.name] = asyncio.Semaphore(tool.max_concurrency)
        async with gate:
            return await self._told(info, next)

    async def _told(self, info: ToolCallInfo, enter: NextTool) -> ToolResult:
        run = self._run
        life, clock = run.spec.lifecycle, run.spec.clock
        given = tool_call_of(info.call, arguments=info.arguments).members
        started = clock.monotonic()
        try:
            result = await enter()
        except (CallEnded, ConfigError):
            raise
        except Exception as error:
            if info.call.call_id in run.entered:
                await life.post_tool_use_failure(run.session_id, info.call.name, given, error)
            raise
        if not run.tasks.outlives(info.call.call_id):
            await life.post_tool_use(
                run.session_id, info.call.name, given, value_of(result), clock.monotonic() - started
            )
        return result

    # --- the end of a turn ---------------------------------------------------------------

    async def should_stop(self, info: TurnInfo) -> bool:
        """End the run, or decide that the next request is the last."""
        run = self._run
        await self._take_response()
        if info.final:
            await self._tell_tasks()
            return False
        self._record_step(info.response)
        if run.forbids_calls or run.halted or run.interrupted_by:
            return True
        if await run.check_interruption():
            return True
        if run.tasks.waits and run.deferred_now:
            return True
        if not run.final_next and run.reached_limit and await self._confirm_stop():
            if run.spec.final_response is False:
                return True
            run.final_next = True
        if run.final_next:
            run.final, run.stopped = True, True
        return False

    def _record_step(self, response: Response) -> None:
        run = self._run
        done = run.ledger.executions
        calls = [
            tool_call_of(item, run.ledger.requests - 1)
            for item in response.output
            if isinstance(item, FunctionCall)
        ]
        if not run.round_calls:  # no call could be read, so nothing was planned
            run.rounds += 1
            run.round_calls = tuple(calls)
        run.steps.append(
            StepResult(
                response=response,
                tool_calls=tuple(calls),
                tool_results=tuple(done[call.id] for call in calls if call.id in done),
                server_tool_results=server_results(response),
            )
        )

    async def _tell_tasks(self) -> None:
        """Wait for what runs in the background before the run ends, and have it told."""
        run = self._run
        if run.spec.on_run_end != "drain" or run.extra_turns >= EXTRA_TURNS:
            return
        if run.tasks.alive:
            await run.tasks.drain_all()
        outcomes = run.tasks.take_outcomes()
        if not outcomes:
            return
        run.extra_turns += 1
        run.tell(outcomes)
        run.queues.put(
            Waiting(id=run.spec.ids.new("queued_"), item=envelope(outcomes), mode="steer"),
            run.run_id,
        )


def _reject_all(calls: Sequence[ToolCall], reason: str) -> dict[str, ToolDecision | None]:
    rejected = ToolDecision(action="reject", reason=reason, by="policy")
    return {call.id: rejected for call in calls}
