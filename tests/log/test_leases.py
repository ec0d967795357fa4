"""Keeping a lease: a blocked loop keeps it, a hung one loses it, and who lost it hears of it.

Where time decides, the clocks are moved by hand; real time only says when a renewal is tried.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from perdure.errors import (
    ConfigError,
    FenceLost,
    Leased,
    LeaseExpired,
    PerdureError,
    StoreFailed,
)
from perdure.log.leases import Held, take_lease
from perdure.log.recording import go_on
from perdure.log.store import Lease, Renewing, Store
from perdure.loop import Middleware, ToolCallInfo, ToolDecision
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore
from perdure.testing import call
from perdure.testing.store_kit import header
from tests.log.driving import Counted, config_of, drive

SECONDS = 0.3
"""Of a lease by the clock of a test, which stands still; renewals are tried after a third of it."""

PATIENCE = 60.0


class Hands:
    """A clock that only a test moves, from any thread: wall, monotonic and boot time."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def wall(self) -> int:
        return int(self.now * 1e9)

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Renewals:
    """Counts renewals that have succeeded, and knows the thread of the last."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.count = 0
        self.thread = ""

    def more(self) -> None:
        with self._changed:
            self.count += 1
            self.thread = threading.current_thread().name
            self._changed.notify_all()

    def wait(self, more: int) -> None:
        """Block until there were so many more."""
        with self._changed:
            end = self.count + more
            assert self._changed.wait_for(lambda: self.count >= end, PATIENCE)


class Memory(MemoryStore):
    def __init__(self, clock: Hands) -> None:
        super().__init__(clock=clock)
        self.renewals = Renewals()

    async def renew(self, lease: Lease) -> Lease:
        renewed = await super().renew(lease)
        self.renewals.more()
        return renewed


class Sqlite(SqliteStore):
    def __init__(self, path: Path, clock: Hands) -> None:
        super().__init__(path, clock=clock)
        self.renewals = Renewals()

    async def renew(self, lease: Lease) -> Lease:
        renewed = await super().renew(lease)
        self.renewals.more()
        return renewed


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, hands: Hands
) -> AsyncGenerator[Memory | Sqlite]:
    made = Memory(hands) if request.param == "memory" else Sqlite(tmp_path / "s.db", hands)
    yield made
    await made.close()


async def held_by_us(store: Store, hands: Hands, *, session: str = "s", **options: float) -> Held:
    await store.create(header(session))
    held = await take_lease(store, session, holder="us", seconds=SECONDS, boot=hands.monotonic)
    held.keep(**options)
    return held


def elsewhere(work: Callable[[], object]) -> object:
    """Do something on another thread, and block until it is done."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(work())
        except PerdureError as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE)
    return outcome[0]


def rival(store: Store, session: str = "s") -> object:
    """Another driver, on a loop of its own, asks for the lease."""
    return elsewhere(lambda: asyncio.run(_take(store, session)))


async def _take(store: Store, session: str) -> Lease:
    return await store.lease(session, holder="rival", seconds=1000.0)


