"""What type checkers know of a tool: it is called as its function is, however it was made."""

from typing import assert_type

import pytest

from perdure.tools import tool


@tool
def plain(city: str, days: int = 1) -> str:
    return f"{city} {days}"


@tool(effect="none", timeout=5)
async def configured(city: str, *, days: int = 1) -> str:
    return f"{city} {days}"


async def test_a_decorated_function_keeps_its_parameters_and_its_result() -> None:
    assert assert_type(plain("Oslo", days=2), str) == "Oslo 2"
    assert assert_type(await configured("Oslo", days=2), str) == "Oslo 2"


def test_a_function_is_made_a_tool_without_the_decorator() -> None:
    def count(text: str) -> int:
        return len(text)

    made = tool(count, name="counted")
    assert_type(count("abc"), int)
    assert assert_type(made("abc"), int) == 3
    assert made.name == "counted"


def test_an_option_that_there_is_not_is_an_error_to_type_checkers_too() -> None:
    with pytest.raises(TypeError, match="nmae"):
        tool(len, nmae="count")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="day"):
        plain("Oslo", day=2)  # type: ignore[call-arg]
