"""Going on with a session: what the next drive begins with, from the record alone (LOG 9).

First the record is *mended*: what a crash left of a response is rejected as cut, and a drive that
has no end gets one. Then the transcript, the pending calls, the reserved call ids and what is owed
the queues are read from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import Raw

from perdure.log.calls import Call
from perdure.log.context import item_of
from perdure.log.entries import (
    AnyEntry,
    CompactionEntry,
    CustomEntry,
    DispatchEntry,
    ItemEntry,
    Json,
    LinkEntry,
    QueuedEntry,
    ResponseEntry,
)
from perdure.log.ids import ENVELOPE, ParentRef
from perdure.log.path import View
from perdure.log.recorded_bodies import CUT, HIDDEN_ITEM, Owed, owed_draft
from perdure.log.recorded_requests import Placed
from perdure.log.session import Session
from perdure.log.status import MAX_TRIES
from perdure.log.timestamps import wall_of
from perdure.log.writing import Draft
from perdure.loop import Answer, PendingCall, Transcript, approve, outcome_unknown
from perdure.loop.config import OnUnknown
from perdure.loop.pending import PendingReason
from perdure.loop.resume import RUN_AGAIN_KEYED, RUN_AGAIN_SAFE
from perdure.loop.turn import NOT_RUN_CUT
from perdure.tools import Effect, Gate, Tool, ToolSet, effect_of
from perdure.tools.effect import is_effect
from perdure.wire import FunctionCallOutput, Item, encode, function_call_output

CUT_OFF = "cut off: closed on resume"
"""Why a drive that a crash left open ended."""

RAN_HERE = "ran on a branch the rebase left"
RAN_THERE = "ran in the session this one forks"
"""Why a call is answered with an output that it has off the path."""

_HIDDEN_MARKS = (f'"{HIDDEN_ITEM}"'.encode(), b'"agentturn:response_id"')
"""What marks an item that no model is shown, in perdure's name and in the one it is read from."""

_REASONS: Mapping[str, PendingReason] = {
    "held": "held",
    "in_flight": "aborted",
    "never_started": "undispatched",
    "unknown": "unknown",
    "answered": "answered",
    "rejected": "rejected",
}


# --- mending -------------------------------------------------------------------------------


def mend_response(view: View) -> list[Draft]:
    """What closes a response that a crash cut; nothing if there is none.

    Its calls are rejected, its other items left out of the context, and it gets an entry that says
    it is no answer.
    """
    items = _cut_items(view) if view.drives.open is not None else []
    if not items:
        return []
    drafts: list[Draft] = []
    if view.unclaimed:
        response = items[0].response
        facts = {"response_id": response, "status": "incomplete", "incomplete": CUT}
        drafts.append(Draft("response", facts))
    others: list[str] = []
    for entry in items:
        call = view.calls.of_entry(entry.id)
        if call is None:
            others.append(entry.id)
        elif not call.output:
            drafts += _reject(call)
    omitted = Draft("config", {"omit": {"items": others}}) if others else None
    return [*drafts, omitted] if omitted else drafts


def stale_outputs(view: View) -> list[Draft]:
    """What leaves every output but a call's first out of requests; nothing if there is none.

    The first is the answer. Providers refuse a second, so it stays in the record alone.
    """
    left_out = frozenset(view.folding.settings.current.omit_items)
    first: set[str] = set()
    stale: list[str] = []
    for entry in view.path:
        if not isinstance(entry, ItemEntry) or b'"function_call_output"' not in bytes(entry.item):
            continue
        item = item_of(entry.item)
        if not isinstance(item, FunctionCallOutput) or entry.id in left_out:
            continue
        if item.call_id in first:
            stale.append(entry.id)
        first.add(item.call_id)
    return [Draft("config", {"omit": {"items": stale}})] if stale else []


def _cut_items(view: View) -> list[ItemEntry]:
    """The items of a response without an entry, or of the last one if it is none to go by."""
    ids = frozenset(view.unclaimed)
    last = view.drives.response
    if not ids and last is not None and (last.error or last.incomplete):
        ids = _unanswered(view, last) or _last_word(view, last)
    return [entry for entry in view.path if isinstance(entry, ItemEntry) and entry.id in ids]


