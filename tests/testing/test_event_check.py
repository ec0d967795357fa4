"""The check of a drive's events takes what is in order, and nothing else."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from perdure import wire
from perdure.agent import Agent
from perdure.loop import (
    Event,
    ItemStart,
    ItemUpdate,
    Middleware,
    RunEnd,
    RunStart,
    ToolCallInfo,
    ToolDecision,
    ToolDispatch,
    ToolEnd,
    ToolStart,
    TurnEnd,
    TurnStart,
    approve,
    invoke,
)
from perdure.testing import ScriptedModel, call, turn
from perdure.testing.event_check import EventCheck, check_events, check_input
from perdure.testing.scripted import reasoning
from perdure.tools import tool
from perdure.wire import Item, function_call, function_call_output, user


@tool(effect="none")
def look() -> str:
    """Look."""
    return "seen"


@tool
async def outer() -> str:
    """Look from inside."""
    return str((await invoke("look")).output)


@tool
def held() -> str:
    """Wait for a person."""
    return "done"


class Holds(Middleware):
    async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
        return ToolDecision(action="hold") if info.call.name == "held" else None


async def told() -> list[Event]:
    """Two drives with everything that is usual."""
    calls = turn(
        reasoning("hm"),
        "so",
        call("look", {}, "c1"),
        call("outer", {}, "c2"),
        call("held", {}, "c3"),
    )
    agent = Agent(
        ScriptedModel([calls, "well", "done"]), tools=[look, outer, held], middleware=[Holds()]
    )
    session = agent.session()
    events: list[Event] = []

    async def hear(event: Event) -> None:
        events.append(event)

    session.subscribe(hear)
    session.steer("and this")
    await session.send("go")
    session.follow_up("then that")
    await session.resume(approve("c3"))
    return events


EVENTS = asyncio.run(told())
PLACES = [place for place, event in enumerate(EVENTS) if not isinstance(event, ItemUpdate)]


def kind(place: int) -> str:
    return f"{place}-{EVENTS[place].type}"


def refuses(events: list[Event]) -> str:
    with pytest.raises(AssertionError) as refused:
        check_events(events)
    return str(refused.value)


def test_what_is_in_order_is_taken() -> None:
    check_events(EVENTS)
    assert sum(isinstance(event, RunEnd) for event in EVENTS) == 2


@pytest.mark.parametrize("place", PLACES, ids=kind)
def test_what_is_missing_is_noticed(place: int) -> None:
    refuses(EVENTS[:place] + EVENTS[place + 1 :])


@pytest.mark.parametrize(
    "place", [p for p in PLACES if EVENTS[p].type not in {"queued", "tool_dispatch"}], ids=kind
)
def test_what_comes_twice_is_noticed(place: int) -> None:
    refuses([*EVENTS[: place + 1], *EVENTS[place:]])


@pytest.mark.parametrize(
    "place", [p for p in PLACES if EVENTS[p].type not in {"queued", "run_end"}], ids=kind
)
def test_a_drive_that_breaks_off_is_noticed(place: int) -> None:
    assert "has its run_end" in refuses(EVENTS[: place + 1])


def changed(event: Event, **members: object) -> list[Event]:
    other = msgspec.structs.replace(event, **members)
    return [other if one is event else one for one in EVENTS]


def first(kind: type[Event]) -> Event:
    return next(event for event in EVENTS if isinstance(event, kind))


def test_an_event_of_another_drive_is_noticed() -> None:
    assert "names its drive" in refuses(changed(first(TurnStart), run_id="run_x"))
    assert "names its drive" in refuses(changed(first(RunEnd), run_id="run_x"))


def test_a_turn_that_does_not_count_on_is_noticed() -> None:
    assert "turns count" in refuses(changed(first(TurnStart), turn=2))
    assert "name their turn" in refuses(changed(first(TurnEnd), turn=2))


def test_a_call_that_ran_although_it_was_rejected_is_noticed() -> None:
    dispatched = next(e.call_id for e in EVENTS if isinstance(e, ToolDispatch))
    end = next(e for e in EVENTS if isinstance(e, ToolEnd) and e.call_id == dispatched)
    assert "is not dispatched" in refuses(changed(end, rejected=True))


def test_a_call_that_was_entered_without_a_dispatch_is_noticed() -> None:
    end = next(e for e in EVENTS if isinstance(e, ToolEnd) and e.held)
    assert "was dispatched" in refuses(changed(end, entered=True))


def test_calls_out_of_the_model_s_order_are_noticed() -> None:
    starts = [n for n, e in enumerate(EVENTS) if isinstance(e, ToolStart) and not e.parent][:2]
    events = list(EVENTS)
    events[starts[0]], events[starts[1]] = events[starts[1]], events[starts[0]]
    assert "the model's order" in refuses(events)


def test_an_end_that_hides_an_open_call_is_noticed() -> None:
    end = first(RunEnd)
    refuses(changed(end, pending=()))
    aborted = {"reason": "aborted", "error": ValueError("x"), "pending": ()}
    assert "without an output are pending" in refuses(changed(end, **aborted))
    assert "leaves no call" in refuses(changed(end, reason="done"))
    assert "has a cause" in refuses(changed(end, cause="hook"))


def test_items_that_the_end_does_not_have_are_noticed() -> None:
    assert "the items of the end" in refuses(changed(first(RunEnd), items=()))


def test_a_refused_drive_is_its_end_alone() -> None:
    refused = RunEnd(run_id="", items=(), reason="error", error=ValueError("x"))
    check_events([refused])
    refuses([RunStart(run_id="r", source="input"), refused])
    refuses([msgspec.structs.replace(refused, run_id="r")])


def test_an_event_outside_a_drive_is_noticed() -> None:
    item = ItemStart(run_id="r", turn=0, item=user("x"))
    assert "outside a drive" in refuses([item])
    assert "outside a drive" in refuses([*EVENTS, item])


def test_events_can_be_checked_as_they_come() -> None:
    check = EventCheck()
    for event in EVENTS:
        check.feed(event)
        assert check.running == (event is not EVENTS[-1]) or not check.running
    check.end()
    assert check.drives == 2


CALL, OUTPUT = function_call("c1", "a"), function_call_output("c1", "x")


@pytest.mark.parametrize(
    ("items", "right"),
    [
        ([CALL, OUTPUT], True),
        ([CALL], False),
        ([OUTPUT], False),
        ([OUTPUT, CALL], False),
        ([CALL, OUTPUT, OUTPUT], False),
        ([CALL, CALL, OUTPUT], False),
        ([wire.system("x")], True),
    ],
)
def test_in_a_request_every_call_has_one_output_after_it(items: list[Item], right: bool) -> None:
    if right:
        check_input(items)
        return
    with pytest.raises(AssertionError):
        check_input(items)
