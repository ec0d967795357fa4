"""A server that says the bytes it is told, well or badly, to any HTTP client.

*canned*: an answer that is the same whatever was asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Literal, Self

import msgspec

End = Literal["complete", "cut", "reset", "hang"]
"""What follows the bytes: the end of the body; a connection that closes, or is reset, before it; or
nothing, until the client leaves."""


class Canned(msgspec.Struct, frozen=True, kw_only=True):
    """One answer.

    Attributes:
        body: Its bytes.
        status: The HTTP status.
        headers: Its headers, without those that HTTP needs.
        end: What follows.
        size: In pieces of how many bytes it is written; 0 writes all at once.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = {}
    end: End = "complete"
    size: int = 0


class CannedServer:
    """Gives one answer to every request, for as long as the `async with` block runs.

    Attributes:
        heads: The heads of the requests that came, in order.
        bodies: Their bodies.
        open: How many connections stand.
    """

    def __init__(self, answer: Canned) -> None:
        self._answer = answer
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._closed = asyncio.Event()
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.open = 0

    @property
    def base_url(self) -> str:
        """Where it is, without a path."""
        if self._server is None:
            raise RuntimeError("enter the server first")
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def gone(self) -> None:
        """Wait until no connection stands."""
        while self.open:
            self._closed.clear()
            await self._closed.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self.open += 1
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, OSError):
                while await self._one(reader, writer):
                    pass
        except asyncio.CancelledError:
            pass  # the block ends
        finally:
            self.open -= 1
            self._closed.set()
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether the connection takes another."""
        head = await reader.readuntil(b"\r\n\r\n")
        self.bodies.append(await _body(reader, head))
        self.heads.append(head)
        answer = self._answer
        lines = [f"HTTP/1.1 {answer.status} Canned", "Transfer-Encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
        step = answer.size or len(answer.body) or 1
        for start in range(0, len(answer.body), step):
            piece = answer.body[start : start + step]
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
        if answer.end == "complete":
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return True
        if answer.end == "hang":
            await reader.read()  # until the client leaves
        elif answer.end == "reset":
            _reset_on_close(writer)
        return False


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    fields = dict(line.split(b":", 1) for line in head.lower().split(b"\r\n")[1:] if b":" in line)
    if b"content-length" in fields:
        return await reader.readexactly(int(fields[b"content-length"]))
    if b"chunked" not in fields.get(b"transfer-encoding", b""):
        return b""
    pieces: list[bytes] = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        pieces.append((await reader.readexactly(size + 2))[:-2])
    await reader.readuntil(b"\r\n")
    return b"".join(pieces)


def _reset_on_close(writer: asyncio.StreamWriter) -> None:
    sock: socket.socket | None = writer.get_extra_info("socket")
    if sock is not None:  # without it the client sees an orderly end
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
