"""Calls: what became of each function call on a path, from the record alone.

A call is *completed* with an output, *rejected* or *answered* when it is owed one, *held* while a
decision lets it wait, *in flight* once it was dispatched, *never started* where the writer would
have recorded a dispatch, and *unknown* otherwise. A dispatch on another branch counts as one here:
the effect does not know of branches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Raw

from perdure.log.entries import (
    AnyEntry,
    DecisionEntry,
    DispatchEntry,
    ItemEntry,
    Json,
    LinkEntry,
    NotStartedEntry,
    ResultEntry,
    StepEntry,
    WaitEntry,
)
from perdure.wire import FunctionCall, FunctionCallOutput, Item

SUBSESSION = "subsession"
"""The relation of a link to a sub-agent's session."""

State = Literal[
    "completed", "rejected", "answered", "held", "in_flight", "never_started", "unknown"
]

Elsewhere = Callable[[str], tuple[DispatchEntry, ...]]
"""All dispatches of a call's entry, in the session and where it was forked from."""


def nowhere(entry: str) -> tuple[DispatchEntry, ...]:  # noqa: ARG001 - the port's signature
    """Finds no dispatch."""
    return ()


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """A function call on a path. It changes as the path grows."""

    entry: str
    """The entry of its item."""
    call: FunctionCall
    own: bool = True
    """It stands behind the base, so the header's promises hold for it."""
    promised: bool = True
    """A dispatch of it would have been recorded."""
    decisions: tuple[DecisionEntry, ...] = ()
    dispatches: tuple[DispatchEntry, ...] = ()
    output: str = ""
    """The entry of its output."""
    landed: Raw | None = None
    """What it gave, if the place of its output has not come."""
    decided_args: DecisionEntry | None = None
    """The decision whose arguments are in force; None for the model's own."""
    dispatched_args: DecisionEntry | None = None
    """The same, as it was at the last dispatch."""
    waits: bool = False
    """The last decision holds it, and no dispatch follows."""
    open_steps: frozenset[str] = frozenset()
    """Its `once` steps that may have run, and nobody knows what came of them (LOG 5.5)."""
    tries: int = 0
    """How often it was dispatched since anybody but a policy said so, or since it was held; not
    those in which it came a step further."""
    advanced: bool = False
    """A step or a wait of it ended since its last dispatch."""
    has_child: bool = False
    """A sub-agent does its work, whose calls have tries of their own."""
    voided: frozenset[str] = frozenset()
    """The dispatches that a counting `perdure:not_started` names (LOG 5.1)."""
    decided_since: bool = False
    """A decision follows its last dispatch."""
    find: Elsewhere
    """Finds its dispatches, on this path or off it."""

    @property
    def call_id(self) -> str:
        return self.call.call_id

    @property
    def dispatched(self) -> bool:
        """Whether it may have entered its tool, here or elsewhere."""
        return self.last_dispatch is not None

    @property
    def last_dispatch(self) -> DispatchEntry | None:
        """The last dispatch that counts: on the path, else elsewhere."""
        counting = [one for one in self.dispatches if one.id not in self.voided]
        return (counting or self.elsewhere or (None,))[-1]

    @property
    def elsewhere(self) -> tuple[DispatchEntry, ...]:
        """Its dispatches off the path: on another branch, or where the session was forked from."""
        here = {one.id for one in self.dispatches}
        return tuple(one for one in self.find(self.entry) if one.id not in here)

    @property
    def state(self) -> State:
        if self.output:
            return "completed"
        verdict = self.decisions[-1].verdict if self.decisions else ""
        if verdict == "reject":
            return "rejected"
        if verdict == "answer" or self.landed is not None:
            return "answered"
        if self.waits:
            return "held"
        if self.dispatched:
            return "in_flight"
        return "never_started" if self.own and self.promised else "unknown"

    @property
    def released(self) -> bool:
        """The last decision lets it run, and no dispatch that counts follows.

        What was decided before a fork is history there, not authority (LOG 5.8).
        """
        return (
            self.own
            and self.state == "never_started"
            and bool(self.decisions and self.decisions[-1].verdict == "proceed")
        )

    @property
    def may_have_run(self) -> bool:
        state = self.state
        return state in ("in_flight", "unknown") or (state == "held" and self.dispatched)

    @property
    def key(self) -> str:
        """The idempotency key of its last dispatch; empty if there was none."""
        last = self.last_dispatch
        return last.idempotency_key if last else ""

    @property
    def arguments(self) -> str:
        """What it runs with now."""
        return _arguments(self.decided_args) or self.call.arguments

    @property
    def dispatched_arguments(self) -> str:
        """What it was last dispatched with: the arguments that a second run repeats."""
        return _arguments(self.dispatched_args) or self.call.arguments

    @property
    def reason(self) -> str:
        """Why, of the last decision."""
        return self.decisions[-1].reason if self.decisions else ""

    @property
    def wait(self) -> Json:
        """What its tool waits for; empty if it does not."""
        return (self.decisions[-1].wait or {}) if self.suspended else {}

    @property
    def suspended(self) -> bool:
        """It is held because its tool waits."""
        return self.waits and self.decisions[-1].suspended


