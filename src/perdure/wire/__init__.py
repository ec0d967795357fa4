"""The wire: Open Responses values, their codec, and what carries them.

Words. An *item* is one entry of a conversation: a message, a function call, its output, a thought.
A *part* is a piece of an item's content. A *request* holds items and settings; a *response* holds the
items a model made. A *stream event* is one step of a response on its way; events *fold* to the
response. *Absent* is a member that is not there, which null is not.

Values are frozen and lose nothing: what their types do not know is kept and encoded again.
The specification is Open Responses 2026-04-24.
"""

from perdure.wire.codec import (
    decode_compact_request as decode_compact_request,
)
from perdure.wire.codec import (
    decode_compact_response as decode_compact_response,
)
from perdure.wire.codec import (
    decode_error as decode_error,
)
from perdure.wire.codec import (
    decode_event as decode_event,
)
from perdure.wire.codec import (
    decode_item as decode_item,
)
from perdure.wire.codec import (
    decode_items as decode_items,
)
from perdure.wire.codec import (
    decode_request as decode_request,
)
from perdure.wire.codec import (
    decode_response as decode_response,
)
from perdure.wire.codec import (
    encode as encode,
)
from perdure.wire.codec import (
    register as register,
)
from perdure.wire.construct import (
    Content as Content,
)
from perdure.wire.construct import (
    assistant as assistant,
)
from perdure.wire.construct import (
    developer as developer,
)
from perdure.wire.construct import (
    function_call as function_call,
)
from perdure.wire.construct import (
    function_call_output as function_call_output,
)
from perdure.wire.construct import (
    function_tool as function_tool,
)
from perdure.wire.construct import (
    input_file as input_file,
)
from perdure.wire.construct import (
    input_image as input_image,
)
from perdure.wire.construct import (
    input_text as input_text,
)
from perdure.wire.construct import (
    json_schema as json_schema,
)
from perdure.wire.construct import (
    output_text as output_text,
)
from perdure.wire.construct import (
    reasoning as reasoning,
)
from perdure.wire.construct import (
    system as system,
)
from perdure.wire.construct import (
    user as user,
)
from perdure.wire.events import (
    ContentPartAdded as ContentPartAdded,
)
from perdure.wire.events import (
    ContentPartDone as ContentPartDone,
)
from perdure.wire.events import (
    DeltaEvent as DeltaEvent,
)
from perdure.wire.events import (
    ErrorEvent as ErrorEvent,
)
from perdure.wire.events import (
    FunctionCallArgumentsDelta as FunctionCallArgumentsDelta,
)
from perdure.wire.events import (
    FunctionCallArgumentsDone as FunctionCallArgumentsDone,
)
from perdure.wire.events import (
    OutputItemAdded as OutputItemAdded,
)
from perdure.wire.events import (
    OutputItemDone as OutputItemDone,
)
from perdure.wire.events import (
    OutputTextAnnotationAdded as OutputTextAnnotationAdded,
)
from perdure.wire.events import (
    OutputTextDelta as OutputTextDelta,
)
from perdure.wire.events import (
    OutputTextDone as OutputTextDone,
)
from perdure.wire.events import (
    ReasoningDelta as ReasoningDelta,
)
from perdure.wire.events import (
    ReasoningDone as ReasoningDone,
)
from perdure.wire.events import (
    ReasoningSummaryPartAdded as ReasoningSummaryPartAdded,
)
from perdure.wire.events import (
    ReasoningSummaryPartDone as ReasoningSummaryPartDone,
)
from perdure.wire.events import (
    ReasoningSummaryTextDelta as ReasoningSummaryTextDelta,
)
from perdure.wire.events import (
    ReasoningSummaryTextDone as ReasoningSummaryTextDone,
)
from perdure.wire.events import (
    ReasoningTextDelta as ReasoningTextDelta,
)
from perdure.wire.events import (
    ReasoningTextDone as ReasoningTextDone,
)
from perdure.wire.events import (
    RefusalDelta as RefusalDelta,
)
from perdure.wire.events import (
    RefusalDone as RefusalDone,
)
from perdure.wire.events import (
    ResponseCompleted as ResponseCompleted,
)
from perdure.wire.events import (
    ResponseCreated as ResponseCreated,
)
from perdure.wire.events import (
    ResponseEvent as ResponseEvent,
)
from perdure.wire.events import (
    ResponseFailed as ResponseFailed,
)
from perdure.wire.events import (
    ResponseIncomplete as ResponseIncomplete,
)
from perdure.wire.events import (
    ResponseInProgress as ResponseInProgress,
)
from perdure.wire.events import (
    ResponseQueued as ResponseQueued,
)
from perdure.wire.events import (
    StreamEvent as StreamEvent,
)
from perdure.wire.events import (
    TerminalEvent as TerminalEvent,
)
from perdure.wire.events import (
    UnknownEvent as UnknownEvent,
)
from perdure.wire.fold import Fold as Fold
from perdure.wire.items import (
    Compaction as Compaction,
)
from perdure.wire.items import (
    FunctionCall as FunctionCall,
)
from perdure.wire.items import (
    FunctionCallOutput as FunctionCallOutput,
)
from perdure.wire.items import (
    Item as Item,
)
from perdure.wire.items import (
    ItemReference as ItemReference,
)
from perdure.wire.items import (
    ItemStatus as ItemStatus,
)
from perdure.wire.items import (
    Message as Message,
)
from perdure.wire.items import (
    Reasoning as Reasoning,
)
from perdure.wire.items import (
    UnknownItem as UnknownItem,
)
from perdure.wire.parts import (
    Annotation as Annotation,
)
from perdure.wire.parts import (
    InputFile as InputFile,
)
from perdure.wire.parts import (
    InputImage as InputImage,
)
from perdure.wire.parts import (
    InputText as InputText,
)
from perdure.wire.parts import (
    InputVideo as InputVideo,
)
from perdure.wire.parts import (
    LogProb as LogProb,
)
from perdure.wire.parts import (
    OutputText as OutputText,
)
from perdure.wire.parts import (
    Part as Part,
)
from perdure.wire.parts import (
    ReasoningText as ReasoningText,
)
from perdure.wire.parts import (
    Refusal as Refusal,
)
from perdure.wire.parts import (
    SummaryText as SummaryText,
)
from perdure.wire.parts import (
    Text as Text,
)
from perdure.wire.parts import (
    TextPart as TextPart,
)
from perdure.wire.parts import (
    TopLogProb as TopLogProb,
)
from perdure.wire.parts import (
    UnknownAnnotation as UnknownAnnotation,
)
from perdure.wire.parts import (
    UnknownPart as UnknownPart,
)
from perdure.wire.parts import (
    UrlCitation as UrlCitation,
)
from perdure.wire.parts import (
    text_of as text_of,
)
from perdure.wire.requests import (
    CompactRequest as CompactRequest,
)
from perdure.wire.requests import (
    Format as Format,
)
from perdure.wire.requests import (
    JsonObjectFormat as JsonObjectFormat,
)
from perdure.wire.requests import (
    JsonSchemaFormat as JsonSchemaFormat,
)
from perdure.wire.requests import (
    ReasoningConfig as ReasoningConfig,
)
from perdure.wire.requests import (
    Request as Request,
)
from perdure.wire.requests import (
    StreamOptions as StreamOptions,
)
from perdure.wire.requests import (
    TextConfig as TextConfig,
)
from perdure.wire.requests import (
    TextFormat as TextFormat,
)
from perdure.wire.requests import (
    UnknownFormat as UnknownFormat,
)
from perdure.wire.responses import (
    CompactResponse as CompactResponse,
)
from perdure.wire.responses import (
    ErrorPayload as ErrorPayload,
)
from perdure.wire.responses import (
    IncompleteDetails as IncompleteDetails,
)
from perdure.wire.responses import (
    InputTokensDetails as InputTokensDetails,
)
from perdure.wire.responses import (
    OutputTokensDetails as OutputTokensDetails,
)
from perdure.wire.responses import (
    Response as Response,
)
from perdure.wire.responses import (
    ResponseStatus as ResponseStatus,
)
from perdure.wire.responses import (
    Usage as Usage,
)
from perdure.wire.surrogates import SurrogateJoiner as SurrogateJoiner
from perdure.wire.surrogates import scalar_text as scalar_text
from perdure.wire.tools import (
    AllowedTools as AllowedTools,
)
from perdure.wire.tools import (
    FunctionChoice as FunctionChoice,
)
from perdure.wire.tools import (
    FunctionTool as FunctionTool,
)
from perdure.wire.tools import (
    ToolChoice as ToolChoice,
)
from perdure.wire.tools import (
    ToolDefinition as ToolDefinition,
)
from perdure.wire.tools import (
    UnknownTool as UnknownTool,
)
from perdure.wire.tools import (
    UnknownToolChoice as UnknownToolChoice,
)
from perdure.wire.values import (
    ABSENT as ABSENT,
)
from perdure.wire.values import (
    Absent as Absent,
)
from perdure.wire.values import (
    Kept as Kept,
)
from perdure.wire.values import (
    Source as Source,
)
from perdure.wire.values import (
    Wire as Wire,
)
from perdure.wire.values import (
    with_unknown as with_unknown,
)
