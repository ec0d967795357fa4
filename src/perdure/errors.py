"""Every error perdure raises, as one tree.

```
PerdureError
├── ConfigError (ValueError)         a definition or a call is wrong; nothing has happened
│   ├── UnknownModel                 no adapter answers to a model string
│   ├── MissingKey                   a model's key is in no environment variable
│   ├── DuplicateTool                two tools of one request share a name
│   ├── NoTransactions               a transactional tool where nothing commits it
│   ├── NoPrompt                     a drive was asked for without an input
│   ├── CannotContinue               the transcript ends in nothing a model can answer
│   ├── InputRequired                calls wait for an answer; resume first
│   ├── NotPending                   an answer names no waiting call, or one lacks an answer
│   ├── AmbiguousCall                a call that may have run must not run again
│   ├── CallAnswered                 a call is owed its output alone
│   ├── AlreadyRunning               the session is busy with another drive
│   └── InsideEventLoop              a `*_sync` function was called inside a running event loop
├── WireError (ValueError)           bytes or values are not Open Responses
│   ├── DecodeError                  JSON that cannot be read as what it should be
│   ├── FrameTooLarge                an SSE frame beyond the limit
│   ├── NotIJson                     a value that canonical JSON cannot carry
│   ├── InvalidRequest               a request a server must refuse
│   └── TerminalSent                 an event after the terminal one
├── ModelError                       a model call failed
│   ├── Transport (ConnectionError)  the connection failed
│   │   └── ModelTimeout (TimeoutError)   connect, first byte, idle or total
│   ├── Truncated                    the stream ended before its terminal event
│   │   └── EmptyBody                ... before anything at all
│   ├── BadBody                      an answer that is not JSON or not a response
│   ├── EmptyAnswer                  a response that says nothing where an answer was due
│   ├── RecordedFailure              a model call or a drive failed on the record
│   ├── NoRecordedTurn               a record has no further turn to answer with
│   ├── ReplayMismatch               a record answers another request than the one that is made
│   └── Rejected                     the server said no, or said that it failed
│       ├── RateLimited              too many requests for now; `retry_after` says how long
│       ├── QuotaExhausted           the account has nothing left; waiting does not help
│       ├── Overloaded               the server has no room at the moment
│       ├── ServerFailed             the server failed
│       ├── AuthFailed               the key is wrong, or may not do this
│       ├── NotFound                 there is no such model or address
│       ├── ContextTooLong           the input does not fit into the model's context
│       ├── InvalidInput             the request is wrong in some other way
│       └── NotTerminal              the answer is no end: queued, still in progress, cancelled
├── ToolError                        a tool failed; the model reads the message
│   ├── InvalidArguments             what the model gave does not fit the tool
│   ├── ToolTimeout (TimeoutError)   the tool outlived its time
│   ├── OutcomeUnknown               the tool does not know whether it did what it was to do
│   ├── TransactionRefused           a transactional tool's function did what it must not
│   ├── SuspendSwallowed             the tool went on after it was told to wait
│   ├── StepFailed                   a step failed, and the record says so
│   └── ToolPanic                    the tool raised something else
├── LogError                         the log or its store refuses
│   ├── NoSession (LookupError)      there is no session of this id or name
│   ├── NoEntry (LookupError)        the session has no such entry
│   ├── SessionExists                the id is taken
│   ├── NameTaken                    another session has the name
│   ├── UnsupportedFormat (ValueError)   a format this version does not read
│   ├── CorruptLog (ValueError)      a line is not what it must be
│   ├── EntryRefused (ValueError)    an entry that the rules of the format forbid here
│   ├── StaleVersion                 the session has grown since
│   ├── FenceLost                    another driver has the lease, or nobody
│   ├── Leased                       another driver drives the session
│   ├── StopRequested                a cancel waits to be taken up
│   ├── MessageTaken                 an inbox message was consumed already
│   ├── TransactionUndone            a transactional tool's function failed; nothing happened
│   ├── RewindRefused                a session cannot go on from that entry
│   ├── StoreFailed (OSError)        the store could not write; what it did is unknown
│   ├── NoRequestHash                a response was recorded without the hash of its request
│   └── RequestMismatch              the log does not rebuild the request a response answered
├── RunError                         a run by id refuses
│   ├── NoRun (LookupError)          there is no run of this id
│   ├── RunMismatch (ValueError)     the id is taken by a run with another input or of another kind
│   ├── RunBusy                      somebody else drives the run
│   ├── RunFinished                  the run is over; nothing can be told to it
│   ├── NotHeld                      the call does not wait for a decision
│   ├── NotHalted                    the call's outcome is not unknown
│   ├── AlreadyResolved              somebody said otherwise before
│   ├── HaltTooYoung                 the call may still be running
│   ├── WrongAnswer                  the answer is not of the type that was asked for
│   └── LeaseExpired                 the driver is not sure of its lease, so it enters no tool
├── StateError                       a conversation's state refuses
│   ├── InvalidState (ValueError)    what was stored is no state
│   ├── UnsupportedStateVersion (ValueError)   a newer version wrote it
│   ├── StateConflict                somebody else saved it meanwhile
│   ├── StateNotSaved (OSError)      its accessor failed to save it
│   └── TaskSettled                  a background task had its outcome before
├── PromptRefused                    a hook refused what the user said; nothing was sent
├── Guard                            a policy stops a drive; its text reaches the host alone
│   └── LoopDetected                 a drive repeated itself until it was stopped
├── CallEnded                        a call's handle was used after the call had ended
├── Aborted                          a drive was told to stop
├── SubscriberHung (TimeoutError)    a subscriber did not return while a drive wound down
├── OutputInvalid (ValueError)       no answer of the model fitted the type that was asked for
├── OutputRefused                    the model refused to give a typed answer
├── NoOutput (LookupError)           a run has no output, or none yet
└── RunFailed                        a run ended in error; carries its result

BaseException
└── Suspend                          a tool waits; the signal passes what catches exceptions
```

Messages name the thing with `!r` and, where there is one, the path to it.
This module imports nothing of perdure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Literal, TypeVar

ResultT_co = TypeVar("ResultT_co", covariant=True)

TimeoutPhase = Literal["connect", "first_byte", "idle", "total"]


class PerdureError(Exception):
    """The root of every error perdure raises."""


# --- misuse and configuration ------------------------------------------------


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


class AlreadyRunning(ConfigError):
    """The session is busy with another drive."""


class InsideEventLoop(ConfigError):
    """A synchronous entry was called where an event loop is running."""

    def __init__(self, name: str, instead: str) -> None:
        super().__init__(f"{name}() cannot run inside an event loop; await {instead}() instead")


# --- the wire ----------------------------------------------------------------


class WireError(PerdureError, ValueError):
    """Bytes or values are not Open Responses."""


class DecodeError(WireError):
    """JSON that cannot be read as what it should be.

    Attributes:
        path: Where, as `output[0].content[1].text`; empty at the root.
        reason: What is wrong there.
        source: The bytes that were given.
    """

    def __init__(self, reason: str, *, path: str = "", source: bytes = b"") -> None:
        self.path = path
        self.reason = reason
        self.source = source
        super().__init__(f"{path}: {reason}" if path else reason)


class FrameTooLarge(WireError):
    """An SSE frame is larger than the limit.

    Attributes:
        limit: The limit in bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"an SSE frame exceeds {limit} bytes")


