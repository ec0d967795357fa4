"""The model's half of a turn: requests until one is answered, and what came of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec

from perdure.errors import BadBody, Guard, ModelError, Truncated
from perdure.loop.attempt import Attempt
from perdure.loop.events import ModelRetry, ResponseEnd, StopCause
from perdure.loop.losses import losses_of
from perdure.loop.model import ModelRequest, close, is_terminal
from perdure.loop.request import for_its_model
from perdure.loop.spending import TELLING, Sent, size_of_output
from perdure.loop.state import Drive
from perdure.loop.usage import add
from perdure.wire import (
    ABSENT,
    ErrorEvent,
    ErrorPayload,
    FunctionCall,
    IncompleteDetails,
    Response,
    ResponseFailed,
    ResponseIncomplete,
    StreamEvent,
    rejected,
)


class Answer(NamedTuple):
    """What a model call gave."""

    response: Response
    calls: tuple[FunctionCall, ...]
    cut: StopCause | None = None
    """Set if the response was truncated or filtered: it is no answer, and its calls never run."""
    guard: Guard | None = None
    """Set if a guard withheld the response; its calls never run either."""


class _AttemptFailed(Exception):
    """The model failed, in contrast to a hook, a subscriber or the ledger."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


async def call_model(drive: Drive, request: ModelRequest) -> Answer:
    """Send a request, again if it fails before its answer begins, and deliver the items.

    Raises:
        ModelError: The call failed. What the model had begun stands in `drive.partial`.
    """
    number = 1
    while True:
        guards = _start_guards(drive, request)
        attempt = Attempt(drive, request.settings.model or "", guards)
        try:
            last = await _read(drive, attempt, request)
            return await _answer(drive, attempt, last, number)
        except Guard as guard:
            return await _withhold(drive, attempt, guard, number)
        except _AttemptFailed as failed:
            drive.partial, drive.broken = attempt.partial(), attempt.calls
            if attempt.committed:
                raise failed.error from None
            request = await _retry(drive, request, number, failed.error)
            number += 1
        except BaseException:
            drive.partial, drive.broken = attempt.partial(), attempt.calls
            raise
        finally:
            await _end_guards(guards)


async def _read(drive: Drive, attempt: Attempt, request: ModelRequest) -> StreamEvent:
    """Read a stream to its terminal event, and settle what its requests took."""
    opening, failure = _Opening(drive), None
    try:
        return await _feed(drive, attempt, opening.open(request), opening)
    except BaseException as error:
        failure = error.error if isinstance(error, _AttemptFailed) else error
        raise
    finally:
        try:
            for stream in opening.streams:
                await close(stream)
        finally:
            if opening.sent is not None:
                spending, fold = drive.spending, attempt.fold
                spending.end(opening.sent, failure, lambda: size_of_output(fold.response()))
            drive.spending.release()


async def _feed(
    drive: Drive, attempt: Attempt, stream: AsyncIterator[StreamEvent], opening: _Opening
) -> StreamEvent:
    error: ErrorPayload | None = None
    sent = opening.sent
    try:
        while (event := await _next(drive, stream)) is not None:
            if sent is not None and (type(event) in TELLING or not sent.began):
                event = sent.hear(event)
            await attempt.feed(event)
            if is_terminal(event):
                return event
            if isinstance(event, ErrorEvent):
                error = event.error
                if not attempt.committed:
                    break
    except Guard:
        await _read_on(drive, attempt, stream, opening)
        raise
    raise _AttemptFailed(rejected(error) if error else Truncated())


