"""Shapes: what a value may be, as JSON and as Python.

A *shape* stands between a type annotation and a JSON schema. It writes the schema that a model is
shown and reads a value that a model gave, strictly: what the schema allows becomes a value of the
annotated type, what it does not is refused with its path. A shape built for *strict* mode
requires every member and says which values may be null; one that is not leaves optional members
out of `required` and does not say that they may be null, though it reads null for them. One
that is *exact* says all that reading holds a value to, so that whoever has the schema alone can
refuse what would not be read.
"""

from __future__ import annotations

import dataclasses
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias, cast

import msgspec

from perdure.errors import InvalidArguments
from perdure.tools.keywords import check_keywords, unexpected
from perdure.tools.values import (
    Exact,
    Json,
    Number,
    element,
    in_range,
    json_of,
    json_source,
    kind_of,
    member,
    plain,
    quoted,
)

Schema = dict[str, object]


class Shape(Protocol):
    """What a value may be."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of JSON values that can fit."""
        ...

    def schema(self) -> Schema:
        """A new JSON schema; `type` comes first in it."""
        ...

    def read(self, value: Json, at: str) -> object:
        """The Python value for a JSON value.

        Raises:
            InvalidArguments: The value does not fit.
        """
        ...


def mismatch(expected: str, value: Json, at: str) -> InvalidArguments:
    """The error for a value of another kind."""
    return InvalidArguments(f"expected {expected}, got {kind_of(value)}", path=at)


NO_MAPS = "strict mode has no objects with free member names; use a list of pairs, or strict=False"

EVERY_KIND = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})


# --- single values --------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class AnyShape:
    """Any JSON value, as plain Python."""

    kinds: frozenset[str] = EVERY_KIND

    def schema(self) -> Schema:
        return {}

    def read(self, value: Json, at: str) -> object:
        return plain(value, at)


@dataclasses.dataclass(frozen=True, slots=True)
class RawShape:
    """Any JSON value, as its source."""

    kinds: frozenset[str] = EVERY_KIND

    def schema(self) -> Schema:
        return {}

    def read(self, value: Json, at: str) -> object:
        del at
        return msgspec.Raw(json_source(value).encode())


@dataclasses.dataclass(frozen=True, slots=True)
class NullShape:
    """Null alone."""

    kinds: frozenset[str] = frozenset({"null"})

    def schema(self) -> Schema:
        return {"type": "null"}

    def read(self, value: Json, at: str) -> object:
        if value is not None:
            raise mismatch("null", value, at)
        return None


@dataclasses.dataclass(frozen=True, slots=True)
class BooleanShape:
    """True or false."""

    kinds: frozenset[str] = frozenset({"boolean"})

    def schema(self) -> Schema:
        return {"type": "boolean"}

    def read(self, value: Json, at: str) -> object:
        if not isinstance(value, bool):
            raise mismatch("boolean", value, at)
        return value


@dataclasses.dataclass(frozen=True, slots=True)
class NumberShape:
    """Numbers; `convert` gives None for one that is out of range."""

    type: str
    convert: Callable[[Number], object]

    @property
    def kinds(self) -> frozenset[str]:
        return (
            frozenset({"integer"}) if self.type == "integer" else frozenset({"integer", "number"})
        )

    def schema(self) -> Schema:
        return {"type": self.type}

    def read(self, value: Json, at: str) -> object:
        if not isinstance(value, Number):
            raise mismatch(self.type, value, at)
        if self.type == "integer" and not value.is_integer:
            raise InvalidArguments(f"expected integer, got the number {value.text}", path=at)
        return in_range(cast("int | float | None", self.convert(value)), at)


@dataclasses.dataclass(frozen=True, slots=True)
class StringShape:
    """Strings; `convert` raises ValueError for one that is not `what`."""

    convert: Callable[[str], object] = str
    format: str = ""
    what: str = ""
    kinds: frozenset[str] = frozenset({"string"})

    def schema(self) -> Schema:
        return {"type": "string", "format": self.format} if self.format else {"type": "string"}

    def read(self, value: Json, at: str) -> object:
        if not isinstance(value, str):
            raise mismatch("string", value, at)
        try:
            return self.convert(value)
        except ValueError:
            raise InvalidArguments(f"expected {self.what}", path=at) from None


def from_base64(text: str) -> bytes:
    """The bytes of a base64 text with its padding."""
    return b64decode(text, validate=True)


Plain: TypeAlias = bool | int | float | str | None
"""A single JSON value, as Python has it."""


class Choice(NamedTuple):
    """One value of an enumeration: as JSON, and as the function gets it."""

    json: Plain
    value: object


