"""Faults that agents with a memory were reported for, each with an agent that records."""

from __future__ import annotations

import asyncio
import enum
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from perdure import Agent, Guard, RunFailed, Session, ToolDecision, approve, tool
from perdure.errors import StoreFailed
from perdure.log import AnyEntry, Appended, Fence, Summary
from perdure.log.header import new_header
from perdure.loop import Middleware, ToolCallInfo
from perdure.loop.middleware import MessageInfo
from perdure.stores import open_store
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore
from perdure.testing import FakeClock, ScriptedModel, call, text as say, turn
from perdure.tools import Effect, current_call
from perdure.wire import Message, Request
from tests.face.recorded import NAME, crashed, outputs, paired, session_in, types
from tests.log.building import Built

KILLED = """
import asyncio, os, signal, sys
from perdure import Agent, tool
from perdure.testing import ScriptedModel, call

@tool  # the effect is `once`
async def slow() -> str:
    "Take long."
    with open(sys.argv[2], "a") as ran:
        ran.write("x")
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"

async def main():
    agent = Agent(ScriptedModel([call("slow", {})]), tools=[slow], store=sys.argv[1])
    async with agent.session("chat") as chat:
        await chat.send("go")

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["file", "sqlite"])
async def test_a_process_killed_in_a_tool_leaves_a_chat_that_goes_on(
    kind: str, tmp_path: Path
) -> None:
    """The tool ran once, and every later request is valid."""
    url = {"file": f"file://{tmp_path}/log", "sqlite": f"sqlite:///{tmp_path}/log.db"}[kind]
    ran = tmp_path / "ran"
    died = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", KILLED, url, str(ran)], check=False
    )
    assert died.returncode < 0

    @tool
    async def slow() -> str:
        """Take long."""
        with ran.open("a") as again:
            again.write("x")
        return "ran again"

    model = ScriptedModel({1: "I will look.", 2: "It is there."}.__getitem__)
    later = FakeClock(wall=time.time_ns() + 60 * 10**9)  # in SQLite a lease has to lapse
    store = SqliteStore(tmp_path / "log.db", clock=later) if kind == "sqlite" else open_store(url)
    async with Agent(model, tools=[slow], store=store).session(NAME) as chat:
        assert (await chat.send("continue")).text == "I will look."
        assert (await chat.send("and?")).text == "It is there."
    assert ran.read_text() == "x"
    assert all(paired(list(request.input)) for request in model.requests)
    [(_, said)] = outputs(model.requests[0].input)
    assert "outcome of this call is unknown" in said
    await session_in(store)
    await store.close()


async def test_a_stale_second_result_stays_in_the_record_and_out_of_the_request() -> None:
    """The first is the answer; the second is named among what was left out."""
    built = Built(new_header("s1", "2026-10-01T12:00:00Z"))
    built.config(model="m")
    built.start()
    built.user()
    built.call("A")
    built.response()
    built.dispatch("A")
    built.output("A", "1")
    stale = built.output("A", "2")
    built.end()
    store = MemoryStore()
    await store.create(built.header, name=NAME, batch=built.session.entries)
    model = ScriptedModel(lambda _: say("fine"))
    for _ in range(2):
        async with Agent(model, model_name="m", store=store).session(NAME) as chat:
            await chat.send("next")
    assert [outputs(request.input) for request in model.requests] == [[("A", "1")]] * 2
    session = await session_in(store)
    assert stale in session
    assert [one.entry for one in session.context().omitted] == [stale]
    assert types(session).count("config") <= 3
    assert all(e.members.get("request_hash") for e in session.entries[9:] if e.type == "response")


class FailsOnce(MemoryStore):
    """Fails the append that holds some text, so often, before it is written or after."""

    def __init__(self, text: bytes, when: str = "before", times: int = 1) -> None:
        super().__init__()
        self.text, self.when, self.times = text, when, times

    async def append(
        self,
        session: str,
        version: int,
        fence: Fence,
        batch: Sequence[AnyEntry],
        *,
        consumed: Sequence[str] = (),
        summary: Summary | None = None,
    ) -> Appended:
        fails = self.times > 0 and any(self.text in entry.line for entry in batch)
        self.times -= fails
        if fails and self.when == "before":
            raise StoreFailed("the disk was away")
        done = await super().append(
            session, version, fence, batch, consumed=consumed, summary=summary
        )
        if fails:
            raise StoreFailed("written, and nobody heard")
        return done


class Holds(Middleware):
    async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
        return ToolDecision(action="hold", reason="ask first")


def charging(effect: Effect = "once") -> tuple[list[str], object]:
    ran: list[str] = []

    @tool(effect=effect)
    async def charge() -> str:
        """Charge."""
        ran.append(current_call().id)
        return "charged"

    return ran, charge


def charges(store: MemoryStore, *tools: object, answer: str = "Done.", **members: object) -> Agent:
    script = [call("charge", call_id="c1"), say(answer)]
    return Agent(ScriptedModel(script), tools=tools, store=store, **members)  # type: ignore[arg-type]


class Impatient(FakeClock):
    """Sleeping takes no time."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_result_whose_write_failed_once_is_written_again_and_runs_once(when: str) -> None:
    """An append of unknown outcome is settled by the same bytes."""
    store = FailsOnce(b'"charged"', when)
    ran, charge = charging()
    agent = charges(store, charge, middleware=[Holds()], clock=Impatient())
    async with agent.session(NAME) as chat:
        await chat.send("go")
        assert (await chat.resume(approve("c1", by="human"))).text == "Done."
    assert ran == ["c1"]
    session = await session_in(store)
    assert outputs(session.context().items) == [("c1", "charged")]


