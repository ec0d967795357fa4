"""Sagas of any shape, cut anywhere, beside a small model of what has to be undone.

A tree has deeds and agents below agents. The model walks it in order up to the first deed that
fails, which is everything that took effect; what of it can be undone is undone the last first,
however often the process dies on the way, and the rest is listed.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from typing import TypeAlias

from hypothesis import HealthCheck, given, settings, strategies as st

from perdure import Agent, Compensation, RunFailed, Runs, SagaRolledBack, ToolError
from perdure.log import Lease, Store
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call, turn
from perdure.testing.chaos_simulated import simulate
from perdure.testing.chaos_store import Fault, Faults, faulted
from perdure.testing.scripted import Turn, TurnLike
from perdure.tools import Call, Effect, Tool, ToolResult
from tests.durable.bank import names
from tests.durable.world import RUN

EFFECTS: tuple[Effect, ...] = ("none", "idempotent", "keyed", "once")


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A deed."""

    effect: Effect
    undoable: bool
    fails: bool = False


@dataclasses.dataclass(frozen=True)
class Below:
    """An agent, by what its turns ask for."""

    turns: tuple[tuple[Node, ...], ...]


Node: TypeAlias = "Leaf | Below"

leaves = st.builds(
    Leaf, st.sampled_from(EFFECTS), st.booleans(), st.sampled_from([False, False, False, True])
)
nodes: st.SearchStrategy[Node] = st.recursive(
    leaves,
    lambda inner: st.builds(
        Below, st.lists(st.lists(inner, min_size=1, max_size=2).map(tuple), max_size=2).map(tuple)
    ),
    max_leaves=5,
)
trees = st.builds(
    Below, st.lists(st.lists(nodes, min_size=1, max_size=2).map(tuple), min_size=1).map(tuple)
)


# --- the model -----------------------------------------------------------------------------------


@dataclasses.dataclass
class Expected:
    """What the model says of a tree."""

    took_effect: list[tuple[str, Leaf]] = dataclasses.field(default_factory=list)
    failed: bool = False

    @property
    def undone(self) -> list[str]:
        return [name for name, leaf in reversed(self.took_effect) if leaf.undoable]

    @property
    def left(self) -> list[str]:
        return [name for name, leaf in reversed(self.took_effect) if not leaf.undoable]


def named(node: Below, path: str = "t") -> Iterator[tuple[str, Node]]:
    """The nodes of an agent's turns, with the names of their tools."""
    for place, batch in enumerate(node.turns):
        for index, one in enumerate(batch):
            yield f"{path}_{place}{index}", one


def expected(node: Below, path: str = "t", found: Expected | None = None) -> Expected:
    found = found or Expected()
    for name, one in named(node, path):
        if found.failed:
            break
        match one:
            case Below():
                expected(one, name, found)
            case Leaf(fails=True):
                found.failed = True
            case Leaf():
                found.took_effect += [(name, one)] if one.effect != "none" else []
    return found


# --- the run -------------------------------------------------------------------------------------


