"""Recorded traffic, and what tests do with every recorded answer."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import pytest

from perdure.errors import EmptyBody, Truncated
from perdure.models import StreamEnd
from perdure.testing import FakeClock, check_stream
from perdure.wire import (
    Fold,
    FunctionCall,
    Message,
    Reasoning,
    Response,
    StreamEvent,
    canonical_json,
    decode_response,
    encode,
    text_of,
)

CLOCK = FakeClock()


class Count:
    """Ids that are counted."""

    def __init__(self) -> None:
        self._next = 0

    def new(self, prefix: str) -> str:
        self._next += 1
        return f"{prefix}{self._next}"


class Interaction(NamedTuple):
    """One HTTP exchange.

    Attributes:
        number: Its line, from 1.
        answer: The bytes of the answer's body.
    """

    number: int
    name: str
    path: str
    request: dict[str, Any]
    status: int
    stream: bool
    answer: bytes

    @property
    def base(self) -> str:
        """The name without the number at its end."""
        head, dot, tail = self.name.rpartition(".")
        return head if dot and tail.isdecimal() else self.name

    @property
    def value(self) -> Any:
        """The answer as Python values."""
        return json.loads(self.answer)


@cache
def interactions(shared: Path, provider: str) -> tuple[Interaction, ...]:
    """What was recorded of a provider."""
    lines = (shared / f"fixtures/wire/{provider}.jsonl").read_bytes().splitlines()
    return tuple(_interaction(number, json.loads(line)) for number, line in enumerate(lines, 1))


def _interaction(number: int, line: Mapping[str, Any]) -> Interaction:
    if "body_b64" in line:
        answer = base64.b64decode(line["body_b64"])
    elif "body" in line:
        answer = line["body"].encode()
    else:
        answer = json.dumps(line["response"], ensure_ascii=False).encode()
    return Interaction(
        number=number,
        name=line["name"],
        path=line["path"],
        request=line["request"],
        status=line["status"],
        stream=line["stream"],
        answer=answer,
    )


class Decoder(Protocol):
    @property
    def finished(self) -> bool: ...
    def feed(self, data: bytes) -> list[StreamEvent]: ...
    def end(self) -> StreamEnd: ...
    def copy(self) -> Decoder: ...


class Answers:
    """The responses in recorded answers, each read once.

    Args:
        decoder: What reads the answer of an exchange.
    """

    def __init__(self, decoder: Callable[[Interaction], Decoder]) -> None:
        self._decoder = decoder
        self._read: dict[int, Response] = {}

    def __call__(self, one: Interaction) -> Response:
        if one.number not in self._read:
            self._read[one.number] = folded(whole(self._decoder(one), one.answer))
        return self._read[one.number]


# --- what holds for every answer ---------------------------------------------------


def whole(decoder: Decoder, answer: bytes) -> list[StreamEvent]:
    """The events of an answer that comes in one piece."""
    events = decoder.feed(answer)
    rest, error = decoder.end()
    assert error is None
    return events + rest


def in_pieces(decoder: Decoder, answer: bytes, seed: object) -> list[StreamEvent]:
    """The events of an answer that comes in pieces of chance sizes."""
    pick = random.Random(str(seed))
    events: list[StreamEvent] = []
    at = 0
    while at < len(answer):
        size = pick.choice((1, 2, 7, 50, 1000))
        events += decoder.feed(answer[at : at + size])
        at += size
    rest, error = decoder.end()
    assert error is None
    return events + rest


def folded(events: Sequence[StreamEvent]) -> Response:
    """The response that well-ordered events fold to; it survives its own encoding."""
    check_stream(events)
    fold = Fold()
    for event in events:
        fold.feed(event)
    response = fold.response()
    assert response == events[-1].response  # type: ignore[union-attr]
    assert decode_response(encode(response)) == response
    return response


def check_every_cut(decoder: Decoder, answer: bytes, events: Sequence[StreamEvent]) -> int:
    """A stream that is cut gives what had come, and an error or the same success.

    Returns:
        The length from which on it succeeds.
    """
    seen = success = 0
    for cut in range(len(answer) + 1):
        rest, error = decoder.end()
        assert rest == events[seen : seen + len(rest)]
        if error is None:
            success = success or cut
            assert seen + len(rest) == len(events)
        else:
            assert not success
            assert type(error) is (Truncated if cut else EmptyBody)
        more = decoder.feed(answer[cut : cut + 1])
        assert more == events[seen : seen + len(more)]
        seen += len(more)
    assert seen == len(events)
    assert success
    return success


def check_refused_body(
    body: bytes, cls: type[Exception], decoder: Decoder, response: Callable[[bytes], Response]
) -> None:
    """A body that is no answer is the same error however it is read."""
    with pytest.raises(cls) as raised:
        response(body)
    assert type(raised.value) is cls
    assert decoder.feed(body) == []
    assert type(decoder.end().error) is cls


# --- short forms, for tables -------------------------------------------------------


def kinds(response: Response) -> str:
    """The items of a response, as a word each."""
    return " ".join(_word(item) for item in response.output)


def _word(item: object) -> str:
    match item:
        case Message():
            return "message"
        case FunctionCall():
            return "call"
        case Reasoning():
            return "reasoning"
        case _:
            return str(getattr(item, "type", "?"))


def end_of(response: Response) -> str:
    """How a response ended."""
    details = response.incomplete_details
    return f"{response.status}:{details.reason}" if details else str(response.status)


def usage_of(response: Response) -> tuple[int, ...] | None:
    """Input, cached, created, output and reasoning tokens; they add up."""
    usage = response.usage
    if not usage:
        return None
    read, made = usage.input_tokens_details, usage.output_tokens_details
    cached = (read.cached_tokens or 0) if read else 0
    created = (read.cache_creation_tokens or 0) if read else 0
    thought = (made.reasoning_tokens or 0) if made else 0
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert cached + created <= usage.input_tokens
    assert thought <= usage.output_tokens
    return usage.input_tokens, cached, created, usage.output_tokens, thought


def totals_of(responses: Iterable[Response]) -> list[int]:
    """The sums of their usage."""
    return [sum(column) for column in zip(*map(usage_of, responses), strict=True)]


def digest(values: Iterable[object]) -> str:
    """The beginning of a hash over values."""
    return hashlib.sha256(canonical_json(list(values))).hexdigest()[:16]


def said(response: Response) -> Iterator[object]:
    """What a response says, without the ids that the adapter makes."""
    for item in response.output:
        match item:
            case Message():
                yield text_of(item.content)
            case FunctionCall():
                yield [item.call_id, item.name, item.arguments]
            case Reasoning():
                yield [
                    text_of(item.summary),
                    text_of(item.content or ()),
                    item.encrypted_content or None,
                ]
            case _:
                yield encode(item).decode()


def values(response: Response) -> Any:
    """A response as Python values, so that the order of members does not count."""
    return msgspec.json.decode(encode(response))


# --- the requests before and after ---------------------------------------------------


def without_nulls(value: Any) -> Any:
    """A value without the members that are null."""
    if isinstance(value, dict):
        return {name: without_nulls(member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [without_nulls(element) for element in value]
    return value
