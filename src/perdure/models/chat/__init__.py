"""Chat Completions over HTTP: OpenAI, and the many services and servers that speak the same.

Three maps, each a pure function of bytes and values: `request_body` from a request, `StreamDecoder`
and `response` to events and a response; and `losses`, what the first cannot say. `Chat` is the
client that sends and reads them.

Words. A *message* has a role; those of tools answer the calls of the assistant's before them. A
*chunk* is a frame of an answer, a *delta* what it adds to one. How services differ is their
*dialect*, in `perdure.models.dialects`.
"""

from perdure.models.chat.client import SCHEMES, Chat, base_url_of, register_models
from perdure.models.chat.refusals import refusal
from perdure.models.chat.request import losses, request_body
from perdure.models.chat.stream import StreamDecoder, response
from perdure.models.dialects import Dialect, dialect_at

__all__ = [
    "SCHEMES",
    "Chat",
    "Dialect",
    "StreamDecoder",
    "base_url_of",
    "dialect_at",
    "losses",
    "refusal",
    "register_models",
    "request_body",
    "response",
]
