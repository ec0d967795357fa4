"""A crash behind every entry: what the next drive does, and what never happens twice (LOG 9)."""

from __future__ import annotations

import pytest

from perdure.errors import CorruptLog, Leased
from perdure.log.entries import DispatchEntry, ItemEntry
from perdure.log.header import Origin, new_header
from perdure.log.reading import read_lines
from perdure.log.recording import Recording, go_on, open_named
from perdure.log.resuming import CUT_OFF, RAN_HERE, RAN_THERE, pending_of, replay_answers
from perdure.log.session import Session
from perdure.loop import Config, Middleware, ToolCallInfo, ToolDecision, approve, unanswered
from perdure.loop.drive import can_continue
from perdure.stores.memory import MemoryStore
from perdure.testing.scripted import Script, call, reasoning, turn
from perdure.tools import Effect, ToolSet
from perdure.wire import FunctionCall, FunctionCallOutput, Item
from tests.log.building import Built
from tests.log.driving import Counted, config_of, crashed_after, drive, fresh, reading, types

SCRIPT: Script = [
    turn(reasoning("hm", encrypted_content="e"), call("act", {"n": 1}), call("act", {"n": 2})),
    call("act", {"n": 3}),
    "all done",
]


async def recorded(effect: Effect) -> tuple[Recording, Counted]:
    recording = await fresh()
    act = Counted(effect=effect)
    await drive(recording, config_of(SCRIPT, [act], sequential=True), "go")
    await recording.recorder.close()
    return recording, act


async def finish(again: Recording, config: Config) -> None:
    """What a driver does with a session that it takes up."""
    tools = ToolSet(config.tools)
    for _ in range(4):
        if again.pending(tools):
            await drive(again, config, answers=again.replay(tools))
            continue
        items = again.transcript.snapshot()
        if not items:
            await drive(again, config, "go")
        elif can_continue(items[-1]):
            await drive(again, config)
        else:
            return


def paired(items: list[Item]) -> None:
    """Every call has exactly one output, behind it."""
    assert unanswered(items) == ()
    outputs = [item.call_id for item in items if isinstance(item, FunctionCallOutput)]
    calls = [item.call_id for item in items if isinstance(item, FunctionCall)]
    assert sorted(outputs) == sorted(calls)


@pytest.mark.parametrize("effect", ["once", "keyed", "idempotent", "none"])
async def test_a_crash_behind_every_entry(effect: Effect) -> None:
    recording, _ = await recorded(effect)
    total = len(recording.session)
    for kept in range(total + 1):
        prefix = recording.session.entries[:kept]
        dispatched = {e.call_id: e.idempotency_key for e in prefix if isinstance(e, DispatchEntry)}
        again = await crashed_after(recording, kept)
        assert (await reading(again)).faults == (), kept
        act = Counted(effect=effect)
        await finish(again, config_of(SCRIPT, [act], sequential=True))
        read = await reading(again)
        assert read.faults == (), (kept, read.faults)
        answered = kept in (total - 2, total - 1)  # the answer is there, the end is not
        assert again.session.status == ("failed" if answered else "done")
        paired(list(again.transcript.snapshot()))
        assert list(read.session.context().items) == list(again.transcript.snapshot())
        if effect == "once":
            assert not dispatched.keys() & set(act.entered), kept
        for call_id, key in zip(act.entered, act.keys, strict=True):
            assert dispatched.get(call_id, key) == key  # the key of its last dispatch


async def test_a_call_that_may_have_run_is_told_to_the_model_as_unknown() -> None:
    """Killed inside a tool; the session goes on, and every later request is valid."""
    recording, _ = await recorded("once")
    place = next(i for i, e in enumerate(recording.session.entries) if e.type == "dispatch") + 1
    again = await crashed_after(recording, place)
    act = Counted()
    config = config_of(SCRIPT, [act], sequential=True)
    pending = again.pending(ToolSet([act]))
    assert [one.reason for one in pending] == ["aborted", "undispatched"]
    await drive(again, config, answers=again.replay(ToolSet([act])))
    texts = [i.text for i in again.transcript.snapshot() if isinstance(i, FunctionCallOutput)]
    assert "unknown" in texts[0]
    assert act.entered == [pending[1].call.call_id, "call_t1_1"]
    decisions = [e.members for e in again.session.entries if e.type == "decision"]
    assert [(d["verdict"], d["by"]) for d in decisions][:1] == [("answer", "policy")]


async def test_of_two_calls_the_one_without_an_output_runs() -> None:
    """One was answered before the stop, the other never started."""
    recording, _ = await recorded("once")
    outputs = [i for i, e in enumerate(recording.session.entries) if b"call_output" in e.line]
    again = await crashed_after(recording, outputs[0] + 1)
    act = Counted()
    (pending,) = again.pending(ToolSet([act]))
    assert pending.reason == "undispatched"
    await finish(again, config_of(SCRIPT, [act], sequential=True))
    assert act.entered[0] == pending.call.call_id


