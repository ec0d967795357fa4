"""Processes that drive the runs of one Postgres, and are killed and paused at random.

`python -m tests.chaos.soaking URL SCHEMA LEDGER RUNS` is a warm process: for each seed that it
reads it forks a *worker* and writes back its process id. A worker recovers runs, and asks for some
of its own. The *operator*, in the process of the test, answers what waits, by the ledger of what
really happened, and cancels some.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import IO, cast

import msgspec

from perdure import Agent, Runs, current_call, sleep, step, step_key, tool
from perdure.durable import Recovering
from perdure.errors import LogError, RunError, RunFailed
from perdure.log.store import Store
from perdure.loop import ModelRequest, PendingCall
from perdure.stores.postgres import PostgresStore
from perdure.testing import call, turn
from perdure.testing.chaos_judge import read_record
from perdure.testing.chaos_ledger import EffectLedger, Line
from perdure.testing.chaos_life import FIRED, what_happened
from perdure.testing.chaos_places import place_of
from perdure.testing.chaos_waits import halted_steps
from perdure.testing.scripted import Turn
from perdure.tools import AsyncTx, Effect, Tool, Transaction
from perdure.tools.result import json_text
from perdure.wire import Message
from tests.chaos.agents import StrictModel, ask

ROOT = Path(__file__).parents[2]

LEASE = 1.0
"""Seconds that a worker's lease holds."""

PAUSES = (0.2, 2.5)
"""Seconds that a worker is paused, at least and at most; more than a lease, and less."""

CERTAIN = PAUSES[1] + 2.0
"""Seconds after which a tool that was dispatched was entered, or never will be."""

PATIENCE = 120.0
"""Seconds that runs have to end when nobody is killed any more."""

_UNKNOWN = json_text(FIRED)
"""What is said of a step whose value nobody knows, as JSON."""

ENDED = frozenset({"done", "cancelled"})


# --- the agent ----------------------------------------------------------------------------------


def agent_of(store: Store, ledger: EffectLedger, paid: str) -> Agent:
    """An agent whose tools write down what they do, under the name of their run."""

    def first(request: ModelRequest) -> Turn:
        run = {"run": _run_in(request)}
        return turn(*(call(name, run) for name in ("slow", "keyed", "look", "rest")))

    def second(request: ModelRequest) -> Turn:
        run = {"run": _run_in(request)}
        return turn(call("risky", run), call("pay", run))

    tools = [
        _acting(ledger, "slow", "once", 0.3),
        _acting(ledger, "keyed", "keyed", 0.05),
        _acting(ledger, "look", "none", 0.0),
        _acting(ledger, "risky", "once", 0.02),
        _resting(ledger),
        _paying(paid),
    ]
    model = StrictModel([first, second, "Done."])
    return Agent(model, name="soaked", tools=tools, middleware=(ask,), store=store, lease=LEASE)


def _run_in(request: ModelRequest) -> str:
    """The name of a run, which is what its user says."""
    return next(one.text for one in request.input if isinstance(one, Message))


def _acting(ledger: EffectLedger, name: str, effect: Effect, seconds: float) -> Tool:
    @tool(name=name, effect=effect)
    async def act(run: str) -> str:
        """Act."""
        here = current_call()
        line = Line(
            run=run,
            phase="entered",
            tool=name,
            effect=effect,
            call_id=here.id,
            key=here.idempotency_key,
        )
        ledger.write(line)
        await asyncio.sleep(seconds)
        output = f"{name} did it in {os.getpid()}"
        ledger.write(msgspec.structs.replace(line, phase="left", output=output))
        return output

    return act


def _resting(ledger: EffectLedger) -> Tool:
    """A tool that sleeps between two steps that act once."""

    async def act(run: str, name: str) -> str:
        line = Line(
            run=run,
            phase="entered",
            tool=f"rest: {name}",
            effect="once",
            call_id=place_of((), current_call().id, name),
            key=step_key(),
        )
        ledger.write(line)
        await asyncio.sleep(0.1)
        value = f"{name} was done in {os.getpid()}"
        ledger.write(msgspec.structs.replace(line, phase="left", output=json_text(value)))
        return value

    @tool(effect="idempotent")
    async def rest(run: str) -> str:
        """Rest."""
        await step("lie down", lambda: act(run, "lie down"))
        await sleep("nap", 0.5)
        await step("get up", lambda: act(run, "get up"))
        return "rested"

    return rest