def _arguments(decision: DecisionEntry | None) -> str:
    if decision is None:
        return ""
    exact = decision.arguments
    return exact or bytes(decision.args).decode()


class CallsFold:
    """The calls of a path, entry by entry."""

    def __init__(self, *, promised: bool, elsewhere: Elsewhere) -> None:
        self._promised = promised
        self._elsewhere = elsewhere
        self._by_entry: dict[str, Call] = {}
        self._latest: dict[str, Call] = {}
        self._open: dict[str, Call] = {}
        self.open: Mapping[str, Call] = MappingProxyType(self._open)
        """The calls without an output, by their ids, in path order."""

    def __iter__(self) -> Iterator[Call]:
        return iter(self._by_entry.values())

    def __len__(self) -> int:
        return len(self._by_entry)

    def of_entry(self, entry: str) -> Call | None:
        """The call whose item an entry holds."""
        return self._by_entry.get(entry)

    def named(self, call_id: str) -> Call | None:
        """The latest call of this id."""
        return self._latest.get(call_id)

    def bound(self, entry: DecisionEntry | DispatchEntry) -> Call | None:
        """The call that a decision or a dispatch is about."""
        return self._by_entry.get(entry.target) or self._latest.get(entry.call_id)

    def apply(self, entry: AnyEntry, item: Item | None, *, own: bool) -> Call | None:
        """Take an entry; returns the call it is about, if it is about one."""
        match entry:
            case ItemEntry():
                if isinstance(item, FunctionCall):
                    return self._add(entry, item, own=own)
                if isinstance(item, FunctionCallOutput):
                    return self._complete(entry, item)
                return None
            case DecisionEntry():
                return self._decide(entry)
            case DispatchEntry():
                return self._dispatch(entry)
            case NotStartedEntry():
                return self._void(entry)
            case StepEntry():
                return self._step(entry)
            case WaitEntry():
                if entry.phase == "end":
                    self._advance(entry.target)
                return None
            case LinkEntry():
                linked = self._latest.get(entry.call_id)
                if linked is not None and entry.rel == SUBSESSION:
                    linked.has_child = True
                return None
            case ResultEntry():
                call = self._by_entry.get(entry.target) or self._latest.get(entry.call_id)
                if call is not None and call.dispatches and not call.output:
                    call.landed = entry.output
                return None
            case _:
                return None

    def _add(self, entry: ItemEntry, item: FunctionCall, *, own: bool) -> Call:
        call = Call(
            entry=entry.id, call=item, own=own, promised=self._promised, find=self._elsewhere
        )
        self._by_entry[entry.id] = call
        self._latest[item.call_id] = self._open[item.call_id] = call
        return call

    def _complete(self, entry: ItemEntry, item: FunctionCallOutput) -> Call | None:
        call = self._latest.get(item.call_id)
        if call is None:
            return None
        if not call.output:  # of two outputs, the first is the answer
            call.output = entry.id
            del self._open[item.call_id]
        return call

    def _decide(self, entry: DecisionEntry) -> Call | None:
        call = self.bound(entry)
        if call is not None:
            call.decisions += (entry,)
            call.waits = entry.verdict == "hold"
            call.decided_since = True
            if entry.verdict == "hold" or entry.by == "human":
                call.tries = 0
            if bytes(entry.args):
                call.decided_args = entry
        return call

    def _dispatch(self, entry: DispatchEntry) -> Call | None:
        call = self.bound(entry)
        if call is not None:
            call.dispatches += (entry,)
            call.dispatched_args = call.decided_args
            call.tries += not call.has_child
            call.waits = call.decided_since = call.advanced = False
        return call

    def _step(self, entry: StepEntry) -> Call | None:
        call = self._by_entry.get(entry.target)
        if call is not None and entry.phase == "start" and entry.effect == "once":
            call.open_steps |= {entry.name}
        elif call is not None:
            call.open_steps -= {entry.name}
        if entry.phase == "end":
            self._advance(entry.target)
        return None  # a step is no action of its call that a foreign reader knows

    def _advance(self, target: str) -> None:
        """A step or a wait ended: the try that it is in leads somewhere, and does not count."""
        call = self._by_entry.get(target)
        if call is not None and call.tries and not call.advanced:
            call.tries -= 1
            call.advanced = True

    def _void(self, entry: NotStartedEntry) -> Call | None:
        call = self._latest.get(entry.call_id)
        if call is None or not call.dispatches or call.output or call.decided_since:
            return call
        if call.dispatches[-1].id == entry.target:
            call.voided |= {entry.target}
        return call
