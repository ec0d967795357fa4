"""The parameters of a function: which the model gives, and which it never sees."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

from perdure.errors import ConfigError
from perdure.tools.arguments import parse_arguments
from perdure.tools.call import Call
from perdure.tools.records import type_hints
from perdure.tools.schema import accepts_null, shape_of
from perdure.tools.secret import Secret
from perdure.tools.shapes import Field, ObjectShape, Schema, Shape

_POSITIONAL = inspect.Parameter.POSITIONAL_ONLY
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Bound(NamedTuple):
    """How the function is called."""

    args: tuple[object, ...]
    kwargs: dict[str, object]


@dataclasses.dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a function."""

    shape: ObjectShape
    """What the model gives."""
    positional: tuple[inspect.Parameter, ...]
    """The parameters that cannot be given by name."""
    call: tuple[str, ...]
    """The parameters that get the call's handle."""
    secrets: Mapping[str, Secret]
    """The parameters that get a secret."""

    def schema(self) -> Schema:
        """The schema of the arguments."""
        return self.shape.schema()

    def read(self, arguments: str) -> dict[str, object]:
        """The arguments as values of the annotated types, by parameter.

        Raises:
            InvalidArguments: They do not fit.
        """
        required = any(self.shape.requires(field) for field in self.shape.fields)
        return self.shape.read_members(parse_arguments(arguments, required=required), "")

    def bind(self, members: Mapping[str, object], call: Call, secrets: Mapping[str, str]) -> Bound:
        """The function's own arguments: the model's, the call's handle, the secrets."""
        values = {**members, **secrets, **dict.fromkeys(self.call, call)}
        args = tuple(values.pop(one.name, one.default) for one in self.positional)
        return Bound(args, values)


def read_signature(
    function: Callable[..., object],
    *,
    strict: bool,
    names: Mapping[str, object],
    described: Mapping[str, str],
    tool: str,
) -> Signature:
    """Read the parameters of a function.

    Raises:
        ConfigError: A parameter is variadic, has no annotation, or has one that JSON Schema cannot
            express.
    """
    hints = type_hints(annotated(function), names, f"tool {tool!r}")
    fixed = _bound_by_partial(function)
    parameters = [one for one in _parameters(function, tool) if one.name not in fixed]
    for parameter in parameters:
        _refuse_odd(parameter, hints, _where(tool, parameter))
    call = tuple(one.name for one in parameters if hints[one.name] is Call)
    secrets: dict[str, Secret] = {}
    for parameter in parameters:
        secret = _secret_of(hints[parameter.name], _where(tool, parameter))
        if secret is not None:
            secrets[parameter.name] = secret
    fields: list[Field] = []
    for parameter in parameters:
        name = parameter.name
        if name not in call and name not in secrets:
            where = _where(tool, parameter)
            shape = shape_of(hints[name], strict=strict, where=where, names=names)
            fields.append(_field(parameter, shape, described.get(name, "")))
    return Signature(
        shape=ObjectShape(tuple(fields), dict, strict),
        positional=tuple(one for one in parameters if one.kind is _POSITIONAL),
        call=call,
        secrets=secrets,
    )


def _where(tool: str, parameter: inspect.Parameter) -> str:
    return f"tool {tool!r}, parameter {parameter.name!r}"


def _field(parameter: inspect.Parameter, shape: Shape, description: str) -> Field:
    has_default = parameter.default is not inspect.Parameter.empty
    nullable = accepts_null(shape)
    return Field(
        parameter.name,
        parameter.name,
        shape,
        description=description,
        optional=has_default or nullable,
        fill=nullable and not has_default,
    )


def _parameters(function: Callable[..., object], tool: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise ConfigError(f"tool {tool!r}: {function!r} has no signature to read") from error


def annotated(function: Callable[..., object]) -> object:
    """What carries the annotations: the function under partials, wrappers and methods."""
    found: object = function
    while isinstance(found, functools.partial):
        found = found.func
    if not (inspect.isroutine(found) or isinstance(found, type)):
        found = type(found).__call__
    if inspect.ismethod(found):
        found = found.__func__
    return inspect.unwrap(cast("Callable[..., object]", found))


def _bound_by_partial(function: Callable[..., object]) -> frozenset[str]:
    """The names that a partial has fixed; the model has no say in them."""
    names: frozenset[str] = frozenset()
    found: object = function
    while isinstance(found, functools.partial):
        names |= frozenset(found.keywords)
        found = found.func
    return names


def _secret_of(hint: object, where: str) -> Secret | None:
    if typing.get_origin(hint) is not typing.Annotated:
        return None
    base, *notes = typing.get_args(hint)
    secrets = [note for note in notes if isinstance(note, Secret)]
    if secrets and base is not str:
        raise ConfigError(f"{where}: a secret parameter is a str, not {base!r}")
    return secrets[0] if secrets else None


def _refuse_odd(parameter: inspect.Parameter, hints: Mapping[str, object], where: str) -> None:
    if parameter.kind in _VARIADIC:
        stars = "*" if parameter.kind is inspect.Parameter.VAR_POSITIONAL else "**"
        raise ConfigError(
            f"{where}: {stars}{parameter.name} has no schema; name the parameters, "
            "or take a list or a dict"
        )
    if parameter.name not in hints:
        hint = "; make a tool of the bound method" if parameter.name in {"self", "cls"} else ""
        raise ConfigError(f"{where}: it has no annotation{hint}")
