"""What an assistant said, thought and called, as one message of Chat Completions.

A *run* is the items of one such message, in the order of the transcript: thoughts, texts, calls.
Thoughts go back to the service that made them, in the way it takes them; to others only those go
that nobody marked as their own and nobody encrypted.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import cast

import msgspec

from perdure.models.chat.parts import ChatPart, flat, note_unknown, text_part
from perdure.models.dialects import Dialect, Thoughts
from perdure.models.mapping.kept import kept_object, kept_text, without_marks
from perdure.models.mapping.losses import Lost
from perdure.models.mapping.names import legal_id, legal_name
from perdure.models.mapping.texts import json_text, object_text
from perdure.wire import (
    Annotation,
    FunctionCall,
    Message,
    OutputText,
    Part,
    Reasoning,
    Refusal,
    TextPart,
    UrlCitation,
    encode,
    text_of,
)
from perdure.wire.foreign import NO_SIGNATURE, nested_citation, thought_detail
from perdure.wire.jsontext import members_of, text_of_raw
from perdure.wire.marks import MAKER, SIGNATURE, mark_of

BESIDE = "message"
"""The member of a service's mark that holds what its message has beside what became items."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NO_WAY_BACK = "the service takes no thoughts back"

Placed = tuple[int, Reasoning | Message | FunctionCall]
"""An item of a run, with its place in the input."""


class AssistantMessage:
    """One message on its way.

    Args:
        dialect: Who reads it.
        thoughts: How thoughts go back to its model.
        lost: Where losses go.
    """

    def __init__(self, dialect: Dialect, thoughts: Thoughts, lost: Lost) -> None:
        self._dialect = dialect
        self._mark = mark_of(dialect.name)
        self._thoughts: Thoughts = thoughts
        self._lost = lost
        self._content: list[ChatPart] = []
        self._inline = ""  # thoughts, in the text before which they stand
        self._spoken = False  # a message has come
        self._named: dict[str, list[str]] = {}  # thoughts, by the member they go to
        self._details: list[dict[str, object]] = []
        self._refusals: list[str] = []
        self._annotations: list[object] = []
        self._extra: dict[str, object] = {}
        self.calls: list[dict[str, object]] = []

    def add(self, placed: Sequence[Placed]) -> None:
        """Take the items of the run, in order."""
        for index, item in placed:
            self._lost.at = f"input[{index}]"
            match item:
                case Reasoning():
                    self._think(item)
                case Message():
                    self._say(item)
                case FunctionCall():
                    self._call(item)

    def value(self) -> dict[str, object] | None:
        """The message; None if there is nothing in it."""
        content = self._texts()
        silent = None if self.calls or self._refusals else ""
        message: dict[str, object] = {"role": "assistant", "content": content or silent}
        message |= {name: "\n\n".join(texts) for name, texts in self._named.items()}
        for name, found in (
            ("reasoning_details", self._details),
            ("refusal", "".join(self._refusals)),
            ("annotations", self._annotations),
            ("tool_calls", self.calls),
        ):
            if found:
                message[name] = found
        message |= self._extra
        if not content and len(message) == 2:
            return None
        if self.calls:
            self._complete(message)
        return message

    def _complete(self, message: dict[str, object]) -> None:
        """What a message with calls must have, though nobody gave it."""
        if self._dialect.thoughts_always:
            message.setdefault(self._thoughts, "")
        if self._dialect.signatures and "extra_content" not in message:
            self.calls[0].setdefault("extra_content", _google(NO_SIGNATURE))

    def _texts(self) -> str | list[ChatPart] | None:
        if self._inline:
            self._content.append(text_part(self._inline.removesuffix("\n\n")))
        texts = [str(part["text"]) for part in self._content if part.keys() == {"type", "text"}]
        if self._content and len(texts) < len(self._content):
            return flat(self._content)
        return "\n\n".join(texts) or None

    # --- thoughts ------------------------------------------------------------------

    def _think(self, item: Reasoning) -> None:
        maker = kept_text(item, MAKER)
        if maker is not None and maker != self._dialect.name:
            self._lost.add(item.type, f"made by {maker!r}, and for it alone")
            return
        if maker is None and item.encrypted_content:
            self._lost.add(item.type, "encrypted, and nobody says for whom")
            return
        own = kept_object(item, self._mark)
        self._take_extra(own)
        if "type" in own:
            self._details.append(_detail(item, own))
            return
        text = text_of(item.content or ()) or text_of(item.summary)
        if not text:
            return
        if item.content and text_of(item.content) and text_of(item.summary):
            self._lost.add("summary", "the thought itself is sent", ".summary")
        note_unknown(item, self._lost, self._mark)
        self._carry(text, text_of_raw(own.get("inline")), text_of_raw(own.get("field")))

    def _carry(self, text: str, inline: str | None, field: str | None) -> None:
        if inline is not None:
            self._inline += f"{inline}{text}</think>"
            return
        match self._thoughts:
            case "":
                self._lost.add("reasoning", _NO_WAY_BACK)
            case "think":
                self._inline += f"<think>\n{text}\n</think>\n\n"
            case "parts":
                self._add_part(text)
            case "details":
                self._named.setdefault("reasoning", []).append(text)
            case name:
                self._named.setdefault(field or name, []).append(text)

    def _add_part(self, thought: str) -> None:
        """A thought among the parts of the content; neighbours are one part."""
        if not self._content or self._content[-1]["type"] != "thinking":
            self._content.append({"type": "thinking", "thinking": []})
        cast("list[ChatPart]", self._content[-1]["thinking"]).append(text_part(thought))

    # --- messages --------------------------------------------------------------------

    def _say(self, item: Message) -> None:
        content = item.content
        parts: Sequence[Part] = (OutputText(text=content),) if isinstance(content, str) else content
        if item.phase:
            self._lost.add("phase", "the service has no place for it", ".phase")
        note_unknown(item, self._lost, self._mark)
        self._take_extra(kept_object(item, self._mark))
        base, text = self._lost.at, self._inline
        for index, part in enumerate(parts):
            self._lost.at = f"{base}.content[{index}]"
            text += self._part(part)
        self._lost.at, self._inline = base, ""
        if text:
            self._content.append(text_part(text))

    def _part(self, part: Part) -> str:
        """The text of a part; what is not text goes where it belongs."""
        if isinstance(part, Refusal):
            if not self._dialect.refusals:
                self._lost.add(part.type, "the service takes none; sent as text")
                return part.refusal
            self._refusals.append(part.refusal)
            return ""
        if not isinstance(part, TextPart):
            self._lost.add(part.type, "an assistant's message holds text alone")
            return ""
        if isinstance(part, OutputText):
            self._beside(part)
        note_unknown(part, self._lost)
        return part.text

    def _beside(self, part: OutputText) -> None:
        """What hangs on a text."""
        for index, annotation in enumerate(part.annotations or ()):
            if self._dialect.annotations and annotation.type in _RETURNED:
                at = f".annotations[{index}]"
                self._annotations.append(_annotation(annotation, self._lost, at))
            else:
                reason = "the service takes none back"
                self._lost.add(annotation.type, reason, f".annotations[{index}]")
        if part.logprobs:
            self._lost.add("logprobs", "the service takes none back", ".logprobs")

    def _take_extra(self, own: dict[str, msgspec.Raw]) -> None:
        """What the message has beside what became items, as far as the service wants it back."""
        if BESIDE not in own:
            return
        for name, member in members_of(own.pop(BESIDE)).items():
            if name in self._dialect.returned:
                self._extra[name] = member
            else:
                self._lost.add(name, "the service does not take it back", f".{self._mark}.{name}")

    # --- calls ---------------------------------------------------------------------

    def _call(self, item: FunctionCall) -> None:
        own_signature = self._dialect.signatures
        note_unknown(item, self._lost, self._mark, *([SIGNATURE] if own_signature else []))
        self._take_extra(kept_object(item, self._mark))
        function = {
            "name": legal_name(item.name, _NAME, self._lost),
            "arguments": self._arguments(item),
        }
        call_id = call_id_for(self._dialect, item.call_id)
        call: dict[str, object] = {"id": call_id, "type": "function", "function": function}
        if own_signature and (signature := kept_text(item, SIGNATURE)) is not None:
            call["extra_content"] = _google(signature)
        self.calls.append(call)

    def _arguments(self, item: FunctionCall) -> str:
        raw = object_text(item.arguments)
        if raw is not None:
            return "{}" if not item.arguments or item.arguments.isspace() else item.arguments
        if self._dialect.any_arguments:
            return item.arguments
        reason = "no JSON object; sent as the text of a member 'arguments'"
        self._lost.add("arguments", reason, ".arguments")
        return json_text({"arguments": item.arguments}).decode()


