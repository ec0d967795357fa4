"""The conformance kit of models: what every model must do, as checks that a test suite runs.

```
@pytest.mark.parametrize("check", model_kit.CHECKS, ids=model_kit.name_of)
async def test_my_model(check):
    await check(model_kit.over_http(lambda url: MyModel(url, api_key="k"), ANSWERS))
```

A *scene* is a situation that a model is put into: its server answers with a text, asks for two
calls, refuses, falls silent. A *subject* is a model with the scenes that can be played to it. A
check raises AssertionError when the model does not do what `perdure.loop.Model` promises; a check
whose scene the subject does not play checks nothing, and `missing` says which those are.
"""

# ruff: noqa: S101 - it asserts, and has no pytest
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec.structs import replace

from perdure.errors import (
    AuthFailed,
    BadBody,
    ContextTooLong,
    InvalidInput,
    ModelError,
    NotFound,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    Rejected,
    ServerFailed,
    Transport,
    Truncated,
)
from perdure.loop import ModelRequest
from perdure.loop.model import close, collect, is_terminal
from perdure.testing.canned import Canned
from perdure.testing.model_kit_scenes import (
    SCENES,
    SCRIPTS,
    SECRET,
    Play,
    Scene,
    Stage,
    Subject,
    in_process,
    open_responses,
    over_http,
    staged,
)
from perdure.testing.stream_check import check_stream
from perdure.tools import plain_arguments
from perdure.wire import (
    Fold,
    FunctionCall,
    Message,
    Response,
    ResponseCompleted,
    ResponseIncomplete,
    StreamEvent,
    Usage,
)

__all__ = [
    "CHECKS",
    "SCENES",
    "SCRIPTS",
    "SECRET",
    "Canned",
    "Check",
    "Play",
    "Scene",
    "Stage",
    "Subject",
    "in_process",
    "name_of",
    "open_responses",
    "over_http",
]

REFUSALS: Mapping[Scene, type[ModelError]] = {
    "rate_limited": RateLimited,
    "quota": QuotaExhausted,
    "overloaded": Overloaded,
    "server_failed": ServerFailed,
    "auth": AuthFailed,
    "not_found": NotFound,
    "too_long": ContextTooLong,
    "invalid": InvalidInput,
}
"""What each refusal is to raise."""

CUTS = 24
"""At how many places a check cuts an answer."""

PATIENCE = 5.0
"""Seconds after which a check says that a model hangs."""


# --- checks -------------------------------------------------------------------------------------

Check: TypeAlias = Callable[[Subject], Awaitable[None]]

CHECKS: list[Check] = []
"""Every check."""


def name_of(check: Check) -> str:
    """What a check is called."""
    return getattr(check, "__name__", "check")


def _in(*scenes: Scene) -> Callable[[Callable[[Subject, Scene], Awaitable[None]]], Check]:
    """A check that is made in each of these scenes."""

    def made(function: Callable[[Subject, Scene], Awaitable[None]]) -> Check:
        async def run(subject: Subject) -> None:
            for scene in scenes:
                if scene in subject.scenes:
                    async with asyncio.timeout(PATIENCE):
                        await function(subject, scene)

        run.__name__ = getattr(function, "__name__", "check")
        run.__doc__ = function.__doc__
        CHECKS.append(run)
        return run

    return made


async def _events(stage: Stage, request: ModelRequest) -> list[StreamEvent]:
    stream = stage.model.stream(request)
    try:
        return [event async for event in stream]
    finally:
        await close(stream)


async def _until_error(
    stage: Stage, request: ModelRequest
) -> tuple[list[StreamEvent], ModelError | None]:
    """The events of a stream, and what it raised."""
    events: list[StreamEvent] = []
    stream = stage.model.stream(request)
    try:
        async for event in stream:
            events.append(event)  # noqa: PERF401 - what came before an error counts
    except ModelError as error:
        return events, error
    finally:
        await close(stream)
    return events, None


def _response(events: Sequence[StreamEvent]) -> Response:
    fold = Fold()
    for event in events:
        fold.feed(event)
    return fold.response()


@_in("text", "calls", "length")
async def events_come_in_the_order_of_the_specification(subject: Subject, scene: Scene) -> None:
    """One terminal event, and it is the last; items and parts open and close in order."""
    async with subject.play(scene) as stage:
        events = await _events(stage, subject.request(tools=scene == "calls"))
    check_stream(events)
    assert [is_terminal(event) for event in events].count(True) == 1