class World:
    """What really happened, whatever dies."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.undoing: list[str] = []


@dataclasses.dataclass(kw_only=True)
class Deed:
    """A tool; what it does counts as a write before it and behind it."""

    world: World
    faults: Faults
    name: str
    leaf: Leaf
    description: str = "Does something."
    parameters: dict[str, object] | None = None

    @property
    def effect(self) -> Effect:
        return self.leaf.effect

    @property
    def compensator(self) -> object:
        return self._undo if self.leaf.undoable else None

    async def execute(self, call: Call) -> ToolResult:
        del call

        async def enter() -> None:
            self.world.entered.append(self.name)

        await self.faults.around(f"enter {self.name}", enter)
        await self.faults.around(f"leave {self.name}", nothing)
        if self.leaf.fails:
            raise ToolError("it failed")
        return ToolResult(f"did {self.name}")

    async def _undo(self, compensation: Compensation) -> None:
        assert compensation.text == f"did {self.name}"

        async def undo() -> None:
            self.world.undoing.append(self.name)

        await self.faults.around(f"undo {self.name}", undo)


async def nothing() -> None:
    """Writes nothing."""


def agent_of(node: Below, world: World, faults: Faults, path: str = "t") -> Agent:
    tools: list[Tool] = []
    for name, one in named(node, path):
        if isinstance(one, Below):
            tools.append(agent_of(one, world, faults, name).as_tool(name, "An agent."))
        else:
            tools.append(Deed(world=world, faults=faults, name=name, leaf=one))
    script: list[TurnLike] = []
    for place, batch in enumerate(node.turns):
        script.append(turn(*(asked(f"{path}_{place}{n}", one) for n, one in enumerate(batch))))
    script.append("All done.")
    return Agent(ScriptedModel(script), name=path, tools=tools, sequential=True)


def asked(name: str, node: Node) -> Turn:
    return call(name, {"task": "Go."}) if isinstance(node, Below) else call(name)


async def live(node: Below, store: Store, world: World, faults: Faults, held: list[Lease]) -> str:
    """Drive the saga until it ends, saying of what halts it what really happened."""
    own = faulted(store, faults, on_lease=held.append)
    agent = agent_of(node, world, faults).with_(store=own)
    runs, leaves = Runs(own), leaves_of(node)
    for _ in range(8):
        try:
            result = await agent.run("go", run_id=RUN, saga=True)
        except SagaRolledBack:
            return "rolled_back"
        except RunFailed as error:
            return f"failed: {error}"
        if result.status != "halted":
            return result.status
        for one in result.pending:
            if one.may_have_run and one.call.name in leaves:
                await resolve(runs, one.session, one.call.call_id, one.call.name, world, leaves)
    return "halted"


async def resolve(
    runs: Runs, session: str, call_id: str, name: str, world: World, leaves: dict[str, Leaf]
) -> None:
    if name not in world.entered:
        await runs.resolve(RUN, call_id, session=session, never_ran=True, min_age=0)
    elif leaves[name].fails:
        await runs.resolve(RUN, call_id, session=session, failed="it failed")
    else:
        await runs.resolve(RUN, call_id, session=session, output=f"did {name}")


def leaves_of(node: Below, path: str = "t") -> dict[str, Leaf]:
    found: dict[str, Leaf] = {}
    for name, one in named(node, path):
        found |= leaves_of(one, name) if isinstance(one, Below) else {name: one}
    return found


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(trees, st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=2))
def test_a_saga_undoes_what_the_model_says(node: Below, deaths: list[tuple[int, bool]]) -> None:
    store, world, told = MemoryStore(), World(), ""
    faults = [Fault(number, "before" if early else "after") for number, early in deaths]
    for fault in (*faults, None):
        held: list[Lease] = []

        async def work(faults: Faults, held: list[Lease] = held) -> None:
            nonlocal told
            told = await live(node, store, world, faults, held)

        ended = simulate(work, fault, patience=20)
        assert ended in ("ended", "killed")
        for lease in held:
            asyncio.run(store.release(lease))
    check(store, node, world, told)


def check(store: Store, node: Below, world: World, told: str) -> None:
    model = expected(node)
    assert told == ("rolled_back" if model.failed else "done")
    state = asyncio.run(Runs(store).get(RUN))
    for name, leaf in leaves_of(node).items():
        assert leaf.effect != "once" or world.entered.count(name) <= 1
    if not model.failed:
        assert (world.undoing, state.report) == ([], None)
        return
    in_order = [n for place, n in enumerate(world.undoing) if world.undoing.index(n) == place]
    assert in_order == model.undone
    assert world.undoing == sorted(world.undoing, key=model.undone.index)
    assert state.report is not None
    assert names(state.report.compensated) == model.undone
    assert names(state.report.uncompensated) == model.left
    assert set(names(state.report.unknown)) <= {
        n for n, one in leaves_of(node).items() if one.fails
    }
