"""What the table says of models, and that adapters agree with it."""

from __future__ import annotations

import pytest

from perdure.models import resolve
from perdure.models.capabilities import NOTHING, Capabilities, of_client, of_scheme
from perdure.models.chat import SCHEMES
from perdure.testing import ScriptedModel

NATIVE = (True, True)
WITHOUT_TOOLS = (True, False)
BY_TOOL = (False, False)

SCHEMAS = [
    ("openai", "gpt-5-mini", NATIVE),
    ("openai", "gpt-4o", NATIVE),
    ("openai", "gpt-4.1", NATIVE),
    ("openai", "o3", NATIVE),
    ("openai", "gpt-4-turbo", BY_TOOL),
    ("openai", "gpt-4", BY_TOOL),
    ("openai", "gpt-3.5-turbo", BY_TOOL),
    ("openai", "o1-mini", BY_TOOL),
    ("openai-chat", "gpt-4o-mini", NATIVE),
    ("anthropic", "claude-sonnet-4-5", NATIVE),
    ("anthropic", "claude-sonnet-4-5-20250929", NATIVE),
    ("anthropic", "claude-opus-4-1-20250805", NATIVE),
    ("anthropic", "claude-sonnet-4-20250514", BY_TOOL),
    ("anthropic", "claude-opus-4-20250514", BY_TOOL),
    ("anthropic", "claude-3-5-sonnet-latest", BY_TOOL),
    ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", NATIVE),
    ("bedrock", "us.amazon.nova-pro-v1:0", BY_TOOL),
    ("gemini", "gemini-2.5-flash", WITHOUT_TOOLS),
    ("google", "gemini-3-pro-preview", NATIVE),
    ("gemini", "gemma-3-27b-it", BY_TOOL),
    ("openrouter", "openai/gpt-5-mini", NATIVE),
    ("openrouter", "meta-llama/llama-4", BY_TOOL),
    ("groq", "llama-3.3-70b-versatile", BY_TOOL),
    ("deepseek", "deepseek-chat", BY_TOOL),
    ("mistral", "mistral-large-latest", WITHOUT_TOOLS),
    ("ollama", "llama3.2", WITHOUT_TOOLS),
    ("xai", "grok-4", NATIVE),
    ("chat", "http://127.0.0.1:1/v1#anything", BY_TOOL),
    ("openresponses", "http://127.0.0.1:1/v1#anything", BY_TOOL),
    ("nobody", "knows", BY_TOOL),
]


@pytest.mark.parametrize(("scheme", "model", "schemas"), SCHEMAS)
def test_who_can_be_held_to_a_schema(scheme: str, model: str, schemas: tuple[bool, bool]) -> None:
    can = of_scheme(scheme, model)
    assert (can.schema, can.schema_with_tools) == schemas


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_no_service_is_relied_on_for_what_its_dialect_does_not_send(scheme: str) -> None:
    dialect = SCHEMES[scheme]
    can = of_scheme(scheme, "some-model")
    assert dialect.json_schema or not can.schema
    assert dialect.tool_choice != "none" or not can.required


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("anthropic:claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("gemini:gemini-3-pro", "gemini-3-pro"),
        ("bedrock:us.anthropic.claude-sonnet-4-5", "us.anthropic.claude-sonnet-4-5"),
        ("openrouter:openai/gpt-5", "openai/gpt-5"),
        ("mistral:mistral-large", "mistral-large"),
    ],
)
def test_a_client_can_what_its_model_string_can(text: str, model: str) -> None:
    client, _ = resolve(text)
    assert of_client(client, model) == of_scheme(text.partition(":")[0], model)


def test_a_model_of_ones_own_says_itself_what_it_can() -> None:
    class Own:
        def capabilities(self, model: str) -> Capabilities:
            return Capabilities(schema=model == "big")

    assert of_client(Own(), "big").schema
    assert not of_client(Own(), "small").schema
    assert of_client(ScriptedModel([]), "any") == NOTHING
