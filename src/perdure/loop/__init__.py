"""The loop: one conversation with a model, turn by turn, as functions over data.

Words. A *drive* is one pass: from an input until the loop stops calling the model. It consists of
*turns*: one model call each, and the *batch* of tool calls it asked for. A *call* is one function
call and all that happens to it. What a drive does is told as *events*, in order, and written to a
*ledger* first. A call without an output is *pending*.

The loop knows a model, tools and a ledger by their protocols, and nothing of stores or providers.
"""

from perdure.loop.answers import (
    OUTCOME_UNKNOWN_REASON,
    Answer,
    answer_with,
    approve,
    deny,
    outcome_unknown,
    refuse,
)
from perdure.loop.barrier import Subscriber
from perdure.loop.broadcast import Broadcast, Cursor, Replay
from perdure.loop.callids import CallIds
from perdure.loop.config import (
    DEFAULT_GRACE,
    DEFAULT_MAX_PARALLEL,
    DEFAULT_WIND_DOWN,
    Config,
    ToolProvider,
    ToolRecorder,
    visible_to_model,
)
from perdure.loop.context import (
    DriveScope,
    LoopPort,
    current_run_id,
    drive_scope,
    holds_up,
    invoke,
)
from perdure.loop.decisions import Action, Decider, Provenance, ToolDecision
from perdure.loop.decorators import (
    after_tool_call,
    alongside_model_call,
    before_model_call,
    before_run,
    before_tool_call,
    before_turn,
    on_end,
    on_event,
    on_message,
    should_stop,
    transform,
    wrap_model_call,
    wrap_tool_call,
)
from perdure.loop.drive import Opening, can_continue, check_opening, refuse_references
from perdure.loop.events import (
    Event,
    InputMode,
    ItemEnd,
    ItemStart,
    ItemUpdate,
    ModelBlocked,
    ModelRetry,
    Queued,
    QueueMode,
    Reason,
    ResponseEnd,
    RunEnd,
    RunStart,
    Source,
    StopCause,
    ToolDispatch,
    ToolEnd,
    ToolStart,
    ToolUpdate,
    TurnEnd,
    TurnInput,
    TurnStart,
)
from perdure.loop.ledger import Ledger, NullLedger, Ticket
from perdure.loop.losses import Loss, losses_of
from perdure.loop.lowlevel import EVENT_BUFFER, Events, begin, continue_, ids_of, run
from perdure.loop.middleware import (
    MessageInfo,
    Middleware,
    NextModel,
    NextTool,
    RunInfo,
    ToolCallInfo,
    ToolOverride,
    ToolResultInfo,
    TurnInfo,
    TurnStartInfo,
)
from perdure.loop.model import Model, ModelRequest, collect
from perdure.loop.pending import PendingCall, PendingReason, unanswered
from perdure.loop.queues import Queues, Waiting
from perdure.loop.registry import DriveHandle
from perdure.loop.request import request_settings, resolve_tools
from perdure.loop.resume import RUN_AGAIN, RUN_AGAIN_KEYED, RUN_AGAIN_SAFE, check_answers
from perdure.loop.retry import Retry, is_retryable
from perdure.loop.settings import Settings
from perdure.loop.transcript import Items, Transcript
from perdure.loop.trigger import Hidden, Trigger, unhide
from perdure.loop.turn import NOT_RUN_CUT, NOT_RUN_WITHHELD

__all__ = [
    "DEFAULT_GRACE",
    "DEFAULT_MAX_PARALLEL",
    "DEFAULT_WIND_DOWN",
    "EVENT_BUFFER",
    "NOT_RUN_CUT",
    "NOT_RUN_WITHHELD",
    "OUTCOME_UNKNOWN_REASON",
    "RUN_AGAIN",
    "RUN_AGAIN_KEYED",
    "RUN_AGAIN_SAFE",
    "Action",
    "Answer",
    "Broadcast",
    "CallIds",
    "Config",
    "Cursor",
    "Decider",
    "DriveHandle",
    "DriveScope",
    "Event",
    "Events",
    "Hidden",
    "InputMode",
    "ItemEnd",
    "ItemStart",
    "ItemUpdate",
    "Items",
    "Ledger",
    "LoopPort",
    "Loss",
    "MessageInfo",
    "Middleware",
    "Model",
    "ModelBlocked",
    "ModelRequest",
    "ModelRetry",
    "NextModel",
    "NextTool",
    "NullLedger",
    "Opening",
    "PendingCall",
    "PendingReason",
    "Provenance",
    "QueueMode",
    "Queued",
    "Queues",
    "Reason",
    "Replay",
    "ResponseEnd",
    "Retry",
    "RunEnd",
    "RunInfo",
    "RunStart",
    "Settings",
    "Source",
    "StopCause",
    "Subscriber",
    "Ticket",
    "ToolCallInfo",
    "ToolDecision",
    "ToolDispatch",
    "ToolEnd",
    "ToolOverride",
    "ToolProvider",
    "ToolRecorder",
    "ToolResultInfo",
    "ToolStart",
    "ToolUpdate",
    "Transcript",
    "Trigger",
    "TurnEnd",
    "TurnInfo",
    "TurnInput",
    "TurnStart",
    "TurnStartInfo",
    "Waiting",
    "after_tool_call",
    "alongside_model_call",
    "answer_with",
    "approve",
    "before_model_call",
    "before_run",
    "before_tool_call",
    "before_turn",
    "begin",
    "can_continue",
    "check_answers",
    "check_opening",
    "collect",
    "continue_",
    "current_run_id",
    "deny",
    "drive_scope",
    "holds_up",
    "ids_of",
    "invoke",
    "is_retryable",
    "losses_of",
    "on_end",
    "on_event",
    "on_message",
    "outcome_unknown",
    "refuse",
    "refuse_references",
    "request_settings",
    "resolve_tools",
    "run",
    "should_stop",
    "transform",
    "unanswered",
    "unhide",
    "visible_to_model",
    "wrap_model_call",
    "wrap_tool_call",
]