async def test_a_cut_drive_is_closed_first() -> None:
    recording, _ = await recorded("once")
    again = await crashed_after(recording, 3)
    end = again.session.entries[-1]
    assert end.members["reason"] == "error"
    assert end.members["ref"] == CUT_OFF
    assert again.session.drives()[-1].end is not None


@pytest.mark.parametrize("kept", [1, 2, 3])
async def test_what_a_crash_left_of_a_response_never_runs(kept: int) -> None:
    """LOG 1.5: its calls are rejected as cut, its other items are left out."""
    recording, _ = await recorded("once")
    first = next(
        i
        for i, e in enumerate(recording.session.entries)
        if isinstance(e, ItemEntry) and e.response
    )
    again = await crashed_after(recording, first + kept)
    assert (await reading(again)).faults == ()
    items = list(again.transcript.snapshot())
    assert not any(item.type == "reasoning" for item in items)
    calls = [item for item in items if isinstance(item, FunctionCall)]
    assert len(calls) == kept - 1
    paired(items)
    assert "perdure:end" not in types(again.session.entries)
    act = Counted()
    assert again.pending(ToolSet([act])) == ()
    await finish(again, config_of(["fine", "fine", "fine"], [act]))
    assert act.entered == []
    assert (await reading(again)).faults == ()


class Holds(Middleware):
    async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
        return ToolDecision(action="hold", reason="ask", arguments='{"n":7}')


async def test_a_held_call_stays_held_over_a_restart() -> None:
    recording = await fresh()
    act = Counted()
    config = config_of([call("act", {"n": 1}), "done"], [act], middleware=[Holds()])
    await drive(recording, config, "go")
    await recording.close()
    again = await go_on(recording.store, recording.session.id)
    (pending,) = again.pending(ToolSet([act]))
    assert (pending.reason, pending.arguments, pending.dispatched) == ("held", '{"n":7}', False)
    assert again.replay(ToolSet([act])) == ()
    await drive(again, config, answers=[approve(pending.call.call_id, by="human")])
    assert len(act.entered) == 1
    assert (await reading(again)).faults == ()


async def test_a_result_that_landed_before_the_crash_is_the_output() -> None:
    """Its place had not come: a sibling before it still ran (DESIGN 6.3)."""
    built = Built()
    built.config(model="m")
    built.start()
    built.user()
    built.call("slow")
    built.call("fast")
    built.response()
    built.dispatch("slow", "k1")
    built.dispatch("fast", "k2")
    output = {"type": "function_call_output", "call_id": "fast", "output": "fast: ok"}
    built.add("perdure:result", {"call_id": "fast", "output": output})
    store = MemoryStore()
    await store.create(built.header, batch=built.session.entries)
    again = await go_on(store, "session")
    (pending,) = again.pending(ToolSet([]))
    assert (pending.call.call_id, pending.reason) == ("slow", "aborted")
    assert (await reading(again)).faults == ()


async def test_ids_of_every_branch_stay_taken() -> None:
    built = Built()
    root = built.user()
    built.call("call_1")
    built.rewind(root)
    store = MemoryStore()
    await store.create(built.header, batch=built.session.entries)
    again = await go_on(store, "session")
    assert "call_1" in again.call_ids


async def test_a_session_that_does_not_verify_is_not_written_to() -> None:
    built = Built()
    built.config(model="m")
    built.response(request_hash="sha256:" + "0" * 64)
    store = MemoryStore()
    await store.create(built.header, batch=built.session.entries)
    with pytest.raises(CorruptLog):
        await go_on(store, "session")
    await store.lease("session", holder="free again")


async def test_two_drivers_of_one_session() -> None:
    recording = await fresh(holder="first")
    with pytest.raises(Leased) as caught:
        await go_on(recording.store, recording.session.id)
    assert caught.value.holder == "first"


async def test_a_name_is_one_session() -> None:
    store = MemoryStore()
    first = await open_named(store, "chat-7")
    await drive(first, config_of(["hi"]), "hello")
    with pytest.raises(Leased):
        await open_named(store, "chat-7")
    await first.close()
    second = await open_named(store, "chat-7")
    assert second.session.id == first.session.id
    assert len(second.transcript) == 2


# --- replay answers: the table ---------------------------------------------------------------


def dispatched(effect: str, key: str = "k", **members: object) -> Built:
    built = Built()
    built.config(model="m")
    built.start()
    built.user()
    built.call("c", arguments='{"n":1}')
    built.response()
    built.dispatch("c", key, **{"perdure:effect": effect}, **members)
    built.end(reason="error", pending=["c"])
    return built


