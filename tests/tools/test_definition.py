from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

import pytest

from perdure.errors import ConfigError, DuplicateTool
from perdure.tools import (
    Approval,
    Call,
    RawTool,
    Tool,
    ToolAnnotations,
    ToolResult,
    ToolSet,
    Traits,
    TypedTool,
    as_tool,
    definition,
    definition_hash,
    effect_of,
    tool,
    traits,
    unwrap,
    wrap,
)
from perdure.tools.wrap import PROPERTIES
from perdure.wire import encode


class ByHand:
    """A tool with nothing but what a tool must have."""

    name = "by_hand"
    description = ""
    parameters = None

    async def execute(self, call: Call) -> ToolResult:
        return ToolResult(f"{call.arguments}")


def plain(x: int = 1) -> str:
    """Plain."""
    return str(x)


# --- definitions ----------------------------------------------------------------------


def test_a_definition_always_has_a_description_and_parameters() -> None:
    assert json.loads(encode(definition(ByHand()))) == {
        "type": "function",
        "name": "by_hand",
        "description": "",
        "parameters": {"type": "object", "properties": {}, "required": []},
    }


@pytest.mark.parametrize("strict", [False, True])
def test_strict_is_said_only_if_it_is_true(strict: bool) -> None:
    shown = json.loads(encode(definition(tool(plain, strict=strict))))
    assert shown.get("strict") == (True if strict else None)


def test_no_other_trait_is_on_the_wire() -> None:
    loud = tool(
        plain,
        effect="none",
        sequential=True,
        resource="disk",
        timeout=1,
        annotations=ToolAnnotations(title="T", destructive=True),
    )
    assert encode(definition(loud)) == encode(definition(tool(plain)))


def test_the_hash_of_a_definition_is_over_its_canonical_json() -> None:
    canonical = (
        b'{"description":"Plain.","name":"plain","parameters":{"properties":'
        b'{"x":{"type":"integer"}},"required":[],"type":"object"},"type":"function"}'
    )
    assert definition_hash(tool(plain)) == "sha256:" + hashlib.sha256(canonical).hexdigest()
    assert definition_hash(tool(plain, strict=True)) != definition_hash(tool(plain))
    assert definition_hash(tool(plain, effect="none")) == definition_hash(tool(plain))


# --- sets of tools --------------------------------------------------------------------


def test_a_set_keeps_the_order_and_finds_by_name() -> None:
    hand, function = ByHand(), tool(plain)
    tools = ToolSet([hand, function])
    assert list(tools) == [hand, function]
    assert len(tools) == 2
    assert tools.get("plain") is function
    assert tools.get("other") is None
    assert "by_hand" in tools
    assert [one.name for one in tools.definitions()] == ["by_hand", "plain"]
    assert not ToolSet().definitions()


def test_a_plain_function_is_a_tool() -> None:
    (only,) = ToolSet([plain])
    assert isinstance(only, TypedTool)
    assert as_tool(only) is only


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(DuplicateTool, match="'plain'"):
        ToolSet([plain, wrap(tool(plain), description="another")])


def test_what_is_no_tool_is_refused() -> None:
    with pytest.raises(ConfigError, match="is no tool"):
        ToolSet(["plain"])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="is no function"):
        ToolSet([ByHand])


class Closing(ByHand):
    def __init__(self, name: str, closed: list[str], *, fails: bool = False) -> None:
        self.name = name
        self.closed = closed
        self.fails = fails

    async def aclose(self) -> None:
        self.closed.append(self.name)
        if self.fails:
            raise OSError(self.name)


async def test_a_set_closes_its_tools_in_order_and_joins_what_they_raise() -> None:
    closed: list[str] = []
    tools = [
        Closing("a", closed, fails=True),
        ByHand(),
        wrap(Closing("b", closed)),
        Closing("c", closed, fails=True),
    ]
    with pytest.raises(ExceptionGroup) as caught:
        await ToolSet(tools).aclose()
    assert closed == ["a", "b", "c"]
    assert [str(error) for error in caught.value.exceptions] == ["a", "c"]


