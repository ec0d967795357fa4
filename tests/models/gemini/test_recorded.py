"""Every recorded answer and request of Gemini.

Out of scope: eight lines that keep files in stores, which are no requests to a model.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.models.gemini import StreamDecoder, losses, path_of, request_body, response
from perdure.wire import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    OutputText,
    Response,
    UnknownAnnotation,
    UrlCitation,
)
from tests.models.gemini.reading import (
    camel,
    items_of,
    json_schema,
    model_of,
    request_of,
    settings_of,
    system_of,
)
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
    "test_cancel_recorded_provider_stream[google]": "message",
    "test_code_execution_stream": "gemini:executableCode gemini:codeExecutionResult message",
    "test_google_model_file_search_tool_stream.3": "gemini:executableCode message",
    "test_google_model_iter_stream": "call",
    "test_google_model_iter_stream.1": "call",
    "test_google_model_iter_stream.2": "message",
    "test_google_model_stream": "message",
    "test_google_stream_usage_is_live_mid_stream": "message",
    "test_native_output_with_function_tools_stream": "call",
    "test_native_output_with_function_tools_stream.1": "message",
}


def decoder(one: Interaction) -> StreamDecoder:
    return StreamDecoder(request_of(one), ids=Count(), clock=CLOCK)


def answers(shared: Path) -> list[Interaction]:
    return [one for one in interactions(shared, "gemini") if "enerateContent" in one.path]


answer = Answers(decoder)


def test_the_recorded_lines_are_answers_and_file_stores(shared: Path) -> None:
    every = interactions(shared, "gemini")
    assert (len(every), len(answers(shared))) == (161, 153)
    assert {one.status for one in every} == {200}
    others = [one.path for one in every if "enerateContent" not in one.path]
    assert all("fileSearchStores" in path for path in others)


def test_every_answer_gives_its_items_its_end_and_its_usage(shared: Path) -> None:
    found = [(one, answer(one)) for one in answers(shared)]
    words = Counter(word for _, got in found for word in kinds(got).split())
    assert words == {
        "call": 91,
        "message": 62,
        "gemini:executableCode": 8,
        "gemini:codeExecutionResult": 7,
        "gemini:toolCall": 2,
        "gemini:toolResponse": 2,
        "reasoning": 1,
    }
    assert Counter(end_of(got) for _, got in found) == {
        "completed": 150,
        "incomplete:max_output_tokens": 2,
        "incomplete:content_filter": 1,
    }
    assert totals_of(got for _, got in found) == [95187, 18049, 0, 49253, 43785]
    told = (
        [one.name, kinds(got), end_of(got), usage_of(got), list(_said(one, got))]
        for one, got in found
    )
    assert digest(told) == "e3d9654fac850fa8"


def _said(one: Interaction, got: Response) -> list[object]:
    """What it says, with ids only where the API gives them."""
    return [
        [part if part is None or str(part).encode() in one.answer else "made" for part in what]
        if isinstance(what, list)
        else what
        for what in said(got)
    ]


def test_tokens_are_counted_once_and_add_up_as_the_api_adds_them(shared: Path) -> None:
    for one in answers(shared):
        if not one.stream:
            told = one.value["usageMetadata"]
            got = answer(one).usage
            assert got
            assert got.total_tokens == told["totalTokenCount"]
            assert usage_of(answer(one)) == (
                told["promptTokenCount"] + told.get("toolUsePromptTokenCount", 0),
                told.get("cachedContentTokenCount", 0),
                0,
                told.get("candidatesTokenCount", 0) + told.get("thoughtsTokenCount", 0),
                told.get("thoughtsTokenCount", 0),
            )


def test_an_answer_says_who_made_it_and_why_it_ended(shared: Path) -> None:
    for one in answers(shared):
        got = answer(one)
        own: Any = got.unknown["perdure:gemini"]
        assert own["finishReason"] in {"STOP", "MAX_TOKENS", "SAFETY"}
        if not one.stream:
            assert got.model == one.value["modelVersion"]
            assert "responseId" not in one.value or got.id == one.value["responseId"]
            assert own["usageMetadata"] == one.value["usageMetadata"]


def test_what_the_text_rests_on_is_cited(shared: Path) -> None:
    cited = Counter[str]()
    for one in answers(shared):
        for item in answer(one).output:
            for part in item.content if isinstance(item, Message) else ():
                if isinstance(part, OutputText):
                    for note in part.annotations or ():
                        cited[note.type] += 1
                        _check_span(note, part)
    assert cited == {"url_citation": 11, "gemini:retrievedContext": 7}


def _check_span(note: object, part: OutputText) -> None:
    if isinstance(note, UrlCitation):
        start, end = note.start_index, note.end_index
    else:
        assert isinstance(note, UnknownAnnotation)
        value: Any = note.source.value()
        start, end = value["start_index"], value["end_index"]
    assert 0 <= start < end <= len(part.text)


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_gives_the_same_in_pieces_and_no_other_success_when_cut(
    shared: Path, name: str
) -> None:
    one = next(one for one in answers(shared) if one.name == name)
    events = whole(decoder(one), one.answer)
    assert kinds(folded(events)) == STREAMS[name]
    for seed in range(3):
        assert in_pieces(decoder(one), one.answer, seed) == events
    assert check_every_cut(decoder(one), one.answer, events) == len(one.answer.rstrip())


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
    """A whole answer as a stream would bring it, each part in a frame and text in two."""
    (candidate,) = value["candidates"]
    named = {n: value[n] for n in ("responseId", "modelVersion") if n in value}
    parts = [p for part in candidate["content"].get("parts", []) for p in _pieces(part)]
    frames = [{"candidates": [{"content": {"parts": [part]}}], **named} for part in parts[:-1]]
    frames.append({**value, "candidates": [{**candidate, "content": {"parts": parts[-1:]}}]})
    texts = [json.dumps(frame, ensure_ascii=False) for frame in frames]
    return b"".join(b"data: %b\n\n" % text.encode() for text in texts)


def _pieces(part: dict[str, Any]) -> list[dict[str, Any]]:
    if part.keys() == {"text"}:
        return [{"text": part["text"][:3]}, {"text": part["text"][3:]}]
    return [part]


# --- requests ---------------------------------------------------------------------------

Compared = list[tuple[str, list[dict[str, Any]]]]


def compared(contents: Any) -> Compared:
    """The contents of a body as the API reads them.

    It takes members in either spelling, base64 in either alphabet, neighbours of one role for one
    content, a model's thoughts and texts in pieces for one each, nulls and empty texts for nothing,
    and any id that a call and its response share.
    """
    found: Compared = []
    ids: dict[str, int] = {}
    for content in camel(without_nulls(contents)):
        for part in content["parts"]:
            if part == {"text": ""}:
                continue
            role = content["role"] + (" answers" if "functionResponse" in part else "")
            if not found or found[-1][0] != role:
                found.append((role, []))
            _add(found[-1][1], _numbered(_plain(part), ids), model=role == "model")
    return found


def _plain(value: Any) -> Any:
    """A part with its base64 in the alphabet of the answers."""
    if isinstance(value, dict):
        return {
            n: _base64(m) if n in {"data", "thoughtSignature"} else _plain(m)
            for n, m in value.items()
        }
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _base64(text: str) -> str:
    return text.replace("-", "+").replace("_", "/")


def _add(parts: list[dict[str, Any]], part: dict[str, Any], *, model: bool) -> None:
    plain = part.keys() <= {"text", "thought"} and bool(parts) and part.keys() == parts[-1].keys()
    if plain and model:
        parts[-1] = {**part, "text": parts[-1]["text"] + part["text"]}
    else:
        parts.append(part)


def _numbered(part: dict[str, Any], ids: dict[str, int]) -> dict[str, Any]:
    for kind in ("functionCall", "functionResponse"):
        if kind in part:
            call = part[kind]
            number = ids.setdefault(call.get("id") or call["name"], len(ids))
            return {**part, kind: {**call, "id": number}}
    return part


def settings_compared(body: dict[str, Any]) -> dict[str, Any]:
    """Everything but the contents.

    The system has no role, an empty member says nothing, and schemas are JSON Schema.
    """
    members = {n: m for n, m in camel(body).items() if n != "contents" and m not in (None, {}, [])}
    members.get("systemInstruction", {}).pop("role", None)
    tools = members.get("tools", [])
    tools = [tools] if isinstance(tools, dict) else tools
    for tool in tools:
        for one in tool.get("functionDeclarations") or ():
            if "parameters" in one:
                one["parametersJsonSchema"] = json_schema(one.pop("parameters"))
    return {**members, "tools": tools} if tools else members


def test_every_recorded_request_is_made_again_of_what_it_says(shared: Path) -> None:
    for one in answers(shared):
        request = request_of(one)
        made: Any = request_body(request, stream=one.stream).value()
        assert compared(made["contents"]) == compared(one.request["contents"]), one.name
        assert settings_compared(made) == settings_compared(one.request), one.name
        assert losses(request) == (), one.name
        assert one.path.endswith(path_of(model_of(one), stream=one.stream))


FOUND_ADDED = {"test_google_model_file_search_grounding_gemini_3[False].4"}
"""Requests whose client put into `toolResponse` what was found, which the API left out."""


def _without_found(contents: Compared) -> Compared:
    """Contents with nothing but the id and the type of the API's own tool calls."""
    return [
        (
            role,
            [
                {
                    name: {n: value[n] for n in ("id", "toolType")}
                    if name in {"toolCall", "toolResponse"}
                    else value
                    for name, value in part.items()
                }
                for part in parts
            ],
        )
        for role, parts in contents
    ]


