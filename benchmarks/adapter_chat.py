"""What the Chat Completions adapter costs, beside the `openai` SDK.

python -m benchmarks.adapter_chat [--events N] [--rounds N]
"""

from __future__ import annotations

import json
import sys

from benchmarks.adapter_runs import WORDS, Adapter, Sdk, main
from perdure.models.chat import Chat, losses, request_body
from perdure.models.dialects import OPENAI

ENVELOPE = {
    "id": "chatcmpl-BRmTI0Y2zmkGw27kLarhsmiFQTGxR",
    "object": "chat.completion.chunk",
    "created": 1745960880,
    "model": "gpt-4o-2024-08-06",
    "service_tier": "default",
    "system_fingerprint": "fp_90122d973c",
}


def frames(count: int) -> list[bytes]:
    """A stream as OpenAI's look, with `count` text deltas."""
    begin = {"role": "assistant", "content": "", "refusal": None}
    deltas = [begin, *({"content": WORDS[i % len(WORDS)]} for i in range(count))]
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": count,
        "total_tokens": count + 10,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }
    chunks: list[dict[str, object]] = [
        *({"choices": [_choice(delta, None)], "usage": None} for delta in deltas),
        {"choices": [_choice({}, "stop")], "usage": None},
        {"choices": [], "usage": usage},
    ]
    return [*(_frame({**ENVELOPE, **chunk}) for chunk in chunks), b"data: [DONE]\n\n"]


def _choice(delta: object, reason: str | None) -> dict[str, object]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


def _frame(chunk: dict[str, object]) -> bytes:
    return b"data: %b\n\n" % json.dumps(chunk, separators=(",", ":")).encode()


async def sdk(port: int) -> int:
    from openai import AsyncOpenAI

    deltas = 0
    async with AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none") as client:
        stream = await client.chat.completions.create(
            model="gpt-4o", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                deltas += 1
    return deltas


ADAPTER = Adapter(
    file="benchmarks.adapter_chat",
    model=lambda port: Chat(f"http://127.0.0.1:{port}/v1", dialect=OPENAI, api_key="none"),
    body=request_body,
    losses=losses,
    sdk=Sdk("openai", sdk, 1 / 10),
)

if __name__ == "__main__":
    sys.exit(main(ADAPTER, frames, "text/event-stream; charset=utf-8"))
