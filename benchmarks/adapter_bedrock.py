"""What the Bedrock adapter costs, beside `boto3`.

python -m benchmarks.adapter_bedrock [--events N] [--rounds N]
"""

from __future__ import annotations

import json
import sys
from binascii import crc32

from benchmarks.adapter_runs import WORDS, Adapter, Sdk, main
from perdure.models.bedrock import Bedrock, losses, request_body

MODEL = "us.amazon.nova-micro-v1:0"


def frames(count: int) -> list[bytes]:
    """A stream as recorded ones look, with `count` text deltas."""
    padding = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    usage = {"inputTokens": 13, "outputTokens": count, "totalTokens": 13 + count}
    return [
        _message("messageStart", {"p": padding[:18], "role": "assistant"}),
        *(
            _message(
                "contentBlockDelta",
                {
                    "contentBlockIndex": 0,
                    "delta": {"text": WORDS[i % len(WORDS)]},
                    "p": padding[: 7 + i % 50],
                },
            )
            for i in range(count)
        ),
        _message("contentBlockStop", {"contentBlockIndex": 0, "p": padding[:30]}),
        _message("messageStop", {"p": padding[:9], "stopReason": "end_turn"}),
        _message("metadata", {"metrics": {"latencyMs": 522}, "p": padding, "usage": usage}),
    ]


def _message(event: str, payload: dict[str, object]) -> bytes:
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + len(value).to_bytes(2) + value.encode()
        for name, value in (
            (":event-type", event),
            (":content-type", "application/json"),
            (":message-type", "event"),
        )
    )
    body = json.dumps(payload, separators=(",", ":")).encode()
    prelude = (16 + len(headers) + len(body)).to_bytes(4) + len(headers).to_bytes(4)
    whole = prelude + crc32(prelude).to_bytes(4) + headers + body
    return whole + crc32(whole).to_bytes(4)


async def sdk(port: int) -> int:
    import boto3

    client = boto3.client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id="none",
        aws_secret_access_key="none",  # noqa: S106 - it opens nothing
    )
    answer = client.converse_stream(
        modelId=MODEL, messages=[{"role": "user", "content": [{"text": "hi"}]}]
    )
    deltas = 0
    for event in answer["stream"]:
        if "contentBlockDelta" in event:
            deltas += event["contentBlockDelta"]["delta"].get("text", "") != ""
    client.close()
    return deltas


ADAPTER = Adapter(
    file="benchmarks.adapter_bedrock",
    model=lambda port: Bedrock(
        region="us-east-1", api_key="none", base_url=f"http://127.0.0.1:{port}"
    ),
    body=request_body,
    losses=losses,
    sdk=Sdk("boto3", sdk, 0.7),
)

if __name__ == "__main__":
    sys.exit(main(ADAPTER, frames, "application/vnd.amazon.eventstream"))
