"""Every recorded answer and request of the Responses API, from all services that serve it.

Out of scope: counting input tokens (2 lines), and a response that runs in the background, whose
first answer is no end. A folded history (`compact`) is read by `compact_response`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import InvalidInput, NotTerminal
from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.models.http.failures import refusal
from perdure.models.openresponses import (
    StreamDecoder,
    compact_response,
    request_body,
    response,
)
from perdure.wire import (
    Compaction,
    Fold,
    FunctionCall,
    Item,
    Message,
    Reasoning,
    Request,
    Response,
    ResponseCompleted,
    decode_event,
    decode_request,
    encode,
    user,
)
from tests.models.recorded import (
    Interaction,
    digest,
    end_of,
    interactions,
    kinds,
    said,
    usage_of,
    whole,
    without_nulls,
)


def lines(shared: Path, *, ending: str = "/responses") -> list[Interaction]:
    return [one for one in interactions(shared, "responses") if one.path.endswith(ending)]


def answers(shared: Path) -> list[Interaction]:
    return [one for one in lines(shared) if one.status == 200 and not _unended(one)]


def _unended(one: Interaction) -> bool:
    return not one.stream and one.value["status"] in {"queued", "in_progress"}


_ANSWERS: dict[int, Response] = {}


def answer(one: Interaction) -> Response:
    if one.number not in _ANSWERS:
        events = whole(StreamDecoder(), one.answer)
        _ANSWERS[one.number] = (
            events[-1].response if one.stream else response(one.answer)  # type: ignore[union-attr]
        )
    return _ANSWERS[one.number]


def test_the_recorded_lines_are_answers_histories_counts_and_errors(shared: Path) -> None:
    every = interactions(shared, "responses")
    paths = Counter(one.path.split("?")[0].rsplit("/", 1)[-1] for one in every)
    unended = [one for one in lines(shared) if one.status == 200 and _unended(one)]
    assert paths == {"responses": 136, "compact": 5, "input_tokens": 2}
    assert {one.base for one in unended} == {
        "test_background_mode_reasoning_vcr",
        "test_background_mode_vcr",
        "test_background_mode_with_tool_vcr",
    }
    for one in unended:
        with pytest.raises(NotTerminal):
            response(one.answer)
    assert len(answers(shared)) == 128


def test_every_answer_gives_its_items_its_end_and_its_usage(shared: Path) -> None:
    found = [(one, answer(one)) for one in answers(shared)]
    assert Counter(word for _, got in found for word in kinds(got).split()) == {
        "message": 87,
        "reasoning": 73,
        "call": 43,
        "web_search_call": 13,
        "mcp_list_tools": 4,
        "mcp_call": 2,
        "compaction": 1,
        "file_search_call": 1,
    }
    assert Counter(end_of(got) for _, got in found) == {"completed": 128}
    totals = [
        sum(column) for column in zip(*(usage_of(got) or () for _, got in found), strict=True)
    ]
    assert totals == [198975, 101080, 0, 29791, 20682]
    told = (
        [one.name, kinds(got), end_of(got), usage_of(got), list(said(got))] for one, got in found
    )
    assert digest(told) == "b98bd6485545371b"


def test_every_answer_folds_back_to_itself(shared: Path) -> None:
    for one in answers(shared):
        events = whole(StreamDecoder(), one.answer)
        fold = Fold()
        for event in events:
            fold.feed(decode_event(encode(event)))
        assert fold.response() == answer(one)


def test_an_answer_that_is_streamed_counts_the_same(shared: Path) -> None:
    """An answer says the same in the last event of a stream and as a body."""
    for one in answers(shared):
        if not one.stream:
            last = ResponseCompleted(response=answer(one))
            stream = b"data: %b\n\n" % encode(last)
            (event,) = whole(StreamDecoder(), stream)
            assert event == last


def test_a_folded_history_is_its_items_and_its_usage(shared: Path) -> None:
    found = [
        compact_response(one.answer)
        for one in interactions(shared, "responses")
        if one.path.endswith("/compact")
    ]
    assert [[item.type for item in got.output] for got in found] == [
        ["message", "message", "compaction"],
        ["message", "message", "compaction"],
        ["message", "compaction"],
        ["message", "compaction"],
        ["message", "compaction"],
    ]
    assert sum(got.usage.total_tokens for got in found if got.usage) == 1786


def test_recorded_errors_have_their_class_and_the_servers_words(shared: Path) -> None:
    errors = [one for one in interactions(shared, "responses") if one.status != 200]
    assert len(errors) == 4
    for one in errors:
        error = refusal(one.status, {}, one.answer, now=0)
        told = one.value["error"]
        assert type(error) is InvalidInput
        assert (error.message, error.code, error.param) == (
            told["message"],
            told["code"],
            told["param"],
        )


# --- requests --------------------------------------------------------------------------


def asked(one: Interaction) -> list[Item]:
    """The items of a recorded request."""
    given = decode_request(json.dumps(one.request)).input
    return [user(given)] if isinstance(given, str) else list(given or ())


def sent(*items: Item) -> list[dict[str, Any]]:
    request = ModelRequest(settings=Request(model="m"), input=Items.of(items))
    body: Any = request_body(request).value()
    return [compared(item) for item in body["input"]]


def compared(item: dict[str, Any]) -> dict[str, Any]:
    """An item as a server that keeps nothing reads it.

    It takes an item with a role for a message, one text for a list of it, and nothing from nulls,
    empty lists, ids of items and their status.
    """
    told = {
        name: member
        for name, member in without_nulls({"type": "message", **item}).items()
        if member != [] and name not in {"id", "status"}
    }
    for name in ("content", "output", "summary"):
        kind = "output_text" if told.get("role") == "assistant" else "input_text"
        member = told.get(name)
        if isinstance(member, str):
            told[name] = [{"type": kind, "text": member}]
        elif isinstance(member, list):
            told[name] = [{n: m for n, m in part.items() if m != []} for part in member]
    return told


HELD = {"conversation", "previous_response_id"}
"""Members of requests whose history a server holds: what they send is not the whole of it."""


def test_every_recorded_request_is_made_again_of_what_it_says(shared: Path) -> None:
    seen = 0
    for one in lines(shared):
        if HELD & one.request.keys() or not one.request.get("input"):
            continue
        seen += 1
        given = one.request["input"]
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        assert sent(*asked(one)) == list(map(compared, items)), one.name
        settings = decode_request(
            json.dumps({n: m for n, m in one.request.items() if n != "input"})
        )
        body: Any = request_body(ModelRequest(settings=settings, input=Items.of([]))).value()
        wanted = {**one.request, "input": [], "stream": True, "store": False}
        assert body == wanted, one.name
    assert seen == 124


DROPPED = {
    "test_deepseek_responses_replay_own_reasoning_history.1": {"encrypted_content", "phase"},
}
"""What the recording client left out itself of what it had been given."""


def test_an_answer_goes_back_as_the_next_recorded_request_has_it(shared: Path) -> None:
    carried: list[str] = []
    for one in lines(shared):
        if not isinstance(one.request.get("input"), list) or HELD & one.request.keys():
            continue
        items = asked(one)
        for before in lines(shared):
            if (
                before.base != one.base
                or before.number >= one.number
                or before not in answers(shared)
            ):
                continue
            span = _span(items, answer(before))
            if span is None:
                continue
            carried.append(one.name)
            start, end = span
            made = sent(*items[:start], *answer(before).output, *items[end:])
            if one.name in DROPPED:
                made = [{n: m for n, m in i.items() if n not in DROPPED[one.name]} for i in made]
            assert made == list(map(compared, one.request["input"])), (one.name, before.name)
    assert len(carried) == 29
    assert set(carried) >= DROPPED.keys()


def _span(items: Sequence[Item], got: Response) -> tuple[int, int] | None:
    """Where the items of an answer stand among those of a request."""
    marks = set(_marks(got.output))
    found = [index for index, item in enumerate(items) if marks & set(_marks([item]))]
    if not found:
        return None
    start = found[0]
    while start and isinstance(items[start - 1], Reasoning):
        start -= 1
    end = found[-1] + 1
    while end < len(items) and isinstance(items[end], Compaction):
        end += 1
    return start, end


def _marks(items: Sequence[Item]) -> Iterator[str]:
    for item in items:
        if isinstance(item, FunctionCall):
            yield item.call_id
        elif isinstance(item, Message) and item.role == "assistant" and item.text:
            yield item.text
