"""The wire: Open Responses values, their codec, and what carries them.

Words. An *item* is one entry of a conversation: a message, a function call, its output, a thought. A
*part* is a piece of an item's content. A *request* holds items and settings; a *response* holds the
items a model made. A *stream event* is one step of a response on its way; events *fold* to the
response. *Absent* is a member that is not there, which null is not.

Values are frozen and lose nothing: what their types do not know is kept and encoded again.
The specification is Open Responses 2026-04-24.
"""

from perdure.wire.codec import (
    decode_compact_request as decode_compact_request,
    decode_compact_response as decode_compact_response,
    decode_error as decode_error,
    decode_event as decode_event,
    decode_item as decode_item,
    decode_items as decode_items,
    decode_request as decode_request,
    decode_response as decode_response,
    encode as encode,
    register as register,
)
from perdure.wire.construct import (
    Content as Content,
    assistant as assistant,
    developer as developer,
    function_call as function_call,
    function_call_output as function_call_output,
    function_tool as function_tool,
    input_file as input_file,
    input_image as input_image,
    input_text as input_text,
    json_schema as json_schema,
    output_text as output_text,
    reasoning as reasoning,
    system as system,
    user as user,
)
from perdure.wire.events import (
    ContentPartAdded as ContentPartAdded,
    ContentPartDone as ContentPartDone,
    DeltaEvent as DeltaEvent,
    ErrorEvent as ErrorEvent,
    FunctionCallArgumentsDelta as FunctionCallArgumentsDelta,
    FunctionCallArgumentsDone as FunctionCallArgumentsDone,
    OutputItemAdded as OutputItemAdded,
    OutputItemDone as OutputItemDone,
    OutputTextAnnotationAdded as OutputTextAnnotationAdded,
    OutputTextDelta as OutputTextDelta,
    OutputTextDone as OutputTextDone,
    ReasoningDelta as ReasoningDelta,
    ReasoningDone as ReasoningDone,
    ReasoningSummaryPartAdded as ReasoningSummaryPartAdded,
    ReasoningSummaryPartDone as ReasoningSummaryPartDone,
    ReasoningSummaryTextDelta as ReasoningSummaryTextDelta,
    ReasoningSummaryTextDone as ReasoningSummaryTextDone,
    ReasoningTextDelta as ReasoningTextDelta,
    ReasoningTextDone as ReasoningTextDone,
    RefusalDelta as RefusalDelta,
    RefusalDone as RefusalDone,
    ResponseCompleted as ResponseCompleted,
    ResponseCreated as ResponseCreated,
    ResponseEvent as ResponseEvent,
    ResponseFailed as ResponseFailed,
    ResponseInProgress as ResponseInProgress,
    ResponseIncomplete as ResponseIncomplete,
    ResponseQueued as ResponseQueued,
    StreamEvent as StreamEvent,
    TerminalEvent as TerminalEvent,
    UnknownEvent as UnknownEvent,
)
from perdure.wire.items import (
    Compaction as Compaction,
    FunctionCall as FunctionCall,
    FunctionCallOutput as FunctionCallOutput,
    Item as Item,
    ItemReference as ItemReference,
    ItemStatus as ItemStatus,
    Message as Message,
    Reasoning as Reasoning,
    UnknownItem as UnknownItem,
)
from perdure.wire.parts import (
    Annotation as Annotation,
    InputFile as InputFile,
    InputImage as InputImage,
    InputText as InputText,
    InputVideo as InputVideo,
    LogProb as LogProb,
    OutputText as OutputText,
    Part as Part,
    ReasoningText as ReasoningText,
    Refusal as Refusal,
    SummaryText as SummaryText,
    Text as Text,
    TextPart as TextPart,
    TopLogProb as TopLogProb,
    UnknownAnnotation as UnknownAnnotation,
    UnknownPart as UnknownPart,
    UrlCitation as UrlCitation,
    text_of as text_of,
)
from perdure.wire.requests import (
    CompactRequest as CompactRequest,
    Format as Format,
    JsonObjectFormat as JsonObjectFormat,
    JsonSchemaFormat as JsonSchemaFormat,
    ReasoningConfig as ReasoningConfig,
    Request as Request,
    StreamOptions as StreamOptions,
    TextConfig as TextConfig,
    TextFormat as TextFormat,
    UnknownFormat as UnknownFormat,
)
from perdure.wire.responses import (
    CompactResponse as CompactResponse,
    ErrorPayload as ErrorPayload,
    IncompleteDetails as IncompleteDetails,
    InputTokensDetails as InputTokensDetails,
    OutputTokensDetails as OutputTokensDetails,
    Response as Response,
    ResponseStatus as ResponseStatus,
    Usage as Usage,
)
from perdure.wire.tools import (
    AllowedTools as AllowedTools,
    FunctionChoice as FunctionChoice,
    FunctionTool as FunctionTool,
    ToolChoice as ToolChoice,
    ToolDefinition as ToolDefinition,
    UnknownTool as UnknownTool,
    UnknownToolChoice as UnknownToolChoice,
)
from perdure.wire.values import (
    ABSENT as ABSENT,
    Absent as Absent,
    Kept as Kept,
    Source as Source,
    Wire as Wire,
    with_unknown as with_unknown,
)
from perdure.wire.fold import Fold as Fold
from perdure.wire.surrogates import SurrogateJoiner as SurrogateJoiner
from perdure.wire.surrogates import scalar_text as scalar_text
