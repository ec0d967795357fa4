"""One turn, phase by phase.

1. Look whether to stop. 2. `before_turn`. 3. Resolve the tools. 4. Build the request; a hook that
refuses it is `model_blocked`. 5. Reserve what it may take, `turn_start`. 6. The model call. 7. The
batch. 8. `turn_end`. 9. A held call ends the drive as `input_required`. 10. `should_stop`.
11. Calls that are the answer. 12. Results that terminate. 13. The turn limit. 14. The queues.

Whatever stops the drive in 9 to 13 is decided before the queues are looked at; what waits there
goes to the next drive. An answer, with calls or without, is one only if nothing is queued.
"""

from __future__ import annotations

from collections.abc import Iterable

from perdure.loop.batch import BatchEnd, run_batch
from perdure.loop.events import ModelBlocked, StopCause, TurnEnd, TurnStart
from perdure.loop.losses import losses_of
from perdure.loop.middleware import TurnInfo, TurnStartInfo
from perdure.loop.model import ModelRequest
from perdure.loop.modelcall import Answer, call_model, reserved
from perdure.loop.request import build_request, for_its_model, resolve_tools
from perdure.loop.state import Drive, Outcome, add, add_waiting, keep
from perdure.loop.trigger import unhide
from perdure.tools import ToolResult
from perdure.wire import FunctionCall, Item, developer, function_call_output

NOT_RUN_CUT = "Error: not run: the response that made this call was cut"
"""The output of a call whose response was truncated, filtered or broke off (DESIGN 6.6)."""

NOT_RUN_WITHHELD = "Error: not run: the response that made this call was withheld"
"""The output of a call whose response a guard withheld. Never the guard's own words."""


async def run_turn(drive: Drive) -> Outcome | None:
    """Run a turn. None means that another follows."""
    drive.signal.check()
    if not drive.asked and _is_answered(drive):  # by what a resume ran, or before a crash
        outcome = await _done_unless_queued(drive)
        if outcome is not None:
            return outcome
    drive.turn += 1
    request = await _begin_turn(drive)
    try:
        answer = await call_model(drive, request)
    except BaseException:
        for call in drive.broken:
            await keep(drive, function_call_output(call.call_id, NOT_RUN_CUT))
        raise
    if answer.guard is not None:
        drive.withheld = True
        await _answer_not_run(drive, answer.calls, NOT_RUN_WITHHELD)
        return Outcome("stopped", "guard", answer.guard)
    if answer.cut is not None:
        await _answer_not_run(drive, answer.calls, NOT_RUN_CUT)
        await _end_turn(drive, answer, ())
        return Outcome("stopped", answer.cut)
    if not answer.calls:
        return await _finish(drive, answer)
    batch = await run_batch(drive, answer.calls)
    await add_batch(drive, batch)
    await _end_turn(drive, answer, batch.results)
    return await _after_batch(drive, answer, batch)


async def _begin_turn(drive: Drive) -> ModelRequest:
    """Phases 2 to 5."""
    info = TurnStartInfo(
        run_id=drive.run_id,
        turn=drive.turn,
        transcript=drive.transcript.snapshot(),
        inputs=tuple(drive.inputs),
    )
    for given in await drive.hooks.before_turn(info):
        item, hidden = unhide(given)
        await add(drive, item, "hook", hidden=hidden)
    await _resolve_tools(drive)
    built = await build_request(drive)
    try:
        request = for_its_model(drive, await drive.hooks.before_model_call(built), built)
    except Exception as error:
        await drive.delivery.deliver(
            ModelBlocked(run_id=drive.run_id, turn=drive.turn, request=built, error=error)
        )
        raise
    await reserved(drive, request)
    inputs, drive.inputs = tuple(drive.inputs), []
    drive.asked += 1
    await drive.delivery.deliver(
        TurnStart(
            run_id=drive.run_id,
            turn=drive.turn,
            request=request,
            inputs=inputs,
            losses=losses_of(drive.config.model, request),
        )
    )
    await drive.signal.guard(drive.delivery.settle())
    _tell_delivered(drive)
    return request


async def _resolve_tools(drive: Drive) -> None:
    if drive.config.tool_provider is not None or drive.turn == 1:
        tools = await resolve_tools(drive.config)
        if drive.turn == 1 or list(tools) != list(drive.tools):
            drive.tools = tools


