"""Recorded traffic: what is kept, what is replayed, what is missed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, OpenResponses, Retry, RunFailed, tool
from perdure.errors import ConfigError, MissingKey, ModelTimeout, RateLimited, Truncated
from perdure.loop import Items, ModelRequest, collect
from perdure.models import Resolved
from perdure.models.bedrock import Bedrock
from perdure.models.http.taping import current_tape
from perdure.testing import LoopbackServer, ScriptedModel, call
from perdure.testing.cassettes import (
    Cassette,
    Exchange,
    NotRecorded,
    RecordedModel,
    read_cassette,
    write_cassette,
)
from perdure.testing.cassettes_file import Failure
from perdure.wire import Request, user
from tests.models.servers import RawServer, chunks, http


@tool(effect="none")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def request(text: str = "hi", **settings: Any) -> ModelRequest:
    return ModelRequest(settings=Request(model="m", **settings), input=Items.of([user(text)]))


async def test_a_run_is_recorded_once_and_replayed_without_a_server_or_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tapes" / "sum.jsonl"
    script = ScriptedModel([call("add", {"a": 19, "b": 23}), "It is 42."])
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    async with LoopbackServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        agent = Agent("openai:gpt-5-mini", tools=[add])
        with Cassette(path) as cassette:
            assert cassette.recording
            first = await agent.run("What is 19 + 23?")
    assert b"sk-secret" not in path.read_bytes()
    assert len(read_cassette(path)) == 2

    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    with Cassette(path) as cassette:
        again = await agent.run("What is 19 + 23?")
        assert cassette.unused == ()
    assert (again.text, again.items, again.usage) == (first.text, first.items, first.usage)
    with pytest.raises(MissingKey):
        await agent.run("What is 19 + 23?")


async def test_the_bytes_and_where_they_were_cut_are_kept(tmp_path: Path) -> None:
    body = b'event: x\ndata: {"type":"x","t":"caf\xc3\xa9"}\n\ndata: [DONE]\n\n'
    pieces = [body[:36], body[36:37], body[37:]]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nSet-Cookie: secret\r\n"
            b"x-request-id: r1\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for piece in chunks(pieces):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)

    path = tmp_path / "cut.jsonl"
    async with RawServer(answer) as server:
        model = OpenResponses(server.base_url, api_key="k")
        with Cassette(path), pytest.raises(Truncated):
            await collect(model.stream(request()))
        await model.aclose()
    (kept,) = read_cassette(path)
    assert b"".join(kept.pieces()) == body
    assert len(kept.pieces()) >= 2
    assert kept.headers == {"content-type": "text/event-stream", "x-request-id": "r1"}
    assert kept.value() == json.loads(server.bodies[0])


async def test_bytes_that_are_no_text_are_kept_exactly(tmp_path: Path) -> None:
    from tests.models.bedrock.streams import start, stop, text

    path = tmp_path / "binary.jsonl"
    stream = start() + text(0, "Hello.") + stop()
    usages = []
    for server_up in (True, False):
        async with RawServer(http(stream, type_="application/vnd.amazon.eventstream")) as server:
            url = server.base_url if server_up else "http://127.0.0.1:1/v1"
            model = Bedrock(base_url=url, region="eu-central-1", api_key="k")
            with Cassette(path):
                response = await collect(model.stream(request()))
            await model.aclose()
        assert response.output_text == "Hello."
        usages.append(response.usage)
    assert usages[0] == usages[1]
    (kept,) = read_cassette(path)
    assert kept.pieces() == [stream] or b"".join(kept.pieces()) == stream
    assert kept.body == ""


async def test_streamed_and_whole_answers_count_the_same(tmp_path: Path) -> None:
    path = tmp_path / "both.jsonl"
    async with LoopbackServer(ScriptedModel(lambda number: "Hello there.")) as server:
        model = OpenResponses(server.base_url)
        with Cassette(path):
            await collect(model.stream(request()))
            await model.create(request())
        await model.aclose()
    with Cassette(path):
        streamed = await collect(model.stream(request()))
        whole = await model.create(request())
    assert streamed.usage
    assert streamed.usage == whole.usage


async def test_errors_are_replayed_as_the_errors_they_were(tmp_path: Path) -> None:
    path = tmp_path / "errors.jsonl"
    body = b'{"error":{"message":"slow down","type":"rate_limit_error","param":null,"code":null}}'
    async with RawServer(http(body, status=429, Retry_After="7")) as server:
        model = OpenResponses(server.base_url, api_key="k")
        for _ in range(2):
            with Cassette(path), pytest.raises(RateLimited) as refused:
                await collect(model.stream(request()))
            assert refused.value.retry_after == 7
        await model.aclose()

    timeout = ModelTimeout("idle", 3.0)
    lost = Exchange(
        url="http://h/v1/responses",
        request=(await _sent(request())),  # type: ignore[arg-type]
        failure=Failure.of(timeout),
    )
    write_cassette(path, [lost])
    with Cassette(path), pytest.raises(ModelTimeout) as failed:
        await collect(model.stream(request()))
    assert (failed.value.phase, failed.value.seconds) == ("idle", 3.0)


async def _sent(asked: ModelRequest) -> object:
    import msgspec

    from perdure.models.openresponses import request_body

    return msgspec.Raw(b"".join(request_body(asked).fragments))


async def test_a_request_that_changed_is_missed_and_the_error_says_where(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    async with LoopbackServer(ScriptedModel(lambda number: "Hello.")) as server:
        model = OpenResponses(server.base_url)
        with Cassette(path):
            await collect(model.stream(request("hi")))
        await model.aclose()
    with Cassette(path), pytest.raises(NotRecorded) as missed:
        await collect(model.stream(request("ho")))
    assert missed.value.at == "input[0].content[0].text"
    with Cassette(path), pytest.raises(NotRecorded, match="temperature"):
        await collect(model.stream(request("hi", temperature=0)))
    with Cassette(path, by_order=True) as cassette:
        assert (await collect(model.stream(request("ho")))).output_text == "Hello."
        with pytest.raises(NotRecorded):
            await collect(model.stream(request("hi")))
        assert cassette.unused == ()


async def test_the_same_request_twice_gets_its_two_answers_in_order(tmp_path: Path) -> None:
    path = tmp_path / "twice.jsonl"
    answers = iter(["one", "two"])
    async with LoopbackServer(ScriptedModel(lambda number: next(answers))) as server:
        model = OpenResponses(server.base_url)
        with Cassette(path):
            for _ in range(2):
                await collect(model.stream(request()))
        await model.aclose()
    with Cassette(path):
        got = [(await collect(model.stream(request()))).output_text for _ in range(2)]
    assert got == ["one", "two"]


async def test_what_must_not_be_kept_is_scrubbed_and_replays_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "scrubbed.jsonl"

    def scrub(text: str) -> str:
        return text.replace("Ann", "NAME")

    async with LoopbackServer(ScriptedModel(["Hello, Ann."])) as server:
        model = OpenResponses(server.base_url)
        with Cassette(path, scrub=scrub):
            live = await collect(model.stream(request("I am Ann")))
        await model.aclose()
    assert "Ann" in live.output_text
    assert b"Ann" not in path.read_bytes()
    with Cassette(path, scrub=scrub):
        again = await collect(model.stream(request("I am Ann")))
    assert again.status == "completed"


async def test_an_answer_that_nobody_read_to_its_end_is_no_whole_answer_later(
    tmp_path: Path,
) -> None:
    path = tmp_path / "left.jsonl"
    async with LoopbackServer(ScriptedModel(["one two three"], delay=0.01)) as server:
        model = OpenResponses(server.base_url)
        with Cassette(path):
            async with model.stream(request()) as stream:
                await anext(stream)
        await model.aclose()
    assert read_cassette(path)[0].abandoned
    with Cassette(path), pytest.raises(Truncated):
        await collect(model.stream(request()))


async def test_a_block_that_fails_leaves_no_half_of_a_cassette(tmp_path: Path) -> None:
    path = tmp_path / "half.jsonl"
    async with LoopbackServer(ScriptedModel(["Hello."])) as server:
        model = OpenResponses(server.base_url)
        with pytest.raises(ZeroDivisionError), Cassette(path):
            raise ZeroDivisionError(await collect(model.stream(request())))
        await model.aclose()
    assert not path.exists()


async def test_outside_the_block_nothing_is_taped(tmp_path: Path) -> None:
    with Cassette(tmp_path / "x.jsonl"):
        assert current_tape.get() is not None
    assert current_tape.get() is None


def test_what_is_no_cassette_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="record it first"):
        Cassette(tmp_path / "missing.jsonl", mode="replay")
    path = tmp_path / "broken.jsonl"
    path.write_text('{"url": "x", "request": {}}\n{"url":\n')
    with pytest.raises(ConfigError, match="line 2"):
        Cassette(path)


async def test_a_recorded_model_is_a_model_that_needs_its_server_once(tmp_path: Path) -> None:
    path = tmp_path / "model.jsonl"
    script = ScriptedModel([call("add", {"a": 1, "b": 2}), "Three."])
    async with LoopbackServer(script) as server:
        client = OpenResponses(server.base_url)
        live = Agent(RecordedModel(Resolved(client, "m"), path), tools=[add])
        first = await live.run("1 + 2?")
        await client.aclose()
    later = Agent(RecordedModel(Resolved(client, "m"), path), tools=[add])
    again = await later.run("1 + 2?")
    assert (first.text, again.text) == ("Three.", "Three.")
    assert again.items == first.items
    with pytest.raises(RunFailed, match="no answer to this request"):
        await Agent(RecordedModel(Resolved(client, "m"), path), tools=[add], retry=Retry()).run(
            "2 + 2?"
        )


def test_a_recorded_model_can_what_the_model_behind_it_can(tmp_path: Path) -> None:
    recorded = RecordedModel("anthropic:claude-sonnet-4-5", tmp_path / "x.jsonl")
    assert recorded.capabilities("").schema
    asked = request(presence_penalty=1)
    assert [loss.at for loss in recorded.losses(asked)] == ["presence_penalty"]


def test_scripts_replay_too(tmp_path: Path) -> None:
    path = tmp_path / "sync.jsonl"
    body = (
        b'{"id":"r","object":"response","status":"completed","output":[{"type":"message","id":"m",'
        b'"role":"assistant","status":"completed",'
        b'"content":[{"type":"output_text","text":"Hello.","annotations":[]}]}]}'
    )
    exchange = Exchange(
        url="https://api.openai.com/v1/responses",
        request=b"{}",  # type: ignore[arg-type]
        status=200,
        headers={"content-type": "application/json"},
        body=body.decode(),
    )
    import msgspec

    write_cassette(path, [msgspec.structs.replace(exchange, request=msgspec.Raw(b"{}"))])
    with Cassette(path, by_order=True):
        assert Agent("openai:gpt-5-mini").run_sync("hi").text == "Hello."
