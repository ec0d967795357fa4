"""`perdure models`: who can be asked, and with what."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from perdure.cli.commands import cli
from perdure.errors import MissingKey
from perdure.loop.model import check
from perdure.models import registry, resolve, schemes
from perdure.models.catalogue import providers

KEYS = sorted({key for one in providers() for key in one.keys})


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["models", *arguments], standalone_mode=False)


def test_every_provider_has_a_line() -> None:
    lines = run().output.splitlines()
    listed = {line.partition(":")[0] for line in lines[1 : len(providers()) + 1]}
    assert listed == set(schemes())


def test_whether_a_key_is_set_is_shown_and_never_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-secret")
    shown = run().output + run("--json").output
    assert "sk-ant-secret" not in shown
    rows = {line.split(":")[0]: line.split() for line in run().output.splitlines()[1:20]}
    assert rows["anthropic"][1] == "yes"
    assert rows["openai"][1] == "no"
    assert rows["ollama"][1] == "-"


def test_programs_get_one_object_a_line() -> None:
    members = {one["scheme"]: one for one in map(json.loads, run("--json").output.splitlines())}
    assert set(members) == set(schemes())
    claude = members["anthropic"]
    assert claude["keys"] == ["ANTHROPIC_API_KEY"]
    assert (claude["needs_key"], claude["key_set"]) == (True, False)
    assert claude["can"]["schema"] is True
    assert claude["typed_answers"] == "native"


def test_a_model_that_is_named_is_shown_with_what_it_can_do() -> None:
    (line,) = run("openai:gpt-4-turbo", "--json").output.splitlines()
    assert json.loads(line)["typed_answers"] == "by tool"
    (_, line) = run("gemini:gemini-2.5-flash").output.splitlines()
    assert " alone " in line


def test_a_provider_that_nobody_knows_is_a_wrong_use() -> None:
    failed = run("nobody")
    assert failed.exception is not None
    assert "no model adapter" in str(failed.exception)


async def test_the_variables_are_those_that_the_adapters_look_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "http://127.0.0.1:1")
    for one in providers():
        if not one.needs_key or one.scheme == "bedrock":
            continue
        client = resolve(one.example).model
        with pytest.raises(MissingKey) as missing:
            await check(client)
        assert missing.value.variables == one.keys, one.scheme


def test_every_example_names_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))
    for one in providers():
        text = one.example.replace("URL", "http://127.0.0.1:1/v1")
        assert resolve(text).name


def test_a_scheme_of_ones_own_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))
    registry.register("mine", lambda rest: resolve("openai:" + rest))
    assert "mine:MODEL" in run().output