def _paying(paid: str) -> Tool:
    @tool(effect="transactional")
    async def pay(run: str) -> Transaction:
        """Pay."""

        async def write(tx: AsyncTx) -> str:
            await tx.execute(f"INSERT INTO {paid} VALUES ($1)", [run])  # noqa: S608 - a test's
            return "paid"

        return write

    return pay


# --- workers ------------------------------------------------------------------------------------


async def work(store: Store, ledger: EffectLedger, paid: str, runs: int, seed: int) -> None:
    """Recover runs, and ask for some, until SIGTERM."""
    agent = agent_of(store, ledger, paid)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, _tell_where, ledger.directory)
    asking = asyncio.create_task(_ask(agent, runs, random.Random(seed), stop))
    async with Recovering([agent], store, every=0.3):
        await stop.wait()
    asking.cancel()
    await asyncio.wait([asking])


def _tell_where(directory: Path) -> None:
    """Write down where every task of this process is."""
    with (directory / f"stuck-{os.getpid()}").open("w") as file:
        for task in asyncio.all_tasks():
            task.print_stack(file=file)


async def _ask(agent: Agent, runs: int, chance: random.Random, stop: asyncio.Event) -> None:
    """Ask for runs, three at a time: new ones, those of others, those that are over."""
    while not stop.is_set():  # a store may lose a cancellation
        names = [f"run-{chance.randrange(runs)}" for _ in range(3)]
        async with asyncio.TaskGroup() as group:
            for name in names:
                _ = group.create_task(_ask_for(agent, name, wait=chance.random() < 0.5))
        await asyncio.sleep(0.05)


async def _ask_for(agent: Agent, name: str, *, wait: bool) -> None:
    with contextlib.suppress(RunError, RunFailed, LogError, TimeoutError):
        async with asyncio.timeout(3.0):
            await agent.run(name, run_id=name, wait=wait)


def serve(url: str, schema: str, directory: str, runs: str) -> None:
    """Fork a worker for each seed that is read."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for workers
    gc.freeze()
    for line in sys.stdin.buffer:
        worker = os.fork()
        if not worker:
            _work_and_exit(url, schema, directory, int(runs), int(line))
        sys.stdout.write(f"{worker}\n")
        sys.stdout.flush()


def _work_and_exit(url: str, schema: str, directory: str, runs: int, seed: int) -> None:
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        store = PostgresStore(url, schema=schema, connections=4)
        asyncio.run(work(store, EffectLedger(directory), f"{schema}.paid", runs, seed))
        status = 0
    except BaseException:  # noqa: BLE001 - the frames of the warm process must not go on here
        status = 1
        Path(directory, f"failed-{os.getpid()}").write_text(traceback.format_exc())
    os._exit(status)


class Warm:
    """The end of a warm process by which it is asked for workers."""

    def __init__(self, process: subprocess.Popen[bytes], chance: random.Random) -> None:
        self._process = process
        self._chance = chance

    def worker(self) -> int:
        """The process id of a new worker."""
        asked, told = (
            cast("IO[bytes]", self._process.stdin),
            cast("IO[bytes]", self._process.stdout),
        )
        asked.write(f"{self._chance.randrange(1 << 30)}\n".encode())
        asked.flush()
        return int(told.readline())


@contextlib.contextmanager
def warm(arguments: Sequence[str], chance: random.Random) -> Generator[Warm]:
    """Start a warm process, and end it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.soaking", *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        yield Warm(process, chance)
        cast("IO[bytes]", process.stdin).close()


# --- what is done to them -----------------------------------------------------------------------


