"""Every recorded answer and request of the Messages API.

Out of scope: counting tokens. Five of the lines do that; their requests are read all the same.
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
from perdure.models.anthropic import StreamDecoder, losses, refusal, request_body, response
from perdure.wire import FunctionCall, Message, Response, UnknownItem
from tests.models.anthropic.reading import items_of, request_of, settings_of, system_of
from tests.models.anthropic.streams import block, frame
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

STREAMS = {
    "test_anthropic_code_execution_tool_stream": (
        "reasoning message anthropic:server_tool_use"
        " anthropic:bash_code_execution_tool_result message"
    ),
    "test_anthropic_mcp_servers_stream": (
        "reasoning anthropic:mcp_tool_use anthropic:mcp_tool_result message"
    ),
    "test_anthropic_model_thinking_part_stream": "reasoning message",
    "test_anthropic_text_editor_code_execution_tool_stream": (
        "message anthropic:server_tool_use anthropic:server_tool_use"
        " anthropic:text_editor_code_execution_tool_result"
        " anthropic:text_editor_code_execution_tool_result message"
        " anthropic:server_tool_use anthropic:text_editor_code_execution_tool_result message"
    ),
    **{
        f"test_anthropic_text_parts_ahead_of_built_in_tool_call.{n}": (
            "message anthropic:server_tool_use anthropic:web_search_tool_result message"
        )
        for n in (1, 2, 3)
    },
    "test_anthropic_web_fetch_tool_stream": (
        "reasoning anthropic:server_tool_use anthropic:web_fetch_tool_result message"
    ),
}


def decoder(one: Interaction) -> StreamDecoder:
    return StreamDecoder(request_of(one), ids=Count(), clock=CLOCK)


def answers(shared: Path) -> list[Interaction]:
    return [
        one
        for one in interactions(shared, "anthropic")
        if one.status == 200 and "count_tokens" not in one.path
    ]


answer = Answers(decoder)


def test_the_recorded_lines_are_answers_token_counts_and_errors(shared: Path) -> None:
    every = interactions(shared, "anthropic")
    counts = [one for one in every if "count_tokens" in one.path]
    errors = [one.name for one in every if one.status != 200]
    assert (len(every), len(counts), len(answers(shared))) == (144, 5, 138)
    assert errors == [
        "test_anthropic_count_tokens_error",
        "test_anthropic_explicit_effort_xhigh_unsupported_model_errors",
    ]


def test_every_answer_gives_its_items_its_end_and_its_usage(shared: Path) -> None:
    found = [(one, answer(one)) for one in answers(shared)]
    words = Counter(word for _, got in found for word in kinds(got).split())
    assert words == {
        "message": 124,
        "call": 55,
        "reasoning": 19,
        "anthropic:server_tool_use": 17,
        "anthropic:web_search_tool_result": 7,
        "anthropic:mcp_tool_result": 4,
        "anthropic:advisor_tool_result": 3,
        "anthropic:bash_code_execution_tool_result": 3,
        "anthropic:mcp_tool_use": 3,
        "anthropic:text_editor_code_execution_tool_result": 3,
        "anthropic:code_execution_tool_result": 1,
        "anthropic:web_fetch_tool_result": 1,
    }
    assert Counter(end_of(got) for _, got in found) == {"completed": 138}
    assert totals_of(got for _, got in found) == [227788, 4923, 2008, 16349, 187]
    told = (
        [one.name, kinds(got), end_of(got), usage_of(got), list(said(got))] for one, got in found
    )
    assert digest(told) == "936ead4cf7e52c52"


def test_tokens_are_counted_once(shared: Path) -> None:
    for one in answers(shared):
        if not one.stream:
            told = one.value["usage"]
            cached, created = told["cache_read_input_tokens"], told["cache_creation_input_tokens"]
            thought = (told.get("output_tokens_details") or {}).get("thinking_tokens", 0)
            read = told["input_tokens"] + cached + created
            assert usage_of(answer(one)) == (read, cached, created, told["output_tokens"], thought)


def test_a_message_says_who_made_it_and_why_it_stopped(shared: Path) -> None:
    for one in answers(shared):
        got = answer(one)
        if one.stream:
            assert b'"id":"%b"' % got.id.encode() in one.answer
            continue
        value = one.value
        assert (got.id, got.model) == (value["id"], value["model"])
        own: Any = got.unknown["perdure:anthropic"]
        assert own["stop_reason"] == value["stop_reason"]
        assert own.get("container") == value.get("container")


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_gives_the_same_in_pieces_and_no_other_success_when_cut(
    shared: Path, name: str
) -> None:
    one = next(one for one in answers(shared) if one.name == name)
    events = whole(decoder(one), one.answer)
    assert kinds(folded(events)) == STREAMS[name]
    for seed in range(3):
        assert in_pieces(decoder(one), one.answer, seed) == events
    last = one.answer.rstrip()
    assert check_every_cut(decoder(one), one.answer, events) == len(last)


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
    """A whole message as a stream would bring it."""
    told = {"stop_reason", "stop_sequence", "stop_details", "container"}
    begun = {n: m for n, m in value.items() if n not in told} | {"content": []}
    out = [frame({"type": "message_start", "message": begun})]
    for index, content in enumerate(value["content"]):
        out.append(block(index, *_pieces(dict(content))))
    ended = {n: m for n, m in value.items() if n in told}
    out.append(frame({"type": "message_delta", "delta": ended, "usage": value["usage"]}))
    return b"".join([*out, frame({"type": "message_stop"})])


def _pieces(content: dict[str, Any]) -> list[dict[str, Any]]:
    """How a block begins, and its deltas."""
    match content:
        case {"type": "text", "text": text}:
            cited = content.get("citations") or ()
            deltas = [{"type": "text_delta", "text": piece} for piece in (text[:3], text[3:])]
            notes = [{"type": "citations_delta", "citation": one} for one in cited]
            return [{**content, "text": "", "citations": []}, *notes, *deltas]
        case {"type": "thinking", "thinking": text, "signature": signature}:
            return [
                {**content, "thinking": "", "signature": ""},
                {"type": "thinking_delta", "thinking": text},
                {"type": "signature_delta", "signature": signature},
            ]
        case {"type": "tool_use", "input": given}:
            text = json.dumps(given, ensure_ascii=False)
            pieces = [{"type": "input_json_delta", "partial_json": p} for p in ("", text)]
            return [{**content, "input": {}}, *pieces]
        case _:
            return [content]


def test_recorded_errors_have_their_class_and_the_servers_words(shared: Path) -> None:
    xhigh = next(one for one in interactions(shared, "anthropic") if "effort_xhigh" in one.name)
    error = refusal(xhigh.status, {}, xhigh.answer, now=0)
    assert type(error) is InvalidInput
    assert error.message == xhigh.value["error"]["message"]


# --- requests ---------------------------------------------------------------------------


def compared(body: Any) -> list[dict[str, Any]]:
    """The messages of a body as the API reads them.

    It takes a text for one text block, neighbours of one role for one message, and nulls, an
    `is_error` that is false and results and citations that are empty for nothing.
    """
    messages: list[dict[str, Any]] = []
    for message in without_nulls(body["messages"]):
        content = _blocks(message["content"])
        if messages and messages[-1]["role"] == message["role"]:
            messages[-1]["content"] += content
        else:
            messages.append({"role": message["role"], "content": content})
    return messages


def _blocks(content: Any) -> list[dict[str, Any]]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [_block(dict(block)) for block in blocks]


def _block(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] == "tool_result":
        if not block.get("is_error"):
            block.pop("is_error", None)
        if not block.get("content"):
            block.pop("content", None)
        else:
            block["content"] = _blocks(block["content"])
    return block


def settings_compared(body: dict[str, Any]) -> dict[str, Any]:
    """Everything but the messages."""
    members = {name: member for name, member in without_nulls(body).items() if name != "messages"}
    if isinstance(members.get("system"), str):
        members["system"] = [{"type": "text", "text": members["system"]}]
    return members


def test_every_recorded_request_is_made_again_of_what_it_says(shared: Path) -> None:
    for one in interactions(shared, "anthropic"):
        request = request_of(one)
        made: Any = request_body(request, stream=one.stream).value()
        assert compared(made) == compared(one.request), one.name
        settings, recorded = settings_compared(made), settings_compared(one.request)
        if "count_tokens" in one.path:  # which has neither
            settings = {n: m for n, m in settings.items() if n not in {"max_tokens", "stream"}}
        assert settings == recorded, one.name
        assert losses(request) == (), one.name


CITATIONS_LEFT_OUT = {"test_anthropic_web_search_tool.1"}
"""Requests whose client did not send back the citations of the answer before."""


def test_an_answer_goes_back_as_the_next_recorded_request_has_it(shared: Path) -> None:
    every = interactions(shared, "anthropic")
    found = 0
    for one in every:
        for at, message in enumerate(one.request["messages"]):
            before = _answered(every, one, message)
            if before is None:
                continue
            found += 1
            messages = one.request["messages"]
            items = [
                *system_of(one.request),
                *(item for said in messages[:at] for item in items_of(said)),
                *answer(before).output,
                *(item for said in messages[at + 1 :] for item in items_of(said)),
            ]
            request = ModelRequest(settings=settings_of(one.request), input=Items.of(items))
            made = compared(request_body(request).value())
            if one.name in CITATIONS_LEFT_OUT:
                dropped = [b.pop("citations", None) for m in made for b in m["content"]]
                assert any(dropped)
            assert made == compared(one.request), one.name
            assert losses(request) == ()
    assert found == 45


def _answered(
    every: Sequence[Interaction], later: Interaction, message: dict[str, Any]
) -> Interaction | None:
    """The answer that a message of a later request is, by its calls or its text."""
    if message["role"] != "assistant":
        return None
    carried = {block.get("id") or block.get("text") for block in _blocks(message["content"])}
    for one in every:
        same = one.base == later.base and one.number < later.number
        answered = same and one.status == 200 and "count_tokens" not in one.path
        if answered and carried & set(_marks(answer(one))):
            return one
    return None


def _marks(got: Response) -> list[str]:
    marks: list[str] = []
    for item in got.output:
        match item:
            case FunctionCall():
                marks.append(item.call_id)
            case Message():
                texts = [getattr(part, "text", "") for part in item.content]
                marks += [text for text in texts if text.strip()]
            case UnknownItem():
                marks.append(item.id or "")
            case _:
                pass
    return marks


def test_what_an_answer_says_of_its_blocks_is_kept_to_the_byte(shared: Path) -> None:
    for one in answers(shared):
        if one.stream:
            continue
        blocks = one.value["content"]
        request = ModelRequest(
            settings=settings_of(one.request), input=Items.of(answer(one).output)
        )
        made: Any = request_body(request).value()
        sent = [b for m in made["messages"] if m["role"] == "assistant" for b in m["content"]]
        wanted = []
        for one_block in without_nulls(blocks):
            if one_block.get("caller") == {"type": "direct"} and one_block["type"] == "tool_use":
                del one_block["caller"]
            if one_block["type"] != "text" or one_block["text"].strip():
                wanted.append(one_block)
        assert without_nulls(sent) == wanted, one.name
