"""What the HTTP client costs: 20,000 streamed deltas over loopback, from socket to typed events.

Three clients read the same bytes in one run, from a server in a process of its own: a raw asyncio
socket that splits frames and decodes them with msgspec, perdure's client, and the `openai` SDK
where it is installed. Measured is the CPU time of this process, the best of some rounds.

    python -m benchmarks.client [--events N] [--rounds N]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

MOST_TIMES_RAW = 3.0
"""perdure may cost at most this many times the raw socket."""

LEAST_TIMES_CHEAPER_THAN_SDK = 15.0
"""The `openai` SDK must cost at least this many times what perdure does."""

ITEM_ID = "msg_68ab6d3c2f1c819c9f6f8a1c0b4d7e5a0123456789abcdef"
RESPONSE = {
    "id": "resp_68ab6d3b8b3c819c8b0c6f1d2e3a4b5c",
    "object": "response",
    "created_at": 1756065084,
    "model": "gpt-5-mini",
    "tools": [],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "metadata": {},
    "temperature": 1.0,
    "top_p": 1.0,
}

# --- the server, in a process of its own ------------------------------------------


def frames(count: int) -> list[bytes]:
    """A stream as OpenAI records look, with `count` text deltas."""
    words = ("The", " capital", " of", " France", " is", " Paris", ",", " which", " lies", " on")
    place = {"item_id": ITEM_ID, "output_index": 0, "content_index": 0}
    text = "".join(words[i % len(words)] for i in range(count))
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"id": ITEM_ID, "type": "message", "role": "assistant", "status": "completed"}
    events: list[dict[str, object]] = [
        {
            "type": "response.created",
            "response": {**RESPONSE, "status": "in_progress", "output": []},
        },
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        *(
            {
                "type": "response.output_text.delta",
                **place,
                "delta": words[i % len(words)],
                "logprobs": [],
                "obfuscation": "aB3dE5gH7jK9"[: 4 + i % 9],
            }
            for i in range(count)
        ),
        {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {**item, "content": [part]},
        },
        {
            "type": "response.completed",
            "response": {
                **RESPONSE,
                "status": "completed",
                "output": [{**item, "content": [part]}],
                "usage": {
                    "input_tokens": 10,
                    "input_tokens_details": {"cached_tokens": 0},
                    "output_tokens": count,
                    "output_tokens_details": {"reasoning_tokens": 0},
                    "total_tokens": count + 10,
                },
            },
        },
    ]
    out = []
    for number, event in enumerate(events):
        data = json.dumps({**event, "sequence_number": number}, separators=(",", ":"))
        out.append(f"event: {event['type']}\ndata: {data}\n\n".encode())
    return out


async def serve(count: int) -> None:
    """Answer every request with the stream, one HTTP chunk for each frame, as fast as it goes."""
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(f), f) for f in frames(count)) + b"0\r\n\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                for line in request.lower().split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        await reader.readexactly(int(line.split(b":")[1]))
                writer.write(head + chunks)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# --- the clients -------------------------------------------------------------------


class Delta(msgspec.Struct, tag_field="type", tag="response.output_text.delta", gc=False):
    item_id: str
    output_index: int
    content_index: int
    delta: str
    sequence_number: int
    logprobs: list[object]
    obfuscation: str


async def raw_socket(port: int) -> int:
    """The least there is to do: no HTTP but its bytes, no checks, one type of event."""
    decode = msgspec.json.Decoder(Delta).decode
    decode_any = msgspec.json.decode
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
    await reader.readuntil(b"\r\n\r\n")
    deltas, tail = 0, b""
    while True:
        *blocks, tail = (tail + await reader.read(65536)).split(b"\n\n")
        for block in blocks:
            data = block[block.find(b"data: ") + 6 :]
            if b"event: response.output_text.delta" in block:
                deltas += decode(data).delta != ""
            elif decode_any(data)["type"] == "response.completed":
                writer.close()
                return deltas


async def perdure_client(port: int) -> int:
    from perdure.loop.model import ModelRequest
    from perdure.loop.transcript import Items
    from perdure.models import OpenResponses
    from perdure.wire import OutputTextDelta, Request, user

    model = OpenResponses(f"http://127.0.0.1:{port}/v1", api_key="none")
    request = ModelRequest(settings=Request(model="gpt-5-mini"), input=Items.of([user("hi")]))
    deltas = 0
    async with model.stream(request) as events:
        async for event in events:
            if type(event) is OutputTextDelta:
                deltas += event.delta != ""
    await model.aclose()
    return deltas


async def openai_sdk(port: int) -> int:
    from openai import AsyncOpenAI

    deltas = 0
    async with AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none") as client:
        stream = await client.responses.create(model="gpt-5-mini", input="hi", stream=True)
        async for event in stream:
            if event.type == "response.output_text.delta":
                deltas += event.delta != ""
    return deltas


# --- the measurement -----------------------------------------------------------------


class Row(NamedTuple):
    name: str
    micros: float
    """CPU microseconds for each event."""


def measure(client: Callable[[int], Awaitable[int]], port: int, events: int, rounds: int) -> float:
    """The least CPU time of a client, in microseconds for each event."""

    async def once() -> float:
        gc.collect()
        begun = time.process_time()
        deltas = await client(port)
        taken = time.process_time() - begun
        assert deltas == events, (client, deltas)
        return taken

    asyncio.run(once())  # imports, and what is made once
    return min(asyncio.run(once()) for _ in range(rounds)) / events * 1e6


def run(*, events: int = 20_000, rounds: int = 5) -> list[Row]:
    """Measure every client there is."""
    command = [sys.executable, __file__, "--serve", "--events", str(events)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline())
            rows = [
                Row("raw asyncio socket", measure(raw_socket, port, events, rounds)),
                Row("perdure", measure(perdure_client, port, events, rounds)),
            ]
            if importlib.util.find_spec("openai"):
                rows.append(Row("openai SDK", measure(openai_sdk, port, events, min(rounds, 2))))
        finally:
            server.kill()
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Print the table. Returns 1 if perdure costs more than it may."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        asyncio.run(serve(options.events))
    rows = run(events=options.events, rounds=options.rounds)
    cost = {row.name: row.micros for row in rows}
    print(f"{options.events} streamed deltas over loopback HTTP, CPU of the client")
    print(f"{'client':24}{'us/event':>10}{'x raw':>8}{'x perdure':>11}")
    for name, micros in cost.items():
        raw, own = micros / cost["raw asyncio socket"], micros / cost["perdure"]
        print(f"{name:24}{micros:10.2f}{raw:8.2f}{own:11.2f}")
    good = cost["perdure"] <= MOST_TIMES_RAW * cost["raw asyncio socket"]
    print(f"at most {MOST_TIMES_RAW:g} times the raw socket: {'yes' if good else 'NO'}")
    if "openai SDK" in cost:
        cheap = cost["openai SDK"] >= LEAST_TIMES_CHEAPER_THAN_SDK * cost["perdure"]
        print(f"at most 1/{LEAST_TIMES_CHEAPER_THAN_SDK:g} of the SDK: {'yes' if cheap else 'NO'}")
        good = good and cheap
    else:
        print("openai is not installed: install it with pip install openai")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