@_in("text")
async def a_text_is_a_completed_response_with_one_message(subject: Subject, scene: Scene) -> None:
    """The deltas and the response say the same."""
    async with subject.play(scene) as stage:
        events = await _events(stage, subject.request())
    last = events[-1]
    assert isinstance(last, ResponseCompleted), f"a text ended in {last.type}"
    messages = [item for item in last.response.output if isinstance(item, Message)]
    assert [one.role for one in messages] == ["assistant"]
    assert messages[0].text, "the message is empty"
    said = "".join(getattr(e, "delta", "") for e in events if "output_text.delta" in e.type)
    assert said == messages[0].text


@_in("text", "calls")
async def what_was_streamed_folds_to_what_the_response_lists(
    subject: Subject, scene: Scene
) -> None:
    """Nothing is in the response that was not streamed, and nothing was streamed for nothing."""
    async with subject.play(scene) as stage:
        events = await _events(stage, subject.request(tools=scene == "calls"))
    done = [getattr(e, "item", None) for e in events if e.type == "response.output_item.done"]
    assert list(_response(events).output) == done


@_in("text")
async def tokens_are_counted_once(subject: Subject, scene: Scene) -> None:
    """The counts add up, and no part is larger than what it is a part of."""
    async with subject.play(scene) as stage:
        usage = _response(await _events(stage, subject.request())).usage
    assert usage, "the response has no usage"
    _check_usage(usage)


def _check_usage(usage: Usage) -> None:
    assert usage.input_tokens > 0
    assert usage.output_tokens > 0
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    read, written = usage.input_tokens_details, usage.output_tokens_details
    cached = (read.cached_tokens or 0) + (read.cache_creation_tokens or 0) if read else 0
    assert 0 <= cached <= usage.input_tokens
    assert 0 <= ((written.reasoning_tokens or 0) if written else 0) <= usage.output_tokens


@_in("calls")
async def calls_have_ids_of_their_own_and_arguments_that_are_objects(
    subject: Subject, scene: Scene
) -> None:
    """Both calls are there, in order."""
    async with subject.play(scene) as stage:
        response = _response(await _events(stage, subject.request(tools=True)))
    calls = [item for item in response.output if isinstance(item, FunctionCall)]
    assert [one.name for one in calls] == ["look", "look"]
    ids = {one.call_id for one in calls}
    assert len(ids) == 2, "two calls share an id"
    assert "" not in ids, "a call has no id"
    assert all("what" in plain_arguments(one.arguments) for one in calls)


@_in("length", "filtered")
async def a_cut_answer_says_that_it_was_cut(subject: Subject, scene: Scene) -> None:
    """It ends incomplete, for the right reason."""
    async with subject.play(scene) as stage:
        last = (await _events(stage, subject.request()))[-1]
    assert isinstance(last, ResponseIncomplete), f"a cut answer ended in {last.type}"
    details = last.response.incomplete_details
    wanted = "max_output_tokens" if scene == "length" else "content_filter"
    assert details, "the response does not say why"
    assert details.reason == wanted


@_in("cut", "reset", "empty")
async def a_stream_that_breaks_is_an_error_and_no_answer(subject: Subject, scene: Scene) -> None:
    """What had come is given first."""
    async with subject.play(scene) as stage:
        events, error = await _until_error(stage, subject.request())
    assert isinstance(error, Truncated | Transport), f"it raised {error!r}"
    assert not any(is_terminal(event) for event in events)


@_in("garbage")
async def bytes_that_are_no_answer_are_an_error(subject: Subject, scene: Scene) -> None:
    """It is one of perdure's, whatever a parser made of the bytes."""
    async with subject.play(scene) as stage:
        events, error = await _until_error(stage, subject.request())
    assert isinstance(error, BadBody | Truncated), f"it raised {error!r}"
    assert events == []


@_in(*REFUSALS)
async def a_refusal_has_its_exact_class(subject: Subject, scene: Scene) -> None:
    """It says what the server said, and how long to wait."""
    async with subject.play(scene) as stage:
        events, error = await _until_error(stage, subject.request())
    assert not events or not any(is_terminal(event) for event in events)
    assert type(error) is REFUSALS[scene], f"{scene} raised {error!r}"
    assert isinstance(error, Rejected)
    assert error.message, "the server's own message is missing"
    if scene == "rate_limited":
        assert error.retry_after == 7, f"it is to wait {error.retry_after!r} seconds"


@_in("auth")
async def the_key_shows_in_no_error(subject: Subject, scene: Scene) -> None:
    """Neither in its text nor in what it holds."""
    if subject.make is None:
        return
    async with subject.play(scene) as stage:
        _, error = await _until_error(stage, subject.request())
    assert SECRET not in f"{error} {error!r} {vars(error)}"


