"""Classes with named members: dataclasses, TypedDicts, NamedTuples and msgspec Structs."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeGuard, TypeVar, cast

import msgspec

from perdure.errors import ConfigError

Hints = dict[str, object]

_QUALIFIERS = frozenset({"Required", "NotRequired", "ReadOnly"})


class Member(NamedTuple):
    """A member of a class."""

    name: str
    """In JSON."""
    key: str
    """In Python; empty for the tag of a Struct, which is not given to it."""
    annotation: object
    optional: bool


def type_hints(of: object, names: Mapping[str, object], where: str) -> Hints:
    """The annotations of a class or a function, resolved, without what a function returns.

    Raises:
        ConfigError: An annotation names what is not defined.
    """
    try:
        if not isinstance(of, type):
            return _resolve(_without_return(of), names)
        try:
            return _resolve(of, None)  # its own module comes first
        except NameError:
            return _resolve(of, names)
    except NameError as error:
        raise ConfigError(
            f"{where}: the annotation names {error.name!r}, which is not defined at run time; "
            "an import under TYPE_CHECKING is not enough"
        ) from error
    except (TypeError, SyntaxError) as error:
        raise ConfigError(f"{where}: the annotations cannot be read: {error}") from error


def _without_return(function: object) -> object:
    annotations = dict(getattr(function, "__annotations__", {}))
    annotations.pop("return", None)
    module = getattr(function, "__globals__", {})
    return types.SimpleNamespace(__annotations__=annotations, __globals__=module)


def _resolve(of: object, names: Mapping[str, object] | None) -> Hints:
    local = None if names is None else dict(names)
    return typing.get_type_hints(of, None, local, include_extras=True)


def substitute(annotation: object, bound: Mapping[TypeVar, object]) -> object:
    """The annotation with type variables replaced by what a generic class was given for them."""
    if isinstance(annotation, TypeVar):
        return bound.get(annotation, annotation)
    parameters: tuple[TypeVar, ...] = getattr(annotation, "__parameters__", ())
    if isinstance(annotation, type) or not parameters or not set(parameters) <= set(bound):
        return annotation
    return cast("Any", annotation)[tuple(bound[parameter] for parameter in parameters)]


def is_class(value: object) -> TypeGuard[type[object]]:
    """Whether the value is a class; a generic one with its arguments is not."""
    return isinstance(value, type)


def is_record(cls: type[object]) -> bool:
    """Whether the class has named members."""
    tests = (dataclasses.is_dataclass, _is_struct, _is_typed_dict, _is_named_tuple)
    return any(test(cls) for test in tests)


def maker_of(cls: type[object]) -> Callable[[dict[str, object]], object]:
    """What makes a value of the class from its members by their Python names."""
    if _is_typed_dict(cls):
        return dict

    def make(members: dict[str, object]) -> object:
        members.pop("", None)
        return cls(**members)

    return make


def members_of(cls: type[object], hints: Hints, where: str) -> list[Member]:
    """The members of such a class, in the order of their declaration.

    Raises:
        ConfigError: It cannot be made from an object with these members.
    """
    if _is_struct(cls):
        return _struct_members(cls, hints, where)
    if _is_typed_dict(cls):
        return _typed_dict_members(cls, hints)
    if _is_named_tuple(cls):
        return _named_tuple_members(cls, hints, where)
    return _dataclass_members(cls, hints, where)


def _is_struct(cls: type[object]) -> TypeGuard[type[msgspec.Struct]]:
    return issubclass(cls, msgspec.Struct)


def _is_typed_dict(cls: type[object]) -> bool:
    return hasattr(cls, "__required_keys__") and issubclass(cls, dict)


def _is_named_tuple(cls: type[object]) -> bool:
    return hasattr(cls, "_fields") and issubclass(cls, tuple)


def _dataclass_members(cls: type[object], hints: Hints, where: str) -> list[Member]:
    parameters = cast("Any", cls).__dataclass_params__
    everything: Mapping[str, dataclasses.Field[object]] = cast("Any", cls).__dataclass_fields__
    init_only = [n for n, f in everything.items() if "InitVar" in repr(f.type) or _is_init_only(f)]
    if not parameters.init or init_only:
        raise ConfigError(f"{where}: {cls.__name__!r} cannot be made from its fields alone")
    fields = dataclasses.fields(cast("Any", cls))
    return [
        Member(
            field.name,
            field.name,
            hints[field.name],
            field.default is not dataclasses.MISSING
            or field.default_factory is not dataclasses.MISSING,
        )
        for field in fields
        if field.init
    ]


def _is_init_only(field: dataclasses.Field[object]) -> bool:
    return isinstance(field.type, dataclasses.InitVar)


def _struct_members(cls: type[msgspec.Struct], hints: Hints, where: str) -> list[Member]:
    config = cls.__struct_config__
    if config.array_like:
        raise ConfigError(
            f"{where}: {cls.__name__!r} is a Struct written as an array; use an object"
        )
    members: list[Member] = []
    if config.tag is not None:
        members.append(Member(config.tag_field or "type", "", Literal[config.tag], optional=False))
    defaults = cls.__struct_defaults__
    without = len(cls.__struct_fields__) - len(defaults)
    for index, key in enumerate(cls.__struct_fields__):
        optional = index >= without and defaults[index - without] is not msgspec.NODEFAULT
        members.append(Member(cls.__struct_encode_fields__[index], key, hints[key], optional))
    return members


def _typed_dict_members(cls: type[object], hints: Hints) -> list[Member]:
    required: frozenset[str] = cast("Any", cls).__required_keys__
    members: list[Member] = []
    for name, hint in hints.items():
        optional = name not in required
        annotation = hint
        # With deferred annotations the class itself does not see these.
        while (qualifier := _qualifier(annotation)) in _QUALIFIERS:
            optional = qualifier == "NotRequired" or (optional and qualifier == "ReadOnly")
            (annotation,) = typing.get_args(annotation)
        members.append(Member(name, name, annotation, optional))
    return members


def _qualifier(annotation: object) -> str:
    return str(getattr(typing.get_origin(annotation), "_name", ""))


def _named_tuple_members(cls: type[object], hints: Hints, where: str) -> list[Member]:
    names: tuple[str, ...] = cast("Any", cls)._fields
    defaults: Mapping[str, object] = cast("Any", cls)._field_defaults
    if not set(names) <= set(hints):
        raise ConfigError(f"{where}: the fields of {cls.__name__!r} have no annotations")
    return [Member(name, name, hints[name], name in defaults) for name in names]
