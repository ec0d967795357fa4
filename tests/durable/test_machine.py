"""Runs, decisions, resolutions, cancels and crashes in any order, beside a small reference model.

The model knows of each call what was said of it and how often it may have taken effect; it knows
nothing of entries. A crash keeps a first part of what a drive wrote, and of what its tools did what
was dispatched in that part.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine
from typing import TypeVar

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from perdure import Agent, Runs
from perdure.durable import find_run, read_run
from perdure.errors import (
    AlreadyResolved,
    NotHalted,
    NotHeld,
    RunError,
    RunFinished,
)
from perdure.log import Message, Session, Summary
from perdure.loop import PendingCall
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call, turn
from perdure.testing.scripted import TurnLike
from perdure.tools import Effect
from perdure.wire import FunctionCallOutput
from tests.durable.world import RUN, Act, Holds, World, session_of

T = TypeVar("T")

EFFECTS: tuple[Effect, ...] = ("none", "idempotent", "keyed", "once")


@dataclasses.dataclass
class Known:
    """What the model knows of a call."""

    effect: Effect
    fires: int = 0
    """How often it took effect."""
    allowed: int = 1
    """How often it may, if its effect is `once`."""
    told: set[str] = dataclasses.field(default_factory=set)
    """The verdicts that were taken on it."""
    denied: bool = False
    output: str = ""
    """What somebody said it gave."""


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.world = World()
        self.known: dict[str, Known] = {}
        self.cancelled = False
        self.closed = ""
        self.text = ""
        self.pending: dict[str, PendingCall] = {}
        self.over = False
        """It was closed before the last step."""

    # --- what is run ---------------------------------------------------------------------------

    @initialize(
        batches=st.lists(
            st.lists(st.tuples(st.sampled_from(EFFECTS), st.booleans()), min_size=1, max_size=3),
            min_size=1,
            max_size=3,
        )
    )
    def begin(self, batches: list[list[tuple[Effect, bool]]]) -> None:
        self.script: list[TurnLike] = [
            turn(
                *(call(_name(effect, held), {"n": place}) for place, (effect, held) in enumerate(b))
            )
            for b in batches
        ]
        self.script.append("All done.")

    def agent(self) -> Agent:
        tools = [
            Act(world=self.world, name=_name(effect, held), effect=effect)
            for effect in EFFECTS
            for held in (False, True)
        ]
        holds = Holds(*(_name(effect, held=True) for effect in EFFECTS))
        return Agent(ScriptedModel(self.script), tools=tools, store=self.store, middleware=[holds])

    def do(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run(work)

    # --- driving -------------------------------------------------------------------------------

    @rule()
    def drive(self) -> None:
        result = self.do(self.agent().run("go", run_id=RUN))
        self.take(result.pending)
        assert result.status in {"done", "halted", "input_required", "cancelled"}
        if self.closed:
            assert (result.status, result.text) == (self.closed, self.text)
        elif result.status in {"done", "cancelled"}:
            self.closed, self.text = result.status, result.text
            assert result.pending == ()
        assert self.cancelled == (result.status == "cancelled") or self.closed == "done"
        outputs = {i.call_id: i.text for i in result.items if isinstance(i, FunctionCallOutput)}
        for call_id, text in outputs.items():
            known = self.of(call_id)
            if known.output and result.status != "cancelled":
                assert text == known.output
            elif known.denied and result.status != "cancelled":
                assert "denied" in text
            elif "was cut" in text:
                assert self.world.count(call_id) == 0
            elif result.status != "cancelled":
                assert text == f"done {call_id}"

    @precondition(lambda self: not self.closed)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        fired = list(self.world.fired)
        before, waiting = self.do(self.shown())
        self.do(self.agent().run("go", run_id=RUN))
        session, _ = self.do(self.shown())
        keep = data.draw(st.integers(max(before.version if before else 0, 1), session.version))
        kept = Session(session.header, session.entries[:keep])
        dispatched = [str(e.members["call_id"]) for e in kept.entries if e.type == "dispatch"]
        drove = self.world.fired[len(fired) :]
        for one in dict.fromkeys(c for c, _ in drove):
            times = dispatched.count(one) - sum(c == one for c, _ in fired)
            new = [pair for pair in drove if pair[0] == one]
            fired += new[: max(times, 0)] if self.effect(session, one) != "none" else []
        self.world.fired = fired
        self.do(self.restart(kept, waiting))
        self.pending = {}

    async def shown(self) -> tuple[Session, tuple[Message, ...]]:
        try:
            session = await session_of(self.store)
        except ValueError:  # nobody has begun it
            return None, ()  # type: ignore[return-value]
        return session, await self.store.unconsumed(session.id)

    async def restart(self, kept: Session, waiting: tuple[Message, ...]) -> None:
        store = MemoryStore()
        summary = Summary(status=kept.status, leaf=kept.leaf)
        await store.create(kept.header, name=RUN, batch=kept.entries, summary=summary)
        named = {entry.message for entry in kept.entries}
        for message in waiting:
            if message.id not in named:
                await store.put(kept.id, message, stop=message.stop)
        self.store = store

    # --- telling -------------------------------------------------------------------------------

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), verdict=st.sampled_from(["approve", "deny"]))
    def decide(self, data: st.DataObject, verdict: str) -> None:
        one = data.draw(
            st.sampled_from(sorted(self.pending.values(), key=lambda p: p.call.call_id))
        )
        runs = Runs(self.store)
        told = runs.approve if verdict == "approve" else runs.deny
        refused = self.refused(told(RUN, one.call.call_id, by=verdict))
        if self.cancelled or self.closed:
            assert isinstance(refused, RunFinished)
        elif one.reason != "held" and verdict not in self.of(one.call.call_id).told:
            assert isinstance(refused, NotHeld | AlreadyResolved)
        elif refused is None:  # a word that was taken up may be said again
            self.of(one.call.call_id).told.add(verdict)
            self.of(one.call.call_id).denied |= verdict == "deny"
        else:
            assert isinstance(refused, NotHeld | AlreadyResolved)
            assert one.reason != "held" or isinstance(refused, AlreadyResolved)

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), never=st.booleans())
    def resolve(self, data: st.DataObject, never: bool) -> None:
        one = data.draw(
            st.sampled_from(sorted(self.pending.values(), key=lambda p: p.call.call_id))
        )
        known = self.of(one.call.call_id)
        word = f"resolved {one.call.call_id}"
        told = (
            Runs(self.store).resolve(RUN, one.call.call_id, never_ran=True, min_age=0)
            if never
            else Runs(self.store).resolve(RUN, one.call.call_id, output=word)
        )
        refused = self.refused(told)
        if self.cancelled or self.closed:
            assert isinstance(refused, RunFinished)
        elif not one.may_have_run:
            assert isinstance(refused, NotHalted | AlreadyResolved)
        elif refused is None and never:
            known.allowed += 0 if known.allowed > 1 else 1
        elif refused is None:
            known.output = word
        else:
            assert isinstance(refused, AlreadyResolved)

    @precondition(lambda self: not self.closed)
    @rule()
    def cancel(self) -> None:
        refused = self.refused(Runs(self.store).cancel(RUN))
        if self.cancelled:
            assert isinstance(refused, RunFinished)
        self.cancelled = self.cancelled or refused is None

    def refused(self, telling: Coroutine[object, object, None]) -> RunError | None:
        try:
            self.do(telling)
        except RunError as error:
            return error
        return None

    # --- what holds ----------------------------------------------------------------------------

    def take(self, pending: tuple[PendingCall, ...]) -> None:
        self.pending = {one.call.call_id: one for one in pending}

    def of(self, call_id: str) -> Known:
        session = self.do(self.now())
        return self.known.setdefault(call_id, Known(self.effect(session, call_id)))

    async def now(self) -> Session:
        return await read_run(self.store, await find_run(self.store, RUN))

    @staticmethod
    def effect(session: Session, call_id: str) -> Effect:
        made = session.view().calls.named(call_id)
        assert made is not None
        return next(one for one in EFFECTS if made.call.name.startswith(one))

    @invariant()
    def nothing_fires_that_may_not(self) -> None:
        for call_id in {one for one, _ in self.world.fired}:
            known = self.of(call_id)
            fires = self.world.count(call_id)
            if known.effect == "none":
                continue
            if known.effect == "once":
                assert fires <= known.allowed
            if known.effect == "keyed":
                assert len(self.world.keys(call_id)) == 1
            assert not (known.denied and fires > known.fires)
            if self.over:
                assert fires == known.fires
            known.fires = fires
        self.over = bool(self.closed)

    def teardown(self) -> None:
        """Whatever happened: once all is said, the run ends."""
        if not hasattr(self, "script"):
            return
        for _ in range(12):
            result = self.do(self.agent().run("go", run_id=RUN))
            if result.status in {"done", "cancelled"}:
                return
            for one in result.pending:
                runs = Runs(self.store)
                if one.reason == "held":
                    self.refused(runs.approve(RUN, one.call.call_id, by="approve"))
                elif one.may_have_run:
                    self.refused(runs.resolve(RUN, one.call.call_id, output="so be it"))
        raise AssertionError(f"it does not end: {result.status}")


def _name(effect: Effect, held: bool) -> str:
    return f"{effect}_{'held' if held else 'free'}"


Machine.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestRuns = Machine.TestCase
