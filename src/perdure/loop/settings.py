"""How a model should answer, in words that hold for every provider."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

import msgspec

from perdure.errors import ConfigError
from perdure.wire import Request, ToolChoice, decode_request, encode

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model should think before it answers."""

Verbosity = Literal["low", "medium", "high"]
"""How long an answer should be."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """How a model should answer; what is not given is the provider's default.

    ```python
    agent = Agent("anthropic:claude-opus-4-8", settings=Settings(temperature=0, max_tokens=500))
    ```

    Each adapter sends what its provider has, under its own name and in its own form. What the
    provider has not is left out and stands in the `losses` of the turn. Settings are recorded and
    compared like all else that a request says.

    Raises:
        ConfigError: A value can be no provider's.
    """

    temperature: float | None = None
    """From 0: how much chance decides. Some providers take 1 at most, others 2."""
    top_p: float | None = None
    """From 0 to 1: sample from the likeliest tokens that have this probability together."""
    top_k: int | None = None
    """Sample from this many of the likeliest tokens."""
    max_tokens: int | None = None
    """The most tokens of one answer, thoughts included."""
    stop: Sequence[str] = ()
    """A text to stop at, or several; they are no part of the answer."""
    seed: int | None = None
    """Sample the same way again, as far as the provider can."""
    presence_penalty: float | None = None
    """From -2 to 2: keep off tokens that were there."""
    frequency_penalty: float | None = None
    """From -2 to 2: keep off tokens that were there often."""
    effort: Effort | None = None
    """How much to think."""
    reasoning_summary: str | None = None
    """How thoughts are shown, as `auto`, `concise` or `detailed`."""
    verbosity: Verbosity | None = None
    """How long an answer should be."""
    tool_choice: ToolChoice | None = None
    """`auto`, `required`, `none`, or a `perdure.wire.FunctionChoice` that names the tool."""
    parallel_tool_calls: bool | None = None
    """Whether one answer may ask for several calls."""
    top_logprobs: int | None = None
    """How many candidates to show for each token, with their probabilities."""
    service_tier: str | None = None
    """What the provider should serve with, as `flex` or `priority`."""
    user: str | None = None
    """A name for the end user that tells the provider nothing else, for finding abuse."""
    cache_key: str | None = None
    """What tells requests with a common beginning from others in the provider's cache."""
    metadata: dict[str, str] | None = None
    """What the provider keeps beside the request."""
    extra: dict[str, object] = msgspec.field(default_factory=dict[str, object])
    """Members of the request under the names that the provider itself has for them."""

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and low <= value <= high):
                raise ConfigError(f"Settings({name}=...) is from {low} to {high}, got {value!r}")
        for name, least in _COUNTS.items():
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if value is not None and not (whole and value >= least):
                raise ConfigError(f"Settings({name}=...) is a number from {least}, got {value!r}")
        stop: object = self.stop
        texts = cast("tuple[object, ...]", stop) if isinstance(stop, list | tuple) else (stop,)
        if not all(isinstance(text, str) and text for text in texts):
            raise ConfigError(f"Settings(stop=...) is one text or more, got {stop!r}")

    def request(self) -> Request:
        """The settings as members of a request.

        Raises:
            DecodeError: A member of `extra` is not what the wire has at its place.
        """
        shown = {"effort": self.effort, "summary": self.reasoning_summary}
        members: dict[str, object] = {
            **{name: getattr(self, ours) for name, ours in _MEMBERS.items()},
            "stop": [self.stop] if isinstance(self.stop, str) else list(self.stop),
            "reasoning": {name: value for name, value in shown.items() if value},
            "text": {"verbosity": self.verbosity} if self.verbosity else {},
            "tool_choice": _choice(self.tool_choice),
        }
        given = {name: value for name, value in members.items() if value not in _NOTHING}
        return decode_request(msgspec.json.encode({**given, **self.extra}))


def _choice(choice: ToolChoice | None) -> object:
    return choice if choice is None or isinstance(choice, str) else msgspec.Raw(encode(choice))


_NOTHING: tuple[object, ...] = (None, {}, [], "")

_MEMBERS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "seed": "seed",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "max_output_tokens": "max_tokens",
    "parallel_tool_calls": "parallel_tool_calls",
    "top_logprobs": "top_logprobs",
    "service_tier": "service_tier",
    "safety_identifier": "user",
    "prompt_cache_key": "cache_key",
    "metadata": "metadata",
}
"""The members of a request that hold a setting as it is."""

_RANGES = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
}
_COUNTS = {"top_k": 1, "max_tokens": 1, "top_logprobs": 0, "seed": -(2**63)}