class NotIJson(WireError):
    """A value that canonical JSON cannot carry (RFC 7493).

    Attributes:
        path: A JSON pointer to the value.
    """

    def __init__(self, reason: str, *, path: str = "") -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}" if path else reason)


class InvalidRequest(WireError):
    """A request that a server must refuse.

    Attributes:
        param: The member at fault, as `input[3].call_id`.
        code: `missing_required_parameter`, `invalid_value` or another wire code.
    """

    def __init__(
        self, message: str, *, param: str | None = None, code: str = "invalid_value"
    ) -> None:
        self.param = param
        self.code = code
        super().__init__(f"{param}: {message}" if param else message)
        self.message = message


class TerminalSent(WireError):
    """An event was to follow the terminal one."""

    def __init__(self) -> None:
        super().__init__("the terminal event was already sent; nothing may follow it")


# --- models ------------------------------------------------------------------


class ModelError(PerdureError):
    """A model call failed.

    Attributes:
        status: The HTTP status, when the server gave one.
    """

    status: int | None = None


class Transport(ModelError, ConnectionError):
    """The connection to the model failed: refused, reset, unresolved, not TLS."""


class ModelTimeout(Transport, TimeoutError):
    """A model call took too long.

    Attributes:
        phase: Which limit was reached: `connect`, `first_byte`, `idle` or `total`.
        seconds: That limit.
    """

    def __init__(self, phase: TimeoutPhase, seconds: float) -> None:
        self.phase: TimeoutPhase = phase
        self.seconds = seconds
        super().__init__(f"the model call reached its {phase} timeout of {seconds:g} s")