@dataclasses.dataclass(kw_only=True)
class Havoc:
    """Kills workers and pauses them, until its time is up.

    Attributes:
        counts: What was done, and how often.
    """

    warm: Warm
    chance: random.Random
    workers: list[int]
    counts: Counter[str] = dataclasses.field(default_factory=Counter[str])

    async def wreak(self, seconds: float) -> None:
        end = asyncio.get_running_loop().time() + seconds
        async with asyncio.TaskGroup() as group:
            while asyncio.get_running_loop().time() < end:
                await asyncio.sleep(self.chance.uniform(0.1, 0.6))
                place = self.chance.randrange(len(self.workers))
                if self.chance.random() < 0.4:
                    self._kill(place)
                else:
                    _ = group.create_task(self._pause(self.workers[place]))

    def _kill(self, place: int) -> None:
        os.kill(self.workers[place], signal.SIGKILL)
        self.workers[place] = self.warm.worker()
        self.counts["killed"] += 1

    async def _pause(self, worker: int) -> None:
        seconds = self.chance.uniform(*PAUSES)
        with contextlib.suppress(ProcessLookupError):  # it was killed meanwhile
            os.kill(worker, signal.SIGSTOP)
            await asyncio.sleep(seconds)
            if worker in self.workers:
                os.kill(worker, signal.SIGCONT)
        self.counts["paused beyond the lease" if seconds > LEASE else "paused"] += 1


@dataclasses.dataclass(kw_only=True)
class Operator:
    """Answers what waits, and cancels a run now and then.

    Attributes:
        counts: What was said, and how often.
    """

    runs: Runs
    store: Store
    ledger: EffectLedger
    chance: random.Random
    cancels: float
    counts: Counter[str] = dataclasses.field(default_factory=Counter[str])

    async def serve(self) -> None:
        """Look at all that waits, again and again."""
        while True:
            await self.look()
            await asyncio.sleep(0.1)

    async def look(self) -> bool:
        """Look once; whether every run is over."""
        over = True
        async for one in self.runs.each():
            if one.status in ENDED:
                continue
            over = False
            if one.status in ("halted", "input_required"):
                await self._answer(one.run_id)
        return over

    async def _answer(self, name: str) -> None:
        if self.chance.random() < self.cancels:
            with contextlib.suppress(RunError):
                await self.runs.cancel(name, by="the operator")
                self.counts["cancelled"] += 1
            return
        for waiting in (await self.runs.get(name)).pending:
            with contextlib.suppress(RunError):  # somebody drove it meanwhile
                await self._say(name, waiting)

    async def _say(self, name: str, waiting: PendingCall) -> None:
        call_id = waiting.call.call_id
        if waiting.reason == "held":
            await self.runs.approve(name, call_id, by="the operator")
            self.counts["approved"] += 1
            return
        if waiting.reason != "aborted":
            return
        if steps := await halted_steps(self.store, waiting):
            for one in steps:
                await self._say_of_step(name, call_id, one)
            return
        age = (time.time_ns() - (waiting.attempted_at or 0)) / 1e9
        if age < CERTAIN:
            return
        fired, output = what_happened(self.ledger.lines(name), call_id)
        if fired:
            await self.runs.resolve(name, call_id, output=output, by="the operator")
            self.counts["resolved"] += 1
        else:
            await self.runs.resolve(
                name, call_id, never_ran=True, min_age=CERTAIN, by="the operator"
            )
            self.counts["said it never ran"] += 1

    async def _say_of_step(self, name: str, call_id: str, one: str) -> None:
        place = place_of((), call_id, one)
        fired, output = what_happened(self.ledger.lines(name), place, _UNKNOWN)
        who = "the operator"
        if fired:
            value: object = msgspec.json.decode(output)
            await self.runs.resolve(name, call_id, step=one, value=value, by=who)
        else:
            await self.runs.resolve(
                name, call_id, step=one, never_ran=True, min_age=CERTAIN, by=who
            )
        self.counts["resolved a step" if fired else "said a step never ran"] += 1


# --- judging ------------------------------------------------------------------------------------


