"""Chat Completions answers made for tests: chunks, streams, and what they give."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from perdure.errors import ModelError, WireError
from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.models.chat import StreamDecoder
from perdure.models.dialects import OPENAI, Dialect
from perdure.wire import ABSENT, Request, Response, StreamEvent, user
from tests.models.recorded import CLOCK, Count, folded, in_pieces

DONE = b"data: [DONE]\n\n"


def asked(limit: int | None = None) -> ModelRequest:
    """A request, perhaps with a limit of output tokens."""
    settings = Request(model="m", max_output_tokens=limit or ABSENT)
    return ModelRequest(settings=settings, input=Items.of([user("hi")]))


def frame(value: object, *, event: str = "") -> bytes:
    """A frame of a stream."""
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json.dumps(value)}\n\n".encode()


def chunk(delta: Any = None, *, reason: str | None = None, **members: Any) -> bytes:
    """A chunk with one choice."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": reason}
    return frame({"id": "chatcmpl-1", "model": "m-1", "created": 5, "choices": [choice], **members})


def usage(prompt: int = 3, completion: int = 2, **members: Any) -> bytes:
    """The chunk that counts tokens."""
    counted = {"prompt_tokens": prompt, "completion_tokens": completion, **members}
    return frame({"id": "chatcmpl-1", "choices": [], "usage": counted})


def call(index: int | None, **members: Any) -> dict[str, Any]:
    """A delta with a piece of a call: `id`, `name` and `arguments`."""
    function = {n: members.pop(n) for n in ("name", "arguments") if n in members}
    piece = {"index": index, "type": "function", "function": function, **members}
    return {"tool_calls": [{n: m for n, m in piece.items() if m is not None}]}


def decoder(dialect: Dialect = OPENAI, limit: int | None = None) -> StreamDecoder:
    return StreamDecoder(asked(limit), dialect=dialect, ids=Count(), clock=CLOCK)


def events_of(
    *pieces: bytes, dialect: Dialect = OPENAI, limit: int | None = None
) -> list[StreamEvent]:
    """The events of a stream, which do not depend on how its bytes come."""
    body = b"".join(pieces)
    one = decoder(dialect, limit)
    events = one.feed(body)
    rest, error = one.end()
    assert error is None, error
    events += rest
    assert in_pieces(decoder(dialect, limit), body, "pieces") == events
    return events


def answer(*pieces: bytes, dialect: Dialect = OPENAI, limit: int | None = None) -> Response:
    """The response of a stream whose events are well ordered."""
    return folded(events_of(*pieces, dialect=dialect, limit=limit))


def failure(*pieces: bytes, dialect: Dialect = OPENAI) -> ModelError | None:
    """What a stream is if its bytes end."""
    one = decoder(dialect)
    body, at = b"".join(pieces), 0
    with contextlib.suppress(WireError):  # it stands in `failure` then
        while at < len(body):
            one.feed(body[at : at + 50])
            at += 50
    return one.end().error
