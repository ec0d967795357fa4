"""A Chat Completions answer, streamed or whole, as the events of a response.

A chunk adds to what is open: a thought, a message, a call. The answer is whole when its server says
`[DONE]`, or ends the stream after a finish reason; the tokens come before or after that reason, or
never.
"""

from __future__ import annotations

from copy import copy
from typing import ClassVar, Literal, cast

import msgspec
from msgspec.structs import replace

from perdure.clock import Clock, Ids
from perdure.errors import DecodeError, Truncated, WireError
from perdure.loop.model import ModelRequest
from perdure.models.chat.assistant import BESIDE
from perdure.models.chat.calls import Calls
from perdure.models.chat.chunks import (
    CallDelta,
    Choice,
    Chunk,
    Delta,
    Members,
    annotation_of,
    beside,
    logprobs_of,
    merged,
    read_chunk,
    unknown_annotation,
    usage_of,
)
from perdure.models.chat.refusals import error_in, error_of, value_of
from perdure.models.chat.think import ThinkSplitter
from perdure.models.dialects import OPENAI, Dialect
from perdure.models.http.failures import failure
from perdure.models.http.stream import StreamEnd, bad_frame
from perdure.models.mapping.decoding import AnswerDecoder, response_in
from perdure.models.mapping.writer import Writer
from perdure.wire import (
    ErrorPayload,
    Frame,
    LogProb,
    Response,
    SSEParser,
    StreamEvent,
    SurrogateJoiner,
    Usage,
)
from perdure.wire.foreign import DETAIL_TEXTS, ENCRYPTED
from perdure.wire.marks import MAKER, mark_of
from perdure.wire.sse import FRAME_LIMIT

_COMPLETE = frozenset(
    (
        *("", "stop", "tool_calls", "function_call"),
        *("tool_use", "end_turn", "stop_sequence", "eos", "eos_token", "complete"),
    )
)
_CALLING = frozenset({"tool_calls", "function_call", "tool_use"})
_CUT = frozenset({"length", "max_tokens", "model_length", "model_context_window_exceeded"})
_FILTERED = frozenset({"content_filter", "safety", "refusal", "recitation", "sensitive"})
_CODES = {"insufficient_system_resource": "overloaded"}
"""What the finish reasons that are errors mean."""


