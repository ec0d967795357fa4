"""Types that pydantic describes, for users who have it. It is imported when one is met."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from perdure.errors import ConfigError, InvalidArguments
from perdure.tools.json_schema import check_value
from perdure.tools.shapes import EVERY_KIND, NO_MAPS, Schema
from perdure.tools.singles import LOCAL_FORMAT
from perdure.tools.values import Json, element, json_source, member

if TYPE_CHECKING:
    import pydantic
    from pydantic_core import core_schema

_NOISE = frozenset({"title", "default", "discriminator", "$defs"})
"""What pydantic adds that tells a model nothing, or that strict mode refuses."""
_ALTERNATIVES = {
    "anyOf": "anyOf",
    "oneOf": "anyOf",
    "allOf": "allOf",
    "prefixItems": "prefixItems",
}
_ORDER = ("type", "description", "format", "enum", "properties", "required", "items")


def is_pydantic(annotation: object) -> bool:
    """Whether pydantic describes a type, or a piece of the metadata of one."""
    if hasattr(annotation, "__get_pydantic_core_schema__"):
        return True
    return type(annotation).__module__.partition(".")[0] == "pydantic"


@dataclasses.dataclass(frozen=True, slots=True)
class PydanticShape:
    """A type that pydantic reads, after what it must not guess was checked."""

    shown: Schema
    checked: Schema
    read_json: Callable[[str], object]
    kinds: frozenset[str] = EVERY_KIND

    def schema(self) -> Schema:
        return dict(self.shown)

    def read(self, value: Json, at: str) -> object:
        check_value(self.checked, value, at)
        try:
            return self.read_json(json_source(value))
        except ValueError as error:
            raise _refusal(error, at) from None


def pydantic_shape(
    annotation: object, *, strict: bool, where: str, exact: bool = False
) -> PydanticShape:
    """The shape of a type that pydantic describes.

    Raises:
        ConfigError: It refers to itself, or pydantic has no JSON schema for it.
    """
    import pydantic

    try:
        adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(cast("Any", annotation))
        whole = cast("Schema", _described(adapter, exact=exact))
    except (pydantic.errors.PydanticUserError, TypeError) as error:
        raise ConfigError(f"{where}: pydantic cannot describe {annotation!r}: {error}") from error
    definitions = cast("Mapping[str, object]", whole.get("$defs", {}))
    checked = _Inliner(definitions, where, closed=True, strict=strict).inline(whole)
    shown = _Inliner(definitions, where, closed=strict, strict=strict).inline(whole)
    return PydanticShape(checked if exact else shown, checked, adapter.validate_json)


def _described(adapter: pydantic.TypeAdapter[Any], *, exact: bool) -> dict[str, Any]:
    """What pydantic says of a type; if exact, with a format of its own for times without a zone."""
    from pydantic.json_schema import GenerateJsonSchema

    if not exact:
        return adapter.json_schema()

    class Exact(GenerateJsonSchema):
        def datetime_schema(self, schema: core_schema.DatetimeSchema) -> dict[str, Any]:
            local = schema.get("tz_constraint") == "naive"
            said = super().datetime_schema(schema)
            return {**said, "format": LOCAL_FORMAT} if local else said

    return adapter.json_schema(schema_generator=Exact)


@dataclasses.dataclass(frozen=True, slots=True)
class _Inliner:
    """Rewrites a schema without references and noise."""

    definitions: Mapping[str, object]
    where: str
    closed: bool
    """Objects with declared members have no others."""
    strict: bool
    """Objects require every member, and maps are refused."""

    def inline(self, schema: Schema, within: tuple[str, ...] = ()) -> Schema:
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return self._inline_reference(reference.rpartition("/")[2], schema, within)
        out: Schema = {}
        for key, rule in schema.items():
            if key in _ALTERNATIVES:
                out[_ALTERNATIVES[key]] = [
                    self._inner(o, within) for o in cast("list[object]", rule)
                ]
            elif key in {"items", "additionalProperties"}:
                out[key] = self._inner(rule, within)
            elif key == "properties":
                members = cast("Mapping[str, object]", rule)
                out[key] = {name: self._inner(m, within) for name, m in members.items()}
            elif key not in _NOISE:
                out[key] = rule
        if out.get("type") == "object":
            self._finish_object(out)
        return {key: out[key] for key in sorted(out, key=_rank)}

    def _inner(self, rule: object, within: tuple[str, ...]) -> object:
        return self.inline(cast("Schema", rule), within) if isinstance(rule, dict) else rule

    def _inline_reference(self, name: str, schema: Schema, within: tuple[str, ...]) -> Schema:
        if name in within:
            raise ConfigError(f"{self.where}: the type {name!r} refers to itself")
        beside = {key: rule for key, rule in schema.items() if key != "$ref"}
        return self.inline({**cast("Schema", self.definitions[name]), **beside}, (*within, name))

    def _finish_object(self, schema: Schema) -> None:
        is_map = schema.get("additionalProperties", False) is not False
        if is_map and self.strict:
            raise ConfigError(f"{self.where}: {NO_MAPS}")
        if is_map and "properties" not in schema:
            return
        properties = cast("Mapping[str, object]", schema.setdefault("properties", {}))
        schema.setdefault("required", [])
        if self.strict:
            schema["required"] = list(properties)
        if self.closed:
            schema.setdefault("additionalProperties", False)


def _rank(key: str) -> int:
    return _ORDER.index(key) if key in _ORDER else len(_ORDER)


def _refusal(error: ValueError, at: str) -> InvalidArguments:
    """The first of the errors that pydantic lists."""
    listed: Callable[[], Sequence[Mapping[str, Any]]] = getattr(error, "errors", tuple)
    for first in listed()[:1]:
        for step in first["loc"]:
            at = element(at, step) if isinstance(step, int) else member(at, str(step))
        return InvalidArguments(" ".join(str(first["msg"]).split()), path=at)
    return InvalidArguments(" ".join(str(error).split()), path=at)
