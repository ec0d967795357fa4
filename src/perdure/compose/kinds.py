"""The kinds of tools that `call_model` knows.

*regular*: a function that gives a result. *generator*: one that shows preliminary results first.
*manual*: one that the caller runs; the run pauses at it. *hitl*: a person answers it, at once or
later. *server*: the provider runs it. Any tool of perdure, and any typed function, is a regular
one. A tool is *background* or *deferred* if its result may come after its call has ended.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Concatenate, Literal, ParamSpec, Protocol, TypeAlias, cast, overload

import msgspec

from perdure.compose.bodies import Options, Returned, model_output, tool_of
from perdure.compose.shapes import Checker, Spec, checker
from perdure.compose.shared_context import SHARED, Deferred
from perdure.compose.turns import ToolCall, TurnContext, parse_tool_arguments, settled
from perdure.errors import ConfigError, InvalidArguments, Suspend, ToolError
from perdure.tools import Call, Effect, EffectOf, Tool, ToolResult, as_tool, traits
from perdure.tools.function import names_outside
from perdure.tools.tool import TRAITS
from perdure.wire import Source, UnknownTool

Kind = Literal["regular", "generator", "manual", "hitl"]
Origin = Literal["client", "mcp"]
Lifecycle = Literal["sync", "background", "deferred"]

ApprovalCheck: TypeAlias = Callable[[ToolCall, TurnContext], bool | Awaitable[bool]]
"""Whether a call needs somebody's approval."""

ToModelOutput: TypeAlias = Callable[[object, Mapping[str, object]], object]
"""Given what a tool gave and its arguments: what the model reads of it, sync or async."""

ResponseReceived: TypeAlias = Callable[[object], object]
"""Given the answer that a person sent: what takes its place, sync or async."""

NextTurn: TypeAlias = Callable[[Mapping[str, object], Mapping[str, object]], object]
"""Given a call's arguments and the request in the making: the new value; None unsets it."""

NEXT_TURN_PARAMS = frozenset(
    {
        "input",
        "model",
        "models",
        "temperature",
        "max_output_tokens",
        "top_p",
        "top_k",
        "instructions",
    }
)
"""What a tool may change of the requests after it."""

GRACE = 0.25
"""Seconds in which a background tool may still answer as if it were none."""

WAITS = "hitl"
_NONE: Mapping[str, NextTurn] = MappingProxyType({})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClientTool:
    """A tool that runs here, or that the caller runs. Make one with the functions below."""

    inner: Tool
    kind: Kind = "regular"
    source: Origin = "client"
    lifecycle: Lifecycle = "sync"
    event_schema: Checker | None = None
    output_schema: Checker | None = None
    context_schema: Checker | None = None
    require_approval: bool | ApprovalCheck = False
    next_turn_params: Mapping[str, NextTurn] = dataclasses.field(default_factory=lambda: _NONE)
    to_model_output: ToModelOutput | None = None
    on_response_received: ResponseReceived | None = None
    max_concurrency: int | None = None
    timeout: float | None = None
    ack: object = None
    grace: float = GRACE

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def description(self) -> str:
        return self.inner.description

    @property
    def parameters(self) -> Mapping[str, object] | None:
        return self.inner.parameters

    def __getattr__(self, name: str) -> object:
        # What the tool inside says of itself holds for this one: its effect, its gate, its secrets.
        if name in TRAITS:
            return getattr(self.inner, name)
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    async def execute(self, call: Call) -> ToolResult:
        """Run the body, hold its result to the output's schema, and say what the model reads.

        Raises:
            ToolError: It is a manual tool, or its body or its result is wrong.
            Suspend: A person is to answer, and has not.
        """
        if self.kind == "manual":
            raise ToolError(f"tool {self.name!r} is run by the caller")
        result = await self.inner.execute(call)
        if not isinstance(result.details, Returned):
            return result
        value = result.details.value
        if isinstance(value, Deferred):
            return dataclasses.replace(result, details=value)
        if self.kind == "hitl" and value is None:
            raise Suspend("a person is to answer", wait={"kind": WAITS})
        return await self.finish(value, call.arguments)

    async def finish(self, value: object, arguments: str) -> ToolResult:
        """The result that a value of the body stands for.

        Raises:
            ToolError: The value does not fit, or cannot be shown to the model.
        """
        if self.output_schema is not None:
            value = _held(self.output_schema, value)
        if self.to_model_output is None:
            return model_output(value)
        given = parse_tool_arguments(arguments)
        shown = await settled(self.to_model_output(value, {} if isinstance(given, str) else given))
        return dataclasses.replace(model_output(shown), details=Returned(value))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ServerTool:
    """A tool that the provider runs: its configuration goes out as it is given."""

    config: Mapping[str, object]

    @property
    def type(self) -> str:
        """What the provider calls it."""
        return str(self.config["type"])

    def definition(self) -> UnknownTool:
        """The tool as a request names it."""
        return UnknownTool(type=self.type, source=Source(msgspec.json.encode(self.config)))