def _unanswered(view: View, response: ResponseEntry) -> frozenset[str]:
    """The items of a failed response, if a crash kept its calls from being answered."""
    own: list[str] = []
    for entry in reversed(view.path):
        if isinstance(entry, ItemEntry):
            if entry.response != response.response_id or not entry.response:
                break
            own.append(entry.id)
    calls = [view.calls.of_entry(entry) for entry in own]
    return frozenset(own) if any(call and not call.output for call in calls) else frozenset()


def _last_word(view: View, response: ResponseEntry) -> frozenset[str]:
    """The items of a cut answer that the path ends with: no model goes on after its own word."""
    own: list[str] = []
    for entry in reversed(view.path):
        if isinstance(entry, ItemEntry):
            if not entry.response or entry.response != response.response_id:
                break
            own.append(entry.id)
    return frozenset(own)


def _reject(call: Call) -> list[Draft]:
    decision = {
        "call_id": call.call_id,
        "target": call.entry,
        "verdict": "answer" if call.dispatches else "reject",
        "by": "policy",
        "reason": NOT_RUN_CUT,
    }
    output = function_call_output(call.call_id, NOT_RUN_CUT)
    return [Draft("decision", decision), Draft("item", {"item": Raw(encode(output))})]


def owed_results(view: View, *, in_order: bool = False) -> list[Draft]:
    """The outputs of calls whose results landed and whose places had not come (DESIGN 6.3).

    Args:
        view: The record.
        in_order: Leave out those behind a call that is to run first, so that the outputs of a batch
            stand in the order of its calls (DESIGN 6.7). The next drive places them.
    """
    drafts: list[Draft] = []
    for call in view.calls.open.values():
        if call.landed is not None:
            drafts.append(Draft("item", {"item": call.landed}))
        elif in_order and not call.waits:
            break
    return drafts


def encode_json(value: object) -> bytes:
    """A value of a line as JSON text."""
    from perdure.log.writing import json_text

    return json_text(value)


def close_drive(view: View, until: str = "", below: int = 0) -> list[Draft]:
    """The end of a drive that a crash left open, and what it owes; nothing if none is open.

    Args:
        view: The record.
        until: The time of the last entry that its driver wrote.
        below: How far the agents of a program are.
    """
    drive = view.drives.open
    if drive is None:
        return []
    owed = list(view.queues.owed)
    pending, _ = view.drives.verdict(drive, view.calls)
    end: Json = {
        "run_id": drive.run_id,
        "phase": "end",
        "reason": "error",
        "pending": list(pending),
        "ref": CUT_OFF,
        "perdure:until": until or view.path[-1].ts,
        **({"perdure:below": below} if below else {}),
    }
    first = [owed_draft(drive.run_id, owed)] if owed else []
    again = [_owed(entry).again().entry for entry in view.queues.owed.values()]
    return [*first, Draft("run", end), *(one for one in again if isinstance(one, Draft))]


def _owed(entry: QueuedEntry) -> Owed:
    body = {name: value for name, value in entry.members.items() if name not in ENVELOPE}
    return Owed(body, entry.id)


def owed_inputs(view: View) -> dict[str, Owed]:
    """What a path owes its queues, by the loop's names for it."""
    return {entry.queue_id or entry.id: _owed(entry) for entry in view.queues.owed.values()}


# --- what the next drive begins with -----------------------------------------------------------


def transcript_of(view: View) -> Transcript:
    """The transcript at a view, with the items that no model is shown in their places."""
    transcript = Transcript()
    for one in recorded_items(view, hidden=True):
        transcript.append(one.item)
        transcript.attribute(one.item, one.thinker)
    return transcript


def recorded_items(view: View, *, hidden: bool = False) -> Iterator[Placed]:
    """The items of a context, those of other models too."""
    places = {entry.id: entry for entry in view.path if isinstance(entry, CustomEntry)}
    compactions = {entry.id for entry in view.path if isinstance(entry, CompactionEntry)}
    left_out = frozenset(view.folding.settings.current.omit_items)
    for contribution in view.folding.contributions():
        if contribution.entry in places:
            item = _hidden(places[contribution.entry])
            if hidden and item is not None:
                yield Placed(item)
        elif contribution.item is not None and contribution.entry not in left_out:
            entry = "" if contribution.entry in compactions else contribution.entry
            yield Placed(contribution.item, contribution.thinker or "", entry)


