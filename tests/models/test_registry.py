"""Model strings: who answers to them, and where keys come from."""

from __future__ import annotations

import subprocess
import sys

import pytest

from perdure.errors import ConfigError, MissingKey, UnknownModel
from perdure.loop.model import collect
from perdure.models import OpenResponses, Resolved, register, registry, resolve, schemes
from perdure.models.catalogue import key_variables
from perdure.testing import ScriptedModel
from tests.models.servers import COMPLETED, RawServer, request, sse


def test_a_string_names_an_adapter_and_a_model() -> None:
    resolved = resolve("openai:gpt-5-mini")
    assert resolved.name == "gpt-5-mini"
    assert isinstance(resolved.model, OpenResponses)
    assert resolve("openai:ft:gpt-5:mine").name == "ft:gpt-5:mine"
    other = resolve("openresponses:http://127.0.0.1:8000/v1#some/model")
    assert other.name == "some/model"


def test_one_address_has_one_client_so_that_connections_are_used_again() -> None:
    assert resolve("openai:a").model is resolve("openai:b").model
    one = resolve("openresponses:http://127.0.0.1:1/v1#a").model
    assert one is resolve("openresponses:http://127.0.0.1:1/v1#b").model
    assert one is not resolve("openresponses:http://127.0.0.1:2/v1#a").model


@pytest.mark.parametrize("text", ["gpt-5-mini", "", ":x", "nobody:x", "openai:"])
def test_a_string_nobody_knows_says_which_schemes_there_are(text: str) -> None:
    with pytest.raises(UnknownModel, match="openai, openai-chat, openresponses") as raised:
        resolve(text)
    assert raised.value.name == text


@pytest.mark.parametrize(
    "text",
    [
        "openresponses:http://127.0.0.1:8000/v1",
        "openresponses:127.0.0.1:8000#m",
        "openresponses:#m",
    ],
)
def test_an_address_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        resolve(text)


def test_a_scheme_can_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))
    model = ScriptedModel(["hi"])
    register("scripted", lambda rest: Resolved(model, rest))
    assert resolve("scripted:a:b") == (model, "a:b")
    assert "scripted" in schemes()
    for bad in ("", "a:b"):
        with pytest.raises(ConfigError):
            register(bad, lambda rest: Resolved(model, rest))


async def test_the_key_and_the_address_are_read_when_a_request_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = resolve("openai:gpt-5-mini").model
    assert isinstance(model, OpenResponses)
    async with RawServer(sse(COMPLETED)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        with pytest.raises(MissingKey, match="OPENAI_API_KEY"):
            await collect(model.stream(request()))
        assert server.connections == 0
        monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
        await collect(model.stream(request()))
        assert b"Authorization: Bearer sk-1\r" in server.heads[0]
        await model.aclose()


@pytest.mark.parametrize("key", [None, "", "sk-2"])
async def test_the_key_of_another_server_is_optional(
    monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    monkeypatch.delenv("OPENRESPONSES_API_KEY", raising=False)
    if key is not None:
        monkeypatch.setenv("OPENRESPONSES_API_KEY", key)
    async with RawServer(sse(COMPLETED)) as server:
        model = resolve(f"openresponses:{server.base_url}#m").model
        assert isinstance(model, OpenResponses)
        await collect(model.stream(request()))
        assert (b"Bearer sk-2" in server.heads[0]) == bool(key)
        await model.aclose()


def test_importing_models_loads_no_http_client() -> None:
    code = "import sys, perdure.models; print('aiohttp' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("scheme", "variables"),
    [
        ("openai", ("OPENAI_API_KEY",)),
        ("google", ("GEMINI_API_KEY", "GOOGLE_API_KEY")),
        ("groq", ("GROQ_API_KEY",)),
        ("nobody", ()),
    ],
)
def test_the_variables_of_a_schemes_key(scheme: str, variables: tuple[str, ...]) -> None:
    assert key_variables(scheme) == variables
