"""One drive: from an input or answers until the loop stops calling the model.

A drive is functions over `Drive`, the data of one pass. It raises nothing: whatever happens becomes
its `run_end`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Sequence

from perdure.errors import (
    Aborted,
    BudgetExceeded,
    CannotContinue,
    ConfigError,
    Guard,
    InputRequired,
    NoPrompt,
    NotPending,
)
from perdure.loop.answers import Answer
from perdure.loop.events import InputMode, RunEnd, RunStart, TurnInput
from perdure.loop.pending import PendingCall, PendingReason, unanswered
from perdure.loop.resume import take_answers
from perdure.loop.state import Drive, Outcome, add, add_waiting
from perdure.loop.transcript import Items, Transcript
from perdure.loop.trigger import Hidden, unhide
from perdure.loop.turn import limit_of, run_turn
from perdure.wire import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    ItemReference,
    Message,
    is_extension,
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a drive begins with: items, answers to pending calls, or nothing but the transcript."""

    prompts: tuple[Item | Hidden, ...] = ()
    answers: tuple[Answer, ...] = ()


async def run_drive(drive: Drive, opening: Opening) -> RunEnd:
    """Run a drive to its end and deliver it.

    Returns:
        The end that was delivered. If the end itself could not be made durable, an end with reason
        `error` and that failure, which nobody else was told.
    """
    outcome = await _outcome(drive, opening)
    drive.taking = False
    drive.spending.close()
    end = _end(drive, outcome)
    try:
        end = await _told(drive, outcome, end, drive.delivery.finish)
        end = await _told(drive, outcome, end, drive.hooks.on_end)
    finally:
        _release_deliveries(drive)
    return end


async def _told(
    drive: Drive, outcome: Outcome, end: RunEnd, tell: Callable[[RunEnd], Awaitable[None]]
) -> RunEnd:
    """The end after it was told: another one if that failed."""
    try:
        async with asyncio.timeout(drive.config.wind_down if drive.closing else None):
            await tell(end)
    except Exception as error:  # noqa: BLE001 - a ledger or a subscriber may raise anything
        if end.reason != "error":
            return _end(drive, _after_failure(drive, outcome, error))
    return end


async def _outcome(drive: Drive, opening: Opening) -> Outcome:
    try:
        outcome = await _begin(drive, opening)
        while outcome is None:
            outcome = await run_turn(drive)
    except asyncio.CancelledError:
        drive.closing = True
        drive.signal.abort(Aborted("the event loop is closing"))
        return Outcome("aborted", None, drive.signal.cause)
    except Exception as error:  # noqa: BLE001 - a model, a hook, a ledger may raise anything
        return _after_failure(drive, None, error)
    return outcome


def _after_failure(drive: Drive, before: Outcome | None, error: Exception) -> Outcome:
    """What a drive ends as when something raised.

    A failure while the drive is being aborted is joined to the abort's cause, which stands.
    """
    cause = drive.signal.cause
    if before is not None and before.reason == "error" and before.error is not None:
        return before
    if cause is not None:
        if error is not cause:
            cause.add_note(f"while stopping: {type(error).__name__}: {error}")
            cause.__cause__ = cause.__cause__ or error
        return Outcome("aborted", None, cause)
    if isinstance(error, Guard) and before is None:
        return Outcome("stopped", "guard", error)
    if isinstance(error, BudgetExceeded) and before is None:
        return Outcome("stopped", "budget", error)
    return Outcome("error", None, error)


def check_opening(
    transcript: Items, prompts: Sequence[Item | Hidden], *, waiting: bool = False
) -> None:
    """Whether a drive may begin from `transcript` and `prompts`.

    Args:
        transcript: What there is.
        prompts: What is added.
        waiting: Whether a queue holds what the drive will begin with.

    Raises:
        NoPrompt: There is neither.
        CannotContinue: The last item is nothing a model can answer.
        InputRequired: A call has no output.
        ConfigError: An item is a reference to one that a server holds (DESIGN 5).
    """
    everything = [*transcript, *(unhide(given)[0] for given in prompts)]
    if not everything and not waiting:
        raise NoPrompt
    refuse_references(everything)
    open_calls = unanswered(everything)
    if open_calls:
        raise InputRequired(tuple(call.call_id for call in open_calls))
    last = next((item for item in reversed(everything) if not is_extension(item)), None)
    if not waiting and (last is None or not can_continue(last)):
        raise CannotContinue


