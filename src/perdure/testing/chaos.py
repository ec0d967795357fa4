"""Chaos: an agent's run, the process of which dies at every write.

```python
from perdure.testing import run_chaos

def test_it_charges_once():
    run_chaos(agent, "Charge order 42").check()
```

For each write that an undisturbed run makes, a fresh run is begun whose process dies before it, and
one whose process dies after it. The next process asks for the same run, answers what waits from an
independent ledger of what really happened, and goes on until the run ends. The report says how
often each call took effect at most, which results were lost, and which runs have no defined end.

Without `kill` processes are simulated, which takes milliseconds each; with it they are real, and
die by SIGKILL.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import queue
import secrets
import sys
import tempfile
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

from perdure.agent import Agent
from perdure.errors import ConfigError, InsideEventLoop
from perdure.log.store import Store
from perdure.loop import Middleware
from perdure.output.contract import OutputT
from perdure.programs import Program
from perdure.stores import open_store
from perdure.testing.chaos_commits import Commits, counting
from perdure.testing.chaos_judge import Evidence, Record, judge, read_record
from perdure.testing.chaos_ledger import EffectLedger, leases_of
from perdure.testing.chaos_life import Life, Target, live
from perdure.testing.chaos_process import Order, Reply, load_agent, warm_process
from perdure.testing.chaos_report import ChaosReport, Trial
from perdure.testing.chaos_simulated import simulate
from perdure.testing.chaos_store import Fault, Faults, When
from perdure.testing.chaos_waits import NO_ANSWERS, Answers, check_answers, unused

BEFORE_AND_AFTER: tuple[When, When] = ("before", "after")

MANY_WRITES = 1000
"""More writes than a run that ends would make."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChaosPlan:
    """What is tested, and how.

    Attributes:
        agent: The agent or the program, or `module:name` of one or of a function that makes one.
        input: What its runs are to do.
        saga: Its runs are all or nothing.
        answers: What runs that wait are told; for a time they do not wait.
        store: The URL of a store; a SQLite file that is gone afterwards if empty.
        kill: Kill real processes. The agent must be named by `module:name`.
        times: How many processes of a run die, one after the other, each at the same write.
        every: Take every n-th write alone.
        patience: Seconds after which a process counts as hung.
        workers: How many runs at once, with real processes.
    """

    agent: Target | str
    input: str = "Go."
    saga: bool = False
    answers: Answers = NO_ANSWERS
    store: str = ""
    kill: bool = False
    times: int = 1
    every: int = 1
    patience: float = 60.0
    workers: int = 1


def run_chaos(
    agent: Agent[OutputT] | Program[OutputT] | str,
    input: str = "Go.",  # noqa: A002 - the natural word
    *,
    saga: bool = False,
    signals: Mapping[str, object] | None = None,
    answers: Mapping[str, object] | None = None,
    messages: Mapping[str, Sequence[object]] | None = None,
    store: str = "",
    kill: bool = False,
    times: int = 1,
    every: int = 1,
    patience: float = 60.0,
    workers: int = 1,
) -> ChaosReport:
    """Run an agent or a program against a fault at every write.

    The arguments are `ChaosPlan`'s. Beside them, runs that wait get the `signals`, by name, the
    `answers`, by the key of a question, and the `messages` of each channel, in order. Time that
    they wait for passes at once.

    Raises:
        ConfigError: The agent or the store cannot be had, or not in other processes; or the run
            does not take a signal, an answer or messages that it was given.
        InsideEventLoop: It has event loops of its own; call it with `asyncio.to_thread`.
    """
    plan = ChaosPlan(
        agent=agent if isinstance(agent, str) else cast("Target", agent),
        input=input,
        saga=saga,
        answers=Answers(signals=signals or {}, answers=answers or {}, messages=messages or {}),
        store=store,
        kill=kill,
        times=times,
        every=every,
        patience=patience,
        workers=workers,
    )
    with chaos(plan) as tests:
        if tests.unused:
            raise ConfigError(f"{'; '.join(tests.unused)}; give what the run waits for")
        return tests.everywhere()