@_in("text", "overloaded", "cut")
async def one_stream_is_one_request(subject: Subject, scene: Scene) -> None:
    """Nothing is sent again behind the loop's back (DESIGN 5)."""
    async with subject.play(scene) as stage:
        await _until_error(stage, subject.request())
        if stage.requests is not None:
            assert stage.requests() == 1


@_in("text")
async def a_stream_that_is_left_lets_go(subject: Subject, scene: Scene) -> None:
    """Closing it releases the connection, and nothing comes afterwards."""
    if subject.answers and subject.make is not None:
        answer = subject.answers["text"]
        endless = replace(answer, body=answer.body[: len(answer.body) // 2], end="hang")
        async with staged(subject.make, endless) as stage:
            await _leave(stage, subject)
            if stage.released is not None:
                await stage.released()
    else:
        async with subject.play(scene) as stage:
            await _leave(stage, subject)


async def _leave(stage: Stage, subject: Subject) -> None:
    stream = stage.model.stream(subject.request())
    assert await anext(stream, None) is not None
    await close(stream)
    assert await _next_or_none(stream) is None, "an event came after the stream was closed"


async def _next_or_none(stream: AsyncIterator[StreamEvent]) -> StreamEvent | None:
    return await anext(stream, None)


@_in("silent")
async def a_reader_that_is_cancelled_is_let_go_at_once(subject: Subject, scene: Scene) -> None:
    """A server that says nothing holds nobody up."""
    async with subject.play(scene) as stage:
        stream = stage.model.stream(subject.request())
        reading = asyncio.ensure_future(_next_or_none(stream))
        while stage.requests is not None and not stage.requests():  # noqa: ASYNC110 - until it asks
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        reading.cancel()
        await asyncio.wait({reading})
        assert reading.cancelled(), "the reader was not cancelled"
        await close(stream)
        if stage.released is not None:
            await stage.released()


@_in("text")
async def two_streams_at_once_do_not_mix(subject: Subject, scene: Scene) -> None:
    """One client serves any number of tasks."""
    async with subject.play(scene) as stage:
        async with asyncio.TaskGroup() as group:
            both = [
                group.create_task(collect(stage.model.stream(subject.request()))) for _ in range(2)
            ]
        texts = {task.result().output_text for task in both}
    assert len(texts) == 1


@runtime_checkable
class _Creates(Protocol):
    async def create(self, request: ModelRequest) -> Response: ...


@_in("whole")
async def a_whole_answer_says_what_a_streamed_one_says(subject: Subject, scene: Scene) -> None:
    """Text, status and tokens are the same, counted once in both (`create`, where there is one)."""
    async with subject.play("text") as stage:
        streamed = await collect(stage.model.stream(subject.request()))
    async with subject.play(scene) as stage:
        if not isinstance(stage.model, _Creates):
            return
        whole = await stage.model.create(subject.request())
    assert (whole.status, whole.output_text) == (streamed.status, streamed.output_text)
    assert whole.usage == streamed.usage, f"{whole.usage} is not {streamed.usage}"


@_in("text")
async def how_the_bytes_come_makes_no_difference(subject: Subject, scene: Scene) -> None:
    """One byte at a time gives the same response."""
    if subject.make is None:
        return
    async with subject.play(scene) as stage:
        at_once = await collect(stage.model.stream(subject.request()))
    async with staged(subject.make, replace(subject.answers[scene], size=1)) as stage:
        piecemeal = await collect(stage.model.stream(subject.request()))
    assert piecemeal.output_text == at_once.output_text
    assert (piecemeal.status, piecemeal.usage) == (at_once.status, at_once.usage)


@_in("text")
async def no_part_of_an_answer_is_another_answer(subject: Subject, scene: Scene) -> None:
    """Cut anywhere, it is an error, or the same answer where the cut lies behind its end."""
    if subject.make is None:
        return
    whole = subject.answers[scene]
    async with subject.play(scene) as stage:
        answer = await collect(stage.model.stream(subject.request()))
    step = max(1, len(whole.body) // CUTS)
    for place in range(0, len(whole.body), step):
        cut = replace(whole, body=whole.body[:place], end="cut")
        async with staged(subject.make, cut) as stage:
            events, error = await _until_error(stage, subject.request())
        if error is None:
            got = _response(events)
            assert got.output_text == answer.output_text, f"cut at {place}"
            # Some servers count when the answer has ended; what was cut then is not known.
            assert not got.usage or got.usage == answer.usage, f"cut at {place}"
        else:
            assert isinstance(error, Truncated | Transport), f"cut at {place}: {error!r}"
