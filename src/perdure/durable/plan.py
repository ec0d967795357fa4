"""What the next drive of a run does, from the record alone (LOG 9).

A *step* is one of: drive the loop from an opening, close the run, or rest. The plan of a log is the
same for whoever holds it, so a crash loses nothing but time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from decimal import Decimal
from typing import TypeAlias

from perdure.durable.consuming import LIMITS
from perdure.durable.voting import tallied_answers
from perdure.log import Call, Session, View
from perdure.log.entries import ItemEntry, Json, ResponseEntry, RetryEntry, RunEntry
from perdure.log.programs import OWN, program_wait, program_work
from perdure.log.resuming import replay_answers, run_again
from perdure.log.status import Paused, paused_status, was_cut
from perdure.log.timestamps import wall_of
from perdure.loop import Answer, Hidden, Limits, Opening, approve
from perdure.loop.config import OnUnknown
from perdure.tools import ToolSet
from perdure.wire import Item


@dataclasses.dataclass(frozen=True, slots=True)
class Drive:
    """Drive the loop."""

    opening: Opening


@dataclasses.dataclass(frozen=True, slots=True)
class Close:
    """Write that the run is over."""

    status: str
    cause: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Rest:
    """There is nothing to do until somebody says something, or a time comes."""

    status: str
    cause: str = ""


Step: TypeAlias = Drive | Close | Rest

NO_LIMITS = Limits()

DUE = "what it waited for has come"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a plan is made from."""

    session: Session
    view: View
    tools: ToolSet
    limits: Limits = NO_LIMITS
    """Of the whole run."""
    ready: frozenset[str] = frozenset()
    """The suspended calls whose waits have come."""
    correction: Item | None = None
    """What the model is told of the answer that ends the record, if that will not do."""
    begun: int | None = None
    """The version at which the driver that asks began; None if none does."""

    def was_tried(self, call: Call) -> bool:
        """Whether the driver that asks has run a call already; once is enough for one driver."""
        last = call.last_dispatch
        if self.begun is None or last is None or last.id not in self.session:
            return False
        return was_cut(call) and self.session.place(last.id) >= self.begun


def plan(outlook: Outlook, given: Mapping[str, Answer]) -> Step:
    """What to do next.

    Args:
        outlook: The record, and what the agent is today.
        given: What messages answer, by call.
    """
    view = outlook.view
    if view.closed is not None:
        return Rest(view.closed.status, view.closed.cause)
    if view.saga.tripped is not None:  # of a sub-agent; its root rolls it back
        return Rest("failed", view.saga.tripped.cause)
    if view.is_program:
        return _program(outlook)
    if view.calls.open:
        answers = _answers(outlook, given)
        return Drive(Opening(answers=answers)) if answers else Rest(paused(outlook))
    return _after_the_last(outlook)


def _program(outlook: Outlook) -> Step:
    """A program runs, from its top, unless it halts or what it waits for has not come.

    It halts on a step that may have run, and when too many processes died in it.
    """
    view = outlook.view
    waits = bool(program_wait(view.drives)) and OWN not in outlook.ready
    if program_work(view.work).halted_steps or view.tries.are_used_up:
        return Rest("halted")
    return Rest(view.status) if waits and view.drives.open is None else Drive(Opening())


def _answers(outlook: Outlook, given: Mapping[str, Answer]) -> tuple[Answer, ...]:
    view = outlook.view
    on_unknown: OnUnknown = "halt" if outlook.session.header.run is not None else "tell"
    policy = replay_answers(view, outlook.session, outlook.tools, on_unknown)
    tried = {call.call_id for call in view.calls.open.values() if outlook.was_tried(call)}
    known = {one.call_id: one for one in policy if one.call_id not in tried} | {
        call.call_id: _due(call)
        for call in view.calls.open.values()
        if call.suspended and call.call_id in outlook.ready
    }
    known |= tallied_answers(view, outlook.tools)
    known |= given
    answers: list[Answer] = []
    blocked = False  # a call before it is to run first, and cannot yet
    for call_id, call in view.calls.open.items():
        answer = known.get(call_id)
        if answer is None:
            blocked = blocked or not call.waits
        elif not (answer.landed and blocked):
            answers.append(answer)
    return tuple(answers)


def _due(call: Call) -> Answer:
    """A suspended call enters its tool again, under its first key and without hooks (LOG 5.4)."""
    return approve(
        call.call_id,
        by="policy",
        arguments=call.dispatched_arguments,
        reason=DUE,
        idempotency_key=call.key,
        run_again=True,
    )


