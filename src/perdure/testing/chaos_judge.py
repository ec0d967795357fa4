"""Judging a trial: what the ledger and the log say of a run, held against each other."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from perdure.durable import find_run
from perdure.durable.sagas.rollback import OF_ROLLBACK
from perdure.errors import NoRun
from perdure.log import Call, Filters, Reading, Store, read_lines
from perdure.log.context import item_of
from perdure.log.entries import CustomEntry, ItemEntry
from perdure.testing import chaos_sagas
from perdure.testing.chaos_ledger import Line
from perdure.testing.chaos_life import FIRED
from perdure.testing.chaos_places import paths_in, place_of
from perdure.testing.chaos_report import Firings, Trial
from perdure.testing.chaos_waits import steps_in, waiting_in
from perdure.wire import FunctionCallOutput

STATUSES = frozenset(
    {
        "done",
        "stopped",
        "input_required",
        "suspended",
        "halted",
        "failed",
        "cancelled",
        "aborted",
        "rolled_back",
    }
)
"""How a run may stand when nobody drives it."""

WAITS = ("suspended", "input_required")
"""How a run stands that waits, and may do so for good."""

NOTHING_TOLD = "(nothing)"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What there is to judge.

    Attributes:
        run: The run.
        lines: Its lines of the ledger.
        durable: The outputs that stood in the log when a process died, by call.
        final: Those that stand at the end.
        commits: How often each transactional call committed.
        faults: What is wrong with the log itself.
        nested: The calls that tools made, which have no outputs.
        waiting: The calls that wait at the end.
        known: The calls that the record has, whatever became of them.
        answered: Those whose output somebody said. An agent below one is not entered again.
        rewrites: Something of the agent's may change what tools give.
        raced: Others went on with the run while its caller was told.
    """

    run: str
    lines: tuple[Line, ...]
    durable: Sequence[Mapping[str, str]]
    final: Mapping[str, str]
    commits: Counter[str]
    faults: tuple[str, ...] = ()
    nested: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()
    answered: frozenset[str] = frozenset()
    rewrites: bool = False
    raced: bool = False


def judge(evidence: Evidence, *, died: Sequence[str], expected: str, session: str) -> Trial:
    """What a trial showed."""
    told = [line for line in evidence.lines if line.phase == "told"]
    status = told[-1].status if told else NOTHING_TOLD
    firings = tuple(_firings(evidence))
    broken = [
        *_of_status(status, expected),
        *(() if evidence.raced else _of_record(told)),
        *(one for firing in firings for one in _of_firing(evidence, firing)),
        *chaos_sagas.faults_of(evidence.lines, status),
        *evidence.faults,
    ]
    return Trial(
        run=evidence.run,
        faults=tuple(died),
        status=status,
        firings=firings,
        lost=tuple(_lost(evidence, told)),
        broken=tuple(broken),
        log=session,
        waits=(told[-1].output or "") if told and status in WAITS else "",
    )


def _of_status(status: str, expected: str) -> Iterator[str]:
    if status not in STATUSES:
        yield f"no defined status: {status}"
    elif expected and status != expected:
        yield f"it ended {status!r}, and undisturbed it ends {expected!r}"


def _of_record(told: Sequence[Line]) -> Iterator[str]:
    for line in told:
        if line.recorded and line.recorded != line.status:
            yield f"its caller was told {line.status!r}, and its record says {line.recorded!r}"


def _firings(evidence: Evidence) -> Iterator[Firings]:
    by_call: dict[str, list[Line]] = {}
    for line in evidence.lines:
        if line.phase == "entered":
            nested = line.call_id in evidence.nested  # a tool makes it again under another id
            by_call.setdefault(line.key if nested else line.call_id, []).append(line)
    for call_id, lines in by_call.items():
        transactional = lines[0].effect == "transactional"
        yield Firings(
            tool=lines[0].tool,
            effect=lines[0].effect,
            call_id=call_id,
            entered=_entries(evidence, call_id, lines),
            keys=frozenset(line.key for line in lines),
            committed=evidence.commits[call_id] if transactional else None,
        )


def _entries(evidence: Evidence, call_id: str, entered: Sequence[Line]) -> int:
    """How often a call may have taken effect.

    An attempt that died in its tool took none if a reconciler says so, and it is asked before the
    next: so of those that did not end, the last alone counts.
    """
    if not entered[0].vouched:
        return len(entered)
    ended = [one for one in evidence.lines if one.call_id == call_id and one.phase == "left"]
    lives = {one.life for one in ended}
    return len(lives) + (entered[-1].life not in lives)


def _of_firing(evidence: Evidence, firing: Firings) -> Iterator[str]:
    name = f"{firing.tool} {firing.call_id!r} ({firing.effect})"
    match firing.effect:
        case "once" if firing.entered > 1:
            yield f"{name} was entered {firing.entered} times"
        case "keyed" if len(firing.keys) > 1 or "" in firing.keys:
            yield f"{name} was entered under the keys {sorted(firing.keys)}"
        case "transactional" if firing.fired > 1 or (
            firing.fired == 0
            and evidence.final.get(firing.call_id, OF_ROLLBACK.ran) != OF_ROLLBACK.ran
            and not _raised(evidence, firing.call_id)
        ):
            yield f"{name} committed {firing.fired} times"
        case _:
            pass


