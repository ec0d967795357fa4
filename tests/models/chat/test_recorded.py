"""Every recorded answer and request of Chat Completions.

Nothing is out of scope: of the 194 lines, 190 are answers and four are refusals.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import EmptyBody, InvalidInput, NotFound, Rejected, Truncated
from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.models.chat import StreamDecoder, losses, request_body, response
from perdure.models.chat.refusals import refusal
from perdure.models.dialects import GEMINI, GROQ, OPENROUTER
from perdure.wire import (
    ABSENT,
    FunctionCall,
    Message,
    Response,
    ResponseFailed,
    StreamEvent,
    decode_event,
    encode,
    text_of,
)
from tests.models.chat.reading import (
    compared,
    dialect_of,
    items_of,
    request_of,
    settings_compared,
    settings_of,
)
from tests.models.recorded import (
    CLOCK,
    Answers,
    Count,
    Interaction,
    digest,
    end_of,
    folded,
    in_pieces,
    interactions,
    kinds,
    said,
    usage_of,
    whole,
)

STREAMS = {
    "test_openrouter_advisor_tool_stream": "message",
    "test_openrouter_cache_streaming_e2e": "message",
    "test_openrouter_stream_with_native_options": "reasoning message",
    "test_tool_use_failed_error_streaming": "reasoning",
    "test_tool_use_failed_error_streaming.1": "reasoning call",
    "test_tool_use_failed_error_streaming.2": "reasoning message",
    "test_zai_thinking_stream": "reasoning message",
}


def decoder(one: Interaction) -> StreamDecoder:
    return StreamDecoder(request_of(one), dialect=dialect_of(one), ids=Count(), clock=CLOCK)


def answers(shared: Path) -> list[Interaction]:
    return [one for one in interactions(shared, "chat") if one.status == 200]


answer = Answers(decoder)


# --- answers ---------------------------------------------------------------------------


def test_the_recorded_lines_are_answers_and_errors(shared: Path) -> None:
    every = interactions(shared, "chat")
    assert (len(every), len(answers(shared))) == (194, 190)
    assert Counter(dialect_of(one).name for one in every) == {
        "openai": 67,
        "openrouter": 41,
        "mistral": 36,
        "groq": 32,
        "cerebras": 7,
        "zai": 5,
        "deepseek": 4,
        "gemini": 2,
    }


def test_every_answer_gives_its_items_its_end_and_its_usage(shared: Path) -> None:
    found = [(one, answer(one)) for one in answers(shared)]
    words = Counter(word for _, got in found for word in kinds(got).split())
    assert words == {"message": 104, "call": 91, "reasoning": 30}
    assert Counter(end_of(got) for _, got in found) == {
        "completed": 184,
        "incomplete:max_output_tokens": 5,
        "failed": 1,
    }
    unknown = [one.name for one, got in found if usage_of(got) is None]
    assert unknown == ["test_tool_use_failed_error_streaming"]
    counts = [usage for _, got in found if (usage := usage_of(got)) is not None]
    assert [sum(column) for column in zip(*counts, strict=True)] == [
        89122,
        21104,
        10315,
        23916,
        9866,
    ]
    told = (
        [one.name, kinds(got), end_of(got), usage_of(got), list(_said(one, got))]
        for one, got in found
    )
    assert digest(told) == "64f2adbf5147e42f"


def _said(one: Interaction, got: Response) -> Iterator[object]:
    made_up = dialect_of(one) is GEMINI  # it gives a call no id
    for value in said(got):
        if isinstance(value, list):
            yield [None if one is ABSENT else one for one in value[made_up:]]
        else:
            yield value


READ_AND_WRITTEN = "test_openrouter_cache_instructions_gemini_real_api"
"""An answer whose tokens were read from the cache and written to it at once."""


def test_tokens_are_counted_once_and_add_up(shared: Path) -> None:
    for one in answers(shared):
        if one.stream:
            continue
        told, counted = one.value["usage"], usage_of(answer(one))
        assert counted is not None
        before = told.get("prompt_tokens_details") or {}
        cached = before.get("cached_tokens", told.get("num_cached_tokens", 0))
        written = before.get("cache_write_tokens", 0)
        if one.name == READ_AND_WRITTEN:
            assert (cached, written) == (2161, 2161)
            written = 0
        assert counted[:3] == (told["prompt_tokens"], cached, written)
        after = told.get("completion_tokens_details") or {}
        hidden = told["total_tokens"] - told["prompt_tokens"] - told["completion_tokens"]
        assert bool(hidden) == (dialect_of(one) is GEMINI)
        assert counted[3:] == (
            told["completion_tokens"] + hidden,
            hidden or after.get("reasoning_tokens", 0),
        )


def test_the_response_says_what_the_service_says_beside(shared: Path) -> None:
    for one in answers(shared):
        got, mark = answer(one), f"perdure:{dialect_of(one).name}"
        if one.stream:
            assert b'"id":"%b"' % got.id.encode() in one.answer
            continue
        value = one.value
        assert (got.id, got.model, got.created_at) == (
            value["id"],
            value["model"],
            value["created"],
        )
        own: Any = got.unknown[mark]
        assert own["finish_reason"] == value["choices"][0]["finish_reason"]
        for name in ("provider", "system_fingerprint", "x_groq", "moderation", "time_info"):
            assert own.get(name) == value.get(name), one.name


def test_openrouter_says_what_an_answer_cost(shared: Path) -> None:
    asked = [one for one in answers(shared) if dialect_of(one) is OPENROUTER]
    costs = [answer(one).usage for one in asked]
    told = [usage.unknown.get("cost") for usage in costs if usage]
    assert sum(cost is not None for cost in told) == 35
    for one, cost in zip(asked, told, strict=True):
        if not one.stream:
            assert cost == one.value["usage"].get("cost")


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_gives_the_same_in_pieces_and_no_other_success_when_cut(
    shared: Path, name: str
) -> None:
    one = next(one for one in answers(shared) if one.name == name)
    events = whole(decoder(one), one.answer)
    assert kinds(folded(events)) == STREAMS[name]
    for seed in range(3):
        assert in_pieces(decoder(one), one.answer, seed) == events
    check_every_cut(decoder(one), one.answer, events)


def check_every_cut(decoder: StreamDecoder, answer: bytes, events: Sequence[StreamEvent]) -> None:
    """A cut stream gives what had come and an error, or the same success.

    Behind its finish reason a stream is whole; what it used is unknown until that has come.
    """
    final, seen, finished = folded(events), 0, False
    last: tuple[int, list[StreamEvent]] | None = None
    for cut in range(len(answer) + 1):
        rest, error = decoder.end()
        if error is not None:
            assert not finished
            assert type(error) is (Truncated if cut else EmptyBody)
            assert rest == events[seen : seen + len(rest)]
        elif last != (seen, rest):
            finished, last = True, (seen, rest)
            got = folded([*events[:seen], *rest])
            assert (got.output, end_of(got)) == (final.output, end_of(final))
            assert got.usage in (None, final.usage)
        more = decoder.feed(answer[cut : cut + 1])
        assert more == events[seen : seen + len(more)]
        seen += len(more)
    assert seen == len(events)
    assert finished


def test_every_recorded_stream_is_in_the_table(shared: Path) -> None:
    assert {one.name for one in answers(shared) if one.stream} == set(STREAMS)


def test_events_survive_their_encoding(shared: Path) -> None:
    for one in answers(shared):
        events = whole(decoder(one), one.answer)
        assert [decode_event(encode(event)) for event in events] == events


def test_a_json_answer_where_a_stream_was_asked_gives_the_same_response(shared: Path) -> None:
    for one in answers(shared):
        if not one.stream:
            events = in_pieces(decoder(one), one.answer, one.name)
            got = response(
                one.answer, request_of(one), dialect=dialect_of(one), ids=Count(), clock=CLOCK
            )
            assert folded(events) == got


def test_an_answer_that_is_streamed_gives_the_same_response_as_one_that_is_not(
    shared: Path,
) -> None:
    """The counts of tokens, too."""
    for one in answers(shared):
        if not one.stream:
            streamed = folded(whole(decoder(one), _as_stream(one.value)))
            assert streamed == answer(one), one.name


def _as_stream(value: dict[str, Any]) -> bytes:
    """An answer as a stream: each member of its message in a chunk, texts in pieces."""
    choice = value["choices"][0]
    common = {name: value.get(name) for name in value if name not in {"choices", "usage"}}
    deltas = [{name: piece} for name in choice["message"] for piece in _pieces(choice, name)]
    order = ("role", "reasoning", "reasoning_content", "reasoning_details", "content")
    rank = {name: place for place, name in enumerate(order)}
    deltas.sort(key=lambda delta: rank.get(next(iter(delta)), len(order)))
    end = {n: m for n, m in choice.items() if n != "message"}
    chunks = [
        *({**common, "choices": [{"index": 0, "delta": delta}]} for delta in deltas),
        {**common, "choices": [{**end, "delta": {}}]},
        {**common, "choices": [], "usage": value["usage"]},
    ]
    frames = [b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks]
    return b"".join(frames) + b"data: [DONE]\n\n"


def _pieces(choice: dict[str, Any], name: str) -> list[Any]:
    member = choice["message"][name]
    if name == "reasoning" and choice["message"].get("reasoning_details"):
        return []
    if name == "tool_calls":
        return [piece for i, call in enumerate(member or ()) for piece in _call_pieces(call, i)]
    if isinstance(member, str) and name not in {"role", "thought_signature"}:
        return [member[at : at + 40] for at in range(0, len(member), 40)]
    return [member]


def _call_pieces(call: dict[str, Any], index: int) -> list[Any]:
    function = call["function"]
    arguments = function.get("arguments", "")
    begin = {**call, "index": index, "function": {**function, "arguments": ""}}
    pieces = [arguments[at : at + 7] for at in range(0, len(arguments), 7)]
    return [[begin], *([{"index": index, "function": {"arguments": piece}}] for piece in pieces)]


# --- errors ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("test_openai_o1_mini_system_role[developer]", InvalidInput, "unsupported_value"),
        ("test_openai_web_search_tool_model_not_supported", InvalidInput, None),
        ("test_tool_regular_error", NotFound, "model_not_found"),
        ("test_tool_use_failed_error_with_text", InvalidInput, "tool_use_failed"),
    ],
)
def test_recorded_errors_have_their_class_and_the_servers_words(
    shared: Path, name: str, kind: type[Rejected], code: str | None
) -> None:
    one = next(one for one in interactions(shared, "chat") if one.name == name)
    error = refusal(one.status, {}, one.answer, now=0)
    told = one.value["error"]
    assert type(error) is kind
    assert (error.message, error.code, error.param) == (told["message"], code, told.get("param"))


def test_an_error_in_the_middle_of_a_stream_ends_it_in_failure(shared: Path) -> None:
    name = "test_tool_use_failed_error_streaming"
    one = next(one for one in answers(shared) if one.name == name)
    last = whole(decoder(one), one.answer)[-1]
    assert isinstance(last, ResponseFailed)
    assert last.response.error
    assert last.response.error.code == "tool_use_failed"
    assert last.response.error.message.startswith("Tool call validation failed")
    assert last.response.error.unknown["status_code"] == 400
    assert "invalid_param" in str(last.response.error.unknown["failed_generation"])


# --- requests ---------------------------------------------------------------------------

SIGNED = {"test_compatible_api_with_tool_calls_without_id.1"}
"""Requests whose client did not send back what Google signed. Where there is no signature, its
documentation has a text in its place, which perdure sends."""


def test_every_recorded_request_is_made_again_of_what_it_says(shared: Path) -> None:
    for one in interactions(shared, "chat"):
        request, dialect = request_of(one), dialect_of(one)
        made: Any = request_body(request, stream=one.stream, dialect=dialect).value()
        if one.name in SIGNED:
            _unsign(made)
        assert compared(made) == compared(one.request), one.name
        assert settings_compared(made) == settings_compared(one.request), one.name
        assert losses(request, dialect=dialect) == (), one.name


def _unsign(body: Any) -> None:
    calls = [call for message in body["messages"] for call in message.get("tool_calls", ())]
    assert [call.pop("extra_content")["google"] for call in calls] == [
        {"thought_signature": "skip_thought_signature_validator"}
    ]


IN_TAGS = {"test_tool_use_failed_error_streaming.2"}
"""Requests to Groq whose client put thoughts between tags into the text; Groq takes them in the
member in which it gives them, too."""

NOT_CARRIED = {
    # the client made up the id of a call that Google had given none
    "test_compatible_api_with_tool_calls_without_id.1",
    # the client made a call of what the error said the model had written
    "test_tool_use_failed_error_streaming.1",
    "test_tool_use_failed_error_with_text.1",
    # a conversation of its own, or one whose answer was not recorded
    "test_image_url_input_force_download.1",
    "test_openai_chat_prompt_cache_e2e.1",
    "test_openrouter_cache_all_settings_real_api.2",
    "test_openrouter_cache_instructions_gemini_real_api.1",
    "test_mistral_model_thinking_part.1",
    "test_multiple_agent_tool_calls.2",
}
"""Numbered lines that carry nothing of an answer before."""


def test_an_answer_goes_back_as_the_next_recorded_request_has_it(shared: Path) -> None:
    every = interactions(shared, "chat")
    carried: list[str] = []
    for one in every:
        messages, dialect = one.request["messages"], dialect_of(one)
        for at, message in enumerate(messages):
            before = _answered(every, one, message)
            if before is None:
                continue
            carried.append(one.name)
            items = [
                *items_of(messages[:at], dialect),
                *answer(before).output,
                *items_of(messages[at + 1 :], dialect),
            ]
            request = ModelRequest(settings=settings_of(one.request), input=Items.of(items))
            made = compared(request_body(request, dialect=dialect).value())
            if one.name in IN_TAGS:
                _put_in_tags(made[at])
            assert made == compared(one.request), one.name
            assert losses(request, dialect=dialect) == ()
    assert len(carried) == 37
    numbered = {one.name for one in every if one.base != one.name}
    assert numbered - set(carried) == NOT_CARRIED


def _put_in_tags(message: dict[str, Any]) -> None:
    text = f"<think>\n{message.pop('reasoning')}\n</think>"
    message["content"] = [{"type": "text", "text": text}]


def _answered(
    every: Sequence[Interaction], later: Interaction, message: dict[str, Any]
) -> Interaction | None:
    """The answer that a message of a later request is, by its calls or its text."""
    if message["role"] != "assistant":
        return None
    text = message.get("content")
    carried = {call["id"] for call in message.get("tool_calls") or ()}
    for one in every:
        if one.status != 200 or one.base != later.base or one.number >= later.number:
            continue
        if dialect_of(one) is dialect_of(later):
            for mark in _marks(answer(one)):
                if mark in carried or (isinstance(text, str) and mark in text):
                    return one
    return None


def _marks(got: Response) -> Iterator[str]:
    for item in got.output:
        if isinstance(item, FunctionCall):
            yield item.call_id
        elif isinstance(item, Message) and text_of(item.content).strip():
            yield text_of(item.content)


KEPT = ("content", "refusal", "reasoning", "reasoning_content", "reasoning_details", "tool_calls")


def test_what_an_answer_says_goes_back_as_it_came(shared: Path) -> None:
    for one in answers(shared):
        if one.stream:
            continue
        dialect, message = dialect_of(one), one.value["choices"][0]["message"]
        items = [*items_of([{"role": "user", "content": "hi"}], dialect), *answer(one).output]
        request = ModelRequest(settings=settings_of(one.request), input=Items.of(items))
        made: Any = request_body(request, dialect=dialect).value()
        names = [*KEPT, *dialect.returned, *(["annotations"] if dialect.annotations else [])]
        wanted = {name: message[name] for name in names if name in message}
        if message.get("reasoning_details"):
            wanted.pop("reasoning", None)  # which says again what they say
        if dialect is GEMINI:
            for call in [*wanted.get("tool_calls", ()), *made["messages"][1].get("tool_calls", ())]:
                call["id"] = ""
        sent = {"role": "assistant", **made["messages"][1]}
        if dialect.thoughts_of(one.request["model"]) == "think" and "reasoning" in wanted:
            thought = f"<think>\n{wanted.pop('reasoning')}\n</think>"
            wanted["content"] = f"{thought}\n\n{wanted['content']}"
        assert compared({"messages": [sent]}) == compared(
            {"messages": [{"role": "assistant", **wanted}]}
        ), one.name


def test_what_groq_ran_itself_is_kept_and_said_not_to_go_back(shared: Path) -> None:
    name = "test_groq_model_web_search_tool"
    one = next(one for one in answers(shared) if one.name == name)
    message = answer(one).output[-1]
    assert isinstance(message, Message)
    own: Any = message.unknown["perdure:groq"]
    assert own["message"] == {
        "executed_tools": one.value["choices"][0]["message"]["executed_tools"]
    }
    request = ModelRequest(settings=settings_of(one.request), input=Items.of([message]))
    assert [loss.what for loss in losses(request, dialect=GROQ)] == ["executed_tools"]
