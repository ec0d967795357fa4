"""What the Open Responses adapter costs, beside the `openai` SDK.

python -m benchmarks.adapter_openresponses [--events N] [--rounds N]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from benchmarks.adapter_runs import WORDS, Adapter, Sdk, main
from perdure.clock import RandomIds, SystemClock
from perdure.models.openresponses import OpenResponses, losses, request_body
from perdure.wire import Emitter, Request, StreamEvent, encode


def frames(count: int) -> list[bytes]:
    """A stream with `count` text deltas."""
    return [
        b"event: %b\ndata: %b\n\n" % (event.type.encode(), encode(event))
        for event in _events(count)
    ]


def _events(count: int) -> Iterator[StreamEvent]:
    emitter = Emitter(Request(model="m"), ids=RandomIds(), clock=SystemClock())
    for index in range(count):
        yield from emitter.text(WORDS[index % len(WORDS)])
    yield from emitter.complete()


async def sdk(port: int) -> int:
    from openai import AsyncOpenAI

    deltas = 0
    async with AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none") as client:
        stream = await client.responses.create(model="m", input="hi", stream=True)
        async for event in stream:
            deltas += event.type == "response.output_text.delta"
    return deltas


ADAPTER = Adapter(
    file="benchmarks.adapter_openresponses",
    model=lambda port: OpenResponses(f"http://127.0.0.1:{port}/v1", api_key="none"),
    body=request_body,
    losses=losses,
    sdk=Sdk("openai", sdk, 1 / 10),
)

if __name__ == "__main__":
    sys.exit(main(ADAPTER, frames, "text/event-stream; charset=utf-8"))