@contextlib.contextmanager
def chaos(plan: ChaosPlan) -> Generator[Chaos]:
    """What tries out faults, for those who choose them; raises as `run_chaos`."""
    _check(plan)
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-chaos-")))
        url = plan.store or f"sqlite:///{directory}/chaos.db"
        ledger = EffectLedger(directory)
        table = f"chaos_fired_{secrets.token_hex(4)}"
        benches = [
            stack.enter_context(_bench(plan, url, ledger, table))
            for _ in range(plan.workers if plan.kill else 1)
        ]
        commits = stack.enter_context(counting(url, table))
        yield Chaos(plan, ledger, commits, benches)


def _check(plan: ChaosPlan) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise InsideEventLoop("run_chaos", "asyncio.to_thread(run_chaos, ...)")
    check_answers(plan.answers)
    if plan.kill and not isinstance(plan.agent, str):
        raise ConfigError("other processes know an agent by its name alone: give 'module:name'")
    if plan.kill and plan.store.startswith("memory:"):
        raise ConfigError("other processes do not see a store in memory; name another")
    if plan.kill and not hasattr(os, "fork"):
        raise ConfigError("there is no fork on this system; try without kill")
    for name in ("times", "every", "workers"):
        if not getattr(plan, name) >= 1:
            raise ConfigError(f"{name} is at least 1, got {getattr(plan, name)!r}")


# --- trials -------------------------------------------------------------------------------------


class Chaos:
    """Tries out faults, a run for each. Made by `chaos`."""

    def __init__(
        self, plan: ChaosPlan, ledger: EffectLedger, commits: Commits, benches: Sequence[_Bench]
    ) -> None:
        self._plan = plan
        self._ledger = ledger
        self._commits = commits
        self._workers = len(benches)
        self._benches: queue.SimpleQueue[_Bench] = queue.SimpleQueue()
        for bench in benches:
            self._benches.put(bench)
        self._prefix = f"chaos-{secrets.token_hex(4)}"
        agent = load_agent(plan.agent) if isinstance(plan.agent, str) else plan.agent
        self._rewrites = isinstance(agent, Agent) and any(map(_rewrites, agent.middleware))
        self.undisturbed = self._trial((), expected="")
        """A run whose process lives."""
        self.writes = self._writes(self.undisturbed.run)
        """What it wrote, in order."""
        self.unused = unused(plan.answers, ledger.lines(self.undisturbed.run))
        """What was given for its waits, and it did not take, in words."""
        if not self.undisturbed.ok or self.undisturbed.status == "failed":
            raise ConfigError(f"the run fails where nobody dies: {self._why()}")

    def everywhere(self) -> ChaosReport:
        """A trial for every write, before it and after it."""
        chosen = range(1, len(self.writes) + 1, self._plan.every)
        faults = [Fault(number, when) for number in chosen for when in BEFORE_AND_AFTER]
        return self.report([(fault,) * self._plan.times for fault in faults])

    def report(self, all_faults: Iterable[Sequence[Fault]]) -> ChaosReport:
        """A trial for each sequence of faults, one for each process of a run that dies."""
        expected = self.undisturbed.status

        def trial(faults: Sequence[Fault]) -> Trial:
            return self._trial(faults, expected=expected)

        with ThreadPoolExecutor(self._workers) as threads:
            trials = threads.map(trial, all_faults)
            return ChaosReport(
                expected=expected, writes=self.writes, trials=(self.undisturbed, *trials)
            )

    def _trial(self, faults: Sequence[Fault], *, expected: str) -> Trial:
        bench = self._benches.get()
        try:
            return self._tried(bench, faults, expected)
        finally:
            self._benches.put(bench)

    def _tried(self, bench: _Bench, faults: Sequence[Fault], expected: str) -> Trial:
        places = [f"{one.number}-{one.when}" for one in faults]
        run = "-".join((self._prefix, *(places or ["undisturbed"])))
        durable: list[Record] = []
        died: list[str] = []
        broken: list[str] = []
        for life, fault in enumerate((*faults, None)):
            reply = bench.live(run, life, fault)
            if reply.ended != "killed":
                broken += [reply.error or f"a process {reply.ended}"] * (
                    reply.ended == "hung" or bool(reply.error)
                )
                break
            died.append(self._named(fault))
            bench.lapse(self._ledger, run, life)
            durable.append(bench.read(run))
        final = bench.read(run)
        evidence = Evidence(
            run=run,
            lines=self._ledger.lines(run),
            durable=[record.outputs for record in durable],
            final=final.outputs,
            commits=self._commits.of_run(run),
            faults=(*broken, *final.faults),
            nested=final.nested,
            waiting=final.waiting,
            known=final.known,
            answered=final.answered,
            rewrites=self._rewrites,
        )
        return judge(evidence, died=died, expected=expected, session=final.session)

    def _named(self, fault: Fault | None) -> str:
        if fault is None:
            return ""
        known = self.writes if hasattr(self, "writes") else ()
        name = known[fault.number - 1] if fault.number <= len(known) else "?"
        return f"{fault} ({name})"

    def _why(self) -> str:
        lines = self._ledger.lines(self.undisturbed.run)
        told = [line for line in lines if line.phase == "told"]
        broken = (*self.undisturbed.broken, *self.undisturbed.lost)
        return "; ".join((*broken, *(line.output or line.status for line in told[-1:])))

    def _writes(self, run: str) -> tuple[str, ...]:
        found = [line.writes for line in self._ledger.lines(run) if line.phase == "writes"]
        return found[0] if found else ()