AnyTool: TypeAlias = Tool | ServerTool | Callable[..., object]
"""What `call_model` takes as a tool."""


# --- making them ----------------------------------------------------------------------


P = ParamSpec("P")


class Maker(Protocol[P]):
    """Makes a tool of a function at once, or as a decorator with options."""

    @overload
    def __call__(
        self, fn: Callable[..., object], /, *args: P.args, **options: P.kwargs
    ) -> ClientTool: ...

    @overload
    def __call__(
        self, *args: P.args, **options: P.kwargs
    ) -> Callable[[Callable[..., object]], ClientTool]: ...


def _decorating(make: Callable[Concatenate[Callable[..., object], P], ClientTool]) -> Maker[P]:
    """What makes a tool of a function, as a decorator too."""

    @functools.wraps(make)
    def maker(
        fn: Callable[..., object] | None = None, /, *args: P.args, **options: P.kwargs
    ) -> ClientTool | Callable[[Callable[..., object]], ClientTool]:
        if fn is not None:
            return make(fn, *args, **options)
        return lambda function: make(function, *args, **options)

    return cast("Maker[P]", maker)


@_decorating
def client_tool(
    fn: Callable[..., object],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, object] | None = None,
    output: Spec = None,
    events: Spec = None,
    context: Spec = None,
    require_approval: bool | ApprovalCheck = False,
    next_turn_params: Mapping[str, NextTurn] | None = None,
    to_model_output: ToModelOutput | None = None,
    lifecycle: Lifecycle = "sync",
    ack: object = None,
    grace: float = GRACE,
    timeout: float | None = None,
    max_concurrency: int | None = None,
    effect: Effect | EffectOf = "once",
    strict: bool = False,
    sequential: bool = False,
    resource: str | None = None,
) -> ClientTool:
    """Make a tool of a function that gives a result, or of an async generator.

    ```python
    from perdure.compose import client_tool

    @client_tool(output=dict, require_approval=True, effect="none")
    async def delete(path: str) -> dict[str, object]:
        "Delete a file."
        return {"deleted": path}
    ```

    Args:
        fn: The function.
        name: What the model calls it.
        description: What the model reads of it.
        parameters: A JSON Schema for a function that takes the arguments as one dict.
        output: The type or JSON Schema of its result.
        events: The type or JSON Schema of its preliminary results.
        context: The type or JSON Schema of its context slot.
        require_approval: Whether its calls need approval, or a function that says so.
        next_turn_params: What it changes of the requests after it, by parameter.
        to_model_output: What the model reads of its result, if not the result.
        lifecycle: Whether its result may come after its call: `background` where this process goes
            on with it, `deferred` where somebody else gives it.
        ack: What the model reads meanwhile, beside the task's id.
        grace: Seconds in which a background tool may still answer at once; 0 for none.
        timeout: Seconds it may take.
        max_concurrency: How many of its calls run at once.
        effect: What it does to the world, as for `perdure.tool`.
        strict: Whether the provider is to enforce the schema.
        sequential: Whether a batch with it runs one call at a time.
        resource: Calls of tools with the same resource run one after another.

    Raises:
        ConfigError: The name is reserved, an option is wrong, or the function cannot be a tool.
    """
    if lifecycle != "sync" and output is None:
        raise ConfigError(f"a {lifecycle} tool says what its result will be: output=...")
    events_, output_ = checker(events, "events"), checker(output, "output")
    options = Options(
        name=name,
        description=description,
        parameters=parameters,
        effect=effect,
        strict=strict,
        sequential=sequential,
        resource=resource,
    )
    return checked(
        ClientTool(
            inner=tool_of(fn, options, names_outside(globals()), events_, output_),
            kind="generator" if inspect.isasyncgenfunction(fn) or events_ else "regular",
            lifecycle=lifecycle,
            event_schema=events_,
            output_schema=output_,
            context_schema=checker(context, "context"),
            require_approval=require_approval,
            next_turn_params=_next_turn(next_turn_params),
            to_model_output=to_model_output,
            max_concurrency=max_concurrency,
            timeout=timeout,
            ack=ack,
            grace=grace,
        )
    )


def manual_tool(
    name: str,
    description: str = "",
    *,
    parameters: Mapping[str, object] | None = None,
    require_approval: bool | ApprovalCheck = False,
    next_turn_params: Mapping[str, NextTurn] | None = None,
) -> ClientTool:
    """A tool that the caller runs: the run pauses and lists its calls.

    Raises:
        ConfigError: The name is reserved, or the schema cannot be sent.
    """

    def nothing(arguments: dict[str, object]) -> None:
        del arguments

    options = Options(
        name=name,
        description=description,
        parameters=parameters or {"type": "object", "properties": {}},
        effect="none",
    )
    return checked(
        ClientTool(
            inner=tool_of(nothing, options, {}, None, None),
            kind="manual",
            require_approval=require_approval,
            next_turn_params=_next_turn(next_turn_params),
        )
    )


