"""What is legal in the requests of each provider: refused bodies are an AssertionError."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from perdure.models.dialects import Dialect


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


def check_openresponses(body: Any) -> None:
    """One output for each call, after it; no thought alone; no id without a thought before it."""
    found: list[dict[str, Any]] = [{"type": "message", **one} for one in body["input"]]
    called: list[str] = []
    answered: list[str] = []
    for one in found:
        if one["type"] == "function_call":
            called.append(one["call_id"])
            assert 0 < len(one["call_id"]) <= 64
            assert re.fullmatch(r"[A-Za-z0-9_-]+", one["name"])
            assert one["arguments"].strip()
        if one["type"] == "function_call_output":
            assert one["call_id"] in called
            answered.append(one["call_id"])
    assert sorted(answered) == sorted(called) == sorted(set(called))
    plain = [one for one in found if one["type"] != "acme:note"]
    for one, after in pairwise([*plain, {"type": "end"}]):
        if one["type"] == "reasoning":
            assert after["type"] not in {"function_call_output", "end"}
            assert after.get("role", "assistant") == "assistant"
    linked = False
    for one in plain:
        if one["type"] == "reasoning":
            linked = "id" in one
        elif one["type"] == "function_call_output" or one.get("role", "assistant") != "assistant":
            linked = False
        elif one["type"] in {"message", "function_call"}:
            assert linked or "id" not in one


def check_chat(body: Any, dialect: Dialect) -> None:
    """The rules that services have for the order and the shape of messages."""
    owed: list[str] = []
    last = ""
    for index, message in enumerate(body["messages"]):
        role, calls = message["role"], message.get("tool_calls", ())
        assert role in {"system", "user", "assistant", "tool", *(["developer"] * dialect.developer)}
        if role == "tool":
            assert owed.pop(0) == message["tool_call_id"]
        else:
            assert not owed
            assert message["content"] or calls or len(message) > 2
        owed += [call["id"] for call in calls]
        assert len(set(owed)) == len(owed)
        assert all(re.fullmatch(dialect.call_ids, call_id) for call_id in owed)
        if dialect.system_first:
            assert role != "system" or index == 0
        if dialect.merge_users:
            assert (role, last) != ("user", "user")
        if dialect.bridge:
            assert (role, last) != ("user", "tool")
        last = role
    assert not owed