class Truncated(ModelError):
    """The stream ended before its terminal event. What had come is kept by whoever folded it."""

    def __init__(self, message: str = "the stream ended before its terminal event") -> None:
        super().__init__(message)


class EmptyBody(Truncated):
    """The server closed the answer without sending a byte of it."""

    def __init__(self) -> None:
        super().__init__("the server sent an empty body")


class BadBody(ModelError):
    """The server's answer is not JSON, or not a response.

    Attributes:
        body: The beginning of what it sent.
    """

    def __init__(self, reason: str, *, body: bytes = b"", status: int | None = None) -> None:
        self.body = body
        self.status = status
        super().__init__(reason)


class EmptyAnswer(ModelError):
    """A response that says nothing where an answer was due.

    Attributes:
        response_id: Its id.
    """

    def __init__(self, response_id: str, *, status: str = "") -> None:
        self.response_id = response_id
        how = f" with the status {status!r}" if status else ""
        super().__init__(f"response {response_id!r} has no output{how}; ask again")


class RecordedFailure(ModelError):
    """A model call or a drive failed on the record, which has its words and not its class.

    Attributes:
        again: The call was made again there, and may be made again here, at once.
        retry_after: Seconds to wait before that; None if it is not to be made again.
    """

    def __init__(self, message: str, *, again: bool = False) -> None:
        self.again = again
        self.retry_after = 0.0 if again else None
        super().__init__(message)


class NoRecordedTurn(ModelError):
    """A record was asked for more turns than it has.

    Attributes:
        turns: How many model calls it has, those that failed among them.
    """

    def __init__(self, turns: int) -> None:
        self.turns = turns
        super().__init__(f"the record has {turns} model calls, and another was asked for")


class ReplayMismatch(ModelError):
    """A record answers another request than the one that is made.

    Something else is sent than was then: other instructions, tools, settings, or items before.

    Attributes:
        entry: The response entry that would be next.
        recorded: The hash of the request that it answers.
        given: The hash of the request that was made; empty if it has none.
    """

    def __init__(self, entry: str, recorded: str, given: str) -> None:
        self.entry = entry
        self.recorded = recorded
        self.given = given
        super().__init__(
            f"response {entry!r} answers the request {recorded!r}, and {given!r} was made"
        )


class Rejected(ModelError):
    """The server refused the request, or said that the response failed.

    `rejection` picks the exact class.

    Attributes:
        status: The HTTP status; None for an error inside a stream.
        type: The wire's error type, as `invalid_request` or `too_many_requests`.
        code: The server's code, if any.
        param: The member at fault, if any.
        message: The server's own message.
        retry_after: Seconds the server asks to wait, if it said; never negative.
        headers: The headers that describe the error.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        type: str = "server_error",  # noqa: A002 - the wire's own name
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.message = message
        self.status = status
        self.type = type
        self.code = code
        self.param = param
        self.retry_after = retry_after
        self.headers: Mapping[str, str] = dict(headers or {})
        where = f" (HTTP {status})" if status is not None else ""
        super().__init__(f"{type}{where}: {message}")


class RateLimited(Rejected):
    """Too many requests or tokens for now. `retry_after` says how long to wait, if known."""


class QuotaExhausted(Rejected):
    """The account has no credit or quota left. Waiting does not help; somebody has to pay."""


class Overloaded(Rejected):
    """The server has no room at the moment. Another try later may succeed."""


class ServerFailed(Rejected):
    """The server failed, or a proxy before it did."""


class AuthFailed(Rejected):
    """The key is missing, wrong, or not allowed to do this."""


class NotFound(Rejected):
    """There is no such model, or nothing answers at this address."""


class ContextTooLong(Rejected):
    """The input, with what the answer may take, does not fit into the model's context."""


class InvalidInput(Rejected):
    """The request is wrong; the same request fails again. `param` names the member, if known."""


