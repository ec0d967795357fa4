"""Models: the adapters that turn a request into a provider's HTTP, and its answer into events.

Words. An *adapter* is one provider's API: pure functions for its bodies, and a client over them. A
*model string*, `openai:gpt-5-mini`, names an adapter and a model; its *scheme* stands before the
colon.

* A package for each adapter: `openresponses`, `chat`, `anthropic`, `gemini`, `bedrock`. How the
  services of chat completions differ stands in `dialects`; `openrouter` is one of them.
* `mapping` is what adapters share between wire items and JSON, `http` what lies below them.
* `registry` resolves model strings, `capabilities` says what models can do, `catalogue` lists both.
* `others` lets other models than a drive's own answer.

Importing this package loads no HTTP client; an adapter does when it first sends something.
"""

from perdure.models.http.body import Body
from perdure.models.http.client import (
    ClientOptions,
    Hooks,
    HttpRequest,
    HttpResponse,
)
from perdure.models.http.stream import EventStream, StreamEnd
from perdure.models.http.timeouts import Timeouts
from perdure.models.openresponses import OpenResponses
from perdure.models.others.fallback import Fallback
from perdure.models.others.hedge import Hedge
from perdure.models.others.route import Route
from perdure.models.others.targets import Target
from perdure.models.registry import (
    Resolved,
    register,
    resolve,
    schemes,
)

__all__ = [
    "Body",
    "ClientOptions",
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
