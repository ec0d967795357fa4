"""Streams and bodies that servers of Chat Completions send, beside those that were recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.errors import (
    BadBody,
    EmptyBody,
    FrameTooLarge,
    InvalidInput,
    ModelError,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    Rejected,
    ServerFailed,
    Truncated,
)
from perdure.models.chat import StreamDecoder, response
from perdure.models.dialects import (
    DEEPSEEK,
    GEMINI,
    GENERIC,
    LMSTUDIO,
    MISTRAL,
    OPENAI,
    OPENROUTER,
    VLLM,
    XAI,
    Dialect,
)
from perdure.models.http.failures import failure as error_of
from perdure.wire import (
    ErrorEvent,
    FunctionCall,
    FunctionCallArgumentsDelta,
    Message,
    OutputText,
    OutputTextDelta,
    Reasoning,
    Refusal,
    Response,
    ResponseFailed,
    UrlCitation,
    text_of,
)
from tests.models.chat.made import (
    DONE,
    answer,
    asked,
    call,
    chunk,
    decoder,
    events_of,
    failure,
    frame,
    usage,
)
from tests.models.recorded import end_of, kinds, usage_of

STOP = chunk(reason="stop")


def calls_of(got: Response) -> list[tuple[str, str, str]]:
    return [
        (item.call_id, item.name, item.arguments)
        for item in got.output
        if isinstance(item, FunctionCall)
    ]


def texts(got: Response) -> list[str]:
    found: list[str] = []
    for item in got.output:
        if isinstance(item, Message | Reasoning):
            found.append(text_of(item.content or ()))
    return found


# --- how an answer ends -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "end"),
    [
        ("stop", "completed"),
        ("STOP", "completed"),
        ("eos", "completed"),
        ("length", "incomplete:max_output_tokens"),
        ("model_length", "incomplete:max_output_tokens"),
        ("MAX_TOKENS", "incomplete:max_output_tokens"),
        ("content_filter", "incomplete:content_filter"),
        ("sensitive", "incomplete:content_filter"),
        ("recitation", "incomplete:content_filter"),
    ],
)
def test_finish_reasons_are_one_vocabulary(reason: str, end: str) -> None:
    got = answer(chunk({"content": "a"}), chunk(reason=reason), DONE)
    assert end_of(got) == end
    assert got.unknown["perdure:openai"] == {"finish_reason": reason}


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("error", ServerFailed),
        ("network_error", ServerFailed),
        ("insufficient_system_resource", Overloaded),
        ("made_up", ServerFailed),
    ],
)
def test_a_finish_that_is_an_error_or_nobody_knows_is_a_failure(
    reason: str, kind: type[Rejected]
) -> None:
    got = answer(chunk({"content": "a"}), chunk(reason=reason), DONE)
    assert got.status == "failed"
    assert got.error
    assert reason in got.error.message
    assert type(error_of(got.error)) is kind


@pytest.mark.parametrize("end", [DONE, b"data: [DONE]", b"", b": bye\n\n"])
def test_a_stream_ends_with_done_or_with_its_finish_reason(end: bytes) -> None:
    got = answer(chunk({"content": "a"}), STOP, end)
    assert (kinds(got), end_of(got)) == ("message", "completed")


def test_done_without_a_finish_reason_is_a_stop() -> None:
    assert end_of(answer(chunk({"content": "a"}), DONE)) == "completed"


def test_usage_ends_no_stream_whenever_it_comes() -> None:
    counted = answer(usage(), chunk({"content": "a"}), usage(3, 1), chunk({"content": "b"}), STOP)
    assert texts(counted) == ["ab"]
    assert usage_of(counted) == (3, 0, 0, 1, 0)
    assert usage_of(answer(chunk({"content": "a"}), STOP, usage(3, 9), DONE)) == (3, 0, 0, 9, 0)
    assert isinstance(failure(chunk({"content": "a"}), usage()), Truncated)


def test_usage_is_unknown_when_the_stream_ends_before_it() -> None:
    got = answer(chunk({"content": "a"}), STOP)
    assert got.usage is None


@pytest.mark.parametrize(
    ("told", "counted"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}, (5, 0, 0, 2, 0)),
        ({"prompt_tokens": 5, "completion_tokens": 2}, (5, 0, 0, 2, 0)),
        # xAI and Google count thoughts in the total alone
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 2,
                "total_tokens": 17,
                "completion_tokens_details": {"reasoning_tokens": 10},
            },
            (5, 0, 0, 12, 10),
        ),
        ({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 17}, (5, 0, 0, 12, 10)),
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 2,
                "completion_tokens_details": {"reasoning_tokens": 10},
            },
            (5, 0, 0, 12, 10),
        ),
        (
            {"prompt_tokens": 5, "completion_tokens": 2, "prompt_cache_hit_tokens": 4},
            (5, 4, 0, 2, 0),
        ),
        ({"prompt_tokens": 5, "completion_tokens": 2, "num_cached_tokens": 4}, (5, 4, 0, 2, 0)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
            },
            (9, 4, 3, 2, 0),
        ),
        ({"total_tokens": 17}, None),
        ({}, None),
    ],
)
def test_tokens_add_up_however_a_service_counts(
    told: dict[str, Any], counted: tuple[int, ...] | None
) -> None:
    got = answer(chunk({"content": "a"}), STOP, frame({"choices": [], "usage": told}), DONE)
    assert usage_of(got) == counted


def test_what_a_service_counts_beside_stays_in_the_usage() -> None:
    got = answer(chunk({"content": "a"}), STOP, usage(cost=0.25, is_byok=False), DONE)
    assert got.usage
    assert got.usage.unknown == {"cost": 0.25, "is_byok": False}
    assert got.usage.input_tokens_details is not None
    assert not got.usage.input_tokens_details  # nobody said what was cached


def test_groqs_usage_is_found_where_it_was() -> None:
    counted = {"prompt_tokens": 5, "completion_tokens": 2}
    got = answer(chunk({"content": "a"}), chunk(reason="stop", x_groq={"usage": counted}), DONE)
    assert usage_of(got) == (5, 0, 0, 2, 0)


def test_a_negative_count_is_no_usage() -> None:
    error = failure(chunk({"content": "a"}), STOP, usage(-1))
    assert isinstance(error, BadBody)
    assert "usage.prompt_tokens" in str(error)


@pytest.mark.parametrize("limit", [20, 19])
def test_calls_that_end_on_the_very_limit_are_cut_whatever_the_reason_says(limit: int) -> None:
    got = answer(
        chunk(call(0, id="c", name="write", arguments='{"path":"a"}')),
        chunk(reason="tool_calls"),
        usage(3, 20),
        DONE,
        limit=limit,
    )
    assert (kinds(got), end_of(got)) == ("call", "incomplete:max_output_tokens")


def test_calls_below_the_limit_and_texts_at_it_are_whole() -> None:
    calls = (chunk(call(0, id="c", name="f", arguments="{}")), chunk(reason="tool_calls"))
    assert end_of(answer(*calls, usage(3, 19), DONE, limit=20)) == "completed"
    assert end_of(answer(*calls, DONE, limit=20)) == "completed"
    assert end_of(answer(chunk({"content": "a"}), STOP, usage(3, 20), limit=20)) == "completed"


def test_a_finish_with_calls_that_calls_nothing_fails() -> None:
    got = answer(chunk({"content": "a"}), chunk(reason="tool_calls"), DONE)
    assert got.error
    assert "calls nothing" in got.error.message


def test_an_answer_that_goes_on_after_its_finish_is_refused() -> None:
    for more in (
        chunk({"content": "b"}),
        chunk({"reasoning_content": "b"}),
        chunk(call(0, id="c", name="f", arguments="{}")),
    ):
        error = failure(chunk({"content": "a"}), STOP, more)
        assert isinstance(error, BadBody)
        assert "goes on" in str(error)
        assert isinstance(failure(chunk({"content": "a"}), STOP, more.rstrip()), BadBody)
    error = failure(chunk({"content": "a"}), STOP, chunk(reason="length"))
    assert isinstance(error, BadBody)
    assert (
        end_of(answer(chunk({"content": "a"}), STOP, chunk({"content": ""}), STOP)) == "completed"
    )


def test_what_follows_the_end_is_not_looked_at() -> None:
    assert (
        end_of(answer(chunk({"content": "a"}), STOP, DONE, b"data: {nonsense\n\n")) == "completed"
    )


# --- calls --------------------------------------------------------------------------------

END = chunk(reason="tool_calls")


def test_calls_come_one_after_the_other_while_they_are_written() -> None:
    events = events_of(
        chunk(call(0, id="c1", name="f", arguments="")),
        chunk(call(0, arguments='{"a"')),
        chunk(call(0, arguments=":1}")),
        chunk(call(1, id="c2", name="g", arguments='{"b":2}')),
        END,
    )
    deltas = [event.delta for event in events if isinstance(event, FunctionCallArgumentsDelta)]
    assert deltas == ['{"a"', ":1}", '{"b":2}']


@pytest.mark.parametrize(
    "deltas",
    [
        # both open before either is written, and take turns
        [
            call(0, id="c1", name="f", arguments=""),
            call(1, id="c2", name="g", arguments=""),
            call(0, arguments='{"a"'),
            call(1, arguments='{"b"'),
            call(0, arguments=":1}"),
            call(1, arguments=":2}"),
        ],
        # the index says nothing
        [
            call(0, id="c1", name="f", arguments='{"a":1}'),
            call(0, id="c2", name="g", arguments='{"b":2}'),
        ],
        # there is none
        [
            call(None, id="c1", name="f", arguments='{"a"'),
            call(None, arguments=":1}"),
            call(None, id="c2", name="g", arguments='{"b":2}'),
        ],
        # id and name come again with each piece
        [
            call(0, id="c1", name="f", arguments='{"a"'),
            call(0, id="c1", name="f", arguments=":1}"),
            call(1, id="c2", name="g", arguments='{"b":2}'),
        ],
        # the name comes late
        [
            call(0, id="c1"),
            call(0, name="f", arguments='{"a":1}'),
            call(1, id="c2", name="g", arguments='{"b":2}'),
        ],
        # arguments as an object
        [
            call(0, id="c1", name="f", arguments='{"a":1}'),
            call(1, id="c2", name="g", arguments={"b": 2}),
        ],
        # all at once
        [
            {
                "tool_calls": [
                    *call(0, id="c1", name="f", arguments='{"a":1}')["tool_calls"],
                    *call(1, id="c2", name="g", arguments='{"b":2}')["tool_calls"],
                ]
            }
        ],
    ],
)
def test_calls_are_put_in_order_however_a_server_writes_them(deltas: list[Any]) -> None:
    got = answer(*map(chunk, deltas), END, DONE)
    assert calls_of(got) == [("c1", "f", '{"a":1}'), ("c2", "g", '{"b":2}')]


def test_a_call_without_an_id_gets_one_and_two_of_them_two() -> None:
    deltas = [call(0, id="", name="f", arguments="{}"), call(0, id="", name="f", arguments="{}")]
    ids = [call_id for call_id, _, _ in calls_of(answer(*map(chunk, deltas), END))]
    assert len(set(ids)) == 2
    assert all(ids)
    assert calls_of(answer(chunk({"function_call": {"name": "f", "arguments": "{}"}}), END))


def test_a_call_without_a_name_and_arguments_that_come_too_late_are_refused() -> None:
    assert isinstance(failure(chunk(call(0, id="c", arguments="{}")), END, DONE), BadBody)
    late = [
        call(0, id="c1", name="f", arguments="{}"),
        call(1, id="c2", name="g", arguments=""),
        call(0, arguments="x"),
    ]
    assert isinstance(failure(*map(chunk, late)), BadBody)


def test_malformed_arguments_stay_as_the_model_wrote_them() -> None:
    deltas = [
        call(0, id="c1", name="f", arguments='{"a'),
        call(1, id="c2", name="g", arguments="{}"),
    ]
    assert calls_of(answer(*map(chunk, deltas), END)) == [("c1", "f", '{"a'), ("c2", "g", "{}")]


def test_a_text_after_a_call_is_a_message_of_its_own_and_space_is_none() -> None:
    begun = (chunk({"content": "a"}), chunk(call(0, id="c", name="f", arguments="{}")))
    assert kinds(answer(*begun, chunk({"content": "\n"}), END)) == "message call"
    got = answer(*begun, chunk({"content": "\n"}), chunk({"content": "b"}), END)
    assert kinds(got) == "message call message"
    assert texts(got) == ["a", "\nb"]


def test_googles_signature_of_a_call_is_its_mark() -> None:
    signed = {"google": {"thought_signature": "sig"}}
    got = answer(
        chunk(call(0, id="c", name="f", arguments="{}", extra_content=signed)),
        END,
        dialect=GEMINI,
    )
    assert got.output[0].unknown == {
        "perdure:provider": "gemini",
        "perdure:thought_signature": "sig",
    }


# --- thoughts -------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_thoughts_come_under_either_name_and_say_who_made_them(field: str) -> None:
    got = answer(
        chunk({field: "I "}),
        chunk({field: "think"}),
        chunk({"content": "a"}),
        STOP,
        dialect=DEEPSEEK,
    )
    assert kinds(got) == "reasoning message"
    assert texts(got) == ["I think", "a"]
    thought = got.output[0]
    assert isinstance(thought, Reasoning)
    own = {} if field == "reasoning_content" else {"perdure:deepseek": {"field": field}}
    assert thought.unknown == {"perdure:provider": "deepseek", **own}


def test_thoughts_of_openrouter_keep_all_they_are_made_of() -> None:
    text = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
    pieces: list[Any] = [
        [{**text, "text": "I "}],
        [{**text, "text": "think"}],
        [{**text, "signature": "sig=="}],
        [{"type": "reasoning.encrypted", "data": "abc", "id": "r1", "index": 1, "format": None}],
        [{"type": "reasoning.encrypted", "data": "def", "id": "r2", "index": 1, "format": None}],
        [{"type": "reasoning.summary", "summary": "Short", "index": 2}],
        [{"type": "reasoning.summary", "summary": "er", "index": 2}],
    ]
    chunks = [chunk({"reasoning": "I ", "reasoning_details": piece}) for piece in pieces[:2]]
    chunks += [chunk({"reasoning_details": piece}) for piece in pieces[2:]]
    got = answer(*chunks, chunk({"content": "a"}), STOP, dialect=OPENROUTER)
    assert kinds(got) == "reasoning reasoning reasoning reasoning message"
    first, second, third, fourth = got.output[:4]
    assert isinstance(first, Reasoning)
    assert isinstance(second, Reasoning)
    assert isinstance(third, Reasoning)
    assert isinstance(fourth, Reasoning)
    assert (text_of(first.content or ()), first.encrypted_content) == ("I think", "sig==")
    assert first.unknown["perdure:openrouter"] == text
    assert (second.encrypted_content, third.encrypted_content) == ("abc", "def")
    assert text_of(fourth.summary) == "Shorter"


def test_a_thought_that_openrouter_shows_and_encrypts_is_both() -> None:
    detail = {"type": "reasoning.encrypted", "data": "abc", "index": 0}
    got = answer(
        chunk({"reasoning": "I think", "reasoning_details": [detail]}), STOP, dialect=OPENROUTER
    )
    assert kinds(got) == "reasoning reasoning"
    assert texts(got)[0] == "I think"


def test_thoughts_of_mistral_stand_among_the_parts() -> None:
    def thinking(text: str) -> dict[str, Any]:
        return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}

    got = answer(
        chunk({"content": [thinking("I ")]}),
        chunk({"content": [thinking("think")]}),
        chunk({"content": [{"type": "text", "text": "a"}]}),
        chunk({"content": "b"}),
        chunk({"content": [{"type": "reference", "reference_ids": [1]}]}),
        STOP,
        dialect=MISTRAL,
    )
    assert kinds(got) == "reasoning message"
    assert texts(got) == ["I think", "ab"]
    message = got.output[1]
    assert isinstance(message, Message)
    assert isinstance(message.content[0], OutputText)
    assert [one.type for one in message.content[0].annotations or ()] == ["reference"]


TAGGED = "\n<think>\nI <b>think</b> </thin\n</think>\n\nan <think>answer</think>"


@pytest.mark.parametrize("dialect", [LMSTUDIO, VLLM])
def test_thoughts_between_tags_are_told_from_text_in_pieces_of_any_size(dialect: Dialect) -> None:
    for size in range(1, len(TAGGED) + 1):
        pieces = [TAGGED[at : at + size] for at in range(0, len(TAGGED), size)]
        got = answer(*(chunk({"content": piece}) for piece in pieces), STOP, dialect=dialect)
        assert kinds(got) == "reasoning message"
        assert texts(got) == ["\nI <b>think</b> </thin\n", "\n\nan <think>answer</think>"]
        thought = got.output[0]
        assert isinstance(thought, Reasoning)
        assert thought.unknown[f"perdure:{dialect.name}"] == {"inline": "\n<think>"}


@pytest.mark.parametrize(
    ("text", "found", "said"),
    [
        ("<thin", "message", ["<thin"]),
        ("  ", "message", ["  "]),
        ("a <think>b</think>", "message", ["a <think>b</think>"]),
        ("<think>b", "reasoning", ["b"]),
        ("<think>b</thi", "reasoning", ["b</thi"]),
        ("<think></think>b", "message", ["b"]),
        ("<thinker>", "message", ["<thinker>"]),
    ],
)
def test_what_only_looks_like_a_tag_is_text(text: str, found: str, said: list[str]) -> None:
    for size in (1, 3, 100):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        got = answer(*(chunk({"content": piece}) for piece in pieces), STOP, dialect=VLLM)
        assert (kinds(got), texts(got)) == (found, said)


@pytest.mark.parametrize("dialect", [OPENAI, XAI, GENERIC, OPENROUTER])
def test_tags_are_text_where_the_dialect_knows_none(dialect: Dialect) -> None:
    got = answer(chunk({"content": "<think>a</think>b"}), STOP, dialect=dialect)
    assert texts(got) == ["<think>a</think>b"]


# --- messages -----------------------------------------------------------------------------------


def test_a_refusal_is_a_part_of_the_message() -> None:
    got = answer(chunk({"refusal": "I "}), chunk({"refusal": "won't"}), STOP)
    message = got.output[0]
    assert isinstance(message, Message)
    assert message.content == (Refusal(refusal="I won't"),)


def test_citations_are_annotations() -> None:
    cited = {"url": "https://x", "title": "X", "start_index": 0, "end_index": 1, "content": "…"}
    got = answer(
        chunk({"content": "a", "annotations": [{"type": "url_citation", "url_citation": cited}]}),
        chunk({"annotations": [{"type": "file", "file": {"hash": "h"}}]}),
        STOP,
    )
    message = got.output[0]
    assert isinstance(message, Message)
    assert isinstance(message.content[0], OutputText)
    first, second = list(message.content[0].annotations or ())
    assert isinstance(first, UrlCitation)
    assert (first.url, first.title, first.end_index) == ("https://x", "X", 1)
    assert first.unknown == {"content": "…"}
    assert second.type == "file"


def test_logprobs_come_with_their_text() -> None:
    def logprobs(token: str) -> dict[str, Any]:
        top = {"token": token, "logprob": -0.5, "bytes": [97]}
        return {"content": [{**top, "top_logprobs": [top]}], "refusal": None}

    def with_logprobs(token: str) -> bytes:
        choice = {"index": 0, "delta": {"content": token}, "logprobs": logprobs(token)}
        return frame({"id": "x", "choices": [choice]})

    got = answer(with_logprobs("a"), with_logprobs("b"), STOP)
    message = got.output[0]
    assert isinstance(message, Message)
    assert isinstance(message.content[0], OutputText)
    found = list(message.content[0].logprobs or ())
    assert [one.token for one in found] == ["a", "b"]
    assert found[0].top_logprobs
    assert found[0].top_logprobs[0].logprob == -0.5


def test_an_answer_of_sound_says_its_transcript_and_keeps_its_data() -> None:
    got = answer(
        chunk({"audio": {"id": "audio_1", "transcript": "He", "data": "AA"}}),
        chunk({"audio": {"transcript": "llo", "data": "BB", "expires_at": 9}}),
        STOP,
    )
    assert texts(got) == ["Hello"]
    message = got.output[0]
    assert isinstance(message, Message)
    own: Any = message.unknown["perdure:openai"]
    whole = {"id": "audio_1", "transcript": "Hello", "data": "AABB", "expires_at": 9}
    assert own == {"message": {"audio": whole}}


def test_an_answer_of_an_image_alone_is_a_message_that_keeps_it() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    got = answer(chunk({"content": "", "images": [image]}), STOP, dialect=OPENROUTER)
    assert kinds(got) == "message"
    message = got.output[0]
    assert isinstance(message, Message)
    assert message.unknown["perdure:openrouter"] == {"message": {"images": [image]}}


def test_halves_of_a_character_are_joined() -> None:
    raw = b'data: {"id":"x","choices":[{"delta":{"content":"%b"}}]}\n\n'
    got = answer(raw % b"\\ud83d", raw % b"\\ude00", STOP)
    assert texts(got) == ["\N{GRINNING FACE}"]
    got = answer(raw % b"a\\ud83d", raw % b"b", raw % b"\\ud83d", STOP)
    assert texts(got) == ["a\ufffdb\ufffd"]


def test_members_nobody_knows_and_nulls_do_no_harm() -> None:
    nulls = {"role": "assistant", "content": None, "tool_calls": None, "refusal": None}
    got = answer(
        chunk(nulls), chunk({"content": "a", "made_up": {"x": 1}}, obfuscation="zz"), STOP, DONE
    )
    message = got.output[0]
    assert isinstance(message, Message)
    assert message.unknown["perdure:openai"] == {"message": {"made_up": {"x": 1}}}


def test_azure_says_first_what_it_thinks_of_the_prompt() -> None:
    first = {"id": "", "model": "", "created": 0, "choices": [], "prompt_filter_results": [1]}
    got = answer(frame(first), chunk({"content": "a"}), STOP, DONE)
    assert (got.id, got.model, got.created_at) == ("chatcmpl-1", "m-1", 5)
    own: Any = got.unknown["perdure:openai"]
    assert own["prompt_filter_results"] == [1]


# --- errors -------------------------------------------------------------------------------------

OVERLOADED = {"message": "no room", "code": "overloaded"}


@pytest.mark.parametrize(
    ("bad", "kind", "words"),
    [
        (frame({"error": OVERLOADED}), Overloaded, "no room"),
        (frame({"error": OVERLOADED}, event="error"), Overloaded, "no room"),
        (frame(OVERLOADED, event="error"), Overloaded, "no room"),
        (frame({"error": "no room"}), ServerFailed, "no room"),
        (frame({"error": {"message": "slow down", "code": 429}}), RateLimited, "slow down"),
        (frame({"error": {"message": "pay", "code": 402}}), QuotaExhausted, "pay"),
        (
            frame(
                {"object": "error", "message": "too long", "type": "invalid_request", "code": 400}
            ),
            InvalidInput,
            "too long",
        ),
        (
            frame({"id": "x", "choices": [{"finish_reason": "error", "error": OVERLOADED}]}),
            Overloaded,
            "no room",
        ),
        (
            frame(
                {
                    "id": "x",
                    "error": {"code": 502, "message": "Provider disconnected"},
                    "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
                }
            ),
            ServerFailed,
            "Provider disconnected",
        ),
        (
            frame(
                {
                    "error": {
                        "code": 429,
                        "message": "Provider returned error",
                        "metadata": {"raw": "rate-limited upstream", "provider_name": "X"},
                    }
                }
            ),
            RateLimited,
            "Provider returned error: rate-limited upstream",
        ),
        (b"event: error\ndata: gone\n\n", ServerFailed, "gone"),
        (frame({"error": {"code": 500}}), ServerFailed, "did not say"),
    ],
)
def test_an_error_in_a_stream_is_a_failure_in_the_servers_words(
    bad: bytes, kind: type[Rejected], words: str
) -> None:
    for before in (b"", chunk({"content": "a"}), chunk({"content": "a"}) + STOP):
        events = events_of(before, bad, DONE)
        assert isinstance(events[-2], ErrorEvent)
        last = events[-1]
        assert isinstance(last, ResponseFailed)
        assert last.response.error
        error = error_of(last.response.error)
        assert type(error) is kind
        assert words in error.message


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (frame({"detail": "hm"}), "no choices"),
        (frame([1]), "array"),
        (b"data: nonsense\n\n", "JSON"),
        (frame({"choices": [{"delta": {"content": 5}}]}), "content"),
        (frame({"choices": [{"index": 1, "delta": {"content": "b"}}]}), "second answer"),
    ],
)
def test_what_is_no_chunk_is_a_bad_answer(bad: bytes, words: str) -> None:
    one = decoder()
    assert len(one.feed(chunk({"content": "a"}) + bad)) > 2
    error = one.end().error
    assert isinstance(error, BadBody)
    assert words in str(error)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", EmptyBody),
        (b" \n", EmptyBody),
        (b": ping\n\n", Truncated),
        (b'{"choices":[', Truncated),
        (b"<html><p>Sign in</html>", BadBody),
        (b'{"detail":"hm"}', BadBody),
        (b'{"choices":[]}', BadBody),
        (b"[]", BadBody),
        (b'{"error":{"message":"no","code":"rate_limit_exceeded"}}', RateLimited),
        (b'{"error":{"message":"no credits","code":402}}', QuotaExhausted),
        (b'{"object":"error","message":"no","type":"invalid_request"}', InvalidInput),
        (DONE, BadBody),
    ],
)
def test_a_body_that_is_no_answer_says_why(body: bytes, kind: type[ModelError]) -> None:
    assert type(failure(body)) is kind
    if body.lstrip()[:1] in (b"{", b"[", b"<") or not body.strip():
        with pytest.raises(kind):
            response(body)


def test_a_frame_beyond_the_limit_is_refused_after_the_events_before_it() -> None:
    one = StreamDecoder(asked(), frame_limit=1000)
    assert len(one.feed(chunk({"content": "a"}) + b"data: " + b"x" * 2000)) > 2
    with pytest.raises(FrameTooLarge):
        one.feed(b"x")
    assert isinstance(one.end().error, BadBody)


# --- copies --------------------------------------------------------------------------------------


def test_a_copy_goes_its_own_way() -> None:
    begun = chunk({"content": "a"}) + chunk(call(0, id="c", name="f", arguments='{"x"'))
    one = decoder()
    one.feed(begun)
    twin = one.copy()
    more = chunk(call(0, arguments=":1}")) + END
    events = twin.feed(more) + twin.end().events
    assert one.feed(b"") == []
    assert one.feed(more) + one.end().events == events


def test_asking_for_the_end_changes_nothing() -> None:
    one = decoder()
    one.feed(chunk({"content": "a"}) + STOP)
    first = one.end()
    assert one.end() == first
    assert not one.finished
    assert one.feed(usage() + DONE)[-1] != first.events[-1]  # which had no usage
    assert one.finished
    assert one.end() == ([], None)


def test_many_pieces_cost_no_more_than_one() -> None:
    count = 3000
    events = events_of(*(chunk({"content": "x"}) for _ in range(count)), STOP)
    assert sum(isinstance(event, OutputTextDelta) for event in events) == count
    arguments = json.dumps({"x": "y" * count})
    pieces = [arguments[at : at + 1] for at in range(len(arguments))]
    begun = chunk(call(0, id="c", name="f", arguments=""))
    got = answer(begun, *(chunk(call(0, arguments=piece)) for piece in pieces), END)
    assert calls_of(got) == [("c", "f", arguments)]
