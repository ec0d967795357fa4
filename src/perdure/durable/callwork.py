"""What a call has done so far, on the record of its drive: the ground of steps and waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from typing import TypeAlias

from perdure.errors import ConfigError, OutcomeUnknown
from perdure.log import Draft, Recording
from perdure.log.entries import Json
from perdure.log.nested import is_nested
from perdure.log.programs import OWN
from perdure.log.recorder import Recorder
from perdure.log.work import CallWork
from perdure.loop import LoopPort
from perdure.tools import Call, Effect, current_call

QUIET = 3
"""Rounds of the event loop after which nothing of a call is on its way: what a step or a write woke
takes two to go on."""

step_now: ContextVar[str] = ContextVar("perdure_step", default="")
"""The step that is being taken; empty outside of one."""


AroundStep: TypeAlias = Callable[[str, Effect, Callable[[], Awaitable[object]]], Awaitable[object]]
"""Does the work of a step: its name, its effect, and what does it."""

around_step: ContextVar[AroundStep | None] = ContextVar("perdure_around_step", default=None)
"""What stands around the work of steps, for those who try out crashes."""


class ProgramPort:
    """What stands behind the handle of a program, as a `LoopPort` does behind that of a call."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._attended: set[asyncio.Future[object]] = set()
        self.unknown: OutcomeUnknown | None = None
        """Nobody knows what came of a step of it."""
        self.agents: dict[str, Json] = {}
        """What its agents that wait are waiting for, by name."""

    @property
    def fence(self) -> str:
        """The fence of the driver."""
        return self.recording.lease.fence.nonce

    async def write_record(self, call: Call, namespace: str, data: object) -> None:
        """Write a record of the program's own."""
        await self.recording.write_record(call, namespace, data)

    def attend(self, work: asyncio.Future[object]) -> None:
        """Wait for work of the program before it is judged, whatever becomes of it."""
        self._attended.add(work)
        work.add_done_callback(self._attended.discard)

    async def close(self) -> None:
        """The program has ended: wait for what it left running."""
        while self._attended:
            await asyncio.wait(set(self._attended))


class Recorded:
    """The work of one call, or of a program, on the record of its drive."""

    def __init__(self, call: Call, recording: Recording, target: str) -> None:
        self.call = call
        self.recording = recording
        self.target = target
        self._port = call.port
        self.running: dict[str, asyncio.Task[object]] = {}
        self.calls: Counter[str] = Counter()
        """How many calls this entry has made, by tool and arguments."""
        self._at_work: set[asyncio.Future[object]] = set()
        self.agents: dict[str, Json] = {}
        """What its agents that wait are waiting for, by name."""
        if isinstance(self._port, ProgramPort):
            self.agents = self._port.agents
        self.asking: Counter[tuple[str, str]] = Counter()
        """How many ask for each wait now, by kind and name: what the call waits for."""
        self._terms: dict[tuple[str, str], object] = {}
        self.races: set[str] = set()
        """The races that are on."""
        self.clashes: dict[tuple[str, str], str] = {}
        """Why a wait cannot be one, that was asked for twice at once: both that asked are told."""
        self.receives: dict[str, int] = {}
        """How often it has received, by channel."""

    @property
    def work(self) -> CallWork:
        """What the record says of it, with what is queued to be written."""
        return self.recording.view.work.of(self.target)

    async def write(self, kind: str, body: Json) -> None:
        """Write an entry about the call, durably; what a program does names no call (LOG 5.5)."""
        own: Json = {"call_id": self.call.id, "target": self.target} if self.target else {}
        named = {**own, **body}
        draft = Draft(kind, {n: v for n, v in named.items() if v is not None})
        with self.at_work():
            await self.recording.append(draft)

    @contextlib.contextmanager
    def at_work(self) -> Generator[None]:
        """While something of the call reads or writes the store: it is not left meanwhile."""
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._at_work.add(done)
        try:
            yield
        finally:
            self._at_work.discard(done)
            done.set_result(None)

    def ask(self, kind: str, name: str, terms: object) -> None:
        """Note that a wait is asked for, until it is released.

        Args:
            kind: The kind of the wait.
            name: Its name.
            terms: What it is asked for with. Two at once under one name are one wait, so theirs
                must be the same.

        Raises:
            ConfigError: It is asked for already, with other terms.
        """
        key = kind, name
        known = self.work.waits.get(key)
        is_open = known is None or not (known.end is not None or known.lost)
        if self.asking[key] and is_open and self._terms[key] != terms:
            why = f"the {kind} {name!r} of this call is waited for at once with other terms"
            raise self.clash(kind, name, f"{why}, as another time or another question")
        self.asking[key] += 1
        self._terms[key] = terms

    def release(self, kind: str, name: str) -> None:
        """A wait was delivered, or whoever asked for it was cut and asks no more."""
        self.asking[kind, name] -= 1

    def doubt(self, error: OutcomeUnknown) -> None:
        """Note that nobody knows what came of a step, also when its tool has ended."""
        self.call.doubt(error)
        if isinstance(self._port, LoopPort | ProgramPort):
            self._port.unknown = error

    def clash(self, kind: str, name: str, why: str) -> ConfigError:
        """The error for who asks at once for what is waited for already."""
        self.clashes[kind, name] = f"{why}; give each a name of its own"
        return ConfigError(self.clashes[kind, name])

    async def settle(self) -> None:
        """Wait until no step of the call runs; a wait unwinds only then (DESIGN 8).

        What was started beside the wait comes as far as its own step or wait, so that all of them
        have begun, and what has come for any of them is taken.
        """
        quiet = 0
        while quiet < QUIET:
            await asyncio.sleep(0)
            busy = {*self.running.values(), *self._at_work}
            quiet = 0 if busy else quiet + 1
            if busy:
                await asyncio.wait(busy)


def recorded_now() -> Recorded | None:
    """The work of the call that is running; None where nothing is recorded.

    Raises:
        ConfigError: No call is running here.
        CallEnded: The call has ended, or was suspended.
    """
    call = current_call()
    recording = recording_of(call)
    if isinstance(call.kept, Recorded):
        return call.kept
    if recording is None:
        return None
    if isinstance(call.port, ProgramPort):
        return _kept(Recorded(call, recording, OWN))
    made = recording.view.calls.named(call.id)
    if made is None:  # a nested call, which is the work of the call that makes it
        return None
    return _kept(Recorded(call, recording, made.entry))


def _kept(recorded: Recorded) -> Recorded:
    """The work, kept with the handle of its call; it goes when that goes."""
    recorded.call.kept = recorded
    return recorded


def recording_of(call: Call) -> Recording | None:
    """What the drive that runs a call is written to; None where nothing is recorded.

    Raises:
        CallEnded: The call has ended.
    """
    port = call.port
    if isinstance(port, ProgramPort):
        return port.recording
    ledger = port.ledger if isinstance(port, LoopPort) else None
    return ledger.recording if isinstance(ledger, Recorder) else None


def check_between_steps(what: str) -> None:
    """Refuse a step or a wait inside a step.

    Args:
        what: What is asked for, in words.

    Raises:
        ConfigError: A step is being taken here, or a tool that was invoked runs, which is one.
    """
    inside = step_now.get()
    if is_nested(inside):
        raise ConfigError(
            f"{what} is asked for in tool {current_call().name!r}, which another tool invoked: it "
            "is a step of that one, and takes no steps and no waits. Take them in the tool that "
            "the model calls, or call the function there in place of invoke"
        )
    if inside:
        raise ConfigError(
            f"{what} is asked for inside step {inside!r}, and steps do not nest and do not wait: "
            "put it before the step or behind it"
        )
