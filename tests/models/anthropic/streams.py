"""Streams as the Messages API sends them."""

from __future__ import annotations

import json
from typing import Any

USAGE = {"input_tokens": 5, "output_tokens": 1}


def frame(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def start(**usage: Any) -> bytes:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x"}
    told: dict[str, Any] = {
        **message,
        "content": [],
        "stop_reason": None,
        "usage": {**USAGE, **usage},
    }
    return frame({"type": "message_start", "message": told})


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    return b"".join(
        [
            frame({"type": "content_block_start", "index": index, "content_block": content}),
            *(frame({"type": "content_block_delta", "index": index, "delta": d}) for d in deltas),
            frame({"type": "content_block_stop", "index": index}),
        ]
    )


def text(index: int, *pieces: str) -> bytes:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return block(index, {"type": "text", "text": ""}, *deltas)


def tool(index: int, *pieces: str, name: str = "f", **members: Any) -> bytes:
    content = {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}, **members}
    return block(index, content, *({"type": "input_json_delta", "partial_json": p} for p in pieces))


def stop(reason: str | None = "end_turn", tokens: int = 9, **members: Any) -> bytes:
    delta = {"stop_reason": reason, "stop_sequence": None, **members}
    told = {"type": "message_delta", "delta": delta, "usage": {"output_tokens": tokens}}
    return frame(told) + frame({"type": "message_stop"})
