"""Drives that are recorded, for tests of the recorder and of going on after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from perdure.errors import StoreFailed
from perdure.log.entries import AnyEntry
from perdure.log.reading import Reading, read_lines
from perdure.log.recording import Recording, go_on, record
from perdure.log.store import Appended, Fence, Store, Summary
from perdure.loop import (
    Answer,
    Config,
    Event,
    Hidden,
    Queues,
    RunEnd,
    Trigger,
    check_answers,
)
from perdure.loop.drive import Opening
from perdure.loop.ledger import Ledger
from perdure.loop.lowlevel import begin
from perdure.stores.memory import MemoryStore
from perdure.testing.scripted import Script, ScriptedModel
from perdure.tools import Call, Effect, Tool, ToolResult, ToolSet
from perdure.wire import Item, user


class Counted:
    """A tool that counts its entries by call."""

    description = ""
    parameters: dict[str, object] | None = None
    sequential = False
    resource: str | None = None
    timeout: float | None = None

    def __init__(
        self,
        name: str = "act",
        effect: Effect = "once",
        does: Callable[[Call], str | ToolResult] | None = None,
    ) -> None:
        self.name = name
        self.effect = effect
        self.entered: list[str] = []
        self.keys: list[str] = []
        self._does = does

    async def execute(self, call: Call) -> ToolResult:
        self.entered.append(call.id)
        self.keys.append(call.idempotency_key)
        given = self._does(call) if self._does else f"{self.name}: ok"
        return given if isinstance(given, ToolResult) else ToolResult(given)


def config_of(script: Script, tools: Sequence[Tool] = (), **members: object) -> Config:
    return Config(model=ScriptedModel(script), model_name="m", tools=tools, **members)  # type: ignore[arg-type]


class Slow(MemoryStore):
    """Takes its time, as a disk does."""

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
        await asyncio.sleep(0.002)
        return await super().append(
            session, version, fence, batch, consumed=consumed, summary=summary
        )


class Flaky(MemoryStore):
    """Fails some appends, before or after they happened."""

    def __init__(self, *failures: str) -> None:
        super().__init__()
        self.failures = list(failures)
        self.batches: list[list[bytes]] = []

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
        self.batches.append([entry.line for entry in batch])
        failure = self.failures.pop(0) if self.failures else ""
        if failure == "before":
            raise StoreFailed("not written")
        done = await super().append(
            session, version, fence, batch, consumed=consumed, summary=summary
        )
        if failure == "after":
            raise StoreFailed("written, and nobody heard")
        return done


async def drive(
    recording: Recording,
    config: Config,
    *prompts: str | Item | Hidden,
    answers: Iterable[Answer] | None = None,
    queues: Queues | None = None,
    trigger: Trigger | None = None,
    ledger: Ledger | None = None,
    subscribers: Sequence[Callable[[Event], object]] = (),
) -> RunEnd:
    """One drive of a recording, to its end."""
    pending = recording.pending(ToolSet(config.tools))
    items = tuple(user(one) if isinstance(one, str) else one for one in prompts)
    checked = (
        () if answers is None else check_answers(pending, tuple(answers), ToolSet(config.tools))
    )
    handle = begin(
        recording.transcript,
        Opening(prompts=items, answers=checked),
        config,
        ledger=ledger or recording.recorder,
        queues=queues,
        call_ids=recording.call_ids,
        trigger=trigger,
        pending=pending,
        subscribers=subscribers,  # type: ignore[arg-type]
    )
    return await handle.wait()


async def fresh(store: Store | None = None, **members: object) -> Recording:
    return await record(store or MemoryStore(), **members)  # type: ignore[arg-type]


async def reading(recording: Recording) -> Reading:
    """What the store holds, verified."""
    await recording.recorder.close()
    stored = await recording.store.read(recording.session.id)
    return read_lines(stored.header, stored.lines)


async def crashed_after(recording: Recording, entries: int) -> Recording:
    """The session as it is if the process died after so many entries, taken up again."""
    stored = await recording.store.read(recording.session.id)
    kept = read_lines(stored.header, stored.lines[:entries], verify=False).session
    store = MemoryStore()
    await store.create(kept.header, batch=kept.entries)
    return await go_on(store, kept.id)


def types(session: Iterable[object]) -> list[str]:
    """The entries of a session, shortly."""
    shown: list[str] = []
    for entry in session:
        name = str(entry.type)  # type: ignore[attr-defined]
        members = entry.members  # type: ignore[attr-defined]
        more = {
            "item": lambda m: m["item"]["type"],
            "run": lambda m: m["phase"] + (f" {m['reason']}" if "reason" in m else ""),
            "decision": lambda m: m["verdict"],
            "custom": lambda m: m["ns"],
        }.get(name)
        shown.append(f"{name} {more(members)}" if more else name)
    return shown
