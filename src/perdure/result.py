"""What a run gives back."""

from __future__ import annotations

import dataclasses
import typing
from typing import TYPE_CHECKING, Generic, Literal, cast

from perdure.errors import Aborted, NoOutput, PerdureError, RunFailed, SagaRolledBack
from perdure.loop import DriveHandle, Items, PendingCall, RunEnd, Transcript
from perdure.loop.events import answer_in
from perdure.loop.spend import NO_SPEND, Spend
from perdure.wire import Item, Usage

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from perdure.durable import RunState, SagaReport
    from perdure.log.keyed import Exchange
    from perdure.output import Plan

    OutputT_co = TypeVar("OutputT_co", covariant=True, default=str)
else:
    OutputT_co = typing.TypeVar("OutputT_co", covariant=True)

PlanT = typing.TypeVar("PlanT")

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
        text: The answer: the text of the assistant's message that ends `items`, else empty. Of a
            typed answer, its JSON.
        items: What the run added to the transcript.
        pending: The calls that wait for an answer, in transcript order.
        turns: How many model calls it took.
        usage: The tokens of all its responses.
        spend: What all its requests took, those of the agents it called included: tokens by model,
            money as far as prices are known, the part that was estimated.
        cause: What stopped a run whose status is `stopped`; why one was aborted, in words.
        partial: What the model had begun when it was cut, marked incomplete.
        report: Of a saga that was rolled back: what was undone, and what was not.
    """

    run_id: str
    status: Status
    text: str
    items: tuple[Item, ...]
    pending: tuple[PendingCall, ...]
    turns: int
    usage: Usage
    spend: Spend = NO_SPEND
    cause: str = ""
    partial: tuple[Item, ...] = ()
    report: SagaReport | None = None
    _output: tuple[OutputT_co, ...] = ()
    """The output, if there is one."""

    @property
    def output(self) -> OutputT_co:
        """The answer as the type that was asked for; without one, `text`.

        Raises:
            NoOutput: The run paused, or was stopped before its answer.
        """
        if not self._output:
            raise NoOutput(self.status, self.cause)
        return self._output[0]

    @property
    def has_output(self) -> bool:
        """Whether `output` is there to be read."""
        return bool(self._output)


def result_of(end: RunEnd) -> RunResult[str]:
    """The result of a drive.

    Raises:
        RunFailed: The drive ended in error.
    """
    return _unless_failed(_untyped(end), end)


def _untyped(end: RunEnd) -> RunResult[str]:
    text = end.answer
    return RunResult(
        run_id=end.run_id,
        status="failed" if end.reason == "error" else end.reason,
        text=text,
        items=end.items,
        pending=end.pending,
        turns=end.turns,
        usage=end.usage,
        spend=end.spend,
        cause=end.cause or (str(end.error) if end.error else ""),
        partial=end.partial,
        _output=(text,),
    )


def _unless_failed(result: RunResult[PlanT], end: RunEnd) -> RunResult[PlanT]:
    if end.reason == "error":
        raise RunFailed(result, end.error or PerdureError("unknown failure"))
    return result


def read_result(handle: DriveHandle, plan: Plan[PlanT] | None) -> RunResult[PlanT]:
    """The result of a drive that has ended; one without a plan gives text.

    Raises:
        RunFailed: The drive ended in error.
    """
    if plan is None:
        return cast("RunResult[PlanT]", result_of(handle.end()))
    return typed_result(handle.end(), plan, handle.transcript())


def typed_result(end: RunEnd, plan: Plan[PlanT], transcript: Items) -> RunResult[PlanT]:
    """The result of a drive that was to end in a typed answer.

    Args:
        end: How the drive ended.
        plan: What was asked for.
        transcript: All items, up to the end of the drive.

    Raises:
        RunFailed: The drive ended in error.
    """
    return _unless_failed(_typed(_untyped(end), plan, transcript), end)


_CUT = frozenset({"length", "content_filter", "guard"})
"""What stopped a run whose last message is no answer."""


def _typed(result: RunResult[str], plan: Plan[PlanT], transcript: Items) -> RunResult[PlanT]:
    """The result with the typed answer that the transcript ends with, if there is one."""
    ended = result.status in ("done", "stopped") and result.cause not in _CUT
    answered = plan.answered(transcript) if ended else None
    if answered is None:
        return _copied(result, ())
    return _copied(dataclasses.replace(result, text=answered.text), (plan.read(answered),))


def result_of_run(
    state: RunState, error: BaseException | None, plan: Plan[PlanT] | None
) -> RunResult[PlanT]:
    """The result of a run by id, from its record.

    Raises:
        SagaRolledBack: It is a saga, and was rolled back.
        RunFailed: Its last drive ended in error.
    """
    result: RunResult[str] = RunResult(
        run_id=state.run_id,
        status=cast("Status", state.status),
        text=state.text,
        items=state.items,
        pending=state.pending,
        turns=state.turns,
        usage=state.usage,
        spend=state.spend,
        cause=state.cause,
        report=state.report,
        _output=(state.text,),
    )
    if state.status == "rolled_back":
        raise SagaRolledBack(result, Aborted(state.cause), state.report)
    if error is not None:
        raise RunFailed(result, error)
    if plan is None:
        return cast("RunResult[PlanT]", result)
    return _typed(result, plan, Transcript(state.items).snapshot())


def exchange_result(exchange: Exchange, plan: Plan[PlanT] | None) -> RunResult[PlanT]:
    """The result of what was said under a key, from the record.

    Raises:
        RunFailed: It failed, and somebody said something else since.
    """
    cut = exchange.cause in ("length", "content_filter", "guard")
    text = "" if cut else answer_in(exchange.items)
    result: RunResult[str] = RunResult(
        run_id=exchange.run_id,
        status=_STATUS_OF.get(exchange.reason, "aborted"),
        text=text,
        items=exchange.items,
        pending=(),
        turns=exchange.turns,
        usage=exchange.usage,
        spend=exchange.spend,
        cause=exchange.cause,
        _output=(text,),
    )
    if result.status == "failed":
        raise RunFailed(result, PerdureError("the run failed; the record says so"))
    if plan is None:
        return cast("RunResult[PlanT]", result)
    return _typed(result, plan, Transcript(exchange.items).snapshot())


_STATUS_OF: dict[str, Status] = {
    "done": "done",
    "stopped": "stopped",
    "input_required": "input_required",
    "error": "failed",
}


def _copied(result: RunResult[str], output: tuple[PlanT, ...]) -> RunResult[PlanT]:
    """The result with another output."""
    return dataclasses.replace(cast("RunResult[PlanT]", result), _output=output)
