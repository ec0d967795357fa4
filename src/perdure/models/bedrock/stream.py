"""Answers of Converse, whole or in a stream, as events.

A whole answer goes the way of a stream whose blocks come in one piece each, so both give the
same. A text block is a part of a message, a thought an item, a tool call a call; a block of any
other kind is an item of the type `bedrock:KIND` with the block in its member `block`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Literal, Self

import msgspec
from msgspec import UNSET, Raw

from perdure.clock import Clock, Ids
from perdure.errors import DecodeError
from perdure.loop.model import ModelRequest
from perdure.models.bedrock.events import (
    NULL,
    BlockStart,
    BlockStop,
    Delta,
    ThoughtDelta,
    decode_delta,
    exception,
    usage_of,
)
from perdure.models.bedrock.frames import EventStreamParser
from perdure.models.bedrock.messages import OWN, PROVIDER
from perdure.models.bedrock.settings import is_claude
from perdure.models.mapping.decoding import ApiDecoder, response_in
from perdure.models.mapping.kept import as_unknown
from perdure.models.mapping.texts import input_text_of, json_text
from perdure.models.mapping.writer import Writer
from perdure.wire import (
    Annotation,
    ErrorPayload,
    Frame,
    Response,
    Source,
    StreamEvent,
    UnknownAnnotation,
    UnknownItem,
    UrlCitation,
)
from perdure.wire.jsontext import members_of, text_of_raw
from perdure.wire.marks import MAKER, REDACTED

_Kind = Literal["text", "thought", "call", "other"]


class _Block:
    """A block that is open.

    Attributes:
        name: What the API calls its kind.
        members: What it began with.
        pieces: The input of a call that the API makes itself.
        content: What such a call gave, in pieces.
    """

    __slots__ = (
        "citations",
        "content",
        "index",
        "kind",
        "members",
        "name",
        "pieces",
        "signature",
        "text",
    )

    def __init__(self, index: int, kind: _Kind, name: str, members: dict[str, Raw]) -> None:
        self.index = index
        self.kind: _Kind = kind
        self.name = name
        self.members = members
        self.text: list[str] = []
        self.pieces: list[str] = []
        self.content: list[Raw] = []
        self.citations: list[Raw] = []
        self.signature = ""

    def copy(self) -> _Block:
        twin = copy.copy(self)
        twin.text, twin.pieces = [*self.text], [*self.pieces]
        twin.content, twin.citations = [*self.content], [*self.citations]
        return twin


# --- the answer -----------------------------------------------------------------------


class ConverseAssembler:
    """Makes events of one answer.

    Args:
        request: What is answered.
        ids: Where ids come from; the API gives none but those of calls.
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
        model = "" if request is None else request.settings.model or ""
        self._limit = None if request is None else request.settings.max_output_tokens or None
        self._summarizes = not model or is_claude(model)  # the others show what they think itself
        self._writer = Writer(request, ids=ids, clock=clock)
        self._begun = False
        self._block: _Block | None = None
        self._next = 0
        self._told: dict[str, Raw] = {}  # what the answer says of itself

    def copy(self) -> Self:
        twin = copy.copy(self)
        twin._writer = self._writer.copy()
        twin._block = None if self._block is None else self._block.copy()
        twin._told = dict(self._told)
        return twin

    def frame(self, frame: Frame, events: list[StreamEvent]) -> None:
        try:
            if frame.event == "contentBlockDelta":
                told = decode_delta(frame.data)
                block = self._open_for(told.content_block_index, told.delta, frame.data)
                self._add(block, told.delta, events, frame.data)
            else:
                self._whole(frame, events)
        except msgspec.DecodeError as error:
            raise DecodeError(f"malformed {frame.event}: {error}", source=frame.data) from error

    def body(self, body: bytes, events: list[StreamEvent]) -> None:
        try:
            members = msgspec.json.decode(body, type=dict[str, Raw])
            output = members_of(members.pop("output", b"{}"))
            if "message" not in output:
                raise DecodeError("it has no output", source=body)
            events += self._begin()
            content = members_of(output["message"]).get("content", b"[]")
            for raw in msgspec.json.decode(content, type=list[Raw]):
                self._block_of(raw, events)
            self._tell(members)
            self._finish(events, body)
        except msgspec.DecodeError as error:
            raise DecodeError(f"malformed answer: {error}", source=body) from error

    # --- the frames of a stream -------------------------------------------------

    def _whole(self, frame: Frame, events: list[StreamEvent]) -> None:
        data = frame.data
        match frame.event:
            case "messageStart":
                events += self._begin()
            case "contentBlockStart":
                start = msgspec.json.decode(data, type=BlockStart)
                for name, raw in start.start.items():
                    self._open(start.content_block_index, name, members_of(raw), events, data)
            case "contentBlockStop":
                stop = msgspec.json.decode(data, type=BlockStop)
                if self._block is not None and self._block.index == stop.content_block_index:
                    self._close(events)
                elif stop.content_block_index < self._next:
                    raise DecodeError("a block stops that is not open", source=data)
                else:
                    self._next = stop.content_block_index + 1  # it was empty
            case "messageStop":
                if self._block is not None:
                    raise DecodeError("the message stops inside a block", source=data)
                self._tell(members_of(data))
            case "metadata":
                self._tell(members_of(data))
                self._finish(events, data)
            case name if name.startswith("exception "):
                self.finished = True
                events += self._writer.fail(exception(name.removeprefix("exception "), data))
            case _:
                pass

    def _begin(self) -> list[StreamEvent]:
        self._begun = True
        return self._writer.start()

    def _tell(self, members: Mapping[str, Raw]) -> None:
        self._told.update({n: r for n, r in members.items() if n != "p" and bytes(r) != b"null"})

    def _open_for(self, index: int, delta: Delta, data: bytes) -> _Block:
        """The open block; a text or a thought begins with its first delta."""
        block = self._block
        if block is not None:
            if block.index != index:
                raise DecodeError(f"block {index} comes while another is open", source=data)
            return block
        if index < self._next:
            raise DecodeError(f"block {index} is not open", source=data)
        kind: _Kind = "thought" if delta.reasoning_content is not UNSET else "text"
        self._next = index + 1
        self._block = _Block(index, kind, kind, {})
        return self._block

    def _open(
        self, index: int, name: str, members: dict[str, Raw], events: list[StreamEvent], data: bytes
    ) -> None:
        if self._block is not None or index < self._next:
            raise DecodeError(f"block {index} begins out of order", source=data)
        self._next = index + 1
        own = text_of_raw(members.get("type")) not in {None, "tool_use"}
        kind: _Kind = "call" if name == "toolUse" and not own else "other"
        self._block = _Block(index, kind, name, members)
        if kind == "call":
            call = text_of_raw(members.get("name")) or ""
            events += self._writer.call(call, text_of_raw(members.get("toolUseId")))
        else:
            events += self._writer.close()

    def _add(self, block: _Block, delta: Delta, events: list[StreamEvent], data: bytes) -> None:
        if delta.text is not UNSET and block.kind == "text":
            if delta.text:
                block.text.append(delta.text)
                events += self._writer.text(delta.text)
        elif delta.reasoning_content is not UNSET and block.kind == "thought":
            self._add_thought(block, delta.reasoning_content, events)
        elif delta.tool_use is not UNSET and block.kind in {"call", "other"}:
            block.pieces.append(delta.tool_use.input)
            if block.kind == "call":
                events += self._writer.arguments(delta.tool_use.input)
        elif bytes(delta.citation) != b"null" and block.kind == "text":
            block.citations.append(delta.citation)
        elif bytes(delta.tool_result) != b"null" and block.kind == "other":
            block.content += msgspec.json.decode(delta.tool_result, type=list[Raw])
        elif block.kind == "other":
            block.members.update(members_of(members_of(data).get("delta", b"{}")))
        else:
            raise DecodeError(f"a {block.name} block takes no such delta", source=data)

    def _add_thought(self, block: _Block, delta: ThoughtDelta, events: list[StreamEvent]) -> None:
        writer = self._writer
        if not block.members:
            events += writer.reasoning()
            writer.mark({MAKER: PROVIDER})
            block.members["begun"] = NULL
        if delta.text is not UNSET and delta.text:
            more = writer.reasoning_summary if self._summarizes else writer.reasoning_text
            events += more(delta.text)
        if delta.signature is not UNSET:
            block.signature += delta.signature
        if delta.redacted_content is not UNSET:
            block.signature += delta.redacted_content
            writer.mark({REDACTED: True})

    # --- blocks -------------------------------------------------------------------

    def _block_of(self, raw: Raw, events: list[StreamEvent]) -> None:
        """A whole block, as a stream would give it."""
        for name, value in msgspec.json.decode(raw, type=dict[str, Raw]).items():
            members = members_of(value)
            match name:
                case "text":
                    delta = Delta(text=msgspec.json.decode(value, type=str))
                    self._add(self._open_for(self._next, delta, raw), delta, events, raw)
                case "citationsContent":
                    text = "".join(
                        text_of_raw(one.get("text")) or ""
                        for one in _objects(members.get("content"))
                    )
                    block = self._open_for(self._next, Delta(text=text), raw)
                    self._add(block, Delta(text=text), events, raw)
                    block.citations = _list(members.get("citations"))
                case "reasoningContent":
                    said = members_of(members.get("reasoningText", value))
                    thought = msgspec.convert(
                        {n: text_of_raw(r) for n, r in said.items()}, ThoughtDelta
                    )
                    delta = Delta(reasoning_content=thought)
                    self._add(self._open_for(self._next, delta, raw), delta, events, raw)
                case _:
                    self._open(self._next, name, members, events, bytes(raw))
            self._close(events)

    def _close(self, events: list[StreamEvent]) -> None:
        """End a block. Its item stays open until the next begins, since it may have been cut."""
        block, self._block = self._block, None
        writer = self._writer
        if block is None:
            return
        match block.kind:
            case "text":
                self._end_text(block, events)
            case "thought":
                if block.signature:
                    events += writer.encrypted(block.signature)
            case "call":
                if not any(block.pieces):
                    given = bytes(block.members.get("input", b"{}")).decode()
                    events += writer.arguments(given if given != "null" else "{}")
            case "other":
                events += writer.item(_item(block, writer.new_id("ext_")))

    def _end_text(self, block: _Block, events: list[StreamEvent]) -> None:
        text = "".join(block.text)
        if not text:
            return
        for raw in block.citations:
            events += self._writer.annotation(_annotation(raw, len(text)))
        if block.citations:
            cited = {"content": [{"text": text}], "citations": block.citations}
            events += self._writer.end_part({OWN: {"citationsContent": cited}})
        else:
            events += self._writer.end_part()

    # --- the end --------------------------------------------------------------------

    def _finish(self, events: list[StreamEvent], data: bytes) -> None:
        reason = text_of_raw(self._told.get("stopReason"))
        if reason is None:
            raise DecodeError("the answer does not say why it stopped", source=data)
        writer, usage = self._writer, usage_of(self._told.get("usage"))
        self.finished = True
        writer.mark_response({OWN: self._told})
        if reason == "tool_use" and not writer.calls:
            events += writer.fail(_NO_CALLS, usage=usage)
        elif reason in _FAILED:
            message = f"the model stopped for the reason {reason}"
            error = ErrorPayload(type="server_error", code=reason, message=message)
            events += writer.fail(error, usage=usage)
        elif reason not in _COMPLETE:
            events += writer.incomplete(_INCOMPLETE.get(reason, reason), usage=usage)
        elif writer.calls and usage and self._limit and usage.output_tokens >= self._limit:
            # Cut, whatever it says: there was no room for another token.
            events += writer.incomplete("max_output_tokens", usage=usage)
        else:
            events += writer.complete(usage=usage)


