"""Every adapter passes the conformance kit; and the kit finds what it is there to find."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from perdure import OpenResponses
from perdure.errors import InvalidInput, ModelError
from perdure.loop.model import Model, ModelRequest
from perdure.models.anthropic import Anthropic
from perdure.models.bedrock import Bedrock
from perdure.models.chat import SCHEMES, Chat
from perdure.models.gemini import Gemini
from perdure.models.openrouter import OpenRouter
from perdure.testing import ScriptedModel, model_kit
from perdure.testing.model_kit import SECRET, Check, Subject
from perdure.wire import StreamEvent
from tests.models_kit import answers


def chat(scheme: str) -> Callable[[str], Model]:
    return lambda url: Chat(url, dialect=SCHEMES[scheme], api_key=SECRET)


SUBJECTS: Mapping[str, Callable[[], Subject]] = {
    "scripted": lambda: model_kit.in_process(lambda turn: ScriptedModel(lambda _: turn)),
    "loopback": model_kit.open_responses,
    "openresponses": lambda: model_kit.over_http(
        lambda url: OpenResponses(url, api_key=SECRET), answers.openresponses()
    ),
    "anthropic": lambda: model_kit.over_http(
        lambda url: Anthropic(url, api_key=SECRET), answers.anthropic()
    ),
    "gemini": lambda: model_kit.over_http(
        lambda url: Gemini(url, api_key=SECRET), answers.gemini()
    ),
    "bedrock": lambda: model_kit.over_http(
        lambda url: Bedrock(base_url=url, region="eu-central-1", api_key=SECRET), answers.bedrock()
    ),
    "openrouter": lambda: model_kit.over_http(
        lambda url: OpenRouter(url, api_key=SECRET), answers.chat(), name="openai/m"
    ),
    **{
        name: (lambda name=name: model_kit.over_http(chat(name), answers.chat()))  # type: ignore[misc]
        for name in ("openai-chat", "groq", "mistral", "vllm", "chat")
    },
}


@pytest.mark.parametrize("check", model_kit.CHECKS, ids=model_kit.name_of)
@pytest.mark.parametrize("name", SUBJECTS)
async def test_every_model_passes(name: str, check: Check) -> None:
    subject = await asyncio.to_thread(SUBJECTS[name])
    await check(subject)


@pytest.mark.parametrize(
    "name", [name for name in SUBJECTS if name not in {"scripted", "loopback"}]
)
async def test_every_adapter_is_put_into_every_scene(name: str) -> None:
    subject = await asyncio.to_thread(SUBJECTS[name])
    assert subject.missing() == ()


# --- what the kit finds ---------------------------------------------------------------------------


class Faulty:
    """A model that does something wrong."""

    def __init__(self, inner: Model, fault: str) -> None:
        self._inner = inner
        self._fault = fault

    async def aclose(self) -> None:
        await self._inner.aclose()  # type: ignore[attr-defined]

    async def create(self, request: ModelRequest) -> Any:
        import msgspec

        response = await self._inner.create(request)  # type: ignore[attr-defined]
        if self._fault == "counts twice":
            usage = msgspec.structs.replace(response.usage, input_tokens=40, total_tokens=46)
            return msgspec.structs.replace(response, usage=usage)
        return response

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        return self._stream(request)

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        if self._fault == "asks twice":
            async for _ in self._inner.stream(request):
                break
        seen: list[StreamEvent] = []
        try:
            async for event in self._inner.stream(request):
                seen.append(event)
                yield event
        except ModelError as error:
            if self._fault == "loses the class":
                raise InvalidInput(str(error)) from None
            if self._fault == "shows the key":
                error.args = (f"{error} {SECRET}",)
            if self._fault == "ends quietly":
                return
            raise
        if self._fault == "ends twice":
            yield seen[-1]


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("asks twice", model_kit.one_stream_is_one_request),
        ("loses the class", model_kit.a_refusal_has_its_exact_class),
        ("shows the key", model_kit.the_key_shows_in_no_error),
        ("ends quietly", model_kit.a_stream_that_breaks_is_an_error_and_no_answer),
        ("ends twice", model_kit.events_come_in_the_order_of_the_specification),
        ("counts twice", model_kit.a_whole_answer_says_what_a_streamed_one_says),
    ],
)
async def test_a_model_that_does_something_wrong_is_found_out(fault: str, check: Check) -> None:
    subject = model_kit.over_http(
        lambda url: Faulty(Anthropic(url, api_key=SECRET), fault), answers.anthropic()
    )
    with pytest.raises(AssertionError):
        await check(subject)
