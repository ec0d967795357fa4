"""What values of tools must be: a type, or a JSON Schema, and values held to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import cast

import msgspec

from perdure.errors import ConfigError, InvalidArguments
from perdure.tools import check_value
from perdure.tools.result import json_text
from perdure.tools.schema import shape_of
from perdure.tools.shapes import Shape
from perdure.tools.values import Json, json_of, plain

Spec = object
"""A type annotation, or a JSON Schema as a dict."""


@dataclasses.dataclass(frozen=True, slots=True)
class Checker:
    """Reads values of one shape.

    Attributes:
        schema: The shape as a JSON Schema.
    """

    schema: Mapping[str, object]
    _shape: Shape | None = None

    def read(self, value: object) -> object:
        """The value as its shape has it: of the type, with defaults; plain JSON for a schema.

        Raises:
            InvalidArguments: It does not fit.
            ToolError: It is not JSON.
        """
        given = _json(value)
        if self._shape is not None:
            return self._shape.read(given, "")
        check_value(self.schema, given)
        return plain(given, "")

    def fits(self, value: object) -> bool:
        """Whether a value has the shape."""
        try:
            self.read(value)
        except Exception:  # noqa: BLE001 - whatever it is, it does not fit
            return False
        return True

    @property
    def members(self) -> frozenset[str]:
        """The members of an object that the schema names."""
        properties = self.schema.get("properties")
        return frozenset(cast("Mapping[str, object]", properties or {}))

    def read_member(self, name: str, value: object) -> object:
        """One member of an object, held to its own part of the schema.

        Raises:
            InvalidArguments: It does not fit.
        """
        rules = cast("Mapping[str, object]", self.schema.get("properties") or {}).get(name, True)
        given = _json(value)
        check_value(rules, given, name)
        return plain(given, name)


def checker(spec: Spec, what: str) -> Checker | None:
    """The checker of a type or a JSON Schema; None for None.

    Raises:
        ConfigError: It is neither.
    """
    if spec is None:
        return None
    if isinstance(spec, dict):
        return Checker(cast("Mapping[str, object]", spec))
    try:
        shape = shape_of(spec, where=what)
    except (TypeError, AttributeError) as error:
        raise ConfigError(f"{what}: {spec!r} is no type and no JSON Schema") from error
    return Checker(shape.schema(), shape)


def _json(value: object) -> Json:
    """The JSON of any value that has one; NaN and its like have none."""
    if isinstance(value, str | bool) or value is None:
        return value
    text = json_text(value)
    try:
        return json_of(msgspec.json.decode(text))
    except msgspec.DecodeError as error:
        raise InvalidArguments(str(error)) from None