class ChatAssembler:
    """Makes events of the chunks of one answer.

    Args:
        request: What is answered.
        dialect: Who answers.
        ids: Where ids come from that the service does not give.
        clock: Where the times come from.

    Attributes:
        finished: Whether the terminal event was made.
        reason: The finish reason, once it has come.
    """

    def __init__(
        self,
        request: ModelRequest | None,
        dialect: Dialect,
        *,
        ids: Ids | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._dialect = dialect
        self._mark = mark_of(dialect.name)
        self._limit = request.settings.max_output_tokens if request is not None else None
        self._writer = Writer(request, ids=ids, clock=clock)
        self._calls = Calls(dialect.name)
        self._think = ThinkSplitter() if dialect.think_tags else None
        self._halves = SurrogateJoiner()
        self._begun = False
        self._open: Literal["", "thought", "message", "call"] = ""
        self._detail: tuple[object, object] | None = None  # of the open thought, OpenRouter's
        self._own: Members = {}  # of the open thought
        self._space = ""  # that came after a call, and counts if text follows
        self._extra: Members = {}  # of the message
        self._about: Members = {}  # of the response
        self._usage: Usage | None = None
        self.reason: str | None = None
        self.finished = False

    def frame(self, frame: Frame, events: list[StreamEvent]) -> None:
        """Add the events of a frame.

        Raises:
            DecodeError: It is no chunk, or comes where none may.
        """
        data = frame.data
        if data == b"[DONE]" or data.strip() == b"[DONE]":
            self.finish(events)
            return
        if frame.event == "error":
            self._fail(error_of(value_of(data)), events)
            return
        chunk, extra = read_chunk(data)
        error = error_in(chunk, data)
        if error is not None:
            self._fail(error_of(error), events)
        elif chunk.choices is None and chunk.usage is None:
            raise DecodeError("no chunk: it has no choices", source=data)
        else:
            self._take(chunk, extra, data, events)

    def body(self, body: bytes, events: list[StreamEvent]) -> None:
        """Add the events of a whole answer.

        Raises:
            Rejected: It is an error.
            DecodeError: It is no answer.
        """
        chunk, extra = read_chunk(body)
        error = error_in(chunk, body)
        if error is not None:
            raise failure(error_of(error))
        if not chunk.choices:
            raise DecodeError("it has no choices", source=body)
        self._take(chunk, extra, body, events)
        self.finish(events)

    def copy(self) -> ChatAssembler:
        """An assembler in the same state."""
        twin = object.__new__(ChatAssembler)
        twin.__dict__.update(self.__dict__)
        twin._writer, twin._calls = self._writer.copy(), self._calls.copy()
        twin._think = self._think.copy() if self._think is not None else None
        twin._halves = copy(self._halves)
        twin._own, twin._extra = self._own.copy(), self._extra.copy()
        twin._about = self._about.copy()
        return twin

    # --- chunks ----------------------------------------------------------------------

    def _take(self, chunk: Chunk, extra: Members, data: bytes, events: list[StreamEvent]) -> None:
        if not self._begun:
            self._about |= beside(data)
            if not chunk.id and not chunk.choices:
                return  # Azure says first what it thinks of the prompt, and not yet who answers
            self._begin(chunk, events)
        if chunk.usage is not None:
            self._usage = usage_of(chunk.usage) or self._usage
        for choice in chunk.choices or ():
            self._choose(choice, extra, events)
        if chunk.usage is not None or (chunk.choices and chunk.choices[0].finish_reason):
            self._about |= beside(data)

    def _begin(self, chunk: Chunk, events: list[StreamEvent]) -> None:
        self._begun = True
        writer = self._writer
        writer.name(chunk.id or "", chunk.model or "")
        if isinstance(chunk.created, int) and chunk.created > 0:
            writer.response = replace(writer.response, created_at=chunk.created)
        if chunk.service_tier:
            writer.response = replace(writer.response, service_tier=chunk.service_tier)
        events += writer.start()

    def _choose(self, choice: Choice, extra: Members, events: list[StreamEvent]) -> None:
        if choice.index:
            raise DecodeError(f"a second answer, of index {choice.index}; one was asked for")
        delta = choice.delta or choice.message
        if delta is not None:
            told = len(events)
            self._add(delta, choice, events)
            if self.reason is not None and len(events) > told:
                raise DecodeError(f"the answer goes on after it finished with {self.reason!r}")
        if extra:
            self._add_extra(extra, events)
        if delta is not None and delta.audio:
            self._add_extra({"audio": delta.audio}, events)
        reason = choice.finish_reason
        if reason:
            if self.reason not in {None, reason}:
                raise DecodeError(f"it finished with {self.reason!r}, and then with {reason!r}")
            self.reason = reason

    def _add(self, delta: Delta, choice: Choice, events: list[StreamEvent]) -> None:
        if delta.reasoning_details and delta.reasoning and not _shows(delta.reasoning_details):
            self._thought(delta.reasoning, events)
        if delta.reasoning_details:
            for detail in delta.reasoning_details:
                self._add_detail(detail, events)
        elif delta.reasoning_content:
            self._thought(delta.reasoning_content, events, field="reasoning_content")
        elif delta.reasoning:
            self._thought(delta.reasoning, events, field="reasoning")
        content = delta.content
        if content:
            if isinstance(content, str):
                self._content(content, choice, events)
            else:
                self._parts(content, events)
        if delta.refusal:
            self._say(events)
            events += self._writer.refusal(delta.refusal)
        for annotation in delta.annotations or ():
            self._say(events)
            events += self._writer.annotation(annotation_of(annotation))
        for call in delta.tool_calls or ():
            self._call(call, events)
        if delta.function_call is not None:
            self._call(CallDelta(function=delta.function_call), events)

    def _add_extra(self, extra: Members, events: list[StreamEvent]) -> None:
        for name, value in extra.items():
            if value is None or isinstance(value, int | float):
                continue  # numbers are about the chunk
            self._extra[name] = merged(self._extra.get(name), value)
            transcript = cast("Members", value).get("transcript") if name == "audio" else None
            if isinstance(transcript, str) and transcript:
                self._text(transcript, events)

    # --- thoughts ----------------------------------------------------------------------

    def _thought(
        self, text: str, events: list[StreamEvent], *, field: str = "", inline: str = ""
    ) -> None:
        if self._open != "thought" or self._detail is not None:
            own: Members = {"inline": inline} if inline else {}
            if field and self._dialect.thoughts in _FIELDS and field != self._dialect.thoughts:
                own["field"] = field
            self._open_thought(own, events)
        events += self._writer.reasoning_text(text)

    def _open_thought(self, own: Members, events: list[StreamEvent]) -> None:
        self._calls.close()
        events += self._writer.reasoning()
        self._open, self._own, self._detail = "thought", own, None
        self._writer.mark({MAKER: self._dialect.name, **({self._mark: own} if own else {})})

    def _add_detail(self, detail: Members, events: list[StreamEvent]) -> None:
        """A thought as OpenRouter writes it: pieces of one type and index are one."""
        kind = (detail.get("type"), detail.get("index"))
        if self._open != "thought" or self._detail != kind or kind[0] == ENCRYPTED:
            self._open_thought({}, events)
            self._detail = kind
        writer = self._writer
        for name, value in detail.items():
            if not isinstance(value, str) or name not in DETAIL_TEXTS:
                if value is not None or name not in self._own:
                    self._own[name] = value
            elif not value:
                continue
            elif name == "text":
                events += writer.reasoning_text(value)
            elif name == "summary":
                events += writer.reasoning_summary(value)
            else:  # the data of an encrypted thought, or the signature of another
                events += writer.encrypted(value)
        writer.mark({self._mark: dict(self._own)})

    # --- messages ----------------------------------------------------------------------

    def _content(self, text: str, choice: Choice, events: list[StreamEvent]) -> None:
        if self._think is not None and not self._think.passed:
            for piece in self._think.feed(text):
                self._piece(piece.text, events, thought=piece.thought)
            return
        self._text(text, events, logprobs_of(choice.logprobs) if choice.logprobs else ())

    def _piece(self, text: str, events: list[StreamEvent], *, thought: bool) -> None:
        if thought and self._think is not None:
            self._thought(text, events, inline=self._think.opening)
        else:
            self._text(text, events)

    def _parts(self, parts: list[Members], events: list[StreamEvent]) -> None:
        """Content as Mistral writes it: thoughts and texts in their order."""
        for part in parts:
            kind, text = part.get("type"), part.get("text")
            if kind == "thinking":
                self._thinking(part, events)
            elif kind == "reference":
                self._say(events)
                events += self._writer.annotation(unknown_annotation(part))
            elif isinstance(text, str):
                self._text(text, events)
            else:
                self._extra["content"] = merged(self._extra.get("content"), [part])

    def _thinking(self, part: Members, events: list[StreamEvent]) -> None:
        inner = part.get("thinking")
        for index, one in enumerate(
            cast("list[object]", inner) if isinstance(inner, list) else [inner]
        ):
            text = cast("Members", one).get("text") if isinstance(one, dict) else one
            if isinstance(text, str) and text:
                if index:
                    self._open_thought({}, events)
                self._thought(text, events)

    def _text(
        self, text: str, events: list[StreamEvent], logprobs: tuple[LogProb, ...] = ()
    ) -> None:
        text = self._halves.feed(text)
        if self._open != "message":
            if self._open == "call" and text.isspace():
                self._space += text
                return
            text, self._space = self._space + text, ""
        if text or logprobs:
            self._say(events)
            events += self._writer.text(text, logprobs=logprobs)

    def _say(self, events: list[StreamEvent]) -> None:
        """A message is open from now on."""
        if self._open != "message":
            self._calls.close()
            events += self._writer.message()
            self._open = "message"

    # --- calls -----------------------------------------------------------------------------

    def _call(self, delta: CallDelta, events: list[StreamEvent]) -> None:
        before = len(events)
        self._calls.add(delta, self._writer, events)
        if len(events) > before:
            self._open = "call"

    # --- the end ----------------------------------------------------------------------------

    def finish(self, events: list[StreamEvent]) -> None:
        """The answer is whole.

        Raises:
            DecodeError: Nothing of it came, or a call has no name.
        """
        if not self._begun:
            raise DecodeError("the stream ends before its first chunk")
        if self._think is not None:
            for piece in self._think.end():
                self._piece(piece.text, events, thought=piece.thought)
        if self._open == "message" and (half := self._halves.end()):
            events += self._writer.text(half)
        self._calls.finish(self._writer, events)
        if self._extra:
            if not self._open and not len(self._calls):
                self._say(events)
            self._writer.mark({MAKER: self._dialect.name, self._mark: self._kept()})
        self._end((self.reason or "").lower(), events)
        self.finished = True

    def _kept(self) -> Members:
        """The mark of the last item: what the message has beside what became items."""
        own = self._own if self._open == "thought" else {}
        signed = "extra_content" in self._extra  # and says again what this says
        extra = {n: v for n, v in self._extra.items() if n != "thought_signature" or not signed}
        return {**own, BESIDE: extra}

    def _end(self, reason: str, events: list[StreamEvent]) -> None:
        self._tell()
        writer, usage = self._writer, self._usage
        if reason in _CUT or (reason in _COMPLETE and self._is_cut()):
            events += writer.incomplete("max_output_tokens", usage=usage)
        elif reason in _FILTERED:
            events += writer.incomplete("content_filter", usage=usage)
        elif reason in _CALLING and not len(self._calls):
            self._fail(
                ErrorPayload(message=f"it finished with {reason!r} and calls nothing"), events
            )
        elif reason in _COMPLETE:
            events += writer.complete(usage=usage)
        else:
            code = _CODES.get(reason, reason)
            self._fail(ErrorPayload(code=code, message=f"it finished with {reason!r}"), events)

    def _is_cut(self) -> bool:
        """Whether a claimed finish fell on the very limit, so that calls may be half there."""
        if not self._limit or self._usage is None or not len(self._calls):
            return False
        return self._usage.output_tokens >= self._limit

    def _tell(self) -> None:
        """Give the response what the service says of it beside."""
        about = {**self._about, **({"finish_reason": self.reason} if self.reason else {})}
        fallback = about.get("x_groq")
        if self._usage is None and isinstance(fallback, dict):
            usage = cast("Members", fallback).get("usage")
            self._usage = usage_of(cast("Members", usage)) if isinstance(usage, dict) else None
        if about:
            self._writer.mark_response({self._mark: about})

    def _fail(self, error: ErrorPayload, events: list[StreamEvent]) -> None:
        error = error if error.type else replace(error, type="server_error")
        events += self._writer.fail(error, usage=self._usage)
        self.finished = True


_FIELDS = frozenset({"reasoning", "reasoning_content"})


def _shows(details: list[Members]) -> bool:
    """Whether thoughts of OpenRouter's hold text."""
    return any(detail.get("text") or detail.get("summary") for detail in details)


def response(
    body: bytes,
    request: ModelRequest | None = None,
    *,
    dialect: Dialect = OPENAI,
    ids: Ids | None = None,
    clock: Clock | None = None,
) -> Response:
    """The response in a JSON body. Raises as `response_in`."""
    return response_in(body, ChatAssembler(request, dialect, ids=ids, clock=clock))


class StreamDecoder(AnswerDecoder):
    """Events from the bytes of a Chat Completions answer, in pieces of any size.

    Takes a JSON body too, where a stream was asked for; its events come at the end then.

    Args:
        request: What is answered.
        dialect: Who answers.
        ids: Where ids come from that the service does not give.
        clock: Where the times come from.
        frame_limit: The bytes of the largest frame that is taken.
    """

    __slots__ = ()

    dialect: ClassVar[Dialect] = OPENAI
    """Who answers unless it is said."""

    def __init__(
        self,
        request: ModelRequest | None = None,
        *,
        dialect: Dialect | None = None,
        ids: Ids | None = None,
        clock: Clock | None = None,
        frame_limit: int = FRAME_LIMIT,
    ) -> None:
        assembler = ChatAssembler(request, dialect or self.dialect, ids=ids, clock=clock)
        super().__init__(assembler, SSEParser(frame_limit))

    def end(self) -> StreamEnd:
        """What it would be if the bytes ended here. The decoder is left as it was.

        A stream that ends after its finish reason has finished, with or without `[DONE]`; what it
        used is unknown if that had not come. The error is None then; otherwise as it is said of
        `AnswerDecoder`.
        """
        if self.finished or self.failure is not None or self._plain is not None or self._empty:
            return super().end()
        whole = [frame for frame in self._parser.end() if _is_json(frame.data)]
        if not whole and cast("ChatAssembler", self._assembler).reason is None:
            return StreamEnd([], Truncated())
        twin = self.copy()
        assembler = cast("ChatAssembler", twin._assembler)
        events: list[StreamEvent] = []
        try:
            twin._assemble(whole, events)
            if assembler.reason is not None and not assembler.finished:
                assembler.finish(events)
        except WireError as error:
            return StreamEnd(events, bad_frame(error))
        return StreamEnd(events, None) if assembler.finished else StreamEnd(events, Truncated())


def _is_json(data: bytes) -> bool:
    """Whether the data of a frame is all there."""
    if data.strip() == b"[DONE]":
        return True
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True