async def test_a_result_that_could_not_be_written_is_unknown_and_does_not_run_again() -> None:
    """Where the store stayed away: no request goes out before the call has its output."""
    store = FailsOnce(b'"charged"', times=100)
    ran, charge = charging()
    agent = charges(store, charge, middleware=[Holds()], clock=Impatient())
    async with agent.session(NAME) as chat:
        await chat.send("go")
        with pytest.raises(RunFailed):
            await chat.resume(approve("c1", by="human"))
    store.times = 0
    agent = charges(store, charge, answer="I will check.")
    async with agent.session(NAME) as chat:
        (waiting,) = chat.state.pending
        assert waiting.may_have_run
        assert (await chat.send("well?")).text == "I will check."
    assert ran == ["c1"]
    [(_, said)] = outputs((await session_in(store)).context().items)
    assert "unknown" in said


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_guard_on_the_answer_of_a_resume_keeps_the_call_and_its_output(
    streamed: bool,
) -> None:
    """The answer alone is withheld, and both ways record the same."""

    class Trips(Middleware):
        async def on_message(self, message: Message, info: MessageInfo) -> Message | None:
            raise Guard("the secret policy")

    store = MemoryStore()
    ran, charge = charging()
    agent = charges(store, charge, middleware=[Holds(), Trips()], answer="a secret")
    async with agent.session(NAME) as chat:
        await chat.send("go")
        if streamed:
            async with chat.stream_resume(approve("c1", by="human")) as stream:
                result = await stream.result()
        else:
            result = await chat.resume(approve("c1", by="human"))
        assert (result.status, result.text) == ("stopped", "")
        items = [item.type for item in chat.state.transcript]
    assert ran == ["c1"]
    assert items == ["message", "function_call", "function_call_output"]
    session = await session_in(store)
    assert [item.type for item in session.context().items] == items
    assert types(session)[-1] == "run end aborted"
    assert b"secret" not in b"".join(entry.line for entry in session.entries)


async def going_on(chat: Session[str], how: str) -> None:
    """Go on with a session in one of the four ways to do it."""
    match how:
        case "continue":
            await chat.continue_()
        case "send":
            await chat.send("and?")
        case _:
            opened = chat.stream_continue() if how == "continue, streamed" else chat.stream("and?")
            async with opened as stream:
                await stream.result()