def _hidden(entry: CustomEntry) -> Item | None:
    marked = any(mark in entry.line for mark in _HIDDEN_MARKS)
    return item_of(entry.data) if marked else None


def pending_of(view: View, session: Session, tools: ToolSet) -> tuple[PendingCall, ...]:
    """The calls without an output, and all that the record knows of them."""
    return tuple(_pending(view, call, session, tools) for call in view.calls.open.values())


def _gate(view: View, call: Call) -> Gate | None:
    """Whose approval a call waits for, or was denied: no other answer lets it run."""
    gate = view.approvals.waiting(call)
    return gate.gate if gate is not None and gate.outcome != "approved" else None


def _pending(view: View, call: Call, session: Session, tools: ToolSet) -> PendingCall:
    state = call.state
    handed = call.dispatched_arguments if call.dispatched else call.arguments
    own = call.call.arguments
    last = call.last_dispatch
    tool = tools.get(call.call.name)
    reason: PendingReason = "suspended" if call.suspended else _REASONS[state]
    ran = _ran(call, session)
    return PendingCall(
        call=call.call,
        reason="held" if _is_held_anew(call, session, tool) else reason,
        tool=tool,
        decided=call.released,
        dispatched=call.dispatched,
        effect=_effect(last),
        idempotency_key=call.key,
        arguments=None if handed == own else handed,
        ran=ran.output if ran is not None else None,
        ran_where=_where(ran, session) if ran is not None else "",
        wait=call.wait or None,
        gate=_gate(view, call),
        session=session.id,
        attempted_at=wall_of(last.ts) if last is not None else None,
        refused=call.reason if state == "rejected" else "",
    )


def _is_held_anew(call: Call, session: Session, tool: Tool | None) -> bool:
    """Whether a call of a fork's prefix waits for a decision that is made in the fork (LOG 5.8).

    What was decided in the prefix is history. A call without an effect needs nobody, and one that
    gave its output in the origin has it.
    """
    if call.own or call.output or call.state in ("rejected", "answered"):
        return False
    here = session.base_depth
    if any(session.depth(one.id) > here for one in (*call.decisions, *call.dispatches)):
        return False
    if tool is not None and effect_of(tool, call.dispatched_arguments) == "none":
        return False
    return _ran(call, session) is None


def _effect(dispatch: DispatchEntry | None) -> Effect | None:
    effect = dispatch.effect if dispatch is not None else ""
    return effect if is_effect(effect) else None


class _Ran(NamedTuple):
    """An output that a call has off the path, and the session that has it."""

    output: FunctionCallOutput
    session: str


def _where(ran: _Ran, session: Session) -> str:
    return RAN_HERE if ran.session == session.id else RAN_THERE


def _ran(call: Call, session: Session) -> _Ran | None:
    """The output it has where it ran, off the path; not one that somebody gave in its place.

    What a transactional call did stands with its output, on whatever branch that is (LOG 6).
    """
    last = call.last_dispatch
    commits = last is not None and last.effect == "transactional"
    if not commits and (call.dispatches or not call.elsewhere):
        return None
    for other in (session, *session.origins):
        for entry in other.entries:
            found = _output_of(entry, call.call_id)
            if found is not None and not _was_answered(other, entry, call):
                return _Ran(found, other.id)
    return None


def _output_of(entry: AnyEntry, call_id: str) -> FunctionCallOutput | None:
    if entry.type == "perdure:result" and entry.members.get("call_id") == call_id:
        item = item_of(Raw(encode_json(entry.members.get("output"))))
    elif isinstance(entry, ItemEntry) and b'"function_call_output"' in bytes(entry.item):
        item = item_of(entry.item)
    else:
        return None
    same = isinstance(item, FunctionCallOutput) and item.call_id == call_id
    return item if same and isinstance(item, FunctionCallOutput) else None


class Came(NamedTuple):
    """Where an output that stands on another branch came from."""

    parents: tuple[ParentRef, ...] = ()
    """What converges in it: the last entry of a sub-agent's session."""
    child: str = ""
    """The session that its call is linked to."""