def _tell_delivered(drive: Drive) -> None:
    """A request goes out: whoever delivered what it carries may know."""
    delivered, drive.delivered = drive.delivered, []
    for waiting in delivered:
        if waiting.taken is not None and not waiting.taken.done():
            waiting.taken.set_result(True)


async def _answer_not_run(drive: Drive, calls: Iterable[FunctionCall], text: str) -> None:
    for call in calls:
        await add(drive, function_call_output(call.call_id, text), "tool")


async def add_batch(drive: Drive, batch: BatchEnd) -> None:
    """Append the outputs of a batch in the model's order, then its notes.

    Raises:
        Exception: What telling of one raised; all outputs are in the transcript nevertheless.
    """
    failures = [
        await keep(drive, output, "resume" if output.call_id in batch.known else "tool")
        for output in batch.outputs
    ]
    for failure in failures:
        if failure is not None:
            raise failure
    drive.signal.check()
    for note in batch.notes:
        await add(drive, developer(note), "tool")


async def _end_turn(drive: Drive, answer: Answer, results: tuple[ToolResult, ...]) -> None:
    await drive.delivery.deliver(
        TurnEnd(
            run_id=drive.run_id, turn=drive.turn, response=answer.response, tool_results=results
        )
    )


async def _finish(drive: Drive, answer: Answer) -> Outcome | None:
    """A turn without calls: the answer, unless something waits in a queue."""
    await _end_turn(drive, answer, ())
    if await _should_stop(drive, answer, (), final=True):
        return Outcome("stopped", "hook")
    correction = _judge(drive, final=True)
    if correction is None:
        return await _done_unless_queued(drive)
    await add(drive, correction, "hook", hidden=True)
    await add_waiting(drive, drive.queues.take_steering())
    limit = limit_of(drive)
    return Outcome("stopped", limit) if limit is not None else None


async def _done_unless_queued(drive: Drive) -> Outcome | None:
    waits = bool(drive.queues.steering or drive.queues.follow_ups)
    if not waits:
        drive.taking = False
        return Outcome("done")
    limit = limit_of(drive)
    if limit is not None:
        return Outcome("stopped", limit)
    await add_waiting(drive, drive.queues.take_steering() or drive.queues.take_follow_ups())
    return None


def _is_answered(drive: Drive) -> bool:
    answering = drive.config.answering
    return answering is not None and answering.given(drive.transcript.snapshot())


def _judge(drive: Drive, *, final: bool) -> Item | None:
    answering = drive.config.answering
    if answering is None:
        return None
    return answering.judge(drive.transcript.snapshot(), final=final)


async def _after_batch(drive: Drive, answer: Answer, batch: BatchEnd) -> Outcome | None:
    """Phases 9 to 14."""
    paused = paused_by(drive, batch)
    if paused is not None:
        return paused
    if await _should_stop(drive, answer, batch.results, final=False):
        return Outcome("stopped", "hook")
    if _is_answered(drive):
        return await _done_unless_queued(drive)
    _judge(drive, final=False)
    if batch.terminates == "all":
        return Outcome("stopped", "terminate")
    if batch.terminates == "some":
        return Outcome("stopped", "partial_terminate")
    limit = limit_of(drive)
    if limit is not None:
        return Outcome("stopped", limit)
    await add_waiting(drive, drive.queues.take_steering())
    return None


def paused_by(drive: Drive, batch: BatchEnd) -> Outcome | None:
    """Why a batch lets no turn follow: a budget refused what a call started, or a call is held."""
    if drive.spending.exceeded is not None:
        return Outcome("stopped", "budget", drive.spending.exceeded)
    return Outcome("input_required") if batch.held else None


def limit_of(drive: Drive) -> StopCause | None:
    """What keeps another turn from following, if anything does."""
    config = drive.config
    turns = config.max_turns if config.left.turns is None else config.left.turns
    if turns is not None and drive.turn >= turns:
        return "max_turns"
    seconds = config.max_seconds if config.left.seconds is None else config.left.seconds
    taken = config.clock.monotonic() - drive.started
    return "budget" if seconds is not None and taken >= seconds else None


async def _should_stop(
    drive: Drive, answer: Answer, results: tuple[ToolResult, ...], *, final: bool
) -> bool:
    return await drive.hooks.should_stop(
        TurnInfo(
            run_id=drive.run_id,
            turn=drive.turn,
            response=answer.response,
            tool_results=results,
            final=final,
            transcript=drive.transcript.snapshot(),
        )
    )