class Blocks(Middleware):
    """Blocks the event loop directly before a call is decided on."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    async def before_tool_call(self, call: ToolCallInfo) -> ToolDecision | None:
        self._work()
        return None


# --- a blocked loop ------------------------------------------------------------------------------


async def test_a_loop_that_is_blocked_past_its_lease_keeps_its_run(
    store: Memory | Sqlite, hands: Hands
) -> None:
    refused: list[object] = []

    def block() -> None:
        for _ in range(5):
            hands.now += 0.5 * SECONDS
            store.renewals.wait(2)  # one of them began behind the step of the clock
            refused.append(rival(store))

    held, act = await held_by_us(store, hands), Counted()
    recording = await go_on(store, "s", held=held)
    config = config_of([call("act", {}), "done"], [act], middleware=[Blocks(block)])
    end = await drive(recording, config, "go")
    assert end.reason == "done"
    assert len(act.entered) == 1
    assert [type(one) for one in refused] == [Leased] * 5
    await recording.close()
    assert isinstance(rival(store), Lease)


async def test_a_loop_that_stalls_for_longer_than_it_may_loses_its_run(
    store: Memory | Sqlite, hands: Hands
) -> None:
    taken: list[object] = []

    def hang() -> None:
        store.renewals.wait(1)
        hands.now += 61
        count = store.renewals.count
        time.sleep(2 * SECONDS)  # for six renewals, were they sent
        assert store.renewals.count <= count + 1  # one was on its way
        hands.now += 2 * SECONDS
        taken.append(rival(store))

    held, act = await held_by_us(store, hands, max_stall=60), Counted()
    recording = await go_on(store, "s", held=held)
    config = config_of([call("act", {}), "done"], [act], middleware=[Blocks(hang)])
    end = await drive(recording, config, "go")
    assert isinstance(taken[0], Lease)
    assert end.reason == "error"
    assert isinstance(end.error, FenceLost | LeaseExpired)
    assert act.entered == []
    await held.release()


async def test_a_loop_that_comes_back_before_anybody_took_its_lease_has_it_again(
    store: Memory | Sqlite, hands: Hands
) -> None:
    held = await held_by_us(store, hands, max_stall=1)
    store.renewals.wait(1)
    hands.now += 10
    assert not held.is_safe()
    count = store.renewals.count
    async with asyncio.timeout(PATIENCE):
        while store.renewals.count < count + 2:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
    assert held.is_safe()
    assert isinstance(rival(store), Leased)
    await held.release()


class Wrapper:
    """A store around another, that says nothing of a second event loop."""

    def __init__(self, inner: Memory) -> None:
        self.renew = inner.renew
        self.release = inner.release
        self.lease = inner.lease
        self.due = inner.due


async def test_stores_that_do_not_say_so_are_used_on_the_loop_that_drives(hands: Hands) -> None:
    inner = Memory(hands)
    wrapper = Wrapper(inner)
    assert not isinstance(wrapper, Renewing)
    await inner.create(header("s"))
    held = await take_lease(wrapper, "s", holder="us", seconds=SECONDS, boot=hands.monotonic)
    held.keep()
    async with asyncio.timeout(PATIENCE):
        while not inner.renewals.count:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
    assert inner.renewals.thread == threading.current_thread().name
    await held.release()
    assert isinstance(rival(inner), Lease)


class Late(Memory):
    """The answer to each renewal takes most of the lease, and the request none of it."""

    def __init__(self, clock: Hands) -> None:
        super().__init__(clock)
        self.hands = clock

    async def renew(self, lease: Lease) -> Lease:
        renewed = await super().renew(lease)
        if self.renewals.count == 1:
            self.hands.now += 0.9 * SECONDS
        return renewed


async def test_a_lease_is_safe_from_when_a_renewal_was_sent_not_from_when_it_was_answered(
    hands: Hands,
) -> None:
    """LOG 2.2: the store counts from somewhere in between, and may give it to another then."""
    store = Late(hands)
    held = await held_by_us(store, hands)
    start = hands.now
    await asyncio.to_thread(store.renewals.wait, 1)
    await held.release()
    hands.now = start + 0.95 * SECONDS
    assert held.is_safe()
    hands.now = start + 1.05 * SECONDS
    assert not held.is_safe()
    with pytest.raises(LeaseExpired):
        held.check()


# --- who is told ---------------------------------------------------------------------------------


async def test_whoever_lost_the_lease_hears_of_it_on_its_own_loop(
    store: Memory | Sqlite, hands: Hands
) -> None:
    heard: asyncio.Queue[tuple[Exception, object]] = asyncio.Queue()
    held = await held_by_us(store, hands)
    held.on_lost = lambda error: heard.put_nowait((error, asyncio.get_running_loop()))
    await store.release(held.lease)
    assert isinstance(rival(store), Lease)
    async with asyncio.timeout(PATIENCE):
        error, loop = await heard.get()
    assert isinstance(error, FenceLost)
    assert loop is asyncio.get_running_loop()
    await held.release()
    assert heard.empty()


class Stormy(Memory):
    """Cannot renew."""

    def __init__(self, clock: Hands) -> None:
        super().__init__(clock)
        self.fails = True

    async def renew(self, lease: Lease) -> Lease:
        if self.fails:
            self.renewals.more()
            raise StoreFailed("the network is down")
        return await super().renew(lease)


async def test_renewals_that_fail_are_told_once_and_while_the_lease_is_still_safe(
    hands: Hands,
) -> None:
    store = Stormy(hands)
    heard: asyncio.Queue[Exception] = asyncio.Queue()
    held = await held_by_us(store, hands)
    held.on_lost = heard.put_nowait
    hands.now += 0.7 * SECONDS
    store.renewals.wait(3)
    await asyncio.sleep(0)
    assert heard.empty()
    hands.now += 0.1 * SECONDS
    async with asyncio.timeout(PATIENCE):
        assert isinstance(await heard.get(), LeaseExpired)
    assert held.is_safe()
    store.renewals.wait(3)
    await asyncio.sleep(0)
    assert heard.empty()
    store.fails = False  # whoever goes on meanwhile has it again
    store.renewals.wait(2)
    hands.now += 0.5 * SECONDS
    assert held.is_safe()
    await held.release()


class Silent(Memory):
    """Takes a renewal and never answers, until it is let go."""

    def __init__(self, clock: Hands) -> None:
        super().__init__(clock)
        self.begun = threading.Event()
        self.did: list[str] = []

    async def renew(self, lease: Lease) -> Lease:
        self.did.append("renewing")
        self.begun.set()
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            await asyncio.sleep(0.05)  # on its way, it needs time to end
            self.did.append("ended")
        return lease

    async def release(self, lease: Lease) -> None:
        self.did.append("released")
        await super().release(lease)


async def test_a_renewal_without_an_answer_is_told_as_one_that_fails(hands: Hands) -> None:
    store = Silent(hands)
    heard: asyncio.Queue[Exception] = asyncio.Queue()
    held = await held_by_us(store, hands)
    held.on_lost = heard.put_nowait
    async with asyncio.timeout(PATIENCE):
        assert isinstance(await heard.get(), LeaseExpired)
    await held.release()


# --- giving back ---------------------------------------------------------------------------------


@pytest.mark.parametrize("wrapped", [False, True])
async def test_a_lease_is_given_back_behind_a_renewal_on_its_way(
    hands: Hands, *, wrapped: bool
) -> None:
    """Else it could be renewed after its release."""
    store = Silent(hands)
    await store.create(header("s"))
    held = await take_lease(
        Wrapper(store) if wrapped else store,
        "s",
        holder="us",
        seconds=SECONDS,
        boot=hands.monotonic,
    )
    held.keep()
    await asyncio.to_thread(store.begun.wait, PATIENCE)
    await held.release()
    assert store.did == ["renewing", "ended", "released"]


async def test_a_release_goes_on_when_its_caller_is_cancelled(hands: Hands) -> None:
    store = Silent(hands)
    held = await held_by_us(store, hands)
    await asyncio.to_thread(store.begun.wait, PATIENCE)
    releasing = asyncio.create_task(held.release())
    await asyncio.sleep(0)
    releasing.cancel()
    async with asyncio.timeout(PATIENCE):
        while store.did[-1] != "released":  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
    assert store.did == ["renewing", "ended", "released"]


async def test_nobody_renews_after_a_release(store: Memory | Sqlite, hands: Hands) -> None:
    held = await held_by_us(store, hands)
    await asyncio.to_thread(store.renewals.wait, 1)
    await held.release()
    count = store.renewals.count
    await asyncio.sleep(SECONDS)
    assert store.renewals.count == count
    assert isinstance(rival(store), Lease)


async def test_times_of_a_lease_are_positive(hands: Hands) -> None:
    store = Memory(hands)
    await store.create(header("s"))
    with pytest.raises(ConfigError):
        await take_lease(store, "s", holder="us", seconds=0)
    held = await take_lease(store, "s", holder="us", seconds=SECONDS)
    with pytest.raises(ConfigError):
        held.keep(max_stall=0)
    await held.release()


# --- loops and processes -------------------------------------------------------------------------


def test_two_loops_of_a_process_keep_their_leases_apart(tmp_path: Path, hands: Hands) -> None:
    """One hangs and loses its own; the other, of the same store, goes on."""
    store = Sqlite(tmp_path / "s.db", hands)
    hangs, over = threading.Event(), threading.Event()

    async def hang() -> None:
        await held_by_us(store, hands, session="hangs", max_stall=1)
        hangs.set()
        assert over.wait(PATIENCE)

    async def go_on_beside() -> None:
        held = await held_by_us(store, hands, session="lives", max_stall=1)
        hands.now += 10
        async with asyncio.timeout(PATIENCE):
            while not held.is_safe():  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
        assert isinstance(rival(store, "hangs"), Lease)
        assert isinstance(rival(store, "lives"), Leased)
        await held.release()

    thread = threading.Thread(target=lambda: asyncio.run(hang()))
    thread.start()
    assert hangs.wait(PATIENCE)
    try:
        asyncio.run(go_on_beside())
    finally:
        over.set()
        thread.join()
    asyncio.run(store.close())


def test_a_loop_that_was_closed_keeps_no_lease(hands: Hands) -> None:
    store = Memory(hands)
    asyncio.run(_forget(store, hands))
    count = store.renewals.count
    time.sleep(2 * SECONDS)
    assert store.renewals.count <= count + 1  # one was on its way
    hands.now += 2 * SECONDS
    assert isinstance(rival(store), Lease)


async def _forget(store: Memory, hands: Hands) -> None:
    await held_by_us(store, hands)
    await asyncio.to_thread(store.renewals.wait, 1)


PROCESS = """
import asyncio, logging, os, sys
from perdure.log.leases import take_lease
from perdure.stores import open_store
from perdure.testing.store_kit import header

