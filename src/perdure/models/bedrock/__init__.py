"""The models of Bedrock over Converse, signed and cut into frames by botocore.

Three maps, each a pure function of bytes and values: `request_body` from a request, `StreamDecoder`
and `response` to events and a response; and `losses`, what the first cannot say. `Bedrock` is the
client that sends and reads them. It needs the extra `bedrock`.

Words. A *message* of Converse is a turn; a *block* is its piece of content. An answer is not SSE
but AWS's binary *event stream*.
"""

from perdure.models.bedrock.client import Bedrock, register_models
from perdure.models.bedrock.refusals import refusal
from perdure.models.bedrock.request import losses, path_of, request_body
from perdure.models.bedrock.stream import StreamDecoder, response

__all__ = [
    "Bedrock",
    "StreamDecoder",
    "losses",
    "path_of",
    "refusal",
    "register_models",
    "request_body",
    "response",
]