# --- traits ---------------------------------------------------------------------------


def test_a_tool_by_hand_has_the_defaults() -> None:
    assert isinstance(ByHand(), Tool)
    assert traits(ByHand()) == Traits()
    assert Traits().effect == "once"


def test_an_idempotent_hint_lets_nothing_run_twice() -> None:
    hinted = tool(plain, annotations=ToolAnnotations(idempotent=True, read_only=True))
    assert effect_of(hinted, "{}") == "once"


def test_the_effect_can_depend_on_the_arguments() -> None:
    def effect(arguments: Any) -> Any:
        return {"GET": "none", "PUT": "idempotent"}.get(arguments["method"], "unheard-of")

    http = RawTool(name="http", description="", fn=plain, effect=effect)  # type: ignore[arg-type]
    assert effect_of(http, '{"method": "GET"}') == "none"
    assert effect_of(http, '{"method": "PUT"}') == "idempotent"


@pytest.mark.parametrize("arguments", ['{"method": "POST"}', "{}", "{", "[]"])
def test_an_effect_that_nobody_knows_is_once(arguments: str) -> None:
    def effect(given: Any) -> Any:
        return {"GET": "none"}.get(given["method"], "unheard-of")

    http = RawTool(name="http", description="", fn=plain, effect=effect)  # type: ignore[arg-type]
    assert effect_of(http, arguments) == "once"


def test_an_unheard_of_effect_of_a_tool_by_hand_is_once() -> None:
    class Odd(ByHand):
        effect = "safe"

    assert effect_of(Odd(), "{}") == "once"


# --- wrapping -------------------------------------------------------------------------


class Talkative:
    """A tool that states every property there is, each unlike its default."""

    def __init__(self) -> None:
        self.name = "talkative"
        self.description = "Talks."
        self.parameters: dict[str, object] = {"type": "object"}
        self.strict = True
        self.effect = "none"
        self.sequential = True
        self.resource = "disk"
        self.timeout = 3.0
        self.annotations = ToolAnnotations(title="Talk")
        self.secrets = {"key": "env:KEY"}
        self.subsession = True
        self.reconciler = lambda call: None
        self.compensator = lambda compensation: None
        self.approval = Approval(of=["ann"])

    async def execute(self, call: Call) -> ToolResult:
        return ToolResult("")

    def check(self, arguments: str) -> None:
        raise ConfigError(arguments)

    async def aclose(self) -> None:
        return None


def test_the_tool_of_this_test_states_every_property() -> None:
    defaults = traits(ByHand())
    for field in dataclasses.fields(Traits):
        assert getattr(Talkative(), field.name) != getattr(defaults, field.name), field.name


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_wrapper_forwards_every_property(name: str) -> None:
    inner = Talkative()
    assert getattr(wrap(wrap(inner)), name) == getattr(inner, name)


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_wrapper_can_replace_every_property(name: str) -> None:
    inner = Talkative()
    overrides: dict[str, Any] = {name: Approval() if name == "approval" else object()}
    outer = wrap(inner, **overrides)
    for each in PROPERTIES:
        expected = overrides.get(each, getattr(inner, each))
        assert getattr(outer, each) == getattr(wrap(outer), each) == expected
    assert traits(wrap(outer)) == traits(outer)


def test_a_wrapper_cannot_make_up_a_property() -> None:
    with pytest.raises(ConfigError, match="a tool has no property 'replay'"):
        wrap(ByHand(), replay="safe")


async def test_a_wrapper_runs_instead_of_the_inner_tool() -> None:
    inner = tool(plain)

    async def loud(call: Call) -> ToolResult:
        result = await inner.execute(call)
        return ToolResult(f"{result.output}!")

    call = Call(id="c", name="plain", arguments='{"x": 3}')
    assert (await wrap(inner, execute=loud).execute(call)).output == "3!"
    assert (await wrap(inner).execute(call)).output == "3"


def test_the_tool_under_its_wrappers_can_be_had() -> None:
    inner = tool(plain)
    assert unwrap(wrap(wrap(inner), name="x")) is inner
    assert unwrap(inner) is inner
