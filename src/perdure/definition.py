"""What an agent's definition must be, so that what is wrong is said before anything happens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from perdure.errors import ConfigError
from perdure.loop import Model, Retry, Settings
from perdure.models import Resolved, resolve
from perdure.models.capabilities import of_client, of_scheme
from perdure.output import Output, Plan, plan_of
from perdure.output.contract import OutputT
from perdure.seconds import check_seconds
from perdure.tools import KeySource, Tool, approval_of
from perdure.tools.approval import check_approval
from perdure.wire import Request

if TYPE_CHECKING:
    from perdure.log.environment import EnvSource

DEFAULT_MAX_TURNS = 50
"""How many turns a run may take, unless its agent says otherwise."""

_EXPECTED: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "identity": (str,),
    "model_name": (str,),
    "description": (str,),
    "tools": (list, tuple),
    "settings": (Settings, Request),
    "max_turns": (int, type(None)),
    "max_seconds": (int, float, type(None)),
    "max_parallel": (int,),
    "middleware": (list, tuple),
    "retry": (Retry,),
    "grace": (int, float),
    "wind_down": (int, float),
    "lease": (int, float),
    "max_stall": (int, float),
}


def check_members(agent: object) -> None:
    """Refuse an agent one of whose members is not of its type.

    Raises:
        ConfigError: It is not, or a time that has to be positive is not.
    """
    for name, expected in _EXPECTED.items():
        value: object = getattr(agent, name)
        if not isinstance(value, expected):
            raise ConfigError(f"Agent({name}=...) got {value!r}")
    for name in ("lease", "max_stall", "max_seconds", "grace", "wind_down"):
        seconds: object = getattr(agent, name)
        if seconds is not None:
            check_seconds(f"Agent({name}=...)", seconds, zero=name in ("grace", "wind_down"))


def check_instructions(given: object) -> None:
    """Refuse instructions that are neither a text nor a function.

    Raises:
        ConfigError: They are not.
    """
    if not (isinstance(given, str) or callable(given)):
        raise ConfigError(f"Agent(instructions=...) got {given!r}")


def check_env(env: EnvSource | None) -> None:
    """Refuse an environment that cannot be recorded.

    Raises:
        ConfigError: It cannot.
    """
    if env is not None and not callable(env):
        from perdure.log.environment import checked

        checked(env)


def check_budget(budget: object, *, max_turns: int | None, max_seconds: float | None) -> None:
    """Refuse a budget that is none, or that says again what its short forms say.

    Raises:
        ConfigError: It is, or does.
    """
    if budget is None:
        return
    from perdure.middleware.budget import Budget

    if not isinstance(budget, Budget):
        raise ConfigError(f"Agent(budget=...) is a perdure.Budget, got {budget!r}")
    if budget.turns is not None and max_turns not in (None, DEFAULT_MAX_TURNS):
        raise ConfigError("give max_turns or Budget(turns=...), not both")
    if budget.seconds is not None and max_seconds is not None:
        raise ConfigError("give max_seconds or Budget(seconds=...), not both")


def check_approvals(tools: Iterable[Tool], keys: KeySource | None, *, reminds: bool) -> None:
    """Refuse tools that ask for approvals which nobody could give.

    Args:
        tools: The tools.
        keys: What signatures are checked with.
        reminds: Whether somebody reminds people.

    Raises:
        ConfigError: An approver has no key, or people are to be reminded by nobody.
    """
    for tool in tools:
        approval = approval_of(tool)
        if approval is None:
            continue
        check_approval(approval, tool.name, keys)
        if not reminds and any(one.reminders for one in approval.levels):
            raise ConfigError(
                f"tool {tool.name!r} wants people to be reminded, and nobody does; "
                "give Agent(on_reminder=...)"
            )


def resolved(model: str | Model, name: str) -> Resolved:
    """The model that a definition means, and what requests call it.

    Raises:
        ConfigError: It is no model.
        UnknownModel: No adapter answers to the model string.
    """
    if isinstance(model, str):
        found = resolve(model)
        return Resolved(found.model, name or found.name)
    if not hasattr(model, "stream"):
        raise ConfigError(f"a model is a string or has a stream method, got {model!r}")
    return Resolved(model, name)


def planned(
    answers: type[OutputT] | Output[OutputT] | None,
    model: str | Model,
    found: Resolved,
    *,
    has_tools: bool,
) -> Plan[OutputT] | None:
    """How typed answers are had from a model; None if answers are text.

    Args:
        answers: The type of the answers.
        model: The model as it was given.
        found: What it was resolved to.
        has_tools: Whether the model has tools to call.

    Raises:
        ConfigError: Answers cannot be of the type.
    """
    if answers is None or answers is str:
        return None
    if isinstance(model, str):
        can = of_scheme(model.partition(":")[0], found.name)
    else:
        can = of_client(found.model, found.name)
    return cast("Plan[OutputT]", plan_of(answers, can, has_tools=has_tools))