def _rewrites(middleware: Middleware) -> bool:
    """Whether it may change what tools give."""
    kind = type(middleware)
    return (
        kind.after_tool_call is not Middleware.after_tool_call
        or kind.wrap_tool_call is not Middleware.wrap_tool_call
    )


# --- the lives ----------------------------------------------------------------------------------

Lives = Callable[[str, int, Fault | None], Reply]
"""Lets a life of a run be lived: which run, which life of it, and where it dies."""


class _Bench:
    """Where one run after the other is tried: lives, and a store to look at between them."""

    def __init__(self, runner: asyncio.Runner, store: Store, lives: Lives) -> None:
        self._runner = runner
        self._store = store
        self.live = lives

    def read(self, run: str) -> Record:
        """What the log says of a run."""
        return self._runner.run(read_record(self._store, run))

    def lapse(self, ledger: EffectLedger, run: str, life: int) -> None:
        """Let go of the leases of a dead process, as time would."""
        lines = tuple(line for line in ledger.lines(run) if line.life == life)
        for lease in leases_of(lines):
            self._runner.run(self._store.release(lease))


@contextlib.contextmanager
def _bench(plan: ChaosPlan, url: str, ledger: EffectLedger, table: str) -> Generator[_Bench]:
    with asyncio.Runner() as runner:
        store = open_store(url)
        try:
            runner.run(_prepared(store))
            with _lives(plan, url, store, ledger, table) as lives:
                yield _Bench(runner, store, lives)
        finally:
            runner.run(store.close())


async def _prepared(store: Store) -> None:
    _ = await store.list(limit=1)


@contextlib.contextmanager
def _lives(
    plan: ChaosPlan, url: str, store: Store, ledger: EffectLedger, table: str
) -> Generator[Lives]:
    if not plan.kill:
        agent = load_agent(plan.agent) if isinstance(plan.agent, str) else plan.agent
        yield _simulated(plan, agent, store, ledger, table)
        return
    with warm_process() as process:

        def lives(run: str, life: int, fault: Fault | None) -> Reply:
            order = Order(
                target=str(plan.agent),
                store=url,
                ledger=str(ledger.directory),
                run=run,
                input=plan.input,
                saga=plan.saga,
                answers=plan.answers,
                life=life,
                table=table,
                path=tuple(sys.path),
                number=fault.number if fault is not None else 0,
                when=fault.when if fault is not None else "before",
                patience=plan.patience,
            )
            return process.live(order)

        yield lives


def _simulated(
    plan: ChaosPlan, agent: Target, store: Store, ledger: EffectLedger, table: str
) -> Lives:
    def lives(run: str, life: int, fault: Fault | None) -> Reply:
        def work(faults: Faults) -> Awaitable[str]:
            told = Life(
                run=run,
                input=plan.input,
                saga=plan.saga,
                answers=plan.answers,
                number=life,
                ledger=ledger,
                faults=faults,
                table=table,
            )
            return live(agent, store, told)

        return Reply(ended=simulate(work, fault, patience=plan.patience))

    return lives
