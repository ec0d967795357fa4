"""Work of any shape, its process dying anywhere, beside a small model: what came once has come.

The work is steps, waits, races of waits, and several at once, in a tool, in a program, or in an
agent below either. Between two processes time passes, and some of what is waited for comes. The
model knows two things: a value that the work has seen is the value it sees for good, and a step
that acts once does so once.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import tempfile
from collections.abc import Awaitable, Coroutine, Iterator
from typing import TypeAlias

from hypothesis import HealthCheck, given, settings, strategies as st

from perdure import (
    Agent,
    Program,
    Runs,
    interrupt,
    race,
    receive,
    run_agent,
    sleep,
    step,
    tool,
    wait_for,
)
from perdure.clock import SystemClock
from perdure.errors import NoRun
from perdure.log import Lease, Store
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call
from perdure.testing.chaos_ledger import EffectLedger
from perdure.testing.chaos_simulated import simulate
from perdure.testing.chaos_store import Fault, Faults, faulted
from perdure.testing.chaos_waits import Answers, ChaosClock, halted_steps, tell_waits
from perdure.tools import Effect
from tests.durable.world import RUN

EFFECTS: tuple[Effect, ...] = ("none", "idempotent", "keyed", "once")


@dataclasses.dataclass(frozen=True)
class Step:
    """A piece of work."""

    effect: Effect


@dataclasses.dataclass(frozen=True)
class Wait:
    """A wait of a kind."""

    kind: str
    timed: bool = False


@dataclasses.dataclass(frozen=True)
class Race:
    """The first of some waits."""

    waits: tuple[Wait, ...]


@dataclasses.dataclass(frozen=True)
class Together:
    """Several at once."""

    parts: tuple[Step | Wait | Race, ...]


Part: TypeAlias = "Step | Wait | Race | Together"

steps = st.sampled_from(EFFECTS).map(Step)
waits = st.builds(Wait, st.sampled_from(["sleep", "signal", "channel", "interrupt"]), st.booleans())
races = st.builds(Race, st.lists(waits, min_size=2, max_size=3).map(tuple))
several = st.builds(
    Together, st.lists(st.one_of(steps, waits, races), min_size=2, max_size=3).map(tuple)
)
works = st.lists(st.one_of(steps, waits, races, several), min_size=1, max_size=4)


@dataclasses.dataclass(frozen=True)
class Life:
    """A process that asks for the run, and what happens before the next does."""

    dies: int
    """At which write; one that it does not come to is none."""
    behind: bool
    comes: int
    """Which of the words come, bit by bit."""
    seconds: int


lives_of = st.lists(
    st.builds(
        Life,
        st.integers(min_value=1, max_value=40),
        st.booleans(),
        st.integers(min_value=0, max_value=255),
        st.sampled_from([0, 30, 61, 3600]),
    ),
    max_size=6,
)


@dataclasses.dataclass(kw_only=True)
class Place:
    """A run, and what its processes see and do."""

    where: str
    work: tuple[Part, ...]
    directory: str
    store: MemoryStore = dataclasses.field(default_factory=MemoryStore)
    clock: ChaosClock = dataclasses.field(default_factory=lambda: ChaosClock(SystemClock()))
    seen: dict[str, object] = dataclasses.field(default_factory=dict[str, object])
    did: list[str] = dataclasses.field(default_factory=list[str])
    wrong: list[str] = dataclasses.field(default_factory=list[str])

    @property
    def runs(self) -> Runs:
        return Runs(self.store, clock=self.clock)

    # --- what is done --------------------------------------------------------------------------

    async def _do(self, faults: Faults) -> object:
        return [await self._part(part, f"p{place}", faults) for place, part in enumerate(self.work)]

    async def _part(self, part: Part, name: str, faults: Faults) -> object:
        value: object
        match part:
            case Together(parts):
                async with asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(self._part(one, f"{name}-{place}", faults))
                        for place, one in enumerate(parts)
                    ]
                return [task.result() for task in tasks]
            case Step(effect):
                value = await step(name, functools.partial(self._act, name, faults), effect=effect)
            case Wait():
                value = await self._waited(_wait(part, name))
            case Race(waits):
                value = await self._waited(
                    race(name, {str(n): _wait(one, f"{name}.{n}") for n, one in enumerate(waits)})
                )
        if self.seen.setdefault(name, value) != value:
            self.wrong.append(f"{name} was {self.seen[name]!r}, and then {value!r}")
        return value

    async def _waited(self, wait: Awaitable[object]) -> object:
        try:
            return str(await wait)
        except TimeoutError:
            return "in vain"

    async def _act(self, name: str, faults: Faults) -> str:
        async def act() -> None:
            self.did.append(name)

        await faults.around(f"do {name}", act)
        return f"{name} is done"

    # --- the processes -------------------------------------------------------------------------

    def live(self, fault: Fault | None) -> str:
        """How a process that asks for the run ended: the status it was told, or `killed`."""
        leases: list[Lease] = []
        told: list[str] = []

        async def work(faults: Faults) -> None:
            own = faulted(self.store, faults, on_lease=leases.append)
            told.append(await self._asked(own, faults))

        ended = simulate(work, fault, patience=30)
        for lease in leases:
            asyncio.run(self.store.release(lease))
        return told[0] if told else ended

    async def _asked(self, store: Store, faults: Faults) -> str:
        agent = self._agent(faults)
        if self.where in ("tool", "deep"):
            return str((await agent.with_(store=store).run("Go.", run_id=RUN)).status)

        async def body() -> object:
            if self.where == "program":
                return await self._do(faults)
            return await run_agent("part", agent, "Go on.")

        program = Program(body, store=store, clock=self.clock)
        return str((await program.run(run_id=RUN)).status)

    def _agent(self, faults: Faults) -> Agent:
        @tool(name="work", effect="idempotent")
        async def working() -> object:
            """Work."""
            return await self._do(faults)

        model = ScriptedModel([call("work"), "Worked."])
        agent: Agent = Agent(model, name="worker", tools=[working], clock=self.clock)
        if self.where != "deep":
            return agent
        model = ScriptedModel([call("worker", {"task": "Go on."}), "Done."])
        below = agent.as_tool("worker", "Works.")
        return Agent(model, name="above", tools=[below], clock=self.clock)

    # --- what happens between them -------------------------------------------------------------

    def between(self, life: Life) -> bool:
        """Let words come and time pass; whether any was news."""
        news = asyncio.run(self._told(life.comes))
        self.clock.ahead += life.seconds * 10**9
        return news

    async def _told(self, comes: int) -> bool:
        names = [name for n, name in enumerate(self._words()) if comes >> (n % 8) & 1]
        answers = Answers(
            signals={name: name for name in names},
            answers=dict.fromkeys(names, 7),
            messages={name: [name] for name in names},
        )
        ledger = EffectLedger(self.directory)
        try:
            pending = (await self.runs.get(RUN)).pending
        except NoRun:
            return False
        told = [await tell_waits(self.runs, RUN, one, answers, ledger) for one in pending]
        for one in pending:
            for name in await halted_steps(self.store, one):
                await self._resolve(one.call.call_id, one.session, name)
                told.append(True)
        return any(told)

    async def _resolve(self, call_id: str, session: str, name: str) -> None:
        if name in self.did:
            await self.runs.resolve(
                RUN, call_id, session=session, step=name, value=f"{name} is done"
            )
        else:
            await self.runs.resolve(
                RUN, call_id, session=session, step=name, never_ran=True, min_age=0
            )

    def _words(self) -> Iterator[str]:
        for place, part in enumerate(self.work):
            yield from _names(part, f"p{place}")


def _wait(wait: Wait, name: str) -> Coroutine[object, object, object]:
    match wait.kind:
        case "sleep":
            return sleep(name, 60)
        case "signal":
            return wait_for(name, timeout=60 if wait.timed else None)
        case "channel":
            return receive(name)
        case _:
            return interrupt(name, "How many?", int)


def _names(part: Part, name: str) -> Iterator[str]:
    match part:
        case Together(parts):
            for place, one in enumerate(parts):
                yield from _names(one, f"{name}-{place}")
        case Race(waits):
            yield from (f"{name}.{place}" for place in range(len(waits)))
        case _:
            yield name


def _once(part: Part, name: str) -> Iterator[str]:
    match part:
        case Together(parts):
            for place, one in enumerate(parts):
                yield from _once(one, f"{name}-{place}")
        case Step("once"):
            yield name
        case _:
            pass


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(where=st.sampled_from(["tool", "deep", "program", "part"]), work=works, lives=lives_of)
def test_what_came_stays_and_what_acts_once_does(
    where: str, work: list[Part], lives: list[Life]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = Place(where=where, work=tuple(work), directory=directory)
        for life in lives:
            place.live(Fault(life.dies, "after" if life.behind else "before"))
            place.between(life)
        everything = Life(dies=0, behind=False, comes=255, seconds=61)
        for _ in range(30):
            status = place.live(None)
            if status == "done":
                break
            place.between(everything)
        assert status == "done"
        assert place.wrong == []
        for name in (n for p, one in enumerate(work) for n in _once(one, f"p{p}")):
            assert place.did.count(name) == 1
