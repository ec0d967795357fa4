"""The loopback server: what a real one does, and what a test wants to see of it."""

from __future__ import annotations

import io
import json
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from perdure.errors import (
    InvalidInput,
    ModelError,
    NotFound,
    Overloaded,
    RateLimited,
    Transport,
    Truncated,
)
from perdure.loop.model import ModelRequest, collect
from perdure.loop.transcript import Items
from perdure.models import OpenResponses
from perdure.testing import LoopbackServer, ScriptedModel, call, check_stream, error, fail, turn
from perdure.wire import (
    Compaction,
    CompactRequest,
    CompactResponse,
    OutputTextDelta,
    Request,
    ResponseFailed,
    decode_event,
    user,
)
from perdure.wire.sse import SSEParser
from tests.models.servers import until

ASK = ModelRequest(settings=Request(model="m"), input=Items.of([user("hi")]))
SCRIPT = [turn("Let me see.", call("add", {"a": 1}))]


async def post(server: LoopbackServer, body: Any, path: str = "/responses") -> tuple[int, bytes]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with (
        aiohttp.ClientSession() as session,
        session.post(server.base_url + path, data=io.BytesIO(data)) as answer,
    ):
        return answer.status, await answer.read()


async def test_what_a_model_streams_arrives() -> None:
    async with LoopbackServer(ScriptedModel(SCRIPT)) as server:
        model = OpenResponses(server.base_url)
        async with model.stream(ASK) as events:
            got = [event async for event in events]
        check_stream(got)
        assert server.written == len(got)
        assert [one.path for one in server.received] == ["/v1/responses"]
        assert json.loads(server.received[0].body)["stream"] is True
        assert server.abandoned == 0
        await model.aclose()


async def test_streamed_and_whole_are_the_same_response() -> None:
    async with LoopbackServer(ScriptedModel(SCRIPT)) as server:
        model = OpenResponses(server.base_url)
        streamed = await collect(model.stream(ASK))
        whole = await model.create(ASK)
        assert streamed.output == whole.output
        await model.aclose()


async def test_a_stream_ends_in_done_and_a_text_is_a_message() -> None:
    async with LoopbackServer(ScriptedModel(["Hello."])) as server:
        status, body = await post(server, {"model": "m", "input": "hi", "stream": True})
        assert status == 200
        assert body.endswith(b"\n\ndata: [DONE]\n\n")
        frames = SSEParser().feed(body)[:-1]
        assert [frame.event for frame in frames] == [decode_event(f.data).type for f in frames]


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        (b"{", None, "invalid_json"),
        (b"[]", None, "invalid_json"),
        ({"input": "hi"}, "model", "missing_required_parameter"),
        (
            {"model": "m", "input": [{"type": "function_call_output", "output": "x"}]},
            "input[0].call_id",
            "missing_required_parameter",
        ),
        ({"model": "m", "input": "hi", "background": True}, "background", "unsupported_parameter"),
        (b'{"model":"m","model":"n"}', None, "invalid_json"),
    ],
)
async def test_a_bad_request_is_refused(body: Any, param: str | None, code: str) -> None:
    async with LoopbackServer(ScriptedModel(["Hello."])) as server:
        status, answer = await post(server, body)
        assert status == 400
        said = json.loads(answer)["error"]
        assert (said["type"], said["param"], said["code"]) == ("invalid_request", param, code)


async def test_a_request_that_is_too_large_is_refused() -> None:
    async with LoopbackServer(ScriptedModel(["Hello."])) as server:
        status, answer = await post(server, b" " * (16 * 2**20 + 1))
        assert status == 413
        assert json.loads(answer)["error"]["code"] == "request_too_large"


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (RateLimited("slow", status=429, type="too_many_requests", retry_after=3), RateLimited),
        (Overloaded("busy", status=503), Overloaded),
        (ValueError("a bug"), ModelError),
        (Truncated(), Transport),
        (Transport("x"), Transport),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_what_a_model_raises_at_once_is_the_answer(
    cause: Exception, kind: type[ModelError], stream: bool
) -> None:
    async with LoopbackServer(ScriptedModel([error(cause)])) as server:
        model = OpenResponses(server.base_url)
        with pytest.raises(kind) as raised:
            await (collect(model.stream(ASK)) if stream else model.create(ASK))
        if isinstance(cause, RateLimited):
            assert isinstance(raised.value, RateLimited)
            assert raised.value.retry_after == 3
        await model.aclose()