class NotTerminal(Rejected):
    """The answer is no end of a response: it is queued, still in progress, or was cancelled."""


_CODES: dict[type[Rejected], tuple[str, ...]] = {
    QuotaExhausted: (
        "insufficient_quota",
        "quota_exceeded",
        "billing_hard_limit_reached",
        "billing_not_active",
        "insufficient_balance",
        "insufficient_credits",
        "payment_required",
    ),
    RateLimited: ("rate_limit_exceeded", "rate_limit_error", "rate_limited", "too_many_requests"),
    Overloaded: (
        "server_overloaded",
        "overloaded",
        "overloaded_error",
        "engine_overloaded",
        "slow_down",
    ),
    ContextTooLong: ("context_length_exceeded", "context_window_exceeded"),
    AuthFailed: (
        "invalid_api_key",
        "authentication_error",
        "permission_error",
        "permission_denied",
    ),
    NotFound: ("not_found", "not_found_error", "model_not_found", "deployment_not_found"),
}
"""Codes and types that mean one thing, as servers write them, in lower case."""

_CLASS_OF_CODE = {code: cls for cls, codes in _CODES.items() for code in codes}

_CLASS_OF_STATUS: dict[int, type[Rejected]] = {
    401: AuthFailed,
    402: QuotaExhausted,
    403: AuthFailed,
    404: NotFound,
    408: ServerFailed,
    429: RateLimited,
    503: Overloaded,
    529: Overloaded,
}

_TOO_LONG = ("context length", "context window", "context_length", "prompt is too long")


def rejection(
    message: str,
    *,
    status: int | None = None,
    type: str | None = None,  # noqa: A002 - the wire's own name
    code: str | None = None,
    param: str | None = None,
    retry_after: float | None = None,
    headers: Mapping[str, str] | None = None,
) -> Rejected:
    """The error of what a server said, in its exact class.

    A code or type that means one thing decides, since servers say under 400 or 429 what they mean
    by it; then the status, or a code that is one.
    """
    said = _CLASS_OF_CODE.get((code or "").lower()) or _CLASS_OF_CODE.get((type or "").lower())
    cls = said or _class_of_status(status or _status_in(code), type, message)
    return cls(
        message,
        status=status,
        type=type or "server_error",
        code=code,
        param=param,
        retry_after=retry_after,
        headers=headers,
    )


def _status_in(code: str | None) -> int | None:
    return int(code) if code and code.isdecimal() and len(code) == 3 else None


def _class_of_status(status: int | None, type_: str | None, message: str) -> type[Rejected]:
    cls = _CLASS_OF_STATUS.get(status or 0)
    if cls is not None:
        return cls
    wrong = status < 500 if status else (type_ or "").startswith("invalid")
    if not wrong:
        return ServerFailed
    said = message.lower()
    return ContextTooLong if any(words in said for words in _TOO_LONG) else InvalidInput


# --- tools -------------------------------------------------------------------


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


# --- the log -----------------------------------------------------------------


class LogError(PerdureError):
    """The log or its store refuses."""


class NoSession(LogError, LookupError):
    """There is no session of this id or name.

    Attributes:
        session: The id or name.
    """

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(f"there is no session {session!r}")


class NoEntry(LogError, LookupError):
    """The session has no such entry.

    Attributes:
        entry: The id that was asked for.
    """

    def __init__(self, entry: str) -> None:
        self.entry = entry
        super().__init__(f"the session has no entry {entry!r}")


class SessionExists(LogError):
    """A session of this id exists already."""

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(f"session {session!r} exists already; open it, or give a fresh id")


class NameTaken(LogError):
    """Another session has the name.

    Attributes:
        name: The name.
        session: The id of the session that has it.
    """

    def __init__(self, name: str, session: str) -> None:
        self.name = name
        self.session = session
        super().__init__(f"the name {name!r} belongs to session {session!r}")


class UnsupportedFormat(LogError, ValueError):
    """A format that this version does not read.

    Attributes:
        format: The format as the header names it.
    """

    def __init__(self, format: str) -> None:  # noqa: A002 - the header's own name
        self.format = format
        super().__init__(f"cannot read the format {format!r}; a newer version may")


