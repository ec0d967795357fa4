"""Batteries around tools: retry, cache, log, redaction."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from perdure import Agent, ConfigError, Retry, RunFailed, ToolError, tool
from perdure.errors import Guard, OutcomeUnknown, Overloaded
from perdure.log.entries import DispatchEntry
from perdure.loop import Middleware, NextTool, ToolCallInfo, ToolDispatch, ToolEnd
from perdure.middleware import Redact, Redactor, ToolCache, ToolLog, ToolRetry
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock, ScriptedModel, call, fail, turn
from perdure.testing.scripted import TurnLike
from perdure.tools import Call, Effect, TypedTool
from perdure.wire import FunctionCallOutput
from tests.face.recorded import crashed, session_in

LEAKY = "https://ann:hunter2@host.example/a?key=sk-1&b=2#tok"


def flaky(effect: Effect, failures: int = 2) -> tuple[TypedTool[Any, Any], list[str]]:
    """A tool that fails so often, and the keys it was called with."""
    keys: list[str] = []

    @tool(name="flaky", effect=effect)
    async def work(handle: Call) -> str:
        """Work, in the end."""
        keys.append(handle.idempotency_key)
        if len(keys) <= failures:
            raise ToolError("not yet")
        return "worked"

    return work, keys


def output_of(result: Any) -> str:
    (found,) = [item for item in result.items if isinstance(item, FunctionCallOutput)]
    return found.text


def no_wait(attempt: int, error: Exception) -> float:
    return 0.0


# --- retry ------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["none", "idempotent", "keyed"])
async def test_a_call_whose_effect_allows_it_is_run_again_under_its_key(effect: Effect) -> None:
    work, keys = flaky(effect)
    agent = Agent(
        ScriptedModel([call("flaky"), "Done."]),
        tools=[work],
        middleware=[ToolRetry(3, backoff=no_wait)],
    )
    assert output_of(await agent.run("x")) == "worked"
    assert len(keys) == 3
    assert len(set(keys)) == 1


async def test_every_attempt_is_in_the_record_and_a_crash_between_two_keeps_the_key() -> None:
    work, keys = flaky("keyed")
    store = MemoryStore()
    agent = Agent(
        ScriptedModel([call("flaky"), "Done."]),
        tools=[work],
        middleware=[ToolRetry(3, backoff=no_wait)],
        store=store,
    )
    async with agent.session("chat") as chat:
        await chat.send("x")
    session = await session_in(store)
    dispatches = [at for at, one in enumerate(session.entries) if isinstance(one, DispatchEntry)]
    assert len(dispatches) == 3

    later, again = flaky("keyed", failures=0)
    resumed = agent.with_(tools=[later], store=await crashed(store, dispatches[1] + 1))
    async with resumed.session("chat") as chat:
        assert output_of(await chat.continue_()) == "worked"
    assert again == keys[:1]


async def test_a_call_that_may_happen_once_is_never_run_again() -> None:
    work, keys = flaky("once")
    agent = Agent(ScriptedModel([call("flaky"), "Done."]), tools=[work], middleware=[ToolRetry()])
    assert output_of(await agent.run("x")) == "Error: not yet"
    assert len(keys) == 1


async def test_the_effect_of_these_arguments_decides() -> None:
    ran: list[str] = []

    @tool(effect=lambda arguments: "none" if arguments.get("dry") else "once")
    async def work(dry: bool) -> str:
        """Work."""
        ran.append("dry" if dry else "wet")
        raise ToolError("no")

    model = ScriptedModel([call("work", {"dry": True}), call("work", {"dry": False}), "Done."])
    await Agent(model, tools=[work], middleware=[ToolRetry(2, backoff=no_wait)]).run("x")
    assert ran == ["dry", "dry", "wet"]


async def test_the_last_error_is_what_the_model_reads() -> None:
    work, keys = flaky("none", failures=9)
    agent = Agent(
        ScriptedModel([call("flaky"), "Done."]),
        tools=[work],
        middleware=[ToolRetry(4, backoff=no_wait)],
    )
    assert output_of(await agent.run("x")) == "Error: not yet"
    assert len(keys) == 4


async def test_it_waits_between_attempts() -> None:
    clock = FakeClock()
    work, keys = flaky("none")
    retry = ToolRetry(3, backoff=lambda attempt, error: attempt * 10.0, clock=clock)
    agent = Agent(ScriptedModel([call("flaky"), "Done."]), tools=[work], middleware=[retry])
    running = asyncio.create_task(agent.run("x"))
    await clock.advance(9)
    assert len(keys) == 1
    await clock.advance(2)
    assert len(keys) == 2
    await clock.advance(20)
    assert (await running).status == "done"


async def test_only_errors_worth_it_are_tried_again_and_a_guard_never_is() -> None:
    work, keys = flaky("none")
    retry = ToolRetry(3, retryable=lambda error: "busy" in str(error), backoff=no_wait)
    await Agent(ScriptedModel([call("flaky"), "Done."]), tools=[work], middleware=[retry]).run("x")
    assert len(keys) == 1

    class Stops(Middleware):
        entered = 0

        async def wrap_tool_call(self, info: ToolCallInfo, next: NextTool) -> Any:  # noqa: A002
            self.entered += 1
            raise Guard("no")

    stops = Stops()
    agent = Agent(
        ScriptedModel([call("flaky")]),
        tools=[flaky("none")[0]],
        middleware=[ToolRetry(3, backoff=no_wait), stops],
    )
    assert (await agent.run("x")).cause == "guard"
    assert stops.entered == 1


def test_no_attempts_are_refused() -> None:
    with pytest.raises(ConfigError, match="attempts"):
        ToolRetry(0)


# --- cache ---------------------------------------------------------------------------------------


async def test_a_call_that_asks_the_same_again_is_answered_without_running() -> None:
    ran: list[str] = []

    @tool(effect="none")
    async def look(what: str, *, deep: bool = False) -> str:
        """Look something up."""
        ran.append(what)
        return f"{what} was found"

    clock = FakeClock()
    cache = ToolCache(look, ttl=60, clock=clock)
    script: list[TurnLike] = [
        call("look", '{"what": "a", "deep": true}'),
        call("look", '{ "deep": true, "what": "a" }'),
        call("look", {"what": "b"}),
        "Done.",
    ]
    agent = Agent(ScriptedModel(script), tools=[look], middleware=[cache])
    result = await agent.run("x")
    assert ran == ["a", "b"]
    texts = [item.text for item in result.items if isinstance(item, FunctionCallOutput)]
    assert texts == ["a was found", "a was found", "b was found"]

    await Agent(ScriptedModel(script), tools=[look], middleware=[cache]).run("x")
    assert ran == ["a", "b"]
    await clock.advance(61)
    await Agent(ScriptedModel(script), tools=[look], middleware=[cache]).run("x")
    assert ran == ["a", "b", "a", "b"]


async def test_errors_are_not_kept_and_neither_is_more_than_the_size() -> None:
    work, keys = flaky("none", failures=1)
    cache = ToolCache(work, size=1)
    model = ScriptedModel([call("flaky"), call("flaky"), call("flaky"), "Done."])
    await Agent(model, tools=[work], middleware=[cache]).run("x")
    assert len(keys) == 2

    ran: list[int] = []

    @tool(effect="none")
    async def square(n: int) -> int:
        """Square."""
        ran.append(n)
        return n * n

    model = ScriptedModel([*(call("square", {"n": n}) for n in (1, 2, 1)), "Done."])
    await Agent(model, tools=[square], middleware=[ToolCache(square, size=1)]).run("x")
    assert ran == [1, 2, 1]


@pytest.mark.parametrize("effect", ["idempotent", "keyed", "once", lambda arguments: "none"])
def test_a_tool_with_an_effect_is_refused_when_the_cache_is_made(effect: Any) -> None:
    @tool(effect=effect)
    def act() -> str:
        """Act."""
        return ""

    with pytest.raises(ConfigError, match="only results of tools with the effect 'none'"):
        ToolCache(act)
    with pytest.raises(ConfigError):
        ToolCache()


async def test_another_tool_of_the_name_with_an_effect_is_run_each_time() -> None:
    pure, _ = flaky("none", failures=0)
    charged, keys = flaky("once", failures=0)
    model = ScriptedModel([call("flaky"), call("flaky"), "Done."])
    await Agent(model, tools=[charged], middleware=[ToolCache(pure)]).run("x")
    assert len(keys) == 2


async def test_a_kept_result_is_recorded_without_a_dispatch() -> None:
    work, _ = flaky("none", failures=0)
    store = MemoryStore()
    agent = Agent(
        ScriptedModel([call("flaky"), call("flaky"), "Done."]),
        tools=[work],
        middleware=[ToolCache(work)],
        store=store,
    )
    async with agent.session("chat") as chat:
        events: list[Any] = []

        async def hear(event: Any) -> None:
            events.append(event)

        chat.subscribe(hear)
        await chat.send("x")
    assert sum(isinstance(event, ToolDispatch) for event in events) == 1
    await session_in(store)  # verifies it


# --- log ---------------------------------------------------------------------------------------


async def test_a_line_says_what_ran_and_hides_what_was_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool(effect="none")
    async def fetch(url: str) -> str:
        """Fetch."""
        if "bad" in url:
            raise ToolError(f"cannot fetch {url}")
        return f"fetched {url}"

    script = turn(call("fetch", {"url": LEAKY}), call("fetch", {"url": LEAKY + "bad"}))
    logger = logging.getLogger("perdure.tests.tools")
    for text in (False, True):
        caplog.clear()
        log = ToolLog(logger, text=text, clock=FakeClock())
        with caplog.at_level(logging.INFO, logger.name):
            model = ScriptedModel([script, "Done."])
            await Agent(model, tools=[fetch], middleware=[log], sequential=True).run("x")
        first, second = [record.getMessage() for record in caplog.records]
        assert "tool fetch" in first
        assert "effect none, 0.000 s" in first
        assert "ToolError" in second
        assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
        assert ("fetched" in first) == ("cannot fetch" in second) == text
        assert not any(secret in first + second for secret in ("hunter2", "sk-1", "#tok"))


# --- redaction ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (LEAKY, "https://REDACTED@host.example/a?key=REDACTED&b=REDACTED#REDACTED"),
        ("see postgres://u:p@h/db.", "see postgres://REDACTED@h/db."),
        ("http://h/p?token", "http://h/p?REDACTED"),
        ("http://h/p and ftp://h/#f", "http://h/p and ftp://h/#REDACTED"),
        ("no secrets here: 1 + 1 = 2?", "no secrets here: 1 + 1 = 2?"),
    ],
)
def test_the_secrets_of_urls_are_replaced(text: str, clean: str) -> None:
    assert Redactor()(text) == clean


def test_patterns_and_texts_say_what_else_is_secret() -> None:
    redact = Redactor([r"sk-\w+", r"password[:=] *(\S+)"], secrets=["s3cret", ""])
    assert redact("sk-abc password: hunter2 s3cret ok") == (
        "REDACTED password: REDACTED REDACTED ok"
    )


@tool(effect="none")
async def leaks() -> str:
    """Fail with a secret."""
    raise OSError(f"cannot reach {LEAKY}")


async def test_neither_model_nor_record_nor_events_read_a_secret() -> None:
    store = MemoryStore()
    model = ScriptedModel([call("leaks"), "Done."])
    agent = Agent(model, tools=[leaks], middleware=[Redact()], store=store)
    ends: list[ToolEnd] = []

    async def hear(event: object) -> None:
        if isinstance(event, ToolEnd):
            ends.append(event)

    async with agent.session("chat") as chat:
        chat.subscribe(hear)
        result = await chat.send("x")
    assert "https://REDACTED@host.example/a?key=REDACTED" in output_of(result)
    lines = b"".join(bytes(entry.line) for entry in (await session_in(store)).entries)
    assert b"hunter2" not in lines
    assert b"sk-1" not in lines
    assert "hunter2" not in str(ends[0].error)
    assert ends[0].error is not None
    assert "hunter2" in str(ends[0].error.__cause__)  # the host's own


async def test_what_the_model_is_told_beside_the_error_stays() -> None:
    @tool
    async def pays() -> str:
        """Fail without knowing."""
        raise OutcomeUnknown(f"lost the connection to {LEAKY}")

    model = ScriptedModel([call("pays"), "Done."])
    said = output_of(await Agent(model, tools=[pays], middleware=[Redact()]).run("x"))
    assert "hunter2" not in said
    assert "may have taken effect" in said


async def test_a_models_error_is_redacted_too() -> None:
    model = ScriptedModel([Overloaded(f"upstream {LEAKY} has no room", status=503)])
    store = MemoryStore()
    agent = Agent(model, middleware=[Redact("host.[a-z]+")], store=store, retry=Retry())
    async with agent.session("chat") as chat:
        with pytest.raises(RunFailed) as failed:
            await chat.send("x")
    cause = failed.value.cause
    assert isinstance(cause, Overloaded)
    assert "REDACTED@REDACTED" in cause.message
    assert "hunter2" not in str(failed.value)
    lines = b"".join(bytes(entry.line) for entry in (await session_in(store)).entries)
    assert b"hunter2" not in lines


async def test_what_a_server_says_in_its_stream_is_redacted_too() -> None:
    agent = Agent(ScriptedModel([fail(f"no {LEAKY}")]), middleware=[Redact()], retry=Retry())
    with pytest.raises(RunFailed) as failed:
        await agent.run("x")
    assert "hunter2" not in str(failed.value)
    assert "REDACTED@host" in str(failed.value)


async def test_results_and_errors_without_secrets_are_left_alone() -> None:
    @tool(effect="none")
    async def fetch() -> str:
        """Fetch."""
        return LEAKY

    model = ScriptedModel([call("fetch"), "Done."])
    result = await Agent(model, tools=[fetch], middleware=[Redact()]).run("x")
    assert output_of(result) == LEAKY
