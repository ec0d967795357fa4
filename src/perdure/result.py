"""What a run gives back."""

from __future__ import annotations

import dataclasses
from typing import Generic, Literal, TypeVar

from perdure.errors import PerdureError, RunFailed
from perdure.loop import PendingCall, RunEnd
from perdure.wire import Item, Usage

OutputT_co = TypeVar("OutputT_co", covariant=True)

Status = Literal[
    "running",
    "done",
    "stopped",
    "input_required",
    "suspended",
    "halted",
    "failed",
    "cancelled",
    "aborted",
    "rolled_back",
]
"""How a run stands."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunResult(Generic[OutputT_co]):
    """How a run went, as far as it has come.

    Attributes:
        status: How it stands. A pause is a status like any other; a failure is raised.
        text: The answer: the text of the assistant's message that ends `items`, else empty.
        output: The answer as the type that was asked for; without one, `text`.
        items: What the run added to the transcript.
        pending: The calls that wait for an answer, in transcript order.
        turns: How many model calls it took.
        usage: The tokens of all its responses.
        cause: What stopped a run whose status is `stopped`; why one was aborted, in words.
        partial: What the model had begun when it was cut, marked incomplete.
    """

    run_id: str
    status: Status
    text: str
    output: OutputT_co
    items: tuple[Item, ...]
    pending: tuple[PendingCall, ...]
    turns: int
    usage: Usage
    cause: str = ""
    partial: tuple[Item, ...] = ()


def result_of(end: RunEnd) -> RunResult[str]:
    """The result of a drive.

    Raises:
        RunFailed: The drive ended in error.
    """
    text = end.answer
    result = RunResult(
        run_id=end.run_id,
        status="failed" if end.reason == "error" else end.reason,
        text=text,
        output=text,
        items=end.items,
        pending=end.pending,
        turns=end.turns,
        usage=end.usage,
        cause=end.cause or (str(end.error) if end.error else ""),
        partial=end.partial,
    )
    if end.reason == "error":
        raise RunFailed(result, end.error or PerdureError("unknown failure"))
    return result