_COMPLETE = frozenset({"end_turn", "stop_sequence", "tool_use"})
_FAILED = frozenset({"malformed_model_output", "malformed_tool_use"})
_INCOMPLETE = {
    "max_tokens": "max_output_tokens",
    "model_context_window_exceeded": "max_output_tokens",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}
"""Other reasons are no ends of an answer either; the response is incomplete for them by name."""

_NO_CALLS = ErrorPayload(
    type="server_error",
    code="no_calls",
    message="the model stopped to have tools called, and called none",
)


def _item(block: _Block, item_id: str) -> UnknownItem:
    """A block as an item that goes back whole."""
    members = dict(block.members)
    if any(block.pieces):
        members["input"] = input_text_of(block.pieces)
    if block.content:
        members["content"] = Raw(json_text(block.content))
    type_ = f"{PROVIDER}:{block.name}"
    item_id = (
        text_of_raw(members.get("toolUseId")) if block.name == "toolUse" else None
    ) or item_id
    told = {
        "type": type_,
        "id": item_id,
        "status": "completed",
        "block": {block.name: members},
    }
    return UnknownItem(type=type_, id=item_id, status="completed", source=Source(json_text(told)))


def _annotation(raw: Raw, size: int) -> Annotation:
    """A citation, which the API hangs on the whole text of its block."""
    members = members_of(raw)
    web = members_of(members_of(members.get("location", b"{}")).get("web", b"{}"))
    url = text_of_raw(web.get("url"))
    if url is None:
        type_ = f"{PROVIDER}:citation"
        return UnknownAnnotation(
            type=type_, source=Source(json_text({"type": type_, "citation": raw}))
        )
    return UrlCitation(
        url=url,
        title=text_of_raw(members.get("title")) or "",
        start_index=0,
        end_index=size,
        kept=as_unknown({OWN: raw}),
    )


def _list(raw: Raw | None) -> list[Raw]:
    return [] if raw is None else msgspec.json.decode(raw, type=list[Raw])


def _objects(raw: Raw | None) -> list[dict[str, Raw]]:
    return [members_of(one) for one in _list(raw)]


def response(
    body: bytes,
    request: ModelRequest | None = None,
    *,
    ids: Ids | None = None,
    clock: Clock | None = None,
) -> Response:
    """The response in a JSON body. Raises as `response_in`."""
    return response_in(body, ConverseAssembler(request, ids=ids, clock=clock))


class StreamDecoder(ApiDecoder):
    """Events from the bytes of an answer, in pieces of any size.

    Raises:
        ConfigError: botocore is not installed.
    """

    __slots__ = ()

    assembler = ConverseAssembler
    parser = EventStreamParser
