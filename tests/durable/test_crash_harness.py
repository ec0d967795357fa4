"""The chaos harness itself: it finds what is broken, and says what it found."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from click.testing import CliRunner

from perdure import Agent
from perdure.cli.chaos import chaos as command
from perdure.errors import ConfigError, InsideEventLoop
from perdure.log.store import Erasure, Transactions
from perdure.loop import ModelRequest
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore
from perdure.testing import RuleBroken, ScriptedModel, call, run_chaos, store_kit
from perdure.testing.chaos_judge import Evidence, judge
from perdure.testing.chaos_ledger import Line, Phase
from perdure.testing.chaos_life import FIRED
from perdure.testing.chaos_store import Fault, Faults, FaultStore, faulted
from perdure.wire import StreamEvent
from tests.chaos import agents


@pytest.mark.parametrize("scheme", ["memory", "file", "sqlite"])
def test_a_run_survives_a_crash_at_every_write(scheme: str, tmp_path: Path) -> None:
    urls = {"memory": "memory:", "file": f"file://{tmp_path}/log", "sqlite": ""}
    report = run_chaos(agents.once(), store=urls[scheme])
    report.check()
    assert report.most("act") == 1
    assert {"create", "enter act", "leave act", "append closed"} <= set(report.writes)
    assert len(report.trials) == 1 + 2 * len(report.writes)
    assert {trial.status for trial in report.trials} == {"done"}
    assert all(trial.faults for trial in report.trials[1:])


def test_processes_may_die_again_and_again() -> None:
    report = run_chaos(agents.once(), times=3, every=4)
    report.check()
    assert max(len(trial.faults) for trial in report.trials) == 3


class Tired(ScriptedModel):
    """Fails from its fifth request on."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        if len(self.requests) == 4:
            raise RuntimeError("it is tired")
        async for event in super().stream(request):
            yield event


def tired() -> Agent:
    """An agent that does not survive."""
    model = Tired([call("act", {"what": 0}), "Done."])
    return Agent(model, tools=[agents.acting("once", "act")])


def test_a_run_that_ends_otherwise_after_a_crash_breaks_a_rule() -> None:
    report = run_chaos(tired(), every=4)
    with pytest.raises(RuleBroken, match="ended 'failed', and undisturbed it ends 'done'"):
        report.check()


def test_an_agent_that_fails_undisturbed_is_refused() -> None:
    with pytest.raises(ConfigError, match="fails where nobody dies: it is broken"):
        run_chaos(Agent(ScriptedModel([RuntimeError("it is broken")])))


# --- what is judged ------------------------------------------------------------------------------


def line(phase: Phase, effect: str = "once", *, key: str = "k", output: str | None = None) -> Line:
    return Line(
        run="r", phase=phase, tool="act", effect=effect, call_id="c", key=key, output=output
    )


def told(status: str, output: str = "") -> Line:
    return Line(run="r", phase="told", status=status, output=output)


class Case(NamedTuple):
    lines: tuple[Line, ...]
    final: dict[str, str]
    broken: str = ""
    lost: str = ""
    durable: dict[str, str] = {}  # noqa: RUF012 - never changed
    commits: int = 0


RAN = (line("entered"), line("left", output="ok"))
DONE = told("done", "Done.")

