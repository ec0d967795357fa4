"""A secret is filled in when its tool is entered, and seen by nobody else."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from typing import Annotated

import pytest

from perdure.errors import ConfigError, InvalidArguments, ToolError
from perdure.tools import (
    Call,
    Executor,
    Job,
    Secret,
    Tool,
    ToolResult,
    definition,
    tool,
    traits,
    wrap,
)
from perdure.wire import encode, input_text

VALUE = "sk-very-secret-value"


@tool
async def charge(
    cents: int, *, key: Annotated[str, Secret("env:PERDURE_TEST_KEY")], note: str = ""
) -> str:
    """Charge.

    Args:
        cents: How much.
        key: The key.
    """
    return f"{cents} {len(key)} {note}"


def call(arguments: str = '{"cents": 5}') -> Call:
    return Call(id="c", name="charge", arguments=arguments)


async def run(a_tool: Tool, arguments: str = "{}") -> ToolResult:
    return await a_tool.execute(call(arguments))


async def test_a_secret_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_TEST_KEY", VALUE)
    assert (await charge.execute(call())).output == f"5 {len(VALUE)} "


async def test_a_secret_comes_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(VALUE + "\n")

    @tool
    async def use(key: Annotated[str, Secret(f"file:{path}")]) -> int:
        return len(key)

    assert (await run(use)).output == str(len(VALUE))


async def test_a_secret_comes_from_a_function() -> None:
    def sync_source() -> str:
        return VALUE

    async def async_source() -> str:
        return VALUE

    @tool
    async def use(
        a: Annotated[str, Secret(sync_source)],
        b: Annotated[str, Secret(async_source, reference="vault:stripe")],
    ) -> bool:
        return a == b == VALUE

    assert (await run(use)).output == "true"
    assert traits(use).secrets == {
        "a": f"function:{__name__}.{sync_source.__qualname__}",
        "b": "vault:stripe",
    }


def test_the_model_does_not_see_a_secret_parameter() -> None:
    assert list(charge.parameters["properties"]) == ["cents", "note"]  # type: ignore[call-overload]
    assert b"key" not in encode(definition(charge))


async def test_the_model_cannot_give_a_secret() -> None:
    with pytest.raises(InvalidArguments, match="key: unexpected member"):
        await charge.execute(call('{"cents": 5, "key": "mine"}'))


def test_what_is_seen_of_a_secret_is_its_reference() -> None:
    assert traits(charge).secrets == {"key": "env:PERDURE_TEST_KEY"}
    assert traits(wrap(charge, name="other")).secrets == {"key": "env:PERDURE_TEST_KEY"}
    assert repr(Secret("env:A")) == "Secret('env:A')"


async def test_a_tool_called_directly_takes_the_secret_as_a_parameter() -> None:
    assert await charge(5, key="abc") == "5 3 "


@pytest.mark.parametrize(
    ("secret", "reason"),
    [
        (Secret("env:PERDURE_NO_SUCH"), "the environment variable is not set"),
        (Secret("file:/no/such/file"), "No such file or directory"),
    ],
)
async def test_a_secret_that_cannot_be_had_names_its_reference(secret: Secret, reason: str) -> None:
    with pytest.raises(ToolError) as caught:
        await secret.value()
    assert str(caught.value) == f"the secret {secret.reference!r} cannot be read: {reason}"


async def test_a_resolver_that_fails_does_not_show_what_it_knows() -> None:
    def source() -> str:
        raise ValueError(f"cannot use {VALUE}")

    with pytest.raises(ToolError) as caught:
        await Secret(source, reference="vault:x").value()
    assert str(caught.value) == "the secret 'vault:x' cannot be read: ValueError"
    assert VALUE not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("source", ["STRIPE_KEY", "http://x", "env:", ""])
def test_a_secret_without_a_source_is_refused(source: str) -> None:
    with pytest.raises(ConfigError):
        Secret(source)


def test_a_secret_is_text() -> None:
    def use(key: Annotated[int, Secret("env:A")]) -> str:
        return str(key)

    with pytest.raises(ConfigError, match="a secret parameter is a str"):
        tool(use)


def source() -> str:
    return VALUE


@tool
async def leaks(how: str, key: Annotated[str, Secret(source, reference="vault:x")]) -> object:
    match how:
        case "text":
            return f"the key is {key}"
        case "json":
            return {"key": key}
        case "part":
            return input_text(f"the key is {key}")
        case "tool error":
            raise ToolError(f"refused: {key}", details=7, terminate=True)
        case _:
            raise ValueError(f"refused: {key}")


@pytest.mark.parametrize("how", ["text", "json", "part", "tool error", "panic"])
async def test_a_tool_that_says_its_secret_says_the_reference(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    job = Job(tool=leaks, call_id="c", arguments=f'{{"how": "{how}"}}')
    (outcome,) = await Executor().run([job])
    assert outcome.result is not None
    assert "[vault:x]" in str(outcome.result.output)
    assert VALUE not in str(outcome)
    assert VALUE not in caplog.text
    if outcome.error is not None:
        assert VALUE not in "".join(traceback.format_exception(outcome.error))
    if how == "tool error":
        assert outcome.result == ToolResult("Error: refused: [vault:x]", details=7, terminate=True)
