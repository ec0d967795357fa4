"""Numbers that a program gives are checked where they are given, not where they first matter."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from perdure import Agent, Budget, Program, tool
from perdure.errors import ConfigError
from perdure.loop import Retry
from perdure.middleware import (
    Escalation,
    Ladder,
    RateLimit,
    ToolCache,
    ToolRateLimit,
    ToolRetry,
)
from perdure.models import Hedge, Timeouts
from perdure.testing import ScriptedModel

Define = Callable[..., object]


async def work() -> None:
    """Work."""


@tool(effect="none")
async def look() -> str:
    """Look."""
    return ""


def agent(**given: object) -> object:
    return Agent(ScriptedModel([]), **given)  # type: ignore[arg-type]


def program(**given: object) -> object:
    return Program(work, **given)  # type: ignore[arg-type]


SPANS: dict[str, Define] = {
    "Agent(grace=...)": lambda given: agent(grace=given),
    "Agent(wind_down=...)": lambda given: agent(wind_down=given),
    "Agent(lease=...)": lambda given: agent(lease=given),
    "Agent(max_stall=...)": lambda given: agent(max_stall=given),
    "Agent(max_seconds=...)": lambda given: agent(max_seconds=given),
    "Program(grace=...)": lambda given: program(grace=given),
    "Program(wind_down=...)": lambda given: program(wind_down=given),
    "Program(lease=...)": lambda given: program(lease=given),
    "Program(max_stall=...)": lambda given: program(max_stall=given),
    "Budget(seconds=...)": lambda given: Budget(seconds=given),
    "Timeouts(idle=...)": lambda given: Timeouts(idle=given),
    "Hedge(delay)": Hedge,
    "ToolCache(ttl=...)": lambda given: ToolCache(look, ttl=given),
}

COUNTS: dict[str, Define] = {
    "Budget(tokens=...)": lambda given: Budget(tokens=given),
    "Budget(turns=...)": lambda given: Budget(turns=given),
    "Budget(output=...)": lambda given: Budget(output=given),
    "ToolCache(size=...)": lambda given: ToolCache(look, size=given),
    "ToolRetry(attempts=...)": ToolRetry,
    "Retry(max_attempts=...)": lambda given: Retry(max_attempts=given),
    "Ladder(block=...)": lambda given: Ladder(block=given),
    "Escalation(budget=...)": lambda given: Escalation(budget=given),
}

RATES: dict[str, Define] = {
    "a rate": RateLimit,
    "a burst": lambda given: RateLimit(1, burst=given),
    "the time of a rate": lambda given: ToolRateLimit(1, per=given),
}

NO_NUMBERS = ["5", True, math.nan, math.inf, -math.inf, b"1", [1], object(), 1j]


@pytest.mark.parametrize("given", [*NO_NUMBERS, -1, 1e30], ids=repr)
@pytest.mark.parametrize("name", SPANS)
def test_what_is_no_span_of_time_is_refused_by_name(name: str, given: object) -> None:
    with pytest.raises(ConfigError) as raised:
        SPANS[name](given)
    assert name in str(raised.value)


@pytest.mark.parametrize("given", [*NO_NUMBERS, -1, 1.0, 1.5], ids=repr)
@pytest.mark.parametrize("name", COUNTS)
def test_what_counts_nothing_is_refused_by_name(name: str, given: object) -> None:
    with pytest.raises(ConfigError) as raised:
        COUNTS[name](given)
    assert name in str(raised.value)


@pytest.mark.parametrize("given", [one for one in NO_NUMBERS if one != -math.inf], ids=repr)
@pytest.mark.parametrize("name", RATES)
def test_what_is_no_rate_is_refused_by_name(name: str, given: object) -> None:
    with pytest.raises(ConfigError) as raised:
        RATES[name](given)
    assert name in str(raised.value)


@pytest.mark.parametrize("given", [one for one in NO_NUMBERS if one != math.inf], ids=repr)
def test_how_long_a_server_may_ask_to_wait_is_a_time_or_has_no_limit(given: object) -> None:
    with pytest.raises(ConfigError, match=r"max_retry_after"):
        Retry(max_retry_after=given)  # type: ignore[arg-type]
    assert Retry(max_retry_after=math.inf).max_retry_after == math.inf
