"""The ledger hears every event first, and a drive waits for it where it must, and nowhere else."""

from __future__ import annotations

import pytest

from perdure.loop import (
    Broadcast,
    Config,
    DriveHandle,
    Event,
    NullLedger,
    Opening,
    RunEnd,
    ToolDispatch,
    Transcript,
    TurnStart,
    begin,
)
from perdure.testing import FakeClock, ScriptedModel, call, turn
from perdure.testing.clock import settle
from perdure.testing.event_check import check_events
from perdure.wire import user
from tests.loop.fakes import Ear, Failure, Ledger, Tool, life, outputs, pending


def starting(config: Config, ledger: Ledger, ear: Ear | None = None) -> DriveHandle:
    opening = Opening(prompts=(user("go"),))
    subscribers = () if ear is None else (ear,)
    return begin(Transcript(), opening, config, ledger=ledger, subscribers=subscribers)


def calling(*names: str, effect: str = "once", **members: object) -> Config:
    """A model that calls each tool once, in one turn."""
    calls = turn(*(call(name, {}, f"c_{name}") for name in names))
    tools = [Tool(name, effect=effect) for name in dict.fromkeys(names)]
    return Config(model=ScriptedModel([calls, "done"]), tools=tools, **members)  # type: ignore[arg-type]


async def waves(config: Config, ledger: Ledger) -> list[list[str]]:
    """What was waited for each time nothing more could be done."""
    handle = starting(config, ledger)
    told: list[list[str]] = []
    while not handle.done:
        before = len(ledger.waited)
        await settle()
        new = ledger.waited[before:]
        if new:
            told.append([event.type for event in new])
        ledger.complete()
    await handle.wait()
    return told


async def test_a_turn_with_one_wave_of_calls_waits_twice() -> None:
    told = await waves(calling("a", "b", "c"), Ledger(by_hand=True))
    assert told == [
        ["turn_start"],
        ["tool_dispatch", "tool_dispatch", "tool_dispatch"],
        ["turn_start"],
        ["run_end"],
    ]


async def test_each_further_wave_waits_once_more() -> None:
    told = await waves(calling("a", "b", "c", max_parallel=2), Ledger(by_hand=True))
    assert told == [
        ["turn_start"],
        ["tool_dispatch", "tool_dispatch"],
        ["tool_dispatch"],
        ["turn_start"],
        ["run_end"],
    ]
    told = await waves(calling("a", "b", "c", sequential=True), Ledger(by_hand=True))
    assert [len(wave) for wave in told] == [1, 1, 1, 1, 1, 1]


async def test_tools_without_an_effect_wait_for_nothing() -> None:
    told = await waves(calling("a", "b", effect="none"), Ledger(by_hand=True))
    assert told == [["turn_start"], ["turn_start"], ["run_end"]]


async def test_a_turn_without_calls_waits_once_and_once_for_its_end() -> None:
    told = await waves(Config(model=ScriptedModel(["hi"])), Ledger(by_hand=True))
    assert told == [["turn_start"], ["run_end"]]


async def test_a_tool_is_entered_only_when_its_dispatch_is_durable() -> None:
    ledger = Ledger(by_hand=True)
    config = calling("a")
    handle = starting(config, ledger)
    await settle()
    ledger.complete()
    await settle()
    [tool] = config.tools
    assert isinstance(tool, Tool)
    assert ledger.waited[-1].type == "tool_dispatch"
    assert tool.entered == []
    ledger.complete()
    await settle()
    assert tool.entered == ["c_a"]
    handle.abort()
    ledger.complete()
    await settle()
    ledger.complete()
    await handle.wait()


async def test_a_request_is_sent_only_when_all_it_contains_is_durable() -> None:
    ledger = Ledger(by_hand=True)
    model = ScriptedModel(["hi"])
    handle = starting(Config(model=model), ledger)
    await settle()
    assert model.requests == []
    assert [event.type for event in ledger.noted][-1] == "turn_start"
    ledger.complete()
    await settle()
    assert len(model.requests) == 1
    ledger.complete()
    await handle.wait()


async def test_an_end_is_told_only_when_it_is_durable() -> None:
    ledger, ear = Ledger(by_hand=True), Ear()
    handle = starting(Config(model=ScriptedModel(["hi"])), ledger, ear)
    await settle()
    ledger.complete()
    await settle()
    assert isinstance(ledger.noted[-1], RunEnd)
    assert not ear.of(RunEnd)
    assert not handle.done
    ledger.complete()
    await handle.wait()
    ear.check()


