"""A drive was stopped or gave nothing, and what passes a tool that waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from perdure.errors.base import PerdureError

if TYPE_CHECKING:
    from decimal import Decimal

ResultT_co = TypeVar("ResultT_co", covariant=True)
ReportT_co = TypeVar("ReportT_co", covariant=True)

BudgetKind = Literal["tokens", "cost", "seconds"]

_UNITS = {"tokens": "tokens", "cost": "US dollars", "seconds": "seconds"}


class Guard(PerdureError):
    """A policy stops a drive: it ends as `stopped` with cause `guard`.

    A hook raises it. Its text reaches the host alone: never the model, the transcript, the caller
    or the record.
    """


class LoopDetected(Guard):
    """A drive repeated itself until it was stopped.

    Attributes:
        kind: What it repeated: `call`, `server_call`, `text`, or `words` within a text.
        name: The tool; empty for a text.
        streak: How many rounds or responses in a row had it.
    """

    def __init__(self, kind: str, name: str, streak: int) -> None:
        self.kind = kind
        self.name = name
        self.streak = streak
        what = f"a {kind} of {name!r}" if name else f"the same {kind}"
        super().__init__(f"the run repeats itself: {what}, {streak} times in a row")


class BudgetExceeded(PerdureError):
    """The next request would cross a budget: the drive ends as `stopped` with cause `budget`.

    Attributes:
        what: What is used up: `tokens`, `cost` or `seconds`.
        limit: The limit, in tokens, US dollars or seconds.
        spent: What of it is spent.
        needed: The limit under which the request could be sent.
        above: Whose limit it is: 0 for the run's own, 1 for that of whoever started it, and so on.
    """

    def __init__(
        self,
        what: BudgetKind,
        limit: int | float | Decimal,
        spent: int | float | Decimal,
        needed: int | float | Decimal,
        *,
        above: int = 0,
    ) -> None:
        self.what: BudgetKind = what
        self.limit = limit
        self.spent = spent
        self.needed = needed
        self.above = above
        whose = "" if not above else " of the run above"
        super().__init__(
            f"the budget{whose} is used up: {spent} of {limit} {_UNITS[what]} are spent, and the "
            f"next request may need {needed} in all; raise Budget({what}=...), or retry the run"
        )

    def below(self) -> BudgetExceeded:
        """The same, as the run says it that started the one it was refused to."""
        return BudgetExceeded(
            self.what, self.limit, self.spent, self.needed, above=max(self.above - 1, 0)
        )


class PromptRefused(PerdureError):
    """A lifecycle hook refused what the user said; nothing was sent.

    Attributes:
        reason: Why, in the hook's words; empty if it did not say.
    """

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__("the prompt was refused" + (f": {reason}" if reason else ""))


class CallEnded(PerdureError, RuntimeError):
    """A call's handle was used after the call had ended."""

    def __init__(self, call_id: str) -> None:
        self.call_id = call_id
        super().__init__(
            f"call {call_id!r} has ended; work that outlives a call must not use its handle"
        )


class Aborted(PerdureError):
    """A drive was told to stop.

    Attributes:
        reason: Why, in the words of whoever stopped it.
    """

    def __init__(self, reason: str = "aborted") -> None:
        self.reason = reason
        super().__init__(reason)


class NotEntered(PerdureError):
    """A call that may have run was answered without entering its tool, so nobody knows of it.

    Nothing was recorded of the answer (DESIGN 8). The drive failed; the next tries again, and
    somebody can say with `Runs.resolve` what came of the call. The cause is the answer, if it was
    an error.

    Attributes:
        call_id: The call.
        tool: Its tool's name.
    """

    def __init__(self, call_id: str, tool: str) -> None:
        self.call_id = call_id
        self.tool = tool
        super().__init__(
            f"call {call_id!r} of tool {tool!r} may have run, and was answered without entering "
            "its tool; drive the run again once the hook or the tool lets it in, or say with "
            "Runs.resolve() what came of it"
        )


