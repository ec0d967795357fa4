from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec
import pytest

from perdure.errors import ConfigError, InvalidArguments, ToolError
from perdure.tools import (
    Call,
    Tool,
    ToolAnnotations,
    ToolResult,
    tool,
    traits,
)

if TYPE_CHECKING:
    from fractions import Fraction


async def call(a_tool: Tool, arguments: str = "", key: str = "") -> ToolResult:
    handle = Call(id="c1", name=a_tool.name, arguments=arguments, idempotency_key=key)
    return await a_tool.execute(handle)


@tool(effect="none", resource="disk", timeout=2.5, annotations=ToolAnnotations(read_only=True))
async def greet(name: str, *, times: int = 1) -> str:
    """Greet somebody.

    At length, which is no part of the summary.

    Args:
        name: Whom.
        times (int): How often;
            once unless said.

    Returns:
        name: not a parameter.
    """
    return " ".join([f"hello {name}"] * times)


def test_a_tool_is_described_by_its_docstring() -> None:
    assert greet.name == "greet"
    assert greet.description == "Greet somebody."
    assert greet.parameters == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Whom."},
            "times": {"type": "integer", "description": "How often; once unless said."},
        },
        "required": ["name"],
    }


def test_a_tool_states_its_traits() -> None:
    stated = traits(greet)
    assert stated.effect == "none"
    assert stated.resource == "disk"
    assert stated.timeout == 2.5
    assert stated.annotations.read_only is True


async def test_a_tool_called_directly_is_its_function() -> None:
    assert await greet("Ann", times=2) == "hello Ann hello Ann"


async def test_a_tool_runs_with_the_arguments_of_a_call() -> None:
    assert (await call(greet, '{"name": "Bo", "times": 2}')).output == "hello Bo hello Bo"


async def test_a_name_and_a_description_can_be_given() -> None:
    named = tool(len_of, name="count", description="Counts.")
    assert (named.name, named.description) == ("count", "Counts.")


def len_of(text: str) -> int:
    return len(text)


async def test_a_sync_function_runs_on_a_daemon_thread() -> None:
    @tool
    def where() -> list[object]:
        thread = threading.current_thread()
        return [thread.daemon, thread is threading.main_thread()]

    assert (await call(where)).output == "[true,false]"


class Shop:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def price(self, item: str) -> str:
        """Look up a price."""
        return f"{self.prefix}{item}"

    async def stock(self, item: str) -> str:
        return f"{self.prefix}{item}"

    @classmethod
    def open(cls, hour: int) -> bool:
        return hour > 8

    @staticmethod
    def vat(cents: int) -> int:
        return cents // 5

    def __call__(self, order: int) -> str:
        """Place an order."""
        return f"{self.prefix}{order}"


class AsyncShop:
    async def __call__(self, order: int) -> str:
        return f"order {order}"


async def test_bound_methods_and_callable_objects_are_tools() -> None:
    shop = Shop("p:")
    assert (await call(tool(shop.price), '{"item": "tea"}')).output == "p:tea"
    assert (await call(tool(shop.stock), '{"item": "tea"}')).output == "p:tea"
    assert (await call(tool(Shop.open), '{"hour": 9}')).output == "true"
    assert (await call(tool(Shop.vat), '{"cents": 100}')).output == "20"
    assert (await call(tool(shop), '{"order": 7}')).output == "p:7"
    assert (await call(tool(AsyncShop()), '{"order": 7}')).output == "order 7"
    assert tool(shop).name == "Shop"
    assert tool(shop).description == "Place an order."


async def test_a_partial_hides_what_it_fixes() -> None:
    def order(item: str, count: int, key: str) -> str:
        return f"{item} {count} {key}"

    some = tool(functools.partial(order, "tea", key="k"))
    assert list(some.parameters["properties"]) == ["count"]  # type: ignore[call-overload]
    assert (await call(some, '{"count": 2}')).output == "tea 2 k"


