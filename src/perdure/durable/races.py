"""The first of several waits: who it was is recorded once, and nothing that comes later changes it.

The waits that lost are waited for by nobody any more; a later wait for the same thing begins anew,
and a message or a signal that comes for one is still there for it.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Coroutine, Generator, Iterable, Mapping, Sequence
from types import CodeType, CoroutineType, FunctionType
from typing import NamedTuple, cast

import msgspec
from msgspec import Raw

from perdure.durable.callwork import Recorded
from perdure.durable.channels import CHANNEL, receive
from perdure.durable.given import check_name
from perdure.durable.waits import (
    NotYet,
    begun,
    interrupt,
    must_be_recorded,
    racing,
    sleep,
    sleep_until,
    suspend,
    told,
    wait_for,
    waiting_now,
)
from perdure.errors import ConfigError, Suspend
from perdure.log.entries import Json, WaitEntry
from perdure.log.work import RACE

_WAITS = frozenset(
    cast("FunctionType", one).__code__ for one in (sleep, sleep_until, wait_for, receive, interrupt)
)
"""What may race."""


_EXAMPLE = 'give it {"paid": wait_for("paid"), "late": sleep("a day", 86400)}'


class First(NamedTuple):
    """What came first."""

    which: str
    """The word that it was given under."""
    value: object
    """What the wait gives; None of a sleep."""


async def race(name: str, waits: Mapping[str, Coroutine[object, object, object]]) -> First:
    """Wait for the first of several waits; it stays the first for good.

    Example:
        `first = await race("paid?", {"paid": wait_for("paid"), "late": sleep("a day", 86400)})`

    Where several have come, the first that is given wins. If it raises, as a `wait_for` whose time
    is up does, it has won, and the race raises that.

    Args:
        name: Unique among the races of the call.
        waits: By a word of one's own: calls of `sleep`, `sleep_until`, `wait_for`, `receive` or
            `interrupt`, not awaited.

    Raises:
        ConfigError: The name cannot be used, or is that of a race that is on; something is no wait,
            the effect of the tool forbids waits, or it is not a run by id.
    """
    try:
        _check(name, waits)
        recorded = must_be_recorded(waiting_now(name, RACE), "a race")
        with _on(recorded, name):
            return await _race(recorded, name, waits)
    finally:
        for one in _unbegun(waits):
            one.close()


@contextlib.contextmanager
def _on(recorded: Recorded, name: str) -> Generator[None]:
    """While a race is on: another under its name would be the same race, with other waits.

    Raises:
        ConfigError: One is on.
    """
    if name in recorded.races:
        raise recorded.clash(RACE, name, f"race {name!r} of this call is on already")
    recorded.races.add(name)
    try:
        yield
    finally:
        recorded.races.discard(name)


async def _race(
    recorded: Recorded, name: str, waits: Mapping[str, Coroutine[object, object, object]]
) -> First:
    wait = await begun(recorded, RACE, name)
    if wait.end is not None:
        which = _winner(wait.end, name, waits)
        return First(which, await waits[which])
    lost: list[NotYet] = []
    try:
        return await _first(recorded, name, waits, lost)
    except Suspend:
        raise
    except BaseException:  # it was cut, and waits for nothing any more
        _release(recorded, lost)
        raise


def _winner(end: WaitEntry, name: str, waits: Mapping[str, object]) -> str:
    which = str(msgspec.json.decode(bytes(end.value)))
    if which not in waits:
        raise ConfigError(f"race {name!r} was won by {which!r}, and does not have it any more")
    return which


async def _first(
    recorded: Recorded,
    name: str,
    waits: Mapping[str, Coroutine[object, object, object]],
    lost: list[NotYet],
) -> First:
    """What has come, and its place in the record; `lost` takes what has not.

    Raises:
        Suspend: Nothing has.
    """
    for which, one in waits.items():
        token = racing.set(name)
        try:
            value = await one
        except NotYet as wait:
            lost.append(wait)
            continue
        except TimeoutError:
            await _beaten(recorded, lost)
            await _won(recorded, name, which, lost)
            raise
        finally:
            racing.reset(token)
        if value is None:
            await _beaten(recorded, lost)
        await _won(recorded, name, which, lost)
        return First(which, value)
    asked = [(RACE, name), *((one.kind, one.name) for one in lost)]
    return await suspend(recorded, f"it waits for the first of {', '.join(waits)}", asked)


async def _beaten(recorded: Recorded, lost: list[NotYet]) -> None:
    """Before a time wins: what waits in the inbox for one that was given before it came first.

    Raises:
        Suspend: Something does; the race is run again when it was taken up.
    """
    if lost and await told(recorded, [(one.kind, one.name) for one in lost]):
        await suspend(recorded, "what it waits for is in the inbox")


async def _won(recorded: Recorded, name: str, which: str, lost: list[NotYet]) -> None:
    """Write who won; the others are waited for no more."""
    body: Json = {"phase": "end", "kind": RACE, "name": name, "outcome": "won"}
    value = Raw(msgspec.json.encode(which))
    await recorded.write("perdure:wait", {**body, "value": value})
    _release(recorded, lost)


def _release(recorded: Recorded, lost: list[NotYet]) -> None:
    """What has not come of a race is asked for by it no more."""
    while lost:
        one = lost.pop()
        recorded.release(one.kind, one.name)
        if one.kind == CHANNEL:
            recorded.receives[one.name.rpartition("#")[0]] -= 1  # its place is free for the next


def _unbegun(waits: object) -> list[CoroutineType[object, object, object]]:
    """What did not run and has to be closed, of whatever was given."""
    given: Iterable[object] = ()
    if isinstance(waits, Mapping):
        given = cast("Mapping[object, object]", waits).values()
    elif isinstance(waits, list | tuple):
        given = cast("Sequence[object]", waits)
    found = [
        cast("CoroutineType[object, object, object]", one)
        for one in given
        if isinstance(one, CoroutineType)
    ]
    return [one for one in found if inspect.getcoroutinestate(one) == inspect.CORO_CREATED]


def _check(name: str, waits: Mapping[str, Coroutine[object, object, object]]) -> None:
    check_name(name, RACE)
    if not isinstance(cast("object", waits), Mapping):
        raise ConfigError(f"race {name!r} takes its waits by words: {_EXAMPLE}, not {waits!r:.60}")
    if not waits:
        raise ConfigError(f"race {name!r} has nothing to wait for: {_EXAMPLE}")
    seen: set[int] = set()
    for which, one in waits.items():
        check_name(which, f"wait of race {name!r}")
        code: CodeType | None = getattr(one, "cr_code", None)
        if code not in _WAITS:
            raise ConfigError(
                f"{which!r} of race {name!r} is no wait: give it sleep(...), wait_for(...), "
                "receive(...) or interrupt(...), not awaited"
            )
        if id(one) in seen or inspect.getcoroutinestate(one) != inspect.CORO_CREATED:
            raise ConfigError(
                f"{which!r} of race {name!r} is awaited elsewhere: a wait is called once for each "
                "word, in the race"
            )
        seen.add(id(one))
