"""What Claude wants behind whichever API: room for an answer, sampling, and how it is to think."""

from __future__ import annotations

import re

import msgspec

from perdure.models.mapping.kept import kept
from perdure.models.mapping.losses import Lost
from perdure.wire import Request
from perdure.wire.jsontext import members_of

DEFAULT_MAX_TOKENS = 4096
"""The most tokens of an answer where the settings do not say; the API has no default."""

_LEAST_BUDGET = 1024
_BUDGETS = {
    "none": 0,
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 32768,
    "max": 32768,
}
"""The tokens to think with; room for them is left where the settings do not say how much."""

_EFFORTS = {"minimal": "low"}

_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?")


def version(model: str) -> tuple[int, int]:
    """The version of a Claude model; of one whose name says none, a new one's."""
    found = _VERSION.search(model)
    return (99, 0) if found is None else (int(found[1]), int(found[2] or 0))


def takes_inline_system(model: str) -> bool:
    """Whether a model takes messages of the system between others."""
    return version(model) >= (4, 8)


def max_tokens(settings: Request) -> int:
    """The most tokens that a request lets an answer have."""
    if settings.max_output_tokens:
        return settings.max_output_tokens
    native = members_of(kept(settings).get("thinking", b"{}")).get("budget_tokens")
    if native is not None:
        return DEFAULT_MAX_TOKENS + msgspec.json.decode(native, type=int)
    reasoning = settings.reasoning or None
    if reasoning is None or version(settings.model or "") < (3, 7):
        return DEFAULT_MAX_TOKENS
    return DEFAULT_MAX_TOKENS + _BUDGETS.get(reasoning.effort or "high", _BUDGETS["high"])


def takes_one_of_both(model: str) -> bool:
    """Whether a model takes the temperature or `top_p`, and refuses both."""
    return version(model) >= (4, 1)


def sampling(
    settings: Request, lost: Lost, *, maker: str, thinks: bool, either: bool
) -> dict[str, float]:
    """The members `temperature` and `top_p`, those that are sent.

    Args:
        settings: The settings.
        lost: Where losses go.
        maker: Who serves the model, for people.
        thinks: Whether the model will think.
        either: Whether it takes one of the two alone.
    """
    temperature, top_p = settings.temperature, settings.top_p
    out: dict[str, float] = {}
    if isinstance(temperature, int | float):
        if thinks:
            lost.add("temperature", "a model that thinks takes none", "temperature")
        else:
            out["temperature"] = min(temperature, 1)
            if temperature > 1:
                lost.add("temperature", f"{maker} takes at most 1", "temperature")
    if isinstance(top_p, int | float):
        if thinks and top_p < 0.95:
            lost.add("top_p", "a model that thinks takes 0.95 at least", "top_p")
        elif either and out:
            lost.add("top_p", "the model takes it or the temperature, not both", "top_p")
        else:
            out["top_p"] = top_p
    return out


# --- thinking -----------------------------------------------------------------------------

_Thinking = dict[str, object]


def _budget(settings: Request) -> int | None:
    """The tokens to think with, for a model that has to be told; None for the others."""
    effort = settings.reasoning.effort if settings.reasoning else None
    if not effort or "thinking" in kept(settings):
        return None
    if not (3, 7) <= version(settings.model or "") < (4, 6):
        return None
    return _BUDGETS.get(effort)


def thinking_members(
    settings: Request, lost: Lost, *, forced: bool, calls_without_thought: bool
) -> tuple[_Thinking, dict[str, object]]:
    """The members `thinking` and `output_config`.

    Args:
        settings: The settings.
        lost: Where losses go.
        forced: Whether a call is forced, before which an older model cannot think.
        calls_without_thought: Whether the last calls come without the thought before them.
    """
    config: dict[str, object] = dict(members_of(kept(settings).get("output_config", b"{}")))
    native = kept(settings).get("thinking")
    thinking: _Thinking = {}
    if native is not None and native != b"null":
        thinking = msgspec.json.decode(native, type=dict[str, object])
    elif settings.reasoning:
        thinking = _asked_thinking(settings, config, lost)
    kind = thinking.get("type")
    if forced and kind == "enabled":
        lost.add("thinking", "no thought goes before a call that is forced", "reasoning")
        return {}, config
    if kind == "enabled" and calls_without_thought:
        lost.add("thinking", "the last calls come without the thought before them", "reasoning")
        return {}, config
    return thinking, config


def _asked_thinking(settings: Request, config: dict[str, object], lost: Lost) -> _Thinking:
    reasoning = settings.reasoning
    assert reasoning  # noqa: S101 - the caller asked
    effort, summary = reasoning.effort or None, reasoning.summary or None
    made = version(settings.model or "")
    if effort == "none":
        return {"type": "disabled"} if made >= (3, 7) else {}
    if made < (3, 7):
        lost.add("reasoning", "the model does not think", "reasoning")
        return {}
    if made >= (4, 6):
        if effort:
            config.setdefault("effort", _EFFORTS.get(effort, effort))
        shown = {"display": "summarized"} if summary else {}
        return {"type": "adaptive", **shown}
    budget = _budget(settings)
    if budget is None:
        if effort:
            lost.add(effort, "the model knows no such effort", "reasoning.effort")
        return {}
    most = max_tokens(settings)
    if most <= _LEAST_BUDGET:
        lost.add("reasoning", f"{most} tokens leave no room for a thought", "reasoning")
        return {}
    return {"type": "enabled", "budget_tokens": min(budget, max(_LEAST_BUDGET, most // 2))}
