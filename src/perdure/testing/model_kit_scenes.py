"""Scenes that models are put into, and the subjects that play them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Literal, TypeAlias, cast, get_args

from msgspec.structs import replace

from perdure.errors import (
    AuthFailed,
    ContextTooLong,
    InvalidInput,
    NotFound,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    ServerFailed,
    Transport,
    Truncated,
)
from perdure.loop import Items, ModelRequest
from perdure.loop.model import Model
from perdure.models.openresponses import OpenResponses
from perdure.testing.canned import Canned, CannedServer, End
from perdure.testing.scripted import ScriptedModel, TurnLike, call, error, turn
from perdure.testing.server import LoopbackServer
from perdure.wire import FunctionTool, Request, user

Scene = Literal[
    "text",
    "whole",
    "calls",
    "length",
    "filtered",
    "cut",
    "reset",
    "empty",
    "silent",
    "garbage",
    "rate_limited",
    "quota",
    "overloaded",
    "server_failed",
    "auth",
    "not_found",
    "too_long",
    "invalid",
]
"""The situations.

`text`: an assistant's message, streamed, with usage. `whole`: the same answer, with the same usage,
not streamed. `calls`: two calls of `look` in one response. `length`, `filtered`: an answer that was
cut at a limit or by a filter. `cut`, `reset`: the connection closes, or is reset, in the middle of
a text. `empty`: nothing comes but the head. `silent`: the head of an answer, and then nothing until
the client leaves. `garbage`: bytes that are no answer. The others are refusals: `rate_limited` asks
to wait 7 seconds, `auth` quotes the key that was sent, which is `SECRET`.
"""

SCENES: tuple[Scene, ...] = get_args(Scene)

SECRET = "sk-kit-secret-0123456789"  # noqa: S105 - it opens nothing
"""The key that a subject's model is to be given."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A model in a scene.

    Attributes:
        model: The model.
        requests: How many requests it has sent; None where nobody can tell.
        released: Returns when it holds no connection any more.
    """

    model: Model
    requests: Callable[[], int] | None = None
    released: Callable[[], Awaitable[None]] | None = None


Play: TypeAlias = Callable[[Scene], "contextlib.AbstractAsyncContextManager[Stage]"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The model under test.

    Attributes:
        play: Puts the model into a scene, for as long as the block runs.
        scenes: Those that can be played.
        name: What requests call the model.
        answers: The bytes of the scenes, where they are known, and how a model of others is made.
    """

    play: Play
    scenes: frozenset[Scene] = frozenset(SCENES)
    name: str = "m"
    answers: Mapping[Scene, Canned] = dataclasses.field(default_factory=dict[Scene, Canned])
    make: Callable[[str], Model] | None = None

    def missing(self) -> tuple[Scene, ...]:
        """The scenes that cannot be played."""
        return tuple(scene for scene in SCENES if scene not in self.scenes)

    def request(self, *, tools: bool = False) -> ModelRequest:
        """A request for the model."""
        settings = Request(model=self.name, max_output_tokens=500)
        if tools:
            settings = replace(settings, tools=(LOOK,))
        return ModelRequest(settings=settings, input=Items.of([user("Hello.")]))


LOOK = FunctionTool(
    name="look",
    description="Look something up.",
    parameters={
        "type": "object",
        "properties": {"what": {"type": "string"}},
        "required": ["what"],
    },
)


# --- subjects -----------------------------------------------------------------------------------


def over_http(
    make: Callable[[str], Model], answers: Mapping[Scene, Canned], *, name: str = "m"
) -> Subject:
    """A subject whose server says given bytes.

    Args:
        make: Makes the model, given the address of a server, with `SECRET` as its key.
        answers: What the server says in each scene, as the model's provider says it. `cut`,
            `reset`, `empty`, `silent` and `garbage` are made of `text` where they are not given.
        name: What requests call the model.
    """
    every: dict[Scene, Canned] = {**_made_of(answers["text"]), **answers}

    @contextlib.asynccontextmanager
    async def play(scene: Scene) -> AsyncGenerator[Stage]:
        async with staged(make, every[scene]) as stage:
            yield stage

    return Subject(play=play, scenes=frozenset(every), name=name, answers=every, make=make)


