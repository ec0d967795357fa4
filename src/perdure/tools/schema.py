"""From type annotations to shapes, and so to JSON schemas.

The schema of a type is the same in every process, member for member: required members stand in
the order of the fields, values of an enumeration in the order of their declaration. Types that
JSON Schema cannot express, types that contain themselves, and in strict mode maps, are refused
when the tool is defined.

`Optional` means that a member may be null and may be missing; a default means that it may be
missing. Descriptions come from `Annotated[T, "text"]`, `msgspec.Meta(description=...)`, or the
docstring.

One thing is Python's: `typing` keeps one object for `Optional[Literal["a", "b"]]` and for the same
with the values turned round, whichever the process met first.
"""

from __future__ import annotations

import collections
import collections.abc
import datetime as dt
import enum
import types
import typing
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Literal, NoReturn, TypeVar, Union

import msgspec

from perdure.errors import ConfigError
from perdure.tools.docstring import read_docstring
from perdure.tools.foreign import is_pydantic, pydantic_shape
from perdure.tools.records import (
    is_class,
    is_record,
    maker_of,
    members_of,
    substitute,
    type_hints,
)
from perdure.tools.shapes import (
    EVERY_KIND,
    NO_MAPS,
    ArrayShape,
    Choice,
    ChoiceShape,
    ConstrainedShape,
    Field,
    MapShape,
    NullableShape,
    NullShape,
    ObjectShape,
    Schema,
    Shape,
    TupleShape,
    UnionShape,
)
from perdure.tools.singles import (
    EXACT,
    EXACT_LOCAL_DATE_TIME,
    LOCAL_DATE_TIME,
    SINGLE,
    WHOLE_NUMBER_NAME,
)


def json_schema(annotation: object, *, strict: bool = False) -> Schema:
    """The JSON schema of a type.

    Raises:
        ConfigError: The type has none.
    """
    return shape_of(annotation, strict=strict).schema()


def shape_of(
    annotation: object,
    *,
    strict: bool = False,
    exact: bool = False,
    where: str = "",
    names: Mapping[str, object] | None = None,
) -> Shape:
    """The shape of a type.

    Args:
        annotation: The type, as `typing.get_type_hints(..., include_extras=True)` gives it.
        strict: Whether the shape is for a provider that enforces schemas.
        exact: Whether its schema has to say all that reading holds a value to.
        where: What the type is of, for messages, as `parameter 'x'`.
        names: What its own annotations may refer to besides their module.

    Raises:
        ConfigError: The type cannot be expressed; the message says where.
    """
    builder = _Builder(strict=strict, exact=exact, names=names or {})
    return builder.shape(annotation, where or repr(annotation))


def accepts_null(shape: Shape) -> bool:
    """Whether null was named as one of the values."""
    return "null" in shape.kinds and shape.kinds != EVERY_KIND


_Make = Callable[[list[object]], object]

_ARRAYS: Mapping[object, _Make] = {
    list: list,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Collection: list,
    collections.abc.Iterable: list,
    set: set,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
    frozenset: frozenset,
    collections.deque: collections.deque,
}

_MAPS = frozenset({dict, collections.abc.Mapping, collections.abc.MutableMapping})


# --- what stands in Annotated ---------------------------------------------------------

_NUMERIC = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_SIZES = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}


def _keywords(metadata: object, kinds: frozenset[str], where: str) -> Schema:
    """The limits of `msgspec.Meta`, and of what spells them alike, as annotated-types does."""
    found: Schema = {}
    for attribute, keyword in _NUMERIC.items():
        limit: object = getattr(metadata, attribute, None)
        if limit is None:
            continue
        if isinstance(limit, bool) or not isinstance(limit, int | float):
            raise ConfigError(f"{where}: the limit {attribute}={limit!r} is not a number of JSON's")
        found[keyword] = limit
    pattern: object = getattr(metadata, "pattern", None)
    if isinstance(pattern, str):
        found["pattern"] = pattern
    for index, attribute in enumerate(("min_length", "max_length")):
        size: object = getattr(metadata, attribute, None)
        if isinstance(size, int):
            found.update({_SIZES[kind][index]: size for kind in _SIZES if kind in kinds})
    return found