def human_tool(
    *,
    output: Spec,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, object] | None = None,
    context: Spec = None,
    on_response_received: ResponseReceived | None = None,
    require_approval: bool | ApprovalCheck = False,
    next_turn_params: Mapping[str, NextTurn] | None = None,
    to_model_output: ToModelOutput | None = None,
    timeout: float | None = None,
    effect: Effect | EffectOf = "none",
) -> Callable[[Callable[..., object]], ClientTool]:
    """Make a tool that a person answers, of the function that puts the question.

    What the function gives is the answer; None pauses the run until the caller sends one.

    Args:
        output: The type or JSON Schema of the answer.
        name: What the model calls it.
        description: What the model reads of it.
        parameters: A JSON Schema for a function that takes the arguments as one dict.
        context: The type or JSON Schema of its context slot.
        on_response_received: Called with an answer that the caller sends; what it gives is taken.
        require_approval: Whether its calls need approval before the question is put.
        next_turn_params: What it changes of the requests after it.
        to_model_output: What the model reads of an answer that came at once.
        timeout: Seconds the function may take.
        effect: What putting the question does to the world.

    Raises:
        ConfigError: The output has no schema, or as `client_tool`.
    """
    names = names_outside(globals())
    rules = checker(output, "output")
    if rules is None:
        raise ConfigError("a tool that a person answers says what the answer is: output=...")

    def make(function: Callable[..., object]) -> ClientTool:
        options = Options(name=name, description=description, parameters=parameters, effect=effect)
        return checked(
            ClientTool(
                inner=tool_of(function, options, names, None, rules),
                kind="hitl",
                output_schema=rules,
                context_schema=checker(context, "context"),
                require_approval=require_approval,
                next_turn_params=_next_turn(next_turn_params),
                to_model_output=to_model_output,
                on_response_received=on_response_received,
                timeout=timeout,
            )
        )

    return make


def server_tool(config: Mapping[str, object]) -> ServerTool:
    """A tool that the provider runs, as `server_tool({"type": "web_search"})`.

    Raises:
        ConfigError: The configuration has no `type`.
    """
    if not isinstance(config.get("type"), str):
        raise ConfigError(f"a server tool has a type, got {dict(config)!r}")
    return ServerTool(dict(config))


def mark_mcp(thing: Tool | Callable[..., object]) -> ClientTool:
    """A copy of a tool that says it came from an MCP server. Nothing on the wire changes."""
    return dataclasses.replace(as_client(thing), source="mcp")


def as_client(thing: Tool | Callable[..., object]) -> ClientTool:
    """A tool as one of the kinds; any other tool, and a typed function, is a regular one."""
    if isinstance(thing, ClientTool):
        return thing
    inner = as_tool(thing)
    return checked(ClientTool(inner=inner, timeout=traits(inner).timeout))


def checked(tool: ClientTool) -> ClientTool:
    """A tool that may be used.

    Raises:
        ConfigError: Its name is reserved, or an option is wrong.
    """
    if tool.name == SHARED:
        raise ConfigError(f"{SHARED!r} names the context that all tools share; name it otherwise")
    unknown = sorted(set(tool.next_turn_params) - NEXT_TURN_PARAMS)
    if unknown:
        known = ", ".join(sorted(NEXT_TURN_PARAMS))
        raise ConfigError(f"tool {tool.name!r} cannot change {unknown[0]!r}; it can: {known}")
    if tool.max_concurrency is not None and tool.max_concurrency < 1:
        raise ConfigError(f"tool {tool.name!r}: max_concurrency must be at least 1")
    if tool.kind == "hitl" and traits(tool).effect in ("once", "transactional"):
        raise ConfigError(
            f"tool {tool.name!r}: a question that waits may be put again, so its effect cannot be "
            f"{traits(tool).effect!r}"
        )
    if tool.timeout is not None and tool.timeout <= 0:
        raise ConfigError(f"tool {tool.name!r}: timeout must be positive")
    return tool


def _next_turn(given: Mapping[str, NextTurn] | None) -> Mapping[str, NextTurn]:
    return MappingProxyType(dict(given or {}))


def _held(rules: Checker, value: object) -> object:
    try:
        return rules.read(value)
    except InvalidArguments as error:
        at = f"{error.path}: " if error.path else ""
        raise ToolError(f"the tool's result does not fit its schema: {at}{error.reason}") from error
