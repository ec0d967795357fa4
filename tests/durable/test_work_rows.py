"""What the next drive does with each log that a crash in a wait can leave (LOG 9).

A run with a wait between two steps that act once is cut behind every entry of its whole tree. The
next process comes before the wait is due, or only when it is: either way the run ends as it did,
and no step that may have run is taken again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec import Raw

from perdure import Agent, Program, Runs, run_agent, step, tool, wait_for
from perdure.durable import find_run, read_run
from perdure.durable.messages import (
    Cancel,
    Reply,
    Resolve,
    Retry,
    Sent,
    Signal,
    Told,
    message_of,
)
from perdure.log import AnyEntry, Filters, Header, Session, Summary
from perdure.log.entries import StepEntry, WaitEntry
from perdure.log.store import Appended, Fence
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock, ScriptedModel, call
from perdure.testing.chaos_ledger import EffectLedger
from perdure.testing.chaos_waits import halted_steps, tell_waits
from tests.chaos import working
from tests.durable.world import RUN

LATER = 7200.0
"""Seconds after which every wait of `working` is due."""


async def _timely() -> object:
    try:
        return await wait_for("paid", timeout=3600)
    except TimeoutError:
        return "in vain"


WAITS: dict[str, working.Work] = {**working.WAITS, "timely": _timely}

CAME: dict[str, set[str]] = {
    "sleep": {"came slept"},
    "signal": {"came 5"},
    "timely": {"came 5", "came in vain"},
    "timeout": {"came in vain"},
    "channel": {"came did pack|did pack"},
    "interrupt": {"came True"},
    "race": {"came night"},
}
"""What each gives."""

TIMED = ("sleep", "timeout", "race")
"""Those that nobody's word ends."""