async def test_a_wrapped_function_is_read_through_its_wrapper() -> None:
    def logged(function: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(function)
        def wrapper(*args: object, **kwargs: object) -> object:
            return function(*args, **kwargs)

        return wrapper

    @logged
    async def double(number: int) -> int:
        """Double it."""
        return 2 * number

    doubled = tool(double)
    assert doubled.description == "Double it."
    assert (await call(doubled, '{"number": 4}')).output == "8"


async def test_parameters_of_every_kind_arrive() -> None:
    @tool
    async def kinds(a: int, b: int = 2, /, c: int = 3, *, d: int, e: int = 5) -> list[int]:
        return [a, b, c, d, e]

    assert (await call(kinds, '{"a": 1, "d": 4}')).output == "[1,2,3,4,5]"
    assert (await call(kinds, '{"d": 4, "a": 1, "c": 9, "b": 8, "e": 7}')).output == "[1,8,9,4,7]"


async def test_an_optional_parameter_without_a_default_gets_none() -> None:
    @tool
    async def maybe(x: int | None) -> str:
        return repr(x)

    assert maybe.parameters["required"] == []
    assert (await call(maybe)).output == "None"
    assert (await call(maybe, '{"x": null}')).output == "None"
    assert (await call(maybe, '{"x": 1}')).output == "1"


async def test_a_parameter_annotated_call_gets_the_handle() -> None:
    @tool
    async def keyed(x: int, handle: Call) -> str:
        return f"{x} {handle.id} {handle.idempotency_key}"

    assert list(keyed.parameters["properties"]) == ["x"]  # type: ignore[call-overload]
    assert (await call(keyed, '{"x": 1}', "k9")).output == "1 c1 k9"


async def test_a_model_cannot_give_the_handle() -> None:
    @tool
    async def keyed(handle: Call) -> str:
        return handle.id

    with pytest.raises(InvalidArguments, match="handle: unexpected member"):
        await call(keyed, '{"handle": 1}')


async def test_annotations_may_name_what_is_local_to_the_function_that_defines_the_tool() -> None:
    @dataclasses.dataclass
    class Local:
        x: int

    class Outer(msgspec.Struct):
        inner: Local

    @tool
    async def take(value: Local, outer: Outer) -> str:
        return f"{value.x} {outer.inner.x}"

    result = await call(take, '{"value": {"x": 1}, "outer": {"inner": {"x": 2}}}')
    assert result.output == "1 2"


async def test_what_a_function_returns_need_not_be_importable() -> None:
    @tool
    async def half(x: int) -> Fraction:
        return x  # type: ignore[return-value]

    assert (await call(half, '{"x": 1}')).output == "1"


def no_annotation(x) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001
    return str(x)


def stars(*args: int) -> str:
    return str(args)


def double_stars(**kwargs: int) -> str:
    return str(kwargs)


def type_checking_only(x: Fraction) -> str:
    return str(x)


def complex_list(x: list[complex]) -> str:
    return str(x)


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (no_annotation, "parameter 'x': it has no annotation"),
        (Shop.price, "parameter 'self': it has no annotation; make a tool of the bound method"),
        (stars, "parameter 'args': *args has no schema"),
        (double_stars, "parameter 'kwargs': **kwargs has no schema"),
        (type_checking_only, "names 'Fraction', which is not defined at run time"),
        (complex_list, "parameter 'x'[]: <class 'complex'> cannot be expressed"),
        (lambda: 1, "'<lambda>' cannot name a tool"),
        (generator, "a generator gives no result"),
        (async_generator, "a generator gives no result"),
        (Shop, "is no function"),
        (7, "is no function"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_cannot_be_a_tool_is_refused_when_it_is_defined(
    function: Callable[..., object], reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        tool(function)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"effect": "twice"}, "has the effect 'twice'; it is one of none, idempotent"),
        ({"timeout": 0}, "must be positive and at most"),
        ({"name": "a b"}, "'a b' cannot name a tool"),
        ({"name": ""}, "'' cannot name a tool"),
        ({"name": "x" * 65}, "cannot name a tool"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tool(len_of, **options)  # type: ignore[call-overload]
    assert reason in str(caught.value)


def test_a_schema_that_no_request_can_carry_is_refused() -> None:
    def huge(x: Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 2**53 + 1})]) -> str:
        return str(x)

    with pytest.raises(ConfigError, match="its schema cannot be sent"):
        tool(huge)


async def test_a_class_that_refuses_its_members_refuses_the_arguments() -> None:
    @dataclasses.dataclass
    class Range:
        low: int
        high: int

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError(f"{self.low} is above {self.high}")

    @tool
    async def between(range: Range) -> str:  # noqa: A002
        return str(range)

    with pytest.raises(InvalidArguments) as caught:
        await call(between, '{"range": {"low": 2, "high": 1}}')
    assert str(caught.value) == "invalid arguments: range: 2 is above 1"


async def test_a_function_that_raises_value_error_is_not_taken_for_wrong_arguments() -> None:
    @tool
    async def fails(x: int) -> str:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        await call(fails, '{"x": 1}')
    assert not isinstance(caught.value, ToolError)


def test_check_refuses_without_running() -> None:
    ran: list[int] = []

    @tool
    def note(x: int) -> None:
        ran.append(x)

    note.check('{"x": 1}')
    with pytest.raises(InvalidArguments):
        note.check('{"x": "1"}')
    assert not ran


def test_a_tool_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        greet.name = "x"  # type: ignore[misc]


LOADED = """
import sys
from perdure.tools import tool

@tool
def f(x: list[int], y: str = "") -> str:
    return y

f.check('{"x": [1]}')
heavy = {"aiohttp", "pydantic", "starlette", "opentelemetry", "sqlite3", "jsonschema_rs"}
print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
"""


def test_tools_without_pydantic_models_do_not_load_it() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "[]"