async def test_the_ledger_hears_every_event_before_anybody_and_in_order() -> None:
    ledger, ear = Ledger(), Ear()
    late: list[str] = []

    async def behind(event: Event) -> None:
        if ledger.noted[-1] is not event:
            late.append(event.type)

    opening = Opening(prompts=(user("go"),))
    consumers = Broadcast()
    config = calling("a", "b")
    handle = begin(
        Transcript(),
        opening,
        config,
        ledger=ledger,
        subscribers=(ear, behind),
        consumers=consumers,
    )
    await handle.wait()
    assert late == []
    assert ledger.noted == ear.events == [event async for event in consumers.subscribe()]
    check_events(ledger.noted)


@pytest.mark.parametrize("how", ["note", "ticket"])
async def test_a_dispatch_that_the_ledger_refuses_keeps_the_tool_from_running(how: str) -> None:
    ledger, ear = Ledger(), Ear()
    if how == "note":
        ledger.refusals["tool_dispatch"] = Failure("not recorded")
    else:
        ledger.broken["tool_dispatch"] = Failure("not recorded")
    config = calling("a", "b")
    end = await starting(config, ledger, ear).wait()
    assert all(isinstance(tool, Tool) and tool.entered == [] for tool in config.tools)
    assert (end.reason, str(end.error)) == ("error", "not recorded")
    assert pending(end) == {"c_a": "undispatched", "c_b": "undispatched"}
    assert len(ear.of(TurnStart)) == 1
    ear.check()


async def test_a_failing_dispatch_leaves_a_running_sibling_its_result() -> None:
    class Refuses(Ledger):
        def note(self, event: Event) -> object:  # type: ignore[override]
            if isinstance(event, ToolDispatch) and event.call_id == "c_b":
                raise Failure("not recorded")
            return super().note(event)

    ear = Ear()
    config = calling("a", "b")
    end = await starting(config, Refuses(), ear).wait()
    assert outputs(end.items) == [("c_a", "ok")]
    assert pending(end) == {"c_b": "undispatched"}
    assert life(ear.events, "c_b") == ["tool_start", "tool_end"]
    ear.check()


@pytest.mark.parametrize(
    "kind", ["run_start", "item_start", "item_end", "turn_start", "response_end", "tool_start"]
)
async def test_a_ledger_that_fails_ends_the_drive_in_error(kind: str) -> None:
    ledger, ear = Ledger(), Ear()
    ledger.refusals[kind] = Failure(kind)
    end = await starting(calling("a"), ledger, ear).wait()
    assert (end.reason, str(end.error)) == ("error", kind)
    assert ear.events[-1] is end


async def test_an_abort_cuts_the_wait_before_a_request() -> None:
    ledger, ear = Ledger(by_hand=True), Ear()
    model = ScriptedModel(["never"])
    handle = starting(Config(model=model, clock=FakeClock()), ledger, ear)
    await settle()
    handle.abort("esc")
    await settle()
    ledger.complete()
    end = await handle.wait()
    assert (end.reason, model.requests) == ("aborted", [])
    ear.check()


async def test_an_abort_while_a_dispatch_is_written_keeps_the_tool_from_running() -> None:
    ledger, ear = Ledger(by_hand=True), Ear()
    config = calling("a")
    handle = starting(config, ledger, ear)
    await settle()
    ledger.complete()
    await settle()
    handle.abort("esc")
    await settle()
    ledger.complete()
    await settle()
    ledger.complete()
    end = await handle.wait()
    [tool] = config.tools
    assert isinstance(tool, Tool)
    assert tool.entered == []
    assert (end.reason, pending(end)) == ("aborted", {"c_a": "undispatched"})
    assert life(ear.events, "c_a") == ["tool_start", "tool_dispatch", "tool_end"]
    ear.check()


async def test_a_slow_ledger_loses_nothing_of_what_is_streamed_meanwhile() -> None:
    ledger, ear = Ledger(by_hand=True), Ear()
    model = ScriptedModel([turn(" ".join(["word"] * 200), call("a", {}, "c1")), "done"])
    handle = starting(Config(model=model, tools=[Tool("a")]), ledger, ear)
    while not handle.done:
        await settle()
        ledger.complete()
    assert handle.end().reason == "done"
    assert ledger.noted == ear.events
    ear.check()


async def test_the_null_ledger_is_durable_at_once() -> None:
    ticket = NullLedger().note(RunEnd(run_id="r", items=(), reason="done"))
    with pytest.raises(StopIteration):  # it never waits
        next(ticket.__await__())
