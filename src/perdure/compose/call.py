"""`call_model`: one function that asks a model, runs its tools, and gives a result to be asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence

from perdure.clock import Clock, Ids, RandomIds, SystemClock
from perdure.compose.accessors import StateAccessor
from perdure.compose.asking import Client, asking_of
from perdure.compose.conversation import conversation_of
from perdure.compose.hooks.manager import Inline, resolve_hooks
from perdure.compose.kinds import AnyTool, ApprovalCheck, ClientTool, ServerTool, as_client
from perdure.compose.lifecycle import Lifecycle
from perdure.compose.predicates import is_long_running
from perdure.compose.result import ModelResult
from perdure.compose.run import Run
from perdure.compose.shapes import Spec as Shape, checker
from perdure.compose.signals import RunSignal
from perdure.compose.spec import AnyInput, Context, OnRunEnd, Spec, TurnEnds, TurnStarts
from perdure.compose.state import ConversationState
from perdure.compose.stops import StopCondition, conditions_of
from perdure.errors import ConfigError
from perdure.loop import (
    DEFAULT_GRACE,
    DEFAULT_MAX_PARALLEL,
    DEFAULT_WIND_DOWN,
    Middleware,
    Retry,
    visible_to_model,
)
from perdure.tools import Elicitor, ToolSet
from perdure.wire import Item, Request

DEFAULT_MAX_ROUNDS = 5
"""How many rounds of tools a run has, unless it says otherwise; then comes the final answer."""

DEFAULT_ATTEMPTS = 3
DEFAULT_BACKGROUND = 16
"""How many background tasks of a run work at once."""


def call_model(
    client: Client,
    input: AnyInput | None = None,  # noqa: A002 - the natural word
    *,
    tools: Sequence[AnyTool] = (),
    stop_when: StopCondition | Sequence[StopCondition] | None = None,
    max_rounds: int | None = DEFAULT_MAX_ROUNDS,
    final_response: bool | str = True,
    strict_final_response: bool = False,
    state: StateAccessor | ConversationState | None = None,
    approve: Collection[str] = (),
    reject: Collection[str] | Mapping[str, str] = (),
    require_approval: ApprovalCheck | None = None,
    context: Context | None = None,
    shared_context: Shape = None,
    additional_instructions: str = "",
    on_turn_start: TurnStarts | None = None,
    on_turn_end: TurnEnds | None = None,
    hooks: Lifecycle | Inline | None = None,
    middleware: Sequence[Middleware] = (),
    tool_timeout: float | None = None,
    tool_concurrency: int = DEFAULT_MAX_PARALLEL,
    background_concurrency: int = DEFAULT_BACKGROUND,
    on_run_end: OnRunEnd = "drain",
    signal: RunSignal | None = None,
    retry: Retry | None = None,
    elicitor: Elicitor | None = None,
    keep: Callable[[Item], bool] = visible_to_model,
    grace: float = DEFAULT_GRACE,
    wind_down: float = DEFAULT_WIND_DOWN,
    clock: Clock | None = None,
    ids: Ids | None = None,
    request: Request | None = None,
    **members: object,
) -> ModelResult:
    """Ask a model, run the tools it calls, and go on until it answers.

    Nothing happens until the result, or one of its streams, is asked for something.

    ```python
    from perdure import call_model, tool
    from perdure.testing import ScriptedModel, call

    @tool(effect="none")
    async def weather(city: str) -> dict[str, object]:
        "Look up the weather."
        return {"city": city, "degrees": 21}

    model = ScriptedModel([call("weather", {"city": "Oslo"}), "21 degrees in Oslo."])
    result = call_model(model, "How is the weather in Oslo?", tools=[weather])
    print(await result.text())  # 21 degrees in Oslo.
    ```

    Args:
        client: A model string, a `Model`, or a function of the turn that gives a model string.
        input: What is said: a text, a part, items; or a function that is asked once. Outputs among
            it answer calls that wait. None goes on with the state as it stands.
        tools: Typed functions, tools of any kind, and the provider's own.
        stop_when: Stop when any of these says so of the rounds done.
        max_rounds: How many rounds of tools there are at most; None for no limit.
        final_response: What follows where a condition or the limit stops the run: True for one
            more request that forbids calls and says so, a text for what it says instead, empty for
            nothing said, False for no such request.
        strict_final_response: Raise for an empty answer after rounds, in place of asking again.
        state: The conversation: an accessor that loads and saves it, or a state to begin from.
        approve: Calls of the state that may run now.
        reject: Calls of the state that must not, with the reasons if it is a mapping.
        require_approval: Decides for every call whether it needs approval; the tools' own gates
            are then not asked.
        context: The slots of the tools' context, or a function that gives them once.
        shared_context: The type or JSON Schema of the slot that all tools share.
        additional_instructions: Said after the instructions, whoever gave them.
        on_turn_start: Called before a round's tools run.
        on_turn_end: Called with the response that followed a round.
        hooks: What hears the moments of the run: a `HooksManager`, or built-in hooks by name.
        middleware: What stands around the loop, within what this function does.
        tool_timeout: Seconds for a tool that names none itself.
        tool_concurrency: How many tools of a round run at once.
        background_concurrency: How many background tasks run at once.
        on_run_end: What becomes of background tasks at the end.
        signal: Stops the run from outside.
        retry: When a model call that failed before its answer began is made again.
        elicitor: Asks the user what a tool wants to know.
        keep: Which items of the transcript the model sees.
        grace: Seconds that a told tool has to end before it is cancelled.
        wind_down: Seconds that a run which was told to stop may take to end.
        clock: Where the time comes from.
        ids: Where ids come from.
        request: The base of every request.
        members: Members of every request, as `temperature=0`; a function of the turn gives one
            anew for each.

    Raises:
        ConfigError: Something cannot be used as it was given.
    """
    conversation = conversation_of(state, approve, reject, says=input is not None)
    _check_limits(max_rounds, tool_timeout, background_concurrency)
    spec = Spec(
        asking=asking_of(client, request or Request(), members),
        conversation=conversation,
        additional_instructions=additional_instructions,
        input=input,
        tools=_tools(tools, tool_timeout),
        stop_when=conditions_of(stop_when),
        max_rounds=max_rounds,
        final_response=final_response,
        strict_final_response=strict_final_response,
        require_approval=require_approval,
        context=context,
        shared_context=checker(shared_context, "shared_context"),
        on_turn_start=on_turn_start,
        on_turn_end=on_turn_end,
        lifecycle=_lifecycle(hooks),
        middleware=tuple(middleware),
        max_parallel=tool_concurrency,
        background_concurrency=background_concurrency,
        on_run_end=on_run_end,
        signal=signal,
        retry=retry or Retry(max_attempts=DEFAULT_ATTEMPTS),
        elicitor=elicitor,
        keep=keep,
        grace=grace,
        wind_down=wind_down,
        clock=clock or SystemClock(),
        ids=ids or RandomIds(),
    )
    return ModelResult(Run(spec))


def _lifecycle(hooks: Lifecycle | Inline | None) -> Lifecycle:
    if isinstance(hooks, Lifecycle):
        return hooks
    return resolve_hooks(hooks) or Lifecycle()


def _check_limits(max_rounds: int | None, timeout: float | None, background: int) -> None:
    if max_rounds is not None and max_rounds < 1:
        raise ConfigError(f"max_rounds must be at least 1, got {max_rounds}")
    if timeout is not None and timeout <= 0:
        raise ConfigError(f"tool_timeout must be positive, got {timeout}")
    if background < 1:
        raise ConfigError(f"background_concurrency must be at least 1, got {background}")


def _tools(given: Sequence[AnyTool], timeout: float | None) -> tuple[ClientTool | ServerTool, ...]:
    tools: list[ClientTool | ServerTool] = []
    for one in given:
        if isinstance(one, ServerTool):
            tools.append(one)
            continue
        tool = as_client(one)
        if timeout is not None and tool.timeout is None:
            tool = dataclasses.replace(tool, timeout=timeout)
        tools.append(tool)
    clients = [tool for tool in tools if isinstance(tool, ClientTool)]
    ToolSet(clients)  # two of one name are refused before anything happens
    if any(tool.name == "task" for tool in clients) and any(map(is_long_running, clients)):
        raise ConfigError("'task' is reserved where tools outlive their calls; name it otherwise")
    return tuple(tools)
