"""A form: the schema of a type's answers, and reading one."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Generic, TypeVar, cast

from perdure.errors import ConfigError
from perdure.models.mapping.losses import Lost
from perdure.models.mapping.strict_schema import NotStrict, strict_schema
from perdure.tools.arguments import parse_arguments
from perdure.tools.docstring import read_docstring
from perdure.tools.records import is_record
from perdure.tools.schema import shape_of
from perdure.tools.shapes import Field, ObjectShape, Schema, Shape
from perdure.wire.canonical import canonical_json

FormT_co = TypeVar("FormT_co", covariant=True)

WRAPPED = "value"
"""The member that holds an answer which is no object: providers take objects alone."""

_UNENFORCED = ("minLength", "maxLength", "minProperties", "maxProperties", "uniqueItems")
"""Keywords that some provider refuses in a schema it enforces. They are told in words, and checked
here."""

_NEVER_ENFORCED = frozenset(("prefixItems", "patternProperties", "not", "if", "oneOf", "contains"))

_ALTERNATIVES = ("anyOf", "allOf", "oneOf", "prefixItems")
_FENCED = re.compile(r"\s*```[\w-]*\n(.*?)\n?```\s*", re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True)
class Form(Generic[FormT_co]):
    """A type as a model is asked for it."""

    name: str
    """Of letters, digits, `_` and `-`."""
    description: str
    wrapped: bool
    """The answer is no object by itself, so it is the member `value` of one."""
    shape: Shape
    """Reads answers. Members that have a default may be missing."""
    strict: Shape | None
    """Writes the schema for providers that enforce it; None if none can."""

    def schema(self) -> Schema:
        """The JSON schema, of an object."""
        return self.shape.schema()

    def enforced_schema(self) -> Schema:
        """The schema with every member required, and only what all who enforce schemas take."""
        return _stated((self.strict or self.shape).schema())

    def read(self, text: str) -> FormT_co:
        """The value of an answer.

        Raises:
            InvalidArguments: It is not JSON, or does not fit.
        """
        members = parse_arguments(unfenced(text), required=True)
        return cast("FormT_co", self.shape.read(members, ""))


def form_of(annotation: object, *, name: str = "", description: str = "") -> Form[object]:
    """The form of a type.

    Raises:
        ConfigError: It cannot be expressed as a JSON schema.
    """
    shape = shape_of(annotation, where="output")
    wrapped = not _is_object(shape.schema())
    canonical_json(shape.schema())
    return Form(
        name=_name(name or str(getattr(annotation, "__name__", ""))),
        description=description or _docstring(annotation),
        wrapped=wrapped,
        shape=_wrap(shape, strict=False) if wrapped else shape,
        strict=_strict(annotation, wrapped=wrapped),
    )


def _strict(annotation: object, *, wrapped: bool) -> Shape | None:
    try:
        shape = shape_of(annotation, strict=True, where="output")
    except ConfigError:  # free member names, say: no provider enforces those
        return None
    if not _is_enforceable(shape.schema()):
        return None
    return _wrap(shape, strict=True) if wrapped else shape


def _wrap(shape: Shape, *, strict: bool) -> Shape:
    return ObjectShape((Field(WRAPPED, WRAPPED, shape),), _unwrap, strict)


def unfenced(text: str) -> str:
    """The text without white space and code fence around it."""
    found = _FENCED.fullmatch(text)
    return (found[1] if found else text).strip()


def _unwrap(members: dict[str, object]) -> object:
    return members[WRAPPED]


def _is_enforceable(schema: Schema) -> bool:
    """Whether every provider that enforces schemas enforces this one."""
    try:
        strict_schema(schema, Lost())
    except NotStrict:  # something of any type, say
        return False
    return _NEVER_ENFORCED.isdisjoint(_keywords(schema))


def _keywords(schema: object) -> Iterator[str]:
    """The keywords in a schema, those of the schemas in it too."""
    if isinstance(schema, dict):
        for name, value in cast("Schema", schema).items():
            yield name
            named = cast("Schema", value).values() if name == "properties" else (value,)
            for inner in named:
                yield from _keywords(inner)
    elif isinstance(schema, list):
        for inner in cast("list[object]", schema):
            yield from _keywords(inner)


def _is_object(schema: Schema) -> bool:
    return schema.get("type") == "object" and "properties" in schema


def _name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text)[:64].strip("_") or "answer"


def _docstring(annotation: object) -> str:
    """What a record says of itself; not the signature that dataclasses write for want of a word."""
    if not (isinstance(annotation, type) and is_record(annotation)):
        return ""
    summary = read_docstring(annotation.__doc__).summary
    return "" if summary.startswith(f"{annotation.__name__}(") else summary


def _stated(schema: Schema) -> Schema:
    """A schema whose unenforced keywords stand in its description."""
    out: Schema = {}
    said: list[str] = []
    for name, value in schema.items():
        if name in _UNENFORCED:
            said.append(f"{name}: {value}")
        elif name == "properties":
            members = cast("dict[str, Schema]", value)
            out[name] = {key: _stated(member) for key, member in members.items()}
        elif name in _ALTERNATIVES:
            out[name] = [_stated(one) for one in cast("list[Schema]", value)]
        elif isinstance(value, dict) and name in {"items", "additionalProperties"}:
            out[name] = _stated(cast("Schema", value))
        else:
            out[name] = value
    if said:
        words = f"{{{', '.join(said)}}}"
        before = out.get("description")
        out["description"] = f"{before} {words}" if before else words
    return out
