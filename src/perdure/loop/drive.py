"""One drive: from an input until the loop stops calling the model.

A drive is functions over `Drive`, the data of one pass. It raises nothing: whatever happens becomes
its `run_end`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from perdure.errors import Aborted, CannotContinue, InputRequired, NoPrompt
from perdure.loop.batch import run_batch
from perdure.loop.config import Config
from perdure.loop.events import Reason, RunEnd, RunStart, TurnEnd, TurnInput, TurnStart
from perdure.loop.model import ModelRequest
from perdure.loop.pending import PendingCall, PendingReason, unanswered
from perdure.loop.state import Drive, Outcome, add
from perdure.loop.transcript import Transcript
from perdure.loop.turn import call_model
from perdure.tools import ToolResult, ToolSet
from perdure.wire import (
    ABSENT,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Request,
    Response,
    function_call_output,
)

NOT_RUN_CUT = "Error: not run: the response that made this call was cut"
"""The output of a call whose response was cut or filtered (DESIGN 6.6)."""


async def run_drive(drive: Drive, prompts: tuple[Item, ...]) -> RunEnd:
    """Run a drive to its end and deliver it.

    Returns:
        The end that was delivered. If the end itself could not be made durable, an end with reason
        `error` and that failure, which nobody else was told.
    """
    outcome = await _outcome(drive, prompts)
    end = _end(drive, outcome)
    try:
        await drive.delivery.finish(end)
    except Exception as error:  # noqa: BLE001 - a ledger or a subscriber may raise anything
        return _end(drive, Outcome("error", None, error))
    return end


async def _outcome(drive: Drive, prompts: tuple[Item, ...]) -> Outcome:
    try:
        await _begin(drive, prompts)
        return await _turns(drive)
    except Aborted as error:
        return Outcome("aborted", None, error)
    except asyncio.CancelledError:
        return Outcome("aborted", None, Aborted("the event loop is closing"))
    except Exception as error:  # noqa: BLE001 - a model, a hook, a ledger may raise anything
        reason: Reason = "aborted" if error is drive.signal.cause else "error"
        return Outcome(reason, None, error)


def check_input(transcript: Transcript, prompts: tuple[Item, ...]) -> None:
    """Whether a drive may begin from `transcript` and `prompts`.

    Raises:
        NoPrompt: There is neither.
        CannotContinue: The last item is nothing a model can answer.
        InputRequired: A call has no output.
    """
    items = [*transcript.snapshot(), *prompts]
    if not items:
        raise NoPrompt
    open_calls = unanswered(items)
    if open_calls:
        raise InputRequired(tuple(call.call_id for call in open_calls))
    if not can_continue(items[-1]):
        raise CannotContinue


def can_continue(last: Item) -> bool:
    """Whether a model has something to answer after `last`."""
    if isinstance(last, Message):
        return last.role != "assistant"
    return isinstance(last, FunctionCallOutput)


async def _begin(drive: Drive, prompts: tuple[Item, ...]) -> None:
    drive.signal.check()
    await drive.delivery.deliver(RunStart(run_id=drive.run_id, source=drive.source))
    if not prompts:
        drive.inputs = [TurnInput(item=i, mode="continued") for i in _tail(drive.transcript)]
    for item in prompts:
        await add(drive, item, "prompt")


def _tail(transcript: Transcript) -> list[Item]:
    """What stands after the model's last word."""
    tail: list[Item] = []
    for item in reversed(transcript.snapshot()):
        if not can_continue(item):
            break
        tail.append(item)
    return tail[::-1]


async def _turns(drive: Drive) -> Outcome:
    settings = request_settings(drive.config, drive.tools)
    while True:
        outcome = await _turn(drive, settings)
        if outcome is not None:
            return outcome


async def _turn(drive: Drive, settings: Request) -> Outcome | None:
    """One turn. None means that another follows."""
    drive.signal.check()
    drive.turn += 1
    request = ModelRequest(settings=settings, input=drive.outgoing.snapshot())
    inputs, drive.inputs = tuple(drive.inputs), []
    await drive.delivery.deliver(
        TurnStart(run_id=drive.run_id, turn=drive.turn, request=request, inputs=inputs)
    )
    await drive.signal.guard(drive.delivery.settle())
    answer = await call_model(drive, request)
    if answer.cut is not None:
        await _answer_not_run(drive, answer.calls)
        await _end_turn(drive, answer.response)
        return Outcome("stopped", answer.cut)
    if not answer.calls:
        await _end_turn(drive, answer.response)
        return Outcome("done")
    batch = await run_batch(drive, answer.calls)
    for output in batch.outputs:
        await add(drive, output, "tool")
    drive.signal.check()
    await _end_turn(drive, answer.response, batch.results)
    return _after_batch(drive, batch.terminate)


def _after_batch(drive: Drive, terminate: tuple[bool, ...]) -> Outcome | None:
    if all(terminate):
        return Outcome("stopped", "terminate")
    if any(terminate):
        return Outcome("stopped", "partial_terminate")
    if drive.config.max_turns is not None and drive.turn >= drive.config.max_turns:
        return Outcome("stopped", "max_turns")
    return None


async def _answer_not_run(drive: Drive, calls: Iterable[FunctionCall]) -> None:
    for call in calls:
        await add(drive, function_call_output(call.call_id, NOT_RUN_CUT), "tool")


async def _end_turn(drive: Drive, response: Response, results: tuple[ToolResult, ...] = ()) -> None:
    await drive.delivery.deliver(
        TurnEnd(run_id=drive.run_id, turn=drive.turn, response=response, tool_results=results)
    )


def request_settings(config: Config, tools: ToolSet) -> Request:
    """The members of every request of a drive but its input.

    They do not vary within a drive, so a provider's prompt cache holds (DESIGN 6.8).
    """
    definitions = tools.definitions()
    return msgspec.structs.replace(
        config.settings,
        model=config.model_name or config.settings.model,
        instructions=config.instructions or config.settings.instructions,
        tools=definitions or ABSENT,
        store=False,
        stream=ABSENT,
    )


def _end(drive: Drive, outcome: Outcome) -> RunEnd:
    snapshot = drive.transcript.snapshot()
    pending = [
        drive.why.get(call.call_id) or _undecided(call, outcome) for call in unanswered(snapshot)
    ]
    return RunEnd(
        run_id=drive.run_id,
        items=tuple(snapshot[drive.start :]),
        reason=outcome.reason,
        cause=outcome.cause,
        error=outcome.error,
        pending=tuple(pending),
        partial=drive.partial,
        turns=drive.turn,
        usage=drive.usage,
    )


def _undecided(call: FunctionCall, outcome: Outcome) -> PendingCall:
    """A call of which the drive knows nothing: one it made never ran, one it found may have."""
    reason: PendingReason = "unknown" if outcome.reason == "error" else "undispatched"
    return PendingCall(call=call, reason=reason)
