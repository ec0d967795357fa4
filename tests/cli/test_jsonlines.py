"""`--json`: one object a line, in a form that programs can rely on (docs/cli.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.jsonlines import event_line
from perdure.errors import Overloaded, rejection
from perdure.loop import ItemEnd, ModelBlocked, ModelRequest, Queued
from perdure.loop.transcript import Items
from perdure.testing import ScriptedModel, attempts, call, reasoning, turn
from perdure.testing.scripted import TurnLike
from perdure.wire import Request, decode_item, decode_response, encode, function_call, user
from tests.cli.terminal import Halting, Piped, Server, Terminal

SCRIPT: list[TurnLike] = [
    turn(
        reasoning("Both."),
        "Let me look, … \x9b31m.",
        call("stock", {"part": "bolt-m8"}),
        call("order", {"part": "x", "count": 101}),
    ),
    attempts(Overloaded("no room", status=503, retry_after=0.01), "We have 120."),
]

BASE = {"type", "run_id"}
TOOL = BASE | {"turn", "call_id", "name", "parent"}
ITEM = BASE | {"turn", "response_id", "hidden", "item"}

MEMBERS = {
    "run_start": BASE | {"source"},
    "turn_start": BASE | {"turn", "model", "losses"},
    "model_retry": BASE | {"turn", "attempt", "delay", "error", "losses"},
    "model_blocked": BASE | {"turn", "error"},
    "item_start": ITEM,
    "item_update": BASE | {"turn", "response_id", "event"},
    "item_end": ITEM,
    "response_end": BASE | {"turn", "attempts", "response"},
    "tool_start": TOOL | {"arguments"},
    "tool_dispatch": TOOL | {"effect", "idempotency_key"},
    "tool_update": TOOL | {"output"},
    "tool_end": TOOL | {"output", "error", "entered", "rejected", "held", "reason"},
    "turn_end": BASE | {"turn"},
    "queued": BASE | {"queue_id", "mode", "hidden", "item"},
    "run_end": BASE | {"reason", "cause", "error", "turns", "usage"},
    "result": BASE
    | {"status", "text", "cause", "hint", "turns", "usage", "items", "partial", "pending"}
    | {"exit_code"},
}
"""The members of each line. They are promised: a change here breaks programs."""


def lines_of(text: str) -> list[dict[str, Any]]:
    assert text.endswith("\n")
    return [json.loads(line) for line in text[:-1].split("\n")]


def of_type(lines: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["type"] == kind]


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    from tests.cli.conftest import TOOLS

    where = tmp_path_factory.mktemp("shop")
    (where / "shop.py").write_text(TOOLS)
    with Server(ScriptedModel(SCRIPT)) as server:
        options = ("--model", server.model, "--tool", "shop.py", "--json")
        done = Piped("run", "hi", *options, cwd=str(where))
    assert (done.code, done.err) == (0, "")
    return lines_of(done.out)


def test_every_line_has_the_members_that_are_promised(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        assert set(line) == MEMBERS[line["type"]]
    missing = set(MEMBERS) - {line["type"] for line in lines}
    assert missing == {"model_blocked", "tool_update", "queued"}
    assert len({line["run_id"] for line in lines}) == 1


def test_every_start_has_its_end_and_the_result_is_last(lines: list[dict[str, Any]]) -> None:
    kinds = [line["type"] for line in lines]
    assert kinds[0] == "run_start"
    assert kinds[-2:] == ["run_end", "result"]
    assert kinds.count("run_end") == kinds.count("result") == 1
    started = [line["call_id"] for line in of_type(lines, "tool_start")]
    ended = [line["call_id"] for line in of_type(lines, "tool_end")]
    assert sorted(started) == sorted(ended)


def test_the_lines_fold_to_the_result(lines: list[dict[str, Any]]) -> None:
    result = lines[-1]
    assert result["status"] == "done"
    assert result["exit_code"] == 0
    assert result["items"] == [line["item"] for line in of_type(lines, "item_end")]
    assert result["turns"] == len(of_type(lines, "turn_end"))
    updates = [line["event"] for line in of_type(lines, "item_update")]
    last = result["items"][-1]
    said = [
        event["delta"]
        for event in updates
        if event["type"] == "response.output_text.delta" and event["item_id"] == last["id"]
    ]
    assert "".join(said) == result["text"] == "We have 120."
    outputs = {line["call_id"]: line["output"] for line in of_type(lines, "tool_end")}
    for item in result["items"]:
        if item["type"] == "function_call_output":
            assert outputs[item["call_id"]] == item


def test_items_and_responses_are_those_of_the_wire(lines: list[dict[str, Any]]) -> None:
    for line in of_type(lines, "item_end"):
        text = json.dumps(line["item"])
        assert json.loads(encode(decode_item(text.encode()))) == line["item"]
    for line in of_type(lines, "response_end"):
        response = decode_response(json.dumps(line["response"]).encode())
        assert response.status == "completed"


def test_errors_have_their_class_and_what_the_server_said(lines: list[dict[str, Any]]) -> None:
    (retry,) = of_type(lines, "model_retry")
    assert retry["error"] == {
        "class": "Overloaded",
        "message": str(Overloaded("no room", status=503)),
        "status": 503,
        "code": None,
        "param": None,
        "retry_after": 0.01,
    }
    failed = [line for line in of_type(lines, "tool_end") if line["error"]]
    assert [line["error"] for line in failed] == [
        {"class": "ToolError", "message": "at most 100 pieces an order"}
    ]


def test_a_run_that_fails_ends_with_a_result_too() -> None:
    refused = rejection("no such model", status=404, code="model_not_found")
    with Server(ScriptedModel([refused])) as server:
        done = Piped("run", "hi", "--model", server.model, "--json")
    *_, end, result = lines_of(done.out)
    assert done.code == result["exit_code"] == 1
    assert (result["status"], result["text"]) == ("failed", "")
    assert "no such model" in result["cause"]
    assert result["hint"].startswith("check the model's name")
    assert end["error"]["class"] == "NotFound"
    assert done.err.startswith("perdure: the server refused the request (HTTP 404): no such model")


def test_a_command_that_cannot_begin_prints_no_line() -> None:
    done = Piped("run", "hi", "--model", "openai:gpt-5-mini", "--json")
    assert (done.code, done.out) == (2, "")
    assert "OPENAI_API_KEY" in done.err


def test_ctrl_c_ends_with_a_result_that_says_what_may_have_run(shop: Path) -> None:
    with Server(ScriptedModel([call("wait")])) as server:
        arguments = ("run", "hi", "--model", server.model, "--tool", "shop.py", "--json")
        with Terminal(*arguments, cwd=str(shop), env={"TERM": "dumb"}) as screen:
            screen.expect("waiting now")
            screen.interrupt()
            screen.ends(130)
            result = json.loads(screen.text.rstrip("\n").split("\n")[-1])
            assert (result["status"], result["exit_code"]) == ("aborted", 130)
            (pending,) = result["pending"]
            assert pending["reason"] == "aborted"
            assert pending["may_have_run"] is True
            assert pending["call"]["name"] == "wait"


def test_a_line_comes_as_soon_as_its_event() -> None:
    model = Halting(["The first words and the last."], at="words")
    with (
        Server(model) as server,
        Terminal("run", "hi", "--model", server.model, "--json") as screen,
    ):
        screen.expect('"delta":" words"')
        assert "last" not in screen.text
        model.go.set()
        screen.ends(0)


def test_a_terminal_gets_control_characters_as_escapes() -> None:
    with (
        Server(ScriptedModel(["\x1b[31m \x9b31m \x7f"])) as server,
        Terminal("run", "hi", "--model", server.model, "--json") as screen,
    ):
        screen.ends(0)
        assert not {"\x1b", "\x9b", "\x7f"} & set(screen.raw)
        result = json.loads(screen.text.rstrip("\n").split("\n")[-1])
        assert result["text"] == "\x1b[31m \x9b31m \x7f"


def test_a_value_with_ends_of_lines_in_its_source_is_one_line() -> None:
    item = decode_item(b'{"type": "acme:note",\r\n  "text": "a\\nb"\n}')
    line = event_line(ItemEnd(run_id="run_1", turn=1, item=item))
    assert line.count(b"\n") == 1
    assert b"\r" not in line
    assert json.loads(line)["item"] == {"type": "acme:note", "text": "a\nb"}


def test_half_a_character_is_kept() -> None:
    item = function_call("call_1", "half", '{"a":"\ud83d"}')
    line = event_line(ItemEnd(run_id="run_1", turn=1, item=item))
    assert json.loads(line)["item"]["arguments"] == '{"a":"\ud83d"}'


def test_the_rarer_events_have_their_members() -> None:
    request = ModelRequest(settings=Request(model="m"), input=Items.of([user("hi")]))
    blocked = ModelBlocked(run_id="r", turn=1, request=request, error=ValueError("no"))
    queued = Queued(run_id="r", queue_id="q", item=user("hi"), mode="steer")
    for event in (blocked, queued):
        assert set(json.loads(event_line(event))) == MEMBERS[event.type]
