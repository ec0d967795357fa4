"""Tools run by hand, without a model: for tests, and for programs with a loop of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from perdure.compose.bodies import emit_to, value_of
from perdure.compose.kinds import AnyTool, ApprovalCheck, ClientTool, ServerTool, as_client
from perdure.compose.shared_context import ContextStore, ToolContext, current
from perdure.compose.stops import ToolExecution
from perdure.compose.turns import ToolCall, TurnContext, settled
from perdure.errors import ConfigError, NeedsApproval, ToolError
from perdure.tools import Call, ToolResult, approval_of, error_result
from perdure.tools.result import failure
from perdure.wire import FunctionCallOutput, function_call_output, text_of


async def execute_tool(
    tool: AnyTool,
    call: ToolCall,
    *,
    store: ContextStore | None = None,
    number_of_turns: int = 0,
) -> ToolExecution:
    """Run one call of a tool; a failure is in what it gives, and not raised.

    Raises:
        ConfigError: The tool is a manual one, or the provider's.
        NeedsApproval: People have to agree to its calls, which only a recorded run can ask.
        Suspend: A person is to answer.
    """
    if isinstance(tool, ServerTool):
        raise ConfigError(f"the provider runs its tool {tool.type!r}")
    client = as_client(tool)
    if client.kind == "manual":
        raise ConfigError(f"the caller runs the tool {client.name!r}")
    approval = approval_of(client)
    if approval is not None:
        raise NeedsApproval(call.id, approval.asks)
    shown: list[object] = []
    error, result = "", ToolResult()
    try:
        result = await _run(client, call, store or ContextStore(), number_of_turns, shown)
    except Exception as raised:  # noqa: BLE001 - it is the call's outcome
        decisive = failure(client.name, raised)
        result, error = error_result(decisive), str(decisive)
    return ToolExecution(
        call=call,
        result=None if error else value_of(result),
        error=error,
        source=client.source,
        events=tuple(shown),
        output=function_call_output(call.id, result.output),
    )


async def _run(
    client: ClientTool,
    call: ToolCall,
    store: ContextStore,
    number_of_turns: int,
    shown: list[object],
) -> ToolResult:
    handle = Call(id=call.id, name=client.name, arguments=call.raw)
    emit = emit_to(handle, client.event_schema)

    def keep(event: object) -> None:
        emit(event)
        shown.append(event)

    context = ToolContext(
        tool=client.name,
        store=store,
        number_of_turns=number_of_turns,
        tool_call=call,
        own=client.context_schema,
        call=handle,
        emit=keep,
    )
    context.check()
    token = current.set(context)
    try:
        return await client.execute(handle)
    finally:
        current.reset(token)


async def execute_tools(
    tools: Sequence[AnyTool], calls: Sequence[ToolCall], *, store: ContextStore | None = None
) -> tuple[ToolExecution, ...]:
    """Run calls one after another; a call whose tool is not there fails."""
    store = store or ContextStore()
    by_name = {tool.name: tool for tool in map(as_client, _clients(tools))}
    done: list[ToolExecution] = []
    for call in calls:
        tool = by_name.get(call.name)
        if tool is None:
            done.append(_failed(call, ToolError(f'unknown tool "{call.name}"')))
        else:
            done.append(await execute_tool(tool, call, store=store))
    return tuple(done)


def _clients(tools: Sequence[AnyTool]) -> list[ClientTool]:
    return [as_client(tool) for tool in tools if not isinstance(tool, ServerTool)]


def _failed(call: ToolCall, error: ToolError) -> ToolExecution:
    output = function_call_output(call.id, error_result(error).output)
    return ToolExecution(call=call, error=str(error), output=output, entered=False)


def execution_output(execution: ToolExecution) -> FunctionCallOutput:
    """The output that the model reads of an execution.

    Raises:
        ConfigError: The call waits, and has none.
    """
    if execution.output is None:
        raise ConfigError(f"call {execution.call.id!r} waits and has no output")
    return execution.output


def execution_errors(executions: Sequence[ToolExecution]) -> tuple[str, ...]:
    """Why those failed that did."""
    return tuple(one.error for one in executions if one.error)


def executions_by_call(executions: Sequence[ToolExecution]) -> Mapping[str, ToolExecution]:
    """The executions, each under its call's id."""
    return {one.call.id: one for one in executions}


def summarize_executions(executions: Sequence[ToolExecution]) -> tuple[str, ...]:
    """A line for each, for people."""
    return tuple(
        f"{one.call.name}: {'failed: ' + one.error if one.error else _shown(one)}"
        for one in executions
    )


def _shown(execution: ToolExecution) -> str:
    return text_of(execution.output.output) if execution.output is not None else "waits"


class Partition(NamedTuple):
    """Calls that may run, and those that need an approval."""

    approved: tuple[ToolCall, ...]
    pending: tuple[ToolCall, ...]


async def partition_tool_calls(
    tools: Sequence[AnyTool],
    calls: Sequence[ToolCall],
    turn: TurnContext,
    check: ApprovalCheck | None = None,
) -> Partition:
    """Part calls by whether they need an approval; `check` speaks alone if it is given."""
    by_name = {tool.name: tool for tool in _clients(tools)}
    approved: list[ToolCall] = []
    pending: list[ToolCall] = []
    for call in calls:
        tool = by_name.get(call.name)
        needs = tool is not None and await tool_requires_approval(tool, call, turn, check)
        (pending if needs else approved).append(call)
    return Partition(tuple(approved), tuple(pending))


async def tool_requires_approval(
    tool: AnyTool, call: ToolCall, turn: TurnContext, check: ApprovalCheck | None = None
) -> bool:
    """Whether a call needs an approval; `check` speaks alone if it is given.

    A call whose arguments cannot be read needs none: it never runs.
    """
    if isinstance(tool, ServerTool) or not call.readable:
        return False
    gate: object = check if check is not None else as_client(tool).require_approval
    if not callable(gate):
        return bool(gate)
    needs: object = await settled(gate(call, turn))
    return bool(needs)