def _detail(item: Reasoning, own: dict[str, msgspec.Raw]) -> dict[str, object]:
    """A thought as OpenRouter gave it."""
    kind = text_of_raw(own["type"])
    return thought_detail(
        own,
        kind,
        text=text_of(item.content or ()),
        summary=text_of(item.summary),
        sealed=item.encrypted_content or "",
    )


_RETURNED = ("url_citation", "file")
"""The annotations that may go back."""


def _google(signature: str) -> dict[str, object]:
    return {"google": {"thought_signature": signature}}


def _annotation(annotation: Annotation, lost: Lost, at: str) -> object:
    """An annotation as Chat Completions writes it."""
    raw = encode(without_marks(annotation, lost, at))
    if not isinstance(annotation, UrlCitation):
        return msgspec.Raw(raw)
    return nested_citation(cast("dict[str, object]", msgspec.json.decode(raw)))


@lru_cache(maxsize=64)
def _pattern(call_ids: str) -> re.Pattern[str]:
    return re.compile(call_ids)


def call_id_for(dialect: Dialect, call_id: str) -> str:
    """A call id that the service takes; always the same for the same."""
    pattern = _pattern(dialect.call_ids)
    legal = legal_id(call_id, pattern)
    if pattern.fullmatch(legal):
        return legal
    return _nine(call_id)


_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _nine(call_id: str) -> str:
    """Nine letters and digits that stand for an id."""
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).digest()
    number = int.from_bytes(digest[:8])
    digits: list[str] = []
    for _ in range(9):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(digits)