class CorruptLog(LogError, ValueError):
    """A line of a session is not what it must be.

    Attributes:
        line: Its number, from 1; 0 if it has none.
        reason: What is wrong with it.
    """

    def __init__(self, reason: str, *, line: int = 0) -> None:
        self.line = line
        self.reason = reason
        super().__init__(f"line {line}: {reason}" if line else reason)


class EntryRefused(LogError, ValueError):
    """An entry that the rules of the format forbid at this place; nothing was written."""


class StaleVersion(LogError):
    """An append built on another version of the session; nothing was written.

    Attributes:
        session: The session.
        expected: The version the append named.
        actual: The number of entries the session has.
    """

    def __init__(self, session: str, expected: int, actual: int) -> None:
        self.session = session
        self.expected = expected
        self.actual = actual
        super().__init__(
            f"session {session!r} has {actual} entries, the append was built on {expected}; "
            "read it again"
        )


class FenceLost(LogError):
    """The fence is not the one in force; nothing was written, and the driver must stop."""

    def __init__(self, root: str) -> None:
        self.root = root
        super().__init__(f"the lease on session {root!r} was lost; another driver may have it")


class Leased(LogError):
    """Another driver drives the session.

    Attributes:
        root: The root session.
        holder: Who holds the lease.
    """

    def __init__(self, root: str, holder: str) -> None:
        self.root = root
        self.holder = holder
        super().__init__(f"session {root!r} is driven by {holder!r}")


class StopRequested(LogError):
    """A stop of the tree waits to be taken up, so nothing with an effect may begin."""

    def __init__(self, root: str) -> None:
        self.root = root
        super().__init__(f"session {root!r} was told to stop; nothing with an effect may begin")


class MessageTaken(LogError):
    """An append consumes an inbox message that is not there to be consumed.

    Attributes:
        message: The message's id.
    """

    def __init__(self, message: str, why: str = "was consumed already") -> None:
        self.message = message
        super().__init__(f"message {message!r} {why}")


class RewindRefused(LogError):
    """A session cannot go on from an entry that it left behind; nothing was written.

    Attributes:
        session: The session.
        entry: The entry.
        reason: Why not.
    """

    def __init__(self, session: str, entry: str, reason: str) -> None:
        self.session = session
        self.entry = entry
        self.reason = reason
        super().__init__(f"session {session!r} cannot be rewound to {entry!r}: {reason}")


class TransactionUndone(LogError):
    """The function of a transactional tool failed; of what it did, and its output, nothing stands.

    Attributes:
        error: What it raised.
    """

    def __init__(self, error: BaseException) -> None:
        self.error = error
        super().__init__(f"the transaction was undone: {error!r}")
        self.__cause__ = error


class StoreFailed(LogError, OSError):
    """The store failed while it wrote, and whether it did is unknown.

    Submit the same append again: what was written is held, the rest is written (LOG 1.3).
    """


class NoRequestHash(LogError):
    """A response was recorded without the hash of its request, so nothing can be checked.

    Attributes:
        entry: The response entry.
    """

    def __init__(self, entry: str) -> None:
        self.entry = entry
        super().__init__(f"response {entry!r} has no request hash")


class RequestMismatch(LogError):
    """The log does not rebuild the request that a response answered.

    Attributes:
        entry: The response entry.
        recorded: The hash it holds.
        rebuilt: The hash of the request that the log gives.
    """

    def __init__(self, entry: str, recorded: str, rebuilt: str) -> None:
        self.entry = entry
        self.recorded = recorded
        self.rebuilt = rebuilt
        super().__init__(
            f"response {entry!r} answers the request {recorded!r}; the log rebuilds {rebuilt!r}"
        )


# --- runs by id --------------------------------------------------------------


class RunError(PerdureError):
    """A run by id refuses; nothing was written.

    Attributes:
        run: The id of the run.
    """

    def __init__(self, run: str, message: str) -> None:
        self.run = run
        super().__init__(message)


class NoRun(RunError, LookupError):
    """There is no run of this id."""

    def __init__(self, run: str) -> None:
        super().__init__(run, f"there is no run {run!r}")


class RunMismatch(RunError, ValueError):
    """A run id is bound to its input and its kind; another needs an id of its own."""

    def __init__(self, run: str, what: str) -> None:
        super().__init__(run, f"run {run!r} {what}; give another id for another run")