@pytest.mark.parametrize(("cause", "kind"), [(Truncated(), Truncated), (Transport("x"), Transport)])
async def test_a_stream_that_a_model_cuts_is_cut(cause: Exception, kind: type[Exception]) -> None:
    async with LoopbackServer(ScriptedModel([turn("half an", error(cause))])) as server:
        model = OpenResponses(server.base_url)
        events = model.stream(ASK)
        with pytest.raises(ModelError) as raised:
            await collect(events)
        assert type(raised.value) is kind
        await model.aclose()


@pytest.mark.parametrize("last", [error(Overloaded("busy")), fail("busy")])
async def test_what_a_model_raises_later_is_an_error_event_and_a_failed_response(
    last: Any,
) -> None:
    async with LoopbackServer(ScriptedModel([turn("half an", last)])) as server:
        model = OpenResponses(server.base_url)
        async with model.stream(ASK) as events:
            got = [event async for event in events]
        check_stream(got)
        assert isinstance(got[-1], ResponseFailed)
        assert got[-1].response.error
        assert got[-1].response.error.message == "busy"
        await model.aclose()


async def test_a_client_that_goes_closes_the_models_stream() -> None:
    script = ScriptedModel(["word " * 1000], delay=0.002)
    async with LoopbackServer(script) as server:
        model = OpenResponses(server.base_url)
        async with model.stream(ASK) as events:
            async for event in events:
                if isinstance(event, OutputTextDelta):
                    break
        written = server.written
        await until(lambda: script.abandoned == 1)
        assert server.abandoned == 1
        assert server.written - written <= 5
        await model.aclose()


async def test_a_handler_may_answer_itself() -> None:
    async def teapot(http: web.Request) -> web.StreamResponse | None:
        return web.Response(status=404, text="no tea") if "x-tea" in http.headers else None

    async with LoopbackServer(ScriptedModel(["Hello."]), handler=teapot) as server:
        model = OpenResponses(server.base_url)
        assert (await collect(model.stream(ASK))).output_text == "Hello."
        await model.aclose()
        tea = OpenResponses(server.base_url, headers={"x-tea": "1"})
        with pytest.raises(NotFound, match="no tea"):
            await collect(tea.stream(ASK))
        assert len(server.received) == 2
        await tea.aclose()


async def test_compaction_is_answered_if_there_is_somebody_to_do_it() -> None:
    async def fold(request: CompactRequest) -> CompactResponse:
        return CompactResponse(id="c_1", output=(Compaction(encrypted_content="x"),))

    request = CompactRequest(model="m", input=(user("hi"),))
    async with LoopbackServer(ScriptedModel([]), compact=fold) as server:
        model = OpenResponses(server.base_url)
        assert (await model.compact(request)).id == "c_1"
        await model.aclose()
    async with LoopbackServer(ScriptedModel([])) as server:
        model = OpenResponses(server.base_url)
        with pytest.raises(InvalidInput, match="folds no histories") as raised:
            await model.compact(request)
        assert raised.value.code == "compaction_not_supported"
        await model.aclose()


async def test_unknown_paths_and_methods_are_not_found() -> None:
    async with LoopbackServer(ScriptedModel([])) as server:
        status, _ = await post(server, {}, "/elsewhere")
        assert status == 404


async def test_it_stops_while_a_stream_is_running() -> None:
    model: OpenResponses | None = None
    async with LoopbackServer(ScriptedModel(["word " * 1000], delay=0.01)) as server:
        model = OpenResponses(server.base_url)
        events = model.stream(ASK)
        await anext(events)
        await events.aclose()
    assert model is not None
    await model.aclose()
