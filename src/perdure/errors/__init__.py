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
│   ├── NeedsApproval                a call waits for votes, and no answer stands for them
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
│   ├── NoProgress                   a driver did the same again, and nothing came of it
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
│   ├── VoteRefused                  a vote cannot count for the call
│   ├── NotHalted                    the call's outcome is not unknown
│   ├── AlreadyResolved              somebody said otherwise before
│   ├── HaltTooYoung                 the call may still be running
│   ├── WrongAnswer                  the answer is not of the type that was asked for
│   ├── WaitsBelow                   only sub-agents of the run wait for what it is told
│   └── LeaseExpired                 the driver is not sure of its lease, so it enters no tool
├── StateError                       a conversation's state refuses
│   ├── InvalidState (ValueError)    what was stored is no state
│   ├── UnsupportedStateVersion (ValueError)   a newer version wrote it
│   ├── StateConflict                somebody else saved it meanwhile
│   ├── StateNotSaved (OSError)      its accessor failed to save it
│   └── TaskSettled                  a background task had its outcome before
├── BudgetExceeded                   the next request would cross a budget; the drive stops
├── PromptRefused                    a hook refused what the user said; nothing was sent
├── Guard                            a policy stops a drive; its text reaches the host alone
│   └── LoopDetected                 a drive repeated itself until it was stopped
├── NotEntered                       a call that may have run was answered without its tool
├── CallEnded                        a call's handle was used after the call had ended
├── Aborted                          a drive was told to stop
│   └── Tripped                      a call of a saga failed
├── SubscriberHung (TimeoutError)    a subscriber did not return while a drive wound down
├── OutputInvalid (ValueError)       no answer of the model fitted the type that was asked for
├── OutputRefused                    the model refused to give a typed answer
├── NoOutput (LookupError)           a run has no output, or none yet
├── CompensationFailed               a compensator failed; the rollback of its saga stopped
└── RunFailed                        a run ended in error; carries its result
    └── SagaRolledBack               a saga failed and was rolled back; carries the report

BaseException
└── Suspend                          a tool waits; the signal passes what catches exceptions
```

Messages name the thing with `!r` and, where there is one, the path to it.
Each branch is a module; this package imports nothing else of perdure.
"""

from __future__ import annotations

from perdure.errors.base import PerdureError
from perdure.errors.drives import (
    Aborted,
    BudgetExceeded,
    CallEnded,
    CompensationFailed,
    Guard,
    LoopDetected,
    NoOutput,
    NotEntered,
    OutputInvalid,
    OutputRefused,
    PromptRefused,
    RunFailed,
    SagaRolledBack,
    SubscriberHung,
    Suspend,
    Tripped,
)
from perdure.errors.log import (
    CorruptLog,
    EntryRefused,
    FenceLost,
    Leased,
    LogError,
    MessageTaken,
    NameTaken,
    NoEntry,
    NoProgress,
    NoRequestHash,
    NoSession,
    RequestMismatch,
    RewindRefused,
    SessionExists,
    StaleVersion,
    StopRequested,
    StoreFailed,
    TransactionUndone,
    UnsupportedFormat,
)
from perdure.errors.misuse import (
    AlreadyRunning,
    AmbiguousCall,
    CallAnswered,
    CannotContinue,
    ConfigError,
    DuplicateTool,
    InputRequired,
    InsideEventLoop,
    MissingKey,
    NeedsApproval,
    NoPrompt,
    NotPending,
    NoTransactions,
    UnknownModel,
)
from perdure.errors.models import (
    AuthFailed,
    BadBody,
    ContextTooLong,
    EmptyAnswer,
    EmptyBody,
    InvalidInput,
    ModelError,
    ModelTimeout,
    NoRecordedTurn,
    NotFound,
    NotTerminal,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    RecordedFailure,
    Rejected,
    ReplayMismatch,
    ServerFailed,
    TimeoutPhase,
    Transport,
    Truncated,
    rejection,
)
from perdure.errors.runs import (
    AlreadyResolved,
    HaltTooYoung,
    LeaseExpired,
    NoRun,
    NotHalted,
    NotHeld,
    RunBusy,
    RunError,
    RunFinished,
    RunMismatch,
    VoteRefused,
    WaitsBelow,
    WrongAnswer,
)
from perdure.errors.state import (
    InvalidState,
    StateConflict,
    StateError,
    StateNotSaved,
    TaskSettled,
    UnsupportedStateVersion,
)
from perdure.errors.tools import (
    InvalidArguments,
    OutcomeUnknown,
    StepFailed,
    SuspendSwallowed,
    ToolError,
    ToolPanic,
    ToolTimeout,
    TransactionRefused,
)
from perdure.errors.wire import (
    DecodeError,
    FrameTooLarge,
    InvalidRequest,
    NotIJson,
    TerminalSent,
    WireError,
)

__all__ = [
    "Aborted",
    "AlreadyResolved",
    "AlreadyRunning",
    "AmbiguousCall",
    "AuthFailed",
    "BadBody",
    "BudgetExceeded",
    "CallAnswered",
    "CallEnded",
    "CannotContinue",
    "CompensationFailed",
    "ConfigError",
    "ContextTooLong",
    "CorruptLog",
    "DecodeError",
    "DuplicateTool",
    "EmptyAnswer",
    "EmptyBody",
    "EntryRefused",
    "FenceLost",
    "FrameTooLarge",
    "Guard",
    "HaltTooYoung",
    "InputRequired",
    "InsideEventLoop",
    "InvalidArguments",
    "InvalidInput",
    "InvalidRequest",
    "InvalidState",
    "LeaseExpired",
    "Leased",
    "LogError",
    "LoopDetected",
    "MessageTaken",
    "MissingKey",
    "ModelError",
    "ModelTimeout",
    "NameTaken",
    "NeedsApproval",
    "NoEntry",
    "NoOutput",
    "NoProgress",
    "NoPrompt",
    "NoRecordedTurn",
    "NoRequestHash",
    "NoRun",
    "NoSession",
    "NoTransactions",
    "NotEntered",
    "NotFound",
    "NotHalted",
    "NotHeld",
    "NotIJson",
    "NotPending",
    "NotTerminal",
    "OutcomeUnknown",
    "OutputInvalid",
    "OutputRefused",
    "Overloaded",
    "PerdureError",
    "PromptRefused",
    "QuotaExhausted",
    "RateLimited",
    "RecordedFailure",
    "Rejected",
    "ReplayMismatch",
    "RequestMismatch",
    "RewindRefused",
    "RunBusy",
    "RunError",
    "RunFailed",
    "RunFinished",
    "RunMismatch",
    "SagaRolledBack",
    "ServerFailed",
    "SessionExists",
    "StaleVersion",
    "StateConflict",
    "StateError",
    "StateNotSaved",
    "StepFailed",
    "StopRequested",
    "StoreFailed",
    "SubscriberHung",
    "Suspend",
    "SuspendSwallowed",
    "TaskSettled",
    "TerminalSent",
    "TimeoutPhase",
    "ToolError",
    "ToolPanic",
    "ToolTimeout",
    "TransactionRefused",
    "TransactionUndone",
    "Transport",
    "Tripped",
    "Truncated",
    "UnknownModel",
    "UnsupportedFormat",
    "UnsupportedStateVersion",
    "VoteRefused",
    "WaitsBelow",
    "WireError",
    "WrongAnswer",
    "rejection",
]
