"""Every recorded answer and request of Converse.

Out of scope: three lines that count tokens and one that invokes a model by its own API. Twenty
requests were recorded without their bodies; their answers are read all the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import InvalidInput
from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.models.bedrock import StreamDecoder, losses, path_of, refusal, request_body, response
from perdure.wire import FunctionCall, Item, Message, Response, text_of
from tests.models.bedrock.reading import items_of, model_of, request_of, settings_of, system_of
from tests.models.bedrock.streams import closed, delta, message, opened, start
from tests.models.recorded import (
    CLOCK,
    Answers,
    Count,
    Interaction,
    check_every_cut,
    digest,
    end_of,
    folded,
    in_pieces,
    interactions,
    kinds,
    said,
    totals_of,
    usage_of,
    values,
    whole,
    without_nulls,
)

pytest.importorskip("botocore")

STREAMS = {
    "test_bedrock_model_stream": "message",
    "test_bedrock_model_stream_empty_text_delta": "reasoning message",
    "test_bedrock_model_stream_with_extra_headers": "message",
    "test_bedrock_model_thinking_part_stream": "reasoning message",
    "test_bedrock_native_output_stream": "message",
    "test_stream_cancel": "message",
}


def decoder(one: Interaction) -> StreamDecoder:
    return StreamDecoder(request_of(one), ids=Count(), clock=CLOCK)


def exchanges(shared: Path) -> list[Interaction]:
    return [one for one in interactions(shared, "bedrock") if "/converse" in one.path]


def answers(shared: Path) -> list[Interaction]:
    return [one for one in exchanges(shared) if one.status == 200]


answer = Answers(decoder)


def test_the_recorded_lines_are_answers_errors_and_others(shared: Path) -> None:
    every = interactions(shared, "bedrock")
    assert (len(every), len(exchanges(shared)), len(answers(shared))) == (148, 144, 140)
    assert sum(not one.request for one in exchanges(shared)) == 20
    others = Counter(one.path.rpartition("/")[2] for one in every if "/converse" not in one.path)
    assert others == {"count-tokens": 3, "invoke": 1}


def test_every_answer_gives_its_items_its_end_and_its_usage(shared: Path) -> None:
    found = [(one, answer(one)) for one in answers(shared)]
    words = Counter(word for _, got in found for word in kinds(got).split())
    assert words == {
        "message": 101,
        "call": 59,
        "reasoning": 16,
        "bedrock:toolUse": 2,
        "bedrock:toolResult": 2,
    }
    assert Counter(end_of(got) for _, got in found) == {
        "completed": 139,
        "incomplete:max_output_tokens": 1,
    }
    assert totals_of(got for _, got in found) == [135528, 20498, 11480, 11995, 0]
    told = (
        [one.name, kinds(got), end_of(got), usage_of(got), list(said(got))] for one, got in found
    )
    assert digest(told) == "9a2d37bb96a500e0"


def test_tokens_are_counted_once_and_add_up_as_the_api_adds_them(shared: Path) -> None:
    for one in answers(shared):
        if not one.stream:
            told = one.value["usage"]
            got = answer(one).usage
            assert got
            assert got.total_tokens == told["totalTokens"]
            cached, created = (told.get(f"cache{kind}InputTokens", 0) for kind in ("Read", "Write"))
            assert usage_of(answer(one)) == (
                told["inputTokens"] + cached + created,
                cached,
                created,
                told["outputTokens"],
                0,
            )


def test_an_answer_says_why_it_stopped(shared: Path) -> None:
    for one in answers(shared):
        own: Any = answer(one).unknown["perdure:bedrock"]
        assert own["stopReason"] in {"end_turn", "tool_use", "max_tokens"}
        assert "metrics" in own
        assert "p" not in own


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_gives_the_same_in_pieces_and_no_other_success_when_cut(
    shared: Path, name: str
) -> None:
    one = next(one for one in answers(shared) if one.name == name)
    events = whole(decoder(one), one.answer)
    assert kinds(folded(events)) == STREAMS[name]
    for seed in range(3):
        assert in_pieces(decoder(one), one.answer, seed) == events
    assert check_every_cut(decoder(one), one.answer, events) == len(one.answer)


def test_every_recorded_stream_is_in_the_table(shared: Path) -> None:
    assert {one.name for one in answers(shared) if one.stream} == set(STREAMS)


def test_a_json_answer_where_a_stream_was_asked_gives_the_same_response(shared: Path) -> None:
    for one in answers(shared):
        if not one.stream:
            events = in_pieces(decoder(one), one.answer, one.name)
            assert folded(events) == response(one.answer, request_of(one), ids=Count(), clock=CLOCK)


def test_an_answer_that_is_streamed_says_the_same(shared: Path) -> None:
    """The counts of tokens, too."""
    for one in answers(shared):
        if not one.stream:
            got = folded(whole(decoder(one), streamed(one.value)))
            assert values(got) == values(answer(one)), one.name


def streamed(value: dict[str, Any]) -> bytes:
    """A whole answer as a stream would bring it."""
    out = [start()]
    for index, block in enumerate(value["output"]["message"]["content"]):
        out += [*_deltas(index, block), closed(index)]
    told = {n: m for n, m in value.items() if n not in {"output", "stopReason"}}
    stopped = message("messageStop", {"stopReason": value["stopReason"]})
    return b"".join([*out, stopped, message("metadata", told)])


def _deltas(index: int, block: dict[str, Any]) -> list[bytes]:
    match block:
        case {"text": text}:
            return [delta(index, {"text": piece}) for piece in (text[:3], text[3:])]
        case {"reasoningContent": {"reasoningText": told}}:
            return [delta(index, {"reasoningContent": {n: m}}) for n, m in told.items()]
        case {"toolUse": {"input": value, **use}}:
            given = json.dumps(value, ensure_ascii=False)
            pieces = [delta(index, {"toolUse": {"input": p}}) for p in (given[:1], given[1:])]
            return [opened(index, {"toolUse": use}), *pieces]
        case {"toolResult": {"content": content, **result}}:
            found = [delta(index, {"toolResult": [one]}) for one in content]
            return [opened(index, {"toolResult": result}), *found]
        case _:
            raise AssertionError(block)


def test_recorded_errors_have_their_class_and_the_servers_words(shared: Path) -> None:
    failed = [one for one in exchanges(shared) if one.status != 200]
    assert len(failed) == 4
    for one in failed:
        error = refusal(one.status, {"x-amzn-ErrorType": "ValidationException:"}, one.answer, now=0)
        assert type(error) is InvalidInput
        assert (error.code, error.message) == ("ValidationException", one.value["message"])


# --- requests ---------------------------------------------------------------------------


def compared(messages: Any) -> list[dict[str, Any]]:
    """The messages of a body as the API reads them: documents may have any name."""
    named: list[dict[str, Any]] = _without_names(without_nulls(messages))
    return named


def _without_names(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: {n: m for n, m in member.items() if n != "name"}
            if name == "document"
            else _without_names(member)
            for name, member in value.items()
        }
    return [_without_names(one) for one in value] if isinstance(value, list) else value


def settings_compared(body: dict[str, Any]) -> dict[str, Any]:
    """Everything but the messages. What is empty says nothing, and a schema is its JSON."""
    empty: tuple[object, ...] = (None, {}, [])
    members = {n: m for n, m in without_nulls(body).items() if n != "messages" and m not in empty}
    if "outputConfig" in members:
        members = json.loads(json.dumps(members))
        told = members["outputConfig"]["textFormat"]["structure"]["jsonSchema"]
        told["schema"] = json.loads(told["schema"])
    return members


REFUSED = {
    "test_multimodal_tool_return_matrix[direct-uploaded_file-document-bedrock_nova].1": (
        "Nova refused the document in a tool's result; it is sent beside it now"
    ),
}


def test_every_recorded_request_is_made_again_of_what_it_says(shared: Path) -> None:
    for one in exchanges(shared):
        assert one.path == path_of(model_of(one), stream=one.stream)
        if not one.request:
            continue
        request = request_of(one)
        made: Any = request_body(request, stream=one.stream).value()
        assert settings_compared(made) == settings_compared(one.request), one.name
        if one.name in REFUSED:
            assert one.status == 400
            assert [loss.what for loss in losses(request)] == ["input_file"]
            continue
        assert compared(made["messages"]) == compared(one.request["messages"]), one.name
        assert losses(request) == (), one.name


def test_an_answer_goes_back_as_the_next_recorded_request_has_it(shared: Path) -> None:
    every = answers(shared)
    found = 0
    for one in exchanges(shared):
        for at, sent in enumerate(one.request["messages"] if one.request else ()):
            before = _answered(every, one, sent)
            if before is None or one.name in REFUSED:
                continue
            found += 1
            messages = one.request["messages"]
            items: list[Item] = [
                *system_of(one.request),
                *(item for said in messages[:at] for item in items_of(said)),
                *answer(before).output,
                *(item for said in messages[at + 1 :] for item in items_of(said)),
            ]
            settings = settings_of(one.request, model_of(one))
            request = ModelRequest(settings=settings, input=Items.of(items))
            made: Any = request_body(request).value()
            recorded = compared(messages)
            if one.name in THOUGHTS_AS_TEXT:
                recorded[at]["content"] = [b for b in recorded[at]["content"] if not _thinks(b)]
            assert compared(made["messages"]) == recorded, one.name
            lost = [loss.what for loss in losses(request)]
            assert lost == (["reasoning"] if one.name in THOUGHTS_AS_TEXT else []), one.name
    assert found == 28


THOUGHTS_AS_TEXT = {"test_bedrock_model_thinking_part_deepseek.1"}
"""Requests whose client wrote a thought that nobody signed into the text. Ours leaves it out."""


def _thinks(block: dict[str, Any]) -> bool:
    return str(block.get("text", "")).startswith("<think>")


def _answered(
    every: Sequence[Interaction], later: Interaction, sent: dict[str, Any]
) -> Interaction | None:
    """The answer that a message of a later request is, by its calls or its text."""
    if sent["role"] != "assistant":
        return None
    carried = {
        block.get("toolUse", {}).get("toolUseId") or block.get("text") for block in sent["content"]
    } - {None}
    for one in every:
        same = one.base == later.base and one.number < later.number
        if same and carried & _marks(answer(one)):
            return one
    return None


def _marks(got: Response) -> set[str]:
    calls = {item.call_id for item in got.output if isinstance(item, FunctionCall)}
    texts = {text_of(item.content) for item in got.output if isinstance(item, Message)}
    return calls | texts
