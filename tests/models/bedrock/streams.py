"""Event streams as AWS sends them, made here: botocore only reads them."""

from __future__ import annotations

import json
from binascii import crc32
from typing import Any


def message(event: str, payload: dict[str, Any], kind: str = "event") -> bytes:
    """One message with its headers and checksums."""
    typed = f":{'exception' if kind == 'exception' else 'event'}-type"
    headers = b"".join(
        _header(name, value)
        for name, value in (
            (typed, event),
            (":content-type", "application/json"),
            (":message-type", kind),
        )
    )
    return framed(headers, json.dumps(payload).encode())


def framed(headers: bytes, body: bytes) -> bytes:
    prelude = (16 + len(headers) + len(body)).to_bytes(4) + len(headers).to_bytes(4)
    whole = prelude + crc32(prelude).to_bytes(4) + headers + body
    return whole + crc32(whole).to_bytes(4)


def _header(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    return bytes([len(key)]) + key + b"\x07" + len(text).to_bytes(2) + text


def start() -> bytes:
    return message("messageStart", {"role": "assistant", "p": "abc"})


def delta(index: int, value: dict[str, Any]) -> bytes:
    return message("contentBlockDelta", {"contentBlockIndex": index, "delta": value, "p": "ab"})


def opened(index: int, value: dict[str, Any]) -> bytes:
    return message("contentBlockStart", {"contentBlockIndex": index, "start": value})


def closed(index: int) -> bytes:
    return message("contentBlockStop", {"contentBlockIndex": index})


def text(index: int, *pieces: str) -> bytes:
    return b"".join(delta(index, {"text": piece}) for piece in pieces) + closed(index)


def tool(index: int, *pieces: str, **members: Any) -> bytes:
    use = {"toolUseId": f"tooluse_{index}", "name": "f", **members}
    inputs = b"".join(delta(index, {"toolUse": {"input": piece}}) for piece in pieces)
    return opened(index, {"toolUse": use}) + inputs + closed(index)


def stop(reason: str | None = "end_turn", tokens: int = 9, **usage: Any) -> bytes:
    told = {"inputTokens": 5, "outputTokens": tokens, "totalTokens": 5 + tokens, **usage}
    stopped = {"stopReason": reason} if reason else {}
    return message("messageStop", stopped) + message("metadata", {"usage": told, "metrics": {}})
