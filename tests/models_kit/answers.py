"""The scenes of the model kit, as each provider's server says them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

from perdure.loop import Items, ModelRequest
from perdure.testing import FakeClock, ScriptedModel
from perdure.testing.canned import Canned
from perdure.testing.model_kit import SCRIPTS, SECRET, Scene
from perdure.wire import Request, encode, user
from perdure.wire.sse import SSE_DONE, write_sse
from tests.models.bedrock import streams as aws

Answers = Mapping[Scene, Canned]

TEXT = ("Hello, ", "how are ", "you?")
WORDS = "".join(TEXT)
WAIT = {"Retry-After": "7"}
SSE = {"Content-Type": "text/event-stream"}
JSON = {"Content-Type": "application/json"}


def stream(*frames: bytes) -> Canned:
    return Canned(body=b"".join(frames), headers=SSE)


def whole(value: object) -> Canned:
    return Canned(body=json.dumps(value).encode(), headers=JSON)


def refused(status: int, value: object, headers: Mapping[str, str] | None = None) -> Canned:
    body = json.dumps(value).encode()
    return Canned(body=body, status=status, headers={**JSON, **(headers or {})})


def data(value: object) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


# --- OpenAI, and who speaks its errors ------------------------------------------------------------


def openai_error(message: str, type_: str, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": type_, "code": code, "param": None}}


OPENAI_REFUSALS: Answers = {
    "rate_limited": refused(
        429, openai_error("Rate limit reached", "requests", "rate_limit_exceeded"), WAIT
    ),
    "quota": refused(
        429, openai_error("You exceeded your quota", "insufficient_quota", "insufficient_quota")
    ),
    "overloaded": refused(503, openai_error("The engine is overloaded", "server_error")),
    "server_failed": refused(500, openai_error("The server had an error", "server_error")),
    "auth": refused(
        401,
        openai_error(f"Wrong key: {SECRET}", "invalid_request_error", "invalid_api_key"),
    ),
    "not_found": refused(
        404, openai_error("No such model", "invalid_request_error", "model_not_found")
    ),
    "too_long": refused(
        400,
        openai_error("Too many tokens", "invalid_request_error", "context_length_exceeded"),
    ),
    "invalid": refused(400, openai_error("Unknown parameter", "invalid_request_error")),
}


def _responses(scene: Scene) -> list[Any]:
    model = ScriptedModel([SCRIPTS[scene]], clock=FakeClock())
    request = ModelRequest(settings=Request(model="m"), input=Items.of([user("Hello.")]))

    async def events() -> list[Any]:
        return [event async for event in model.stream(request)]

    return asyncio.run(events())


def openresponses() -> Answers:
    streams: dict[Scene, Canned] = {}
    for scene in ("text", "calls", "length", "filtered"):
        events = _responses(scene)
        streams[scene] = stream(*(write_sse(e.type, encode(e)) for e in events), SSE_DONE)
    last = _responses("text")[-1]
    return {
        **streams,
        **OPENAI_REFUSALS,
        "whole": Canned(body=encode(last.response), headers=JSON),
    }


# --- Chat Completions -----------------------------------------------------------------------------

CHAT_USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 6,
    "total_tokens": 26,
    "prompt_tokens_details": {"cached_tokens": 4},
}


def chat_chunk(delta: object, reason: str | None = None, **members: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return data({**head, "choices": [choice], **members})


def chat_stream(*deltas: object, reason: str) -> Canned:
    tail = {"id": "chatcmpl-1", "created": 1, "model": "m", "choices": [], "usage": CHAT_USAGE}
    return stream(
        *(chat_chunk(delta) for delta in deltas),
        chat_chunk({}, reason),
        data(tail),
        b"data: [DONE]\n\n",
    )


def chat_call(index: int) -> dict[str, object]:
    function = {"name": "look", "arguments": json.dumps({"what": "ab"[index]})}
    return {
        "tool_calls": [
            {"index": index, "id": f"call_{index}", "type": "function", "function": function}
        ]
    }


def chat() -> Answers:
    texts = [{"role": "assistant", "content": TEXT[0]}, *({"content": one} for one in TEXT[1:])]
    message = {"role": "assistant", "content": WORDS}
    return {
        "text": chat_stream(*texts, reason="stop"),
        "calls": chat_stream(chat_call(0), chat_call(1), reason="tool_calls"),
        "length": chat_stream(*texts[:1], reason="length"),
        "filtered": chat_stream(*texts[:1], reason="content_filter"),
        "whole": whole(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                "usage": CHAT_USAGE,
            }
        ),
        **OPENAI_REFUSALS,
    }


# --- Anthropic ------------------------------------------------------------------------------------


def claude_frame(event: Mapping[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


CLAUDE_USAGE = {"input_tokens": 16, "cache_read_input_tokens": 4, "output_tokens": 1}


def claude_stream(*blocks: tuple[dict[str, Any], Iterable[dict[str, Any]]], reason: str) -> Canned:
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "usage": CLAUDE_USAGE,
    }
    frames = [claude_frame({"type": "message_start", "message": message})]
    for index, (block, deltas) in enumerate(blocks):
        at = {"index": index}
        frames.append(claude_frame({"type": "content_block_start", **at, "content_block": block}))
        frames += [
            claude_frame({"type": "content_block_delta", **at, "delta": one}) for one in deltas
        ]
        frames.append(claude_frame({"type": "content_block_stop", **at}))
    stopped = {"type": "message_delta", "delta": {"stop_reason": reason}}
    frames.append(claude_frame({**stopped, "usage": {"output_tokens": 6}}))
    return stream(*frames, claude_frame({"type": "message_stop"}))


def claude_call(index: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    block = {"type": "tool_use", "id": f"toolu_{index}", "name": "look", "input": {}}
    text = json.dumps({"what": "ab"[index]})
    return block, [
        {"type": "input_json_delta", "partial_json": part} for part in (text[:5], text[5:])
    ]


def claude_error(type_: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": type_, "message": message}}


def anthropic() -> Answers:
    text = ({"type": "text", "text": ""}, [{"type": "text_delta", "text": one} for one in TEXT])
    invalid = "invalid_request_error"
    return {
        "text": claude_stream(text, reason="end_turn"),
        "calls": claude_stream(claude_call(0), claude_call(1), reason="tool_use"),
        "length": claude_stream(text, reason="max_tokens"),
        "filtered": claude_stream(text, reason="refusal"),
        "whole": whole(
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": [{"type": "text", "text": WORDS}],
                "stop_reason": "end_turn",
                "usage": CLAUDE_USAGE | {"output_tokens": 6},
            }
        ),
        "rate_limited": refused(429, claude_error("rate_limit_error", "Too many"), WAIT),
        "quota": refused(400, claude_error(invalid, "Your credit balance is too low")),
        "overloaded": refused(529, claude_error("overloaded_error", "Overloaded")),
        "server_failed": refused(500, claude_error("api_error", "Internal server error")),
        "auth": refused(401, claude_error("authentication_error", f"invalid key {SECRET}")),
        "not_found": refused(404, claude_error("not_found_error", "model: m")),
        "too_long": refused(400, claude_error(invalid, "prompt is too long: 9 tokens > 8 maximum")),
        "invalid": refused(400, claude_error(invalid, "messages: required")),
    }


# --- Gemini ---------------------------------------------------------------------------------------

GEMINI_USAGE = {
    "promptTokenCount": 20,
    "cachedContentTokenCount": 4,
    "candidatesTokenCount": 6,
    "totalTokenCount": 26,
}


def gemini_answer(*parts: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if reason is not None:
        candidate["finishReason"] = reason
    return {
        "candidates": [candidate],
        "responseId": "r1",
        "modelVersion": "m",
        "usageMetadata": GEMINI_USAGE,
    }


def gemini_error(code: int, message: str, status: str, *details: object) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "status": status, "details": details}}


def gemini() -> Answers:
    texts = [{"text": one} for one in TEXT]
    calls = [{"functionCall": {"name": "look", "args": {"what": one}}} for one in "ab"]

    def said(*parts: dict[str, Any], reason: str) -> Canned:
        frames = [data(gemini_answer(part)) for part in parts[:-1]]
        return stream(*frames, data(gemini_answer(parts[-1], reason=reason)))

    wait = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}
    spent = {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaId": "GenerateRequestsPerDayPerProject"}],
    }
    wrong_key = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "API_KEY_INVALID",
    }
    over = "The input token count (9) exceeds the maximum number of tokens allowed (8)."
    return {
        "text": said(*texts, reason="STOP"),
        "calls": said(*calls, reason="STOP"),
        "length": said(*texts[:1], reason="MAX_TOKENS"),
        "filtered": said(*texts[:1], reason="SAFETY"),
        "whole": whole(gemini_answer({"text": WORDS}, reason="STOP")),
        "rate_limited": refused(429, gemini_error(429, "Slow down", "RESOURCE_EXHAUSTED", wait)),
        "quota": refused(429, gemini_error(429, "Spent", "RESOURCE_EXHAUSTED", spent)),
        "overloaded": refused(503, gemini_error(503, "Overloaded", "UNAVAILABLE")),
        "server_failed": refused(500, gemini_error(500, "Failed", "INTERNAL")),
        "auth": refused(400, gemini_error(400, f"bad key {SECRET}", "INVALID_ARGUMENT", wrong_key)),
        "not_found": refused(404, gemini_error(404, "No such model", "NOT_FOUND")),
        "too_long": refused(400, gemini_error(400, over, "INVALID_ARGUMENT")),
        "invalid": refused(400, gemini_error(400, "No such field", "INVALID_ARGUMENT")),
    }


# --- Bedrock --------------------------------------------------------------------------------------

AWS = {"Content-Type": "application/vnd.amazon.eventstream"}
AWS_USAGE = {"inputTokens": 16, "outputTokens": 6, "totalTokens": 26, "cacheReadInputTokens": 4}


def aws_stream(*blocks: bytes, reason: str) -> Canned:
    stopped = aws.message("messageStop", {"stopReason": reason})
    counted = aws.message("metadata", {"usage": AWS_USAGE, "metrics": {"latencyMs": 1}})
    return Canned(body=b"".join((aws.start(), *blocks, stopped, counted)), headers=AWS)


def aws_refused(status: int, kind: str, message: str, **headers: str) -> Canned:
    named = {"x-amzn-ErrorType": f"{kind}:http://internal.amazon.com/coral/", **headers}
    return refused(status, {"message": message}, named)


def aws_call(index: int) -> bytes:
    arguments = json.dumps({"what": "ab"[index]})
    return aws.tool(index, arguments[:5], arguments[5:], name="look")


def bedrock() -> Answers:
    return {
        "text": aws_stream(aws.text(0, *TEXT), reason="end_turn"),
        "calls": aws_stream(aws_call(0), aws_call(1), reason="tool_use"),
        "length": aws_stream(aws.text(0, *TEXT), reason="max_tokens"),
        "filtered": aws_stream(aws.text(0, *TEXT), reason="content_filtered"),
        "whole": whole(
            {
                "output": {"message": {"role": "assistant", "content": [{"text": WORDS}]}},
                "stopReason": "end_turn",
                "usage": AWS_USAGE,
                "metrics": {"latencyMs": 1},
            }
        ),
        "rate_limited": aws_refused(429, "ThrottlingException", "Too many requests", **WAIT),
        "quota": aws_refused(400, "ServiceQuotaExceededException", "Quota exceeded"),
        "overloaded": aws_refused(503, "ServiceUnavailableException", "Unavailable"),
        "server_failed": aws_refused(500, "InternalServerException", "Failed"),
        "auth": aws_refused(403, "AccessDeniedException", f"The key {SECRET} may not"),
        "not_found": aws_refused(404, "ResourceNotFoundException", "No such model"),
        "too_long": aws_refused(400, "ValidationException", "Input is too long for this model."),
        "invalid": aws_refused(400, "ValidationException", "Malformed input"),
    }
