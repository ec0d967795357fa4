"""A finished response as a result, for code that takes results."""

from __future__ import annotations

from collections.abc import AsyncIterator

from perdure.compose.call import call_model
from perdure.compose.result import ModelResult
from perdure.loop import ModelRequest
from perdure.wire import (
    Response,
    ResponseCompleted,
    ResponseFailed,
    ResponseIncomplete,
    StreamEvent,
)


class _Said:
    """A model that gives a response that is there already."""

    def __init__(self, response: Response) -> None:
        self._response = response

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        del request
        if self._response.status == "failed":
            yield ResponseFailed(response=self._response)
        elif self._response.status == "incomplete":
            yield ResponseIncomplete(response=self._response)
        else:
            yield ResponseCompleted(response=self._response)


def result_from_response(response: Response) -> ModelResult:
    """A result that stands for a response; nothing is sent. Its calls, if any, wait."""
    return call_model(_Said(response), "", max_rounds=None)
