"""What there is to see of a run: how it stands, what waits in its tree, what it was told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from perdure.durable import RunState, find_run, read_run, state_of, tree_spend
from perdure.durable.messages import (
    Approve,
    Cancel,
    Deny,
    Late,
    NotStarted,
    Reply,
    Resolve,
    Retry,
    Sent,
    Settle,
    Signal,
    Told,
    Vote,
    decode_told,
)
from perdure.durable.state import children_of, halt_of, halted_pending, program_pending
from perdure.errors import NoSession
from perdure.log import Call, Session, Store
from perdure.log.approvals import HeldGate
from perdure.log.calls import SUBSESSION
from perdure.log.entries import LinkEntry
from perdure.log.nested import step_words
from perdure.log.programs import program_work
from perdure.log.resuming import pending_of
from perdure.log.status import is_halted
from perdure.log.timeline import begin_words, wait_words
from perdure.log.work import CHILD, CallWork, Wait, named_waits
from perdure.loop import PendingCall
from perdure.tools import ToolSet


class Branch(NamedTuple):
    """A session of a run: its own, or that of a sub-agent."""

    path: tuple[str, ...]
    """The calls that lead to it."""
    session: Session


class Waiting(NamedTuple):
    """A call that has no output, for whoever can do something about it."""

    call: PendingCall
    why: str
    since: str
    """A timestamp; empty if nothing on the record says."""
    todo: tuple[tuple[str, ...], ...] = ()
    """The commands that answer it, each word by word."""
    told: str = ""
    """What it was told and the run has not taken up."""


class Waits(NamedTuple):
    """A message in an inbox."""

    id: str
    session: str
    told: Told | None

    @property
    def call_id(self) -> str:
        """The call it is about; empty if it is about none."""
        told = self.told
        return (
            "" if told is None or isinstance(told, Cancel | Retry | Sent | Signal) else told.call_id
        )

    @property
    def says(self) -> str:
        """The message in a few words."""
        return _says(self.told)


class Seen(NamedTuple):
    """All that there is to show of a run."""

    state: RunState
    tree: tuple[Branch, ...]
    """Its sessions, its own first."""
    waiting: tuple[Waiting, ...]
    inbox: tuple[Waits, ...]
    """What it was told and has not taken up."""


async def look_at(store: Store, run_id: str) -> Seen:
    """A run, the calls that wait in its tree, and what it was told and has not taken up.

    Raises:
        NoRun: There is none of this id.
    """
    root = Branch((), await read_run(store, await find_run(store, run_id)))
    tree = [one async for one in _tree(store, root)]
    inbox = tuple(
        [
            Waits(message.id, session.id, decode_told(message))
            for _, session in tree
            for message in await store.unconsumed(session.id)
        ]
    )
    sessions = {session.id: session for _, session in tree}
    halt = halt_of(root.session.view())
    stands = sessions.get(halt.session or root.session.id) if halt is not None else None
    halted = halted_pending(halt, stands, ToolSet()) if halt and stands else ()
    pending = halted or tuple(_pending(root, sessions))
    replied = frozenset(one.told.begin for one in inbox if isinstance(one.told, Reply))
    waiting = tuple(
        _waiting(run_id, one, sessions[one.session], root=root.session.id, replied=replied)
        for one in pending
    )
    if halt is not None and halted:
        waiting = tuple(
            one._replace(why=f"the rollback stops at it: {halt.why}") for one in waiting
        )
    told = tuple(_with_told(one, inbox) for one in waiting)
    spend = await tree_spend(store, root.session)
    return Seen(state_of(root.session, pending, spend=spend), tuple(tree), told, inbox)


async def _tree(store: Store, branch: Branch) -> AsyncIterator[Branch]:
    """A session, and those of the sub-agents that its calls began."""
    yield branch
    for entry in branch.session.path():
        if not isinstance(entry, LinkEntry) or entry.rel != SUBSESSION:
            continue
        try:
            child = await read_run(store, entry.session)
        except NoSession:  # a crash came before it was made
            continue
        async for one in _tree(store, Branch((*branch.path, entry.call_id), child)):
            yield one


def _pending(branch: Branch, sessions: Mapping[str, Session]) -> Iterator[PendingCall]:
    """The calls without an output, those of a sub-agent behind the call that waits for it."""
    path, session = branch
    view = session.view()
    for one in program_pending(session) if view.is_program else ():
        yield msgspec.structs.replace(one, path=path)
        for wait in named_waits(one.wait or {}):
            child = sessions.get(wait.session)
            if child is not None:
                yield from _pending(Branch((*path, wait.name), child), sessions)
    for one in pending_of(view, session, ToolSet()):
        yield msgspec.structs.replace(one, path=path)
        for name in children_of(view, one.call.call_id):
            child = sessions.get(name)
            if child is not None:
                yield from _pending(Branch((*path, one.call.call_id), child), sessions)


# --- a call that waits -------------------------------------------------------------------------


def _waiting(
    run_id: str, pending: PendingCall, session: Session, *, root: str, replied: frozenset[str]
) -> Waiting:
    place = () if session.id == root else ("--session", session.id)
    if not pending.call.call_id:
        return _program_waiting(run_id, pending, session, replied)
    call = session.view().calls.open[pending.call.call_id]
    last = call.last_dispatch
    since = last.ts if last is not None else ""
    if call.state == "held":
        since = call.decisions[-1].ts
    work = session.view().work.of(call.entry)
    waits = work.open_waits
    gate = session.view().approvals.waiting(call)
    if gate is not None:
        return Waiting(pending, gate_words(gate), since, _votes(run_id, call, gate, place))
    todo = _commands(run_id, _todo(call, _unanswered(waits, replied)), place)
    return Waiting(pending, _why(call, work), since, todo)


def _commands(
    run_id: str, todo: Iterable[tuple[str, ...]], place: tuple[str, ...] = ()
) -> tuple[tuple[str, ...], ...]:
    return tuple(
        ("perdure", "runs", verb, run_id, *rest[:1], *place, *rest[1:]) for verb, *rest in todo
    )


def _unanswered(waits: Iterable[Wait], replied: frozenset[str]) -> list[Wait]:
    """Without the questions whose answers are in the inbox."""
    return [wait for wait in waits if wait.begin.id not in replied]


def _program_waiting(
    run_id: str, pending: PendingCall, session: Session, replied: frozenset[str]
) -> Waiting:
    """A program that waits or halts; commands name it by an empty call."""
    view = session.view()
    work = program_work(view.work)
    end = view.drives.last.end if view.drives.last is not None else None
    since = end.ts if end is not None else ""
    if steps := sorted(work.halted_steps):
        return Waiting(
            pending, _unknown_steps(work), since, _commands(run_id, _resolving("", steps))
        )
    if view.tries.are_used_up:
        why = f"was entered, and its process died: {view.tries.count} tries gave no outcome"
        return Waiting(pending, why, since, _commands(run_id, [("retry",), ("cancel",)]))
    why = "; ".join(
        wait_words({"kind": one.begin.kind, "name": one.begin.name})
        if one.begin.kind == CHILD
        else begin_words(one.begin)
        for one in work.open_waits
    )
    todo = _ending("", _unanswered(work.open_waits, replied))
    return Waiting(pending, why, since, _commands(run_id, todo))


def _unknown_steps(work: CallWork) -> str:
    starts = (work.steps[name].start for name in sorted(work.halted_steps))
    steps = ", ".join(step_words(one) for one in starts if one is not None)
    return f"may have taken its step {steps}, and nobody knows what came of it"


def gate_words(gate: HeldGate) -> str:
    """What a call waits for at a gate, and how far that has come."""
    if gate.tally is not None:
        return f"is {gate.outcome}; that is taken up when the run is driven"
    voted = ", ".join(f"{vote.approver} {_VERDICTS[vote.verdict]}" for vote in gate.votes)
    return gate.hold.reason + (f" ({voted})" if voted else "")


_VERDICTS = {"approve": "has approved", "deny": "has denied"}


def _votes(
    run_id: str, call: Call, gate: HeldGate, place: tuple[str, ...]
) -> tuple[tuple[str, ...], ...]:
    """The commands with which people vote."""
    if gate.tally is not None:
        return ()
    key = ("--key", "FILE") if gate.gate.signed else ()
    words = ("perdure", "approve", run_id, call.call_id, *place, "--by", "NAME", *key)
    return words, (*words, "--deny")


def _why(call: Call, work: CallWork) -> str:
    reason = f": {call.reason}" if call.reason else ""
    if call.suspended:
        if call.wait.get("kind") == CHILD:
            return "waits for its agent, which waits for something"
        return "; ".join(begin_words(one.begin) for one in work.open_waits) or wait_words(call.wait)
    if call.state == "held":
        return f"is held{reason}"
    if call.open_steps:
        return _unknown_steps(work)
    if is_halted(call):
        return "may have run: it was dispatched, and nobody knows what came of it"
    if call.state == "in_flight":
        return "was cut off; it runs again, as its effect allows, when the run is driven"
    if call.state == "never_started":
        return "has not started; it does when the run is driven"
    return "is decided; it gets its output when the run is driven"


def _todo(call: Call, waits: Sequence[Wait]) -> Iterator[tuple[str, ...]]:
    """What can be done about a call: a verb, what it is about, and its options."""
    about = call.call_id
    if call.state == "held" and not call.suspended:
        yield "approve", about
        yield "deny", about, "--reason", "TEXT"
    elif call.suspended:
        yield from _ending(about, waits)
    elif call.open_steps:
        yield from _resolving(about, sorted(call.open_steps))
    elif is_halted(call):
        last = call.last_dispatch
        needs_age = last is not None and last.lasts is None
        yield "resolve", about, "--output", "TEXT"
        yield ("resolve", about, "--never-ran", *(("--min-age", "SECONDS") if needs_age else ()))


def _ending(about: str, waits: Iterable[Wait]) -> Iterator[tuple[str, ...]]:
    """What ends waits."""
    for wait in waits:
        if wait.begin.kind == "interrupt":
            yield "answer", about, wait.begin.name, "JSON"
        elif wait.begin.kind == "signal":
            yield "signal", wait.begin.name, "JSON"
        elif wait.begin.kind == "channel":
            yield "send", wait.begin.name.rpartition("#")[0], "JSON", "--key", "KEY"


def _resolving(about: str, steps: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """What says of steps what came of them."""
    for step in steps:
        yield "resolve", about, "--step", step, "--value", "JSON"
        yield "resolve", about, "--step", step, "--never-ran", "--min-age", "SECONDS"


def _with_told(one: Waiting, inbox: Sequence[Waits]) -> Waiting:
    """A call with what it was told, which nobody has to tell it again."""
    place = one.call.session, one.call.call.call_id
    own = [message for message in inbox if (message.session, message.call_id) == place]
    some = all(isinstance(message.told, Vote | Reply | Signal | Sent) for message in own)
    todo = one.todo if some else ()  # others may vote, and other waits be ended
    came = {
        message.told.name
        for message in inbox
        if isinstance(message.told, Signal) and message.session == one.call.session
    }
    left = tuple(words for words in todo if words[2] != "signal" or words[4] not in came)
    return one._replace(told="; ".join(message.says for message in own), todo=left)


def _says(told: Told | None) -> str:
    who = f" by {told.who}" if told is not None and told.who else ""
    match told:
        case Approve():
            return f"{told.call_id} approved{who}"
        case Deny():
            return f"{told.call_id} denied{who}"
        case Vote():
            return f"{told.call_id} {'approved' if told.approves else 'denied'}{who}, as a vote"
        case Resolve():
            said = told.failed and f"it failed: {told.failed}"
            said = said or told.output if told.output is not None else "it never ran"
            return f"{_about(told)} resolved{who}: {said}"
        case Settle():
            return f"{_about(told)} {told.verdict}{who}"
        case Signal():
            return f"signal {told.name}{who}: {bytes(told.value).decode()}"
        case Sent():
            return f"message {told.key} of {told.channel}{who}: {bytes(told.value).decode()}"
        case Reply():
            return f"{told.call_id} answered{who}: {bytes(told.value).decode()}".lstrip()
        case Cancel():
            return f"cancelled{who}"
        case Retry():
            return f"told to go on{who}"
        case Late():
            return f"what {told.call_id} gave, late"
        case NotStarted():
            return f"{told.call_id} did not start"
        case None:
            return "something nobody knows"


def _about(told: Resolve | Settle) -> str:
    """The step or the call that was settled; a step of a program is of no call."""
    of = f" of {told.call_id}" if told.call_id else ""
    return f"step {told.step!r}{of}" if told.step else told.call_id
