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
    from perdure.agent import (
        Agent as Agent,
    )
    from perdure.compose import (
        call_model as call_model,
    )
    from perdure.compose.hooks import (
        HooksManager as HooksManager,
    )
    from perdure.durable import (
        Received as Received,
        RecordedRun as RecordedRun,
        ack as ack,
        events_of as events_of,
        interrupt as interrupt,
        parallel as parallel,
        receive as receive,
        replay_model as replay_model,
        run_agent as run_agent,
        sleep as sleep,
        sleep_until as sleep_until,
        step as step,
        step_key as step_key,
        wait_for as wait_for,
    )
    from perdure.errors import (
        ConfigError as ConfigError,
        Guard as Guard,
        ModelError as ModelError,
        OutcomeUnknown as OutcomeUnknown,
        PerdureError as PerdureError,
        RunFailed as RunFailed,
        ToolError as ToolError,
    )
    from perdure.loop import (
        Answer as Answer,
        Hidden as Hidden,
        Middleware as Middleware,
        Model as Model,
        ModelRequest as ModelRequest,
        PendingCall as PendingCall,
        Retry as Retry,
        Settings as Settings,
        ToolDecision as ToolDecision,
        ToolOverride as ToolOverride,
        Trigger as Trigger,
        after_tool_call as after_tool_call,
        alongside_model_call as alongside_model_call,
        answer_with as answer_with,
        approve as approve,
        before_model_call as before_model_call,
        before_run as before_run,
        before_tool_call as before_tool_call,
        before_turn as before_turn,
        collect as collect,
        deny as deny,
        drive_scope as drive_scope,
        invoke as invoke,
        on_end as on_end,
        on_event as on_event,
        on_message as on_message,
        outcome_unknown as outcome_unknown,
        refuse as refuse,
        should_stop as should_stop,
        transform as transform,
        wrap_model_call as wrap_model_call,
        wrap_tool_call as wrap_tool_call,
    )
    from perdure.middleware import (
        Cost as Cost,
        Meter as Meter,
        RateLimit as RateLimit,
        Rates as Rates,
        Redact as Redact,
        StandingApprovals as StandingApprovals,
        ToolCache as ToolCache,
        ToolLog as ToolLog,
        ToolRateLimit as ToolRateLimit,
        ToolRetry as ToolRetry,
        always as always,
        never as never,
    )
    from perdure.models import (
        Fallback as Fallback,
        Hedge as Hedge,
        OpenResponses as OpenResponses,
        Route as Route,
    )
    from perdure.output import (
        Output as Output,
    )
    from perdure.programs import (
        Program as Program,
    )
    from perdure.result import (
        RunResult as RunResult,
    )
    from perdure.runs import (
        Runs as Runs,
        recover as recover,
        recovering as recovering,
    )
    from perdure.session import (
        Delivered as Delivered,
        Session as Session,
    )
    from perdure.stream import (
        RunStream as RunStream,
    )
    from perdure.tools import (
        Call as Call,
        Found as Found,
        NeverRan as NeverRan,
        Question as Question,
        RawTool as RawTool,
        Reply as Reply,
        Secret as Secret,
        Tool as Tool,
        ToolResult as ToolResult,
        current_call as current_call,
        elicit as elicit,
        tool as tool,
    )
    from perdure.wire import (
        Request as Request,
        assistant as assistant,
        developer as developer,
        system as system,
        user as user,
    )

