"""Streams as Gemini sends them."""

from __future__ import annotations

import json
from typing import Any


def frame(*parts: dict[str, Any], reason: str | None = None, **members: Any) -> bytes:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if reason is not None:
        candidate["finishReason"] = reason
    candidate |= members.pop("candidate", {})
    answer = {"candidates": [candidate], "responseId": "r1", "modelVersion": "gemini-x", **members}
    return b"data: " + json.dumps(answer).encode() + b"\r\n\r\n"


def text(value: str, signature: str | None = None) -> dict[str, Any]:
    return {"text": value} if signature is None else {"text": value, "thoughtSignature": signature}


def call(
    name: str = "f", args: Any = None, signature: str | None = None, **own: Any
) -> dict[str, Any]:
    part: dict[str, Any] = {"functionCall": {"name": name, "args": args or {}, **own}}
    return part if signature is None else {**part, "thoughtSignature": signature}
