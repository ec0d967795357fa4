"""Recovery: runs that want a driver and have none get one.

A run wants a driver when its process died, when its time has come, or when a message waits in its
tree. Whether it has one, its lease says; a run that waits for a person is left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self, cast

from perdure.counts import check_count
from perdure.durable.byid import Taken, take_up
from perdure.durable.control import Control
from perdure.durable.driven import Driven
from perdure.durable.driver import Driving
from perdure.errors import ConfigError, NoSession, PerdureError, RunBusy
from perdure.log import Filters, Header, Listed, Store
from perdure.seconds import check_seconds

logger = logging.getLogger(__name__)

UNFINISHED = frozenset({"idle", "running", "aborted", "failed"})
"""How a run stands that goes on without anybody saying anything."""

DEFAULT_EVERY = 5.0
"""Seconds between two looks of a recovery loop."""

DEFAULT_CONCURRENCY = 8
"""How many runs a recovery drives at once."""

MAX_BACKOFF = 3600.0
"""Seconds after which a run that fails again and again is tried again."""

_PAGE = 256
NOTHING = 1 << 62
"""A version behind every entry: only the header is read."""


class Recovered(NamedTuple):
    """A run that a recovery drove."""

    run_id: str
    status: str
    error: BaseException | None = None
    """What its last drive failed with, or what kept it from being driven."""


class Name(NamedTuple):
    """By what a run knows who drives it."""

    name: str
    is_program: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """How runs are recovered."""

    concurrency: int = DEFAULT_CONCURRENCY
    on_recovered: Callable[[Recovered], None] | None = None
    """Hears of each run that was driven."""

    def __post_init__(self) -> None:
        check_count("concurrency", self.concurrency)
        if self.on_recovered is not None and not callable(cast("object", self.on_recovered)):
            raise ConfigError(f"on_recovered is a function, not {self.on_recovered!r:.60}")


async def recover(
    agents: Sequence[Driven],
    store: Store,
    recovery: Recovery | None = None,
    *,
    programs: Sequence[Driven] = (),
) -> list[Recovered]:
    """Drive every run of these agents and programs that wants a driver and has none, once.

    Args:
        agents: Whose runs; a run knows its agent by name.
        programs: The same of programs without a model.
        store: Where they are.
        recovery: How.

    Raises:
        ConfigError: Two agents share a name.
        LogError: The store could not say which there are.
    """
    found: list[Recovered] = []
    failure: PerdureError | None = None
    looking = _Looking(_by_name(agents, programs), store, recovery or Recovery(), found.append)
    async with asyncio.TaskGroup() as group:
        try:
            await looking.look(group)
        except PerdureError as error:  # a group would wrap it
            failure = error
    if failure is not None:
        raise failure
    return found


class Recovering:
    """A recovery loop. Enter it to start; leaving it lets what runs wind down, and gives it back.

    Args:
        agents: Whose runs; a run knows its agent by name.
        store: Where they are.
        every: Seconds between two looks.
        recovery: How.
        programs: Programs without a model whose runs are recovered too.

    Raises:
        ConfigError: Two agents share a name, or `every` is not positive.
    """

    def __init__(
        self,
        agents: Sequence[Driven],
        store: Store,
        *,
        every: float = DEFAULT_EVERY,
        recovery: Recovery | None = None,
        programs: Sequence[Driven] = (),
    ) -> None:
        check_seconds("every", every)
        self._every = every
        self._looking = _Looking(_by_name(agents, programs), store, recovery or Recovery())
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._loop(), name="perdure-recovering")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._task is None:
            return
        self._looking.stop("recovery is being stopped")
        self._task.cancel()
        await asyncio.wait([self._task])
        self._task = None

    async def _loop(self) -> None:
        async with asyncio.TaskGroup() as group:  # a long drive holds up no look
            while not self._looking.stopped:  # a store may lose a cancellation
                try:
                    await self._looking.look(group)
                except PerdureError:
                    logger.exception("a look for runs to recover failed; the next one follows")
                await asyncio.sleep(self._every)


class _Failures:
    """Runs that failed in this process, and when each is worth another try."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._until: dict[str, float] = {}

    def may_try(self, session: str) -> bool:
        return asyncio.get_running_loop().time() >= self._until.get(session, 0.0)

    def note(self, session: str, *, failed: bool) -> None:
        if not failed:
            self._counts.pop(session, None)
            self._until.pop(session, None)
            return
        count = self._counts[session] = self._counts.get(session, 0) + 1
        pause = min(2.0**count, MAX_BACKOFF)
        self._until[session] = asyncio.get_running_loop().time() + pause


