"""Items: what a transcript is a list of."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import msgspec

from perdure.wire.parts import Part, text_of
from perdure.wire.values import ABSENT, Absent, Source, Wire

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class Message(Wire, frozen=True, kw_only=True, tag="message"):
    """What somebody said.

    A message decoded from an object that has a `role` and no `type` stays without one.
    """

    type: ClassVar[Literal["message"]] = "message"
    id: str | None | Absent = ABSENT
    status: str | None | Absent = ABSENT
    role: str
    content: str | tuple[Part, ...]
    phase: str | None | Absent = ABSENT
    """`commentary` or `final_answer`, of an assistant."""

    @property
    def text(self) -> str:
        """The text of its content, without refusals."""
        return text_of(self.content)


class FunctionCall(Wire, frozen=True, kw_only=True, tag="function_call"):
    """The model asks for a function. `id` names the item, `call_id` the call."""

    type: ClassVar[Literal["function_call"]] = "function_call"
    id: str | None | Absent = ABSENT
    call_id: str
    name: str
    arguments: str
    """JSON text, exactly as the model wrote it."""
    status: str | None | Absent = ABSENT


class FunctionCallOutput(Wire, frozen=True, kw_only=True, tag="function_call_output"):
    """What a call gave. Nothing on the wire says that it is an error but its text."""

    type: ClassVar[Literal["function_call_output"]] = "function_call_output"
    id: str | None | Absent = ABSENT
    call_id: str
    output: str | tuple[Part, ...]
    status: str | None | Absent = ABSENT

    @property
    def text(self) -> str:
        """The text of the output."""
        return text_of(self.output)


class Reasoning(Wire, frozen=True, kw_only=True, tag="reasoning"):
    """What the model thought, as far as its provider shows it."""

    type: ClassVar[Literal["reasoning"]] = "reasoning"
    id: str | None | Absent = ABSENT
    summary: tuple[Part, ...]
    content: tuple[Part, ...] | None | Absent = ABSENT
    encrypted_content: str | None | Absent = ABSENT
    status: str | None | Absent = ABSENT


class Compaction(Wire, frozen=True, kw_only=True, tag="compaction"):
    """A folded history that its server expands later."""

    type: ClassVar[Literal["compaction"]] = "compaction"
    id: str | None | Absent = ABSENT
    encrypted_content: str
    created_by: str | None | Absent = ABSENT
    status: str | None | Absent = ABSENT


class ItemReference(Wire, frozen=True, kw_only=True, tag="item_reference"):
    """An item that a server holds. Input only, and never recorded."""

    type: ClassVar[Literal["item_reference"]] = "item_reference"
    id: str


class UnknownItem(Wire, frozen=True, kw_only=True, tag="\x7fitem"):
    """An item of a type nobody registered; it is encoded as its source."""

    type: str = msgspec.field(name="\x7ftype")
    id: str | None | Absent = msgspec.field(default=ABSENT, name="\x7fid")
    status: str | None | Absent = msgspec.field(default=ABSENT, name="\x7fstatus")
    source: Source


Item: TypeAlias = (
    Message
    | FunctionCall
    | FunctionCallOutput
    | Reasoning
    | Compaction
    | ItemReference
    | UnknownItem
)


def is_extension(item: Item) -> bool:
    """Whether an item is of an extension type, `slug:type`."""
    return isinstance(item, UnknownItem) and ":" in item.type
