"""Hooks of the transport, headers, timeouts: what a client of a model is given.

Four faults of the reference's own language have a counterpart here: a request's timeout holds
beside a signal, because it is the client's and fresh for each request; a tool that came from an MCP
server changes the type of no other, because a result says where it comes from; a stream is known by
what it does; and hooks may be plain objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from perdure import call_model, tool
from perdure.compose import AnyTool, RunSignal, ToolResultEvent, mark_mcp, transport_hooks
from perdure.errors import Aborted, ConfigError, ModelError, ModelTimeout, RateLimited
from perdure.loop import Items, ModelRequest, Retry
from perdure.models import OpenResponses
from perdure.models.http.client import HttpRequest, HttpResponse
from perdure.models.http.timeouts import Timeouts
from perdure.models.openrouter import OpenRouter
from perdure.testing import LoopbackServer, ScriptedModel, call, turn
from perdure.wire import Request, StreamEvent, user
from tests.compose.helpers import Counter


class Everything:
    """A plain object with all the methods."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def before_request(self, request: HttpRequest) -> None:
        self.told.append("before")
        request.headers["x-seen"] = "yes"

    def after_response(self, response: HttpResponse) -> None:
        self.told.append(f"after {response.status}")

    def on_error(self, request: HttpRequest, error: ModelError) -> None:
        self.told.append(f"error {type(error).__name__}")


class OnlyAfter:
    def __init__(self) -> None:
        self.told: list[int] = []

    def after_response(self, response: HttpResponse) -> None:
        self.told.append(response.status)


async def test_plain_objects_are_honoured_for_every_method_they_have() -> None:
    every, after, listed = Everything(), OnlyAfter(), list[str]()
    hooks = transport_hooks(
        every, after, before_request=[lambda request: listed.append(request.method)]
    )
    async with LoopbackServer(ScriptedModel(["hello"])) as server:
        client = OpenResponses(server.base_url, hooks=hooks)
        assert await call_model(client, "hi", model="m").text() == "hello"
        await client.aclose()
        assert server.received[0].headers["x-seen"] == "yes"
    assert every.told == ["before", "after 200"]
    assert after.told == [200]
    assert listed == ["POST"]


def test_an_object_with_none_of_the_methods_is_refused_and_not_ignored() -> None:
    with pytest.raises(ConfigError, match="has none of before_request"):
        transport_hooks(object())


async def test_an_error_reaches_the_hooks_and_the_caller() -> None:
    every = Everything()
    async with LoopbackServer(ScriptedModel([RateLimited("slow down", status=429)])) as server:
        client = OpenResponses(server.base_url, hooks=transport_hooks(every))
        with pytest.raises(ModelError, match="slow down"):
            await call_model(client, "hi", model="m", retry=Retry()).text()
        await client.aclose()
    assert every.told[0] == "before"
    assert every.told[-1].startswith("error")


async def test_a_client_names_the_application() -> None:
    seen: list[HttpRequest] = []
    async with LoopbackServer(ScriptedModel(["hello"])) as server:
        client = OpenRouter(
            server.base_url,
            api_key="sk-test",
            app_url="https://example.org",
            app_title="Example",
            headers={"x-own": "1"},
            hooks=transport_hooks(before_request=[seen.append]),
        )
        with pytest.raises(ModelError):  # the server speaks another dialect
            await call_model(client, "hi", model="a/b", retry=Retry()).text()
        await client.aclose()
    sent = seen[0].headers
    assert sent["HTTP-Referer"] == "https://example.org"
    assert sent["X-Title"] == "Example"
    assert sent["x-own"] == "1"


async def test_a_timeout_holds_beside_a_signal_and_anew_for_each_request() -> None:
    class Stalls:
        """Answers a first request, and is silent at the second."""

        def __init__(self) -> None:
            self.silent = asyncio.Event()
            self.script = ScriptedModel([call("work", {"x": "a"}), "never"])

        async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
            async for event in self.script.stream(request):
                if len(self.script.requests) == 2:
                    await self.silent.wait()
                yield event

    model, signal = Stalls(), RunSignal()
    async with LoopbackServer(model) as server:
        client = OpenResponses(server.base_url, timeouts=Timeouts(first_byte=0.2, idle=0.2))
        result = call_model(
            client, "hi", model="m", tools=[Counter().tool()], signal=signal, retry=Retry()
        )
        with pytest.raises(ModelTimeout):
            await result.text()
        model.silent.set()
        await client.aclose()
    assert len(signal) == 0


async def test_a_signal_stops_a_request_before_its_timeout() -> None:
    class Silent:
        def __init__(self) -> None:
            self.asked = asyncio.Event()

        async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
            self.asked.set()
            await asyncio.Event().wait()
            yield  # type: ignore[misc]

    model, signal = Silent(), RunSignal()
    result = call_model(model, "hi", signal=signal)
    result.begin()
    await model.asked.wait()
    signal.set("enough")
    with pytest.raises(Aborted, match="enough"):
        await result.text()


async def test_one_tool_of_an_mcp_server_leaves_the_results_of_others_typed() -> None:
    @tool(effect="none")
    async def plain(x: str) -> int:
        """Count."""
        return len(x)

    model = ScriptedModel([turn(call("plain", {"x": "abc"}), call("remote", {"x": "a"})), "done"])
    tools: list[AnyTool] = [plain, mark_mcp(Counter().tool("remote"))]
    events = [e async for e in call_model(model, "go", tools=tools).full_responses_stream()]
    results = [event for event in events if isinstance(event, ToolResultEvent)]
    assert [(one.source, one.name) for one in results] == [("client", "plain"), ("mcp", "remote")]


class Bare:
    """A stream that is no async generator, only something to iterate."""

    def __init__(self, events: list[StreamEvent]) -> None:
        self._events = iter(events)

    def __aiter__(self) -> Bare:
        return self

    async def __anext__(self) -> StreamEvent:
        for event in self._events:
            return event
        raise StopAsyncIteration


async def test_a_stream_is_known_by_what_it_does() -> None:
    class Model:
        def __init__(self, events: list[StreamEvent]) -> None:
            self.events = events

        def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
            return Bare(self.events)

    asked = ModelRequest(settings=Request(), input=Items.of([user("hi")]))
    model = Model([e async for e in ScriptedModel(["hello"]).stream(asked)])
    assert await call_model(model, "hi").text() == "hello"


def test_what_has_no_stream_is_refused_when_it_is_given() -> None:
    with pytest.raises(ConfigError, match="a model is a string, a Model or a function"):
        call_model(object(), "hi")  # type: ignore[arg-type]