_HOMES = {
    "Agent": "perdure.agent",
    "Answer": "perdure.loop",
    "Call": "perdure.tools",
    "ConfigError": "perdure.errors",
    "Cost": "perdure.middleware",
    "Delivered": "perdure.session",
    "Fallback": "perdure.models",
    "Found": "perdure.tools",
    "Guard": "perdure.errors",
    "Hedge": "perdure.models",
    "Hidden": "perdure.loop",
    "HooksManager": "perdure.compose.hooks",
    "Meter": "perdure.middleware",
    "Middleware": "perdure.loop",
    "Model": "perdure.loop",
    "ModelError": "perdure.errors",
    "ModelRequest": "perdure.loop",
    "NeverRan": "perdure.tools",
    "OpenResponses": "perdure.models",
    "OutcomeUnknown": "perdure.errors",
    "Output": "perdure.output",
    "PendingCall": "perdure.loop",
    "PerdureError": "perdure.errors",
    "Program": "perdure.programs",
    "Question": "perdure.tools",
    "RateLimit": "perdure.middleware",
    "Rates": "perdure.middleware",
    "RawTool": "perdure.tools",
    "Received": "perdure.durable",
    "RecordedRun": "perdure.durable",
    "Redact": "perdure.middleware",
    "Reply": "perdure.tools",
    "Request": "perdure.wire",
    "Retry": "perdure.loop",
    "Route": "perdure.models",
    "RunFailed": "perdure.errors",
    "RunResult": "perdure.result",
    "RunStream": "perdure.stream",
    "Runs": "perdure.runs",
    "Secret": "perdure.tools",
    "Session": "perdure.session",
    "Settings": "perdure.loop",
    "StandingApprovals": "perdure.middleware",
    "Tool": "perdure.tools",
    "ToolCache": "perdure.middleware",
    "ToolDecision": "perdure.loop",
    "ToolError": "perdure.errors",
    "ToolLog": "perdure.middleware",
    "ToolOverride": "perdure.loop",
    "ToolRateLimit": "perdure.middleware",
    "ToolResult": "perdure.tools",
    "ToolRetry": "perdure.middleware",
    "Trigger": "perdure.loop",
    "ack": "perdure.durable",
    "after_tool_call": "perdure.loop",
    "alongside_model_call": "perdure.loop",
    "always": "perdure.middleware",
    "answer_with": "perdure.loop",
    "approve": "perdure.loop",
    "assistant": "perdure.wire",
    "before_model_call": "perdure.loop",
    "before_run": "perdure.loop",
    "before_tool_call": "perdure.loop",
    "before_turn": "perdure.loop",
    "call_model": "perdure.compose",
    "collect": "perdure.loop",
    "current_call": "perdure.tools",
    "deny": "perdure.loop",
    "developer": "perdure.wire",
    "drive_scope": "perdure.loop",
    "elicit": "perdure.tools",
    "events_of": "perdure.durable",
    "interrupt": "perdure.durable",
    "invoke": "perdure.loop",
    "never": "perdure.middleware",
    "on_end": "perdure.loop",
    "on_event": "perdure.loop",
    "on_message": "perdure.loop",
    "outcome_unknown": "perdure.loop",
    "parallel": "perdure.durable",
    "receive": "perdure.durable",
    "recover": "perdure.runs",
    "recovering": "perdure.runs",
    "refuse": "perdure.loop",
    "replay_model": "perdure.durable",
    "run_agent": "perdure.durable",
    "should_stop": "perdure.loop",
    "sleep": "perdure.durable",
    "sleep_until": "perdure.durable",
    "step": "perdure.durable",
    "step_key": "perdure.durable",
    "system": "perdure.wire",
    "tool": "perdure.tools",
    "transform": "perdure.loop",
    "user": "perdure.wire",
    "wait_for": "perdure.durable",
    "wrap_model_call": "perdure.loop",
    "wrap_tool_call": "perdure.loop",
}

__all__ = [
    "Agent",
    "Answer",
    "Call",
    "ConfigError",
    "Cost",
    "Delivered",
    "Fallback",
    "Found",
    "Guard",
    "Hedge",
    "Hidden",
    "HooksManager",
    "Meter",
    "Middleware",
    "Model",
    "ModelError",
    "ModelRequest",
    "NeverRan",
    "OpenResponses",
    "OutcomeUnknown",
    "Output",
    "PendingCall",
    "PerdureError",
    "Program",
    "Question",
    "RateLimit",
    "Rates",
    "RawTool",
    "Received",
    "RecordedRun",
    "Redact",
    "Reply",
    "Request",
    "Retry",
    "Route",
    "RunFailed",
    "RunResult",
    "RunStream",
    "Runs",
    "Secret",
    "Session",
    "Settings",
    "StandingApprovals",
    "Tool",
    "ToolCache",
    "ToolDecision",
    "ToolError",
    "ToolLog",
    "ToolOverride",
    "ToolRateLimit",
    "ToolResult",
    "ToolRetry",
    "Trigger",
    "ack",
    "after_tool_call",
    "alongside_model_call",
    "always",
    "answer_with",
    "approve",
    "assistant",
    "before_model_call",
    "before_run",
    "before_tool_call",
    "before_turn",
    "call_model",
    "collect",
    "current_call",
    "deny",
    "developer",
    "drive_scope",
    "elicit",
    "events_of",
    "interrupt",
    "invoke",
    "never",
    "on_end",
    "on_event",
    "on_message",
    "outcome_unknown",
    "parallel",
    "receive",
    "recover",
    "recovering",
    "refuse",
    "replay_model",
    "run_agent",
    "should_stop",
    "sleep",
    "sleep_until",
    "step",
    "step_key",
    "system",
    "tool",
    "transform",
    "user",
    "wait_for",
    "wrap_model_call",
    "wrap_tool_call",
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
