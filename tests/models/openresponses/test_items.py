"""The items of an Open Responses request: what is repaired on the way out, and what is said of it.

The transcript and the request hash never see any of it.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from perdure.agent import Agent
from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items, Transcript, filtered
from perdure.models.openresponses import compact_body, losses, request_body
from perdure.testing import ScriptedModel
from perdure.wire import (
    CompactRequest,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    OutputItemDone,
    OutputText,
    Reasoning,
    ReasoningText,
    Request,
    Response,
    ResponseCompleted,
    SummaryText,
    assistant,
    decode_item,
    encode,
    function_call,
    function_call_output,
    user,
    with_unknown,
)
from tests.loop.fakes import Tool, listening
from tests.models.legal import check_openresponses

THOUGHT = Reasoning(id="rs_1", summary=(), encrypted_content="sig")
AGAIN = Reasoning(id="rs_2", summary=(), encrypted_content="gis")
OPEN = Reasoning(id="rs_3", summary=(), content=(ReasoningText(text="I think."),))
SHOWN = Reasoning(id="rs_3", summary=(SummaryText(text="I think."),))
EMPTY = Reasoning(id="rs_4", summary=())
FOREIGN = with_unknown(
    Reasoning(summary=(), encrypted_content="claude's"), {"perdure:provider": "anthropic"}
)
CALL = FunctionCall(id="fc_1", call_id="c1", name="a", arguments="{}")
OUTPUT = function_call_output("c1", "x")
SAID = assistant("So.", id="msg_1")
SEARCH = decode_item(b'{"type":"web_search_call","id":"ws_1","status":"completed"}')
NOTE = decode_item(b'{"type":"acme:note","id":"n1","text":"beside"}')
RAN = decode_item(b'{"type":"anthropic:server_tool_use","id":"st_1","block":{}}')


def request(*items: Item) -> ModelRequest:
    return ModelRequest(settings=Request(model="m"), input=Items.of(items))


def sent(*items: Item) -> list[dict[str, Any]]:
    """The items of the body."""
    body: Any = request_body(request(*items)).value()
    return list(body["input"])


def types(*items: Item) -> str:
    return " ".join(one["type"] for one in sent(*items))


def ids(*items: Item) -> list[object]:
    return [one.get("id") for one in sent(*items) if one.get("role") != "user"]


def told(*items: Item) -> list[tuple[str, str]]:
    return [(loss.at, loss.what) for loss in losses(request(*items))]


# --- thoughts -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "kinds"),
    [
        pytest.param([THOUGHT, user("never mind")], "message message", id="a user speaks"),
        pytest.param([THOUGHT], "message", id="nothing"),
        pytest.param([THOUGHT, AGAIN], "message", id="another thought"),
        pytest.param([THOUGHT, NOTE], "message acme:note", id="a note of the application's"),
        pytest.param([THOUGHT, RAN], "message", id="what another provider ran"),
        pytest.param([SAID, THOUGHT, user("and?")], "message message message", id="said before"),
    ],
)
def test_a_thought_without_what_it_led_to_is_left_out(items: list[Item], kinds: str) -> None:
    assert types(user("go"), *items) == kinds
    lost = [loss for loss in losses(request(user("go"), *items)) if loss.what == "reasoning"]
    assert lost
    assert all("led to" in loss.reason for loss in lost)


@pytest.mark.parametrize(
    "items",
    [
        [THOUGHT, CALL, OUTPUT],
        [THOUGHT, SAID],
        [THOUGHT, AGAIN, SAID],
        [THOUGHT, SEARCH, AGAIN, SAID],
        [THOUGHT, NOTE, SAID],
        [THOUGHT, SAID, CALL, OUTPUT],
    ],
    ids=lambda items: " ".join(item.type for item in items),
)
def test_a_whole_response_goes_as_it_came(items: list[Item]) -> None:
    assert sent(user("go"), *items)[1:] == [request_value(item) for item in items]
    assert told(user("go"), *items) == []


def request_value(item: Item) -> Any:
    import json

    return json.loads(encode(item))


def test_a_thought_of_another_maker_is_left_out_and_said_to_be() -> None:
    assert types(user("go"), FOREIGN, CALL, OUTPUT) == "message function_call function_call_output"
    assert told(user("go"), FOREIGN, CALL, OUTPUT) == [("input[1]", "reasoning")]


@pytest.mark.parametrize("thought", [EMPTY, SHOWN], ids=["empty", "a summary"])
def test_a_thought_that_a_server_would_have_to_look_up_is_left_out(thought: Item) -> None:
    assert types(thought, SAID) == "message"
    assert told(thought, SAID) == [("input[0]", "reasoning")]


def test_a_thought_that_is_not_sealed_goes_without_its_id() -> None:
    first, second = sent(OPEN, SAID)
    content = [{"type": "reasoning_text", "text": "I think."}]
    assert first == {"type": "reasoning", "summary": [], "content": content}
    assert "id" not in second


def test_what_a_server_ran_itself_goes_with_its_id_and_its_thought_or_not_at_all() -> None:
    assert ids(THOUGHT, SEARCH, SAID) == ["rs_1", "ws_1", "msg_1"]
    assert ids(SEARCH, SAID) == ["ws_1", None]  # a model that does not think
    assert types(FOREIGN, SEARCH, SAID) == "message"
    assert types(FOREIGN, SEARCH, THOUGHT, SEARCH, SAID) == "reasoning web_search_call message"
    assert told(FOREIGN, SEARCH, SAID)[1] == ("input[1]", "web_search_call")


def test_what_a_filter_left_out_is_known() -> None:
    """The thoughts that the loop keeps from a model never reach its adapter."""
    whole: list[Item] = [
        user("go"),
        THOUGHT,
        SEARCH,
        SAID,
        user("on"),
        SEARCH,
        SAID,
        AGAIN,
        SEARCH,
        SAID,
    ]
    kept = filtered(whole, lambda item: item is not THOUGHT)
    kept = filtered(kept, lambda item: item is not NOTE)
    request = ModelRequest(settings=Request(model="m"), input=kept)
    body: Any = request_body(request).value()
    named = [(one["type"], one.get("id")) for one in body["input"] if one.get("role") != "user"]
    assert named == [
        ("message", None),
        ("web_search_call", "ws_1"),
        ("message", None),
        ("reasoning", "rs_2"),
        ("web_search_call", "ws_1"),
        ("message", "msg_1"),
    ]
    assert [loss.at for loss in losses(request)] == ["input[1]"]


# --- ids --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        pytest.param([CALL, OUTPUT], [None, None], id="its thought was left out"),
        pytest.param([SAID], [None], id="a message alone"),
        pytest.param([THOUGHT, CALL, OUTPUT], ["rs_1", "fc_1", None], id="its thought is there"),
        pytest.param([FOREIGN, CALL, OUTPUT], [None, None], id="a foreign thought"),
        pytest.param([THOUGHT, SAID, FOREIGN, CALL], ["rs_1", "msg_1", None, None], id="half"),
        pytest.param([THOUGHT, SAID, user("on"), CALL], ["rs_1", "msg_1", None, None], id="next"),
    ],
)
def test_no_id_links_to_a_thought_that_is_not_there(
    items: list[Item], expected: list[object]
) -> None:
    assert ids(user("go"), *items) == expected


async def test_a_switch_of_models_leaves_no_dangling_id_and_changes_no_record() -> None:
    """The transcript and the request that is hashed keep what the body leaves out."""
    whole = Response(id="resp_1", status="completed", output=(THOUGHT, CALL))
    first = ScriptedModel(
        [
            [
                OutputItemDone(output_index=0, item=THOUGHT),
                OutputItemDone(output_index=1, item=CALL),
                ResponseCompleted(response=whole),
            ]
        ]
    )
    second = ScriptedModel(["two"], after=1)
    session, _ = listening(Agent(first, model_name="a", tools=[Tool("a")], max_turns=1))
    await session.send("go")
    session.use(Agent(second, model_name="b"))
    await session.send("on")
    body: Any = request_body(second.requests[0]).value()
    assert "reasoning" not in [one["type"] for one in body["input"]]
    assert [o.get("id") for o in body["input"] if o["type"] == "function_call"] == [None]
    assert CALL in list(second.requests[0].input)
    assert THOUGHT in list(session.state.transcript)


# --- calls and outputs ---------------------------------------------------------------------------


def test_a_call_without_an_output_gets_one_behind_its_response() -> None:
    items: list[Item] = [user("go"), CALL, function_call("c2", "b"), user("never mind"), SAID]
    assert types(*items) == (
        "message function_call function_call function_call_output function_call_output"
        " message message"
    )
    assert [one["call_id"] for one in sent(*items)[3:5]] == ["c1", "c2"]
    assert told(*items) == [("input[1]", "function_call"), ("input[2]", "function_call")]


def test_an_output_that_comes_late_is_the_output() -> None:
    items: list[Item] = [user("go"), CALL, user("wait"), OUTPUT]
    assert types(*items) == "message function_call message function_call_output"
    assert told(*items) == []


def test_outputs_without_a_call_and_second_ones_are_left_out() -> None:
    items: list[Item] = [
        function_call_output("c0", "?"),
        CALL,
        OUTPUT,
        function_call_output("c1", "again"),
    ]
    assert [one.get("output") for one in sent(*items)] == [None, "x"]
    assert told(*items) == [
        ("input[0]", "function_call_output"),
        ("input[3]", "function_call_output"),
    ]


def test_a_call_id_that_comes_again_is_sent_as_another() -> None:
    items: list[Item] = [CALL, OUTPUT, CALL, function_call_output("c1", "y"), CALL]
    found = sent(*items)
    called = [one["call_id"] for one in found if one["type"] == "function_call"]
    assert len(set(called)) == 3
    assert [one["call_id"] for one in found if "output" in one] == called
    assert told(CALL, CALL, OUTPUT) == [("input[1]", "function_call")]


def test_ids_and_names_that_a_server_refuses_are_replaced() -> None:
    long = "x" * 65
    call, output = sent(function_call(long, "math.add"), function_call_output(long, "1"))
    assert len(call["call_id"]) <= 64
    assert call["call_id"] == output["call_id"]
    assert call["name"] == "math_add"
    assert told(function_call(long, "math.add"), function_call_output(long, "1")) == [
        ("input[0].name", "math.add")
    ]


# --- marks, and what is another provider's ------------------------------------------------


def test_marks_stay_behind_and_are_said_to() -> None:
    part = with_unknown(OutputText(text="So.", annotations=()), {"perdure:anthropic": {"x": 1}})
    items: list[Item] = [
        with_unknown(CALL, {"perdure:thought_signature": "s", "kept": 1}),
        with_unknown(OUTPUT, {"perdure:bedrock": {}}),
        Message(role="assistant", content=(part,)),
    ]
    assert b"perdure:" not in b"".join(request_body(request(*items)).fragments)
    assert sent(*items)[0]["kept"] == 1
    assert told(*items) == [
        ("input[0].perdure:thought_signature", "perdure:thought_signature"),
        ("input[1].perdure:bedrock", "perdure:bedrock"),
        ("input[2].content[0].perdure:anthropic", "perdure:anthropic"),
    ]


def test_items_parts_and_citations_of_other_providers_stay_behind() -> None:
    message = decode_item(
        b'{"type":"message","role":"assistant","content":[{"type":"output_text","text":"So.",'
        b'"annotations":[{"type":"anthropic:citation","citation":{}},{"type":"acme:mark"}]},'
        b'{"type":"gemini:executableCode","part":{}}]}'
    )
    alone = decode_item(
        b'{"type":"message","role":"assistant","content":[{"type":"bedrock:x","block":{}}]}'
    )
    found = sent(RAN, message, alone, NOTE)
    assert [one["type"] for one in found] == ["message", "acme:note"]
    (part,) = found[0]["content"]
    assert part["annotations"] == [{"type": "acme:mark"}]
    assert told(RAN, message, alone, NOTE) == [
        ("input[0]", "anthropic:server_tool_use"),
        ("input[1].content[0].annotations[0]", "anthropic:citation"),
        ("input[1].content[1]", "gemini:executableCode"),
        ("input[2].content[0]", "bedrock:x"),
    ]


def test_a_history_to_fold_goes_out_by_the_same_rules() -> None:
    history: tuple[Item, ...] = (user("go"), FOREIGN, CALL, OUTPUT, THOUGHT)
    body: Any = compact_body(CompactRequest(model="m", input=history)).value()
    assert [one["type"] for one in body["input"]] == [
        "message",
        "function_call",
        "function_call_output",
    ]
    assert body["model"] == "m"
    assert compact_body(CompactRequest(input=(user("go"),))).value() == {"input": sent(user("go"))}


# --- growth -------------------------------------------------------------------------------

EVERY: list[Item] = [
    user("hi"),
    THOUGHT,
    AGAIN,
    OPEN,
    SHOWN,
    EMPTY,
    FOREIGN,
    CALL,
    OUTPUT,
    function_call("c2", "b.c"),
    function_call_output("c2", "y"),
    SAID,
    SEARCH,
    NOTE,
    RAN,
]


@given(st.lists(st.sampled_from(EVERY), max_size=14))
@settings(max_examples=200, deadline=None)
def test_a_transcript_that_grows_sends_what_it_would_send_at_once(items: list[Item]) -> None:
    transcript = Transcript()
    snapshots = []
    for item in items:
        transcript.append(item)
        snapshots.append(transcript.snapshot())
    for snapshot in [*snapshots, *reversed(snapshots)]:
        grown = ModelRequest(settings=Request(model="m"), input=snapshot)
        whole = request(*snapshot)
        body = request_body(grown)
        assert b"".join(body.fragments) == b"".join(request_body(whole).fragments)
        assert body.length == sum(map(len, body.fragments))
        assert losses(grown) == losses(whole)
        check_openresponses(body.value())


def test_what_is_settled_is_encoded_once() -> None:
    transcript = Transcript(
        [user("go"), THOUGHT, CALL, OUTPUT, FunctionCallOutput(call_id="c9", output="lost")]
    )
    first = request_body(ModelRequest(settings=Request(), input=transcript.snapshot()))
    for item in (SAID, user("more")):
        transcript.append(item)
    second = request_body(ModelRequest(settings=Request(), input=transcript.snapshot()))
    assert len(first.fragments) == 6
    assert all(a is b for a, b in zip(first.fragments[:5], second.fragments, strict=False))
