"""Rolling a saga back: by the driver of its root, from where the record ends (LOG 9).

Each pass reads the whole tree, takes the messages that wait in it, and walks what is to be undone
until it comes to something that changes the record. So a crash loses nothing but time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from perdure.durable.cancelling import Words, close_calls
from perdure.durable.consuming import Authority, Taken, consume
from perdure.durable.control import Control, Rested
from perdure.durable.driven import Driven
from perdure.durable.gates import settle_gates
from perdure.durable.messages import Deny, decode_told
from perdure.durable.reconciling import reconcile
from perdure.durable.sagas.compensating import compensate
from perdure.durable.sagas.plan import Undo, report_of, undos
from perdure.durable.sagas.tree import Branch, grow
from perdure.durable.state import read_run
from perdure.durable.voting import tallied_answers
from perdure.errors import Tripped
from perdure.log import Draft, Message, Recording, go_on
from perdure.log.entries import MESSAGE, Json
from perdure.log.resuming import run_again
from perdure.loop import Answer, Opening, RunEnd

ROLLED_BACK = "rolled_back"

NOTHING_TO_DO = frozenset({"skip", "uncompensated", "doubted"})

BEING_ROLLED_BACK = "the saga is being rolled back"

OF_ROLLBACK = Words(
    cause="rolled back",
    not_run="Error: not run: the run was rolled back",
    ran="Error: the run was rolled back before this call gave its output",
    waited="Error: the run was rolled back while this call waited",
    by="policy",
)

Forth = Callable[[Driven, Recording, Opening], Awaitable[RunEnd]]
"""Drives the loop once over a session of the tree."""


def is_rolled_back(recording: Recording) -> bool:
    """Whether what comes next of a run is its rollback. Sub-agents' are part of their root's."""
    view = recording.view
    is_root = not recording.session.header.root
    return is_root and view.closed is None and view.saga.tripped is not None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Rollback:
    """One pass."""

    driven: Driven
    recording: Recording
    """Of the root."""
    control: Control
    forth: Forth
    tree: Branch


async def roll_back(
    driven: Driven, recording: Recording, control: Control, forth: Forth
) -> Rested | None:
    """Go on with the rollback of a saga.

    Args:
        driven: Its agent.
        recording: Of its root.
        control: Says when to stop.
        forth: Drives the loop once.

    Returns:
        Where it rests; None if the record has grown, so that there is more to be done.

    Raises:
        Aborted: The driver was told to stop inside a compensator.
        LogError: The store refuses.
    """
    tree = await grow(recording.store, recording, driven)
    rollback = _Rollback(
        driven=driven, recording=recording, control=control, forth=forth, tree=tree
    )
    if await _take_messages(rollback):
        return None
    if recording.view.saga.undone is not None:
        await _close(rollback)
        return None
    for undo in undos(tree):
        if recording.view.saga.of(undo.done).is_over or undo.verdict in NOTHING_TO_DO:
            continue
        if control.cause is not None:
            return Rested(status="aborted")
        match undo.verdict:
            case "compensate":
                failed = await compensate(recording, control, undo)
                if failed is not None:
                    await _tell(recording, "stopped", cause=str(failed), report=_report(rollback))
                    return Rested(status="failed", failure=failed)
            case "forward":
                return await _run_forward(rollback, undo)
            case _:
                return await _halt(rollback, undo)
    report = _report(rollback)
    await _tell(recording, "undone", report=report)
    return None


async def _tell(recording: Recording, phase: str, **members: object) -> None:
    told = {name: value for name, value in members.items() if value != ""}
    body: Json = {"phase": phase, **told}
    await recording.append(Draft("perdure:saga", body))


def _report(rollback: _Rollback) -> Json:
    found = report_of(rollback.tree, rollback.recording.view.saga)
    report: Json = msgspec.to_builtins(found)
    return report


# --- calls that may have run ---------------------------------------------------------------------


async def _run_forward(rollback: _Rollback, undo: Undo) -> Rested | None:
    """Run a call again, as its effect allows, through everything that stands around its tool."""
    if undo.call.waits:
        return await _run_held(rollback, undo)
    return await _try(rollback, undo, run_again(undo.call, undo.tool))


async def _run_held(rollback: _Rollback, undo: Undo) -> Rested | None:
    """Run a call again that somebody has to let in first; it rests until they did (LOG 5.7)."""
    branch = undo.branch
    opened = await _opened(rollback, branch)
    if await settle_gates(branch.driven or rollback.driven, opened, ()):
        return None
    tallied = tallied_answers(opened.view, branch.tools).get(undo.call.call_id)
    if tallied is None or tallied.output is not None:  # a denial says nothing of what it did
        return await _halt(rollback, undo)
    return await _try(rollback, undo, tallied)


async def _try(rollback: _Rollback, undo: Undo, again: Answer) -> Rested | None:
    """Run a call again, once; where nothing came of it, the next driver does (LOG 9)."""
    rested = await _answer(rollback, undo.branch, [again])
    if rested is not None or not await _is_as_unknown(rollback, undo):
        return rested
    return await _halt(rollback, undo)


async def _is_as_unknown(rollback: _Rollback, undo: Undo) -> bool:
    """Whether a call gave nothing, did not fail and does not wait, although it was run again."""
    if await _stop_waits(rollback):
        return False
    view = (await read_run(rollback.recording.store, undo.branch.session.id)).view()
    call = view.calls.of_entry(undo.call.entry)
    if call is None or call.output or call.landed is not None or call.waits:
        return False
    return call.entry not in view.saga.failed


async def _halt(rollback: _Rollback, undo: Undo) -> Rested | None:
    """Ask the reconcilers; what they do not know waits for a person."""
    branch, recording = undo.branch, rollback.recording
    authority = Authority(view=branch.view, now=rollback.driven.clock.wall(), rolls_back=True)
    found = {} if undo.step else await reconcile(authority, branch.tools)
    if found:
        never_ran = [_never_ran(branch, one) for one in found.values() if one.output is None]
        if never_ran:
            opened = await _opened(rollback, branch)
            await opened.append(*never_ran)
        outputs = [one for one in found.values() if one.output is not None]
        return await _answer(rollback, branch, outputs) if outputs else None
    halted = recording.view.saga.halted
    if halted is None:
        await _tell(
            recording,
            "halted",
            call_id=undo.call.call_id,
            target=undo.call.entry,
            session=branch.session.id,
            step=undo.step,
            cause=undo.reason,
            report=_report(rollback),
        )
    return Rested(status="halted")


async def _answer(rollback: _Rollback, branch: Branch, answers: Sequence[Answer]) -> Rested | None:
    """Drive the loop for the answers of calls alone; no model is asked."""
    recording = await _opened(rollback, branch)
    driven = branch.driven or rollback.driven
    whole = len(answers) == len(recording.view.calls.open)  # else what is open ends the drive
    given = tuple(msgspec.structs.replace(one, terminate=whole) for one in answers)
    end = await rollback.forth(driven, recording, Opening(answers=given))
    if end.reason in ("error", "aborted") and not isinstance(end.error, Tripped):
        if await _stop_waits(rollback):
            return None  # it is refused, and the rollback goes on
        return Rested(status="failed" if end.reason == "error" else "aborted", end=end)
    await recording.recorder.appender.ticket
    return None


async def _stop_waits(rollback: _Rollback) -> bool:
    root = rollback.recording
    return any(one.stop for one in await root.store.unconsumed(root.session.id))


async def _opened(rollback: _Rollback, branch: Branch) -> Recording:
    """A session of the tree, to be written to under the lease of its root."""
    root = rollback.recording
    if branch.session.id == root.session.id:
        return root
    driven = branch.driven or rollback.driven
    recording = await go_on(
        root.store,
        branch.session.id,
        keep=driven.keep,
        clock=driven.clock,
        ids=driven.ids,
        held=root.held,
    )
    recording.host = root.host
    return recording


# --- messages ------------------------------------------------------------------------------------


async def _take_messages(rollback: _Rollback) -> bool:
    """Take what waits for the sessions of the tree; whether there was anything."""
    recording = rollback.recording
    for branch in rollback.tree.whole():
        messages = await recording.store.unconsumed(branch.session.id)
        if not messages:
            continue
        if branch is not rollback.tree and recording.view.saga.halted is not None:
            await _tell(recording, "resumed")  # a crash must not leave it halted
        await _take(rollback, branch, messages)
        return True
    return False


async def _take(rollback: _Rollback, branch: Branch, messages: Sequence[Message]) -> None:
    opened = await _opened(rollback, branch)
    now = rollback.driven.clock.wall()
    taken = consume(Authority(view=opened.view, now=now, rolls_back=True), messages)
    denials = {one.id for one in messages if isinstance(decode_told(one), Deny)}
    drafts = [*taken.drafts, *_refused(taken)]
    answers: list[Answer] = []
    for answer in taken.answers.values():
        message = answer.provenance.message if answer.provenance else ""
        if message not in denials and (answer.output is not None or _lets_in(branch, answer)):
            answers.append(answer)
        elif answer.run_again and answer.output is None:
            drafts.append(_never_ran(branch, answer))
        else:
            drafts.append(_refusal(message))
    if drafts:
        await opened.append(*drafts)
    elif answers:
        await _answer(rollback, branch, answers)


def _lets_in(branch: Branch, answer: Answer) -> bool:
    """Whether it lets a call be run forward that waits for that."""
    call = branch.view.calls.open[answer.call_id]
    again = run_again(call, branch.tools.get(call.call.name))
    return not answer.run_again and call.waits and call.dispatched and again.output is None


def _refused(taken: Taken) -> list[Draft]:
    return [_refusal(taken.cancel[0].id)] if taken.cancel is not None else []


def _refusal(message: str) -> Draft:
    return Draft("perdure:refused", {"reason": BEING_ROLLED_BACK, MESSAGE: message})


def _never_ran(branch: Branch, answer: Answer) -> Draft:
    """What says that a call which may have run never did, so that nothing is to be undone."""
    call = branch.view.calls.open[answer.call_id]
    said = answer.provenance
    body: Json = {
        "phase": "never_ran",
        "call_id": answer.call_id,
        "target": call.entry,
        "cause": answer.reason,
    }
    if said is not None:
        more = {"perdure:who": said.who, MESSAGE: said.message}
        body |= {name: value for name, value in more.items() if value}
        if said.evidence:
            body["perdure:evidence"] = msgspec.Raw(said.evidence.encode())
    return Draft("perdure:saga", body)


# --- the end -------------------------------------------------------------------------------------


async def _close(rollback: _Rollback) -> None:
    """Close what is open in the tree, its sub-agents first (LOG 5.9)."""
    saga, ids = rollback.recording.view.saga, rollback.driven.ids
    tripped, undone = saga.tripped, saga.undone
    cancelled = tripped is not None and tripped.phase == "cancelled"
    status = "cancelled" if cancelled else ROLLED_BACK
    for branch in rollback.tree.whole():
        if branch.view.closed is not None:
            continue
        recording = await _opened(rollback, branch)
        close_calls(recording, ids, OF_ROLLBACK)
        body: Json = {"status": status}
        if branch is rollback.tree and tripped is not None and undone is not None:
            told = {"cause": tripped.cause, "who": tripped.who, "report": undone.report or {}}
            body |= {name: value for name, value in told.items() if value != ""}
        await recording.append(Draft("perdure:closed", body))
