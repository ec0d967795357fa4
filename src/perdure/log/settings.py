"""Settings: what a request says beside its items, as config entries change it.

A *delta* leaves what it does not name. *Replace* and a compaction's *checkpoint* begin anew.
Instructions may be given in *parts*, of which a delta hands back those that stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from perdure.log.entries import ConfigEntry, Json
from perdure.log.parts import (
    NO_HISTORY,
    History,
    Resolved,
    join_parts,
    remember,
    resolve_omitted,
    resolve_parts,
)
from perdure.wire import Request, canonical_json, decode_request

T = TypeVar("T")


class Settings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings in force. Values are plain JSON and must not be changed."""

    model: str = ""
    instructions: str = ""
    instructions_parts: tuple[Json, ...] = ()
    instructions_omitted: tuple[Json, ...] = ()
    reasoning: Json | None = None
    text: Json | None = None
    tools: tuple[Json, ...] = ()
    extra: Json = msgspec.field(default_factory=dict[str, object])
    omit_reasoning: str = ""
    omit_items: tuple[str, ...] = ()

    def as_json(self) -> Json:
        """The settings as the format shows them: what is empty is left out."""
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        omit = {"reasoning": shown.pop("omit_reasoning"), "items": shown.pop("omit_items")}
        shown["omit"] = {name: value for name, value in omit.items() if value}
        return {name: value for name, value in shown.items() if value}

    def request(self) -> Request:
        """The request without its input, as far as settings say.

        Raises:
            DecodeError: A setting is not what the wire has at its place.
        """
        members: Json = {
            "model": self.model,
            "instructions": self.instructions,
            "reasoning": self.reasoning,
            "text": self.text,
            "tools": self.tools,
        }
        given = {name: value for name, value in members.items() if value}
        return decode_request(canonical_json({**self.extra, **given, "store": False}))


NO_SETTINGS = Settings()


class SettingsFold:
    """The settings of a path, entry by entry."""

    def __init__(self) -> None:
        self.current = NO_SETTINGS
        self.unresolved: tuple[str, ...] = ()
        """What the last config entry names and the path does not have."""
        self._history: History = NO_HISTORY
        self._lists: dict[str, tuple[Json, ...]] = {}  # what each config entry left in force

    def apply(self, entry: ConfigEntry) -> None:
        """Take a delta."""
        before = NO_SETTINGS if entry.replace else self.current
        if entry.replace:
            self._history = NO_HISTORY
        parts, instructions = self._parts(entry, before)
        omitted = self._omitted(entry, before)
        self.unresolved = (*parts.unresolved, *omitted.unresolved)
        omit_reasoning, omit_items = _omit(entry.omit, before)
        self.current = Settings(
            model=_given(entry.model, before.model),
            instructions=instructions,
            instructions_parts=parts.elements,
            instructions_omitted=omitted.elements,
            reasoning=_given(entry.reasoning, before.reasoning),
            text=_given(entry.text, before.text),
            tools=_tools(before.tools, entry.tools_removed, entry.tools_added),
            extra=_extra(before.extra, entry.extra),
            omit_reasoning=omit_reasoning,
            omit_items=omit_items,
        )
        self._lists[entry.id] = omitted.elements

    def restart(self, checkpoint: Mapping[str, object], entry_id: str) -> None:
        """Take a compaction's checkpoint.

        Raises:
            ValidationError: It is no checkpoint (msgspec's error).
        """
        full = msgspec.convert({**checkpoint, "id": entry_id}, _Checkpoint)
        members = {name: value for name, value in checkpoint.items() if name in _DELTA_MEMBERS}
        delta = msgspec.convert(
            {**members, "type": "config", "id": entry_id, "tools_added": full.tools},
            ConfigEntry,
        )
        self.apply(msgspec.structs.replace(delta, replace=True))

    def _parts(self, entry: ConfigEntry, before: Settings) -> tuple[Resolved, str]:
        if entry.instructions_parts is UNSET:
            if entry.instructions is UNSET or entry.instructions == before.instructions:
                return Resolved(before.instructions_parts), before.instructions
            return Resolved(()), entry.instructions
        parts = resolve_parts(entry.instructions_parts, before.instructions_parts, self._history)
        self._history = remember(self._history, parts.elements)
        if parts.unresolved and entry.instructions is not UNSET:
            return parts, entry.instructions
        return parts, join_parts(parts.elements)

    def _omitted(self, entry: ConfigEntry, before: Settings) -> Resolved:
        if entry.instructions_omitted is UNSET:
            return Resolved(before.instructions_omitted)
        return resolve_omitted(entry.instructions_omitted, before.instructions_omitted, self._lists)


class _Checkpoint(Struct, frozen=True, kw_only=True):
    tools: list[Json] = msgspec.field(default_factory=list[Json])


_DELTA_MEMBERS = frozenset(
    {
        "model",
        "instructions",
        "instructions_parts",
        "instructions_omitted",
        "reasoning",
        "text",
        "extra",
        "omit",
    }
)


def _given(new: T | UnsetType, old: T) -> T:
    return old if isinstance(new, UnsetType) else new


def tool_name(tool: Mapping[str, object]) -> str:
    """The name by which a delta removes a tool; empty if it has none."""
    name = tool.get("name")
    return name if isinstance(name, str) else ""


def _tools(
    before: Sequence[Json], removed: Iterable[str], added: Sequence[Json]
) -> tuple[Json, ...]:
    """Removed by name first; what is added is removed by name too, and stands at the end."""
    if not added and not removed:
        return tuple(before)
    gone = {*removed, *(tool_name(tool) for tool in added)} - {""}
    return (*(tool for tool in before if tool_name(tool) not in gone), *added)


def _extra(before: Json, delta: Json) -> Json:
    if not delta:
        return before
    merged = {**before, **delta}
    return {name: value for name, value in merged.items() if value is not None}


def _omit(delta: object, before: Settings) -> tuple[str, tuple[str, ...]]:
    """What is left out of the context: `{}` clears it, anything else adds to it."""
    if not isinstance(delta, dict):
        return before.omit_reasoning, before.omit_items
    if not delta:
        return "", ()
    given = cast("Json", delta)
    reasoning, items = given.get("reasoning"), given.get("items")
    listed = cast("list[object]", items) if isinstance(items, list) else []
    union = dict.fromkeys((*before.omit_items, *(str(one) for one in listed)))
    return (reasoning if isinstance(reasoning, str) else before.omit_reasoning), tuple(union)
