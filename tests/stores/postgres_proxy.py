"""What may stand between a client and a Postgres server: a network that breaks, a pooler."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Literal, NamedTuple

from psycopg.conninfo import conninfo_to_dict, make_conninfo

OnCommit = Literal["pass", "drop", "drop after", "hold"]


class Stream(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def message(self) -> tuple[bytes, bytes]:
        """The type of a message, and all of it."""
        kind = await self.reader.readexactly(1)
        length = await self.reader.readexactly(4)
        body = await self.reader.readexactly(struct.unpack("!i", length)[0] - 4)
        return kind, kind + length + body

    async def startup(self) -> bytes:
        length = await self.reader.readexactly(4)
        return length + await self.reader.readexactly(struct.unpack("!i", length)[0] - 4)

    def close(self) -> None:
        self.writer.close()


_GONE = (asyncio.IncompleteReadError, ConnectionError, BrokenPipeError)


class Between:
    """Listens where a client thinks the server is."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._parameters = conninfo_to_dict(url)
        self._streams: list[Stream] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def upstream(self) -> Stream:
        host = str(self._parameters.get("host", "localhost"))
        port = int(self._parameters.get("port") or 5432)
        if host.startswith("/"):
            stream = Stream(*await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}"))
        else:
            stream = Stream(*await asyncio.open_connection(host, port))
        self._streams.append(stream)
        return stream

    @contextlib.asynccontextmanager
    async def listening(self, directory: Path) -> AsyncGenerator[str]:
        """Yields the URL that leads here."""
        path = directory / ".s.PGSQL.5432"
        server = await asyncio.start_unix_server(self._accept, path)
        try:
            yield make_conninfo(
                self._url, host=str(directory), port=5432, sslmode="disable", gssencmode="disable"
            )
        finally:
            server.close()
            self.cut()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.wait([*self._tasks, asyncio.ensure_future(asyncio.sleep(0))])

    def cut(self) -> None:
        """Break every connection."""
        for stream in self._streams:
            stream.close()
        self._streams.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Stream(reader, writer)
        self._streams.append(client)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self.serve(client)
        except (*_GONE, asyncio.CancelledError):
            pass
        finally:
            client.close()
            self._tasks.discard(task)

    async def serve(self, client: Stream) -> None:
        raise NotImplementedError


class Network(Between):
    """Passes everything on, until it is told what to do with commits."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.on_commit: OnCommit = "pass"
        self.commits = 0
        self._held: asyncio.Future[Stream] | None = None

    async def held(self) -> Callable[[bool], Awaitable[None]]:
        """Wait until a commit is held; what it gives lets it through, or breaks it off."""
        assert self._held is not None
        server = await self._held

        async def decide(commit: bool) -> None:
            if commit:
                server.writer.write(b"Q" + struct.pack("!i", 11) + b"COMMIT\0")
                await server.reader.readuntil(b"COMMIT\0")
            server.close()

        return decide

    def hold(self) -> None:
        """Hold the next commit: its client is cut off, the server waits."""
        self.on_commit = "hold"
        self._held = asyncio.get_running_loop().create_future()

    async def serve(self, client: Stream) -> None:
        server = await self.upstream()
        server.writer.write(await client.startup())
        answers = asyncio.ensure_future(_pipe(server, client))
        self._tasks.add(answers)
        try:
            while True:
                kind, message = await client.message()
                if kind == b"Q" and message[5:].startswith(b"COMMIT"):
                    self.commits += 1
                    if self.on_commit != "pass":
                        await self._intervene(message, client, server, answers)
                        return
                server.writer.write(message)
        finally:
            answers.cancel()
            self._tasks.discard(answers)
            if self._held is None or not self._held.done() or self._held.result() is not server:
                server.close()

    async def _intervene(
        self, message: bytes, client: Stream, server: Stream, answers: asyncio.Task[None]
    ) -> None:
        what, self.on_commit = self.on_commit, "pass"
        answers.cancel()
        await asyncio.wait([answers])
        if what == "drop after":
            server.writer.write(message)
            await server.reader.readuntil(b"COMMIT\0")
        if what == "hold":
            assert self._held is not None
            self._held.set_result(server)
        client.close()


async def _pipe(source: Stream, target: Stream) -> None:
    with contextlib.suppress(*_GONE):
        while data := await source.reader.read(65536):
            target.writer.write(data)
        target.close()


class Pooler(Between):
    """Gives a client another connection for every transaction, as poolers may."""

    def __init__(self, url: str, connections: int = 3) -> None:
        super().__init__(url)
        self._connections = connections
        self._idle: deque[Stream] = deque()
        self._free = asyncio.Condition()
        self._greeting = b""
        self._opened = 0
        self._opening = asyncio.Lock()

    async def serve(self, client: Stream) -> None:
        startup = await client.startup()
        if startup[4:8] == struct.pack("!i", 80877102):
            return  # a request to cancel; it goes nowhere
        async with self._opening:
            while self._opened < self._connections:
                self._opened += 1
                await self._open(startup)
        client.writer.write(self._greeting)
        server: Stream | None = None
        try:
            while True:
                request = await self._request(client)
                if request is None:
                    return
                server = server or await self._acquire()
                server.writer.write(request)
                if await self._answer(server, client) == b"I":
                    await self._release(server)
                    server = None
        finally:
            if server is not None:
                server.close()  # in the middle of a transaction
                self._opened -= 1

    async def _open(self, startup: bytes) -> None:
        server = await self.upstream()
        server.writer.write(startup)
        greeting = kind = b""
        while kind != b"Z":
            kind, message = await server.message()
            greeting += message
        self._greeting = greeting
        await self._release(server)

    async def _request(self, client: Stream) -> bytes | None:
        request = b""
        while True:
            kind, message = await client.message()
            if kind == b"X":
                return None
            request += message
            if kind in b"QS":
                return request

    async def _answer(self, server: Stream, client: Stream) -> bytes:
        while True:
            kind, message = await server.message()
            client.writer.write(message)
            if kind == b"Z":
                return message[5:6]

    async def _acquire(self) -> Stream:
        async with self._free:
            await self._free.wait_for(lambda: bool(self._idle))
            return self._idle.popleft()  # the one that waited longest: never the same twice

    async def _release(self, server: Stream) -> None:
        async with self._free:
            self._idle.append(server)
            self._free.notify()