CASES = {
    "all is well": Case((*RAN, DONE), {"c": "ok"}),
    "it died in the tool": Case((line("entered"), DONE), {"c": FIRED}),
    "twice": Case((line("entered"), *RAN, DONE), {"c": "ok"}, broken="was entered 2 times"),
    "two keys": Case(
        (line("entered", "keyed"), line("entered", "keyed", key="other"), DONE),
        {"c": FIRED},
        broken="under the keys ['k', 'other']",
    ),
    "no key": Case((line("entered", "keyed", key=""), DONE), {"c": FIRED}, broken="the keys ['']"),
    "one key": Case((line("entered", "keyed"), line("entered", "keyed"), DONE), {"c": FIRED}),
    "committed once": Case((line("entered", "transactional"), DONE), {"c": "x"}, commits=1),
    "committed twice": Case(
        (line("entered", "transactional"), DONE), {"c": "x"}, broken="committed 2", commits=2
    ),
    "never committed": Case(
        (line("entered", "transactional"), DONE), {"c": "x"}, broken="committed 0"
    ),
    "no output": Case((*RAN, DONE), {}, lost="was entered and has no output"),
    "another output": Case((*RAN, DONE), {"c": "unknown"}, lost="its tool did not give: 'unknown'"),
    "it was recorded": Case(
        (*RAN, line("entered"), line("left", output="again"), DONE),
        {"c": "again"},
        broken="entered 2 times",
        lost="had the output 'ok' on record; now it has 'again'",
        durable={"c": "ok"},
    ),
    "another answer": Case(
        (*RAN, DONE, told("done", "Other.")), {"c": "ok"}, lost="the answer 'Done.' was given"
    ),
    "no status": Case((*RAN, told("KeyError: 1")), {"c": "ok"}, broken="no defined status"),
    "nobody was told": Case(RAN, {"c": "ok"}, broken="no defined status"),
    "the record says otherwise": Case(
        (*RAN, msgspec.structs.replace(told("halted"), recorded="failed"), DONE),
        {"c": "ok"},
        broken="told 'halted', and its record says 'failed'",
    ),
    "stuck": Case((*RAN, told("halted")), {"c": "ok"}, broken="ended 'halted'"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_broken_and_what_is_lost(name: str) -> None:
    case = CASES[name]
    evidence = Evidence(
        run="r",
        lines=case.lines,
        durable=[case.durable],
        final=case.final,
        commits=Counter({"c": case.commits}),
    )
    trial = judge(evidence, died=("before write 3",), expected="done", session="s")
    assert trial.ok == (not case.broken and not case.lost)
    for found, wanted in ((trial.broken, case.broken), (trial.lost, case.lost)):
        assert len(found) == bool(wanted), found
        assert all(wanted in one for one in found)


# --- its store -----------------------------------------------------------------------------------


async def never() -> None:
    raise AssertionError("nobody was to die")


def undying(store: MemoryStore | SqliteStore) -> FaultStore:
    return faulted(store, Faults(None, never), on_lease=lambda _: None)


@pytest.mark.parametrize("check", store_kit.CHECKS, ids=store_kit.name_of)
async def test_a_store_with_faults_is_a_store(check: store_kit.Check) -> None:
    await check(store_kit.Subject(lambda: undying(MemoryStore()), persistent=False))


async def test_what_a_store_offers_beside_is_found_through_its_faults(tmp_path: Path) -> None:
    sqlite = SqliteStore(tmp_path / "a.db")
    assert isinstance(undying(sqlite), Transactions)
    assert isinstance(undying(sqlite), Erasure)
    assert not isinstance(undying(MemoryStore()), Transactions)
    await sqlite.close()


# --- what is refused, and the command ------------------------------------------------------------


def test_what_cannot_begin_is_refused() -> None:
    with pytest.raises(ConfigError, match="by its name"):
        run_chaos(agents.once(), kill=True)
    with pytest.raises(ConfigError, match="in memory"):
        run_chaos("tests.chaos.agents:once", store="memory:", kill=True)
    with pytest.raises(ConfigError, match="no module"):
        run_chaos("nosuchmodule:agent")
    with pytest.raises(ConfigError, match="is no agent"):
        run_chaos("tests.chaos.agents:DATABASES")
    with pytest.raises(ConfigError, match="times is at least 1"):
        run_chaos(agents.once(), times=0)


async def test_inside_an_event_loop_it_runs_on_a_thread() -> None:
    with pytest.raises(InsideEventLoop):
        run_chaos(agents.once())
    report = await asyncio.to_thread(run_chaos, agents.once(), store="memory:", every=5)
    report.check()


def test_a_fault_says_where_it_is() -> None:
    assert str(Fault(3, "before")) == "before write 3"


def test_the_command_reports_and_exits() -> None:
    good = CliRunner().invoke(command, ["tests.chaos.agents:once", "--every", "4"])
    assert good.return_value == 0 or good.exit_code == 0
    assert "results lost: 0" in good.output
    assert "most firings of a call" in good.output
    bad = CliRunner().invoke(command, [f"{__name__}:tired", "--every", "4"], standalone_mode=False)
    assert bad.return_value == 1
    assert "undisturbed it ends 'done'" in bad.output
    none = CliRunner().invoke(command, ["tests.chaos.agents:DATABASES"])
    assert none.exit_code == 2