def refuse_references(items: Iterable[Item]) -> None:
    """Refuse items that a server holds: the history is always sent whole.

    Raises:
        ConfigError: There is one.
    """
    for item in items:
        if isinstance(item, ItemReference):
            raise ConfigError(
                f"{item.id!r} names an item that a server holds; give the item itself"
            )


def refuse_strange_outputs(transcript: Items, prompts: Sequence[Item | Hidden]) -> None:
    """Refuse leading outputs of calls that do not wait for one.

    Raises:
        NotPending: There is one.
    """
    waiting = {call.call_id for call in unanswered(transcript)}
    for given in prompts:
        item = unhide(given)[0]
        if not isinstance(item, FunctionCallOutput):
            break
        if item.call_id not in waiting:
            raise NotPending(f"the output names the call {item.call_id!r}, which is not pending")
        waiting.remove(item.call_id)


def answering(transcript: Transcript, prompts: Sequence[Item | Hidden]) -> int:
    """How many of the leading prompts answer calls of the transcript."""
    waiting = {call.call_id for call in unanswered(transcript.snapshot())}
    for place, given in enumerate(prompts):
        item = unhide(given)[0]
        if not (isinstance(item, FunctionCallOutput) and item.call_id in waiting):
            return place
    return len(prompts)


def can_continue(last: Item) -> bool:
    """Whether a model has something to answer after `last`."""
    if isinstance(last, Message):
        return last.role != "assistant"
    return isinstance(last, FunctionCallOutput)


async def _begin(drive: Drive, opening: Opening) -> Outcome | None:
    """Everything before the first turn. An outcome means that there is none."""
    leading = answering(drive.transcript, opening.prompts)
    drive.source = "resume" if opening.answers or leading else "input"
    await drive.hooks.before_run(drive.info())
    drive.began = True
    await drive.delivery.deliver(
        RunStart(run_id=drive.run_id, source=drive.source, trigger=drive.trigger)
    )
    drive.signal.check()
    if not opening.answers:
        drive.inputs = [
            TurnInput(item=item, mode="continued") for item in tail(drive.transcript.snapshot())
        ]
    for place, given in enumerate(opening.prompts):
        item, hidden = unhide(given)
        mode: InputMode = "resume" if place < leading else "prompt"
        trigger = drive.trigger if mode == "prompt" else None
        await add(drive, item, mode, hidden=hidden, trigger=trigger)
    outcome = await take_answers(drive, opening.answers) if opening.answers else None
    limit = limit_of(drive) if outcome is None and opening.answers else None
    if limit is not None:
        return Outcome("stopped", limit)
    if outcome is None:
        await add_waiting(drive, drive.queues.take_steering())
    return outcome


def tail(transcript: Items) -> list[Item]:
    """What stands after the model's last word."""
    found: list[Item] = []
    for item in reversed(transcript):
        if not can_continue(item) and not is_extension(item):
            break
        found.append(item)
    return found[::-1]


def _release_deliveries(drive: Drive) -> None:
    """Tell those whose delivery no request has carried that none will."""
    for waiting in drive.delivered:
        if waiting.taken is not None and not waiting.taken.done():
            waiting.taken.set_result(False)


def _end(drive: Drive, outcome: Outcome) -> RunEnd:
    snapshot = drive.transcript.snapshot()
    pending = [
        drive.why.get(call.call_id) or _undecided(drive, call) for call in unanswered(snapshot)
    ]
    return RunEnd(
        run_id=drive.run_id if drive.began else "",
        items=tuple(snapshot[drive.start :]),
        reason=outcome.reason,
        cause=outcome.cause,
        error=outcome.error,
        pending=tuple(pending),
        withheld=drive.withheld,
        partial=drive.partial,
        turns=drive.asked,
        usage=drive.usage,
        spend=drive.spending.spend,
    )


def _undecided(drive: Drive, call: FunctionCall) -> PendingCall:
    """A call nothing was decided on: one of this drive never ran, one found in it may have."""
    found = any(item is call for item in drive.transcript.snapshot()[: drive.start])
    reason: PendingReason = "unknown" if found else "undispatched"
    return PendingCall(call=call, reason=reason, tool=drive.tools.get(call.name))
