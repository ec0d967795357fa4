"""Answers of the Messages API, whole or in a stream, as events.

A whole message goes the way of a stream whose blocks come in one piece each, so both give the
same. A text block is a part of a message, a thought an item, a tool call a call; a block of any
other type is an item of the type `anthropic:TYPE` with the block in its member `block`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Annotated, NamedTuple, Self

import msgspec
from msgspec import Meta, Raw

from perdure.clock import Clock, Ids
from perdure.errors import DecodeError
from perdure.loop.model import ModelRequest
from perdure.models.anthropic_request import OWN, PROVIDER
from perdure.models.anthropic_settings import max_tokens
from perdure.models.content import json_text, members_of, text_of_raw
from perdure.models.failures import failure
from perdure.models.writer import MAKER, REDACTED, Writer
from perdure.wire import (
    ABSENT,
    Annotation,
    ErrorPayload,
    Frame,
    InputTokensDetails,
    Kept,
    OutputTokensDetails,
    Source,
    StreamEvent,
    SurrogateJoiner,
    UnknownAnnotation,
    UnknownItem,
    UrlCitation,
    Usage,
)
from perdure.wire.jsontext import loads

# --- what the API sends ------------------------------------------------------------


class _TextDelta(msgspec.Struct, tag_field="type", tag="text_delta", gc=False):
    text: str


class _InputDelta(msgspec.Struct, tag_field="type", tag="input_json_delta", gc=False):
    partial_json: str


class _ThinkingDelta(msgspec.Struct, tag_field="type", tag="thinking_delta", gc=False):
    thinking: str


class _SignatureDelta(msgspec.Struct, tag_field="type", tag="signature_delta", gc=False):
    signature: str


class _CitationsDelta(msgspec.Struct, tag_field="type", tag="citations_delta"):
    citation: Raw


_Delta = _TextDelta | _InputDelta | _ThinkingDelta | _SignatureDelta | _CitationsDelta


class _BlockDelta(msgspec.Struct, tag_field="type", tag="content_block_delta"):
    index: int
    delta: _Delta


class _BlockStart(msgspec.Struct, tag_field="type", tag="content_block_start"):
    index: int
    content_block: Raw


class _BlockStop(msgspec.Struct, tag_field="type", tag="content_block_stop"):
    index: int


class _MessageStart(msgspec.Struct, tag_field="type", tag="message_start"):
    message: Raw


class _MessageDelta(msgspec.Struct, tag_field="type", tag="message_delta"):
    delta: Raw
    usage: Raw = Raw(b"{}")


class _MessageStop(msgspec.Struct, tag_field="type", tag="message_stop"):
    pass


class _Ping(msgspec.Struct, tag_field="type", tag="ping"):
    pass


class _Failed(msgspec.Struct):
    type: str = "api_error"
    message: str = "the server gave no reason"
    details: dict[str, object] | None = None


class _Error(msgspec.Struct, tag_field="type", tag="error"):
    error: _Failed


class _Foreign(NamedTuple):
    """A delta of a type that nobody here knows."""

    block: int
    members: dict[str, Raw]


_Event = (
    _BlockDelta
    | _BlockStart
    | _BlockStop
    | _MessageStart
    | _MessageDelta
    | _MessageStop
    | _Ping
    | _Error
)

_decode = msgspec.json.Decoder(_Event).decode


class _AnyEvent(msgspec.Struct):
    type: str
    index: int = -1
    delta: dict[str, Raw] = {}


def _event(data: bytes) -> _Event | _Foreign | None:
    """The event of a frame; None for one that says nothing to us.

    The API adds events and deltas as it grows, and asks to pass over those that are not known.
    """
    try:
        return _decode(data)
    except msgspec.DecodeError as error:
        reason = str(error)
    try:
        known = msgspec.json.decode(data, type=_AnyEvent)
    except msgspec.DecodeError:
        return _with_surrogates(data)
    if known.type == "content_block_delta" and known.index >= 0 and known.delta:
        if text_of_raw(known.delta.get("type")) not in _DELTAS:
            return _Foreign(known.index, known.delta)
    elif known.type not in _EVENTS:
        return None
    raise DecodeError(f"malformed event: {reason}", source=data)


def _with_surrogates(data: bytes) -> _BlockDelta:
    """A delta with half a character in it, whose other half comes in the next."""
    value = loads(data)
    try:
        return msgspec.convert(value, _BlockDelta)
    except (msgspec.ValidationError, TypeError) as error:
        raise DecodeError(f"malformed event: {error}", source=data) from error


_EVENTS = frozenset(
    (
        "content_block_delta",
        "content_block_start",
        "content_block_stop",
        "message_start",
        "message_delta",
        "message_stop",
        "error",
    )
)
_DELTAS = frozenset(
    ("text_delta", "input_json_delta", "thinking_delta", "signature_delta", "citations_delta")
)

Count = Annotated[int, Meta(ge=0)]


class _CacheCreation(msgspec.Struct):
    ephemeral_1h_input_tokens: Count | None = None


class _OutputDetails(msgspec.Struct):
    thinking_tokens: Count | None = None


class _Usage(msgspec.Struct):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_creation: _CacheCreation | None = None
    output_tokens_details: _OutputDetails | None = None
    service_tier: str | None = None


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
            self.fields["input"] = Raw("".join(self.pieces).encode("utf-8", "replace"))
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
        event = _event(frame.data)
        if type(event) is _BlockDelta:
            self._add(self._at(event.index, frame.data), event.delta, events)
        elif event is not None:
            self._whole(event, events, frame.data)

    def body(self, body: bytes, events: list[StreamEvent]) -> None:
        try:
            members = msgspec.json.decode(body, type=dict[str, Raw])
            if text_of_raw(members.get("type")) == "error":
                raise failure(_payload(msgspec.json.decode(members["error"], type=_Failed)))
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

    def _whole(self, event: _Event | _Foreign, events: list[StreamEvent], data: bytes) -> None:
        try:
            match event:
                case _MessageStart():
                    _need(not self._begun, "a second message_start", data)
                    self._start(members_of(event.message), events)
                case _BlockStart():
                    _need(self._block is None, "a block inside another", data)
                    _need(event.index == self._blocks, "a block out of order", data)
                    self._open(event.index, event.content_block, events)
                case _BlockStop():
                    self._close(self._at(event.index, data), events)
                case _Foreign():
                    self._at(event.block, data).extend(event.members)
                case _MessageDelta():
                    _need(self._block is None, "a block is open", data)
                    self._tell(members_of(event.delta), members_of(event.usage))
                    self._stopped = True
                case _MessageStop():
                    self._finish(events, data)
                case _Error():
                    self.finished = True
                    events += self._writer.fail(_payload(event.error), usage=self._known_usage())
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
                self._add(block, _TextDelta(block.text("text")), events)
                block.citations = _list(block.fields.get("citations"))
            case "thinking":
                events += writer.reasoning()
                self._add(block, _ThinkingDelta(block.text("thinking")), events)
                block.signature = block.text("signature")
            case "redacted_thinking":
                events += writer.reasoning()
                events += writer.encrypted(block.text("data"))
            case "tool_use":
                events += writer.call(block.text("name"), block.text("id"))
            case _:
                events += writer.close()
        return block

    def _add(self, block: _Block, delta: _Delta, events: list[StreamEvent]) -> None:
        if type(delta) is _TextDelta and block.type == "text":
            text = block.joiner.feed(delta.text)
            block.size += len(text)
            events += self._writer.text(text)
        elif type(delta) is _InputDelta:
            block.pieces.append(delta.partial_json)
            if block.type == "tool_use":
                events += self._writer.arguments(delta.partial_json)
        elif type(delta) is _ThinkingDelta and block.type == "thinking":
            if delta.thinking:
                events += self._writer.reasoning_summary(block.joiner.feed(delta.thinking))
        elif type(delta) is _SignatureDelta:
            block.signature += delta.signature
        elif type(delta) is _CitationsDelta:
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
        self.finished = True
        writer, usage = self._writer, self._known_usage()
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

    def _known_usage(self) -> Usage | None:
        """The tokens as the message counts them: cached ones are beside its input, not in it."""
        told = msgspec.json.decode(msgspec.json.encode(self._usage), type=_Usage)
        if told.input_tokens is None or told.output_tokens is None:
            return None
        cached, created = told.cache_read_input_tokens or 0, told.cache_creation_input_tokens or 0
        hour = told.cache_creation.ephemeral_1h_input_tokens if told.cache_creation else None
        thought = told.output_tokens_details.thinking_tokens if told.output_tokens_details else None
        read = told.input_tokens + cached + created
        return Usage(
            input_tokens=read,
            output_tokens=told.output_tokens,
            total_tokens=read + told.output_tokens,
            input_tokens_details=InputTokensDetails(
                cached_tokens=cached,
                cache_creation_tokens=created or ABSENT,
                cache_creation_1h_tokens=hour or ABSENT,
            ),
            output_tokens_details=OutputTokensDetails(
                reasoning_tokens=ABSENT if thought is None else thought
            ),
        )


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


def _payload(error: _Failed) -> ErrorPayload:
    code = (error.details or {}).get("error_code")
    return ErrorPayload(
        type=error.type, code=code if isinstance(code, str) else None, message=error.message
    )


def _need(holds: bool, what: str, data: bytes) -> None:  # noqa: FBT001 - reads as an assertion
    if not holds:
        raise DecodeError(what, source=data)
