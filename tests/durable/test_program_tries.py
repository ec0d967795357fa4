"""Programs that kill their processes: as often as calls may, and no more (LOG 5.5, 9)."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from perdure import Agent, Program, Runs, interrupt, recover, run_agent, sleep, step, tool
from perdure.cli.runs import runs as command
from perdure.errors import ConfigError, NotHalted, RunFailed
from perdure.log.status import MAX_TRIES
from perdure.log.store import Lease, Store
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock, ScriptedModel, call, run_chaos
from perdure.testing.chaos_simulated import simulate
from perdure.testing.chaos_store import Faults, faulted
from perdure.testing.scripted import Script
from tests.chaos import killing, working
from tests.durable.world import RUN

ROOT = Path(__file__).parents[2]

Die = Callable[[], Awaitable[None]]
"""Ends the process; it never returns."""

TRIED = ["killed"] * MAX_TRIES


@dataclasses.dataclass(kw_only=True)
class Lives:
    """A program that may end its process, and the processes that ask for its run."""

    body: Callable[[Die], Awaitable[object]]
    clock: FakeClock = dataclasses.field(default_factory=FakeClock)
    store: MemoryStore = dataclasses.field(default_factory=MemoryStore)
    entered: int = 0

    @property
    def runs(self) -> Runs:
        return Runs(self.store, clock=self.clock)

    def program(self, die: Die, store: Store) -> Program[object]:
        async def work() -> object:
            self.entered += 1
            return await self.body(die)

        return Program(work, store=store, clock=self.clock)

    def live(self, times: int = 1) -> list[str]:
        """How as many processes ended: the status that each was told, or `killed`."""
        return [self._live() for _ in range(times)]

    def _live(self) -> str:
        leases: list[Lease] = []
        told: list[str] = []

        async def work(faults: Faults) -> None:
            async def die() -> None:
                faults.dead = True
                await faults.breathe()

            program = self.program(die, faulted(self.store, faults, on_lease=leases.append))
            try:
                told.append((await program.run(run_id=RUN)).status)
            except RunFailed as failed:
                told.append(failed.result.status)

        ended = simulate(work, None, patience=30)
        for lease in leases:
            asyncio.run(self.store.release(lease))
        return told[0] if told else ended

    def status(self) -> str:
        return asyncio.run(self.runs.get(RUN)).status

    def recover(self) -> int:
        """How many runs a recovery drives."""

        async def alive() -> None:
            raise AssertionError

        return len(asyncio.run(recover(programs=[self.program(alive, self.store)])))


async def kills(die: Die) -> None:
    await die()


def test_a_program_that_kills_its_process_each_time_halts_until_somebody_lets_it_go_on() -> None:
    lives = Lives(body=kills)
    assert lives.live(MAX_TRIES + 2) == [*TRIED, "halted", "halted"]
    assert (lives.entered, lives.status(), lives.recover()) == (MAX_TRIES, "halted", 0)
    state = asyncio.run(lives.runs.get(RUN))
    assert state.cause == f"{MAX_TRIES} tries gave no outcome"
    assert [(one.reason, one.call.call_id) for one in state.pending] == [("unknown", "")]
    with pytest.raises(NotHalted, match="goes on with retry"):
        asyncio.run(lives.runs.resolve(RUN, "", never_ran=True, min_age=0))
    asyncio.run(lives.runs.retry(RUN, by="ann"))
    assert lives.live(MAX_TRIES + 1) == [*TRIED, "halted"]
    asyncio.run(lives.runs.cancel(RUN))
    assert lives.live() == ["cancelled"]


def test_a_program_that_is_mended_ends_after_a_retry() -> None:
    lives = Lives(body=kills)
    lives.live(MAX_TRIES + 1)

    async def mended(die: Die) -> object:
        return await step("charge", lambda: "charged")

    lives.body = mended
    assert lives.live() == ["halted"]
    asyncio.run(lives.runs.retry(RUN))
    assert lives.live() == ["done"]
    with pytest.raises(Exception, match="is over"):
        asyncio.run(lives.runs.retry(RUN))


def test_a_program_that_has_tries_left_is_not_retried() -> None:
    lives = Lives(body=kills)
    lives.live(2)
    with pytest.raises(ConfigError, match="cannot be retried"):
        asyncio.run(lives.runs.retry(RUN))


def test_a_try_that_came_a_step_further_does_not_count() -> None:
    async def body(die: Die) -> object:
        for part in range(MAX_TRIES + 2):
            taken: list[int] = []
            await step(f"part {part}", lambda: taken.append(1), effect="idempotent")  # noqa: B023
            if taken:
                await die()
        return "all"

    assert Lives(body=body).live(MAX_TRIES + 3) == [*TRIED, "killed", "killed", "done"]


def test_a_step_that_never_ends_is_no_step_further() -> None:
    async def body(die: Die) -> object:
        await step("once more", die, effect="keyed")
        return "all"

    assert Lives(body=body).live(MAX_TRIES + 1) == [*TRIED, "halted"]


def test_a_wait_that_frees_the_process_begins_the_tries_anew() -> None:
    async def body(die: Die) -> object:
        if lives.entered < MAX_TRIES:
            await die()
        await interrupt("sure", "Sure?", bool)
        await die()
        return "all"

    lives = Lives(body=body)
    assert lives.live(MAX_TRIES) == [*TRIED[1:], "input_required"]
    asyncio.run(lives.runs.answer(RUN, "", "sure", value=True))
    assert lives.live(MAX_TRIES + 1) == [*TRIED, "halted"]


def test_a_failure_and_an_abort_are_outcomes_and_no_tries() -> None:
    async def body(die: Die) -> object:
        if lives.entered % 2:
            await die()
        raise ConnectionError("hung up")

    lives = Lives(body=body)
    told = lives.live(2 * MAX_TRIES)
    assert told == [*["killed", "failed"] * (MAX_TRIES - 1), "killed", "halted"]


def clerk(act: Callable[[], Awaitable[object]], turns: int = 1) -> Agent:
    @tool(name="act", effect="idempotent")
    async def acting(n: int) -> str:
        """Act."""
        return str(await act())

    script: Script = [*(call("act", {"n": n}) for n in range(turns)), "It is done."]
    return Agent(ScriptedModel(script), name="clerk", tools=[acting])


def test_an_agent_of_a_program_has_tries_of_its_own() -> None:
    """Its call halts, whose tool kills the process, and the program with it."""

    async def body(die: Die) -> object:
        return await run_agent("part", clerk(die), "Act.")

    lives = Lives(body=body)
    assert lives.live(MAX_TRIES + 1) == [*TRIED, "halted"]
    own, below = asyncio.run(lives.runs.get(RUN)).pending
    assert (own.reason, below.reason, below.path) == ("suspended", "aborted", ("part",))


def test_tries_in_which_an_agent_of_the_program_comes_further_do_not_count() -> None:
    async def body(die: Die) -> object:
        acted: set[int] = set()

        async def act() -> str:
            if acted:
                await die()
            acted.add(1)
            return "acted"

        return await run_agent("part", clerk(act, turns=MAX_TRIES + 3), "Act.")

    assert Lives(body=body).live(MAX_TRIES + 3)[-1] == "done"


def asker() -> Agent:
    @tool(effect="idempotent")
    async def ask() -> str:
        """Ask."""
        return str(await interrupt("sure", "Sure?", bool))

    return Agent(ScriptedModel([call("ask"), "Asked."]), name="asker", tools=[ask])


async def asked_beside(die: Die) -> object:
    """An agent waits for an answer; beside it the process is killed."""

    async def late() -> None:
        await asyncio.sleep(0.1)
        await die()

    async with asyncio.TaskGroup() as group:
        group.create_task(run_agent("part", asker(), "Ask."))
        group.create_task(step("late", late, effect="idempotent"))
    return "all"


def test_tries_in_which_an_agent_of_the_program_only_waits_count() -> None:
    lives = Lives(body=asked_beside)
    assert lives.live(2 * MAX_TRIES)[-1] == "halted"
    state = asyncio.run(lives.runs.get(RUN))
    assert state.cause == f"{MAX_TRIES} tries gave no outcome"


def test_an_agent_that_a_program_never_lets_come_further_does_not_keep_it_from_halting() -> None:
    """Its call halts first; what kills the process is the program's own code all the same."""

    async def body(die: Die) -> object:
        async with asyncio.TaskGroup() as group:
            group.create_task(run_agent("part", clerk(lambda: asyncio.sleep(60)), "Act."))
            group.create_task(step("late", lambda: asyncio.sleep(0.1), effect="idempotent"))
            await asyncio.sleep(0.1)
            await die()
        return "all"

    assert Lives(body=body).live(3 * MAX_TRIES)[-1] == "halted"


