"""What holds for the client of every adapter: it lets go of what it does not need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import pytest

from perdure.errors import ModelTimeout
from perdure.loop.model import collect
from perdure.models import OpenResponses, Timeouts
from perdure.models.anthropic import Anthropic
from perdure.models.bedrock import Bedrock
from perdure.models.chat import Chat
from perdure.models.client import ModelClient
from perdure.models.gemini import Gemini
from perdure.wire import OutputTextDelta
from tests.models.anthropic import streams as claude
from tests.models.bedrock import streams as converse
from tests.models.chat import made
from tests.models.gemini import streams as gemini
from tests.models.servers import RawServer, chunks, delta, request

LIMITS = Timeouts(first_byte=0.05)


class Client(NamedTuple):
    """A client, and how an answer to it begins.

    Attributes:
        at: Makes it for the address of a server.
        type: The type of a stream.
        begun: The bytes of a stream up to its first text.
    """

    at: Callable[[str], ModelClient]
    begun: Callable[[], bytes]
    type: bytes = b"text/event-stream"

    @property
    def head(self) -> bytes:
        return (
            b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % self.type
        )


CLIENTS = {
    "openresponses": Client(lambda url: OpenResponses(url, timeouts=LIMITS), delta),
    "chat": Client(lambda url: Chat(url, timeouts=LIMITS), lambda: made.chunk({"content": "a"})),
    "anthropic": Client(
        lambda url: Anthropic(url, api_key="k", timeouts=LIMITS),
        lambda: claude.start() + claude.text(0, "a"),
    ),
    "gemini": Client(
        lambda url: Gemini(url, api_key="k", timeouts=LIMITS),
        lambda: gemini.frame(gemini.text("a")),
    ),
    "bedrock": Client(
        lambda url: Bedrock(region="r", api_key="k", base_url=url, timeouts=LIMITS),
        lambda: converse.start() + converse.text(0, "a"),
        b"application/vnd.amazon.eventstream",
    ),
}

EACH = pytest.mark.parametrize("name", CLIENTS)


def client_of(name: str) -> Client:
    if name == "bedrock":
        pytest.importorskip("botocore")
    return CLIENTS[name]


@EACH
async def test_a_consumer_that_stops_lets_go_of_the_connection(name: str) -> None:
    client = client_of(name)

    async def opened(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Begin an answer, and wait until the client goes away."""
        writer.write(client.head + next(iter(chunks([client.begun()]))))
        await reader.read()

    async with RawServer(opened, close=True) as server:
        model = client.at(server.base_url)
        async with model.stream(request()) as events:
            async for event in events:
                if isinstance(event, OutputTextDelta):
                    break
        await server.gone()
        assert (server.connections, server.open) == (1, 0)
        await model.aclose()


@EACH
async def test_a_server_that_answers_and_stays_silent_is_left(name: str) -> None:
    client = client_of(name)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(client.head)
        await reader.read()

    async with RawServer(silent, close=True) as server:
        model = client.at(server.base_url)
        with pytest.raises(ModelTimeout, match="first_byte"):
            await collect(model.stream(request()))
        await server.gone()
        await model.aclose()
