"""Open Responses over HTTP: OpenAI, and every server that speaks the same.

Three maps, each a pure function of bytes and values: `request_body` from a request, `StreamDecoder`
and `response` to events and a response; and `losses`, what the first cannot say. `OpenResponses` is
the client that sends and reads them. Its words are those of the wire itself.
"""

from perdure.models.openresponses.client import OpenResponses, register_models
from perdure.models.openresponses.request import compact_body, losses, request_body
from perdure.models.openresponses.stream import StreamDecoder, compact_response, response

__all__ = [
    "OpenResponses",
    "StreamDecoder",
    "compact_body",
    "compact_response",
    "losses",
    "register_models",
    "request_body",
    "response",
]