def where_from(session: Session, call_id: str, origin: str) -> Came:
    """The provenance of a call's output that is taken over to the session's path.

    Args:
        session: The session.
        call_id: The call.
        origin: The session that has the output: this one, or one that it was forked from. Only a
            link of this one is told: what another is linked to is told there.
    """
    for other in (session, *session.origins):
        if other.id != origin:
            continue
        outputs = [e for e in other.entries if _output_of(e, call_id) is not None]
        links = [e for e in other.entries if isinstance(e, LinkEntry) and e.call_id == call_id]
        return Came(
            outputs[0].parents if outputs else (),
            links[-1].session if links and other is session else "",
        )
    return Came()


def _was_answered(session: Session, output: AnyEntry, call: Call) -> bool:
    there = session.at(output.id).calls.of_entry(call.entry)
    return there is None or any(d.verdict in ("answer", "reject") for d in there.decisions)


# --- replay answers ----------------------------------------------------------------------------


def replay_answers(
    view: View, session: Session, tools: ToolSet, on_unknown: OnUnknown = "tell"
) -> tuple[Answer, ...]:
    """The answers that the record and the tools' effects give to pending calls, all by policy.

    A held call gets none: that is for whoever it waits for. Nor does one that may have run and must
    not run again, where the run halts on it.
    """
    answers = (_replay(call, session, tools, on_unknown) for call in view.calls.open.values())
    return tuple(answer for answer in answers if answer is not None)


def _replay(call: Call, session: Session, tools: ToolSet, on_unknown: OnUnknown) -> Answer | None:
    state = call.state
    if state == "held" or _is_held_anew(call, session, tools.get(call.call.name)):
        return None
    if state == "never_started":
        return approve(call.call_id, by="policy")
    if state == "rejected":
        return _given(call, call.reason)
    if call.landed is not None:
        return _landed(call, call.landed)
    if state == "answered":
        return outcome_unknown(call.call_id, by="policy", reason=call.reason)
    ran = _ran(call, session)
    if ran is not None:
        return Answer(
            call_id=call.call_id,
            output=ran.output,
            by="policy",
            reason=_where(ran, session),
            origin=ran.session,
        )
    again = run_again(call, tools.get(call.call.name))
    return None if again.output is not None and on_unknown == "halt" else again


def _landed(call: Call, item: Raw) -> Answer | None:
    """The output that a call gave before the place of it had come."""
    output = item_of(item)
    if not isinstance(output, FunctionCallOutput):
        return None
    return Answer(call_id=call.call_id, output=output, by="policy", landed=True)


def _given(call: Call, text: str) -> Answer:
    return Answer(
        call_id=call.call_id, output=function_call_output(call.call_id, text), by="policy"
    )


def run_again(call: Call, tool: Tool | None) -> Answer:
    """What becomes of a call that may have run: an approval, or the output that tells of it.

    Both the effect at its dispatch and today's decide (DESIGN 5).
    """
    arguments = call.dispatched_arguments
    last = call.last_dispatch
    if call.open_steps:
        reason = f"not run again: step {min(call.open_steps)!r} may have run"
        return outcome_unknown(call.call_id, by="policy", reason=reason)
    if call.tries >= MAX_TRIES:
        reason = f"not run again: {call.tries} tries gave no outcome"
        return outcome_unknown(call.call_id, by="policy", reason=reason)
    if tool is None:
        return outcome_unknown(call.call_id, by="policy", reason="not run again: no tool")
    effects = {effect_of(tool, arguments), *((last.effect,) if last and last.effect else ())}
    if effects <= {"none", "idempotent", "transactional"}:
        return approve(call.call_id, by="policy", arguments=_other(call), reason=RUN_AGAIN_SAFE)
    if effects <= {"none", "idempotent", "transactional", "keyed"}:
        if not call.key:
            reason = "not run again: keyed without a key"
            return outcome_unknown(call.call_id, by="policy", reason=reason)
        return approve(
            call.call_id,
            by="policy",
            arguments=_other(call),
            idempotency_key=call.key,
            reason=RUN_AGAIN_KEYED,
        )
    return outcome_unknown(call.call_id, by="policy", reason="not run again: replay unknown")


def _other(call: Call) -> str | None:
    handed = call.dispatched_arguments
    return None if handed == call.call.arguments else handed


def reserved_call_ids(session: Session) -> frozenset[str]:
    """The ids that no new call may have: those of every branch, and of where it was forked."""
    return session.call_ids.union(*(one.call_ids for one in session.origins))
