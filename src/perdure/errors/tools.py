"""A tool failed."""

from __future__ import annotations

from perdure.errors.base import PerdureError


class ToolError(PerdureError):
    """A tool failed. The model reads the message, after `Error: `.

    A tool raises it to say what went wrong in words the model should see.

    Attributes:
        details: What the host should know beside the message; the model never sees it.
        terminate: Whether the batch should be the last.
    """

    def __init__(
        self, message: str = "", *, details: object = None, terminate: bool = False
    ) -> None:
        self.details = details
        self.terminate = terminate
        super().__init__(message)


class OutcomeUnknown(ToolError):
    """A tool does not know whether what it was to do has happened.

    Unless the tool's effect is `none`, its call may have run and gets no output (LOG 5.10).
    """


class TransactionRefused(ToolError):
    """A transactional tool's function did what it must not; its transaction is undone."""


class InvalidArguments(ToolError):
    """What the model gave does not fit the tool.

    Attributes:
        path: Where, as `items[2].name`; empty at the root.
    """

    def __init__(self, reason: str, *, path: str = "") -> None:
        self.path = path
        self.reason = reason
        at = f"{path}: " if path else ""
        super().__init__(f"invalid arguments: {at}{reason}")


class ToolTimeout(ToolError, TimeoutError):
    """A tool outlived its time. Unless its effect is `none`, it may still have run.

    Attributes:
        seconds: The tool's timeout.
    """

    def __init__(self, name: str, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"tool {name!r} timed out after {seconds:g} s")


class SuspendSwallowed(ToolError):
    """A tool caught the signal of a wait and went on; what it gave is not taken.

    The signal is no `Exception`: let it pass, and put what has to be tidied up into `finally`.
    """

    def __init__(self, tool: str) -> None:
        super().__init__(f"tool {tool!r} went on after it was told to wait; let the signal pass")


class StepFailed(ToolError):
    """A step failed, and the record says so: it is not taken again.

    Attributes:
        step: Its name.
    """

    def __init__(self, step: str, why: str) -> None:
        self.step = step
        super().__init__(f"step {step!r} failed: {why}")


class ToolPanic(ToolError):
    """A tool raised something that is not a `ToolError`.

    The message is one line; the traceback stays with the host, as `__cause__`.
    """

    def __init__(self, name: str, error: BaseException) -> None:
        text = " ".join(str(error).split()) or type(error).__name__
        super().__init__(f"tool {name!r} panicked: {text}")
        self.__cause__ = error