class _Opening:
    """The streams of one attempt."""

    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self.streams: list[AsyncIterator[StreamEvent]] = []
        """Those that are to be closed, the outermost first: a generator around another does not
        close it."""
        self.sent: Sent | None = None
        """The request, if nothing stands between it and whoever reads it."""

    def open(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """Call the model inside its middleware."""
        try:
            self.streams.insert(0, self._drive.hooks.model_call(request, self._call))
        except Exception as error:
            raise _AttemptFailed(error) from error
        return self.streams[0]

    def _call(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        drive, sent = self._drive, self._drive.spending.take(request)
        if sent is not None and not drive.hooks.wraps_model_call:
            self.sent = sent
            self.streams.append(self._send(request))
        else:
            self.streams.append(drive.spending.metered(request, sent, self._send))
        return self.streams[-1]

    def _send(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        return (request.via or self._drive.config.model).stream(request)


async def _next(drive: Drive, stream: AsyncIterator[StreamEvent]) -> StreamEvent | None:
    """The next event; None at the end. An abort cuts this wait, and no delivery."""
    try:
        return await drive.signal.guard(anext(stream))
    except StopAsyncIteration:
        return None
    except Exception as error:
        if error is drive.signal.cause:
            raise
        raise _AttemptFailed(error) from error


async def _read_on(
    drive: Drive, attempt: Attempt, stream: AsyncIterator[StreamEvent], opening: _Opening
) -> None:
    """Read the rest of a withheld response, for its usage alone."""
    with contextlib.suppress(_AttemptFailed):
        while (event := await _next(drive, stream)) is not None:
            if opening.sent is not None:
                event = opening.sent.hear(event)
            attempt.fold.feed(event)
            if is_terminal(event):
                return


async def _answer(drive: Drive, attempt: Attempt, last: StreamEvent, number: int) -> Answer:
    response = attempt.fold.response()
    if isinstance(last, ResponseFailed):
        error = failure(response)
        if attempt.committed or not drive.config.retry.allows(number, error):
            await _end_response(drive, response, number)
        else:
            drive.usage = add(drive.usage, response.usage)
        raise _AttemptFailed(error)
    response = await attempt.close(response)
    await _end_response(drive, response, number)
    return Answer(
        response,
        attempt.calls,
        cut=_cut(response) if isinstance(last, ResponseIncomplete) else None,
    )


async def _retry(
    drive: Drive, request: ModelRequest, number: int, error: Exception
) -> ModelRequest:
    """Wait and give the next request, or raise the error if there is to be none."""
    retry = drive.config.retry
    if isinstance(error, Guard) or not retry.allows(number, error):
        raise error
    if retry.revise is not None:
        revised = retry.revise(number, request, error) or request
        request = for_its_model(drive, revised, request)
    delay = retry.wait(number, error)
    await reserved(drive, request)
    await drive.delivery.deliver(
        ModelRetry(
            run_id=drive.run_id,
            turn=drive.turn,
            attempt=number,
            error=error,
            delay=delay,
            request=request,
            losses=losses_of(drive.config.model, request),
        )
    )
    await drive.signal.guard(drive.config.clock.sleep(delay))
    await drive.signal.guard(drive.delivery.settle())
    drive.partial = ()
    return request


async def reserved(drive: Drive, request: ModelRequest) -> None:
    """Reserve what a request may take, before it is told.

    Raises:
        BudgetExceeded: It would cross a budget.
        ConfigError: Money is limited, and nobody knows the price of the model.
    """
    landed = drive.spending.reserve(request)
    if landed is not None:
        await drive.signal.guard(landed)


async def _withhold(drive: Drive, attempt: Attempt, guard: Guard, number: int) -> Answer:
    """Account for a response that a guard withholds, without what was kept."""
    folded = attempt.fold.response()
    response = msgspec.structs.replace(
        folded,
        status="incomplete",
        incomplete_details=IncompleteDetails(reason="content_filter"),
        error=None if folded.error else ABSENT,
        output=attempt.taken,
    )
    await _end_response(drive, response, number, withheld=True)
    return Answer(response, attempt.calls, guard=guard)


async def _end_response(
    drive: Drive, response: Response, attempts: int, *, withheld: bool = False
) -> None:
    drive.usage = add(drive.usage, response.usage)
    drive.spending.taken(response)
    await drive.delivery.deliver(
        ResponseEnd(
            run_id=drive.run_id,
            turn=drive.turn,
            response=response,
            withheld=withheld,
            attempts=attempts,
        )
    )


def _start_guards(drive: Drive, request: ModelRequest) -> list[asyncio.Task[object]]:
    loop = asyncio.get_running_loop()
    return [loop.create_task(guard(request)) for guard in drive.hooks.alongside]


async def _end_guards(guards: list[asyncio.Task[object]]) -> None:
    """Stop the guards that still run, and leave no failure of theirs behind."""
    for guard in guards:
        guard.cancel()
    if guards:
        await asyncio.wait(guards)


def failure(response: Response) -> ModelError:
    """The error of a response that failed."""
    if response.error:
        return rejected(response.error)
    return BadBody("the response failed and its server did not say why")


def _cut(response: Response) -> StopCause:
    details = response.incomplete_details
    reason = details.reason if details else ""
    return "content_filter" if reason == "content_filter" else "length"
