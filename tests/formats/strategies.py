"""Histories of every kind, and messages of every kind, by chance."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from perdure.wire import Item, decode_items

words = st.sampled_from(["", " ", "a", "Error: no", "Grüße 🎉", "{}", "data:x", "http://x/y.pdf"])
ids = st.sampled_from(["c1", "c2", "call 3", ""])
numbers = st.one_of(
    st.integers(-5, 5), st.sampled_from([2**70, 1.0, 0.1, 1e21]), st.booleans(), st.none()
)
values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(numbers, words),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("xyz"), inner, max_size=2)
    ),
    max_leaves=4,
)
objects = st.dictionaries(st.sampled_from(["x", "y", "type", "id"]), values, max_size=3)
media = st.sampled_from(
    [
        "https://x.test/a.png",
        "http://x.test/a.pdf",
        "data:image/png;base64,iVBO",
        "data:application/pdf;base64,JVBERi0x",
        "data:text/plain;base64,aGk=",
        "data:text/plain,hi",
        "data:text/plain;base64,?",
        "JVBERi0x",
        "nothing",
        "",
    ]
)

marks = st.fixed_dictionaries(
    {},
    optional={
        "perdure:anthropic": st.one_of(objects, values),
        "perdure:claude": st.fixed_dictionaries(
            {},
            optional={
                "without": st.lists(st.sampled_from(["text", "is_error", "content"]), max_size=2),
                "begins": st.booleans(),
                "message": st.fixed_dictionaries(
                    {}, optional={"id": words, "role": words, "unsupported_content": values}
                ),
                "other": values,
            },
        ),
        "perdure:chat": st.fixed_dictionaries(
            {},
            optional={
                "without": st.lists(st.sampled_from(["text", "content"]), max_size=2),
                "begins": st.booleans(),
                "parts": st.booleans(),
                "field": st.sampled_from(["reasoning", "other", "content"]),
                "as": st.sampled_from(["document_url", "x"]),
                "set": objects,
                "lacks": st.lists(st.sampled_from(["content", "role"]), max_size=2),
                "message": st.fixed_dictionaries(
                    {}, optional={"name": words, "role": words, "content": words}
                ),
            },
        ),
        "perdure:openrouter": st.fixed_dictionaries(
            {}, optional={"type": st.sampled_from(["reasoning.text", "x"]), "index": numbers}
        ),
        "perdure:provider": st.sampled_from(["anthropic", "openai", "openrouter"]),
        "perdure:redacted": st.booleans(),
        "perdure:thought_signature": words,
        "cache_control": st.one_of(st.none(), st.just({"type": "ephemeral"})),
        "acme": values,
    },
)


def some(required: dict[str, Any], optional: dict[str, Any] | None = None) -> Any:
    """An object of a kind, seldom with marks."""
    made = st.fixed_dictionaries(required, optional=optional or {})
    rare = st.one_of(st.just({}), st.just({}), st.just({}), marks)
    return st.tuples(made, rare).map(lambda both: {**both[1], **both[0]})


notes: st.SearchStrategy[Any] = st.lists(
    st.one_of(
        some(
            {
                "type": st.just("url_citation"),
                "url": words,
                "title": words,
                "start_index": st.integers(0, 3),
                "end_index": st.integers(0, 9),
            }
        ),
        some({"type": st.sampled_from(["file", "anthropic:char_location"])}, {"citation": objects}),
    ),
    max_size=2,
)

parts: st.SearchStrategy[Any] = st.one_of(
    some({"type": st.just("input_text"), "text": words}),
    some({"type": st.just("output_text"), "text": words}, {"annotations": notes}),
    some(
        {"type": st.just("output_text"), "text": words, "annotations": st.just([])},
        {"logprobs": st.just([])},
    ),
    some(
        {"type": st.just("input_image")},
        {"image_url": media, "detail": st.sampled_from(["auto", "low", None]), "file_id": words},
    ),
    some(
        {"type": st.just("input_file")},
        {"filename": words, "file_data": media, "file_url": media, "file_id": words},
    ),
    some({"type": st.just("input_video"), "video_url": words}),
    some({"type": st.just("refusal"), "refusal": words}),
    some({"type": st.sampled_from(["text", "summary_text", "reasoning_text"]), "text": words}),
    some({"type": st.just("input_audio"), "input_audio": objects}),
    some(
        {
            "type": st.sampled_from(["anthropic:x", "anthropic:text", "chat:x", "chat:text"]),
            "block": st.one_of(objects, st.just({"type": "x"}), st.just({"type": "tool_result"})),
            "part": st.one_of(objects, st.just({"type": "x"}), values),
        }
    ),
)
part_lists = st.lists(parts, max_size=3)

named = {"id": st.one_of(st.none(), ids), "status": st.sampled_from(["completed", "x", None])}

item_objects: st.SearchStrategy[Any] = st.one_of(
    some(
        {
            "type": st.just("message"),
            "role": st.sampled_from(["user", "assistant", "system", "developer", "tool", "critic"]),
            "content": st.one_of(words, part_lists),
        },
        {**named, "phase": words},
    ),
    some(
        {
            "type": st.just("function_call"),
            "call_id": ids,
            "name": words,
            "arguments": st.sampled_from(
                [
                    "",
                    "{}",
                    '{"a":1}',
                    '{"a": 1.0}',
                    "[]",
                    "{",
                    '{"a":1e999}',
                    '{"_raw_arguments":"x"}',
                ]
            ),
        },
        named,
    ),
    some(
        {
            "type": st.just("function_call_output"),
            "call_id": ids,
            "output": st.one_of(words, part_lists),
        },
        named,
    ),
    some(
        {
            "type": st.just("reasoning"),
            "summary": st.lists(some({"type": st.just("summary_text"), "text": words}), max_size=2),
        },
        {
            **named,
            "content": st.lists(
                some({"type": st.just("reasoning_text"), "text": words}), max_size=2
            ),
            "encrypted_content": words,
        },
    ),
    some({"type": st.just("compaction"), "encrypted_content": words}, named),
    some(
        {
            "type": st.sampled_from(["anthropic:x", "chat:x", "acme:thing", "web_search_call"]),
        },
        {
            **named,
            "block": st.one_of(objects, st.just({"type": "x"}), st.just({"type": "text"}), values),
            "call": st.one_of(objects, values),
        },
    ),
)


def decoded(value: Any) -> tuple[Item, ...]:
    return decode_items(json.dumps(value))


histories = st.lists(item_objects, max_size=5).map(decoded)

# --- messages --------------------------------------------------------------------------

cached = {"cache_control": st.one_of(st.none(), st.just({"type": "ephemeral"})), "acme": values}


def block(kind: str, **optional: Any) -> Any:
    return st.fixed_dictionaries({"type": st.just(kind)}, optional={**optional, **cached})


sources = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["base64", "url", "file", "text", "content"])},
        optional={
            "media_type": st.sampled_from(["image/png", "text/plain"]),
            "data": words,
            "url": media,
            "file_id": words,
        },
    ),
    values,
)
claude_blocks: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        block("text", text=st.one_of(words, values), citations=st.lists(objects, max_size=2)),
        block("text", text=words),
        block("image", source=sources),
        block("document", source=sources, title=st.one_of(words, values), context=words),
        block("thinking", thinking=st.one_of(words, values), signature=st.one_of(words, values)),
        block("redacted_thinking", data=st.one_of(words, values)),
        block("tool_use", id=words, name=words, input=st.one_of(objects, values), caller=objects),
        block(
            "tool_use", id=words, name=words, input=st.fixed_dictionaries({"_raw_arguments": words})
        ),
        block("server_tool_use", id=words, input=objects),
    ),
    lambda inner: block(
        "tool_result",
        tool_use_id=words,
        content=st.one_of(words, st.lists(inner, max_size=2), values),
        is_error=st.one_of(st.booleans(), st.none()),
    ),
    max_leaves=3,
)
foreign_carriers = st.lists(
    st.one_of(
        st.fixed_dictionaries({"original_type": words, "data": values, "reason": words}), objects
    ),
    max_size=2,
)
claude_messages: st.SearchStrategy[Any] = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["user", "assistant", "system", "critic"]),
            "content": st.one_of(words, st.lists(claude_blocks, max_size=4)),
        },
        optional={"id": words, "usage": objects, "unsupported_content": foreign_carriers},
    ),
    max_size=4,
)

chat_parts: st.SearchStrategy[Any] = st.one_of(
    block("text", text=st.one_of(words, values)),
    block("text", text=words, annotations=values),
    block(
        "image_url",
        image_url=st.fixed_dictionaries({}, optional={"url": media, "detail": words, "x": values}),
    ),
    block("input_audio", input_audio=st.one_of(objects, values)),
    block(
        "file",
        file=st.one_of(
            st.fixed_dictionaries(
                {}, optional={"filename": words, "file_data": media, "file_id": words}
            ),
            values,
        ),
    ),
    block("document_url", document_url=st.one_of(media, values), document_name=words),
    block("video_url", video_url=st.one_of(st.fixed_dictionaries({"url": media}), values)),
    block("refusal", refusal=words),
    block("thinking", thinking=values),
    st.just({"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}),
    block("thinking", part=values, block=values),
)
chat_content = st.one_of(words, st.lists(chat_parts, max_size=3), st.none())
chat_calls = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"id": words, "function": st.fixed_dictionaries({"name": words, "arguments": words})},
            optional={
                "type": st.sampled_from(["function", "x"]),
                "index": numbers,
                "extra_content": st.one_of(values, st.just({"google": {"thought_signature": "s"}})),
            },
        ),
        objects,
    ),
    max_size=3,
)
chat_details = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["reasoning.text", "reasoning.summary", "reasoning.encrypted"])},
        optional={
            "text": words,
            "summary": words,
            "data": words,
            "signature": st.one_of(words, st.none()),
            "index": numbers,
        },
    ),
    max_size=2,
)
chat_messages: st.SearchStrategy[Any] = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "system", "developer", "critic"])},
            optional={
                "content": chat_content,
                "name": words,
                "unsupported_content": foreign_carriers,
            },
        ),
        st.fixed_dictionaries(
            {"role": st.just("tool")},
            optional={
                "tool_call_id": st.one_of(words, values),
                "content": chat_content,
                "name": words,
            },
        ),
        st.fixed_dictionaries(
            {"role": st.just("assistant")},
            optional={
                "content": chat_content,
                "refusal": st.one_of(words, st.none()),
                "reasoning": st.one_of(words, values),
                "reasoning_content": words,
                "reasoning_details": st.one_of(chat_details, values),
                "tool_calls": st.one_of(chat_calls, values),
                "annotations": st.one_of(
                    values,
                    st.lists(
                        st.one_of(
                            st.fixed_dictionaries(
                                {"type": st.just("url_citation"), "url_citation": objects}
                            ),
                            objects,
                        ),
                        max_size=2,
                    ),
                ),
                "function_call": objects,
                "audio": objects,
            },
        ),
    ),
    max_size=4,
)
