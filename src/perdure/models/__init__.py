"""Models: the adapters that turn a request into a provider's HTTP, and its answer into events.

Words. An *adapter* is one provider's API: pure functions for its bodies, and a client over them. A
*body* is a list of *fragments*, bytes that were encoded once and are sent as they are. A *decoder*
makes events of the bytes of an answer. An *exchange* is one request sent and its answer. A *model
string*, `openai:gpt-5-mini`, names an adapter and a model.

Importing this package loads no HTTP client; an adapter does when it first sends something.
"""

from perdure.models.body import Body
from perdure.models.client import (
    Hooks,
    HttpRequest,
    HttpResponse,
    Timeouts,
)
from perdure.models.fallback import Fallback
from perdure.models.hedge import Hedge
from perdure.models.openresponses import OpenResponses
from perdure.models.registry import (
    Resolved,
    register,
    resolve,
    schemes,
)
from perdure.models.route import Route
from perdure.models.stream import EventStream, StreamEnd
from perdure.models.targets import Target

__all__ = [
    "Body",
    "EventStream",
    "Fallback",
    "Hedge",
    "Hooks",
    "HttpRequest",
    "HttpResponse",
    "OpenResponses",
    "Resolved",
    "Route",
    "StreamEnd",
    "Target",
    "Timeouts",
    "register",
    "resolve",
    "schemes",
]
