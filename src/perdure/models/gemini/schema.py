"""Schemas as Gemini takes them, which is a part of JSON Schema.

A *keyword* it does not take is written into the description of what it limits, so that the model
still reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from perdure.models.mapping.losses import Lost
from perdure.models.mapping.texts import json_text
from perdure.wire.jsontext import member_path

Schema = Mapping[str, object]

_TAKEN = frozenset(
    (
        "$anchor",
        "$id",
        "$ref",
        "additionalProperties",
        "default",
        "description",
        "enum",
        "format",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "propertyOrdering",
        "required",
        "title",
        "type",
    )
)


def gemini_schema(schema: Schema, lost: Lost) -> dict[str, object]:
    """The schema as Gemini takes it."""
    return _converted(schema, "", lost)


def _converted(schema: Schema, path: str, lost: Lost) -> dict[str, object]:
    out: dict[str, object] = {}
    stated: list[str] = []
    for name, value in schema.items():
        where = member_path(path, name)
        if name in {"properties", "$defs", "definitions"}:
            named = cast("Schema", value)
            out[name] = {n: _any(v, member_path(where, n), lost) for n, v in named.items()}
        elif name in {"anyOf", "oneOf", "prefixItems"}:
            out[name] = [_any(one, where, lost) for one in cast("list[object]", value)]
        elif name in {"items", "additionalProperties"}:
            out[name] = _any(value, where, lost)
        elif name == "allOf" and len(every := cast("list[Schema]", value)) == 1:
            out.update(_converted(every[0], where, lost))
        elif name == "const":
            out["enum"] = [value]
        elif name in _TAKEN:
            out[name] = value
        elif name not in {"$schema", "$comment"}:
            stated.append(f"{name}: {json_text(value).decode()}")
            lost.add(name, "Gemini takes no such keyword; stated in the description", f".{where}")
    if stated:
        said = out.get("description")
        limits = "{" + ", ".join(stated) + "}"
        out["description"] = f"{said}\n\n{limits}" if said else limits
    return out


def _any(value: object, path: str, lost: Lost) -> object:
    """A schema; true and false are ones, too."""
    return _converted(cast("Schema", value), path, lost) if isinstance(value, Mapping) else value
