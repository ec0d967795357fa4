"""Telling a run something, from any process: what operators, webhooks and timers do (LOG 3).

Each function checks what it is told against the record, as advice, and puts a message. The driver
checks it again, with authority, and turns it into an entry. What is refused here has written
nothing.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from perdure.clock import Clock, Ids
from perdure.durable.addressing import NOBODY, Said, Target, addressed, otherwise, put
from perdure.durable.below import check_is_here
from perdure.durable.cancelling import CANCELLED, cancel_children, cancel_run
from perdure.durable.consuming import (
    Authority,
    consume,
    dispatch_of,
    no_retry,
    not_halted,
    too_young,
    working,
)
from perdure.durable.given import check_name, check_texts
from perdure.durable.messages import (
    Approve,
    Cancel,
    Deny,
    Reply,
    Resolve,
    Retry,
    Sent,
    Signal,
    message_of,
)
from perdure.durable.replies import fault_in
from perdure.durable.sameness import is_same_json
from perdure.durable.state import read_run
from perdure.errors import (
    AlreadyResolved,
    ConfigError,
    HaltTooYoung,
    Leased,
    NotHalted,
    NotHeld,
    RunFinished,
    ToolError,
    WrongAnswer,
)
from perdure.log import Call, Session, Store, View, go_on
from perdure.log.context import item_of
from perdure.log.entries import ItemEntry
from perdure.log.header import PROGRAM
from perdure.log.timestamps import wall_of
from perdure.seconds import check_seconds
from perdure.tools import arguments_digest, error_result, parse_arguments
from perdure.tools.result import given_json
from perdure.wire import FunctionCallOutput

HOLDER = "an operator"
"""Who closes a run that is cancelled while nobody drives it."""


async def tell_approve(
    store: Store, target: Target, said: Said, *, arguments: str | None = None, note: str = ""
) -> None:
    """Let a held call run.

    Raises:
        NoRun: There is no such run.
        RunFinished: It is over.
        NotHeld: The call does not wait for a decision.
        AlreadyResolved: Somebody decided otherwise.
        ConfigError: The arguments are no JSON object.
    """
    if arguments is not None:
        parse_arguments(arguments, required=False)
    session, call = await _held(store, target, f"approved by {said.who or NOBODY}")
    if call is None:
        return
    told = Approve(
        who=said.who,
        reason=said.reason,
        call_id=call.call_id,
        hold=call.decisions[-1].id,
        digest=arguments_digest(call.arguments),
        arguments=arguments,
        note=note,
    )
    await put(store, target, session, told)


async def tell_deny(store: Store, target: Target, said: Said, *, note: str = "") -> None:
    """Refuse a held call. Raises as `tell_approve`."""
    session, call = await _held(store, target, f"denied by {said.who or NOBODY}")
    if call is None:
        return
    told = Deny(
        who=said.who,
        reason=said.reason,
        call_id=call.call_id,
        hold=call.decisions[-1].id,
        digest=arguments_digest(call.arguments),
        note=note,
    )
    await put(store, target, session, told)


async def tell_resolve(
    store: Store,
    target: Target,
    said: Said,
    *,
    clock: Clock,
    output: str | None = None,
    failed: str | None = None,
    evidence: object = None,
    min_age: float | None = None,
) -> None:
    """Say what came of a call that may have run.

    Args:
        store: Where the run is.
        target: The call.
        said: Who says so, and why.
        clock: What the age is read from.
        output: What the tool gave; None to say that it never ran, unless it failed.
        failed: Why it failed, and did nothing.
        evidence: Any JSON value: what the word rests on.
        min_age: For a call that never ran: seconds after which its tool has ended for certain. What
            its timeout says needs no word.

    Raises:
        NoRun: There is no such run.
        RunFinished: It is over.
        NotHalted: The call's outcome is not unknown.
        AlreadyResolved: Somebody said otherwise.
        HaltTooYoung: The call may still be running.
        ConfigError: Nobody knows how long the tool may take, or the evidence is not JSON.
    """
    at = await addressed(store, target)
    view, age = at.view, _age(min_age)
    check_texts(output=output or "", failed=failed or "")
    if failed is not None:
        output = error_text(failed)
    call = view.calls.open.get(target.call_id)
    if call is None:
        if _resolved_alike(view, target, output):
            return
        raise NotHalted(target.run_id, target.call_id, _no_call(view, target))
    if why := not_halted(call, rolls_back=at.rolls_back):
        raise NotHalted(target.run_id, target.call_id, why)
    if output is None:
        _check_age(view, target, call, clock, min_age)
    told = Resolve(
        who=said.who,
        reason=said.reason,
        call_id=target.call_id,
        dispatch=dispatch_of(call),
        output=output,
        failed=failed or ("it failed" if failed is not None else ""),
        evidence=evidence_json(evidence),
        min_age=age,
    )
    await put(store, target, at.session, told)


async def tell_step(
    store: Store,
    target: Target,
    said: Said,
    step: str,
    *,
    clock: Clock,
    value: object = None,
    never_ran: bool = False,
    evidence: object = None,
    min_age: float | None = None,
) -> None:
    """Say what came of a step of a call that may have run.

    Args:
        store: Where the run is.
        target: The call.
        said: Who says so, and why.
        step: The name of the step.
        clock: What the age is read from.
        value: Any JSON value: what the step gave.
        never_ran: It never ran, so it is taken again.
        evidence: Any JSON value: what the word rests on.
        min_age: For one that never ran: seconds after which it has ended for certain.

    Raises:
        NoRun: There is no such run.
        RunFinished: It is over.
        NotHalted: The step's outcome is not unknown.
        AlreadyResolved: Somebody said otherwise.
        HaltTooYoung: The step may still be running.
        ConfigError: Nobody knows how long the step may take, or a value is not JSON.
    """
    least = _age(min_age)
    session = (await addressed(store, target)).session
    view = session.view()
    found = working(view, target.call_id)
    taken = found.work.steps.get(step) if found is not None else None
    if taken is None or not taken.is_open or taken.start is None:
        known = ", ".join(found.work.halted_steps) if found is not None else ""
        halts = f"; what halts is {known}" if known else ""
        raise NotHalted(target.run_id, target.call_id, f"step {step!r} is not open{halts}")
    if never_ran:
        if min_age is None:
            raise ConfigError("say with min_age after how many seconds the step has ended")
        age = (clock.wall() - wall_of(taken.start.ts)) / 1e9
        if age < least or age < 0:
            raise HaltTooYoung(target.run_id, target.call_id, age, least)
    told = Resolve(
        who=said.who,
        reason=said.reason,
        call_id=target.call_id,
        step=step,
        dispatch=taken.start.id,
        output=None if never_ran else given_json(value, f"what step {step!r} gave"),
        evidence=evidence_json(evidence),
        min_age=least,
    )
    await put(store, target, session, told)


async def tell_signal(store: Store, target: Target, said: Said, name: str, value: object) -> None:
    """Tell a run that something happened; the first signal of a name stands.

    Raises:
        NoRun: There is no such run.
        RunFinished: It is over.
        AlreadyResolved: The signal came before, with another value.
        WaitsBelow: Only sub-agents of the run wait for it, and no session is named.
        ConfigError: The name cannot be used, or the value is not JSON.
    """
    check_name(name, "signal")
    raw = _raw(value, f"the value of signal {name!r}")
    at = await addressed(store, target)
    session, view = at.session, at.view
    told = Signal(who=said.who, reason=said.reason, name=name, value=raw)
    before = view.work.signals.get(name)
    if before is not None:
        if not is_same_json(bytes(before.value), bytes(told.value)):
            raise otherwise(target, msgspec.structs.replace(told, value=before.value))
        return
    await check_is_here(store, target, at, told)
    await put(store, target, session, told)


async def tell_send(
    store: Store, target: Target, said: Said, channel: str, value: object, *, key: str
) -> None:
    """Send a message to a channel of a run; the first of a key stands.

    Raises:
        NoRun: There is no such run.
        RunFinished: It is over.
        AlreadyResolved: The channel has a message of this key with another value.
        WaitsBelow: Only sub-agents of the run receive from it, and no session is named.
        ConfigError: The channel or the key cannot be used, or the value is not JSON.
    """
    check_name(channel, "channel")
    check_name(key, "message")
    raw = _raw(value, f"message {key!r} of channel {channel!r}")
    at = await addressed(store, target)
    session, view = at.session, at.view
    told = Sent(who=said.who, reason=said.reason, channel=channel, key=key, value=raw)
    before = view.work.channels.get(channel, {}).get(key)
    if before is not None:
        if not is_same_json(bytes(before.value), bytes(told.value)):
            raise otherwise(target, msgspec.structs.replace(told, value=before.value))
        return
    await check_is_here(store, target, at, told)
    await put(store, target, session, told)


async def tell_reply(store: Store, target: Target, said: Said, key: str, value: object) -> None:
    """Answer a question of a call.

    Raises:
        NoRun: There is no such run.
        RunFinished: It is over.
        NotHeld: The call does not ask this.
        AlreadyResolved: Somebody answered otherwise.
        WrongAnswer: The answer is not of the type that was asked for.
        ConfigError: The value is not JSON.
    """
    check_name(key, "question")
    raw = _raw(value, f"the answer to {key!r}")
    session = (await addressed(store, target)).session
    view = session.view()
    found = working(view, target.call_id)
    wait = found.work.waits.get(("interrupt", key)) if found is not None else None
    if wait is None or wait.lost:
        asked = found.work.open_waits if found is not None else ()
        keys = [repr(one.begin.name) for one in asked if one.begin.kind == "interrupt"]
        asks = f", it asks {', '.join(keys)}" if keys else ""
        raise NotHeld(target.run_id, target.call_id, f"it does not ask {key!r}{asks}")
    if wait.end is not None:
        if not is_same_json(bytes(wait.end.value), bytes(raw)):
            raise AlreadyResolved(target.run_id, target.call_id, bytes(wait.end.value).decode())
        return
    if fault := fault_in(wait.begin, bytes(raw).decode()):
        raise WrongAnswer(target.run_id, target.call_id, fault)
    told = Reply(
        who=said.who,
        reason=said.reason,
        call_id=target.call_id,
        begin=wait.begin.id,
        value=raw,
    )
    await put(store, target, session, told)


def evidence_json(evidence: object) -> str:
    """What a word rests on, as JSON text; empty if on nothing.

    Raises:
        ConfigError: It is not JSON.
    """
    return given_json(evidence, "the evidence") if evidence is not None else ""


def _raw(value: object, what: str) -> Raw:
    return Raw(given_json(value, what).encode())


async def tell_retry(store: Store, run_id: str, said: Said) -> None:
    """Let a run go on that a limit stopped, or a program in which too many processes died.

    Raises:
        NoRun: There is no such run.
        RunFinished: It is over.
        ConfigError: Neither is so.
    """
    target = Target(run_id, "")
    session = (await addressed(store, target)).session
    view = session.view()
    last = view.drives.last
    why = no_retry(view)
    if why or last is None or last.end is None:
        raise ConfigError(f"run {run_id!r} cannot be retried: {why}")
    told = Retry(who=said.who, reason=said.reason, end=last.end.id)
    await put(store, target, session, told)


async def tell_cancel(store: Store, run_id: str, said: Said, *, clock: Clock, ids: Ids) -> None:
    """Stop a run for good, by the store's own refusal of what would begin after it (LOG 3.5).

    When it returns, no call begins any more whose tool has an effect, no `keyed` or `once` step and
    no transaction. An `idempotent` step is written only when it ends: in a call that is under way,
    one may begin until the driver has heard of the cancel and the call's grace is over.

    Where nobody drives the run, it is closed at once; else its driver closes it.

    Raises:
        NoRun: There is no such run.
        RunFinished: It is over.
    """
    target = Target(run_id, "")
    session = (await addressed(store, target)).session
    told = Cancel(who=said.who, reason=said.reason)
    message = message_of(told, session)
    await store.put(session.id, message, stop=True)
    await _close_now(store, session.id, clock=clock, ids=ids)
    over = (await read_run(store, session.id)).view().closed
    if over is not None and over.status != CANCELLED:  # it ended before the stop was put
        raise RunFinished(run_id, over.status)


CLOSED_HERE = frozenset({"run", PROGRAM})
"""The kinds of runs that are over when they are cancelled; others have to undo something."""


async def _close_now(store: Store, session: str, *, clock: Clock, ids: Ids) -> None:
    """Close a run that waits to be cancelled, unless somebody drives it."""
    try:
        recording = await go_on(store, session, holder=HOLDER, clock=clock, ids=ids)
    except Leased:
        return
    try:
        header = recording.session.header
        if header.run is None or header.run.kind not in CLOSED_HERE or header.is_saga:
            return  # what has to be undone, its agent undoes
        messages = await store.unconsumed(session)
        authority = Authority(view=recording.view, now=clock.wall())
        taken = consume(authority, [one for one in messages if one.stop])
        if taken.cancel is not None:
            await cancel_children(recording, ids=ids)
            await cancel_run(recording, *taken.cancel, ids=ids)
    finally:
        await recording.close()


# --- what is looked at before --------------------------------------------------------------------


async def _held(store: Store, target: Target, word: str) -> tuple[Session, Call | None]:
    """The call that waits for a decision; None if the same word was taken up already."""
    session = (await addressed(store, target)).session
    view = session.view()
    decided = _decided_before(view, target.call_id)
    if decided == word:
        return session, None
    if decided:
        raise AlreadyResolved(target.run_id, target.call_id, decided)
    call = view.calls.open.get(target.call_id)
    if call is None:
        known = view.calls.named(target.call_id) is not None
        why = "it has its output" if known else "there is no such call"
        raise NotHeld(target.run_id, target.call_id, why)
    if call.suspended:
        raise NotHeld(target.run_id, target.call_id, "its tool waits")
    if call.state != "held":
        raise NotHeld(target.run_id, target.call_id, f"it is {call.state}")
    return session, call


def _decided_before(view: View, call_id: str) -> str:
    """What somebody decided about a call last, if it was told as a message."""
    call = view.calls.named(call_id)
    last = call.decisions[-1] if call is not None and call.decisions else None
    if call is None or last is None or call.waits:
        return ""
    if last.verdict == "proceed" and last.message.startswith("decide/"):
        return f"approved by {last.who or NOBODY}"
    return (
        f"denied by {last.who or NOBODY}" if last.verdict == "reject" and last.by == "human" else ""
    )


def _no_call(view: View, target: Target) -> str:
    """Why there is nothing to resolve where there is no call."""
    if not target.call_id and view.tries.are_used_up:
        return "a program in which processes died goes on with retry, and ends with cancel"
    return "there is no such call"


def _resolved_alike(view: View, target: Target, output: str | None) -> bool:
    """Whether a call that has its output was given the same one by somebody.

    Raises:
        AlreadyResolved: It was given another.
        NotHalted: Nobody had to give it one.
    """
    call = view.calls.named(target.call_id)
    if call is None or not call.output:
        return False
    entry = next((one for one in view.path if one.id == call.output), None)
    item = item_of(entry.item) if isinstance(entry, ItemEntry) else None
    recorded = item.text if isinstance(item, FunctionCallOutput) else ""
    if not any(one.verdict == "answer" for one in call.decisions):
        raise NotHalted(target.run_id, target.call_id, "it has its output")
    if output != recorded:
        raise AlreadyResolved(target.run_id, target.call_id, recorded)
    return True


def error_text(why: str) -> str:
    """What the model reads of a failure that somebody tells."""
    return str(error_result(ToolError(why or "it failed")).output)


def _age(min_age: float | None) -> float:
    if min_age is not None:
        check_seconds("min_age", min_age, zero=True)
    return min_age or 0.0


def _check_age(view: View, target: Target, call: Call, clock: Clock, min_age: float | None) -> None:
    last = call.last_dispatch
    if min_age is None and (last is None or last.lasts is None):
        raise ConfigError(
            f"the tool of call {call.call_id!r} has no timeout: say with min_age after how many "
            "seconds it has ended for certain"
        )
    authority = Authority(view=view, now=clock.wall())
    young = too_young(authority, call, min_age or 0.0)
    if young is not None:
        raise HaltTooYoung(target.run_id, call.call_id, *young)
