"""Folding events gives what their producer meant."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from perdure import wire
from perdure.errors import DecodeError
from perdure.wire.events import TerminalEvent
from perdure.wire.fold import Fold
from perdure.wire.sse import SSEParser


def event(type_: str, **members: Any) -> wire.StreamEvent:
    return wire.decode_event(json.dumps({"type": f"response.{type_}", **members}))


def fold(events: Iterable[wire.StreamEvent]) -> Fold:
    made = Fold()
    for one in events:
        made.feed(one)
    return made


def json_of(items: Iterable[wire.Item]) -> list[Any]:
    return [json.loads(wire.encode(item)) for item in items]


def response(type_: str, output: Iterable[Any] = (), **members: Any) -> wire.StreamEvent:
    body = {"id": "resp_1", "output": [*output], **members}
    return event(type_, response={"status": type_, **body})


def added(index: int, item: Any) -> wire.StreamEvent:
    return event("output_item.added", output_index=index, item=item)


def done(index: int, item: Any) -> wire.StreamEvent:
    return event("output_item.done", output_index=index, item=item)


def at(index: int, content_index: int = 0, item_id: str = "m") -> dict[str, Any]:
    return {"item_id": item_id, "output_index": index, "content_index": content_index}


def in_summary(summary_index: int) -> dict[str, Any]:
    return {"item_id": "r", "output_index": 0, "summary_index": summary_index}


def logprob(token: str) -> dict[str, Any]:
    return {"token": token, "logprob": -1}


def annotated(annotation_index: int, annotation: Any) -> wire.StreamEvent:
    place = {**at(0), "annotation_index": annotation_index}
    return event("output_text.annotation.added", **place, annotation=annotation)


def message(item_id: str | None = "m", text: str | None = None, **members: Any) -> dict[str, Any]:
    parts = [] if text is None else [{"type": "output_text", "text": text, "annotations": []}]
    named = {} if item_id is None else {"id": item_id}
    return {"type": "message", **named, "role": "assistant", "content": parts, **members}


def call(item_id: str | None, call_id: str, arguments: str = "") -> dict[str, Any]:
    named = {} if item_id is None else {"id": item_id}
    return {
        "type": "function_call",
        **named,
        "call_id": call_id,
        "name": "f",
        "arguments": arguments,
    }


def texts(made: Fold) -> list[str]:
    return [getattr(item, "text", "") for item in made.response().output]


# --- whole streams -----------------------------------------------------------------------


def frames_to_events(body: bytes) -> list[wire.StreamEvent]:
    parser = SSEParser()
    frames = parser.feed(body) + parser.end()
    return [wire.decode_event(frame.data) for frame in frames if frame.data != b"[DONE]"]


def test_the_golden_stream_folds_to_its_terminal_response(shared: Path) -> None:
    body = (shared / "fixtures/openresponses/golden/events.sse").read_bytes()
    *before, last = frames_to_events(body)
    assert isinstance(last, TerminalEvent)
    made = fold(before)
    assert made.response().output == last.response.output
    made.feed(last)
    assert made.response() is last.response


# What a stream's own events cannot give: its terminal event says more, or something else.
FILLED_IN_AT_THE_END = {
    "test_openai_responses_model_mcp_list_tools_stream_backfills_missing_results": "tools",
    "test_openai_responses_moderation_stream": "encrypted_content",
}


def recorded_streams(shared: Path) -> Iterator[tuple[str, list[wire.StreamEvent]]]:
    for line in (shared / "fixtures/wire/responses.jsonl").read_bytes().splitlines():
        one = json.loads(line)
        if one["stream"] and "body" in one and one["status"] == 200:
            yield one["name"], frames_to_events(one["body"].encode())


def until_the_end(
    events: list[wire.StreamEvent],
) -> tuple[list[wire.StreamEvent], wire.Response]:
    ends = [n for n, one in enumerate(events) if isinstance(one, TerminalEvent)]
    assert ends == [len(events) - 1]
    last = events[-1]
    assert isinstance(last, TerminalEvent)
    return events[:-1], last.response


def test_every_recorded_stream_folds_to_what_its_terminal_event_lists(shared: Path) -> None:
    differing = {}
    streams = list(recorded_streams(shared))
    for name, events in streams:
        before, whole = until_the_end(events)
        folded, listed = json_of(fold(before).response().output), json_of(whole.output)
        assert len(folded) == len(listed)
        for got, want in zip(folded, listed, strict=True):
            different = {m for m in got.keys() | want.keys() if got.get(m) != want.get(m)}
            if different:
                differing[name] = ",".join(different)
        assert fold(events).response() == whole
    assert differing == FILLED_IN_AT_THE_END
    assert len(streams) == 9


def test_deltas_alone_say_what_recorded_streams_say(shared: Path) -> None:
    """Without the events that repeat a text whole, the texts and arguments are the same."""
    for name, events in recorded_streams(shared):
        before, whole = until_the_end(events)
        made = fold(one for one in before if not one.type.endswith(".done"))
        for item in whole.output:
            twin = next(i for i in made.response().output if i.id == item.id)
            for member in ("text", "arguments", "summary"):
                assert getattr(twin, member, None) == getattr(item, member, None), name


def test_a_stream_cut_at_any_byte_keeps_what_had_come(shared: Path) -> None:
    body = (shared / "fixtures/openresponses/golden/events.sse").read_bytes()
    whole = "Hello, world"
    parser, made, seen = SSEParser(), Fold(), 0
    for byte in range(len(body)):
        for frame in parser.feed(body[byte : byte + 1]):
            if frame.data != b"[DONE]":
                made.feed(wire.decode_event(frame.data))
        cut = made.copy()
        for frame in parser.end():
            try:
                cut.feed(wire.decode_event(frame.data))
            except DecodeError:
                continue  # the bytes end inside an event
        text = cut.response().output_text
        assert whole.startswith(text)
        assert len(text) >= seen
        seen = len(text)
    assert seen == len(whole)


# --- deltas -------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["reasoning", "reasoning_text"])
def test_both_spellings_of_reasoning_deltas_fold(spelling: str) -> None:
    start = [added(0, {"type": "reasoning", "id": "r", "summary": []})]
    deltas = [event(f"{spelling}.delta", **at(0, item_id="r"), delta=d) for d in ("thi", "nk")]
    made = fold([*start, *deltas])
    want = [{"type": "reasoning_text", "text": "think"}]
    assert json_of(made.response().output)[0]["content"] == want
    made.feed(event(f"{spelling}.done", **at(0, item_id="r"), text="thought"))
    assert json_of(made.response().output)[0]["content"] == [{**want[0], "text": "thought"}]


def test_a_pair_of_surrogates_in_two_deltas_is_one_character() -> None:
    halves = [b'"\\ud83d"', b'"\\ude00!"']
    made = fold([added(0, message())])
    for half in halves:
        source = wire.encode(event("output_text.delta", **at(0), delta="HALF"))
        made.feed(wire.decode_event(source.replace(b'"HALF"', half)))
        made.item_at(0)  # a look in between does not part them
    assert texts(made) == ["\U0001f600!"]


def test_every_kind_of_delta_goes_where_it_belongs() -> None:
    made = fold(
        [
            added(0, {"type": "reasoning", "id": "r", "summary": []}),
            event("reasoning_summary_text.delta", **in_summary(0), delta="a"),
            event("reasoning_summary_text.delta", **in_summary(1), delta="b"),
            added(1, message("m", status="in_progress")),
            event("output_text.delta", **at(1), delta="x", logprobs=[logprob("x")]),
            event("output_text.delta", **at(1), delta="y", logprobs=[logprob("y")]),
            event("refusal.delta", **at(1, 1), delta="no"),
            event("refusal.delta", **at(1, 1), delta="!"),
            added(2, call("f", "c")),
            event("function_call_arguments.delta", item_id="f", output_index=2, delta='{"a"'),
            event("function_call_arguments.delta", item_id="f", output_index=2, delta=":1}"),
        ]
    )
    thought, said, called = json_of(made.response().output)
    assert [part["text"] for part in thought["summary"]] == ["a", "b"]
    assert said["content"] == [
        {
            "type": "output_text",
            "text": "xy",
            "annotations": [],
            "logprobs": [logprob("x"), logprob("y")],
        },
        {"type": "refusal", "refusal": "no!"},
    ]
    assert said["status"] == "in_progress"
    assert called["arguments"] == '{"a":1}'


def test_what_is_done_overwrites_what_the_deltas_said() -> None:
    made = fold(
        [
            added(0, message()),
            event("output_text.delta", **at(0), delta="abc"),
            event("output_text.done", **at(0), text="ABC"),
            event("output_text.delta", **at(0), delta="d"),
            event("refusal.delta", **at(0, 1), delta="x"),
            event("refusal.done", **at(0, 1), refusal="X"),
            added(1, call("f", "c")),
            event("function_call_arguments.delta", item_id="f", output_index=1, delta="{"),
            event("function_call_arguments.done", item_id="f", output_index=1, arguments="{}"),
        ]
    )
    said, called = json_of(made.response().output)
    assert [part.get("text", part.get("refusal")) for part in said["content"]] == ["ABCd", "X"]
    assert called["arguments"] == "{}"
    made.feed(done(0, message("m", "whole")))
    assert texts(made)[0] == "whole"


def test_a_part_comes_whole() -> None:
    made = fold(
        [
            added(0, message()),
            event("content_part.added", **at(0), part={"type": "output_text", "text": "a"}),
            event("output_text.delta", **at(0), delta="b"),
        ]
    )
    assert texts(made) == ["ab"]
    part = {"type": "output_text", "text": "AB", "annotations": [], "acme:x": [1]}
    made.feed(event("content_part.done", **at(0), part=part))
    made.feed(event("output_text.delta", **at(0, 1), delta="c"))
    assert json_of(made.response().output)[0]["content"][0] == part
    assert texts(made) == ["ABc"]


def test_annotations_come_in_any_order() -> None:
    def citation(url: str) -> dict[str, Any]:
        return {"type": "url_citation", "url": url, "title": "", "start_index": 0, "end_index": 1}

    made = fold(
        [
            added(0, message("m", "text")),
            annotated(2, citation("c")),
            annotated(0, citation("a")),
            annotated(1, None),
        ]
    )
    (said,) = json_of(made.response().output)
    assert said["content"][0]["annotations"] == [citation("a"), citation("c")]


def test_unknown_members_of_an_item_survive_its_deltas() -> None:
    made = fold(
        [
            added(0, {**message("m"), "acme:x": {"n": 1}}),
            event("output_text.delta", **at(0), delta="hi"),
            added(1, {"type": "acme:thing", "id": "t", "b": 1, "a": 2}),
        ]
    )
    said, thing = json_of(made.response().output)
    assert said["acme:x"] == {"n": 1}
    assert said["content"][0]["text"] == "hi"
    assert list(thing.items()) == [("type", "acme:thing"), ("id", "t"), ("b", 1), ("a", 2)]


def test_text_whose_item_or_part_never_opened_is_kept() -> None:
    made = fold(
        [
            event("output_text.delta", **at(0), delta="a"),
            event("output_text.delta", **at(0), delta="b"),
            event("reasoning.delta", **at(1, item_id="r"), delta="c"),
            event("function_call_arguments.delta", item_id="f", output_index=2, delta="lost"),
        ]
    )
    said, thought = made.response().output
    assert (said.id, getattr(said, "text", "")) == ("m", "ab")
    assert isinstance(thought, wire.Reasoning)
    assert thought.content == (wire.ReasoningText(text="c"),)


def test_what_names_nothing_sensible_is_ignored() -> None:
    before = [added(0, message("m", "text")), added(1, {"type": "acme:thing"})]
    for odd in (
        event("function_call_arguments.delta", item_id="m", output_index=0, delta="x"),
        event("refusal.delta", **at(0), delta="x"),
        event("reasoning.delta", **at(0), delta="x"),
        event("output_text.delta", **at(1), delta="x"),
        event("output_text.delta", **at(-1), delta="x"),
        event("output_text.delta", **at(0, -1), delta="x"),
        event("content_part.added", **at(0, -1), part={"type": "output_text", "text": "x"}),
        annotated(-1, {"type": "x"}),
        added(-1, message("n")),
        added(0, None),
        done(5, None),
        event("acme.unknown", output_index=0),
        wire.decode_event('{"type":"acme:heartbeat"}'),
    ):
        assert fold([*before, odd]).response() == fold(before).response(), odd.type


# --- indexes ------------------------------------------------------------------------------


def test_calls_streamed_at_one_index_are_different_calls() -> None:
    made = Fold()
    arguments = []
    for n in range(3):
        made.feed(added(0, call(None, f"c{n}")))
        made.feed(
            event("function_call_arguments.delta", item_id="", output_index=0, delta=f'{{"n":{n}}}')
        )
        here = made.item_at(0)
        assert isinstance(here, wire.FunctionCall)
        arguments.append(here.arguments)
        assert made.position(0) == n
        made.feed(done(0, call(None, f"c{n}", here.arguments)))
    assert arguments == ['{"n":0}', '{"n":1}', '{"n":2}']
    assert [getattr(i, "call_id", "") for i in made.response().output] == ["c0", "c1", "c2"]
    assert made.reused_indexes() == (0,)


def test_after_a_reuse_an_index_that_was_not_used_stands_at_the_end() -> None:
    made = fold(
        [
            added(0, call("a", "a")),
            done(0, call("a", "a")),
            added(0, call("b", "b")),
            added(1, message("m")),
            event("output_text.delta", **at(1), delta="x"),
        ]
    )
    assert [item.id for item in made.response().output] == ["a", "b", "m"]
    assert [made.position(0), made.position(1), made.position(2)] == [1, 2, None]
    assert made.reused_indexes() == (0,)


def test_the_same_item_at_a_closed_index_is_the_same_item() -> None:
    made = fold([added(0, message("m")), done(0, message("m", "a")), done(0, message("m", "b"))])
    assert texts(made) == ["b"]
    assert made.reused_indexes() == ()


def test_an_id_that_changes_while_an_item_is_open_is_the_same_item() -> None:
    made = fold([added(0, message("m1")), done(0, message("m2", "x"))])
    assert [item.id for item in made.response().output] == ["m2"]


def test_items_may_open_in_any_order() -> None:
    made = fold([added(7, message("b", "b")), added(2, message("a", "a"))])
    assert texts(made) == ["a", "b"]
    assert [made.position(7), made.position(2), made.position(0)] == [7, 2, None]
    assert made.item(7) == made.item_at(7)
    assert made.item(0) is None
    assert made.item_at(0) is None


# --- snapshots ------------------------------------------------------------------------------


def test_a_snapshot_without_output_keeps_the_items() -> None:
    made = fold(
        [response("created"), added(0, message("m", "x")), response("in_progress", model="n")]
    )
    assert texts(made) == ["x"]
    assert made.response().model == "n"


def test_a_snapshot_with_output_replaces_the_items() -> None:
    made = fold([added(0, message("m", "x")), response("in_progress", [message("m", "y")])])
    made.feed(event("output_text.delta", **at(0), delta="z"))
    assert texts(made) == ["yz"]


def test_after_a_reuse_a_snapshot_only_adds_items() -> None:
    reuse = [added(0, call("a", "a")), done(0, call("a", "a")), added(0, call("b", "b"))]
    listed = [call("b", "b"), message("new", "n"), message(None, "without an id")]
    made = fold([*reuse, response("in_progress", listed)])
    assert [item.id for item in made.response().output] == ["a", "b", "new"]
    made.feed(response("completed", [call("b", "b")]))
    assert [item.id for item in made.response().output] == ["b"]


def test_an_item_that_a_snapshot_closed_is_closed() -> None:
    snapshot = response("in_progress", [message("m", "x", status="completed")])
    made = fold([snapshot, added(0, message("n", "y"))])
    assert texts(made) == ["x", "y"]
    assert made.reused_indexes() == (0,)


def test_what_was_closed_stays_closed_in_a_snapshot() -> None:
    made = fold(
        [
            added(0, message("m")),
            done(0, message("m", "x")),
            response("in_progress", [message("m", "x")]),
            added(0, message("n", "y")),
        ]
    )
    assert texts(made) == ["x", "y"]


# --- errors ----------------------------------------------------------------------------------

ERROR = {"type": "server_error", "code": "c", "message": "oops", "param": None}


def error_event() -> wire.StreamEvent:
    return wire.decode_event(json.dumps({"type": "error", "sequence_number": 1, "error": ERROR}))


def test_nothing_folds_to_a_bare_response() -> None:
    bare = Fold().response()
    assert (bare.id, bare.status, bare.output) == ("", "in_progress", ())


def test_an_error_alone_folds_to_a_bare_failed_response() -> None:
    made = fold([error_event()]).response()
    assert (made.id, made.status, made.output) == ("", "failed", ())
    assert made.error
    assert made.error.message == "oops"


def test_an_error_fails_the_response_and_keeps_its_items() -> None:
    made = fold([response("created"), added(0, message("m", "x")), error_event()])
    failed = made.response()
    assert (failed.id, failed.status, texts(made)) == ("resp_1", "failed", ["x"])
    made.feed(response("failed", [message("m", "x")], error={"message": "in full"}))
    assert made.response().error == wire.ErrorPayload(message="in full")


def test_a_failed_response_that_does_not_say_why_keeps_the_error() -> None:
    made = fold([response("created"), error_event(), response("failed")])
    assert made.response().error
    assert made.response().status == "failed"


# --- copies and cost ---------------------------------------------------------------------------


def test_a_copy_of_a_fold_goes_its_own_way() -> None:
    made = fold(
        [
            response("created"),
            added(0, message("m")),
            event("output_text.delta", **at(0), delta="a"),
        ]
    )
    twin = made.copy()
    made.feed(event("output_text.delta", **at(0), delta="b"))
    twin.feed(event("output_text.delta", **at(0), delta="c"))
    assert (texts(made), texts(twin)) == (["ab"], ["ac"])


def test_a_look_gives_the_same_object_until_something_comes() -> None:
    made = fold([added(0, message("m")), event("output_text.delta", **at(0), delta="a")])
    first = made.item_at(0)
    assert made.item_at(0) is made.response().output[0] is first
    made.feed(event("output_text.delta", **at(0), delta="b"))
    assert made.item_at(0) is not first


def cost(deltas: int) -> float:
    one = event("output_text.delta", **at(0), delta="hello ")
    made = fold([added(0, message("m"))])
    start = time.process_time()
    for _ in range(deltas):
        made.feed(one)
    text = made.response().output_text
    spent = time.process_time() - start
    assert len(text) == deltas * 6
    return spent


def test_folding_deltas_is_linear() -> None:
    small = min(cost(5_000) for _ in range(3))
    large = min(cost(80_000) for _ in range(3))
    assert large < small * 16 * 4


@given(st.lists(st.text(), max_size=20), st.lists(st.booleans(), min_size=20, max_size=20))
def test_looking_at_any_time_changes_nothing(deltas: list[str], looks: list[bool]) -> None:
    made = fold([added(0, message("m"))])
    for delta, look in zip(deltas, looks, strict=False):
        made.feed(event("output_text.delta", **at(0), delta=delta))
        if look:
            made.item_at(0)
    joined = "".join(deltas).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert "".join(texts(made)) == joined


indexes = st.integers(0, 2)
items = st.sampled_from(
    [
        message("a"),
        message("b", "x"),
        message(None, "y"),
        call("c", "1"),
        call("d", "2"),
        call(None, "3"),
        call(None, "4"),
    ]
)
streams = st.lists(
    st.one_of(
        st.builds(added, indexes, items),
        st.builds(done, indexes, items),
        st.builds(
            lambda index, part: event("output_text.delta", **at(index, part), delta="x"),
            indexes,
            indexes,
        ),
        st.builds(
            lambda index: event(
                "function_call_arguments.delta", item_id="c", output_index=index, delta="y"
            ),
            indexes,
        ),
        st.builds(response, st.just("in_progress"), st.lists(items, max_size=2)),
    ),
    max_size=20,
)


@given(streams)
def test_whatever_comes_an_index_names_an_item_of_the_output(
    events: list[wire.StreamEvent],
) -> None:
    made, looked_at = Fold(), Fold()
    for one in events:
        made.feed(one)
        looked_at.feed(one)
        output = looked_at.response().output
        positions = [looked_at.position(index) for index in range(3)]
        for index, position in enumerate(positions):
            here = looked_at.item_at(index)
            assert (here is None) == (position is None)
            assert here is None or any(here is item for item in output)
        if isinstance(one, (wire.OutputItemAdded, wire.OutputItemDone)):
            assert looked_at.item_at(one.output_index) is one.item
        elif isinstance(one, wire.OutputTextDelta):
            assert looked_at.item_at(one.output_index) is not None
    assert made.response() == looked_at.response() == made.copy().response()
    assert made.reused_indexes() == looked_at.reused_indexes()


@given(streams)
def test_without_snapshots_nothing_that_was_done_is_lost(events: list[wire.StreamEvent]) -> None:
    made = Fold()
    finished: list[wire.Item] = []
    for one in events:
        if isinstance(one, (wire.OutputItemAdded, wire.OutputItemDone)) and one.item:
            made.feed(one)
            if isinstance(one, wire.OutputItemDone):
                finished.append(one.item)
    kept = {name(item) for item in made.response().output}
    assert {name(item) for item in finished} <= kept


def name(item: wire.Item) -> object:
    return item.call_id if isinstance(item, wire.FunctionCall) else item.id
