"""Answers of Gemini, whole or in a stream, as events.

Each frame of a stream is a response with a piece of the answer, so a whole answer goes the same way
as a stream of one frame. Text that comes in pieces is one part; text with a signature is a part of
its own. A part of a kind that the wire has no place for is an item of the type `gemini:KIND`, with
the part in its member `part`.
"""

from __future__ import annotations

import copy
from typing import Annotated, Self

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from perdure.clock import Clock, Ids
from perdure.errors import DecodeError
from perdure.loop.model import ModelRequest
from perdure.models.gemini.contents import OWN, PROVIDER
from perdure.models.gemini.grounding import annotations_of
from perdure.models.http.failures import failure
from perdure.models.mapping.decoding import ApiDecoder, response_in
from perdure.models.mapping.texts import json_text
from perdure.models.mapping.writer import Writer
from perdure.wire import (
    ErrorPayload,
    Frame,
    InputTokensDetails,
    OutputTokensDetails,
    Response,
    Source,
    StreamEvent,
    UnknownItem,
    Usage,
)
from perdure.wire.jsontext import loads, members_of, text_of_raw
from perdure.wire.marks import MAKER, SIGNATURE

# --- what the API sends ------------------------------------------------------------


class _Text(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A part that is text and nothing else."""

    text: str
    thought: bool = False
    thoughtSignature: str | UnsetType = UNSET  # noqa: N815 - the API's own name


_NULL = Raw(b"null")  # a union with Raw takes nothing but the other


class _Call(msgspec.Struct):
    name: str
    args: Raw = _NULL
    id: str | None = None


class _Content(msgspec.Struct):
    parts: list[Raw] = []


class _Candidate(msgspec.Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    index: int = 0
    grounding_metadata: Raw = _NULL


class _Failed(msgspec.Struct):
    message: str = "the server gave no reason"
    code: int | None = None
    status: str | None = None


class _Answer(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] = []
    response_id: str = ""
    model_version: str = ""
    usage_metadata: Raw = _NULL
    prompt_feedback: Raw = _NULL
    error: _Failed | None = None


_decode = msgspec.json.Decoder(_Answer).decode
_decode_text = msgspec.json.Decoder(_Text).decode

_Count = Annotated[int, Meta(ge=0)]


class _Usage(msgspec.Struct, rename="camel"):
    """Zeros are left out by the API."""

    prompt_token_count: _Count = 0
    candidates_token_count: _Count = 0
    thoughts_token_count: _Count = 0
    tool_use_prompt_token_count: _Count = 0
    cached_content_token_count: _Count = 0


# --- the answer -----------------------------------------------------------------------


class ResponseAssembler:
    """Makes events of one answer.

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
        self._limit = None if request is None else request.settings.max_output_tokens or None
        self._writer = Writer(request, ids=ids, clock=clock)
        self._begun = False
        self._thinking = False  # a thought is open
        self._text: list[str] = []  # of the open part of a message
        self._grounding: Raw | None = None
        self._usage: Raw | None = None
        self._told: dict[str, Raw] = {}  # what the answer says of itself

    def copy(self) -> Self:
        twin = copy.copy(self)
        twin._writer = self._writer.copy()
        twin._text, twin._told = [*self._text], dict(self._told)
        return twin

    def frame(self, frame: Frame, events: list[StreamEvent]) -> None:
        self._take(frame.data, events)

    def body(self, body: bytes, events: list[StreamEvent]) -> None:
        answer = self._take(body, events)
        if answer.error is not None:
            raise failure(_payload(answer.error))
        if not self.finished:
            raise DecodeError("it does not say why it ended", source=body)

    def _take(self, data: bytes, events: list[StreamEvent]) -> _Answer:
        answer, data = _answer(data)
        if not self._begun:
            self._begun = True
            self._writer.name(answer.response_id, answer.model_version)
            events += self._writer.start()
        if _says(answer.usage_metadata):
            self._usage = answer.usage_metadata
        for candidate in answer.candidates:
            if candidate.index:
                raise DecodeError("a second candidate was never asked for", source=data)
            self._candidate(candidate, events)
        if answer.error is not None:
            usage = self._known_usage()
            self.finished = True
            events += self._writer.fail(_payload(answer.error), usage=usage)
        elif _says(answer.prompt_feedback) or any(c.finish_reason for c in answer.candidates):
            self._tell(data)
            self._end(answer, events)
        return answer

    # --- parts ----------------------------------------------------------------------

    def _candidate(self, candidate: _Candidate, events: list[StreamEvent]) -> None:
        if _says(candidate.grounding_metadata):
            self._grounding = candidate.grounding_metadata
        for raw in candidate.content.parts if candidate.content is not None else ():
            self._part(raw, events)

    def _part(self, raw: Raw, events: list[StreamEvent]) -> None:
        try:
            part = _decode_text(raw)
        except msgspec.DecodeError:
            self._other(raw, events)
        else:
            self._add_text(part, events)

    def _add_text(self, part: _Text, events: list[StreamEvent]) -> None:
        if part.thought:
            self._add_thought(part, events)
        elif part.thoughtSignature is not UNSET:
            self._signed({"text": Raw(json_text(part.text))}, part.thoughtSignature, events)
        elif part.text:
            self._thinking = False
            self._text.append(part.text)
            events += self._writer.text(part.text)

    def _add_thought(self, part: _Text, events: list[StreamEvent]) -> None:
        signature = part.thoughtSignature or None
        if not part.text and signature is None:
            return
        if not self._thinking:
            self._end_text(events)
            events += self._writer.reasoning()
            self._writer.mark({MAKER: PROVIDER})
            self._thinking = True
        if part.text:
            events += self._writer.reasoning_summary(part.text)
        if signature is not None:
            events += self._writer.encrypted(signature)
            self._thinking = False  # what follows is another thought

    def _signed(
        self, members: dict[str, Raw], signature: str | None, events: list[StreamEvent]
    ) -> None:
        """Text that is a part of its own, since something hangs on it."""
        self._end_text(events)
        self._thinking = False
        text = text_of_raw(members.pop("text"))
        if text is None:
            raise DecodeError("a part's text is no string")
        self._text.append(text)
        events += self._writer.text(text)
        marks: dict[str, object] = {OWN: members} if members else {}
        if signature is not None:
            marks[SIGNATURE] = signature
        self._end_text(events, marks)

    def _end_text(self, events: list[StreamEvent], marks: dict[str, object] | None = None) -> None:
        """Close the part of a message that is open. What it rests on is said before."""
        if not self._writer.in_message:
            self._text.clear()
            return
        text = "".join(self._text)
        self._text.clear()
        if text and self._grounding is not None:
            for annotation in annotations_of(self._grounding, text):
                events += self._writer.annotation(annotation)
            self._grounding = None
        events += self._writer.end_part(marks)

    def _other(self, raw: Raw, events: list[StreamEvent]) -> None:
        """A call, text with something on it, or what goes back whole."""
        members = _members(raw)
        signature = text_of_raw(members.get("thoughtSignature"))
        if "functionCall" in members:
            self._call(members, signature, events)
        elif "text" in members and "thought" not in members:
            members.pop("thoughtSignature", None)
            self._signed(members, signature, events)
        else:
            self._end_text(events)
            self._thinking = False
            kind = next((name for name in members if name != "thoughtSignature"), "part")
            item_id = self._writer.new_id("ext_")
            type_ = f"{PROVIDER}:{kind}"
            told = {"type": type_, "id": item_id, "status": "completed", "part": raw}
            events += self._writer.item(
                UnknownItem(
                    type=type_, id=item_id, status="completed", source=Source(json_text(told))
                )
            )

    def _call(
        self, members: dict[str, Raw], signature: str | None, events: list[StreamEvent]
    ) -> None:
        self._end_text(events)
        self._thinking = False
        raw = members["functionCall"]
        try:
            call = msgspec.json.decode(raw, type=_Call)
        except msgspec.DecodeError as error:
            raise DecodeError(f"malformed call: {error}", source=bytes(raw)) from error
        # An id that the API does not give is never made of what the call is.
        events += self._writer.call(call.name, call.id)
        events += self._writer.arguments(bytes(call.args).decode() if _says(call.args) else "{}")
        if signature is not None:
            self._writer.mark({SIGNATURE: signature})
        rest = {n: r for n, r in members.items() if n not in {"functionCall", "thoughtSignature"}}
        if rest:
            self._writer.mark({OWN: rest})

    # --- the end --------------------------------------------------------------------

    def _tell(self, data: bytes) -> None:
        """Note what the answer says of itself, the first candidate's words among them."""
        told = _members(data)
        candidates = msgspec.json.decode(told.pop("candidates", b"[]"), type=list[dict[str, Raw]])
        for members in (told, *candidates):
            for name, raw in members.items():
                if name not in _NAMED and bytes(raw) != b"null":
                    self._told[name] = raw

    def _end(self, answer: _Answer, events: list[StreamEvent]) -> None:
        candidate = next((c for c in answer.candidates if c.finish_reason), None)
        blocked = text_of_raw(members_of(answer.prompt_feedback).get("blockReason"))
        if candidate is None and blocked is None:
            return
        writer, usage = self._writer, self._known_usage()
        self.finished = True
        self._end_text(events)
        writer.mark_response({OWN: self._told})
        reason = (candidate.finish_reason if candidate is not None else None) or "SAFETY"
        if reason == "STOP" and writer.calls and self._full(usage):
            # Cut, whatever it says: there was no room for another token.
            events += writer.incomplete("max_output_tokens", usage=usage)
        elif reason == "STOP":
            events += writer.complete(usage=usage)
        elif reason == "MAX_TOKENS":
            events += writer.incomplete("max_output_tokens", usage=usage)
        elif reason in _FILTERED:
            events += writer.incomplete("content_filter", usage=usage)
        else:
            said = candidate.finish_message if candidate is not None else None
            message = said or f"the model stopped for the reason {reason}"
            error = ErrorPayload(type="server_error", code=reason, message=message)
            events += writer.fail(error, usage=usage)

    def _full(self, usage: Usage | None) -> bool:
        return bool(usage and self._limit and usage.output_tokens >= self._limit)

    def _known_usage(self) -> Usage | None:
        """The tokens as the answer counts them: thoughts are beside the output, not in it."""
        if self._usage is None:
            return None
        try:
            told = msgspec.json.decode(self._usage, type=_Usage)
        except msgspec.DecodeError as error:
            raise DecodeError(f"malformed usage: {error}", source=bytes(self._usage)) from error
        read = told.prompt_token_count + told.tool_use_prompt_token_count
        written = told.candidates_token_count + told.thoughts_token_count
        return Usage(
            input_tokens=read,
            output_tokens=written,
            total_tokens=read + written,
            input_tokens_details=InputTokensDetails(cached_tokens=told.cached_content_token_count),
            output_tokens_details=OutputTokensDetails(reasoning_tokens=told.thoughts_token_count),
        )


_NAMED = frozenset({"content", "index", "responseId", "modelVersion"})

_FILTERED = frozenset(
    (
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
    )
)


def _answer(data: bytes) -> tuple[_Answer, bytes]:
    """The answer of a frame, and the frame as it could be read."""
    try:
        return _decode(data), data
    except msgspec.ValidationError as error:
        raise DecodeError(f"malformed answer: {error}", source=data) from error
    except msgspec.DecodeError:  # half a character is in it, or it is no JSON
        return _answer(json_text(loads(data)))


def _members(raw: bytes | Raw) -> dict[str, Raw]:
    try:
        return msgspec.json.decode(raw, type=dict[str, Raw])
    except msgspec.DecodeError as error:
        raise DecodeError(f"malformed part: {error}", source=bytes(raw)) from error


def _says(raw: Raw) -> bool:
    return bytes(raw) != b"null"


def _payload(error: _Failed) -> ErrorPayload:
    return ErrorPayload(type=error.status or "server_error", code=error.code, message=error.message)


def response(
    body: bytes,
    request: ModelRequest | None = None,
    *,
    ids: Ids | None = None,
    clock: Clock | None = None,
) -> Response:
    """The response in a JSON body. Raises as `response_in`."""
    return response_in(body, ResponseAssembler(request, ids=ids, clock=clock))


class StreamDecoder(ApiDecoder):
    """Events from the bytes of an answer, in pieces of any size."""

    __slots__ = ()

    assembler = ResponseAssembler