def paused(outlook: Outlook) -> Paused:
    """The status of a run whose calls wait. Today's tools may be stricter than the record."""
    strict = [
        call
        for call in outlook.view.calls.open.values()
        if was_cut(call) and run_again(call, outlook.tools.get(call.call.name)).output is not None
    ]
    return "halted" if strict else paused_status(outlook.view.calls)


def _after_the_last(outlook: Outlook) -> Step:
    """The step when no call waits."""
    view = outlook.view
    last = view.drives.last
    if last is None:
        return Drive(Opening())
    told = last.told if last.end is not None else None
    if told is not None and told.reason == "done":
        return Close("done")
    if told is not None and told.reason == "stopped":
        if told.cause not in LIMITS:
            return Close("stopped", told.cause)
        if not _may_go_on(outlook, told.cause):
            return Rest("stopped", told.cause)
    return _unfinished(outlook)


def _may_go_on(outlook: Outlook, cause: str) -> bool:
    """Whether a limit was raised since it stopped the run, or somebody asked for a retry."""
    for entry in reversed(outlook.view.path):
        if isinstance(entry, RetryEntry):
            return True
        if isinstance(entry, ItemEntry):
            break
    if cause == "budget" and not may_send(outlook):
        return False
    return cause in ("max_turns", "budget") and not _limit(outlook)


def may_send(outlook: Outlook) -> bool:
    """Whether the request that a budget refused last could be sent under today's limits.

    A budget of those above is theirs to look at: they enter this session again when it allows.
    """
    last = outlook.view.drives.last
    told = last.told if last is not None else None
    if told is None or not told.needs:
        return True
    if told.above:
        return outlook.begun is None or outlook.session.place(told.id) < outlook.begun
    return limits_allow(outlook.limits, told.needs)


def limits_allow(limits: Limits, needs: Json) -> bool:
    """Whether limits let a request be sent that a budget refused."""
    given = {"tokens": limits.tokens, "cost": limits.usd, "seconds": limits.seconds}
    for what, needed in needs.items():
        limit = given.get(what)
        if limit is not None and Decimal(str(limit)) < Decimal(str(needed)):
            return False
    return True


def _unfinished(outlook: Outlook) -> Step:
    """The step of a run that a crash, an error or an abort left, or whose pause is over."""
    answer = _final_answer(outlook.view)
    correction = outlook.correction
    if answer is not None and (answer.withheld or correction is None):
        return Close("stopped", "guard") if answer.withheld else Close("done")
    if _asked_to_end(outlook.view):
        return Close("stopped", "terminate")
    limit = _limit(outlook)
    if limit:
        return Rest("stopped", limit)
    return Drive(Opening(prompts=(Hidden(correction),) if correction is not None else ()))


def _final_answer(view: View) -> ResponseEntry | None:
    """The response without calls that ends the path, if it is whole."""
    last = view.drives.response
    if last is None or last.error or last.incomplete or view.drives.response_calls:
        return None
    for entry in reversed(view.path):
        if isinstance(entry, ResponseEntry):
            return last if entry is last else None
        if isinstance(entry, ItemEntry):
            return None
    return None


def _asked_to_end(view: View) -> bool:
    """Whether every output of the last batch asks to end the drive."""
    asked = False
    for entry in reversed(view.path):
        if isinstance(entry, ResponseEntry):
            return asked and view.drives.response_calls > 0
        if isinstance(entry, ItemEntry):
            if not entry.terminate:
                return False
            asked = True
    return False


def _limit(outlook: Outlook) -> str:
    """The limit that is used up; empty if none is."""
    turns, seconds = limits_left(outlook)[:2]
    if turns == 0:
        return "max_turns"
    return "budget" if seconds == 0 else ""


def limits_left(outlook: Outlook) -> Limits:
    """What the run may still take; None where there is no limit.

    All turns on the record count, and the time of all its drives, or those since somebody asked for
    a retry. What a run waits between two drives, for people or for a driver, counts for nothing.
    """
    turns, seconds = outlook.limits[:2]
    turns_taken, seconds_taken = _taken(outlook.view)
    return Limits(
        None if turns is None else max(turns - turns_taken, 0),
        None if seconds is None else max(seconds - seconds_taken, 0.0),
    )


def _taken(view: View) -> tuple[int, float]:
    """How many turns and seconds were taken since the last retry."""
    turns, begun, seconds = 0, 0, 0.0
    for entry in view.path:
        match entry:
            case RetryEntry():
                turns, seconds = 0, 0.0
            case ResponseEntry() if not entry.error:
                turns += 1
            case RunEntry() if entry.phase == "start":
                begun = wall_of(entry.ts)
            case RunEntry():
                seconds += max(wall_of(entry.until or entry.ts) - begun, 0) / 1e9
            case _:
                pass
    return turns, seconds
