"""The work inside calls: steps that were taken, waits that have begun, signals that came.

A step or a wait is named within its call. What stands on the record of one is never done again: the
call that enters its tool again finds it there.
"""

from __future__ import annotations

import dataclasses

from perdure.log.entries import (
    AckEntry,
    AnyEntry,
    ChannelEntry,
    SignalEntry,
    StepEntry,
    WaitEntry,
)


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


@dataclasses.dataclass(slots=True, eq=False)
class CallWork:
    """The work of one call."""

    steps: dict[str, Step] = dataclasses.field(default_factory=dict[str, Step])
    waits: dict[tuple[str, str], Wait] = dataclasses.field(
        default_factory=dict[tuple[str, str], Wait]
    )
    """By kind and name."""

    @property
    def open_waits(self) -> list[Wait]:
        """The waits that have begun and not ended."""
        return [wait for wait in self.waits.values() if wait.end is None]

    @property
    def due(self) -> int | None:
        """When the first of its open waits ends by itself."""
        dues = [wait.begin.due for wait in self.open_waits if wait.begin.due is not None]
        return min(dues, default=None)


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
        """The work of the call whose item an entry holds."""
        return self._calls.get(target) or CallWork()

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
            work.waits.setdefault(name, Wait(entry))
        elif name in work.waits and work.waits[name].end is None:
            work.waits[name].end = entry
