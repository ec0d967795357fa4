"""Items and parts that are still being streamed.

Wire values are frozen, so what deltas add is gathered here in lists and joined when somebody
asks: a delta costs one append, whatever the length of the text before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias, TypeVar

from msgspec.structs import replace

from perdure.wire.items import FunctionCall, Item, Message, Reasoning
from perdure.wire.parts import Annotation, LogProb, OutputText, Part, Refusal, TextPart
from perdure.wire.surrogates import joined_text

Place: TypeAlias = Literal["content", "summary"]
"""Which list of an item a part stands in."""

T = TypeVar("T")


class PartialPart:
    """A part and what deltas have added to it."""

    __slots__ = ("_annotations", "_chunks", "_logprobs", "_part")

    def __init__(self, part: Part) -> None:
        self._part = part
        self._chunks: list[str] = []
        self._annotations: dict[int, Annotation] | None = None
        self._logprobs: list[LogProb] = []

    def append(self, delta: str) -> None:
        """Add to the text, or to the refusal."""
        self._chunks.append(delta)

    def set_text(self, text: str) -> None:
        """Put a text in the place of what has come."""
        self._chunks.clear()
        self._part = _with_text(self._part, text)

    def add_logprobs(self, logprobs: Iterable[LogProb]) -> None:
        """Add tokens to those that have come."""
        self._logprobs.extend(logprobs)

    def set_logprobs(self, logprobs: tuple[LogProb, ...]) -> None:
        """Put tokens in the place of those that have come."""
        self._logprobs.clear()
        if isinstance(self._part, OutputText):
            self._part = replace(self._part, logprobs=logprobs)

    def annotate(self, index: int, annotation: Annotation) -> None:
        """Put an annotation at its index; those that never come leave no gap."""
        if self._annotations is None:
            there = self._part.annotations if isinstance(self._part, OutputText) else ()
            self._annotations = dict(enumerate(there or ()))
        self._annotations[index] = annotation

    def value(self) -> Part:
        """The part as far as it has come."""
        part = self._part
        if self._chunks:
            part = _with_text(part, _join((_text_of(part), *self._chunks)))
            self._chunks.clear()
        if isinstance(part, OutputText) and self._logprobs:
            part = replace(part, logprobs=(*(part.logprobs or ()), *self._logprobs))
            self._logprobs.clear()
        if isinstance(part, OutputText) and self._annotations is not None:
            part = replace(part, annotations=_in_order(self._annotations))
        self._part = part
        return part

    def takes(self, kind: type[Part]) -> bool:
        """Whether deltas of the kind that fills `kind` belong to this part."""
        return isinstance(self._part, Refusal if kind is Refusal else TextPart)


class PartialItem:
    """An item and what deltas have added to it."""

    __slots__ = ("_arguments", "_item", "_parts")

    def __init__(self, item: Item) -> None:
        self._item = item
        self._parts: dict[Place, dict[int, PartialPart]] = {}
        self._arguments: list[str] = []

    @property
    def id(self) -> str | None:
        """The item's id, if it has one."""
        return id_of(self._item)

    def holds(self, kind: type[Item]) -> bool:
        """Whether the item is of a type."""
        return isinstance(self._item, kind)

    def parts(self, place: Place) -> dict[int, PartialPart]:
        """The parts in a place, by index, to be changed in place."""
        found = self._parts.get(place)
        if found is None:
            found = {i: PartialPart(p) for i, p in enumerate(_parts_of(self._item, place))}
            self._parts[place] = found
        return found

    def append_arguments(self, delta: str) -> None:
        """Add to the arguments of a call."""
        self._arguments.append(delta)

    def set_arguments(self, arguments: str) -> None:
        """Put arguments in the place of what has come."""
        self._arguments.clear()
        if isinstance(self._item, FunctionCall):
            self._item = replace(self._item, arguments=arguments)

    def value(self) -> Item:
        """The item as far as it has come; the same object until something comes."""
        item = self._item
        if isinstance(item, FunctionCall) and self._arguments:
            item = replace(item, arguments=_join((item.arguments, *self._arguments)))
            self._arguments.clear()
        for place in self._parts:
            item = self._with_parts(item, place)
        self._item = item
        return item

    def _with_parts(self, item: Item, place: Place) -> Item:
        values = tuple([part.value() for part in _in_order(self._parts[place])])
        if [*map(id, values)] == [*map(id, _parts_of(item, place))]:
            return item  # a place that was never filled stays absent, too
        if place == "summary":
            return replace(item, summary=values) if isinstance(item, Reasoning) else item
        return replace(item, content=values) if isinstance(item, (Message, Reasoning)) else item


def id_of(item: Item) -> str | None:
    """The id of an item, if it has one; a registered type may have none."""
    return getattr(item, "id", None) or None


def _in_order(by_index: Mapping[int, T]) -> tuple[T, ...]:
    return tuple(by_index[index] for index in sorted(by_index))


def _parts_of(item: Item, place: Place) -> tuple[Part, ...]:
    if place == "summary":
        return item.summary if isinstance(item, Reasoning) else ()
    content = item.content if isinstance(item, (Message, Reasoning)) else ()
    if isinstance(content, str):
        return (OutputText(text=content, annotations=()),) if content else ()
    return content or ()


def _text_of(part: Part) -> str:
    if isinstance(part, Refusal):
        return part.refusal
    return part.text if isinstance(part, TextPart) else ""


def _with_text(part: Part, text: str) -> Part:
    if isinstance(part, Refusal):
        return replace(part, refusal=text)
    return replace(part, text=text) if isinstance(part, TextPart) else part


def _join(chunks: Iterable[str]) -> str:
    text = "".join(chunks)
    # The halves of a surrogate pair may come in two deltas.
    return joined_text(text)
