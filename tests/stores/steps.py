"""A drive of one session in steps, each one transaction, and what can be seen of each.

Whoever looks at the store after a crash sees the first steps whole and nothing of the others.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple

from perdure.errors import NoEntry, NoSession
from perdure.log.entries import MESSAGE, AnyEntry
from perdure.log.header import Origin
from perdure.log.ids import digest
from perdure.log.reading import read_lines
from perdure.log.store import Lease, Message, Store, Stored, Summary
from perdure.stores.points import POINTS, Point
from perdure.testing.store_kit import chain, header
from tests.log.building import Built

CUTS = (1, 3, 5, 6, 8)
"""The versions of the first appends."""

BLOB = b"a picture"

_EACH: dict[Point, int] = {"begin": 4, "checked": 3, "written": 2, "told": 4}
"""Every commit is broken off before and after; of the other points some are enough."""


def spots() -> list[tuple[Point, int]]:
    """Where processes are killed."""
    return [(point, n) for point in POINTS for n in range(1, 14, _EACH.get(point, 1))]


class Step(NamedTuple):
    name: str
    do: Callable[[], Awaitable[object]]
    seen: Callable[[], Awaitable[bool]]


def conversation() -> list[AnyEntry]:
    built = Built(header())
    built.config(model="m")
    built.start()
    built.user("\u20ac \U0001f600 \x00")
    built.call("c")
    built.response()
    built.dispatch("c", "k")
    built.output("c", "done")
    built.end()
    return built.session.entries


class Drive:
    """The steps, over a store."""

    def __init__(self, store: Store, prefix: str) -> None:
        self.store = store
        self.root = f"{prefix}s1"
        self.child = f"{prefix}child"
        self.entries = conversation()
        taken = self.entries[-1].id
        for place, message in enumerate(("m1", "stop")):
            body = {"ns": "test", MESSAGE: message}
            self.entries += chain(1, under=taken, first=50 + place, body=body)
            taken = self.entries[-1].id
        self._lease: Lease | None = None

    async def lease(self) -> Lease:
        if self._lease is None:
            # It lapses at once, so that the next may drive; until then its fence is in force.
            self._lease = await self.store.lease(self.root, holder="driver", seconds=0.001)
        return self._lease

    def steps(self) -> list[Step]:
        made = header(self.root)
        return [
            Step("create", self._create, lambda: self._at_least(CUTS[0])),
            Step("lease", self.lease, self._unseen),
            *(
                Step(f"append {end}", self._append(start, end), self._reaches(end))
                for start, end in itertools.pairwise(CUTS)
            ),
            Step("put", lambda: self._put("m1"), lambda: self._was_put(1)),
            Step("stop", lambda: self._put("stop"), lambda: self._was_put(2)),
            Step(
                "consume",
                self._append(8, 10, consumed=("m1", "stop")),
                self._reaches(10),
            ),
            Step("child", self._make_child, self._has_child),
            Step("child append", self._append_child, self._has_child_entries),
            Step(
                "blob",
                lambda: self.store.write_blob(made.id, BLOB),
                self._has_blob,
            ),
        ]

    # --- doing ---------------------------------------------------------------------------

    async def _create(self) -> object:
        return await self.store.create(
            header(self.root), name=f"{self.root}-name", batch=self.entries[: CUTS[0]]
        )

    def _append(
        self, start: int, end: int, consumed: Sequence[str] = ()
    ) -> Callable[[], Awaitable[object]]:
        async def do() -> object:
            lease = await self.lease()
            stored = await self.store.read(self.root)
            if stored.version >= end:
                return None  # what a resuming driver reads, it does not write again
            return await self.store.append(
                self.root,
                start,
                lease.fence,
                self.entries[start:end],
                consumed=consumed,
                summary=Summary(status=f"at {end}", leaf=self.entries[end - 1].id),
            )

        return do

    async def _put(self, message: str) -> object:
        return await self.store.put(self.root, Message(id=message), stop=message == "stop")

    async def _make_child(self) -> object:
        lease = await self.lease()
        made = header(self.child, root=self.root, origin=Origin(self.root), spawned_by="c")
        return await self.store.create(made, fence=lease.fence, batch=chain(2))

    async def _append_child(self) -> object:
        lease = await self.lease()
        entries = chain(4)
        return await self.store.append(self.child, 2, lease.fence, entries[2:])

    # --- seeing --------------------------------------------------------------------------

    async def _unseen(self) -> bool:
        return True

    async def _stored(self, session: str) -> Stored | None:
        with contextlib.suppress(NoSession):
            return await self.store.read(session)
        return None

    async def _at_least(self, version: int) -> bool:
        stored = await self._stored(self.root)
        if stored is None:
            return False
        assert stored.version in (*CUTS, 10), "half an append"
        assert list(stored.lines) == [entry.line for entry in self.entries[: stored.version]]
        if stored.version > CUTS[0]:
            assert stored.summary.status == f"at {stored.version}"
        assert read_lines(stored.header, stored.lines).faults == ()
        assert stored.summary.bytes == sum(
            len(line) + 1 for line in (stored.header.line, *stored.lines)
        )
        return stored.version >= version

    def _reaches(self, version: int) -> Callable[[], Awaitable[bool]]:
        return lambda: self._at_least(version)

    async def _was_put(self, count: int) -> bool:
        stored = await self._stored(self.root)
        if stored is None:
            return False
        waiting = await self.store.unconsumed(self.root)
        if stored.version == 10:
            assert waiting == ()
            return True
        assert [one.number for one in waiting] == list(range(1, len(waiting) + 1))
        return len(waiting) >= count

    async def _has_child(self) -> bool:
        stored = await self._stored(self.child)
        assert stored is None or stored.version in (2, 4)
        return stored is not None

    async def _has_child_entries(self) -> bool:
        stored = await self._stored(self.child)
        return stored is not None and stored.version == 4

    async def _has_blob(self) -> bool:
        try:
            return await self.store.read_blob(self.root, digest(BLOB)) == BLOB
        except (NoSession, NoEntry):
            return False


async def run(drive: Drive) -> AsyncIterator[str]:
    """Do the steps; the names of those that were acknowledged."""
    for step in drive.steps():
        await step.do()
        yield step.name


async def check_after_crash(drive: Drive, told: Sequence[str]) -> None:
    """What was acknowledged is there; of what was not, one step at most, and that whole."""
    steps = drive.steps()
    assert list(told) == [step.name for step in steps[: len(told)]]
    seen = [await step.seen() for step in steps]
    seen[1] = seen[0]  # a lease shows in nothing
    count = seen.index(False) if False in seen else len(seen)
    assert not any(seen[count:]), dict(zip((s.name for s in steps), seen, strict=True))
    assert len(told) <= count <= len(told) + 2  # the lease and what follows it


async def resume(drive: Drive) -> None:
    """The next driver does what is left, and all is there."""
    async for _ in run(drive):
        pass
    for step in drive.steps():
        assert await step.seen(), step.name
    assert await drive.store.unconsumed(drive.root) == ()
