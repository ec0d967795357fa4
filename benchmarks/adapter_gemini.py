"""What the Gemini adapter costs, beside the `google-genai` SDK.

python -m benchmarks.adapter_gemini [--events N] [--rounds N]
"""

from __future__ import annotations

import json
import sys

from benchmarks.adapter_runs import WORDS, Adapter, Sdk, main
from perdure.models.gemini import Gemini, losses, request_body


def frames(count: int) -> list[bytes]:
    """A stream as recorded ones look, with `count` text deltas."""
    usage = {
        "promptTokenCount": 6,
        "candidatesTokenCount": 1,
        "totalTokenCount": 42,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 6}],
        "thoughtsTokenCount": 35,
    }
    names = {"modelVersion": "gemini-2.5-flash", "responseId": "8e97asPMLaS4qtsP7oGv4Ag"}
    out = []
    for i in range(count):
        content = {"parts": [{"text": WORDS[i % len(WORDS)]}], "role": "model"}
        candidate: dict[str, object] = {"content": content, "index": 0}
        if i == count - 1:
            candidate["finishReason"] = "STOP"
        answer = {"candidates": [candidate], "usageMetadata": usage, **names}
        out.append(f"data: {json.dumps(answer)}\r\n\r\n".encode())
    return out


async def sdk(port: int) -> int:
    from google import genai

    options = genai.types.HttpOptions(base_url=f"http://127.0.0.1:{port}", api_version="v1beta")
    client = genai.Client(api_key="none", http_options=options)
    deltas = 0
    async for chunk in await client.aio.models.generate_content_stream(
        model="gemini-2.5-flash", contents="hi"
    ):
        deltas += bool(chunk.text)
    await client.aio.aclose()
    return deltas


ADAPTER = Adapter(
    file="benchmarks.adapter_gemini",
    model=lambda port: Gemini(f"http://127.0.0.1:{port}/v1beta", api_key="none"),
    body=request_body,
    losses=losses,
    sdk=Sdk("google.genai", sdk, 1 / 10),
)

if __name__ == "__main__":
    sys.exit(main(ADAPTER, frames, "text/event-stream"))
