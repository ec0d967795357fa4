"""A schema that somebody else wrote, and values held to it.

Most of JSON Schema (2020-12) that tools use is checked: types, enumerations, limits, members,
elements, alternatives and local references. What is not known here is not checked: whoever wrote
the schema checks it again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import cast

from perdure.errors import InvalidArguments
from perdure.tools.keywords import check_keywords, unexpected
from perdure.tools.singles import check_format
from perdure.tools.values import (
    Json,
    Number,
    element,
    json_of,
    json_source,
    kind_of,
    member,
    quoted,
)

_MOST_REFERENCES = 64
"""In a row, without coming to a value; more is a circle."""


def check_value(schema: object, value: Json, at: str = "", *, formats: bool = False) -> None:
    """Hold a value to a schema.

    Args:
        schema: The schema.
        value: The value.
        at: Where it stands, for the path.
        formats: Whether texts are held to the formats that are known here. Elsewhere a format is a
            remark, as JSON Schema has it.

    Raises:
        InvalidArguments: It does not fit; the path says where.
    """
    _Check(schema, formats).check(schema, value, at)


@dataclasses.dataclass(frozen=True, slots=True)
class _Check:
    root: object
    formats: bool = False

    def check(self, schema: object, value: Json, at: str) -> None:
        if schema is False:
            raise InvalidArguments("unexpected", path=at)
        if not isinstance(schema, dict):
            return
        rules = self._resolve(cast("dict[str, object]", schema))
        _check_type(rules, value, at)
        _check_enum(rules, value, at)
        check_keywords(rules, value, at)
        if self.formats and isinstance(value, str):
            check_format(rules, value, at)
        if isinstance(value, dict):
            self._check_members(rules, value, at)
        elif isinstance(value, list):
            self._check_elements(rules, value, at)
        self._check_alternatives(rules, value, at)

    def _resolve(self, schema: dict[str, object]) -> dict[str, object]:
        for _ in range(_MOST_REFERENCES):
            reference = schema.get("$ref")
            target = self._target(reference) if isinstance(reference, str) else None
            if target is None:
                return schema
            beside = {key: rule for key, rule in schema.items() if key != "$ref"}
            schema = {**target, **beside}
        return {}

    def _target(self, reference: str) -> dict[str, object] | None:
        if not reference.startswith("#"):
            return None
        target: object = self.root
        for step in reference.lstrip("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, dict):
                return None
            target = cast("dict[str, object]", target).get(name)
        return cast("dict[str, object]", target) if isinstance(target, dict) else None

    def _check_members(self, rules: Mapping[str, object], value: dict[str, Json], at: str) -> None:
        properties = _mapping(rules.get("properties"))
        rest = rules.get("additionalProperties", True)
        open_ended = "patternProperties" in rules
        names = rules.get("propertyNames", True)
        for name in sorted(value.keys() - properties.keys()):
            self.check(names, name, member(at, name))
            if rest is False and not open_ended:
                raise InvalidArguments(unexpected(name, tuple(properties)), path=member(at, name))
            if not open_ended:
                self.check(rest, value[name], member(at, name))
        for name in (*properties, *_extra_required(rules, properties)):
            if name in value:
                self.check(properties.get(name, True), value[name], member(at, name))
            elif name in _names(rules.get("required")):
                raise InvalidArguments(_missing(name, value), path=member(at, name))

    def _check_elements(self, rules: Mapping[str, object], value: list[Json], at: str) -> None:
        first = rules.get("prefixItems")
        prefix = cast("Sequence[object]", first) if isinstance(first, list) else ()
        for index, item in enumerate(value):
            schema = prefix[index] if index < len(prefix) else rules.get("items", True)
            self.check(schema, item, element(at, index))

    def _check_alternatives(self, rules: Mapping[str, object], value: Json, at: str) -> None:
        for schema in _list(rules.get("allOf")):
            self.check(schema, value, at)
        for keyword in ("anyOf", "oneOf"):
            options = _list(rules.get(keyword))
            if options:
                self._check_any(options, value, at)

    def _check_any(self, options: Sequence[object], value: Json, at: str) -> None:
        errors: list[InvalidArguments] = []
        for option in options:
            try:
                return self.check(option, value, at)
            except InvalidArguments as error:
                errors.append(error)
        meant = [
            error for option, error in zip(options, errors, strict=True) if _is_for(option, value)
        ]
        if len(meant) == 1:
            raise meant[0]
        # Alternatives that fail deeper inside are those that were meant.
        inner = [error for error in errors if error.path != at]
        if len(inner) == 1:
            raise inner[0]
        if len(errors) == 1:
            raise errors[0]
        raise InvalidArguments(
            f"the {kind_of(value)} fits none of the {len(options)} allowed shapes", path=at
        )


def _is_for(option: object, value: Json) -> bool:
    """Whether an alternative names the kind of a value."""
    stated = _mapping(option).get("type")
    types = [stated] if isinstance(stated, str) else _list(stated)
    kind = kind_of(value)
    return kind in types or (kind == "integer" and "number" in types)


def _missing(name: str, given: Mapping[str, Json]) -> str:
    for other in sorted(given):
        if other.casefold() == name.casefold():
            return f"missing; {quoted(other)} is another name, case matters"
    return "missing"


def _check_type(rules: Mapping[str, object], value: Json, at: str) -> None:
    stated = rules.get("type")
    types = [stated] if isinstance(stated, str) else _list(stated)
    kind = kind_of(value)
    if types and kind not in types and not (kind == "integer" and "number" in types):
        expected = " or ".join(str(name) for name in types)
        raise InvalidArguments(f"expected {expected}, got {kind}", path=at)


def _check_enum(rules: Mapping[str, object], value: Json, at: str) -> None:
    allowed = _list(rules.get("enum")) if "enum" in rules else None
    if "const" in rules:
        allowed = [rules["const"]]
    if allowed is not None and not any(_same(json_of(one), value) for one in allowed):
        shown = [json_source(json_of(one)) for one in allowed[:20]]
        more = f" and {len(allowed) - 20} more" if len(allowed) > 20 else ""
        raise InvalidArguments(f"must be one of {', '.join(shown)}{more}", path=at)


def _same(left: Json, right: Json) -> bool:
    """Equality as JSON Schema has it: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(left, Number) and isinstance(right, Number):
        return left.exact == right.exact
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[name], right[name]) for name in left)
    return type(left) is type(right) and left == right


def _extra_required(rules: Mapping[str, object], properties: Mapping[str, object]) -> list[str]:
    return [name for name in _names(rules.get("required")) if name not in properties]


def _names(value: object) -> list[str]:
    return [name for name in _list(value) if isinstance(name, str)]


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}
