"""The work inside calls: steps that were taken, waits that have begun, signals that came.

A step or a wait is named within its call. What stands on the record of one is never done again: the
call that enters its tool again finds it there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast

from perdure.log.entries import (
    AckEntry,
    AnyEntry,
    ChannelEntry,
    Json,
    SignalEntry,
    StepEntry,
    WaitEntry,
)

CHILD = "child"
"""The kind of a wait for a sub-agent's session."""

RACE = "race"
"""The kind of a wait for the first of several waits."""

NOW = 0
"""When something is due whose time has come, whatever the time is."""


@dataclasses.dataclass(slots=True, eq=False)
class Step:
    """A step of a call."""

    start: StepEntry | None = None
    """Its last start that was not voided."""
    end: StepEntry | None = None

    @property
    def is_open(self) -> bool:
        """Whether it may have run, and nobody knows what it gave."""
        return self.start is not None and self.end is None


@dataclasses.dataclass(slots=True, eq=False)
class Wait:
    """A wait of a call."""

    begin: WaitEntry
    end: WaitEntry | None = None
    race: str = ""
    """The race that it is part of."""
    lost: bool = False
    """It lost that race, and nobody waits for it any more, until it begins again."""


@dataclasses.dataclass(slots=True, eq=False)
class CallWork:
    """The work of one call."""

    steps: dict[str, Step] = dataclasses.field(default_factory=dict[str, Step])
    waits: dict[tuple[str, str], Wait] = dataclasses.field(
        default_factory=dict[tuple[str, str], Wait]
    )
    """By kind and name."""

    @property
    def halted_steps(self) -> list[str]:
        """Its `once` steps that may have run, and nobody knows what came of them (LOG 5.5)."""
        return [
            name
            for name, step in self.steps.items()
            if step.is_open and step.start is not None and step.start.effect == "once"
        ]

    @property
    def open_waits(self) -> list[Wait]:
        """The waits that have begun and not ended, and that lost no race."""
        return [wait for wait in self.waits.values() if wait.end is None and not wait.lost]

    @property
    def due(self) -> int | None:
        """When the first of its open waits ends by itself."""
        dues = [wait.begin.due for wait in self.open_waits if wait.begin.due is not None]
        return min(dues, default=None)


class NamedWait(NamedTuple):
    """One of the waits that a suspension names."""

    kind: str
    name: str
    session: str = ""
    """Of an agent: its session."""
    due: int | None = None
    """Of an agent: when it goes on by itself."""
    cut: bool = False
    """Of an agent: it waits for nobody, but to be driven again."""


def named_waits(wait: Mapping[str, object]) -> Iterator[NamedWait]:
    """The waits that a suspension names, a question first."""
    listed = wait.get("waits")
    for one in cast("list[Json]", listed) if isinstance(listed, list) else []:
        due = one.get("due")
        yield NamedWait(
            kind=str(one.get("kind")),
            name=str(one.get("name")),
            session=str(one.get("session", "")),
            due=due if isinstance(due, int) else None,
            cut=bool(one.get("cut")),
        )


class WorkFold:
    """The work of the calls of a path, entry by entry."""

    def __init__(self) -> None:
        self._calls: dict[str, CallWork] = {}
        self.signals: dict[str, SignalEntry] = {}
        """By name; the first of a name stands."""
        self.channels: dict[str, dict[str, ChannelEntry]] = {}
        """By channel and key, in the order they came; the first of a key stands."""
        self.acknowledged: set[tuple[str, str]] = set()
        """The channel and the key of each message that a call is done with."""

    def of(self, target: str) -> CallWork:
        """The work of the call whose item an entry holds; of a program, for an empty one."""
        return self._calls.get(target) or CallWork()

    def has_come(self, target: str, wait: Json) -> bool:
        """Whether the record has what one of the waits is for that a suspension names.

        A time that comes stands on no record: that is what `due` is for.
        """
        waits = self.of(target).waits
        found = (waits.get((one.kind, one.name)) for one in named_waits(wait))
        return any(one is not None and self.is_over(one) for one in found)

    def is_over(self, wait: Wait) -> bool:
        """Whether a wait has ended, or what it is for is on the record."""
        begin = wait.begin
        if wait.end is not None:
            return True
        if begin.kind == "channel":
            return self.first_of(begin.name.rpartition("#")[0]) is not None
        return begin.kind == "signal" and begin.name in self.signals

    def first_of(self, channel: str) -> ChannelEntry | None:
        """The oldest message of a channel that is not acknowledged."""
        for key, entry in self.channels.get(channel, {}).items():
            if (channel, key) not in self.acknowledged:
                return entry
        return None

    def apply(self, entry: AnyEntry) -> None:
        """Take an entry."""
        match entry:
            case StepEntry():
                self._step(entry)
            case WaitEntry():
                self._wait(entry)
            case SignalEntry():
                self.signals.setdefault(entry.name, entry)
            case ChannelEntry():
                self.channels.setdefault(entry.channel, {}).setdefault(entry.key, entry)
            case AckEntry():
                self.acknowledged.add((entry.channel, entry.key))
            case _:
                pass

    def _step(self, entry: StepEntry) -> None:
        work = self._calls.setdefault(entry.target, CallWork())
        step = work.steps.setdefault(entry.name, Step())
        if entry.phase == "start":
            step.start = entry
        elif entry.phase == "void":
            step.start = None
        elif step.end is None:  # the first word stands
            step.end = entry

    def _wait(self, entry: WaitEntry) -> None:
        work = self._calls.setdefault(entry.target, CallWork())
        name = entry.kind, entry.name
        if entry.phase == "begin":
            wait = work.waits.setdefault(name, Wait(entry, race=entry.race))
            if wait.lost or (entry.refused and wait.end is not None):
                wait.begin, wait.end, wait.lost, wait.race = entry, None, False, entry.race
        elif name in work.waits and work.waits[name].end is None:
            work.waits[name].end = entry
            if entry.kind == RACE:
                for wait in work.waits.values():
                    wait.lost = wait.lost or (wait.race == entry.name and wait.end is None)