async def faults_of(store: Store, ledger: EffectLedger, name: str, payments: int) -> list[str]:
    """What is wrong with a run that is over."""
    record = await read_record(store, name)
    lines = ledger.lines(name)
    found = list(record.faults)
    entries = Counter(line.call_id for line in lines if line.phase == "entered")
    for line in lines:
        if line.phase != "entered":
            continue
        if line.effect == "once" and entries[line.call_id] > 1:
            found.append(f"{line.tool} was entered {entries[line.call_id]} times")
        keys = {one.key for one in lines if one.call_id == line.call_id}
        if line.effect == "keyed" and (len(keys) > 1 or "" in keys):
            found.append(f"{line.tool} was entered under {sorted(keys)}")
        output = record.outputs.get(line.call_id)
        given = [one.output for one in lines if one.call_id == line.call_id and one.output]
        around = record.outputs.get(line.call_id.partition("/")[0]) or ""
        closed = around.startswith("Error: the run was cancelled")
        if output not in (*given, FIRED, _UNKNOWN) and not closed:
            found.append(f"{line.tool} gave {given}, and the record says {output!r}")
    paid = record.outputs.get("call_t1_3") == "paid"
    if payments != paid:
        found.append(f"it paid {payments} times, and the record says {record.outputs}")
    return sorted(set(found))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Soaked:
    """How it went."""

    ended: Counter[str]
    faults: dict[str, list[str]]
    counts: Counter[str]


async def soak(
    url: str, schema: str, directory: Path, *, seconds: float, runs: int, seed: int
) -> Soaked:
    """Let three workers drive runs while they are killed and paused; what came of it."""
    import psycopg

    chance = random.Random(seed)
    store = PostgresStore(url, schema=schema)
    await store.list(limit=1)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {schema}.paid (run TEXT)".encode())
    ledger = EffectLedger(directory)
    operator = Operator(runs=Runs(store), store=store, ledger=ledger, chance=chance, cancels=0.02)
    with warm([url, schema, str(directory), str(runs)], chance) as process:
        havoc = Havoc(warm=process, chance=chance, workers=[process.worker() for _ in range(3)])
        serving = asyncio.create_task(operator.serve())
        try:
            await havoc.wreak(seconds)
            await _until_over(operator, serving, patience=PATIENCE)
        finally:
            serving.cancel()
            await asyncio.wait([serving])
            stubborn = await _stop(havoc.workers, directory)
    with psycopg.connect(url, autocommit=True) as connection:
        statement = f"SELECT run FROM {schema}.paid"  # noqa: S608 - a test's own
        paid = Counter(str(row[0]) for row in connection.execute(statement.encode()))
    failed = {"workers that did not end": stubborn, "workers that failed": _failures(directory)}
    ended: Counter[str] = Counter()
    async for one in operator.runs.each():
        ended[one.status] += 1
        failed[one.run_id] = await faults_of(store, ledger, one.run_id, paid[one.run_id])
    await store.close()
    faults = {name: found for name, found in failed.items() if found}
    return Soaked(ended=ended, faults=faults, counts=havoc.counts + operator.counts)


async def _stop(workers: Sequence[int], directory: Path) -> list[str]:
    """Ask workers to end; those that did not, and where they were."""
    for worker in workers:
        os.kill(worker, signal.SIGCONT)
        os.kill(worker, signal.SIGTERM)
    for _ in range(200):
        if not any(map(_lives, workers)):
            return []
        await asyncio.sleep(0.05)
    stubborn = [worker for worker in workers if _lives(worker)]
    for worker in stubborn:
        os.kill(worker, signal.SIGUSR1)
    await asyncio.sleep(1.0)
    for worker in stubborn:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    return [f"{worker}: {_where(directory, worker)}" for worker in stubborn]


def _where(directory: Path, worker: int) -> str:
    told = directory / f"stuck-{worker}"
    return told.read_text() if told.exists() else "its event loop does not turn"


def _lives(worker: int) -> bool:
    try:
        os.kill(worker, 0)
    except ProcessLookupError:
        return False
    return True


def _failures(directory: Path) -> list[str]:
    return [one.read_text() for one in directory.glob("failed-*")]


async def _until_over(operator: Operator, serving: asyncio.Task[None], *, patience: float) -> None:
    """Wait until every run is over."""
    end = asyncio.get_running_loop().time() + patience
    while True:
        if serving.done():
            serving.result()
        left = {one.run_id: one.status async for one in operator.runs.each()}
        left = {name: status for name, status in left.items() if status not in ENDED}
        if not left:
            return
        assert asyncio.get_running_loop().time() < end, f"these runs do not end: {left}"
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    serve(*sys.argv[1:])