class Tripped(Aborted):
    """A call of a saga failed, so the drive was stopped and the saga is rolled back.

    Attributes:
        call_id: The call.
        tool: The name of its tool.
    """

    def __init__(self, call_id: str, tool: str, error: BaseException | None) -> None:
        self.call_id = call_id
        self.tool = tool
        super().__init__(f"call {call_id!r} of tool {tool!r} failed: {error}")
        self.__cause__ = error


class SubscriberHung(PerdureError, TimeoutError):
    """A subscriber did not return while a drive wound down; it hears nothing more of that drive.

    Attributes:
        event: The type of the event it was told.
    """

    def __init__(self, event: str) -> None:
        self.event = event
        super().__init__(f"a subscriber did not return from {event!r} while the drive wound down")


class OutputInvalid(PerdureError, ValueError):
    """No answer of the model fitted the type that was asked for, as often as it was told why.

    Attributes:
        reason: What was wrong with the last one.
        attempts: How many answers there were.
    """

    def __init__(self, reason: str, *, attempts: int) -> None:
        self.reason = reason
        self.attempts = attempts
        super().__init__(f"the answer does not fit after {attempts} attempts: {reason}")


class OutputRefused(PerdureError):
    """The model refused to give a typed answer.

    Attributes:
        refusal: What it said.
    """

    def __init__(self, refusal: str) -> None:
        self.refusal = refusal
        super().__init__(f"the model refused to answer: {refusal}")


class NoOutput(PerdureError, LookupError):
    """A run has no output: it paused, or was stopped before its answer.

    Attributes:
        status: How the run stands.
        cause: What stopped it.
    """

    def __init__(self, status: str, cause: str = "") -> None:
        self.status = status
        self.cause = cause
        why = f" ({cause})" if cause else ""
        super().__init__(f"the run is {status}{why} and has no output; look at its status first")


class RunFailed(PerdureError, Generic[ResultT_co]):
    """A run ended in error.

    Attributes:
        result: What the run had done until then.
        cause: The error that ended it; also `__cause__`.
    """

    def __init__(self, result: ResultT_co, cause: BaseException) -> None:
        self.result = result
        self.cause = cause
        super().__init__(f"the run failed: {cause}")
        self.__cause__ = cause


class SagaRolledBack(RunFailed[ResultT_co], Generic[ResultT_co, ReportT_co]):
    """A saga failed, and what it had done was undone as far as that goes.

    Attributes:
        report: What was undone, what stands, and what nobody knows of; a `SagaReport`.
    """

    def __init__(self, result: ResultT_co, cause: BaseException, report: ReportT_co) -> None:
        self.report = report
        super().__init__(result, cause)
        self.args = (f"the saga was rolled back: {cause}",)


class CompensationFailed(PerdureError):
    """A compensator failed, so the rollback of its saga stopped; driving the run again goes on.

    Attributes:
        call_id: The call that was to be undone.
        tool: Its tool.
    """

    def __init__(self, call_id: str, tool: str, error: BaseException | str) -> None:
        self.call_id = call_id
        self.tool = tool
        super().__init__(
            f"call {call_id!r} of tool {tool!r} could not be undone: {error}; drive the run again, "
            "or say with Runs.resolve what became of it"
        )


class Suspend(BaseException):
    """A tool waits for something that may take longer than its process lives (DESIGN 8).

    It unwinds the tool; the call is entered again when what it waits for has come. It is no
    `Exception`, so that a tool's `except Exception` does not swallow it.

    Attributes:
        wait: What for, as JSON values; `kind` says what of.
        due: When it is due at the latest, in nanoseconds since the Unix epoch; None for never.
    """

    def __init__(self, message: str, *, wait: Mapping[str, object], due: int | None = None) -> None:
        self.wait = wait
        self.due = due
        super().__init__(message)
