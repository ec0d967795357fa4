"""A bare agent loop: what the same job costs without a runtime.

It folds nothing, records nothing, checks nothing: it reads the events of a model, keeps finished
items, calls functions, and goes on until there is no call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

import msgspec

from perdure.loop import Items, Model, ModelRequest
from perdure.wire import (
    FunctionCall,
    Item,
    OutputItemDone,
    Request,
    function_call_output,
    user,
)

Function = Callable[..., object]


async def run_bare(
    model: Model,
    prompt: str,
    tools: Mapping[str, Function],
    keep: Callable[[Item], object] = lambda _: None,
) -> list[Item]:
    """Drive `model` until it calls no tool; `keep` gets each item. Gives the transcript."""
    transcript: list[Item] = [user(prompt)]
    keep(transcript[0])
    memo: dict[object, object] = {}
    settings = Request(model="bare")
    while True:
        request = ModelRequest(settings=settings, input=Items(transcript, len(transcript), memo))
        calls: list[FunctionCall] = []
        async for event in model.stream(request):
            if isinstance(event, OutputItemDone) and event.item is not None:
                transcript.append(event.item)
                keep(event.item)
                if isinstance(event.item, FunctionCall):
                    calls.append(event.item)
        if not calls:
            return transcript
        for call in calls:
            given = tools[call.name](**msgspec.json.decode(call.arguments))
            value = await given if inspect.isawaitable(given) else given
            transcript.append(function_call_output(call.call_id, str(value)))
            keep(transcript[-1])
