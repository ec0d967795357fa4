"""What perdure writes passes a checker that knows only the core of the format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from perdure.log.recording import Recording, go_on
from perdure.loop import (
    Config,
    Hidden,
    Middleware,
    Queues,
    ToolCallInfo,
    ToolDecision,
    Waiting,
    approve,
)
from perdure.loop.middleware import TurnStartInfo
from perdure.testing.scripted import Script, call, reasoning, text, turn
from perdure.tools import ToolSet
from perdure.wire import Item, Request, decode_item, user
from tests.log.core_checker import Checker
from tests.log.driving import Counted, config_of, crashed_after, drive, fresh
from tests.log.test_resuming import finish


class Decides(Middleware):
    """Holds one call and rejects another; somebody steers meanwhile."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
        held = {'{"n":3}': ToolDecision(action="hold", reason="ask", arguments='{"n":30}')}
        no = {'{"n":2}': ToolDecision(action="reject", reason="no")}
        return (held | no).get(info.arguments)

    async def before_turn(self, info: TurnStartInfo) -> Sequence[Item | Hidden]:
        if not len(info.transcript) > 2:
            self._queues.put(Waiting(id="q1", item=user("shorter"), mode="steer"), "r")
        return [Hidden(user("it is noon"))] if len(info.transcript) == 2 else ()


SCRIPT: Script = [
    turn(reasoning("hm", encrypted_content="e"), call("act", {"n": 1}), call("act", {"n": 2})),
    turn("Let me see.", call("act", {"n": 3})),
    call("slow", {"n": 4}),
    turn(reasoning("so", encrypted_content="f"), text("all done")),
    "again",
]


async def recorded() -> tuple[Recording, list[object]]:
    recording = await fresh()
    queues = Queues()
    tools = [Counted(), Counted("slow", "none", lambda _: "W\x00s \ud800 \U0001f600")]
    config = config_of(
        SCRIPT,
        tools,
        middleware=[Decides(queues)],
        instructions="Be \u20ac",
        settings=Request(top_p=0.5),
    )
    note = decode_item(b'{"type":"acme:note","id":"n1","text":"aside"}')
    end = await drive(recording, config, "go", note, queues=queues)
    (held,) = end.pending
    await drive(recording, config, answers=[approve(held.call.call_id, by="human")])
    other = config_of(SCRIPT, tools[:1])
    await drive(recording, other, "and now")
    await recording.close()
    return recording, list(tools)


async def data_of(recording: Recording) -> bytes:
    stored = await recording.store.read(recording.session.id)
    return b"\n".join([stored.header.line, *stored.lines])


async def take_up(again: Recording, config: Config) -> None:
    """Go on, somebody approving what is held."""
    tools = ToolSet(config.tools)
    held = [one.call.call_id for one in again.pending(tools) if one.reason == "held"]
    if held:
        approved = [approve(one, by="human") for one in held]
        await drive(again, config, answers=[*again.replay(tools), *approved])
    await finish(again, config)


async def test_a_session_passes_and_every_request_is_rebuilt() -> None:
    recording, _ = await recorded()
    checker = Checker(await data_of(recording))
    assert checker.faults == []
    assert checker.hashes == 5


async def test_what_a_crash_left_and_the_next_driver_mended_passes() -> None:
    recording, _ = await recorded()
    for kept in range(len(recording.session) + 1):
        again = await crashed_after(recording, kept)
        await take_up(again, config_of(SCRIPT, [Counted(), Counted("slow", "none")]))
        await again.close()
        assert Checker(await data_of(again)).faults == [], kept


@pytest.mark.parametrize(
    ("what", "becomes", "fault"),
    [
        (b'"ts":"20', b'"ts":"21', "its id is not its hash"),
        (b'"it is noon"', b'"it is five"', "its id is not its hash"),
    ],
)
async def test_the_checker_finds_what_is_wrong(what: bytes, becomes: bytes, fault: str) -> None:
    recording, _ = await recorded()
    spoiled = (await data_of(recording)).replace(what, becomes)
    assert re.search(fault, "\n".join(Checker(spoiled).faults))


@pytest.mark.parametrize("name", ["basic", "resume", "runs", "extensions", "empty-resume"])
def test_the_checker_agrees_about_published_sessions(sessions: Path, name: str) -> None:
    assert Checker((sessions / f"{name}.jsonl").read_bytes()).faults == []


async def test_a_session_taken_up_again_passes() -> None:
    recording, tools = await recorded()
    again = await go_on(recording.store, recording.session.id)
    await finish(again, config_of(SCRIPT, tools[:1]))  # type: ignore[arg-type]
    await again.close()
    assert Checker(await data_of(again)).faults == []
