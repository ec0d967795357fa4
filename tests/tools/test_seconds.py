"""Spans of time that a definition gives: finite, more than nothing, and numbers."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Agent, Approval, RawTool, Runs, step, tool
from perdure.errors import ConfigError
from perdure.seconds import MOST_SECONDS, check_seconds
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel

NO_SPANS: list[Any] = [float("inf"), float("nan"), 1e300, 10**12, 0, -1, True, "5", b"5", [1]]


@pytest.mark.parametrize("given", NO_SPANS)
def test_what_is_no_span_of_time_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"number of seconds|positive"):
        check_seconds("it", given)


def test_the_longest_is_one_and_nothing_is_where_it_may_be() -> None:
    check_seconds("it", MOST_SECONDS)
    check_seconds("it", 0.001)
    check_seconds("it", 0, zero=True)
    with pytest.raises(ConfigError, match="must be 0 or more"):
        check_seconds("it", -1, zero=True)


@pytest.mark.parametrize("given", NO_SPANS)
def test_no_timeout_of_a_tool_is_without_end(given: Any) -> None:
    with pytest.raises(ConfigError, match="the timeout of tool 'look'"):

        @tool(timeout=given)
        async def look() -> str:
            """Look."""
            return ""

    with pytest.raises(ConfigError, match="the timeout of tool 'look'"):
        RawTool(name="look", description="", fn=lambda _: "", timeout=given)


@pytest.mark.parametrize("given", NO_SPANS)
async def test_no_timeout_of_a_step_is_without_end(given: Any) -> None:
    async def work() -> int:
        return 1

    with pytest.raises(ConfigError, match="the timeout of step 'one'"):
        await step("one", work, timeout=given)


@pytest.mark.parametrize("given", NO_SPANS)
def test_no_time_of_an_approval_is_without_end(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"Approval\(expires=\.\.\.\)"):
        Approval(expires=given)
    if given != [1]:
        with pytest.raises(ConfigError, match=r"Approval\(remind=\.\.\.\)"):
            Approval(remind=given)
    with pytest.raises(ConfigError, match=r"Approval\(remind=\.\.\.\)"):
        Approval(remind=[5, given])


@pytest.mark.parametrize("need", [1.0, 2.0, True, "2", None, [2]])
def test_how_many_approve_is_a_whole_number(need: Any) -> None:
    with pytest.raises(ConfigError, match="whole number of people"):
        Approval(need=need, of=["ann", "bo"])


@pytest.mark.parametrize("signed", [1, "yes", 0])
def test_whether_it_is_signed_is_true_or_false(signed: Any) -> None:
    with pytest.raises(ConfigError, match=r"Approval\(signed=\.\.\.\)"):
        Approval(of=["ann"], signed=signed)


async def test_keys_are_looked_up_at_once() -> None:
    async def look_up(name: str) -> None:
        del name

    source: Any = look_up
    with pytest.raises(ConfigError, match="looked up at once"):
        Agent(ScriptedModel(["hello"]), store=MemoryStore(), approvers=source)


HALF = "x\ud800"


@pytest.mark.parametrize(
    "given", [{"by": HALF}, {"reason": HALF}, {"by": None}, {"reason": b"x"}, {"session": HALF}]
)
async def test_what_is_told_is_text(given: dict[str, Any]) -> None:
    runs = Runs(MemoryStore())
    with pytest.raises(ConfigError, match=r"is a text|surrogate"):
        await runs.approve("run", "call", **given)
    with pytest.raises(ConfigError, match=r"is a text|surrogate"):
        await runs.deny("run", "call", **given)
    with pytest.raises(ConfigError, match=r"is a text|surrogate"):
        await runs.resolve("run", "call", output="it", **given)


@pytest.mark.parametrize("given", [{"signature": b"x"}, {"signature": HALF}, {"note": HALF}])
async def test_what_comes_with_a_vote_is_text(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"is a text|surrogate"):
        await Runs(MemoryStore()).approve("run", "call", by="ann", **given)
