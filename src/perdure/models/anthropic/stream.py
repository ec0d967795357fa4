"""Answers of the Messages API, whole or in a stream, as events.

A whole message goes the way of a stream whose blocks come in one piece each, so both give the
same. A text block is a part of a message, a thought an item, a tool call a call; a block of any
other type is an item of the type `anthropic:TYPE` with the block in its member `block`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Self

import msgspec
from msgspec import Raw

from perdure.clock import Clock, Ids
from perdure.errors import DecodeError
from perdure.loop.model import ModelRequest
from perdure.models.anthropic.events import (
    BlockDelta,
    BlockStart,
    BlockStop,
    CitationsDelta,
    Delta,
    Error,
    Event,
    Failed,
    Foreign,
    InputDelta,
    MessageDelta,
    MessageStart,
    MessageStop,
    SignatureDelta,
    TextDelta,
    ThinkingDelta,
    event_of,
    usage_of,
)
from perdure.models.anthropic.messages import OWN, PROVIDER
from perdure.models.http.failures import failure
from perdure.models.mapping.claude import max_tokens
from perdure.models.mapping.decoding import ApiDecoder, response_in
from perdure.models.mapping.texts import input_text_of, json_text
from perdure.models.mapping.writer import Writer
from perdure.wire import (
    Annotation,
    ErrorPayload,
    Frame,
    Kept,
    Response,
    Source,
    StreamEvent,
    SurrogateJoiner,
    UnknownAnnotation,
    UnknownItem,
    UrlCitation,
)
from perdure.wire.jsontext import members_of, text_of_raw
from perdure.wire.marks import MAKER, REDACTED

# --- one block ----------------------------------------------------------------------


class _Block:
    """A block that is open."""

    __slots__ = (
        "citations",
        "fields",
        "index",
        "joiner",
        "pieces",
        "raw",
        "signature",
        "size",
        "type",
    )

    def __init__(self, index: int, fields: dict[str, Raw], raw: Raw) -> None:
        self.index = index
        self.fields = fields
        self.raw: Raw | None = raw  # the whole of it, until something is added
        self.type = text_of_raw(fields.get("type")) or ""
        self.citations: list[Raw] = []
        self.pieces: list[str] = []  # of the input
        self.signature = ""
        self.size = 0  # of the text
        self.joiner = SurrogateJoiner()

    def copy(self) -> _Block:
        twin = copy.copy(self)
        twin.fields, twin.citations = dict(self.fields), [*self.citations]
        twin.pieces, twin.joiner = [*self.pieces], copy.copy(self.joiner)
        return twin

    def text(self, name: str) -> str:
        """A member that is a string; empty if it is none."""
        return text_of_raw(self.fields.get(name)) or ""

    def others(self, *names: str) -> dict[str, Raw]:
        """The members that are not named here, without nulls."""
        return {
            name: raw
            for name, raw in self.fields.items()
            if name not in names and bytes(raw) != b"null"
        }

    def extend(self, delta: Mapping[str, Raw]) -> None:
        """Add a delta of a type that nobody here knows: strings grow, the rest is put in place."""
        self.raw = None
        for name, raw in delta.items():
            more = text_of_raw(raw)
            if name != "type" and bytes(raw) != b"null":
                whole = raw if more is None else Raw(json_text(self.text(name) + more))
                self.fields[name] = whole

    def item(self, item_id: str) -> UnknownItem:
        """The block as an item that goes back whole."""
        if any(self.pieces):
            self.raw = None
            self.fields["input"] = input_text_of(self.pieces)
        block = self.raw if self.raw is not None else Raw(json_text(self.fields))
        type_, item_id = f"{PROVIDER}:{self.type}", self.text("id") or item_id
        members = {"type": type_, "id": item_id, "status": "completed", "block": block}
        return UnknownItem(
            type=type_, id=item_id, status="completed", source=Source(json_text(members))
        )


# --- the message ----------------------------------------------------------------------


class MessageAssembler:
    """Makes events of one message.

    Args:
        request: What is answered.
        ids: Where ids come from that the API does not give.
        clock: Where the times come from.
    """

    def __init__(
        self,
        request: ModelRequest | None = None,
        *,
        ids: Ids | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.finished = False
        self._limit = None if request is None else max_tokens(request.settings)
        self._writer = Writer(request, ids=ids, clock=clock)
        self._begun = False
        self._block: _Block | None = None
        self._blocks = 0
        self._usage: dict[str, Raw] = {}
        self._told: dict[str, Raw] = {}  # what the message says of itself
        self._stopped = False

    def copy(self) -> Self:
        twin = copy.copy(self)
        twin._writer = self._writer.copy()
        twin._block = None if self._block is None else self._block.copy()
        twin._usage, twin._told = dict(self._usage), dict(self._told)
        return twin

    def frame(self, frame: Frame, events: list[StreamEvent]) -> None:
        event = event_of(frame.data)
        if type(event) is BlockDelta:
            self._add(self._at(event.index, frame.data), event.delta, events)
        elif event is not None:
            self._whole(event, events, frame.data)

    def body(self, body: bytes, events: list[StreamEvent]) -> None:
        try:
            members = msgspec.json.decode(body, type=dict[str, Raw])
            if text_of_raw(members.get("type")) == "error":
                raise failure(_payload(msgspec.json.decode(members["error"], type=Failed)))
            if "content" not in members:
                raise DecodeError("it has no content", source=body)
            self._start(members, events)
            for block in msgspec.json.decode(members["content"], type=list[Raw]):
                self._close(self._open(self._blocks, block, events), events)
            self._stopped = True
            self._finish(events, body)
        except (msgspec.DecodeError, KeyError) as error:
            raise DecodeError(f"malformed message: {error}", source=body) from error

    # --- the frames of a stream -------------------------------------------------

    def _whole(self, event: Event | Foreign, events: list[StreamEvent], data: bytes) -> None:
        try:
            match event:
                case MessageStart():
                    _need(not self._begun, "a second message_start", data)
                    self._start(members_of(event.message), events)
                case BlockStart():
                    _need(self._block is None, "a block inside another", data)
                    _need(event.index == self._blocks, "a block out of order", data)
                    self._open(event.index, event.content_block, events)
                case BlockStop():
                    self._close(self._at(event.index, data), events)
                case Foreign():
                    self._at(event.block, data).extend(event.members)
                case MessageDelta():
                    _need(self._block is None, "a block is open", data)
                    self._tell(members_of(event.delta), members_of(event.usage))
                    self._stopped = True
                case MessageStop():
                    self._finish(events, data)
                case Error():
                    usage = usage_of(self._usage)
                    self.finished = True
                    events += self._writer.fail(_payload(event.error), usage=usage)
                case _:
                    pass
        except msgspec.DecodeError as error:
            raise DecodeError(f"malformed event: {error}", source=data) from error

    def _start(self, message: dict[str, Raw], events: list[StreamEvent]) -> None:
        self._begun = True
        id_, model = text_of_raw(message.get("id")), text_of_raw(message.get("model"))
        self._writer.name(id_ or "", model or "")
        usage = members_of(message.get("usage", b"{}"))
        told = {name: raw for name, raw in message.items() if name not in _NAMED}
        self._tell(told, usage)
        events += self._writer.start()

    def _tell(self, told: Mapping[str, Raw], usage: Mapping[str, Raw]) -> None:
        """The counts of a later event are those of the whole, not more of them."""
        self._told.update({name: raw for name, raw in told.items() if bytes(raw) != b"null"})
        self._usage.update({name: raw for name, raw in usage.items() if bytes(raw) != b"null"})

    def _at(self, index: int, data: bytes) -> _Block:
        block = self._block
        if block is None or block.index != index:
            raise DecodeError(f"block {index} is not open", source=data)
        return block

    # --- blocks -------------------------------------------------------------------

    def _open(self, index: int, raw: Raw, events: list[StreamEvent]) -> _Block:
        writer = self._writer
        block = self._block = _Block(index, msgspec.json.decode(raw, type=dict[str, Raw]), raw)
        self._blocks += 1
        match block.type:
            case "text":
                self._add(block, TextDelta(block.text("text")), events)
                block.citations = _list(block.fields.get("citations"))
            case "thinking":
                events += writer.reasoning()
                self._add(block, ThinkingDelta(block.text("thinking")), events)
                block.signature = block.text("signature")
            case "redacted_thinking":
                events += writer.reasoning()
                events += writer.encrypted(block.text("data"))
            case "tool_use":
                events += writer.call(block.text("name"), block.text("id"))
            case _:
                events += writer.close()
        return block

    def _add(self, block: _Block, delta: Delta, events: list[StreamEvent]) -> None:
        if type(delta) is TextDelta and block.type == "text":
            text = block.joiner.feed(delta.text)
            block.size += len(text)
            events += self._writer.text(text)
        elif type(delta) is InputDelta:
            block.pieces.append(delta.partial_json)
            if block.type == "tool_use":
                events += self._writer.arguments(delta.partial_json)
        elif type(delta) is ThinkingDelta and block.type == "thinking":
            if delta.thinking:
                events += self._writer.reasoning_summary(block.joiner.feed(delta.thinking))
        elif type(delta) is SignatureDelta:
            block.signature += delta.signature
        elif type(delta) is CitationsDelta:
            block.citations.append(delta.citation)
        else:
            raise DecodeError(f"a {block.type} block takes no such delta: {delta}")

    def _close(self, block: _Block, events: list[StreamEvent]) -> None:
        """End a block. Its item stays open until the next begins, since it may have been cut."""
        writer = self._writer
        self._block = None
        rest = block.joiner.end()
        match block.type:
            case "text":
                events += writer.text(rest)
                for raw in block.citations:
                    events += writer.annotation(_annotation(raw, block.size))
                marks = block.others("type", "text", "citations")
                events += writer.end_part({OWN: marks} if marks else None)
            case "thinking":
                if rest:
                    events += writer.reasoning_summary(rest)
                if block.signature:
                    events += writer.encrypted(block.signature)
                writer.mark({MAKER: PROVIDER})
            case "redacted_thinking":
                writer.mark({MAKER: PROVIDER, REDACTED: True})
            case "tool_use":
                if not any(block.pieces):
                    given = bytes(block.fields.get("input", b"{}")).decode()
                    events += writer.arguments(given if given != "null" else "{}")
                marks = block.others("type", "id", "name", "input")
                if _says_direct(marks):
                    del marks["caller"]
                if marks:
                    writer.mark({OWN: marks})
            case _:
                events += writer.item(block.item(writer.new_id("ext_")))

    # --- the end --------------------------------------------------------------------

    def _finish(self, events: list[StreamEvent], data: bytes) -> None:
        reason = text_of_raw(self._told.get("stop_reason"))
        if not self._stopped or reason is None:
            raise DecodeError("the message ends without a reason to stop", source=data)
        writer, usage = self._writer, usage_of(self._usage)
        self.finished = True
        writer.mark_response({OWN: {**self._told, "usage": self._usage}})
        calls = writer.calls
        if reason == "tool_use" and not calls:
            events += writer.fail(_NO_CALLS, usage=usage)
        elif reason not in _COMPLETE:
            events += writer.incomplete(_INCOMPLETE.get(reason, reason), usage=usage)
        elif calls and usage and self._limit and usage.output_tokens >= self._limit:
            # Cut, whatever it says: there was no room for another token.
            events += writer.incomplete("max_output_tokens", usage=usage)
        else:
            events += writer.complete(usage=usage)


_NAMED = frozenset({"type", "id", "role", "model", "content", "usage"})

_COMPLETE = frozenset({"end_turn", "stop_sequence", "tool_use"})

_INCOMPLETE = {
    "max_tokens": "max_output_tokens",
    "model_context_window_exceeded": "max_output_tokens",
    "refusal": "content_filter",
}
"""Other reasons are no ends of an answer either; the response is incomplete for them by name."""

_NO_CALLS = ErrorPayload(
    type="server_error",
    code="no_calls",
    message="the model stopped to have tools called, and called none",
)


def _annotation(raw: Raw, size: int) -> Annotation:
    """A citation, which the API hangs on the whole text of its block."""
    members = members_of(raw)
    url = text_of_raw(members.get("url"))
    if url is not None:
        return UrlCitation(
            url=url,
            title=text_of_raw(members.get("title")) or "",
            start_index=0,
            end_index=size,
            kept=Kept({OWN: bytes(raw)}, frozenset()),
        )
    type_ = f"{PROVIDER}:{text_of_raw(members.get('type')) or 'citation'}"
    return UnknownAnnotation(type=type_, source=Source(json_text({"type": type_, "citation": raw})))


def _says_direct(marks: Mapping[str, Raw]) -> bool:
    """Whether the caller is named as the one that is meant where none is."""
    caller = members_of(marks.get("caller", b"{}"))
    return len(caller) == 1 and text_of_raw(caller.get("type")) == "direct"


def _list(raw: Raw | None) -> list[Raw]:
    return (None if raw is None else msgspec.json.decode(raw, type=list[Raw] | None)) or []


def _payload(error: Failed) -> ErrorPayload:
    code = (error.details or {}).get("error_code")
    return ErrorPayload(
        type=error.type, code=code if isinstance(code, str) else None, message=error.message
    )


def _need(holds: bool, what: str, data: bytes) -> None:  # noqa: FBT001 - reads as an assertion
    if not holds:
        raise DecodeError(what, source=data)


def response(
    body: bytes,
    request: ModelRequest | None = None,
    *,
    ids: Ids | None = None,
    clock: Clock | None = None,
) -> Response:
    """The response in a JSON body. Raises as `response_in`."""
    return response_in(body, MessageAssembler(request, ids=ids, clock=clock))


class StreamDecoder(ApiDecoder):
    """Events from the bytes of an answer, in pieces of any size."""

    __slots__ = ()

    assembler = MessageAssembler