@dataclasses.dataclass(frozen=True, slots=True)
class ChoiceShape:
    """One of some values, in the order of their declaration."""

    choices: tuple[Choice, ...]

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(_kind_of_choice(choice) for choice in self.choices)

    def schema(self) -> Schema:
        types = list(dict.fromkeys(_kind_of_choice(choice) for choice in self.choices))
        if "number" in types and "integer" in types:
            types.remove("integer")
        values = [choice.json for choice in self.choices]
        return {"type": types[0] if len(types) == 1 else types, "enum": values}

    def read(self, value: Json, at: str) -> object:
        if kind_of(value) not in self.kinds:
            raise mismatch(" or ".join(sorted(self.kinds)), value, at)
        found = _identity(value)
        for choice in self.choices:
            if _identity(json_of(choice.json)) == found:
                return choice.value
        raise InvalidArguments(f"must be one of {self._named()}", path=at)

    def _named(self) -> str:
        shown = [quoted(c.json) if isinstance(c.json, str) else str(c.json) for c in self.choices]
        more = len(shown) - 20
        return ", ".join(shown[:20]) + (f" and {more} more" if more > 0 else "")


def _kind_of_choice(choice: Choice) -> str:
    return kind_of(json_of(choice.json))


def _identity(value: Json) -> tuple[str, object]:
    """What tells values apart that Python takes for equal, as 1 and true."""
    if isinstance(value, Number):
        exact: Exact | None = value.exact
        return "number", exact
    return kind_of(value), value


# --- arrays and objects ---------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class ArrayShape:
    """Any number of elements of one shape; `make` builds the container."""

    item: Shape
    make: Callable[[list[object]], object] = list
    kinds: frozenset[str] = frozenset({"array"})

    def schema(self) -> Schema:
        return {"type": "array", "items": self.item.schema()}

    def read(self, value: Json, at: str) -> object:
        if not isinstance(value, list):
            raise mismatch("array", value, at)
        read = self.item.read
        items = [read(item, element(at, index)) for index, item in enumerate(value)]
        try:
            return self.make(items)
        except TypeError as error:  # a set of what has no hash
            raise InvalidArguments(str(error), path=at) from None


@dataclasses.dataclass(frozen=True, slots=True)
class TupleShape:
    """A fixed number of elements, each of its own shape."""

    items: tuple[Shape, ...]
    kinds: frozenset[str] = frozenset({"array"})

    def schema(self) -> Schema:
        each = [item.schema() for item in self.items]
        count = len(each)
        if all(schema == each[0] for schema in each):
            return {"type": "array", "items": each[0], "minItems": count, "maxItems": count}
        return {"type": "array", "prefixItems": each, "minItems": count, "maxItems": count}

    def read(self, value: Json, at: str) -> object:
        if not isinstance(value, list):
            raise mismatch("array", value, at)
        if len(value) != len(self.items):
            raise InvalidArguments(
                f"expected {len(self.items)} elements, got {len(value)}", path=at
            )
        pairs = zip(self.items, value, strict=True)
        return tuple(
            shape.read(item, element(at, index)) for index, (shape, item) in enumerate(pairs)
        )


@dataclasses.dataclass(frozen=True, slots=True)
class MapShape:
    """Any members, all of one shape."""

    value: Shape
    key: Shape | None = None
    """What their names have to be; None for any text."""
    kinds: frozenset[str] = frozenset({"object"})

    def schema(self) -> Schema:
        schema: Schema = {"type": "object", "additionalProperties": self.value.schema()}
        if self.key is not None:
            schema["propertyNames"] = self.key.schema()
        return schema

    def read(self, value: Json, at: str) -> object:
        if not isinstance(value, dict):
            raise mismatch("object", value, at)
        key = self.key
        read = {
            name if key is None else key.read(name, member(at, name)): self.value.read(
                item, member(at, name)
            )
            for name, item in value.items()
        }
        if len(read) != len(value):
            raise InvalidArguments("two members have one key", path=at)
        return read