@pytest.mark.parametrize("how", ["continue", "continue, streamed", "send", "send, streamed"])
@pytest.mark.parametrize("started", [False, True])
async def test_a_half_answered_batch_is_taken_up_before_the_model_is_asked(
    started: bool, how: str
) -> None:
    """The other call runs if it never started, and is reported unknown if it had."""
    store = MemoryStore()
    ran, charge = charging()
    both = turn(call("charge", call_id="c1"), call("charge", call_id="c2"))
    agent = Agent(ScriptedModel([both, "Done."]), tools=[charge], store=store, sequential=True)  # type: ignore[list-item]
    async with agent.session(NAME) as chat:
        await chat.send("go")
    seen = types(await session_in(store))
    second = len(seen) - 1 - seen[::-1].index("dispatch")
    store = await crashed(store, second + started)
    ran.clear()
    model = ScriptedModel([both, "Done."])
    async with Agent(model, tools=[charge], store=store).session(NAME) as chat:  # type: ignore[list-item]
        (waiting,) = chat.state.pending
        assert (waiting.call.call_id, waiting.may_have_run) == ("c2", started)
        await going_on(chat, how)
    assert ran == ([] if started else ["c2"])
    (request,) = model.requests
    first, (name, said) = outputs(request.input)
    assert (first, name) == (("c1", "charged"), "c2")
    assert ("unknown" in said) == started


async def test_a_record_grows_with_what_was_said_and_not_with_its_square(tmp_path: Path) -> None:
    """100 calls of 5 kB on a long base."""

    @tool(effect="none")
    async def page(number: int) -> str:
        """Read a page."""
        return str(number).zfill(4) * 1250

    base = "word " * 160_000
    script = [*[call("page", {"number": n}) for n in range(100)], say("Read.")]
    url = f"file://{tmp_path}"
    agent = Agent(ScriptedModel(script), tools=[page], store=url, max_turns=None)
    assert (await agent.run(base)).text == "Read."
    await agent.aclose()
    (file,) = tmp_path.rglob("*.jsonl")  # noqa: ASYNC240
    assert file.stat().st_size <= 1.3 * (len(base) + 100 * 5000)


@pytest.mark.parametrize("kind", ["memory", "file", "sqlite"])
async def test_a_large_output_is_recorded_at_once_and_comes_back_whole(
    kind: str, tmp_path: Path
) -> None:
    """3 MB from a tool, then another drive over it."""
    store = open_store(
        {"memory": "memory:", "file": f"file://{tmp_path}", "sqlite": f"sqlite:///{tmp_path}/l"}[
            kind
        ]
    )

    @tool(effect="none")
    async def dump() -> str:
        """Dump."""
        return "x" * 3_000_000

    script = [call("dump"), say("Much.")]
    async with Agent(ScriptedModel(script), tools=[dump], store=store).session(NAME) as chat:
        await chat.send("go")
    model = ScriptedModel({2: "Still much."}.__getitem__)
    async with Agent(model, tools=[dump], store=store).session(NAME) as chat:
        assert (await chat.send("and?")).text == "Still much."
    [(_, said)] = outputs(model.requests[0].input)
    assert said == "x" * 3_000_000
    session = await session_in(store)
    assert sum(len(entry.line) for entry in session.entries) < 3_100_000
    await store.close()


async def test_two_entries_of_one_second_both_land_in_their_order() -> None:
    """Timestamps never order, and a clock that stands still is no reason to refuse."""
    store = MemoryStore()
    agent = Agent(ScriptedModel(lambda n: say(f"answer {n}")), store=store, clock=FakeClock())
    async with agent.session(NAME) as chat:
        await chat.send("one")
        await chat.send("two")
    session = await session_in(store)
    parents = [entry.parent for entry in session.entries]
    assert parents == [None, *(entry.id for entry in session.entries[:-1])]
    said = [getattr(item, "text", "") for item in session.context().items]
    assert said == ["one", "answer 0", "two", "answer 1"]