@pytest.mark.parametrize(
    ("recorded_effect", "today", "key", "reason"),
    [
        ("none", "none", "k", "run again: safe"),
        ("idempotent", "none", "k", "run again: safe"),
        ("idempotent", "idempotent", "", "run again: safe"),
        ("keyed", "keyed", "k", "run again: keyed"),
        ("none", "keyed", "k", "run again: keyed"),
        ("keyed", "idempotent", "k", "run again: keyed"),
        ("keyed", "keyed", "", "not run again: keyed without a key"),
        ("once", "once", "k", "not run again: replay unknown"),
        ("once", "idempotent", "k", "not run again: replay unknown"),
        ("idempotent", "once", "k", "not run again: replay unknown"),
        ("", "idempotent", "k", "run again: safe"),
    ],
)
def test_both_the_recorded_effect_and_todays_must_allow(
    recorded_effect: str, today: Effect, key: str, reason: str
) -> None:
    built = dispatched(recorded_effect, key)
    tools = ToolSet([Counted("t", today)])
    (answer,) = replay_answers(built.view, built.session, tools)
    assert answer.reason == reason
    assert answer.by == "policy"
    assert (answer.output is None) == reason.startswith("run again")
    if reason == "run again: keyed":
        assert answer.idempotency_key == "k"


def test_a_tool_that_is_gone_is_not_run_again() -> None:
    built = dispatched("idempotent")
    (answer,) = replay_answers(built.view, built.session, ToolSet([]))
    assert answer.reason == "not run again: no tool"


def test_a_second_run_has_the_arguments_of_the_last_hand_off() -> None:
    built = Built()
    built.call("c", arguments='{"n":1}')
    built.response()
    built.decide("c", "proceed", args={"n": 2})
    built.dispatch("c", "k", **{"perdure:effect": "keyed"})
    built.decide("c", "hold", args={"n": 3})
    built.decide("c", "proceed")
    tools = ToolSet([Counted("t", "keyed")])
    (answer,) = replay_answers(built.view, built.session, tools)
    assert (answer.arguments, answer.idempotency_key) == ('{"n":2}', "k")


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [("reject", "not today"), ("answer", "unknown")],
)
def test_what_is_owed_its_output_gets_it(verdict: str, expected: str) -> None:
    built = Built()
    built.call("c")
    built.response()
    if verdict == "answer":
        built.dispatch("c")
    built.decide("c", verdict, reason="not today")
    (answer,) = replay_answers(built.view, built.session, ToolSet([Counted("t")]))
    assert answer.output is not None
    assert expected in answer.output.text


def test_an_output_off_the_path_is_replayed_with_its_origin() -> None:
    built = Built()
    built.call("c")
    back = built.response()
    built.dispatch("c", "k")
    built.output("c", "it ran")
    built.rewind(back)
    tools = ToolSet([Counted("t")])
    (pending,) = pending_of(built.view, built.session, tools)
    assert pending.ran is not None
    assert pending.reason == "aborted"
    (answer,) = replay_answers(built.view, built.session, tools)
    assert answer.output is not None
    assert answer.output.text == "it ran"
    assert answer.origin == built.session.id
    assert pending.ran_where == answer.reason == RAN_HERE


def test_an_output_in_the_session_it_was_forked_from_is_replayed() -> None:
    origin = Built()
    origin.call("c")
    base = origin.response()
    prefix = origin.session.path()
    origin.dispatch("c", "k")
    origin.output("c", "it ran")
    header = new_header("f", "2026-10-02T00:00:00Z", origin=Origin(origin.session.id, base))
    fork = Session(header, prefix, origins=[origin.session])
    tools = ToolSet([Counted("t")])
    (pending,) = pending_of(fork.at(), fork, tools)
    (answer,) = replay_answers(fork.at(), fork, tools)
    assert answer.output is not None
    assert answer.output.text == "it ran"
    assert pending.ran_where == answer.reason == RAN_THERE


def test_an_answer_given_elsewhere_is_no_output_of_a_run() -> None:
    built = Built()
    built.call("c")
    back = built.response()
    built.dispatch("c", "k")
    built.decide("c", "answer", reason="nobody knows")
    built.output("c", "unknown")
    built.rewind(back)
    (pending,) = pending_of(built.view, built.session, ToolSet([]))
    assert pending.ran is None
    (answer,) = replay_answers(built.view, built.session, ToolSet([Counted("t")]))
    assert answer.reason == "not run again: replay unknown"


async def test_a_foreign_checker_finds_the_same() -> None:
    """Without perdure's own entries, every drive's end is what core entries say (LOG 4.3)."""
    recording, _ = await recorded("once")
    read = await reading(recording)
    ends = [(d.end, d.reason, d.pending) for d in read.session.drives()]
    for end, reason, pending in ends:
        assert end is not None
        assert (end.reason, end.pending) == (reason, pending)
    stored = await recording.store.read(recording.session.id)
    assert read_lines(stored.header, stored.lines).faults == ()