def _raised(evidence: Evidence, call_id: str) -> bool:
    return any(line.phase == "raised" and line.call_id == call_id for line in evidence.lines)


def _lost(evidence: Evidence, told: Sequence[Line]) -> Iterator[str]:
    entered = {line.call_id: line for line in evidence.lines if line.phase == "entered"}
    for call_id in sorted(entered.keys() - evidence.final.keys()):
        if not _needs_no_output(evidence, entered[call_id]):
            yield f"call {call_id!r} was entered and has no output"
    for call_id, output in evidence.final.items():
        if call_id in entered and not _is_real(evidence, call_id, output):
            yield f"call {call_id!r} has an output that its tool did not give: {output!r}"
    for outputs in evidence.durable:
        for call_id, output in outputs.items():
            if evidence.final.get(call_id) != output:
                now = evidence.final.get(call_id)
                yield f"call {call_id!r} had the output {output!r} on record; now it has {now!r}"
    done = [line for line in told if line.status == "done"]
    for line in done[1:]:
        if line.output != done[0].output:
            yield f"the answer {done[0].output!r} was given; later it was {line.output!r}"


def _needs_no_output(evidence: Evidence, line: Line) -> bool:
    """Whether nothing is lost though a call or a step was entered and has no output.

    A tool made the call; it waits; the step failed; it has no effect, so that a crash may leave
    nothing of it; or somebody said what the call gave whose agent it is part of.
    """
    place = line.call_id
    failed = "step:" in place and _raised(evidence, place)
    unrecorded = line.effect == "none" and place not in evidence.known
    left = any(place.startswith(f"{above}/") for above in evidence.answered)
    return failed or unrecorded or left or place in evidence.nested | evidence.waiting


def _is_real(evidence: Evidence, call_id: str, output: str) -> bool:
    own = [line for line in evidence.lines if line.call_id == call_id]
    if evidence.rewrites or own[0].vouched or own[0].effect == "transactional":
        return True
    if any(line.phase == "raised" for line in own):
        return True
    given = [line.output or "" for line in own if line.phase == "left"]
    unknown = (FIRED, msgspec.json.encode(FIRED).decode())
    return output in given or (output in unknown and not given) or output == OF_ROLLBACK.ran


# --- reading the log ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """What the log says of a run."""

    session: str
    outputs: Mapping[str, str]
    """The first output of each call, and what each step gave, behind the calls around them."""
    faults: tuple[str, ...] = ()
    nested: frozenset[str] = frozenset()
    """The calls that tools made, likewise."""
    waiting: frozenset[str] = frozenset()
    """The calls that wait, likewise."""
    known: frozenset[str] = frozenset()
    """All of its calls, likewise."""
    answered: frozenset[str] = frozenset()
    """Those whose output somebody said, likewise."""


async def read_record(store: Store, run: str) -> Record:
    """What the log says of a run, sub-agents and all; nothing if it was not begun."""
    try:
        root = await find_run(store, run)
    except NoRun:
        return Record("", {})
    outputs: dict[str, str] = {}
    faults: list[str] = []
    readings: dict[str, Reading] = {}
    for listed in (await store.list(Filters(root=root), limit=1000)).sessions:
        stored = await store.read(listed.id)
        readings[listed.id] = read_lines(stored.header, stored.lines)
    paths = paths_in({name: reading.session.header for name, reading in readings.items()})
    for name, reading in readings.items():
        faults += [f"the log of {name} is broken: {fault.reason}" for fault in reading.faults]
        for call_id, output in _outputs(reading):
            outputs.setdefault(place_of(paths[name], call_id), output)
        for place, output in steps_in(reading, paths[name]):
            outputs.setdefault(place, output)
    waiting = (
        place for name, reading in readings.items() for place in waiting_in(reading, paths[name])
    )
    nested = (
        place_of(paths[name], call_id)
        for name, reading in readings.items()
        for call_id in _nested(reading)
    )
    calls = {
        place_of(paths[name], call.call_id): call
        for name, reading in readings.items()
        for call in reading.session.view().calls
    }
    return Record(
        session=root,
        outputs=outputs,
        faults=tuple(faults),
        nested=frozenset(nested),
        waiting=frozenset(waiting),
        known=frozenset(calls),
        answered=frozenset(place for place, call in calls.items() if _was_answered(call)),
    )


def _was_answered(call: Call) -> bool:
    return any(one.verdict == "answer" and one.by == "human" for one in call.decisions)


def _nested(reading: Reading) -> Iterator[str]:
    for entry in reading.session.entries:
        if isinstance(entry, CustomEntry) and entry.ns == "perdure:nested_call":
            yield str(msgspec.json.decode(entry.data, type=dict[str, object]).get("call_id"))


def _outputs(reading: Reading) -> Iterator[tuple[str, str]]:
    for entry in reading.session.view().path:
        if isinstance(entry, ItemEntry):
            item = item_of(entry.item)
            if isinstance(item, FunctionCallOutput):
                yield item.call_id, item.text