class Field(NamedTuple):
    """A member of an object."""

    name: str
    """As the model writes it."""
    key: str
    """As Python knows it."""
    shape: Shape
    description: str = ""
    optional: bool = False
    fill: bool = False
    """Where the member is missing, Python gets None; else it gets nothing and uses its default."""


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectShape:
    """An object with these members and no others; `make` builds the value from them."""

    fields: tuple[Field, ...]
    make: Callable[[dict[str, object]], object]
    strict: bool
    exact: bool = False
    kinds: frozenset[str] = frozenset({"object"})

    def schema(self) -> Schema:
        schema: Schema = {
            "type": "object",
            "properties": {f.name: described(f.shape.schema(), f.description) for f in self.fields},
            "required": [f.name for f in self.fields if self.requires(f)],
        }
        if self.strict or self.exact:
            schema["additionalProperties"] = False
        return schema

    def requires(self, field: Field) -> bool:
        """Whether the member must be there."""
        return self.strict or not field.optional

    def read(self, value: Json, at: str) -> object:
        members = self.read_members(value, at)
        try:
            return self.make(members)
        except (ValueError, TypeError) as error:
            raise InvalidArguments(_one_line(error), path=at) from error

    def read_members(self, value: Json, at: str) -> dict[str, object]:
        """The members by their Python names, without those that are missing and have a default."""
        if not isinstance(value, dict):
            raise mismatch("object", value, at)
        self._refuse_unknown(value, at)
        members: dict[str, object] = {}
        for field in self.fields:
            if field.name in value:
                members[field.key] = field.shape.read(value[field.name], member(at, field.name))
            elif self.requires(field):
                raise InvalidArguments("missing", path=member(at, field.name))
            elif field.fill:
                members[field.key] = None
        return members

    def _refuse_unknown(self, value: Mapping[str, Json], at: str) -> None:
        known = [field.name for field in self.fields]
        unknown = sorted(value.keys() - set(known))
        if unknown:
            name = unknown[0]
            raise InvalidArguments(unexpected(name, known), path=member(at, name))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


# --- shapes around shapes -------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class NullableShape:
    """A shape, or null."""

    inner: Shape
    said: bool
    """Whether the schema says so."""

    @property
    def kinds(self) -> frozenset[str]:
        return self.inner.kinds | {"null"}

    def schema(self) -> Schema:
        return with_null(self.inner.schema()) if self.said else self.inner.schema()

    def read(self, value: Json, at: str) -> object:
        return None if value is None else self.inner.read(value, at)


def with_null(schema: Schema) -> Schema:
    """The schema that also allows null."""
    if not schema:
        return schema
    if "enum" in schema:
        schema["enum"] = [*cast("list[object]", schema["enum"]), None]
    if "type" in schema:
        types = schema["type"]
        listed = cast("list[object]", types) if isinstance(types, list) else [types]
        schema["type"] = [*listed, "null"]
    elif "anyOf" in schema:
        schema["anyOf"] = [*cast("list[object]", schema["anyOf"]), {"type": "null"}]
    return schema


@dataclasses.dataclass(frozen=True, slots=True)
class UnionShape:
    """The first of some shapes that fits, in the order of their declaration."""

    options: tuple[Shape, ...]

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset[str]().union(*(option.kinds for option in self.options))

    def schema(self) -> Schema:
        return {"anyOf": [option.schema() for option in self.options]}

    def read(self, value: Json, at: str) -> object:
        kind = kind_of(value)
        fitting = [option for option in self.options if kind in option.kinds]
        if not fitting:
            raise mismatch(" or ".join(_ordered(self.options)), value, at)
        if len(fitting) > 1:
            fitting = [option for option in fitting if tagged(option, value)] or fitting
        if len(fitting) == 1:
            return fitting[0].read(value, at)
        for option in fitting:
            try:
                return option.read(value, at)
            except InvalidArguments:
                continue
        raise InvalidArguments(
            f"the {kind} fits none of the {len(fitting)} allowed shapes", path=at
        )


def _ordered(options: Sequence[Shape]) -> list[str]:
    return list(dict.fromkeys(kind for option in options for kind in sorted(option.kinds)))


def tagged(option: Shape, value: Json) -> bool:
    """Whether an object's fixed members say that it is this option: a tagged union's tags do."""
    if not isinstance(option, ObjectShape) or not isinstance(value, dict):
        return True
    for field in option.fields:
        if isinstance(field.shape, ChoiceShape) and option.requires(field):
            try:
                field.shape.read(value.get(field.name), "")
            except InvalidArguments:
                return False
    return True


@dataclasses.dataclass(frozen=True, slots=True)
class ConstrainedShape:
    """A shape with further keywords of JSON Schema, as `minimum` or `pattern`."""

    inner: Shape
    keywords: Schema
    extra: Schema
    """Shown to the model and not checked."""

    @property
    def kinds(self) -> frozenset[str]:
        return self.inner.kinds

    def schema(self) -> Schema:
        return {**self.inner.schema(), **self.keywords, **self.extra}

    def read(self, value: Json, at: str) -> object:
        read = self.inner.read(value, at)
        check_keywords(self.keywords, value, at)
        return read


def described(schema: Schema, description: str) -> Schema:
    """The schema with a description, which stands after the type."""
    if not description:
        return schema
    head = {"type": schema.pop("type")} if "type" in schema else {}
    return {**head, "description": description, **schema}
