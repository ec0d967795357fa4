from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import enum
from collections.abc import Iterator
from decimal import Decimal
from typing import TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from perdure.errors import ToolError, ToolPanic
from perdure.tools import ToolResult, error_result, to_result
from perdure.tools.result import failure
from perdure.wire import input_file, input_image, input_text


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: float


class Item(TypedDict):
    name: str


class Record(msgspec.Struct):
    id: int
    at: dt.date


class Model(pydantic.BaseModel):
    name: str
    at: dt.date


def endless() -> Iterator[int]:
    yield 1


DAY = dt.date(2026, 1, 31)
LOOP: list[object] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ("text", "text"),
        ("", ""),
        (None, ""),
        (b"hi", "aGk="),
        (True, "true"),
        (7, "7"),
        (10**40, "1" + "0" * 40),
        (0.5, "0.5"),
        (Decimal("1.50"), '"1.50"'),
        ([], "[]"),
        ((), "[]"),
        ([1, "a", None], '[1,"a",null]'),
        ({"b": 1, "a": "é"}, '{"b":1,"a":"é"}'),
        ({1: "a"}, '{"1":"a"}'),
        (Color.RED, '"red"'),
        (Point(1, 2.5), '{"x":1,"y":2.5}'),
        (Item(name="n"), '{"name":"n"}'),
        (Record(1, DAY), '{"id":1,"at":"2026-01-31"}'),
        (Model(name="n", at=DAY), '{"name":"n","at":"2026-01-31"}'),
        ([Model(name="n", at=DAY)], '[{"name":"n","at":"2026-01-31"}]'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (input_text("a"), (input_text("a"),)),
        (
            [input_text("a"), input_image("https://x/y.png"), input_file(file_url="https://x")],
            (input_text("a"), input_image("https://x/y.png"), input_file(file_url="https://x")),
        ),
        (["see: ", input_image("https://x")], (input_text("see: "), input_image("https://x"))),
        (["a", "b"], '["a","b"]'),
        (ToolResult("x", details=7, terminate=True), "x"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_any_value_is_an_output(value: object, output: object) -> None:
    assert to_result(value).output == output


def test_a_result_is_taken_as_it_is() -> None:
    result = ToolResult("x", details={"rows": 3}, terminate=True)
    assert to_result(result) is result


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "Out of range float values are not JSON compliant"),
        ({"a": [float("inf")]}, "Out of range float values are not JSON compliant"),
        (object(), "'object' is not a JSON type"),
        ([1, complex(1)], "'complex' is not a JSON type"),
        (endless(), "'generator' is not a JSON type"),
        (LOOP, "it is nested too deeply, or contains itself"),
        (10**5000, "Exceeds the limit"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_is_not_json_is_an_error_that_says_that_the_tool_ran(
    value: object, reason: str
) -> None:
    with pytest.raises(ToolError) as caught:
        to_result(value)
    assert str(caught.value).startswith("the tool ran, but its result is not JSON: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("a\ud800b", "a�b"),
        ("\ud83d\ude00", "😀"),
        ("\ude00\ud83d", "��"),
        ("\ud83d\ude00\ud83d", "😀�"),
    ],
)
def test_lone_surrogates_are_replaced_and_the_original_is_kept(text: str, clean: str) -> None:
    result = ToolResult(text)
    assert result.output == clean
    assert result.original == text
    in_json = to_result({"a": text})
    assert in_json.output == f'{{"a":"{clean}"}}'
    part = ToolResult((input_text(text), input_text("b")))
    assert part.output == (input_text(clean), input_text("b"))
    assert part.original == (input_text(text), input_text("b"))


def test_a_clean_output_has_no_original() -> None:
    assert ToolResult("é😀\0").original is None
    assert ToolResult((input_text("é"),)).original is None


# --- failures -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "output"),
    [
        (ToolError("no such file"), "Error: no such file"),
        (ToolError("Error: no such file"), "Error: no such file"),
        (ToolError(""), "Error: ToolError"),
        (ToolPanic("t", ValueError("bad\n  date")), "Error: tool 't' panicked: bad date"),
        (ToolPanic("t", TimeoutError()), "Error: tool 't' panicked: TimeoutError"),
        (ToolError("\ud800"), "Error: �"),
    ],
)
def test_a_failure_is_rendered_once(error: ToolError, output: str) -> None:
    assert error_result(error).output == output


def test_the_details_and_the_wish_to_terminate_of_a_failure_are_kept() -> None:
    result = error_result(ToolError("no", details={"code": 7}, terminate=True))
    assert result == ToolResult("Error: no", details={"code": 7}, terminate=True)


class Signal(BaseException):
    """As a wait is."""


def test_a_tool_error_decides_as_it_is() -> None:
    error = ToolError("no")
    assert failure("t", error) is error
    assert failure("t", ExceptionGroup("g", [ExceptionGroup("h", [error])])) is error


def test_another_exception_is_a_panic_with_its_traceback_for_the_host() -> None:
    error = KeyError("k")
    panic = failure("t", error)
    assert isinstance(panic, ToolPanic)
    assert panic.__cause__ is error
    assert str(failure("t", ExceptionGroup("g", [error]))) == "tool 't' panicked: 'k'"


def test_a_group_of_several_is_one_message() -> None:
    known = ExceptionGroup("g", [ToolError("a"), ToolError("b")])
    assert str(failure("t", known)) == "a; b"
    assert not isinstance(failure("t", known), ToolPanic)
    mixed = ExceptionGroup("g", [ToolError("a"), ValueError()])
    assert str(failure("t", mixed)) == "tool 't' panicked: a; ValueError"
    assert failure("t", mixed).__cause__ is mixed


def test_exceptions_decide_over_signals() -> None:
    assert str(failure("t", BaseExceptionGroup("g", [Signal(), ToolError("a")]))) == "a"
    signal = Signal()
    assert failure("t", signal) is signal
    assert failure("t", BaseExceptionGroup("g", [signal])) is signal
    both = BaseExceptionGroup("g", [Signal(), Signal()])
    assert failure("t", both) is both


def test_an_interrupt_decides_over_everything() -> None:
    group = BaseExceptionGroup("g", [ToolError("a"), SystemExit(3)])
    assert isinstance(failure("t", group), SystemExit)


async def test_a_task_group_in_a_tool_shows_the_error_inside_it() -> None:
    async def fails() -> None:
        raise ToolError("inside")

    async def groups() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())

    with pytest.raises(ExceptionGroup) as caught:
        await groups()
    assert str(failure("t", caught.value)) == "inside"
