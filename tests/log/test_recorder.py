"""The recorder: which entries an event becomes, when they are durable, what it refuses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest

from perdure.errors import EntryRefused, Guard, StopRequested, StoreFailed
from perdure.log.entries import ConfigEntry, DecisionEntry, ItemEntry, ResponseEntry
from perdure.log.recorded_requests import config_body, settings_of
from perdure.log.recording import go_on
from perdure.log.store import Message
from perdure.loop import (
    Config,
    Hidden,
    ItemEnd,
    Middleware,
    ModelRequest,
    Queues,
    Retry,
    ToolCallInfo,
    ToolDecision,
    ToolDispatch,
    Trigger,
    Waiting,
    approve,
    deny,
)
from perdure.loop.answers import answer_with as output
from perdure.loop.middleware import TurnStartInfo
from perdure.testing.scripted import (
    Script,
    ScriptedModel,
    Turn,
    attempts,
    call,
    error,
    fail,
    reasoning,
    text,
    turn,
)
from perdure.tools import ToolResult, ToolSet
from perdure.wire import Item, Request, assistant, decode_item, function_call_output, user
from tests.log.driving import (
    Counted,
    Flaky,
    Slow,
    config_of,
    crashed_after,
    drive,
    fresh,
    reading,
    types,
)


async def test_a_turn_with_a_call_is_recorded_in_order() -> None:
    recording = await fresh(settings=Request(model="m"))
    act = Counted()
    end = await drive(recording, config_of([call("act", {}), "done"], [act]), "go")
    read = await reading(recording)
    assert end.reason == "done"
    assert types(read.session.entries) == [
        "config",
        "run start",
        "item message",
        "config",
        "item function_call",
        "response",
        "dispatch",
        "item function_call_output",
        "item message",
        "response",
        "perdure:end",
        "run end done",
    ]
    assert read.faults == ()
    assert read.session.status == "done"
    assert list(read.session.context().items) == list(recording.transcript.snapshot())


@pytest.mark.parametrize(
    ("effect", "calls", "waits"),
    [("once", 1, 4), ("once", 3, 4), ("none", 1, 3), ("none", 3, 3), ("idempotent", 1, 4)],
)
async def test_a_drive_waits_at_three_points_only(effect: str, calls: int, waits: int) -> None:
    """Two waits a turn for one wave of calls, none for tools without an effect (DESIGN 7)."""
    recording = await fresh(Slow())
    act = Counted(effect=effect)  # type: ignore[arg-type]
    script: Script = [turn(*(call("act", {}) for _ in range(calls))), "done"]
    slow = SlowTickets(recording.recorder)
    await drive(recording, config_of(script, [act]), "go", ledger=slow)
    assert slow.waits == waits


class SlowTickets:
    """A ledger around a recorder that counts the waits that are not over at once."""

    def __init__(self, recorder: object) -> None:
        self._recorder = recorder
        self._seen: set[int] = set()

    def note(self, event: object) -> SlowTicket:
        return SlowTicket(self, self._recorder.note(event))  # type: ignore[attr-defined]

    @property
    def waits(self) -> int:
        return len(self._seen)


class SlowTicket:
    def __init__(self, ledger: SlowTickets, ticket: object) -> None:
        self._ledger = ledger
        self._ticket = ticket

    def __await__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204
        appender = self._ticket.appender  # type: ignore[attr-defined]
        if appender._durable < self._ticket.number:  # type: ignore[attr-defined]
            self._ledger._seen.add(appender._durable)
        yield from self._ticket.__await__()  # type: ignore[attr-defined]


async def test_each_further_wave_is_one_more_wait() -> None:
    recording = await fresh(Slow())
    first, second = Counted("first"), Counted("second")
    slow = SlowTickets(recording.recorder)
    script: Script = [turn(call("first", {}), call("second", {})), "done"]
    await drive(recording, config_of(script, [first, second], sequential=True), "go", ledger=slow)
    assert slow.waits == 5


async def test_what_every_request_held_is_rebuilt() -> None:
    recording = await fresh()
    tools = [Counted("a"), Counted("b")]
    config = config_of(
        [turn(reasoning("hm", encrypted_content="x"), call("a", {})), call("b", {}), "done"],
        tools,
        instructions="Be brief.",
        settings=Request(temperature=0.5, metadata={"k": "v"}),
    )
    await drive(recording, config, "go")
    await drive(recording, config_of(["again"]), "more")
    read = await reading(recording)
    responses = [e for e in read.session.entries if isinstance(e, ResponseEntry)]
    assert len(responses) == 4
    assert all(entry.request_hash for entry in responses)
    assert read.faults == ()


async def test_settings_that_stay_are_written_once() -> None:
    recording = await fresh()
    act = Counted()
    script: Script = [call("act", {}), call("act", {}), "done", "again"]
    config = config_of(script, [act])
    await drive(recording, config, "go")
    await drive(recording, config, "go on")
    read = await reading(recording)
    assert types(read.session.entries).count("config") == 1


async def test_bytes_a_turn_do_not_depend_on_the_length() -> None:
    recording = await fresh()
    act = Counted()
    await drive(recording, config_of([*[call("act", {}) for _ in range(30)], "done"], [act]), "go")
    read = await reading(recording)
    sizes: list[int] = []
    for entry in read.session.entries:
        if isinstance(entry, ResponseEntry):
            sizes.append(0)
        if sizes:
            sizes[-1] += len(entry.line)
    assert max(sizes[2:-1]) - min(sizes[2:-1]) < 64
    assert max(sizes[:-1]) < 3072


async def test_a_model_change_omits_the_other_models_thoughts() -> None:
    recording = await fresh()
    script: Script = [turn(reasoning("one"), text("a")), "b"]
    await drive(recording, config_of(script), "go")
    other = Config(model=ScriptedModel(script), model_name="n")
    await drive(recording, other, "go on")
    read = await reading(recording)
    configs = [e for e in read.session.entries if isinstance(e, ConfigEntry)]
    assert configs[-1].omit == {"reasoning": "other_models"}
    assert configs[-1].model == "n"
    assert read.faults == ()
    assert all(e.request_hash for e in read.session.entries if isinstance(e, ResponseEntry))


async def test_settings_that_replace_all_leave_out_what_was_left_out() -> None:
    """A thought of another model, and an item of a response that a crash cut."""
    recording = await fresh()
    script: Script = [turn(reasoning("one"), text("a")), turn(reasoning("two"), text("b")), "c"]
    other = Config(model=ScriptedModel(script), model_name="n", instructions="Be brief.")
    await drive(recording, config_of(script), "go")
    await drive(recording, other, "on")
    cut = next(
        place
        for place, entry in enumerate(recording.session.entries)
        if b'"two"' in entry.line and isinstance(entry, ItemEntry)
    )
    await recording.close()
    again = await crashed_after(recording, cut + 1)
    last = Config(model=ScriptedModel(script), model_name="n")  # no instructions: all is replaced
    await drive(again, last, "and on")
    read = await reading(again)
    configs = [e for e in read.session.entries if isinstance(e, ConfigEntry)]
    assert configs[-1].members["replace"] is True
    assert read.faults == ()
    assert [item.type for item in read.session.context().items].count("reasoning") == 1


BEFORE: dict[str, object] = {"model": "m", "tools": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}


@pytest.mark.parametrize(
    ("now", "body"),
    [
        (BEFORE, {}),
        ({**BEFORE, "model": "n"}, {"model": "n"}),
        ({**BEFORE, "extra": {"x": 1}}, {"extra": {"x": 1}}),
        (
            {"model": "m", "tools": [{"name": "a"}, {"name": "c"}]},
            {"tools_removed": ["b"]},
        ),
        (
            {"model": "m", "tools": [{"name": "a"}, {"name": "x"}, {"name": "b"}, {"name": "c"}]},
            {"tools_added": [{"name": "x"}, {"name": "b"}, {"name": "c"}]},
        ),
        ({"tools": BEFORE["tools"]}, {"replace": True, "tools_added": BEFORE["tools"]}),
        ({"model": "m"}, {"model": "m", "replace": True}),
    ],
)
def test_a_config_says_only_what_changes(now: dict[str, object], body: dict[str, object]) -> None:
    assert config_body(BEFORE, now) == body


def test_settings_leave_out_what_is_no_setting() -> None:
    request = Request(model="m", stream=True, store=False, temperature=None, top_p=0, tools=())
    assert settings_of(request) == {"model": "m", "extra": {"top_p": 0}}


# --- decisions -----------------------------------------------------------------------------


class Decides(Middleware):
    def __init__(self, *decisions: ToolDecision | None) -> None:
        self._decisions = list(decisions)

    async def before_tool_call(self, call: ToolCallInfo) -> ToolDecision | None:
        return self._decisions.pop(0) if self._decisions else None


async def decisions_of(recording: object) -> list[tuple[str, str, str]]:
    read = await reading(recording)  # type: ignore[arg-type]
    assert read.faults == ()
    found = [e for e in read.session.entries if isinstance(e, DecisionEntry)]
    return [(one.verdict, one.by, one.reason) for one in found]


@pytest.mark.parametrize(
    ("decision", "expected", "runs"),
    [
        (None, [], 1),
        (ToolDecision(), [], 1),
        (ToolDecision(reason="on the list"), [("proceed", "policy", "on the list")], 1),
        (ToolDecision(action="reject", reason="no", by="human"), [("reject", "human", "no")], 0),
        (ToolDecision(action="reject"), [("reject", "", "call rejected")], 0),
        (ToolDecision(action="hold", reason="ask"), [("hold", "policy", "ask")], 0),
        (ToolDecision(arguments='{"n": 2}', by="agent"), [("proceed", "agent", "")], 1),
    ],
)
async def test_a_decision_is_written_if_it_says_something(
    decision: ToolDecision | None, expected: list[tuple[str, str, str]], runs: int
) -> None:
    recording = await fresh()
    act = Counted()
    config = config_of([call("act", {"n": 1}), "done"], [act], middleware=[Decides(decision)])
    await drive(recording, config, "go")
    assert await decisions_of(recording) == expected
    assert len(act.entered) == runs


async def test_rewritten_arguments_are_exact() -> None:
    recording = await fresh()
    exact = '{ "n": 123456789012345678901234567890 }'
    hold = ToolDecision(action="hold", arguments=exact)
    config = config_of([call("act", {"n": 1})], [Counted()], middleware=[Decides(hold)])
    await drive(recording, config, "go")
    (pending,) = recording.pending(tools_of(config))
    assert (pending.reason, pending.arguments) == ("held", exact)
    assert (await reading(recording)).faults == ()


def tools_of(config: Config) -> ToolSet:
    return ToolSet(config.tools)


@pytest.mark.parametrize(
    ("answer", "expected", "runs"),
    [
        (lambda c: approve(c, by="human"), [("proceed", "human", "")], 1),
        (approve, [("proceed", "", "")], 1),
        (lambda c: deny(c, "too much", by="human"), [("reject", "human", "Error: too much")], 0),
        (lambda c: output(c, "42"), [("reject", "", "42")], 0),
    ],
)
async def test_an_answer_to_a_held_call(
    answer: object, expected: list[tuple[str, str, str]], runs: int
) -> None:
    recording = await fresh()
    act = Counted()
    hold = ToolDecision(action="hold", reason="ask")
    config = config_of([call("act", {}), "done"], [act], middleware=[Decides(hold)])
    first = await drive(recording, config, "go")
    assert first.reason == "input_required"
    given = answer(first.pending[0].call.call_id)  # type: ignore[operator]
    second = await drive(recording, config, answers=[given])
    assert second.reason == "done"
    assert await decisions_of(recording) == [("hold", "policy", "ask"), *expected]
    assert len(act.entered) == runs
    assert recording.session.drives()[-1].source == "resume"


async def test_a_call_the_loop_refuses_is_rejected_by_policy() -> None:
    recording = await fresh()
    await drive(recording, config_of([call("nowhere", {}), "done"]), "go")
    assert await decisions_of(recording) == [("reject", "policy", 'Error: unknown tool "nowhere"')]


async def test_a_call_with_an_output_cannot_be_dispatched() -> None:
    recording = await fresh()
    await drive(recording, config_of([call("act", {}), "done"], [Counted()]), "go")
    (made,) = recording.session.calls()
    event = ToolDispatch(
        run_id="r", turn=1, call_id=made.call_id, name="act", effect="once", idempotency_key="k"
    )
    with pytest.raises(EntryRefused):
        _ = recording.recorder.note(event)


async def test_a_second_output_is_refused() -> None:
    recording = await fresh()
    config = config_of([call("act", {}), "done"], [Counted()])
    await drive(recording, config, "go")
    (made,) = recording.session.calls()
    item = function_call_output(made.call_id, "another")
    with pytest.raises(EntryRefused):
        _ = recording.recorder.note(ItemEnd(run_id="r", turn=1, item=item))


async def test_a_call_that_is_not_on_the_record_does_not_run() -> None:
    recording = await fresh()
    event = ToolDispatch(
        run_id="r", turn=1, call_id="ghost", name="act", effect="none", idempotency_key="k"
    )
    with pytest.raises(EntryRefused):
        _ = recording.recorder.note(event)


async def test_a_stop_keeps_the_tool_from_running() -> None:
    """LOG 3.5: the stop is put between the decision and the dispatch."""
    recording = await fresh()
    act = Counted()

    class Stops(Middleware):
        async def before_tool_call(self, call: ToolCallInfo) -> ToolDecision | None:
            await recording.store.put(recording.session.id, Message(id="stop"), stop=True)
            return None

    config = config_of([call("act", {}), "done"], [act], middleware=[Stops()])
    end = await drive(recording, config, "go")
    assert isinstance(end.error, StopRequested)
    assert act.entered == []
    read = await reading(recording)
    assert read.faults == ()
    assert "dispatch" not in types(read.session.entries)
    assert types(read.session.entries)[-1] == "run end error"


# --- outputs ----------------------------------------------------------------------------


async def test_an_output_comes_back_exactly_and_says_what_it_was() -> None:
    recording = await fresh()
    act = Counted(does=lambda call: ToolResult("W\x00s \ud800 \U0001f600 \\u0000"))
    await drive(recording, config_of([call("act", {}), "done"], [act]), "go")
    read = await reading(recording)
    assert read.faults == ()
    (entry,) = [e for e in read.session.entries if b"function_call_output" in e.line]
    members = entry.members
    assert members["item"]["output"] == "W\x00s \ufffd \U0001f600 \\u0000"  # type: ignore[index]
    change = members["normalised"][0]  # type: ignore[index]
    assert change["at"] == "/item/output"
    assert json.loads(change["was"]) == "W\x00s \ud800 \U0001f600 \\u0000"
    assert all(e.request_hash for e in read.session.entries if isinstance(e, ResponseEntry))


async def test_a_large_output_is_stored_once() -> None:
    recording = await fresh()
    act = Counted(does=lambda call: "x" * 5_000_000)
    await drive(recording, config_of([call("act", {}), "done"], [act]), "go")
    read = await reading(recording)
    assert sum(len(entry.line) for entry in read.session.entries) < 5_010_000
    assert read.faults == ()


async def test_the_log_of_many_calls_grows_with_their_outputs_alone() -> None:
    recording = await fresh()
    act = Counted(does=lambda call: "y" * 5000)
    base = "z" * 200_000
    script: Script = [*(call("act", {}) for _ in range(100)), "done"]
    await drive(recording, config_of(script, [act]), base)
    read = await reading(recording)
    total = sum(len(entry.line) for entry in read.session.entries)
    assert total <= 1.3 * (200_000 + 100 * 5000)


async def test_a_result_is_recorded_when_it_lands() -> None:
    """DESIGN 6.3: a sibling still runs; what the other gave is durable, in its place later."""
    recording = await fresh()
    gate = asyncio.Event()
    seen: list[list[str]] = []

    class Slow(Counted):
        async def execute(self, call: object) -> ToolResult:
            await gate.wait()
            return ToolResult("slow: ok")

    class Fast(Counted):
        async def execute(self, call: object) -> ToolResult:
            return ToolResult("fast: ok")

    async def look() -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        seen.append(types(recording.session.entries))
        gate.set()

    config = config_of(
        [turn(call("slow", {}), call("fast", {})), "done"], [Slow("slow"), Fast("fast")]
    )
    task = asyncio.ensure_future(look())
    await drive(recording, config, "go")
    await task
    assert "perdure:result" in seen[0]
    read = await reading(recording)
    assert read.faults == ()
    outputs = [
        e.members["item"]["output"]  # type: ignore[index]
        for e in read.session.entries
        if isinstance(e, ItemEntry) and b"call_output" in e.line
    ]
    assert outputs == ["slow: ok", "fast: ok"]
    assert list(read.session.context().items) == list(recording.transcript.snapshot())


async def test_terminate_is_marked_on_the_output() -> None:
    recording = await fresh()
    act = Counted(does=lambda call: ToolResult("bye", terminate=True))
    end = await drive(recording, config_of([call("act", {})], [act]), "go")
    assert (end.reason, end.cause) == ("stopped", "terminate")
    read = await reading(recording)
    assert [e.terminate for e in read.session.entries if isinstance(e, ItemEntry)][-1]
    assert read.session.status == "stopped"
    assert read.faults == ()


# --- model calls --------------------------------------------------------------------------


async def test_a_failed_attempt_leaves_a_note_and_no_settings() -> None:
    recording = await fresh()
    script = [attempts(fail("busy", code="rate_limit_exceeded"), text("done"))]
    retry = Retry(max_attempts=2, backoff=lambda attempt, error: 0)
    await drive(recording, config_of(script, retry=retry), "go")
    read = await reading(recording)
    assert "custom perdure:model_retry" in types(read.session.entries)
    (response,) = [e for e in read.session.entries if isinstance(e, ResponseEntry)]
    assert response.attempts == 2
    assert read.faults == ()


async def test_a_model_that_fails_ends_the_drive_in_error() -> None:
    recording = await fresh()
    end = await drive(recording, config_of([error(ValueError("boom"))]), "go")
    assert end.reason == "error"
    read = await reading(recording)
    assert types(read.session.entries)[-3:] == ["response", "perdure:end", "run end error"]
    assert read.session.status == "failed"
    assert read.faults == ()


async def test_a_guards_text_is_nowhere_in_the_record() -> None:
    class Guards(Middleware):
        async def before_model_call(self, request: ModelRequest) -> ModelRequest | None:
            raise Guard("the secret policy")

    recording = await fresh()
    end = await drive(recording, config_of(["x"], middleware=[Guards()]), "go")
    assert end.cause == "guard"
    read = await reading(recording)
    assert b"secret" not in b"".join(entry.line for entry in read.session.entries)
    assert read.faults == ()


# --- inputs ------------------------------------------------------------------------------------


async def test_triggers_and_hidden_items() -> None:
    recording = await fresh()
    trigger = Trigger(kind="cron", ref="nightly", extra={"due": "2026-10-01T00:00:00Z"})
    await drive(recording, config_of(["ok"]), Hidden(user("context")), "go", trigger=trigger)
    read = await reading(recording)
    start = next(e for e in read.session.entries if e.type == "run")
    expected = {"kind": "cron", "ref": "nightly", "due": "2026-10-01T00:00:00Z"}
    assert start.members["trigger"] == expected
    assert start.members["ref"] == "cron:nightly"
    items = [e for e in read.session.entries if isinstance(e, ItemEntry)]
    assert [item.visible for item in items] == [False, True, True]
    assert [item.source for item in items] == [expected, expected, None]


async def test_items_no_model_is_shown_are_kept_and_come_back() -> None:
    recording = await fresh()
    note = decode_item(b'{"type":"acme:note","id":"n1","text":"aside","z":{"b":1,"a":2}}')
    await drive(recording, config_of(["ok"]), "go", note, "and")
    read = await reading(recording)
    assert "custom acme:note" in types(read.session.entries)
    assert all(e.request_hash for e in read.session.entries if isinstance(e, ResponseEntry))
    assert read.faults == ()
    await recording.close()
    again = await go_on(recording.store, recording.session.id)
    assert list(again.transcript.snapshot()) == list(recording.transcript.snapshot())
    assert b'"z":{"b":1,"a":2}' in read.session.entries[2].line
    await drive(again, config_of(["ok", "fine"]), "more")
    assert (await reading(again)).faults == ()


async def test_a_queued_input_names_where_it_was_queued() -> None:
    recording = await fresh()
    queues = Queues()

    class Steers(Middleware):
        async def before_turn(self, info: TurnStartInfo) -> Sequence[Item | Hidden]:
            if not recording.session.queued():
                queues.put(Waiting(id="q1", item=user("shorter"), mode="steer"), "r")
            return []

    config = config_of([call("act", {}), "done"], [Counted()], middleware=[Steers()])
    await drive(recording, config, "go", queues=queues)
    read = await reading(recording)
    assert read.faults == ()
    queued = [e for e in read.session.entries if e.type == "queued"]
    drained = [e.queued_from for e in read.session.entries if isinstance(e, ItemEntry)]
    assert queued[0].id in drained


async def test_a_steer_that_no_drive_took_is_owed_after_a_restart() -> None:
    """LOG 4.4; every crash behind the steer keeps it."""
    recording = await fresh()
    queues = Queues()

    async def ear(event: object) -> None:
        if event.type == "turn_end":  # type: ignore[attr-defined]
            queues.put(Waiting(id="q1", item=user("too late"), mode="follow_up"), "r")

    class Stops(Middleware):
        async def should_stop(self, info: object) -> bool:
            return True

    config = config_of(["ok", "then"], middleware=[Stops()])
    await drive(recording, config, "go", queues=queues, subscribers=[ear])
    await recording.close()
    read = await reading(recording)
    assert read.faults == ()
    accepted = types(read.session.entries).index("queued") + 1
    for kept in range(accepted, len(read.session) + 1):
        again = await crashed_after(recording, kept)
        (waiting,) = again.waiting()
        assert (waiting.id, waiting.mode, waiting.item) == ("q1", "follow_up", user("too late"))
        assert (await reading(again)).faults == ()


# --- failures of the store -------------------------------------------------------------------


class NoSleep:
    def wall(self) -> int:
        import time

        return time.time_ns()

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


@pytest.mark.parametrize("failure", ["before", "after"])
async def test_an_append_of_unknown_outcome_is_settled_by_the_same_bytes(failure: str) -> None:
    """LOG 1.3: each append of a drive fails once."""
    store = Flaky(*([failure, ""] * 8))
    recording = await fresh(store, clock=NoSleep())
    act = Counted()
    end = await drive(recording, config_of([call("act", {}), "done"], [act]), "go")
    assert end.reason == "done"
    assert len(act.entered) == 1
    for first, second in zip(store.batches[::2], store.batches[1::2], strict=True):
        assert first == second
    read = await reading(recording)
    assert read.faults == ()


async def test_until_it_is_settled_no_tool_is_entered() -> None:
    store = Flaky("", *["before"] * 6)
    recording = await fresh(store, clock=NoSleep())
    act = Counted()
    end = await drive(recording, config_of([call("act", {}), "done"], [act]), "go")
    assert isinstance(end.error, StoreFailed)
    assert act.entered == []


async def test_whoever_lost_the_lease_runs_nothing() -> None:
    recording = await fresh()
    act = Counted()

    class Loses(Middleware):
        async def before_tool_call(self, call: ToolCallInfo) -> ToolDecision | None:
            await recording.held.release()
            await recording.store.lease(recording.session.id, holder="another")
            return None

    config = config_of([call("act", {}), "done"], [act], middleware=[Loses()])
    end = await drive(recording, config, "go")
    assert end.reason == "error"
    assert act.entered == []
    stored = await recording.store.read(recording.session.id)
    assert b'"dispatch"' not in b"".join(stored.lines)


def test_the_script_is_a_turn() -> None:
    assert isinstance(call("act", {}), Turn)
    assert assistant("x").role == "assistant"
