"""Claude over the Messages API.

Three maps, each a pure function of bytes and values: `request_body` from a request, `StreamDecoder`
and `response` to events and a response; and `losses`, what the first cannot say. `Anthropic` is the
client that sends and reads them.

Words. A *message* of the API is a turn; a *block* is its piece of content. *Thinking* is what a
thought is called here.
"""

from perdure.models.anthropic.client import Anthropic, register_models
from perdure.models.anthropic.refusals import refusal
from perdure.models.anthropic.request import losses, request_body
from perdure.models.anthropic.stream import StreamDecoder, response

__all__ = [
    "Anthropic",
    "StreamDecoder",
    "losses",
    "refusal",
    "register_models",
    "request_body",
    "response",
]
