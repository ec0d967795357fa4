"""Gemini over its own API, with an API key.

Three maps, each a pure function of bytes and values: `request_body` from a request, `StreamDecoder`
and `response` to events and a response; and `losses`, what the first cannot say. `Gemini` is the
client that sends and reads them.

Words. A *content* is a turn, a *part* its piece. A *thought signature* seals a part, for Gemini to
get it back.
"""

from perdure.models.gemini.client import Gemini, register_models
from perdure.models.gemini.refusals import refusal
from perdure.models.gemini.request import losses, path_of, request_body
from perdure.models.gemini.stream import StreamDecoder, response

__all__ = [
    "Gemini",
    "StreamDecoder",
    "losses",
    "path_of",
    "refusal",
    "register_models",
    "request_body",
    "response",
]
