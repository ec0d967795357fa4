"""A server that says exactly the bytes it is told, well or badly; and requests to send it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.wire import Item, Request, StreamEvent, decode_event, user
from perdure.wire.sse import SSEParser

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


class RawServer:
    """Answers every request on a connection in the same way.

    Attributes:
        heads, bodies: The requests that came.
        connections: How many connections were made.
        open: How many of them still stand.
    """

    def __init__(self, answer: bytes | Answer, *, close: bool = False) -> None:
        self._answer = answer
        self._close = close
        self._tasks: set[asyncio.Task[Any]] = set()
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self.open = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.wait({*self._tasks, asyncio.ensure_future(self._server.wait_closed())})

    async def gone(self) -> None:
        """Wait until every client has closed its connection."""
        await until(lambda: not self.open)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        self.open += 1
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    await self._one(reader, writer)
                    if self._close:
                        break
        except asyncio.CancelledError:
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length:")
        )
        self.bodies.append(await reader.readexactly(length))
        self.heads.append(head)
        if isinstance(self._answer, bytes):
            writer.write(self._answer)
            await writer.drain()
        else:
            await self._answer(reader, writer)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what another task or process brings about."""
    while not holds():  # noqa: ASYNC110 - there is nobody to set an event
        await asyncio.sleep(0.001)


def http(
    body: bytes, *, status: int = 200, type_: str = "application/json", **headers: str
) -> bytes:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {type_}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def sse(body: bytes) -> bytes:
    """A whole answer that is a stream."""
    return http(body, type_="text/event-stream")


def chunks(pieces: Iterable[bytes]) -> Iterable[bytes]:
    """The pieces of a body in chunked transfer encoding."""
    for piece in pieces:
        yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


def frame(event: Mapping[str, Any]) -> bytes:
    """An event as a frame."""
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json.dumps(event).encode())


def delta(text: str = "word ", number: int = 1) -> bytes:
    """The frame of a text delta."""
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    return frame(
        {
            "type": "response.output_text.delta",
            **place,
            "delta": text,
            "sequence_number": number,
        }
    )


COMPLETED = frame(
    {
        "type": "response.completed",
        "response": {"id": "resp_1", "object": "response", "status": "completed", "output": []},
        "sequence_number": 2,
    }
)


def request(*items: Item, model: str = "m") -> ModelRequest:
    """A request to send."""
    return ModelRequest(settings=Request(model=model), input=Items.of(items or [user("hi")]))


class Recorded(NamedTuple):
    name: str
    body: bytes

    @property
    def events(self) -> list[StreamEvent]:
        """Its events, decoded directly."""
        return [decode_event(frame.data) for frame in SSEParser().feed(self.body)]


def recorded_streams(shared: Path) -> list[Recorded]:
    """The recorded answers that are streams."""
    lines = (shared / "fixtures/wire/responses.jsonl").read_bytes().splitlines()
    every = [json.loads(line) for line in lines]
    return [
        Recorded(one["name"], one["body"].encode())
        for one in every
        if one["stream"] and one["content_type"].startswith("text/event-stream")
    ]