def _extra(metadata: tuple[object, ...]) -> Schema:
    """What `Annotated` says to the model alone: a text, and the rest of `msgspec.Meta`."""
    extra: Schema = {}
    for note in metadata:
        if isinstance(note, str):
            extra.setdefault("description", note)
        elif isinstance(note, msgspec.Meta):
            said = {"title": note.title, "description": note.description, "examples": note.examples}
            extra.update({key: value for key, value in said.items() if value is not None})
            extra.update(note.extra_json_schema or {})
    return extra


# --- the builder ----------------------------------------------------------------------


class _Builder:
    def __init__(self, *, strict: bool, exact: bool, names: Mapping[str, object]) -> None:
        self._strict = strict
        self._exact = exact
        self._says_null = strict or exact
        self._names = names
        self._open: list[object] = []

    def shape(self, annotation: object, where: str) -> Shape:
        """The shape of `annotation`; `where` names it in messages."""
        origin = typing.get_origin(annotation)
        if origin is typing.Annotated:
            return self._annotated(annotation, where)
        supertype: object = getattr(annotation, "__supertype__", None)
        if supertype is not None:  # a NewType
            return self.shape(supertype, where)
        if type(annotation).__name__ == "TypeAliasType":  # Python 3.12 has the class
            value: object = getattr(annotation, "__value__", None)
            return self.shape(value, where)
        if _is_hashable(annotation) and annotation in SINGLE:
            single = SINGLE[annotation]
            return EXACT.get(annotation, single) if self._exact else single
        if origin is Literal:
            return self._literal(typing.get_args(annotation), where)
        if origin in {Union, types.UnionType}:
            return self._union(typing.get_args(annotation), where)
        return self._composite(annotation, origin or annotation, typing.get_args(annotation), where)

    def _composite(
        self, annotation: object, base: object, args: tuple[object, ...], where: str
    ) -> Shape:
        if is_pydantic(annotation) or is_pydantic(base):
            return self._pydantic(annotation, where)
        if not is_class(base):
            _refuse(annotation, where)
        if base in _ARRAYS:
            item = self.shape(args[0] if args else object, f"{where}[]")
            return ArrayShape(item, _ARRAYS[base])
        if base is tuple:
            return self._tuple(annotation, args, where)
        if base in _MAPS:
            return self._map(args, where)
        if issubclass(base, enum.Enum):
            return self._enum(base, where)
        if not is_record(base):
            _refuse(annotation, where)
        if annotation in self._open:
            raise ConfigError(f"{where}: the type {base.__name__!r} contains itself")
        self._open.append(annotation)
        try:
            return self._record(base, typing.get_args(annotation), where)
        finally:
            self._open.pop()

    def _pydantic(self, annotation: object, where: str) -> Shape:
        return pydantic_shape(annotation, strict=self._strict, exact=self._exact, where=where)

    def _annotated(self, annotation: object, where: str) -> Shape:
        base, *notes = typing.get_args(annotation)
        if any(is_pydantic(note) for note in notes):
            return self._pydantic(annotation, where)
        shape = self.shape(base, where)
        if base is dt.datetime and any(_without_zone(note) for note in notes):
            shape = EXACT_LOCAL_DATE_TIME if self._exact else LOCAL_DATE_TIME
        keywords: Schema = {}
        for note in notes:
            keywords.update(_keywords(note, shape.kinds, where))
        if base is Decimal and keywords:  # limits hold numbers, and no texts of numbers
            shape = SINGLE[Decimal]
        if base in {bytes, bytearray} and keywords:
            raise ConfigError(f"{where}: limits of bytes cannot be expressed, they are base64 text")
        extra = _extra(tuple(notes))
        return ConstrainedShape(shape, keywords, extra) if keywords or extra else shape

    def _literal(self, values: tuple[object, ...], where: str) -> Shape:
        choices = [_choice(value, where) for value in values if value is not None]
        if not choices:
            return NullShape()
        shape = ChoiceShape(tuple(choices))
        return NullableShape(shape, self._says_null) if None in values else shape

    def _enum(self, cls: type[enum.Enum], where: str) -> Shape:
        if issubclass(cls, enum.Flag):
            raise ConfigError(f"{where}: a Flag cannot be expressed; use a list of an Enum")
        choices = [Choice(_choice(member.value, where).json, member) for member in cls]
        if not choices:
            raise ConfigError(f"{where}: the enumeration {cls.__name__!r} is empty")
        return ChoiceShape(tuple(choices))

    def _union(self, args: tuple[object, ...], where: str) -> Shape:
        options = [arg for arg in args if arg is not msgspec.UnsetType]
        nullable = types.NoneType in options
        shapes = [self.shape(arg, where) for arg in options if arg is not types.NoneType]
        if not shapes:
            return NullShape()
        shape = shapes[0] if len(shapes) == 1 else UnionShape(tuple(shapes))
        return NullableShape(shape, self._says_null) if nullable else shape

    def _tuple(self, annotation: object, args: tuple[object, ...], where: str) -> Shape:
        # tuple[()] has no arguments either, but is no bare tuple.
        bare = not args and not isinstance(annotation, types.GenericAlias)
        if bare or (len(args) == 2 and args[1] is Ellipsis):
            return ArrayShape(self.shape(object if bare else args[0], f"{where}[]"), tuple)
        shapes = tuple(self.shape(arg, f"{where}[{index}]") for index, arg in enumerate(args))
        shape = TupleShape(shapes)
        if not shapes or (self._strict and "prefixItems" in shape.schema()):
            raise ConfigError(f"{where}: such a tuple cannot be expressed; use a dataclass")
        return shape

    def _map(self, args: tuple[object, ...], where: str) -> Shape:
        if self._strict:
            raise ConfigError(f"{where}: {NO_MAPS}")
        key, value = args or (str, object)
        return MapShape(self.shape(value, f"{where}.*"), self._key(key, where))

    def _key(self, key: object, where: str) -> Shape | None:
        """What the names of members have to be; None for any text."""
        shape = WHOLE_NUMBER_NAME if key is int and self._exact else self.shape(key, where)
        if shape is SINGLE[str]:
            return None
        if not self._exact or shape.kinds != frozenset({"string"}):
            raise ConfigError(f"{where}: the keys of an object are str, not {key!r}")
        return shape

    def _record(self, cls: type[object], args: tuple[object, ...], where: str) -> Shape:
        hints = type_hints(cls, self._names, where)
        parameters: tuple[TypeVar, ...] = getattr(cls, "__parameters__", ())
        bound = dict(zip(parameters, args, strict=False))
        described = read_docstring(cls.__doc__).members
        fields: list[Field] = []
        for one in members_of(cls, hints, where):
            shape = self.shape(substitute(one.annotation, bound), f"{where}.{one.name}")
            nullable = accepts_null(shape)
            fields.append(
                Field(
                    one.name,
                    one.key,
                    shape,
                    description=described.get(one.key, ""),
                    optional=one.optional or nullable,
                    fill=nullable and not one.optional,
                )
            )
        return ObjectShape(tuple(fields), maker_of(cls), self._strict, self._exact)


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _without_zone(note: object) -> bool:
    return isinstance(note, msgspec.Meta) and note.tz is False


def _choice(value: object, where: str) -> Choice:
    plain = value.value if isinstance(value, enum.Enum) else value
    if isinstance(plain, bool | int | float | str):
        return Choice(plain, value)
    raise ConfigError(f"{where}: {value!r} cannot be in an enumeration; JSON has no such value")


def _refuse(annotation: object, where: str) -> NoReturn:
    if isinstance(annotation, TypeVar):
        raise ConfigError(f"{where}: the type variable {annotation!r} stands for no type here")
    if isinstance(annotation, str | typing.ForwardRef):
        raise ConfigError(f"{where}: the name {annotation!r} is not defined")
    raise ConfigError(
        f"{where}: {annotation!r} cannot be expressed as a JSON schema; use a dataclass, "
        "a TypedDict, a msgspec.Struct or a pydantic model; a RawTool has a schema of your own"
    )
