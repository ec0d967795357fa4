"""Tools as a request names them, and how a request chooses among them."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import msgspec

from perdure.wire.values import ABSENT, Absent, Source, Wire


class FunctionTool(Wire, frozen=True, kw_only=True, tag="function"):
    """A function the model may call; `parameters` is a JSON Schema object."""

    type: ClassVar[Literal["function"]] = "function"
    name: str
    description: str | None | Absent = ABSENT
    parameters: dict[str, object] | None | Absent = ABSENT
    strict: bool | None | Absent = ABSENT


class UnknownTool(Wire, frozen=True, kw_only=True, tag="\x7ftool"):
    """A tool of a type nobody registered, as a provider's own web search."""

    type: str = msgspec.field(name="\x7ftype")
    source: Source


ToolDefinition: TypeAlias = FunctionTool | UnknownTool


class FunctionChoice(Wire, frozen=True, kw_only=True, tag="function"):
    """The model must call this function."""

    type: ClassVar[Literal["function"]] = "function"
    name: str


class UnknownToolChoice(Wire, frozen=True, kw_only=True, tag="\x7fchoice"):
    """A choice of a type nobody registered."""

    type: str = msgspec.field(name="\x7ftype")
    source: Source


class AllowedTools(Wire, frozen=True, kw_only=True, tag="allowed_tools"):
    """The model may call these only; `mode` is `auto`, `required` or `none`."""

    type: ClassVar[Literal["allowed_tools"]] = "allowed_tools"
    tools: tuple[FunctionChoice | UnknownToolChoice, ...]
    mode: str | Absent = ABSENT


ToolChoice: TypeAlias = str | FunctionChoice | AllowedTools | UnknownToolChoice
