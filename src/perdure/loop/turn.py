"""The model's half of a turn: one request, its stream, and what came of it."""

from __future__ import annotations

from typing import NamedTuple

from perdure.errors import BadBody, Rejected, Truncated
from perdure.loop.attempt import Attempt
from perdure.loop.events import ResponseEnd, StopCause
from perdure.loop.model import ModelRequest, close, is_terminal
from perdure.loop.state import Drive
from perdure.loop.usage import add
from perdure.wire import (
    FunctionCall,
    Response,
    ResponseFailed,
    ResponseIncomplete,
    StreamEvent,
)


class Answer(NamedTuple):
    """What a model call gave."""

    response: Response
    calls: tuple[FunctionCall, ...]
    cut: StopCause | None
    """Set if the response was truncated or filtered: it is no answer, and its calls never run."""


async def call_model(drive: Drive, request: ModelRequest) -> Answer:
    """Send a request and read its stream, delivering items as they come.

    Raises:
        ModelError: The call failed. What the model had begun stands in `drive.partial`.
    """
    attempt = Attempt(drive.run_id, drive.turn, drive.transcript)
    try:
        last = await _read(drive, attempt, request)
    except BaseException:
        drive.partial = attempt.partial()
        raise
    response = attempt.fold.response()
    if isinstance(last, ResponseFailed):
        await _end_response(drive, response)
        raise failure(response)
    for event in attempt.close(response):
        await drive.delivery.deliver(event)
    await _end_response(drive, response)
    calls = tuple(item for item in attempt.completed if isinstance(item, FunctionCall))
    return Answer(response, calls, _cut(response) if isinstance(last, ResponseIncomplete) else None)


async def _read(drive: Drive, attempt: Attempt, request: ModelRequest) -> StreamEvent:
    """Read a stream to its terminal event. An abort cuts the waits, not the deliveries."""
    stream = drive.config.model.stream(request)
    deliver, guard = drive.delivery.deliver, drive.signal.guard
    try:
        while True:
            try:
                event = await guard(anext(stream))
            except StopAsyncIteration:
                raise Truncated from None
            for told in attempt.feed(event):
                await deliver(told)
            if is_terminal(event):
                return event
    finally:
        await close(stream)


async def _end_response(drive: Drive, response: Response) -> None:
    drive.usage = add(drive.usage, response.usage)
    await drive.delivery.deliver(
        ResponseEnd(run_id=drive.run_id, turn=drive.turn, response=response)
    )


def failure(response: Response) -> Rejected | BadBody:
    """The error of a response that failed."""
    if not response.error:
        return BadBody("the response failed and its server did not say why")
    error = response.error
    code = None if error.code in (None, "") else str(error.code)
    return Rejected(error.message, type=error.type or "server_error", code=code)


def _cut(response: Response) -> StopCause:
    details = response.incomplete_details
    reason = details.reason if details else ""
    return "content_filter" if reason == "content_filter" else "length"
