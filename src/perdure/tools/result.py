"""What a tool gives: a result for the model, details for the host.

*output*: what the model reads, text or content parts.
*details*: whatever the host wants to know beside it; it never reaches the model.
*terminate*: the batch should be the last; it is when every result of the batch says so.
"""

from __future__ import annotations

import dataclasses
import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import cast

import msgspec

from perdure.errors import ConfigError, Suspend, ToolError, ToolPanic
from perdure.tools.transaction import Transaction
from perdure.wire.outputs import error_output
from perdure.wire.parts import InputText, Part
from perdure.wire.surrogates import scalar_text


@dataclasses.dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call.

    Lone surrogates, which no request can carry, are replaced by U+FFFD.
    """

    output: str | tuple[Part, ...] = ""
    _: dataclasses.KW_ONLY
    details: object = None
    terminate: bool = False
    original: str | tuple[Part, ...] | None = None
    """The output as the tool gave it, where lone surrogates had to be replaced."""
    transaction: Transaction | None = None
    """Of a transactional tool's body: the function that does it and gives the real result."""
    is_error: bool = dataclasses.field(default=False, compare=False)
    """It tells of a failure. A tool that returns it failed, as one that raises: in a saga too."""

    def __post_init__(self) -> None:
        if self.original is None:
            clean = _without_surrogates(self.output)
            if clean is not self.output:
                object.__setattr__(self, "original", self.output)
                object.__setattr__(self, "output", clean)


def to_result(value: object) -> ToolResult:
    """The result that a tool's return value stands for.

    A string is text, None is empty text, bytes are base64, a content part or a list of them are
    parts, a `ToolResult` is itself, and any other value is its JSON text.

    Raises:
        ToolError: The value is not JSON.
    """
    if isinstance(value, ToolResult):
        return value
    if value is None:
        return ToolResult("")
    if isinstance(value, str):
        return ToolResult(value)
    if isinstance(value, bytes | bytearray):
        return ToolResult(b64encode(value).decode("ascii"))
    if isinstance(value, Part):
        return ToolResult((value,))
    parts = _as_parts(value)
    return ToolResult(_as_json(value) if parts is None else parts)


def _as_parts(value: object) -> tuple[Part, ...] | None:
    """The parts that a list is made of, with strings between them; None if it has none."""
    if not isinstance(value, list | tuple):
        return None
    elements = cast("Sequence[object]", value)
    parts: list[Part] = []
    for element in elements:
        if isinstance(element, str):
            parts.append(InputText(text=element))
        elif isinstance(element, Part):
            parts.append(element)
        else:
            return None
    return tuple(parts) if any(isinstance(element, Part) for element in elements) else None


def json_text(value: object) -> str:
    """The JSON text of any value that has one.

    Raises:
        ToolError: It has none; the message says that the tool has run.
    """
    try:
        return _scalar(_encoded(value))
    except _NotJson as error:
        raise ToolError(NOT_JSON.format(error)) from None


def given_json(value: object, what: str) -> str:
    """The JSON text of a value that somebody gives for a record.

    Args:
        value: The value.
        what: What it is, for the error.

    Raises:
        ConfigError: It has none, or is nested deeper than every process can read.
    """
    try:
        text = _scalar(_encoded(value))
        if text.count("[") + text.count("{") > MOST_NESTED and _is_nested(
            msgspec.json.decode(text)
        ):
            raise _NotJson(NESTED)
    except _NotJson as error:
        raise ConfigError(f"{what} is not JSON: {error}") from None
    return text


NOT_JSON = "the tool ran, but its result is not JSON: {}"

NESTED = "it is nested too deeply, or contains itself"

MOST_NESTED = 500
"""How deep a value on a record may be nested: Python reads twice as much, on an empty stack."""


class _NotJson(Exception):
    """A value has no JSON text; the message says why."""