def _nobody(recovered: Recovered) -> None:
    """Nobody wants to know."""


class _Looking:
    """Looks at a store for runs that want a driver, and drives them."""

    def __init__(
        self,
        agents: Mapping[Name, Driven],
        store: Store,
        recovery: Recovery,
        tell: Callable[[Recovered], None] = _nobody,
    ) -> None:
        self._agents = agents
        self._store = store
        self._recovery = recovery
        self._tell = tell
        self._failures = _Failures()
        self._controls: dict[str, Control] = {}
        """Of the sessions that are driven here."""
        self._slots = asyncio.Semaphore(recovery.concurrency)
        self.stopped = ""

    async def look(self, group: asyncio.TaskGroup) -> None:
        """Look once, and begin to drive what wants it."""
        async for header, driven in self._wanting():
            await self._slots.acquire()
            if self.stopped:
                self._slots.release()
                break
            control = self._controls[header.id] = Control()
            _ = group.create_task(self._drive(header, driven, control))

    def stop(self, why: str) -> None:
        """Let the drives that run end, and begin no other."""
        self.stopped = why
        for control in self._controls.values():
            control.abort(why)

    async def _wanting(self) -> AsyncIterator[tuple[Header, Driven]]:
        seen: set[str] = set()
        async for session, header in self._candidates():
            driven = self._agents.get(Name(header.agent, header.is_program))
            known = session in seen or session in self._controls
            if known or driven is None or not self._failures.may_try(session):
                continue
            seen.add(session)
            yield header, driven

    async def _candidates(self) -> AsyncIterator[tuple[str, Header]]:
        """The runs that want a driver, those that are due first."""
        limit = _PAGE
        now = next(iter(self._agents.values())).clock.wall() if self._agents else 0
        while True:
            due = await self._store.due(now, limit=limit)
            if len(due) < limit:
                break
            limit *= 2
        for root in due:
            with contextlib.suppress(NoSession):
                header = (await self._store.read(root, since=NOTHING)).header
                if header.run is not None:
                    yield root, header
        async for listed in self._listed(UNFINISHED):
            yield listed.id, listed.header

    async def _listed(self, statuses: frozenset[str]) -> AsyncIterator[Listed]:
        after = ""
        filters = Filters(runs_only=True, roots_only=True, statuses=statuses)
        while True:
            page = await self._store.list(filters, after=after)
            for listed in page.sessions:
                yield listed
            if not page.after:
                return
            after = page.after

    async def _drive(self, header: Header, driven: Driven, control: Control) -> None:
        try:
            await self._try(header, driven, control)
        finally:
            del self._controls[header.id]
            self._slots.release()

    async def _try(self, header: Header, driven: Driven, control: Control) -> None:
        run_id = header.run.id if header.run is not None else header.id
        try:
            taken = await take_up(driven, self._store, header, Driving(control=control))
            if taken is None:  # it ended since it was listed
                return
            recovered = Recovered(run_id, taken.status, taken.error)
            stuck = taken.error is not None or _is_stuck(taken, driven.clock.wall())
        except (RunBusy, NoSession):  # somebody else has it, or it was deleted meanwhile
            return
        except Exception as error:  # noqa: BLE001 - one run that cannot go on keeps no other back
            recovered, stuck = Recovered(run_id, "failed", error), True
        self._failures.note(header.id, failed=stuck)
        self._tell(recovered)
        if self._recovery.on_recovered is not None:
            self._recovery.on_recovered(recovered)


def _is_stuck(state: Taken, now: int) -> bool:
    """Whether a run would be driven again at once, with what was just in its way still there."""
    return state.status in UNFINISHED or (state.due is not None and state.due <= now)


def _by_name(agents: Sequence[Driven], programs: Sequence[Driven]) -> dict[Name, Driven]:
    found: dict[Name, Driven] = {}
    named = [(Name(one.name, is_program=False), one) for one in agents]
    for name, one in (*named, *((Name(one.name, is_program=True), one) for one in programs)):
        if name in found:
            what = "programs" if name.is_program else "agents"
            raise ConfigError(
                f"two {what} are named {name.name!r}; a run knows its own by name: rename one"
            )
        found[name] = one
    return found
