"""perdure: an agent runtime for work that must not go wrong twice.

```python
from perdure import Agent, tool

@tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

agent = Agent("openai:gpt-5-mini", tools=[add])
print(agent.run_sync("What is 19 + 23?").text)
```

Everything below is loaded when it is first used, so `import perdure` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.agent import Agent as Agent
    from perdure.errors import (
        ConfigError as ConfigError,
        ModelError as ModelError,
        PerdureError as PerdureError,
        RunFailed as RunFailed,
        ToolError as ToolError,
    )
    from perdure.loop import Model as Model, ModelRequest as ModelRequest, collect as collect
    from perdure.models import OpenResponses as OpenResponses
    from perdure.result import RunResult as RunResult
    from perdure.stream import RunStream as RunStream
    from perdure.tools import (
        Call as Call,
        Secret as Secret,
        Tool as Tool,
        ToolResult as ToolResult,
        current_call as current_call,
        tool as tool,
    )
    from perdure.wire import Request as Request, system as system, user as user

_HOMES = {
    "Agent": "perdure.agent",
    "Call": "perdure.tools",
    "ConfigError": "perdure.errors",
    "Model": "perdure.loop",
    "ModelError": "perdure.errors",
    "ModelRequest": "perdure.loop",
    "OpenResponses": "perdure.models",
    "PerdureError": "perdure.errors",
    "Request": "perdure.wire",
    "RunFailed": "perdure.errors",
    "RunResult": "perdure.result",
    "RunStream": "perdure.stream",
    "Secret": "perdure.tools",
    "Tool": "perdure.tools",
    "ToolError": "perdure.errors",
    "ToolResult": "perdure.tools",
    "collect": "perdure.loop",
    "current_call": "perdure.tools",
    "system": "perdure.wire",
    "tool": "perdure.tools",
    "user": "perdure.wire",
}

__all__ = [
    "Agent",
    "Call",
    "ConfigError",
    "Model",
    "ModelError",
    "ModelRequest",
    "OpenResponses",
    "PerdureError",
    "Request",
    "RunFailed",
    "RunResult",
    "RunStream",
    "Secret",
    "Tool",
    "ToolError",
    "ToolResult",
    "collect",
    "current_call",
    "system",
    "tool",
    "user",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'perdure' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
