"""Compensation: how the effect of a call is undone.

A *compensator* is a function that undoes what one call of a tool did. It may be called more than
once for the same call, after a crash say, so it has to be safe to repeat; the key it gets is the
same each time.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, cast

from perdure.errors import ConfigError, InvalidArguments
from perdure.tools.arguments import parse_value
from perdure.tools.records import type_hints
from perdure.tools.schema import shape_of
from perdure.tools.secret import Values
from perdure.tools.shapes import Shape
from perdure.tools.signature import Signature, annotated
from perdure.tools.threads import start_thread
from perdure.wire import Part, text_of

RESULT = "result"
"""The parameter of a compensator that gets what the call gave."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Compensation:
    """A call that is to be undone.

    Attributes:
        call_id: The call.
        tool: The name of its tool.
        arguments: JSON text: what the tool got, as it was dispatched.
        output: What it gave, as the record has it.
        idempotency_key: Of undoing it: the same each time it is tried.
        attempt: Which try it is, from 1.
        run_id: The run that is rolled back.
        cause: Why it is rolled back.
    """

    call_id: str
    tool: str
    arguments: str
    output: str | tuple[Part, ...] = ""
    idempotency_key: str = ""
    attempt: int = 1
    run_id: str = ""
    cause: str = ""

    @property
    def text(self) -> str:
        """The text of what it gave."""
        return text_of(self.output)


Compensator: TypeAlias = (
    Callable[[Compensation], object] | Callable[[Compensation], Awaitable[object]]
)
"""Undoes what a call did, or raises if it could not. What it returns is ignored."""


class TypedCompensator:
    """A compensator that takes the tool's own parameters, by their names, and the `result`.

    Args:
        function: The function, async or sync; a sync one runs on a thread.
        tool: The name of the tool.
        signature: The parameters of the tool.
        defaults: What they are where the model gives nothing.
        names: What is local where the function was made.

    Raises:
        ConfigError: It has a parameter that nobody could fill.
    """

    def __init__(
        self,
        function: Callable[..., object],
        tool: str,
        signature: Signature,
        defaults: Mapping[str, object],
        names: Mapping[str, object],
    ) -> None:
        self._function = function
        self._tool = tool
        self._signature = signature
        self._defaults = defaults
        where = f"the compensator of tool {tool!r}"
        hints = type_hints(annotated(function), names, where)
        self._wanted = _parameters(function, where)
        self._whole = tuple(name for name in self._wanted if hints.get(name) is Compensation)
        known = {field.name for field in signature.shape.fields} | signature.secrets.keys()
        clash = RESULT in known and RESULT in self._wanted and RESULT not in self._whole
        if clash:
            raise ConfigError(f"{where}: 'result' is a parameter of the tool; take a Compensation")
        for name in self._wanted:
            if name not in known and name != RESULT and name not in self._whole:
                raise ConfigError(
                    f"{where}: nothing fills its parameter {name!r}; it may take the parameters of "
                    "the tool by their names, 'result', and one annotated Compensation"
                )
        self._result = _result_shape(hints, where, names)

    def __repr__(self) -> str:
        return f"<compensator of {self._tool!r}>"

    async def __call__(self, compensation: Compensation) -> None:
        """Undo the call.

        Raises:
            InvalidArguments: What was recorded does not fit the tool of today.
            Exception: Whatever the function raises, without the values of secrets.
        """
        wanted = self._signature.secrets.items()
        secrets = {name: await one.value() for name, one in wanted if name in self._wanted}
        hidden = {value: self._signature.secrets[name].reference for name, value in secrets.items()}
        values = {**self._defaults, **self._signature.read(compensation.arguments), **secrets}
        values |= dict.fromkeys(self._whole, compensation)
        if RESULT in self._wanted and RESULT not in values:
            values[RESULT] = self._read_result(compensation)
        given = {name: values[name] for name in self._wanted}
        try:
            await call_compensator(functools.partial(self._function, **given))
        except Exception as error:
            shown = Values(hidden).hidden_error(self._tool, error)
            if shown is error:
                raise
        else:
            return
        raise shown from None

    def _read_result(self, compensation: Compensation) -> object:
        if self._result is None:
            return compensation.text
        try:
            return self._result.read(parse_value(compensation.text), RESULT)
        except InvalidArguments as error:
            raise InvalidArguments(f"what the call gave does not fit: {error}") from None


def _result_shape(
    hints: Mapping[str, object], where: str, names: Mapping[str, object]
) -> Shape | None:
    """How a result is read as JSON; None if it is taken as text."""
    hint = hints.get(RESULT, str)
    if hint is str or hint is object:
        return None
    return shape_of(hint, where=f"{where}, 'result'", names=names)


def _parameters(function: Callable[..., object], where: str) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {function!r} has no signature to read") from error
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for parameter in parameters:
        if parameter.kind not in by_name:
            raise ConfigError(f"{where}: its parameter {parameter.name!r} has no name to be given")
    return tuple(parameter.name for parameter in parameters)


async def call_compensator(function: Callable[[], object]) -> None:
    """Call a function that undoes something; a sync one runs on a daemon thread of its own."""
    if _is_async(function):
        await cast("Awaitable[object]", function())
        return
    given = await start_thread(function, name="perdure-compensator")
    if inspect.isawaitable(given):
        await given


def _is_async(function: Callable[..., object]) -> bool:
    found: object = function
    while isinstance(found, functools.partial):
        found = found.func
    if inspect.iscoroutinefunction(found):
        return True
    return not inspect.isroutine(found) and inspect.iscoroutinefunction(type(found).__call__)
