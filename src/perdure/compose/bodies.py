"""The bodies of tools: what a function gives, brought into the one form that a kind works with.

An async generator *emits* what it yields, but for its result: a `Final`, or the first value that
fits the output's shape and not the events', or in default of both its last value.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import cast

import msgspec

from perdure.compose.shapes import Checker
from perdure.compose.shared_context import ToolContext, tool_context
from perdure.errors import ConfigError, ToolError
from perdure.tools import (
    Call,
    Effect,
    EffectOf,
    RawTool,
    Tool,
    ToolResult,
    to_result,
    tool,
)
from perdure.tools.records import type_hints
from perdure.wire import Message, Part, decode_item

_CONTENT = frozenset({"input_text", "input_image", "input_file"})


@dataclasses.dataclass(frozen=True, slots=True)
class Final:
    """The result of a generator, told from its events: `yield Final(value)`."""

    value: object


@dataclasses.dataclass(frozen=True, slots=True)
class Preliminary:
    """The details of a progress that shows a preliminary result."""

    value: object


@dataclasses.dataclass(frozen=True, slots=True)
class Returned:
    """The details of a result: what the body gave, before it became an output."""

    value: object


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a tool of a function is made with; see `perdure.tool`."""

    name: str | None = None
    description: str | None = None
    parameters: Mapping[str, object] | None = None
    effect: Effect | EffectOf = "once"
    strict: bool = False
    sequential: bool = False
    resource: str | None = None


def tool_of(
    function: Callable[..., object],
    options: Options,
    names: Mapping[str, object],
    events: Checker | None,
    output: Checker | None,
) -> Tool:
    """A tool whose result holds what the function gave, in its details.

    A parameter annotated `ToolContext` gets the context; the model does not see it.
    """
    if inspect.isgeneratorfunction(function):
        raise ConfigError(f"{function!r}: make the generator async, or emit from a function")
    if options.parameters is not None:
        return _raw_tool(function, options, events, output)
    label = f"tool {options.name or getattr(function, '__name__', repr(function))!r}"
    hints = type_hints(inspect.unwrap(function), names, label)
    signature = inspect.signature(function)
    contexts = [name for name, hint in hints.items() if hint is ToolContext]
    body = _body(function, tuple(contexts), events, output)
    body.__annotations__ = {n: h for n, h in hints.items() if n not in contexts}
    body.__dict__.pop("__wrapped__", None)
    shown = [one for name, one in signature.parameters.items() if name not in contexts]
    body.__dict__["__signature__"] = signature.replace(parameters=shown)
    return tool(
        body,
        name=options.name,
        description=options.description,
        effect=options.effect,
        strict=options.strict,
        sequential=options.sequential,
        resource=options.resource,
    )


def _raw_tool(
    function: Callable[..., object],
    options: Options,
    events: Checker | None,
    output: Checker | None,
) -> Tool:
    description = options.description
    if description is None:
        description = (inspect.getdoc(function) or "").split("\n\n", 1)[0]
    return RawTool(
        name=options.name or str(getattr(function, "__name__", "tool")),
        description=description,
        parameters=options.parameters,
        fn=_body(function, (), events, output),
        effect=options.effect,
        strict=options.strict,
        sequential=options.sequential,
        resource=options.resource,
    )


def _body(
    function: Callable[..., object],
    contexts: tuple[str, ...],
    events: Checker | None,
    output: Checker | None,
) -> Callable[..., object]:
    def filled() -> dict[str, object]:
        return {name: tool_context() for name in contexts}

    if inspect.isasyncgenfunction(function):
        generate = cast("Callable[..., AsyncGenerator[object, None]]", function)

        @functools.wraps(function)
        async def generator(*args: object, **given: object) -> ToolResult:
            return _returned(await _drained(generate(*args, **given, **filled()), events, output))

        return generator
    if inspect.iscoroutinefunction(function):
        act = cast("Callable[..., Awaitable[object]]", function)

        @functools.wraps(function)
        async def coroutine(*args: object, **given: object) -> ToolResult:
            return _returned(await act(*args, **given, **filled()))

        return coroutine

    @functools.wraps(function)
    def plain(*args: object, **given: object) -> ToolResult:
        return _returned(function(*args, **given, **filled()))

    return plain


def _returned(value: object) -> ToolResult:
    if isinstance(value, ToolResult):
        return value
    return ToolResult(details=Returned(value))


_UNSET = object()


async def _drained(
    generator: AsyncGenerator[object, None], events: Checker | None, output: Checker | None
) -> object:
    """What a generator gives, its events emitted on the way."""
    final, last = _UNSET, _UNSET
    try:
        async for value in generator:
            if isinstance(value, Final):
                final = value.value
                continue
            is_output = output is not None and output.fits(value)
            is_event = events is None or events.fits(value)
            if final is _UNSET and is_output and not is_event:
                final = value
                continue
            last = value
            tool_context().emit(value)
    finally:
        await generator.aclose()
    if final is not _UNSET:
        return final
    if last is _UNSET:
        raise ToolError("the generator gave nothing: yield Final(value), or an event")
    return last


def emit_to(call: Call, events: Checker | None) -> Callable[[object], None]:
    """What a tool's events go through: held to their shape, and shown as the call's progress."""

    def emit(event: object) -> None:
        value = events.read(event) if events is not None else event
        call.progress(details=Preliminary(value))

    return emit


# --- outputs ----------------------------------------------------------------------------


def model_output(value: object) -> ToolResult:
    """What the model reads of a value, which stays beside it.

    Text is itself, a content array is parts, None is `null`, anything else is its JSON text. The
    same rule holds wherever a value comes from.

    Raises:
        ToolError: The value is not JSON.
    """
    parts = content_parts(value)
    if parts is not None:
        return ToolResult(parts, details=Returned(value))
    shown = to_result("null" if value is None else value)
    return dataclasses.replace(shown, details=Returned(value))


def content_parts(value: object) -> tuple[Part, ...] | None:
    """The parts of a content array: a list of which every element is input text, image or file."""
    if not isinstance(value, list | tuple) or not value:
        return None
    elements = list(cast("Sequence[object]", value))
    if not all(_is_content(element) for element in elements):
        return None
    message = {"type": "message", "role": "user", "content": elements}
    item = decode_item(msgspec.json.encode(message))
    if isinstance(item, Message) and not isinstance(item.content, str):
        return item.content
    return None


def _is_content(element: object) -> bool:
    if not isinstance(element, dict):
        return False
    return cast("dict[object, object]", element).get("type") in _CONTENT


def value_of(result: ToolResult) -> object:
    """What the body gave, if it is known, else the output."""
    return result.details.value if isinstance(result.details, Returned) else result.output
