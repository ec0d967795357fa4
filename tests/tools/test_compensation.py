"""Compensators: functions that undo what a call did, with the parameters of its tool."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Annotated

import pytest

from perdure import Compensation, ConfigError, Secret, ToolError, tool
from perdure.errors import InvalidArguments
from perdure.tools import Compensator, RawTool, wrap
from perdure.tools.compensation import call_compensator
from perdure.tools.tool import compensator_of


def of(compensate: Callable[..., object]) -> Compensator:
    """The compensator of a tool that is undone by a function."""

    @tool(effect="once", compensate=compensate)
    async def charge(card: str, cents: int = 100) -> str:
        return "ch_1"

    found = compensator_of(charge)
    assert found is not None
    return found


def made(arguments: str, output: str = "ch_1") -> Compensation:
    return Compensation(
        call_id="c1", tool="charge", arguments=arguments, output=output, idempotency_key="k"
    )


async def undo(compensator: Compensator, compensation: Compensation) -> None:
    await call_compensator(functools.partial(compensator, compensation))


async def test_it_takes_what_it_names() -> None:
    given: list[object] = []

    async def refund(result: str, card: str) -> None:
        given.extend((result, card))

    async def whole(undo: Compensation, cents: int) -> None:
        given.extend((undo.idempotency_key, cents))

    await undo(of(refund), made('{"card": "visa"}'))
    await undo(of(whole), made('{"card": "visa"}'))
    assert given == ["ch_1", "visa", "k", 100]


async def test_a_sync_one_runs_on_a_thread() -> None:
    seen: list[str] = []

    def refund(card: str) -> None:
        seen.append(threading.current_thread().name)

    await undo(of(refund), made('{"card": "visa"}'))
    assert seen == ["perdure-compensator"]


async def test_arguments_and_results_are_read_strictly() -> None:
    async def refund(card: str, result: list[int]) -> None:
        raise AssertionError

    with pytest.raises(InvalidArguments, match="expected string"):
        await undo(of(refund), made('{"card": 1}', "[1]"))
    with pytest.raises(InvalidArguments, match="what the call gave does not fit"):
        await undo(of(refund), made('{"card": "visa"}', '["x"]'))


async def test_it_gets_the_secrets_of_its_tool_and_its_errors_do_not_tell_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BANK_KEY", "very-secret-key")

    async def refund(key: str) -> None:
        raise ToolError(f"refused: {key}")

    @tool(effect="once", compensate=refund)
    async def charge(cents: int, key: Annotated[str, Secret("env:BANK_KEY")]) -> str:
        return "ok"

    found = compensator_of(charge)
    assert found is not None
    with pytest.raises(ToolError, match=r"refused: \[env:BANK_KEY\]"):
        await undo(found, made('{"cents": 5}'))


def test_what_nothing_fills_is_refused() -> None:
    async def refund(card: str, amount: int) -> None: ...

    async def anything(**more: object) -> None: ...

    with pytest.raises(ConfigError, match="nothing fills its parameter 'amount'"):
        of(refund)
    with pytest.raises(ConfigError, match="its parameter 'more' has no name to be given"):
        of(anything)


def test_a_parameter_that_is_called_result_is_refused() -> None:
    async def refund(result: str) -> None: ...

    with pytest.raises(ConfigError, match="take a Compensation"):

        @tool(compensate=refund)
        async def charge(result: str) -> str:
            return result


def test_any_tool_may_have_one() -> None:
    async def refund(compensation: Compensation) -> None: ...

    def execute(arguments: dict[str, object]) -> str:
        return str(arguments)

    plain = RawTool(name="charge", description="Charges.", fn=execute)
    assert compensator_of(plain) is None
    assert compensator_of(wrap(plain, compensator=refund)) is refund
