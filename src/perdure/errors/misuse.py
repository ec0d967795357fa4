"""A definition or a call is wrong, and nothing has happened."""

from __future__ import annotations

from perdure.errors.base import PerdureError


class ConfigError(PerdureError, ValueError):
    """A definition or a call is wrong. Raised before anything happens."""


class UnknownModel(ConfigError):
    """No adapter answers to a model string.

    Attributes:
        name: The model string as given.
    """

    def __init__(self, name: str, known: tuple[str, ...] = ()) -> None:
        self.name = name
        hint = f"; known: {', '.join(known)}" if known else ""
        super().__init__(f"no model adapter for {name!r}; write PROVIDER:MODEL{hint}")


class MissingKey(ConfigError):
    """The key of a model is in none of the environment variables that may hold it.

    Attributes:
        variables: The variables that were looked at, in order.
    """

    def __init__(self, provider: str, variables: tuple[str, ...]) -> None:
        self.provider = provider
        self.variables = variables
        super().__init__(f"no API key for {provider!r}: set {' or '.join(variables)}")


class DuplicateTool(ConfigError):
    """Two tools of one request share a name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"two tools are named {name!r}; a request needs distinct names")


class NoTransactions(ConfigError):
    """A transactional tool where nothing commits it: only SQLite and Postgres stores do (LOG 6).

    Attributes:
        tool: The tool's name.
    """

    def __init__(self, tool: str) -> None:
        self.tool = tool
        super().__init__(
            f"tool {tool!r} is transactional, and its effect would not commit with the log here; "
            "give the agent a sqlite: or postgresql: store, or the tool another effect"
        )


class NoPrompt(ConfigError):
    """A drive was asked for without an input."""

    def __init__(self) -> None:
        super().__init__("no prompt items; give at least one, or continue the transcript")


class CannotContinue(ConfigError):
    """The transcript ends in nothing a model can answer."""

    def __init__(self) -> None:
        super().__init__(
            "a transcript continues only after a user, system or developer message "
            "or a function call output"
        )


class InputRequired(ConfigError):
    """Calls of the transcript have no output yet; they must be answered first.

    Attributes:
        call_ids: The calls that wait, in transcript order.
    """

    def __init__(self, call_ids: tuple[str, ...]) -> None:
        self.call_ids = call_ids
        names = ", ".join(repr(c) for c in call_ids)
        super().__init__(f"calls without an output must be answered first: {names}")


class NotPending(ConfigError):
    """An answer names no pending call, or a pending call has no answer."""


class AmbiguousCall(ConfigError):
    """A call that may have run was approved, and its effect does not let it run again.

    Answer it with `outcome_unknown`, or approve it with `run_again` if you accept the risk.
    """

    def __init__(self, call_id: str, why: str) -> None:
        self.call_id = call_id
        super().__init__(
            f"call {call_id!r} may have run and cannot run again: {why}; "
            "answer it with outcome_unknown(), or approve it with run_again=True"
        )


class CallAnswered(ConfigError):
    """A call that a record answered or refused was approved; it takes an output alone."""

    def __init__(self, call_id: str) -> None:
        self.call_id = call_id
        super().__init__(f"call {call_id!r} was answered already and is owed its output alone")


class NeedsApproval(ConfigError):
    """A call was to run that waits for the approval of others; only their votes let it in.

    Attributes:
        call_id: The call.
    """

    def __init__(self, call_id: str, asks: str) -> None:
        self.call_id = call_id
        super().__init__(
            f"call {call_id!r} waits for the approval of {asks}, and no answer stands for it; "
            "they vote with Runs.approve() or `perdure approve`, or deny() ends it"
        )


class AlreadyRunning(ConfigError):
    """The session is busy with another drive."""


class InsideEventLoop(ConfigError):
    """A synchronous entry was called where an event loop is running."""

    def __init__(self, name: str, instead: str) -> None:
        super().__init__(f"{name}() cannot run inside an event loop; await {instead}() instead")
