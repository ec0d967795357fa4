"""What the Anthropic adapter costs, beside the `anthropic` SDK's raw stream.

python -m benchmarks.adapter_anthropic [--events N] [--rounds N]
"""

from __future__ import annotations

import json
import sys

from benchmarks.adapter_runs import WORDS, Adapter, Sdk, main
from perdure.models.anthropic import Anthropic, losses, request_body


def frames(count: int) -> list[bytes]:
    """A stream as recorded ones look, with `count` text deltas."""
    usage = {"input_tokens": 10, "cache_read_input_tokens": 0, "output_tokens": 1}
    message = {"id": "msg_01Js8aWE7YbmiaUPneGiCskE", "type": "message", "role": "assistant"}
    events: list[dict[str, object]] = [
        {
            "type": "message_start",
            "message": {
                **message,
                "model": "claude-sonnet-4-6",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": usage,
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": WORDS[i % len(WORDS)]},
            }
            for i in range(count)
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": count},
        },
        {"type": "message_stop"},
    ]
    return [_frame(event) for event in events]


def _frame(event: dict[str, object]) -> bytes:
    data = json.dumps(event, separators=(",", ":"))
    return f"event: {event['type']}\ndata: {data}\n\n".encode()


async def sdk(port: int) -> int:
    from anthropic import AsyncAnthropic

    deltas = 0
    async with AsyncAnthropic(base_url=f"http://127.0.0.1:{port}", api_key="none") as client:
        stream = await client.messages.create(
            model="claude-sonnet-4-6",
            max_tokens=4096,
            messages=[{"role": "user", "content": "hi"}],
            stream=True,
        )
        async for event in stream:
            if event.type == "content_block_delta" and event.delta.type == "text_delta":
                deltas += event.delta.text != ""
    return deltas


ADAPTER = Adapter(
    file="benchmarks.adapter_anthropic",
    model=lambda port: Anthropic(f"http://127.0.0.1:{port}", api_key="none"),
    body=request_body,
    losses=losses,
    sdk=Sdk("anthropic", sdk, 1 / 3),
)

if __name__ == "__main__":
    sys.exit(main(ADAPTER, frames, "text/event-stream; charset=utf-8"))
