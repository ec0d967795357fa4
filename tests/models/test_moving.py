"""Conversations that one provider held, sent to another: legal requests, and every loss told."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.models import Body, anthropic, bedrock, gemini
from perdure.models.losses import Loss
from perdure.wire import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    OutputText,
    Reasoning,
    Request,
    Response,
    UnknownItem,
    function_call_output,
    user,
)
from tests.models.anthropic import reading as anthropic_reading
from tests.models.bedrock import reading as bedrock_reading
from tests.models.gemini import reading as gemini_reading
from tests.models.recorded import CLOCK, Count, Interaction, interactions, whole


class Side(NamedTuple):
    """A provider, as where a conversation comes from and where it goes."""

    model: str
    decoder: Callable[..., Any]
    request_of: Callable[[Interaction], ModelRequest]
    body: Callable[[ModelRequest], Body]
    losses: Callable[[ModelRequest], tuple[Loss, ...]]
    check: Callable[[Any], None]


# --- what is legal -------------------------------------------------------------------------


def _pairs(turns: list[tuple[str, list[str], list[str]]]) -> None:
    """Roles alternate; the turn after calls answers each of them, first and in their order."""
    owed: list[str] = []
    before = ""
    for role, calls, results in turns:
        assert role != before
        assert results == owed
        owed, before = calls, role
    assert owed == []


def check_anthropic(body: Any) -> None:
    turns: list[tuple[str, list[str], list[str]]] = []
    for message in body["messages"]:
        blocks = message["content"]
        assert blocks
        assert all(block.get("text", "x").strip() for block in blocks)
        kinds = [block["type"] for block in blocks]
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert kinds[: len(results)] == ["tool_result"] * len(results)
        assert all(re.fullmatch(r"[A-Za-z0-9_-]+", call) for call in calls)
        assert all(isinstance(block["input"], dict) for block in blocks if "input" in block)
        if message["role"] != "system":
            turns.append((message["role"], calls, results))
    _pairs(turns)


def check_gemini(body: Any) -> None:
    turns: list[tuple[str, list[str], list[str]]] = []
    assert body["contents"][0]["role"] == "user"
    for content in body["contents"]:
        parts = content["parts"]
        assert parts
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        answers = [part["functionResponse"]["id"] for part in parts if "functionResponse" in part]
        assert len(answers) in {0, len(parts)}
        assert all(re.fullmatch(r"[A-Za-z_][\w.:-]{0,63}", call["name"]) for call in calls)
        assert all(isinstance(call["args"], dict) for call in calls)
        if turns and turns[-1][0] == content["role"] == "user" and not answers:
            continue  # the user speaks, after the answers
        turns.append((content["role"], [call["id"] for call in calls], answers))
    _pairs(turns)


def check_bedrock(body: Any) -> None:
    turns: list[tuple[str, list[str], list[str]]] = []
    for message in body["messages"]:
        blocks = message["content"]
        assert blocks
        assert all(block.get("text", "x") for block in blocks)
        calls = [b["toolUse"]["toolUseId"] for b in blocks if _client_call(b)]
        results = [b["toolResult"]["toolUseId"] for b in blocks if "toolResult" in b]
        if message["role"] == "assistant":
            results = []  # of its own tools
        assert all(re.fullmatch(r"[a-zA-Z0-9_.:-]{1,64}", call) for call in calls)
        turns.append((message["role"], calls, results))
    _pairs(turns)


def _client_call(block: dict[str, Any]) -> bool:
    return "toolUse" in block and "type" not in block["toolUse"]


SIDES = {
    "anthropic": Side(
        "claude-opus-4-8",
        anthropic.StreamDecoder,
        anthropic_reading.request_of,
        anthropic.request_body,
        anthropic.losses,
        check_anthropic,
    ),
    "gemini": Side(
        "gemini-3-pro-preview",
        gemini.StreamDecoder,
        gemini_reading.request_of,
        gemini.request_body,
        gemini.losses,
        check_gemini,
    ),
    "bedrock": Side(
        "us.amazon.nova-2-lite-v1:0",
        bedrock.StreamDecoder,
        bedrock_reading.request_of,
        bedrock.request_body,
        bedrock.losses,
        check_bedrock,
    ),
}

# --- what was said -------------------------------------------------------------------------


def conversations(shared: Path, name: str) -> Iterator[list[Item]]:
    """The recorded conversations of a provider, each answered and gone on with."""
    side = SIDES[name]
    for one in interactions(shared, name):
        asks = one.request and ({"messages", "contents"} & one.request.keys())
        if not asks or one.status != 200 or "count_tokens" in one.path or "/invoke" in one.path:
            continue
        request = side.request_of(one)
        last = whole(side.decoder(request, ids=Count(), clock=CLOCK), one.answer)[-1]
        response: Response = last.response  # type: ignore[union-attr]
        calls = [item for item in response.output if isinstance(item, FunctionCall)]
        outputs = [function_call_output(call.call_id, "done") for call in reversed(calls)]
        yield [*request.input, *response.output, *outputs, user("Go on.")]


def private(item: Item, target: str) -> bool:
    """Whether an item holds what only its maker takes."""
    match item:
        case Reasoning():
            return item.unknown.get("perdure:provider") != target
        case UnknownItem():
            return not item.type.startswith(f"{target}:")
        case _:
            return False


NO_TEXT = {"input_file", "input_image", "input_video", "cache_control"}


@pytest.mark.parametrize("target", SIDES)
@pytest.mark.parametrize("source", SIDES)
def test_a_conversation_moves_and_says_what_it_loses(
    shared: Path, source: str, target: str
) -> None:
    pytest.importorskip("botocore")
    side = SIDES[target]
    for items in conversations(shared, source):
        settings = Request(model=side.model)
        request = ModelRequest(settings=settings, input=Items.of(items))
        body = side.body(request)
        side.check(body.value())
        found = side.losses(request)
        lost = {loss.at for loss in found}
        for index, item in enumerate(items):
            if private(item, target):
                assert f"input[{index}]" in lost
        for loss in found:
            _check_truth(loss, items, target)


def _check_truth(loss: Loss, items: list[Item], target: str) -> None:
    """What is said to be lost is there, and nothing that the target takes is."""
    index = int(loss.at.split("[")[1].split("]")[0])
    item = items[index]
    rest = loss.at.partition("]")[2]
    match item:
        case Message(role="system" | "developer") if loss.what == "system":
            assert index > 0
        case Message() if ".annotations" in rest:
            part = item.content[int(rest.split("[")[1].split("]")[0])]
            assert isinstance(part, OutputText)
            assert part.annotations
        case Message() | FunctionCallOutput():
            assert loss.what in NO_TEXT or "/" in loss.what or ":" in loss.what or _blank(item)
        case FunctionCall():
            assert loss.what == "arguments" or loss.at.endswith(".name")
        case _:
            assert private(item, target) or isinstance(item, Reasoning)
            assert loss.what == item.type


def _blank(item: Message | FunctionCallOutput) -> bool:
    return bool(item.text) and not item.text.strip()


@pytest.mark.parametrize("target", SIDES)
@pytest.mark.parametrize("source", SIDES)
def test_no_state_of_one_provider_reaches_another(shared: Path, source: str, target: str) -> None:
    pytest.importorskip("botocore")
    side = SIDES[target]
    for items in conversations(shared, source):
        request = ModelRequest(settings=Request(model=side.model), input=Items.of(items))
        sent = b"".join(side.body(request).fragments)
        assert b"perdure:" not in sent
        for item in items:
            if isinstance(item, Reasoning) and item.encrypted_content:
                own = source == target
                assert (item.encrypted_content.encode() in sent) == own
