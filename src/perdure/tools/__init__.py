"""Tools: what a model may call, and how calls are run.

Words. A *tool* has a name, a description, parameters and `execute`; what else it says of itself
are its *traits*. Its *effect* is what it does to the world and decides what may happen twice. A
*call* is one function call and all that happens to it; its *handle* is what the tool holds of it
while it runs. *Arguments* are JSON text that a model wrote; a *shape* reads them strictly and
writes the *schema* that the model was shown. A *result* has an *output* for the model and
*details* for the host. A *batch* is the calls of one response; each is a *job* of the executor
and gets one *outcome*.
"""

from perdure.tools.approval import Approval, Gate, Keyring, KeySource
from perdure.tools.arguments import (
    arguments_digest,
    canonical_arguments,
    parse_arguments,
    plain_arguments,
)
from perdure.tools.call import (
    NO_PORT,
    Call,
    CallPort,
    CancelSignal,
    ProgressInfo,
    current_call,
    running_call,
)
from perdure.tools.compensation import Compensation, Compensator
from perdure.tools.definition import ToolSet, definition, definition_hash
from perdure.tools.effect import EFFECTS, Effect, EffectOf
from perdure.tools.elicitation import AskedCall, Elicitor, Question, Reply, current_elicitor, elicit
from perdure.tools.entry import abandoned
from perdure.tools.executor import Batch, Executor
from perdure.tools.function import TypedTool, as_tool, tool
from perdure.tools.job import BatchHooks, Enter, Job, Outcome, Status, chains
from perdure.tools.json_schema import check_value
from perdure.tools.raw import RawTool
from perdure.tools.result import ToolResult, error_result, to_result
from perdure.tools.schema import json_schema
from perdure.tools.secret import Secret
from perdure.tools.tool import (
    Found,
    NeverRan,
    Reconciled,
    Reconciler,
    Tool,
    ToolAnnotations,
    Traits,
    approval_of,
    check_arguments,
    effect_of,
    traits,
)
from perdure.tools.transaction import AsyncTx, Rows, Transaction, Tx, check_transactional
from perdure.tools.wrap import unwrap, wrap

__all__ = [
    "EFFECTS",
    "NO_PORT",
    "Approval",
    "AskedCall",
    "AsyncTx",
    "Batch",
    "BatchHooks",
    "Call",
    "CallPort",
    "CancelSignal",
    "Compensation",
    "Compensator",
    "Effect",
    "EffectOf",
    "Elicitor",
    "Enter",
    "Executor",
    "Found",
    "Gate",
    "Job",
    "KeySource",
    "Keyring",
    "NeverRan",
    "Outcome",
    "ProgressInfo",
    "Question",
    "RawTool",
    "Reconciled",
    "Reconciler",
    "Reply",
    "Rows",
    "Secret",
    "Status",
    "Tool",
    "ToolAnnotations",
    "ToolResult",
    "ToolSet",
    "Traits",
    "Transaction",
    "Tx",
    "TypedTool",
    "abandoned",
    "approval_of",
    "arguments_digest",
    "as_tool",
    "canonical_arguments",
    "chains",
    "check_arguments",
    "check_transactional",
    "check_value",
    "current_call",
    "current_elicitor",
    "definition",
    "definition_hash",
    "effect_of",
    "elicit",
    "error_result",
    "json_schema",
    "parse_arguments",
    "plain_arguments",
    "running_call",
    "to_result",
    "tool",
    "traits",
    "unwrap",
    "wrap",
]
