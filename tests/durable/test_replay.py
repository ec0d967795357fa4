"""A model that answers from the record of a run, to drive it again somewhere else."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from perdure import Agent, RecordedRun, RunFailed, Runs, events_of, replay_model
from perdure.errors import (
    ModelError,
    NoRecordedTurn,
    RecordedFailure,
    Rejected,
    ReplayMismatch,
    ServerFailed,
    Truncated,
)
from perdure.log import Session
from perdure.log.entries import ResponseEntry
from perdure.loop import ModelRequest, Retry
from perdure.stores.memory import MemoryStore
from perdure.testing import attempts, call, error, fail, item, reasoning, turn
from perdure.testing.event_check import check_events
from perdure.testing.scripted import Script
from perdure.wire import Message, OutputText, Usage, decode_item
from tests.durable.told import gist
from tests.durable.world import RUN, Act, World, agent_of, cut_after, entries_of, session_of

NOW = Retry(max_attempts=3, backoff=lambda _number, _error: 0.0)

USAGE = Usage(input_tokens=11, output_tokens=7, total_tokens=18)

SCRIPT: Script = [
    turn(reasoning("Hm.", encrypted_content="sealed"), call("act", {"n": 1}), call("act")),
    turn("Let me look again.", call("act", {"n": 3}), usage=USAGE),
    "All done.",
]


def agent(store: MemoryStore, script: Script = SCRIPT, **members: object) -> Agent:
    tools = [Act(world=World(), does=lambda _: "done")]
    named: dict[str, object] = {"model_name": "some-model", **members}
    return agent_of(store, tools, script).with_(**named)


async def recorded(script: Script = SCRIPT, **members: object) -> Session:
    """The record of a run; one that fails is driven again until it does not."""
    store = MemoryStore()
    await drive(agent(store, script, **members))
    return await Runs(store).record(RUN)


async def drive(driven: Agent, times: int = 5) -> None:
    for _ in range(times):
        with contextlib.suppress(RunFailed):
            await driven.run("go", run_id=RUN)
            return


def responses(session: Session) -> list[ResponseEntry]:
    return [entry for entry in session.path() if isinstance(entry, ResponseEntry)]


async def test_a_run_driven_again_into_a_fresh_store_goes_the_same_way() -> None:
    record = await recorded()
    store = MemoryStore()
    model = replay_model(record)
    result = await agent(store, model=model).run("go", run_id=RUN)
    again = await session_of(store)
    assert (result.status, result.text, result.turns) == ("done", "All done.", 3)
    assert model.requests == 3
    assert again.context().items == record.context().items
    assert [one.request_hash for one in responses(again)] == [
        one.request_hash for one in responses(record)
    ]
    assert [one.usage for one in responses(again)] == [one.usage for one in responses(record)]
    assert [one.response_id for one in responses(again)] == [
        one.response_id for one in responses(record)
    ]
    assert gist(events_of(again)) == gist(events_of(record))


async def test_a_replay_may_be_streamed_and_shows_whole_items() -> None:
    model = replay_model(await recorded())
    async with agent(MemoryStore(), model=model).stream("go", run_id=RUN) as stream:
        assert "".join([piece async for piece in stream.text()]) == "Let me look again.All done."
        check_events([event async for event in stream.events()])


async def test_a_request_that_names_no_model_is_taken_to_name_the_recorded_one() -> None:
    model = replay_model(await recorded())
    assert model.model_name == "some-model"
    result = await agent(MemoryStore(), model=model, model_name="").run("go", run_id=RUN)
    assert result.text == "All done."


@pytest.mark.parametrize(
    "changed",
    [{"instructions": "Be brief."}, {"model_name": "another-model"}, {"tools": []}],
    ids=["instructions", "model", "tools"],
)
async def test_another_request_than_the_recorded_one_is_refused_by_name(
    changed: dict[str, object],
) -> None:
    record = await recorded()
    driven = agent(MemoryStore(), model=replay_model(record)).with_(**changed)
    with pytest.raises(RunFailed) as failed:
        await driven.run("go", run_id=RUN)
    cause = failed.value.cause
    assert isinstance(cause, ReplayMismatch)
    first = responses(record)[0]
    assert (cause.entry, cause.recorded) == (first.id, first.request_hash)
    assert cause.given not in ("", cause.recorded)


async def test_a_tool_that_gives_something_else_is_found_at_the_next_request() -> None:
    record = await recorded()
    driven = agent(MemoryStore(), model=replay_model(record))
    other = [Act(world=World(), does=lambda _: "something else")]
    with pytest.raises(RunFailed) as failed:
        await driven.with_(tools=other).run("go", run_id=RUN)
    assert isinstance(failed.value.cause, ReplayMismatch)
    assert failed.value.cause.entry == responses(record)[1].id


async def test_without_checks_the_answers_come_in_their_order() -> None:
    model = replay_model(await recorded(), check_requests=False)
    result = await agent(MemoryStore(), model=model, instructions="Be brief.").run("go", run_id=RUN)
    assert result.text == "All done."


@pytest.mark.parametrize("check", [True, False])
async def test_past_the_end_of_the_record_there_is_a_named_error(check: bool) -> None:
    record = await recorded([call("act"), call("act"), call("act")], max_turns=2)
    driven = agent(MemoryStore(), model=replay_model(record, check_requests=check), max_turns=3)
    with pytest.raises(RunFailed) as failed:
        await driven.run("go", run_id=RUN)
    assert isinstance(failed.value.cause, NoRecordedTurn)
    assert failed.value.cause.turns == 2
    assert failed.value.result.turns == 3


async def test_a_replay_stops_at_the_same_limit() -> None:
    record = await recorded([call("act"), call("act")], max_turns=2)
    driven = agent(MemoryStore(), model=replay_model(record), max_turns=2)
    result = await driven.run("go", run_id=RUN)
    assert (result.status, result.cause) == ("stopped", "max_turns")


async def test_a_replay_goes_on_in_the_middle_for_a_process_that_goes_on() -> None:
    record = await recorded()
    store = MemoryStore()
    await agent(store, model=replay_model(record)).run("go", run_id=RUN)
    places = [n for n, one in enumerate(await entries_of(store), 1) if one.type == "response"]
    for asked_before, place in enumerate(places, 1):
        cut = await cut_after(store, place)
        tools = [Act(world=World(), effect="idempotent", does=lambda _: "done")]
        model = replay_model(record)
        result = await agent(cut, model=model).with_(tools=tools).run("go", run_id=RUN)
        assert (result.status, result.text) == ("done", "All done.")
        assert model.requests == 3 - asked_before


# --- what failed then -------------------------------------------------------------------------


async def test_attempts_that_failed_fail_again_and_are_made_again_without_waiting() -> None:
    script: Script = [attempts(ServerFailed("busy"), Truncated(), "Hello.")]
    record = await recorded(script, retry=NOW)
    model = replay_model(record)
    assert [(one.again, bool(one.failure)) for one in model.calls] == [
        (True, True),
        (True, True),
        (False, False),
    ]
    store = MemoryStore()
    driven = agent(store, model=model, retry=Retry(max_attempts=3))
    assert (await driven.run("go", run_id=RUN)).text == "Hello."
    (response,) = responses(await session_of(store))
    assert (response.attempts, model.requests) == (3, 3)
    assert (await Runs(store).get(RUN)).spend.requests == 3


async def test_what_ended_a_drive_ends_it_again_and_the_next_goes_on() -> None:
    script: Script = [attempts(ModelError("unreadable"), "Hello.")]
    record = await recorded(script, retry=NOW)
    assert len(responses(record)) == 2
    store = MemoryStore()
    driven = agent(store, model=replay_model(record), retry=NOW)
    with pytest.raises(RunFailed) as failed:
        await driven.run("go", run_id=RUN)
    assert isinstance(failed.value.cause, RecordedFailure)
    assert str(failed.value.cause) == "unreadable"
    assert (await driven.run("go", run_id=RUN)).text == "Hello."
    assert gist(events_of(await session_of(store))) == gist(events_of(record))


async def test_a_response_that_its_server_failed_fails_with_the_same_error() -> None:
    script: Script = [attempts(fail("no", type="invalid_request", code="bad"), "Hello.")]
    record = await recorded(script, retry=Retry())
    driven = agent(MemoryStore(), model=replay_model(record), retry=Retry())
    with pytest.raises(RunFailed) as failed:
        await driven.run("go", run_id=RUN)
    assert isinstance(failed.value.cause, Rejected | RecordedFailure)
    assert "no" in str(failed.value.cause)
    assert (await driven.run("go", run_id=RUN)).text == "Hello."


async def test_a_response_that_broke_off_breaks_off_behind_the_same_items() -> None:
    script: Script = [
        attempts(turn(call("act"), "and", error(Truncated())), "never"),
        "Hello.",
    ]
    record = await recorded(script, retry=NOW)
    store = MemoryStore()
    driven = agent(store, model=replay_model(record), retry=NOW)
    with pytest.raises(RunFailed):
        await driven.run("go", run_id=RUN)
    assert (await driven.run("go", run_id=RUN)).text == "Hello."
    again = await session_of(store)
    assert again.context().items == record.context().items


@pytest.mark.parametrize("reason", ["max_output_tokens", "content_filter"])
async def test_a_cut_answer_is_cut_again(reason: str) -> None:
    script: Script = [turn("Half an ans", incomplete=reason)]  # type: ignore[arg-type]
    record = await recorded(script)
    result = await agent(MemoryStore(), model=replay_model(record)).run("go", run_id=RUN)
    assert result.status == "stopped"
    assert result.cause == ("content_filter" if reason == "content_filter" else "length")


async def test_a_model_call_that_a_crash_cut_with_nothing_to_show_is_left_out() -> None:
    store, asking = MemoryStore(), asyncio.Event()

    async def never(_: ModelRequest) -> str:
        asking.set()
        await asyncio.sleep(60)
        return "never"

    driven = agent(store, [attempts(never, "Hello.")])
    async with driven.stream("go", run_id=RUN):
        await asking.wait()
    assert (await driven.run("go", run_id=RUN)).text == "Hello."
    record = await Runs(store).record(RUN)
    model = replay_model(record)
    assert len(responses(record)) == 2
    assert len(model.calls) == 1
    assert (await agent(MemoryStore(), model=model).run("go", run_id=RUN)).text == "Hello."


# --- what items must not lose -------------------------------------------------------------------


async def test_a_call_id_that_the_model_repeated_is_given_as_it_gave_it() -> None:
    script: Script = [call("act", {"n": 1}, "same"), call("act", {"n": 2}, "same"), "All done."]
    record = await recorded(script)
    model = replay_model(record)
    store = MemoryStore()
    assert (await agent(store, model=model).run("go", run_id=RUN)).text == "All done."
    again = await session_of(store)
    assert again.context().items == record.context().items
    assert len(again.call_ids) == 2


async def test_unknown_items_and_members_survive() -> None:
    strange = decode_item(b'{"type":"acme:map","id":"m1","tiles":[1,2]}')
    said = Message(
        id="msg_9",
        status="completed",
        role="assistant",
        content=(OutputText(text="Here.", annotations=(), logprobs=()),),
    )
    record = await recorded([turn(item(strange), item(said))])
    store = MemoryStore()
    result = await agent(store, model=replay_model(record)).run("go", run_id=RUN)
    assert result.text == "Here."
    told = [getattr(event, "item", None) for event in events_of(record)]
    assert strange in told
    again = [getattr(event, "item", None) for event in events_of(await session_of(store))]
    assert strange in again


async def test_a_model_can_be_made_of_calls_by_hand() -> None:
    calls = replay_model(await recorded()).calls
    last = RecordedRun(calls[-1:], check_requests=False)
    result = await agent(MemoryStore(), model=last).run("go", run_id=RUN)
    assert (result.text, result.turns) == ("All done.", 1)