def _as_json(value: object) -> str:
    """Its JSON text, with the lone surrogates that a `ToolResult` replaces."""
    try:
        return _encoded(value)
    except _NotJson as error:
        raise ToolError(NOT_JSON.format(error)) from None


def _encoded(value: object) -> str:
    try:
        return _ENCODER.encode(msgspec.to_builtins(value, str_keys=True, enc_hook=_pydantic))
    except RecursionError:
        reason = NESTED
    except Exception as error:  # noqa: BLE001 - the value's own code may raise anything
        reason = str(error) or type(error).__name__
    raise _NotJson(reason)


def _scalar(text: str) -> str:
    if scalar_text(text) is not text:
        raise _NotJson("it has a lone surrogate, which is half a character")
    return text


def _is_nested(value: object) -> bool:
    """Whether a plain JSON value is nested deeper than a record takes."""
    level = [value]
    for _ in range(MOST_NESTED):
        inner: list[object] = []
        for one in level:
            if isinstance(one, list):
                inner += cast("list[object]", one)
            elif isinstance(one, dict):
                inner += cast("dict[str, object]", one).values()
        level = inner
    return any(isinstance(one, list | dict) for one in level)


def error_result(error: BaseException) -> ToolResult:
    """What the model reads of a failure: `Error: ` and the message, once.

    The details and the wish to terminate that a `ToolError` carries are kept.
    """
    message = str(error) or type(error).__name__
    output = error_output(message)
    return ToolResult(
        output,
        details=getattr(error, "details", None),
        terminate=getattr(error, "terminate", False) is True,
        is_error=True,
    )


def failure(name: str, error: BaseException) -> BaseException:
    """What decides about a tool that raised `error`.

    A group of one is that one. Of a group of several, exceptions decide over signals (exceptions
    that are no `Exception`); several exceptions become one. What is no `ToolError` becomes a
    `ToolPanic` with the traceback behind it.

    Returns:
        A `ToolError`, `KeyboardInterrupt`, `SystemExit`, or a signal: as it is, or a group of them.
    """
    leaves = list(_leaves(error))
    for leaf in leaves:
        if isinstance(leaf, KeyboardInterrupt | SystemExit):
            return leaf
    ordinary = [leaf for leaf in leaves if isinstance(leaf, Exception)]
    if not ordinary:
        waits = all(isinstance(leaf, Suspend) for leaf in leaves)
        return leaves[0] if len(leaves) == 1 or waits else error
    if len(ordinary) == 1:
        only = ordinary[0]
        return only if isinstance(only, ToolError) else ToolPanic(name, only)
    return _joined(name, ordinary, error)


def _joined(name: str, errors: Sequence[Exception], group: BaseException) -> ToolError:
    said = "; ".join(str(error) or type(error).__name__ for error in errors)
    if all(isinstance(error, ToolError) for error in errors):
        joined = ToolError(said)
    else:
        joined = ToolPanic(name, RuntimeError(said))
    joined.__cause__ = group
    return joined


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        for inner in group.exceptions:
            yield from _leaves(inner)
    else:
        yield error


# --- text that a request can carry ----------------------------------------------------


def _without_surrogates(output: str | tuple[Part, ...]) -> str | tuple[Part, ...]:
    if isinstance(output, str):
        return scalar_text(output)
    parts = tuple(_clean_part(part) for part in output)
    return output if all(new is old for new, old in zip(parts, output, strict=True)) else parts


def _clean_part(part: Part) -> Part:
    changed: dict[str, str] = {}
    for field in part.__struct_fields__:
        value = getattr(part, field)
        if isinstance(value, str):
            clean = scalar_text(value)
            if clean is not value:
                changed[field] = clean
    return msgspec.structs.replace(part, **changed) if changed else part


# --- JSON -----------------------------------------------------------------------------


def _pydantic(value: object) -> object:
    """The JSON form of a pydantic model, without importing pydantic."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__!r} is not a JSON type")
    return dump(mode="json")


# msgspec would write NaN as null and refuse the lone surrogates that `ToolResult` replaces.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