def test_an_answer_goes_back_as_the_next_recorded_request_has_it(shared: Path) -> None:
    every = answers(shared)
    found = 0
    for one in every:
        contents = one.request["contents"]
        for at, content in enumerate(contents):
            before = _answered(every, one, content)
            if before is None:
                continue
            found += 1
            got = answer(before)
            items: list[Item] = [
                *system_of(one.request),
                *(item for said in contents[:at] for item in items_of(said)),
                *got.output,
                *_renamed([i for said in contents[at + 1 :] for i in items_of(said)], content, got),
            ]
            settings = settings_of(one.request, model_of(one))
            request = ModelRequest(settings=settings, input=Items.of(items))
            made: Any = request_body(request).value()
            sent, recorded = compared(made["contents"]), compared(contents)
            if one.name in FOUND_ADDED:
                sent, recorded = _without_found(sent), _without_found(recorded)
            assert sent == recorded, one.name
            assert losses(request) == ()
    assert found == 80


def _renamed(items: Sequence[Item], content: dict[str, Any], got: Response) -> list[Item]:
    """Outputs under our ids: the recording client made ids of its own where the API gave none."""
    theirs = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
    ours = [item.call_id for item in got.output if isinstance(item, FunctionCall)]
    names = {call.get("id") or call["name"]: own for call, own in zip(theirs, ours, strict=True)}
    return [
        FunctionCallOutput(call_id=names.get(item.call_id, item.call_id), output=item.output)
        if isinstance(item, FunctionCallOutput)
        else item
        for item in items
    ]


def _answered(
    every: Sequence[Interaction], later: Interaction, content: dict[str, Any]
) -> Interaction | None:
    """The answer that a content of a later request is, by its signatures, calls or texts."""
    if content["role"] != "model":
        return None
    carried = _marks(content["parts"])
    for one in every:
        same = one.base == later.base and one.number < later.number
        if same and carried & _marks(_parts_of(one)):
            return one
    return None


def _parts_of(one: Interaction) -> list[dict[str, Any]]:
    if not one.stream:
        parts: list[dict[str, Any]] = one.value["candidates"][0]["content"].get("parts", [])
        return parts
    frames = [
        json.loads(line[6:]) for line in one.answer.splitlines() if line.startswith(b"data: ")
    ]
    return [part for f in frames for part in f["candidates"][0]["content"].get("parts", [])]


def _marks(parts: list[dict[str, Any]]) -> set[str]:
    marks: set[str] = set()
    for part in parts:
        call = part.get("functionCall")
        if part.get("thoughtSignature"):
            marks.add(_base64(part["thoughtSignature"]))
        elif call:
            marks.add(f"{call['name']} {call['args']}")
        elif part.get("text", "").strip():
            marks.add(part["text"])
    return marks