def test_a_sleep_that_is_over_brings_a_program_further() -> None:
    async def body(die: Die) -> object:
        for night in range(MAX_TRIES + 1):
            await sleep(f"night {night}", 0)
            if lives.entered == night + 1:
                await die()
        return "all"

    lives = Lives(body=body)
    assert lives.live(MAX_TRIES + 2) == [*TRIED, "killed", "done"]


def test_chaos_lets_a_program_go_on_in_which_too_many_processes_died() -> None:
    program = working.in_program("idempotent")
    report = run_chaos(program, times=MAX_TRIES + 2, every=6, store="memory:all")
    report.check()
    assert report.expected == "done"
    assert max(len(trial.faults) for trial in report.trials) > MAX_TRIES


@pytest.mark.parametrize(("parts", "last"), [(0, "halted"), (MAX_TRIES + 1, "done")])
def test_real_processes_die_no_more_often_than_they_may(
    parts: int, last: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    words = [sys.executable, "-m", "tests.chaos.killing", url, str(parts)]
    told = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout.split() == [*["SIGKILL"] * (parts or MAX_TRIES), last]
    if last == "halted":
        shown = CliRunner().invoke(command, ["show", killing.RUN, "--store", url])
        assert f"{MAX_TRIES} tries gave no outcome" in shown.output
        assert f"perdure runs retry {killing.RUN}" in shown.output
        assert CliRunner().invoke(command, ["retry", killing.RUN, "--store", url]).exit_code == 0


def test_real_processes_that_die_while_an_agent_waits_come_to_an_end(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    words = [sys.executable, "-m", "tests.chaos.killing", url, "-1"]
    told = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    *died, last = told.stdout.split()
    assert (set(died), last) == ({"SIGKILL"}, "halted")
    assert len(died) >= MAX_TRIES
