"""A run's tools as its loop runs them: with their context, and as their lifecycle says."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from perdure.compose.bodies import emit_to
from perdure.compose.events import ToolPreliminaryResult
from perdure.compose.kinds import ClientTool
from perdure.compose.shared_context import Deferred, ToolContext, current
from perdure.compose.tasks import LiveTask
from perdure.compose.turns import tool_call_of
from perdure.tools import Call, Tool, ToolResult, wrap
from perdure.tools.call import running_call
from perdure.wire import FunctionCall

if TYPE_CHECKING:
    from perdure.compose.run import Run


def bound(run: Run, tool: ClientTool) -> Tool:
    """A tool as the loop runs it in a run."""

    async def execute(call: Call) -> ToolResult:
        run.entered.add(call.id)
        if tool.lifecycle == "background":
            return await _in_background(run, tool, call)
        result = await _body(run, tool, call, None)
        if isinstance(result.details, Deferred):
            result = run.tasks.defer(tool, call, result.details)
            run.deferred_now = True
        return result

    # A background task has a time of its own, from when it gets its place.
    timeout = None if tool.lifecycle == "background" else tool.timeout
    return wrap(tool, execute=execute, timeout=timeout)


async def _in_background(run: Run, tool: ClientTool, call: Call) -> ToolResult:
    own = Call(  # a handle of the task's, which does not close with the call
        id=call.id,
        name=call.name,
        arguments=call.arguments,
        idempotency_key=call.idempotency_key,
        effect=call.effect,
    )

    async def body(task: LiveTask) -> ToolResult:
        running_call.set(own)
        return await _body(run, tool, own, task)

    return await run.tasks.run(tool, own, body)


async def _body(run: Run, tool: ClientTool, call: Call, task: LiveTask | None) -> ToolResult:
    item = FunctionCall(call_id=call.id, name=call.name, arguments=call.arguments)
    context = ToolContext(
        tool=tool.name,
        store=run.store,
        number_of_turns=run.rounds,
        tool_call=tool_call_of(item, max(run.ledger.requests - 1, 0)),
        conversation_id=run.session_id,
        own=tool.context_schema,
        shared=run.spec.shared_context,
        call=call,
        emit=emit_to(call, tool.event_schema) if task is None else _emits(run, tool, task),
        task=task,
    )
    context.check()
    token = current.set(context)
    try:
        return await tool.execute(call)
    finally:
        with contextlib.suppress(ValueError):  # a task may end in another context
            current.reset(token)


def _emits(run: Run, tool: ClientTool, task: LiveTask) -> Callable[[object], None]:
    """What a task shows: it goes into its log, and to the streams."""

    def emit(event: object) -> None:
        value = tool.event_schema.read(event) if tool.event_schema is not None else event
        task.log(value)
        run.log.mark(ToolPreliminaryResult(tool_call_id=task.call_id, name=task.name, result=value))

    return emit


async def tell_settled(
    run: Run, task: LiveTask, call: Call, error: Exception | None, seconds: float
) -> None:
    """Tell the hooks of a background task's outcome, as of a tool's."""
    life = run.spec.lifecycle
    item = FunctionCall(call_id=call.id, name=call.name, arguments=call.arguments)
    given = tool_call_of(item).members
    if error is None:
        await life.post_tool_use(run.session_id, task.name, given, task.result, seconds)
    else:
        await life.post_tool_use_failure(run.session_id, task.name, given, error)