@contextlib.asynccontextmanager
async def staged(make: Callable[[str], Model], answer: Canned) -> AsyncGenerator[Stage]:
    """A model whose server gives one answer to everything."""
    async with CannedServer(answer) as server:
        model = make(server.base_url)
        try:
            yield Stage(model=model, requests=lambda: len(server.bodies), released=server.gone)
        finally:
            await _aclose(model)


def _made_of(text: Canned) -> dict[Scene, Canned]:
    """The scenes that differ from `text` only in what becomes of its bytes."""
    half = text.body[: len(text.body) // 2]
    ends: dict[Scene, tuple[bytes, End]] = {
        "cut": (half, "cut"),
        "reset": (half, "reset"),
        "empty": (b"", "complete"),
        "silent": (b"", "hang"),
        "garbage": (b"<html>no model here</html>", "complete"),
    }
    return {scene: replace(text, body=body, end=end) for scene, (body, end) in ends.items()}


_RATE_LIMITED = RateLimited(
    "slow down", status=429, type="too_many_requests", code="rate_limit_exceeded", retry_after=7
)

SCRIPTS: Mapping[Scene, TurnLike] = {
    "text": "Hello, how are you?",
    "whole": "Hello, how are you?",
    "calls": turn(call("look", {"what": "a"}), call("look", {"what": "b"})),
    "length": turn("Hello, how", incomplete="max_output_tokens"),
    "filtered": turn("Hello, how", incomplete="content_filter"),
    "cut": turn("Hello, how", error(Truncated())),
    "reset": turn("Hello, how", error(Transport("reset"))),
    "rate_limited": _RATE_LIMITED,
    "quota": QuotaExhausted("no credit", status=429, code="insufficient_quota"),
    "overloaded": Overloaded("no room", status=503, code="server_overloaded"),
    "server_failed": ServerFailed("it broke", status=500),
    "auth": AuthFailed(f"the key {SECRET} is wrong", status=401, code="invalid_api_key"),
    "not_found": NotFound("no such model", status=404, code="model_not_found"),
    "too_long": ContextTooLong("too long", status=400, code="context_length_exceeded"),
    "invalid": InvalidInput("no such member", status=400, type="invalid_request"),
}
"""The scenes as turns of a scripted model."""


def open_responses(make: Callable[[str], Model] | None = None) -> Subject:
    """A subject over `LoopbackServer`, for clients of Open Responses.

    Args:
        make: Makes the model, given what `/responses` is appended to, with `SECRET` as its key;
            perdure's own client unless given.
    """
    made = make or _own_client

    @contextlib.asynccontextmanager
    async def play(scene: Scene) -> AsyncGenerator[Stage]:
        async with LoopbackServer(ScriptedModel(lambda _: SCRIPTS[scene])) as server:
            model = made(server.base_url)
            try:
                yield Stage(model=model, requests=lambda: len(server.received))
            finally:
                await _aclose(model)

    return Subject(play=play, scenes=frozenset(SCRIPTS))


def _own_client(base_url: str) -> Model:
    return OpenResponses(base_url, api_key=SECRET)


def in_process(make: Callable[[TurnLike], Model]) -> Subject:
    """A subject without a server.

    Args:
        make: Makes a model that answers with a turn, as `ScriptedModel` takes it.
    """

    @contextlib.asynccontextmanager
    async def play(scene: Scene) -> AsyncGenerator[Stage]:
        yield Stage(model=make(SCRIPTS[scene]))

    return Subject(play=play, scenes=frozenset(SCRIPTS) - {"whole", "reset"})


async def _aclose(model: Model) -> None:
    aclose = cast("Callable[[], Awaitable[None]] | None", getattr(model, "aclose", None))
    if aclose is not None:
        await aclose()