class Written(MemoryStore):
    """A store that knows in which order all sessions of it were written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[Header, AnyEntry]] = []

    async def create(
        self,
        header: Header,
        *,
        name: str = "",
        batch: Sequence[AnyEntry] = (),
        fence: Fence | None = None,
        summary: Summary | None = None,
    ) -> Appended:
        made = await super().create(header, name=name, batch=batch, fence=fence, summary=summary)
        self.written += ((header, entry) for entry in batch)
        return made

    async def append(
        self,
        session: str,
        version: int,
        fence: Fence,
        batch: Sequence[AnyEntry],
        *,
        consumed: Sequence[str] = (),
        summary: Summary | None = None,
    ) -> Appended:
        made = await super().append(
            session, version, fence, batch, consumed=consumed, summary=summary
        )
        header = (await self.read(session)).header
        self.written += ((header, entry) for entry in batch)
        return made

    async def cut(self, keep: int) -> MemoryStore:
        """What the next process finds if this one died when so many entries were durable."""
        found = MemoryStore()
        sessions: dict[str, Session] = {}
        for header, entry in self.written[:keep]:
            sessions.setdefault(header.id, Session(header)).take(entry)
        for session in sessions.values():
            root = session.header.root
            lease = await found.lease(root, holder="x") if root else None
            summary = Summary(status=session.status, due=session.view().due, leaf=session.leaf)
            await found.create(
                session.header,
                name="" if root else RUN,
                batch=session.entries,
                fence=lease.fence if lease is not None else None,
                summary=summary,
            )
            if lease is not None:
                await found.release(lease)
        return found


@dataclasses.dataclass(kw_only=True)
class Desk:
    """A run with a wait: in a tool, in a program, in a tool of an agent that a program drives, or
    in one three levels of sub-agents deep.
    """

    where: str
    kind: str
    directory: Path
    store: MemoryStore = dataclasses.field(default_factory=MemoryStore)
    clock: FakeClock = dataclasses.field(default_factory=FakeClock)
    did: list[str] = dataclasses.field(default_factory=list[str])

    @property
    def runs(self) -> Runs:
        return Runs(self.store, clock=self.clock)

    async def _work(self) -> str:
        def does(what: str) -> Callable[[], object]:
            return lambda: self.did.append(what)

        await step("before", does("before"))
        came = await WAITS[self.kind]()
        await step("behind", does("behind"))
        return "|".join(map(str, came)) if isinstance(came, list) else str(came)

    def _agent(self) -> Agent:
        @tool(name="work", effect="idempotent")
        async def doing() -> str:
            """Work."""
            came = await self._work()
            self.did.append(f"came {came}")
            return came

        model = ScriptedModel([call("work"), "Worked."])
        agent: Agent = Agent(model, name="worker", tools=[doing], clock=self.clock)
        for level in (3, 2, 1) if self.where == "deep" else ():
            model = ScriptedModel([call(agent.name, {"task": "Go on."}), "Done."])
            below = agent.as_tool(agent.name, "Goes deeper.")
            agent = Agent(model, name=f"level{level}", tools=[below], clock=self.clock)
        return agent

    async def _part(self) -> str:
        return await run_agent("part", self._agent(), "Work.")

    async def ask(self) -> str:
        """Ask for the run; how it stands."""
        if self.where in ("program", "part"):
            body = self._work if self.where == "program" else self._part
            program = Program(body, name="work", store=self.store, clock=self.clock)
            result = await program.run(run_id=RUN)
            if self.where == "program" and result.status == "done":
                self.did.append(f"came {result.output}")
            return str(result.status)
        return str((await self._agent().with_(store=self.store).run("Go.", run_id=RUN)).status)

    async def finish(self) -> None:
        """Ask for the run, tell it what it waits for, and let time pass, until it is done."""
        ledger = EffectLedger(self.directory)
        for _ in range(16):
            status = await self.ask()
            if status == "done":
                return
            assert status in ("suspended", "input_required", "halted")
            if status == "halted":
                await self._resolve()
                continue
            pending = (await self.runs.get(RUN)).pending
            told = [
                await tell_waits(self.runs, RUN, one, working.ANSWERS, ledger) for one in pending
            ]
            if not any(told):
                await self.clock.advance(LATER)
        raise AssertionError(status)

    async def _resolve(self) -> None:
        """Say of every step that halts that it was taken."""
        for one in (await self.runs.get(RUN)).pending:
            for name in await halted_steps(self.store, one):
                await self.runs.resolve(
                    RUN, one.call.call_id, session=one.session, step=name, value="did pack"
                )


class Begun(NamedTuple):
    """What of the work is on record."""

    steps: set[str]
    waits: bool
    due: bool
    """A wait has begun that ends by itself."""
    came: bool


def _begun(entries: Iterator[AnyEntry]) -> Begun:
    steps, waits, due, came = set[str](), False, False, False
    for entry in entries:
        match entry:
            case StepEntry():
                steps.add(entry.name)
            case WaitEntry() if entry.kind != "child":
                waits, due = True, due or entry.due is not None
                came = came or entry.phase == "end"
            case _:
                pass
    return Begun(steps, waits, due, came)


async def _cut_anywhere(where: str, kind: str, directory: Path, *, every: int = 1) -> None:
    store = Written()
    whole = Desk(where=where, kind=kind, directory=directory, store=store)
    await whole.finish()
    assert whole.did[:2] == ["before", "behind"]
    assert whole.did[2] in CAME[kind]
    for keep in range(1, len(store.written) + 1, every):
        begun = _begun(entry for _, entry in store.written[:keep])
        for late in (False, True) if begun.waits and not begun.came else (False,):
            desk = Desk(where=where, kind=kind, directory=directory)
            desk.store = await store.cut(keep)
            if late:
                await desk.clock.advance(LATER)
            status = await desk.ask()
            if kind in TIMED and begun.due and not begun.came:
                assert (status == "suspended") is not late, keep
            if status != "done":
                await desk.finish()
            did = [one for one in desk.did if not one.startswith("came")]
            assert not begun.steps & set(did), keep
            assert len(did) == len(set(did)), keep
            came = {one for one in desk.did if one.startswith("came")}
            assert came <= ({whole.did[-1]} if begun.came else CAME[kind]), keep


@pytest.mark.parametrize("kind", WAITS)
@pytest.mark.parametrize("where", ["tool", "program"])
async def test_a_run_cut_behind_any_entry_of_its_work_ends_as_it_did(
    where: str, kind: str, tmp_path: Path
) -> None:
    await _cut_anywhere(where, kind, tmp_path)


@pytest.mark.parametrize("kind", ["sleep", "timely", "interrupt", "race"])
async def test_a_tree_three_levels_deep_that_is_cut_ends_as_it_did(
    kind: str, tmp_path: Path
) -> None:
    await _cut_anywhere("deep", kind, tmp_path, every=3)


@pytest.mark.parametrize("kind", ["sleep", "timely", "channel"])
async def test_a_program_with_an_agent_that_is_cut_ends_as_it_did(
    kind: str, tmp_path: Path
) -> None:
    await _cut_anywhere("part", kind, tmp_path)


# --- stops, and what comes too late ---------------------------------------------------------------


async def _tree(desk: Desk) -> list[Session]:
    """All sessions of the run, the root first."""
    root = await find_run(desk.store, RUN)
    listed = (await desk.store.list(Filters(root=root))).sessions
    in_order = sorted(listed, key=lambda one: one.id != root)  # all may be of one instant
    return [await read_run(desk.store, one.id) for one in in_order]


@pytest.mark.parametrize(
    ("where", "kind", "every"),
    [("tool", "interrupt", 1), ("program", "race", 1), ("part", "sleep", 2), ("deep", "timely", 4)],
)
async def test_a_stop_cancels_a_run_cut_behind_any_entry_and_no_step_begins(
    where: str, kind: str, every: int, tmp_path: Path
) -> None:
    store = Written()
    await Desk(where=where, kind=kind, directory=tmp_path, store=store).finish()
    closed = next(
        place
        for place, (_, entry) in enumerate(store.written)
        if entry.type == "perdure:closed"
        if not store.written[place][0].root
    )
    for keep in range(1, closed + 1, every):
        desk = Desk(where=where, kind=kind, directory=tmp_path, store=await store.cut(keep))
        session = (await _tree(desk))[0]
        await desk.store.put(session.id, message_of(Cancel(reason="no"), session), stop=True)
        assert await desk.ask() == "cancelled", keep
        assert desk.did == [], keep
        assert await desk.ask() == "cancelled", keep
        for one in await _tree(desk):
            assert one.view().calls.open == {}, keep
            assert one.view().status in ("cancelled", "done"), keep
            assert await desk.store.unconsumed(one.id) == ()


LATE: tuple[Told, ...] = (
    Signal(name="late", value=Raw(b"1")),
    Sent(channel="late", key="k", value=Raw(b"1")),
    Reply(call_id="", begin="nothing", value=Raw(b"true")),
    Resolve(call_id="", step="before", dispatch="nothing", output='"x"'),
    Retry(end="nothing"),
)


@pytest.mark.parametrize("where", ["tool", "program", "part", "deep"])
async def test_words_for_waits_that_come_when_the_run_is_over_are_refused_on_record(
    where: str, tmp_path: Path
) -> None:
    desk = Desk(where=where, kind="sleep", directory=tmp_path)
    await desk.finish()
    for session in await _tree(desk):
        for told in LATE:
            await desk.store.put(session.id, message_of(told, session))
    assert await desk.ask() == "done"
    for session in await _tree(desk):
        last = session.entries[-len(LATE) :]
        assert {one.type for one in last} == {"perdure:refused"}
        assert len({one.message for one in last}) == len(LATE)
        assert await desk.store.unconsumed(session.id) == ()
    assert await desk.ask() == "done"