class Colour(enum.Enum):
    RED = 1


async def test_a_value_that_no_record_can_hold_is_refused_when_it_is_written() -> None:
    """With its path; the session goes on."""
    store = MemoryStore()
    problems: list[str] = []

    @tool(effect="none")
    async def paint() -> str:
        """Paint."""
        try:
            await current_call().write_record("acme:state", {"wall": {"colour": Colour.RED}})
        except Exception as error:  # noqa: BLE001
            problems.append(str(error))
        return "painted"

    agent = Agent(ScriptedModel([call("paint"), say("Done.")]), tools=[paint], store=store)
    async with agent.session(NAME) as chat:
        assert (await chat.send("go")).text == "Done."
    assert "Colour" in problems[0] and "colour" in problems[0]  # noqa: PT018
    assert "custom acme:state" not in types(await session_in(store))


async def test_entries_that_nobody_knows_come_back_byte_for_byte_and_hurt_nothing() -> None:
    """Unknown types are kept, never None."""
    built = Built(new_header("s1", "2026-10-01T12:00:00Z"))
    built.config(model="m")
    strange = built.add("acme:mood", {"feels": {"z": 1, "a": [None, 12345678901234567890]}})
    store = MemoryStore()
    await store.create(built.header, name=NAME, batch=built.session.entries)
    async with Agent(ScriptedModel(["Hello."]), store=store).session(NAME) as chat:
        await chat.send("hi")
    session = await session_in(store)
    assert session.entry(strange).line == built.session.entry(strange).line


ODD = "W\x00s \\u0000 \U0001f600 123456789012345678901234567890"


@pytest.mark.parametrize("kind", ["memory", "file", "sqlite"])
async def test_what_databases_choke_on_is_kept(kind: str, tmp_path: Path) -> None:
    """Exactly, but for a lone surrogate, whose original is in the entry."""
    store = open_store(
        {"memory": "memory:", "file": f"file://{tmp_path}", "sqlite": f"sqlite:///{tmp_path}/l"}[
            kind
        ]
    )

    @tool(effect="none")
    async def odd(half: bool) -> str:
        """Say something odd."""
        return ODD + ("\ud800" if half else "")

    script = [call("odd", {"half": False}), call("odd", {"half": True}), say("Odd.")]
    async with Agent(ScriptedModel(script), tools=[odd], store=store).session(NAME) as chat:
        assert (await chat.send("go")).text == "Odd."
    session = await session_in(store)
    (_, exact), (_, changed) = outputs(session.context().items)
    assert (exact, changed) == (ODD, ODD + "\ufffd")
    (was,) = [e.members["normalised"] for e in session.entries if "normalised" in e.members]
    assert [json.loads(one["was"]) for one in was] == [ODD + "\ud800"]  # type: ignore[attr-defined]
    await store.close()


async def test_a_record_only_grows_whatever_the_view_of_it_does() -> None:
    """An answer that was cut leaves the view shorter, never the record."""
    store = MemoryStore()
    seen: list[list[bytes]] = []
    shown: list[int] = []

    class Stops(Middleware):
        async def before_turn(self, info: object) -> Sequence[Message]:
            if len(shown) == 1:
                chat.abort("enough")
            return ()

    agent = Agent(
        ScriptedModel(lambda n: say(f"answer {n}")),
        store=store,
        middleware=[Stops()],
        settings=Request(temperature=0),
    )
    for said in ("one", "two", "three"):
        async with agent.session(NAME) as chat:
            await chat.send(said)
            shown.append(len(chat.state.transcript))
        seen.append([entry.line for entry in (await session_in(store)).entries])
    assert shown == [2, 3, 5]
    for before, after in itertools.pairwise(seen):
        assert after[: len(before)] == before
