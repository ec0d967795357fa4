"""A driver that would do the same for ever stops, and what cannot be read back is not written."""

from __future__ import annotations

import math

import pytest

from perdure import Agent, Approval, Budget, ConfigError, tool
from perdure.durable.plan import Drive, Rest
from perdure.durable.progress import MOST_EMPTY, MOST_ENDS, Progress
from perdure.errors import EntryRefused, NoProgress, PerdureError
from perdure.log import Draft, record
from perdure.log.header import new_header
from perdure.log.session import Session
from perdure.log.writing import seal
from perdure.loop import Opening, RunEnd
from perdure.loop.events import Reason
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call
from tests.durable.world import RUN

SPANS = [math.inf, -math.inf, math.nan, 1e308, 0.0, -1.0, True]


@pytest.mark.parametrize("seconds", SPANS)
def test_a_span_that_no_record_holds_is_refused_at_its_definition(seconds: float) -> None:
    with pytest.raises(ConfigError, match="seconds"):
        Budget(seconds=seconds)
    with pytest.raises(ConfigError, match="timeout"):
        tool(timeout=seconds)(_nothing)
    for name in ("max_seconds", "lease", "max_stall"):
        with pytest.raises(ConfigError, match=name):
            Agent(ScriptedModel([])).with_(**{name: seconds})


@pytest.mark.parametrize("seconds", [math.inf, math.nan, 1e308, -1.0])
@pytest.mark.parametrize("name", ["grace", "wind_down"])
def test_a_wait_that_never_ends_is_refused_at_its_definition(name: str, seconds: float) -> None:
    with pytest.raises(ConfigError, match=name):
        Agent(ScriptedModel([])).with_(**{name: seconds})
    assert Agent(ScriptedModel([])).with_(**{name: 0})


async def _nothing() -> str:
    """Nothing."""
    return ""


def _end(reason: Reason) -> RunEnd:
    return RunEnd(run_id="r", items=(), reason=reason)


def _session() -> Session:
    return Session(new_header("s", "2026-01-01T00:00:00.000000000Z"))


def _written(session: Session, kind: str) -> None:
    ts = f"2026-01-01T00:00:{session.version // 1000:02}.{session.version % 1000:09}Z"
    session.take(seal(Draft(kind, {"run_id": "r"}), session.leaf, ts))


@pytest.mark.parametrize("reason", ["done", "stopped"])
def test_a_driver_whose_drives_end_and_change_nothing_is_stopped(reason: Reason) -> None:
    session, step = _session(), Drive(Opening())
    progress = Progress(session)
    for _ in range(MOST_ENDS):
        assert progress.planned(step) is step
        _written(session, "response")
        progress.ended(_end(reason), session)
    with pytest.raises(NoProgress, match="goes on"):
        progress.planned(step)
    rest = Rest("done")
    assert progress.planned(rest) is rest


def test_a_driver_whose_drives_do_nothing_is_stopped() -> None:
    session, step = _session(), Drive(Opening())
    progress = Progress(session)
    for _ in range(MOST_EMPTY):
        progress.planned(step)
        _written(session, "run")
        progress.ended(_end("input_required"), session)
    with pytest.raises(NoProgress, match="goes on"):
        progress.planned(step)


@pytest.mark.parametrize("between", ["input_required", "error", "aborted"])
def test_a_long_run_that_does_something_in_its_drives_is_not_stopped(between: Reason) -> None:
    session, step = _session(), Drive(Opening())
    progress = Progress(session)
    for _ in range(10 * MOST_EMPTY):
        progress.planned(step)
        _written(session, "run")
        progress.ended(_end("stopped"), session)
        _written(session, "decision")
        assert progress.planned(step) is step
        _written(session, "run")
        progress.ended(_end(between), session)


async def test_a_run_whose_pause_cannot_be_recorded_is_an_error_and_no_loop() -> None:
    asks = Approval()
    object.__setattr__(asks, "need", True)  # what its definition refuses, and no entry can hold
    gated = tool(effect="once", approval=asks)(_nothing)
    model = ScriptedModel([call("_nothing"), "Done."])
    agent = Agent(model, tools=[gated], store=MemoryStore())
    with pytest.raises(NoProgress):
        await agent.run("Go.", run_id=RUN)


async def test_an_entry_that_could_not_be_read_back_is_not_written() -> None:
    store = MemoryStore()
    async with await record(store) as recording:
        with pytest.raises(EntryRefused, match="read back"):
            await recording.append(Draft("decision", {"call_id": 5}))
        assert recording.session.version == 0


async def test_nothing_is_written_of_a_drive_whose_start_cannot_be() -> None:
    store = MemoryStore()
    async with await record(store) as recording:
        _ = recording.recorder.appender.add([Draft("run", {"phase": "start", "x": math.inf})])
        later = recording.recorder.appender.add([Draft("label", {"label": "l"})])
        with pytest.raises(PerdureError):
            await later
        assert recording.session.version == 0