class RunBusy(RunError):
    """Somebody else drives the run. Wait for them, or ask later.

    Attributes:
        holder: Who, as far as the store knows.
    """

    def __init__(self, run: str, holder: str = "") -> None:
        self.holder = holder
        super().__init__(run, f"run {run!r} is being driven by {holder or 'another driver'}")


class RunFinished(RunError):
    """The run is over; nothing can be told to it.

    Attributes:
        status: How it ended.
    """

    def __init__(self, run: str, status: str) -> None:
        self.status = status
        super().__init__(run, f"run {run!r} is over: {status}")


class NotHeld(RunError):
    """The call does not wait for a decision.

    Attributes:
        call_id: The call.
    """

    def __init__(self, run: str, call_id: str, why: str) -> None:
        self.call_id = call_id
        super().__init__(run, f"call {call_id!r} of run {run!r} waits for no decision: {why}")


class NotHalted(RunError):
    """The call's outcome is not unknown, so there is nothing to resolve.

    Attributes:
        call_id: The call.
    """

    def __init__(self, run: str, call_id: str, why: str) -> None:
        self.call_id = call_id
        super().__init__(run, f"call {call_id!r} of run {run!r} is not halted: {why}")


class AlreadyResolved(RunError):
    """Somebody said otherwise before; the first word stands.

    Attributes:
        call_id: The call.
        recorded: What stands.
    """

    def __init__(self, run: str, call_id: str, recorded: str) -> None:
        self.call_id = call_id
        self.recorded = recorded
        super().__init__(run, f"call {call_id!r} of run {run!r} was resolved before: {recorded}")


class HaltTooYoung(RunError):
    """The call may still be running, so that nobody can know that it never ran (LOG 5.2).

    Attributes:
        call_id: The call.
        age: Seconds since it was dispatched, by the store's clock.
        minimum: Seconds that have to pass.
    """

    def __init__(self, run: str, call_id: str, age: float, minimum: float) -> None:
        self.call_id = call_id
        self.age = age
        self.minimum = minimum
        super().__init__(
            run,
            f"call {call_id!r} of run {run!r} was dispatched {age:.3f} s ago and may still be "
            f"running; wait until it is {minimum:g} s old",
        )


class WrongAnswer(RunError):
    """The answer to a question of a call is not of the type that was asked for.

    Attributes:
        call_id: The call.
    """

    def __init__(self, run: str, call_id: str, why: str) -> None:
        self.call_id = call_id
        super().__init__(run, f"the answer to call {call_id!r} of run {run!r} does not fit: {why}")


class LeaseExpired(RunError):
    """The driver is not sure of its lease any more, so it enters no tool (LOG 2.2)."""

    def __init__(self, run: str) -> None:
        super().__init__(run, f"the lease of {run!r} may have lapsed; the tool was not entered")


# --- the state of a conversation -----------------------------------------------


class StateError(PerdureError):
    """A conversation's state refuses."""


class InvalidState(StateError, ValueError):
    """What was stored is no state: it is not JSON, or a member is missing or of another type.

    Attributes:
        member: The member at fault; empty if it is the whole.
    """

    def __init__(self, reason: str, *, member: str = "") -> None:
        self.member = member
        self.reason = reason
        super().__init__(f"{member}: {reason}" if member else reason)


class UnsupportedStateVersion(StateError, ValueError):
    """A state of a version that this one does not read.

    Attributes:
        found: The version it has.
        supported: The versions that are read.
    """

    def __init__(self, found: float, supported: tuple[int, ...]) -> None:
        self.found = found
        self.supported = supported
        known = ", ".join(str(version) for version in supported)
        super().__init__(f"the state has version {found!r}; this reads {known}")


class StateConflict(StateError):
    """Somebody else saved the state since it was loaded; nothing was written.

    Attributes:
        key: What the store calls it.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"the state {key!r} was saved by somebody else; load it again")


class StateNotSaved(StateError, OSError):
    """The state's accessor failed to save it; `__cause__` says why. Nothing went on without it."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"the state could not be saved: {cause}")
        self.__cause__ = cause


class TaskSettled(StateError):
    """A background task had its outcome before; the first one stands.

    Attributes:
        task_id: The task.
        status: What became of it.
    """

    def __init__(self, task_id: str, status: str) -> None:
        self.task_id = task_id
        self.status = status
        super().__init__(f"task {task_id!r} is {status} already")


# --- drives ------------------------------------------------------------------


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
