"""Typed functions as tools."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from perdure.errors import ConfigError, NotIJson, ToolError
from perdure.tools.approval import Approval, as_approval
from perdure.tools.call import Call
from perdure.tools.compensation import Compensator, TypedCompensator
from perdure.tools.docstring import read_docstring
from perdure.tools.effect import Effect, EffectOf, check_effect
from perdure.tools.result import ToolResult, to_result
from perdure.tools.secret import Values
from perdure.tools.signature import Signature, read_signature
from perdure.tools.threads import start_thread
from perdure.tools.tool import (
    NO_ANNOTATIONS,
    Reconciler,
    Tool,
    ToolAnnotations,
    check_name,
    check_timeout,
)
from perdure.tools.transaction import NO_TRANSACTION, Transaction
from perdure.wire.canonical import canonical_json

P = ParamSpec("P")
OptionsP = ParamSpec("OptionsP")
R_co = TypeVar("R_co", covariant=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TypedTool(Generic[P, R_co]):
    """A typed function as a tool. Called directly, it is the function."""

    fn: Callable[P, R_co]
    name: str
    description: str
    parameters: dict[str, object]
    strict: bool = False
    effect: Effect | EffectOf = "once"
    sequential: bool = False
    resource: str | None = None
    timeout: float | None = None
    annotations: ToolAnnotations = NO_ANNOTATIONS
    approval: Approval | None = None
    reconciler: Reconciler | None = dataclasses.field(default=None, repr=False)
    compensator: Compensator | None = dataclasses.field(default=None, repr=False)
    signature: Signature = dataclasses.field(repr=False)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self.fn(*args, **kwargs)

    @property
    def secrets(self) -> Mapping[str, str]:
        """The references of the secret parameters."""
        return {name: secret.reference for name, secret in self.signature.secrets.items()}

    def reconcile(self, look_up: Reconciler) -> Reconciler:
        """Say how to find out what came of a call that may have run, before a person is asked.

        As a decorator: `@charge.reconcile`. The function gets the call's handle, with the
        arguments and the idempotency key of the attempt, changes nothing, and returns `Found`,
        `NeverRan`, or None if it cannot tell. It is asked by whoever drives a run that halted.
        """
        object.__setattr__(self, "reconciler", look_up)
        return look_up

    def check(self, arguments: str) -> None:
        """Refuse arguments that do not fit, without running anything.

        Raises:
            InvalidArguments: They do not fit.
        """
        self.signature.read(arguments)

    async def execute(self, call: Call) -> ToolResult:
        """Run the function with the call's arguments.

        Raises:
            InvalidArguments: They do not fit; the function was not called.
            ToolError: A secret cannot be had, and the function was not called; or its result is not
                JSON.
        """
        members = self.signature.read(call.arguments)
        if not self.signature.secrets:
            return await self._run(members, call, {})
        secrets = {name: await one.value() for name, one in self.signature.secrets.items()}
        values = Values({value: self.secrets[name] for name, value in secrets.items()})
        try:
            result = await self._run(members, call, secrets)
            if result.transaction is not None:
                return ToolResult(transaction=values.hidden_after(self.name, result.transaction))
            return values.hidden_in(result)
        except Exception as error:
            shown = values.hidden_error(self.name, error)
            if shown is error:
                raise
        raise shown from None

    async def _run(
        self, members: Mapping[str, object], call: Call, secrets: Mapping[str, str]
    ) -> ToolResult:
        bound = self.signature.bind(members, call, secrets)
        fn: Callable[..., object] = self.fn
        return await run_function(functools.partial(fn, *bound.args, **bound.kwargs), call)


async def run_function(function: Callable[[], object], call: Call) -> ToolResult:
    """Call a function, a sync one on a thread of its own, and make its value a result.

    A thread cannot be cancelled. When this coroutine is, the thread goes on, and the call's
    executor is told of it.
    """
    if is_async(function):
        return _given(await cast("Awaitable[object]", function()), call)
    work = start_thread(
        functools.partial(_result_of, function, call), name=f"perdure-tool-{call.name}"
    )
    try:
        result = await asyncio.shield(work)
    except asyncio.CancelledError:
        if not work.done():
            call.leave_running(work)
        raise
    if isinstance(result, ToolResult):
        return result
    return _given(await result, call)


def _result_of(function: Callable[[], object], call: Call) -> ToolResult | Awaitable[object]:
    """Runs on the thread. What is to be awaited goes back to the event loop."""
    value = function()
    return cast("Awaitable[object]", value) if inspect.isawaitable(value) else _given(value, call)


def _given(value: object, call: Call) -> ToolResult:
    """The result that a function's value stands for; of a transactional tool, its other half."""
    if call.effect == "transactional" and not isinstance(value, ToolResult):
        if not callable(value):
            raise ToolError(NO_TRANSACTION.format(call.name))
        return ToolResult(transaction=cast("Transaction", value))
    return to_result(value)


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling the function gives a coroutine."""
    found = _innermost(function)
    if inspect.iscoroutinefunction(found):
        return True
    return not inspect.isroutine(found) and inspect.iscoroutinefunction(type(found).__call__)


# --- the decorator --------------------------------------------------------------------


class Maker(Protocol[OptionsP]):
    """Makes a tool of a function at once, or as a decorator with options."""

    @overload
    def __call__(
        self, fn: Callable[P, R_co], /, *args: OptionsP.args, **options: OptionsP.kwargs
    ) -> TypedTool[P, R_co]: ...

    @overload
    def __call__(
        self, *args: OptionsP.args, **options: OptionsP.kwargs
    ) -> Callable[[Callable[P, R_co]], TypedTool[P, R_co]]: ...


def _decorating(
    make: Callable[Concatenate[Callable[..., object], OptionsP], TypedTool[..., object]],
) -> Maker[OptionsP]:
    """What makes a tool of a function, as a decorator too."""

    @functools.wraps(make)
    def maker(
        fn: Callable[..., object] | None = None, /, *args: OptionsP.args, **options: OptionsP.kwargs
    ) -> TypedTool[..., object] | Callable[[Callable[..., object]], TypedTool[..., object]]:
        def decorate(function: Callable[..., object]) -> TypedTool[..., object]:
            return make(function, *args, **options)

        return decorate if fn is None else decorate(fn)

    return cast("Maker[OptionsP]", maker)


@_decorating
def tool(
    fn: Callable[..., object],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect | EffectOf = "once",
    strict: bool = False,
    sequential: bool = False,
    resource: str | None = None,
    timeout: float | None = None,
    annotations: ToolAnnotations = NO_ANNOTATIONS,
    compensate: Callable[..., object] | None = None,
    approval: Approval | bool | None = None,
) -> TypedTool[..., object]:
    """Make a tool of a typed function, async or sync; of a bound method or a callable object too.

    A sync function runs on a daemon thread. The first paragraph of the docstring is the
    description, its `Args:` describe the parameters. A parameter annotated `Call` gets the call's
    handle; one annotated `Annotated[str, Secret(...)]` gets a secret; the model sees neither.

    Example:
        ```python
        from perdure.tools import tool

        @tool(effect="none")
        async def weather(city: str, days: int = 1) -> str:
            "Look up the weather."
            return f"{city}: sunny for {days} days"
        ```

    Args:
        fn: The function.
        name: What the model calls it; the function's name unless given.
        description: What the model reads of it; the docstring's summary unless given.
        effect: What it does to the world, or a function of the arguments that says so.
        strict: Whether the provider is to enforce the schema.
        sequential: Whether a batch with it runs one call at a time.
        resource: Calls of tools with the same resource run one after another.
        timeout: Seconds a call may take.
        annotations: What it says of itself to people and policies.
        compensate: Undoes what a call did, where a saga is rolled back: a function, async or sync,
            that takes whichever of the tool's own parameters it needs by their names, `result`,
            what the call gave, and a parameter annotated `Compensation`. It may be called again for
            the same call, so it has to be safe to repeat.
        approval: Who has to agree before a call enters it; True for anybody who gives a name.

    Raises:
        ConfigError: The function cannot be a tool; the message says why.
    """
    names = names_outside(globals())
    documented = read_docstring(_doc_of(fn))
    tool_name = name if name is not None else _name_of(fn)
    _refuse_others(fn, tool_name)
    check_name(tool_name)
    check_effect(effect, tool_name)
    check_timeout(timeout, tool_name)
    signature = read_signature(
        fn, strict=strict, names=names, described=documented.members, tool=tool_name
    )
    parameters = signature.schema()
    check_parameters(parameters, tool_name)
    return TypedTool(
        fn=fn,
        name=tool_name,
        description=documented.summary if description is None else description,
        parameters=parameters,
        strict=strict,
        effect=effect,
        sequential=sequential,
        resource=resource,
        timeout=timeout,
        annotations=annotations,
        compensator=_compensator(compensate, fn, tool_name, signature, names),
        approval=as_approval(approval, tool_name),
        signature=signature,
    )


def _compensator(
    compensate: Callable[..., object] | None,
    function: Callable[..., object],
    tool_name: str,
    signature: Signature,
    names: Mapping[str, object],
) -> TypedCompensator | None:
    if compensate is None:
        return None
    parameters = inspect.signature(function).parameters.values()
    defaults = {one.name: one.default for one in parameters if one.default is not one.empty}
    return TypedCompensator(compensate, tool_name, signature, defaults, names)


def names_outside(module: Mapping[str, object]) -> Mapping[str, object]:
    """What is local to the first caller outside a module: annotations written as text may name it.

    Args:
        module: The module's `globals()`.
    """
    frame = inspect.currentframe()
    while frame is not None and (frame.f_globals is globals() or frame.f_globals is module):
        frame = frame.f_back
    if frame is None or frame.f_locals is frame.f_globals:
        return {}
    return dict(frame.f_locals)


def as_tool(thing: Tool | Callable[..., object]) -> Tool:
    """A tool as it is, or a tool of a plain typed function.

    Raises:
        ConfigError: It is neither.
    """
    if isinstance(thing, Tool) and not isinstance(thing, type):
        return thing
    if callable(thing):
        return tool(thing)
    raise ConfigError(f"{thing!r} is no tool; give a typed function or an object with `execute`")


def check_parameters(parameters: Mapping[str, object], tool: str) -> None:
    """Refuse a schema that no request can carry.

    Raises:
        ConfigError: It is not I-JSON.
    """
    try:
        canonical_json(parameters)
    except NotIJson as error:
        raise ConfigError(f"tool {tool!r}: its schema cannot be sent: {error}") from error


def _innermost(function: Callable[..., object]) -> object:
    found: object = function
    while isinstance(found, functools.partial):
        found = found.func
    return found


def _name_of(function: Callable[..., object]) -> str:
    found = _innermost(function)
    return str(getattr(found, "__name__", type(found).__name__))


def _doc_of(function: Callable[..., object]) -> str | None:
    found = _innermost(function)
    if inspect.isroutine(found):
        return found.__doc__
    return type(found).__call__.__doc__ or type(found).__doc__


def _refuse_others(function: Callable[..., object], tool: str) -> None:
    found = _innermost(function)
    if not callable(found) or isinstance(found, type):
        raise ConfigError(f"tool {tool!r}: {function!r} is no function")
    if inspect.isgeneratorfunction(found) or inspect.isasyncgenfunction(found):
        raise ConfigError(
            f"tool {tool!r}: a generator gives no result; return a value, "
            "and show what comes before it with call.progress(...)"
        )
