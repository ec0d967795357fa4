"""How a run stands, projected from its record."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from perdure.errors import NoRun, NoSession
from perdure.log import Session, Spend, View, read_lines
from perdure.log.context import item_of
from perdure.log.entries import ItemEntry, ResponseEntry
from perdure.log.origins import origins_of
from perdure.log.programs import program_wait, program_work
from perdure.log.resuming import pending_of, recorded_items
from perdure.log.sagas import SagaReport
from perdure.log.spend import own_spend, usage_of
from perdure.log.store import Store, named_session
from perdure.log.work import CHILD, named_waits
from perdure.loop import PendingCall
from perdure.loop.events import answer_in
from perdure.loop.usage import NO_USAGE
from perdure.tools import ToolSet
from perdure.wire import FunctionCall, Item, Message, Usage

NO_ANSWER = frozenset({"length", "content_filter", "guard"})
"""Causes of a stop after which the model's last word is no answer."""

NO_SPEND = Spend()

BUDGET = "budget"
"""The cause of a stop, and of the wait for a sub-agent, that a budget brought about."""

CUT = "cut"
"""Marks the wait for a sub-agent that was cut: it waits for nobody, but to be driven again."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """How a run by id stands.

    Attributes:
        run_id: What the user calls it.
        session: The id of its session.
        kind: What kind of run it is: `run`, or what else made it.
        agent: The name of the agent it is driven by.
        status: How it stands; `idle` if nobody has driven it yet.
        cause: What stopped or cancelled it, or what it failed with.
        text: The answer, if there is one; of a program, what it returned, as JSON.
        items: The transcript, the input first.
        pending: The calls that wait, those of sub-agents in their place.
        turns: How many model calls it took.
        usage: The tokens of all its responses.
        spend: What all its requests took, those of its sub-agents included: tokens by model,
            money, the part that was estimated, the part whose answers nobody took.
        principal: For whom it works; empty if nobody said.
        created_at: When it was begun, as a timestamp.
        saga: Whether it is all or nothing.
        report: What came of rolling it back, as far as it has come; None if it was not.
        due: When it goes on by itself, in nanoseconds since the Unix epoch; None if it does not.
    """

    run_id: str
    session: str
    kind: str
    agent: str
    status: str
    cause: str = ""
    text: str = ""
    items: tuple[Item, ...] = ()
    pending: tuple[PendingCall, ...] = ()
    turns: int = 0
    usage: Usage = NO_USAGE
    spend: Spend = NO_SPEND
    principal: str = ""
    created_at: str = ""
    saga: bool = False
    report: SagaReport | None = None
    due: int | None = None


async def find_run(store: Store, run_id: str) -> str:
    """The session of a run.

    Raises:
        NoRun: There is none of this id.
    """
    found = await named_session(store, run_id)
    if found is None or found.header.run is None:
        raise NoRun(run_id)
    return found.id


async def read_run(store: Store, session: str) -> Session:
    """A session as the store has it, without verifying what was verified when it was driven."""
    stored = await store.read(session)
    origins = await origins_of(store, stored.header)
    return read_lines(stored.header, stored.lines, origins=origins, verify=False).session


def state_of(
    session: Session,
    pending: Sequence[PendingCall],
    status: str = "",
    *,
    spend: Spend | None = None,
) -> RunState:
    """How a run stands.

    Args:
        session: Its record.
        pending: The calls that wait, in it and below it.
        spend: What it and its sub-agents have spent; what its record says unless given.
        status: Its status, if whoever asks knows better than the record alone.
    """
    view = session.view()
    header = session.header
    items = tuple(one.item for one in recorded_items(view))
    cause = cause_of(view)
    responses = [entry for entry in view.path if isinstance(entry, ResponseEntry)]
    return RunState(
        run_id=header.run.id if header.run is not None else "",
        session=session.id,
        kind=header.run.kind if header.run is not None else "",
        agent=header.agent,
        status=status or view.status,
        cause=cause,
        text=_answer(view, items, cause),
        items=items,
        pending=tuple(pending),
        turns=len(responses),
        usage=usage_of(responses),
        spend=own_spend(session.entries).spend() if spend is None else spend,
        principal=header.principal,
        created_at=header.created_at,
        saga=header.is_saga,
        report=view.saga.report,
        due=view.due,
    )


def _answer(view: View, items: Sequence[Item], cause: str) -> str:
    if view.is_program:
        return bytes(view.closed.result).decode() if view.closed is not None else ""
    return "" if cause in NO_ANSWER else answer_in(items)


def cause_of(view: View) -> str:
    """What stopped, cancelled or failed the run; empty if nothing did."""
    if view.closed is not None:
        return view.closed.cause
    if view.saga.tripped is not None:
        return view.saga.tripped.cause
    last = view.drives.last
    if last is None or view.drives.open is not None:
        return ""
    if view.tries.are_used_up:
        return f"{view.tries.count} tries gave no outcome"
    if last.told is not None and last.told.cause:
        return last.told.cause
    failed = last.end is not None and last.end.reason in ("error", "interrupted")
    return last.end.ref if last.end is not None and failed else ""


# --- calls that wait, the whole tree down --------------------------------------------------------


async def waiting_calls(store: Store, session: Session, tools: ToolSet) -> tuple[PendingCall, ...]:
    """The calls without an output, those of sub-agents with the path that leads to them.

    Of a rollback that halted, the call at which it stands, wherever that is: nobody has to do
    anything about the others.
    """
    halt = halt_of(session.view())
    if halt is not None:
        if halt.session not in ("", session.id):
            stands, tools = await read_run(store, halt.session), ToolSet()
        else:
            stands = session
        found = halted_pending(halt, stands, tools)
        if found:
            return found
    return await _waiting(store, session, tools, ())


class Halt(NamedTuple):
    """Where a rollback stands that halted."""

    session: str
    call_id: str
    path: tuple[str, ...]
    why: str


def halt_of(view: View) -> Halt | None:
    """Where the rollback of a root halted; None if it did not."""
    halted, report = view.saga.halted, view.saga.report
    if halted is None or view.closed is not None:
        return None
    unknown = report.unknown if report is not None else ()
    stands = halted.session, halted.call_id
    path = next((one.path for one in unknown if (one.session, one.call_id) == stands), ())
    return Halt(halted.session, halted.call_id, path, halted.cause)


def halted_pending(halt: Halt, session: Session, tools: ToolSet) -> tuple[PendingCall, ...]:
    """The call at which a rollback stands, in its session; nothing if it has an output."""
    return tuple(
        msgspec.structs.replace(one, path=halt.path)
        for one in pending_of(session.view(), session, tools)
        if one.call.call_id == halt.call_id
    )


async def _waiting(
    store: Store, session: Session, tools: ToolSet, path: tuple[str, ...]
) -> tuple[PendingCall, ...]:
    found: list[PendingCall] = []
    view = session.view()
    if view.is_program:
        found += program_pending(session)
        for wait in named_waits(program_wait(view.drives)) if found else ():
            if wait.session:
                found += await _below(store, wait.session, (*path, wait.name))
        return tuple(found)
    for one in pending_of(view, session, tools):
        found.append(msgspec.structs.replace(one, path=path))
        for child in children_of(view, one.call.call_id):
            found += await _below(store, child, (*path, one.call.call_id))
    return tuple(found)


def program_pending(session: Session) -> tuple[PendingCall, ...]:
    """What a program waits for or halts on, as a call without an id; nothing if it does neither."""
    view = session.view()
    status = view.status
    if status not in ("halted", "input_required", "suspended"):
        return ()
    unknown = bool(program_work(view.work).halted_steps) or view.tries.are_used_up
    first = next((entry.item for entry in view.path if isinstance(entry, ItemEntry)), None)
    given = item_of(first) if first is not None else None
    arguments = given.text if isinstance(given, Message) else ""
    call = FunctionCall(call_id="", name=session.header.agent, arguments=arguments)
    return (
        PendingCall(
            call=call,
            reason="unknown" if unknown else "suspended",
            effect="idempotent",
            idempotency_key=session.id,
            wait=program_wait(view.drives) or None,
            session=session.id,
        ),
    )


async def _below(store: Store, child: str, path: tuple[str, ...]) -> tuple[PendingCall, ...]:
    try:
        session = await read_run(store, child)
    except NoSession:
        return ()
    return await _waiting(store, session, ToolSet(), path)


def children_of(view: View, call_id: str) -> tuple[str, ...]:
    """The sessions of the agents that a suspended call waits for: its own, or those it invoked."""
    call = view.calls.open.get(call_id)
    wait = call.wait if call is not None else {}
    invoked = tuple(one.session for one in named_waits(wait) if one.kind == CHILD and one.session)
    own = str(wait.get("session", "")) if wait.get("kind") == CHILD else ""
    return invoked or ((own,) if own else ())