logging.getLogger("asyncio").setLevel("ERROR")  # it is told of callbacks that are slow

async def keep(session):
    store = open_store(sys.argv[1])
    await store.create(header(session))
    held = await take_lease(store, session, holder="us", seconds=0.3)
    renewed = asyncio.Event()
    inner, loop = store.renew, asyncio.get_running_loop()

    async def renew(lease):
        lease = await inner(lease)
        loop.call_soon_threadsafe(renewed.set)
        return lease

    store.renew = renew
    held.keep()
    await asyncio.wait_for(renewed.wait(), 60)
    return store, held
"""

LEAVES = """
async def main():
    store, held = await keep(os.urandom(4).hex())
    if sys.argv[2] == "closes":
        await held.release()
        await store.close()

asyncio.run(main())
print("over")
"""

FORKS = """
async def main():
    store, held = await keep("parent")
    child = os.fork()
    if not child:
        asyncio.events._set_running_loop(None)
        asyncio.run(beside(held))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    await held.release()
    await store.close()

async def beside(inherited):
    try:
        await asyncio.wait_for(inherited.release(), 60)  # the store's thread is the parent's
    except Exception as error:
        print("refused", type(error).__name__, flush=True)
    store, held = await keep("child")
    await held.release()
    await store.close()

asyncio.run(main())
print("over")
"""


def python(script: str, *arguments: str) -> list[str]:
    """What a process says that knows no mercy with warnings."""
    ended = subprocess.run(
        [
            *(sys.executable, "-X", "dev", "-W", "error"),
            *("-W", "ignore:.*fork:DeprecationWarning"),
            *("-c", PROCESS + script, *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.stderr == ""
    assert ended.returncode == 0
    return ended.stdout.splitlines()


@pytest.mark.parametrize("how", ["closes", "just ends"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_process_ends_without_a_warning(
    kind: str, how: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    if kind == "postgres":
        server, schema = (
            request.getfixturevalue(f"postgres_{name}") for name in ("server", "schema")
        )
        url = f"{server}&schema={schema}"
    assert python(LEAVES, url, how) == ["over"]


def test_a_forked_process_renews_its_own_leases_on_a_thread_of_its_own(tmp_path: Path) -> None:
    assert python(FORKS, f"sqlite:///{tmp_path}/s.db") == ["refused ConfigError", "over"]
