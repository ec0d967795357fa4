"""Schemas as Claude enforces them: for strict tools and for answers that are JSON.

A *keyword* it does not enforce is written into the description of what it limits, so that the
model still reads it. A schema that cannot be enforced at all is `NotStrict`: a map, something of
any type, or one that holds itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

from perdure.errors import ConfigError
from perdure.models.mapping.losses import Lost
from perdure.models.mapping.texts import json_text
from perdure.wire import FunctionTool, JsonSchemaFormat
from perdure.wire.jsontext import member_path

Schema = Mapping[str, object]

_FORMATS = frozenset(
    "date-time time date duration email hostname uri ipv4 ipv6 uuid".split()  # noqa: SIM905
)

_KEPT = frozenset(
    (
        "type",
        "enum",
        "const",
        "anyOf",
        "allOf",
        "$ref",
        "$defs",
        "definitions",
        "title",
        "description",
        "default",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "pattern",
    )
)


class NotStrict(Exception):
    """A schema cannot be enforced.

    Attributes:
        path: Where.
        why: What is there.
    """

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"{path or 'the schema'}: {why}")


def strict_schema(schema: Schema, lost: Lost) -> dict[str, object]:
    """The schema as it can be enforced.

    Raises:
        NotStrict: It cannot be.
    """
    _refuse_recursion(schema)
    return _strict(schema, "", lost)


def _strict(schema: object, path: str, lost: Lost) -> dict[str, object]:
    if not isinstance(schema, Mapping):
        raise NotStrict(path, "anything is allowed")
    members = cast("Schema", schema)
    out: dict[str, object] = {}
    stated: list[str] = []
    for name, value in members.items():
        where = member_path(path, name)
        if name == "oneOf":
            out["anyOf"] = [_strict(one, where, lost) for one in _list(value)]
            lost.add(name, "sent as anyOf", f".{where}")
        elif name in {"anyOf", "allOf"}:
            out[name] = [_strict(one, where, lost) for one in _list(value)]
        elif name in {"properties", "$defs", "definitions"}:
            named = cast("Schema", value)
            out[name] = {n: _strict(v, member_path(where, n), lost) for n, v in named.items()}
        elif name == "items":
            out[name] = _strict(value, where, lost)
        elif name in _KEPT or _enforced(name, value):
            out[name] = value
        else:
            stated.append(f"{name}: {json_text(value).decode()}")
            lost.add(name, "not enforced; stated in the description", f".{where}")
    _close(members, out, path)
    if stated:
        said = out.get("description")
        limits = "{" + ", ".join(stated) + "}"
        out["description"] = f"{said}\n\n{limits}" if said else limits
    return out


def _enforced(name: str, value: object) -> bool:
    return (name == "format" and value in _FORMATS) or (name == "minItems" and value in {0, 1})


def _close(members: Schema, out: dict[str, object], path: str) -> None:
    """Allow no members but those named, and refuse what has no type."""
    kind = members.get("type")
    if kind == "object" or "properties" in members:
        if members.get("additionalProperties", False) is not False:
            raise NotStrict(path, "an object with members of any name")
        out.setdefault("properties", {})
        out["additionalProperties"] = False
    elif not {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"} & members.keys():
        raise NotStrict(path, "anything is allowed")
    elif kind == "array" and "items" not in members:
        raise NotStrict(path, "an array of anything")


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list | tuple) else []


def _refuse_recursion(schema: Schema) -> None:
    named = {**_mapping(schema.get("definitions")), **_mapping(schema.get("$defs"))}
    uses = {name: _references(definition) for name, definition in named.items()}
    for name, direct in uses.items():
        reached, waiting = set[str](), list(direct)
        while waiting:
            other = waiting.pop()
            if other == name:
                raise NotStrict(f"$defs.{name}", "it holds itself")
            if other not in reached:
                reached.add(other)
                waiting += uses.get(other, ())
    if "#" in _references(schema):
        raise NotStrict("", "it holds itself")


def _mapping(value: object) -> Schema:
    return cast("Schema", value) if isinstance(value, Mapping) else {}


def _references(schema: object) -> set[str]:
    """The names of the definitions that a schema uses."""
    if isinstance(schema, Mapping):
        members = cast("Schema", schema)
        reference = members.get("$ref")
        own = {reference.rpartition("/")[2]} if isinstance(reference, str) else set[str]()
        return own.union(*(_references(value) for value in members.values()))
    if isinstance(schema, list | tuple):
        return set[str]().union(*(_references(one) for one in cast("list[object]", schema)))
    return set()


class Parameters(NamedTuple):
    """The parameters of a function: their schema, and whether it is enforced."""

    schema: Schema
    strict: bool


def parameters_of(tool: FunctionTool, lost: Lost, *, maker: str) -> Parameters:
    """The parameters of a function, enforced if it asks for that and they can be.

    Args:
        tool: The function.
        lost: Where it is noted what is not enforced.
        maker: Who would enforce it.
    """
    schema: Schema = tool.parameters or {"type": "object", "properties": {}}
    if not tool.strict:
        return Parameters(schema, strict=False)
    quiet = Lost(f"{lost.at}.parameters")
    try:
        made = Parameters(strict_schema(schema, quiet), strict=True)
    except NotStrict as error:
        lost.add("strict", f"{maker} cannot enforce {error}", ".strict")
        return Parameters(schema, strict=False)
    lost.all += quiet.all
    return made


def answer_schema(wanted: JsonSchemaFormat, lost: Lost, *, maker: str) -> dict[str, object]:
    """The schema of answers that are JSON, as it can be enforced.

    Raises:
        ConfigError: It cannot.
    """
    quiet = Lost("text.format.schema")
    try:
        schema = strict_schema(wanted.schema or {}, quiet)
    except NotStrict as error:
        raise ConfigError(f"{maker} cannot answer by the schema {wanted.name!r}: {error}") from None
    lost.all += quiet.all
    return schema
