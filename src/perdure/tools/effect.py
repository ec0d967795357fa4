"""What a tool does to the world. The effect decides what may happen twice (DESIGN 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias, TypeGuard, get_args

from perdure.errors import ConfigError

Effect: TypeAlias = Literal["none", "idempotent", "keyed", "once", "transactional"]
"""`none`: it only looks. `idempotent`: twice is as once. `keyed`: twice under one idempotency key
is as once. `once`: never twice. `transactional`: it commits with the log."""

EffectOf: TypeAlias = Callable[[Mapping[str, object]], Effect]
"""A tool's effect as a function of a call's arguments, as plain JSON values."""

EFFECTS: tuple[Effect, ...] = get_args(Effect)

ENTERED_ONCE: frozenset[Effect] = frozenset({"once", "transactional"})
"""Within one dispatch nothing enters these a second time (DESIGN 8)."""


def is_effect(value: object) -> TypeGuard[Effect]:
    """Whether `value` names an effect."""
    return value in EFFECTS


def check_effect(effect: object, tool: str) -> None:
    """Refuse what is neither an effect nor a function of the arguments.

    Raises:
        ConfigError: It is neither.
    """
    if not (is_effect(effect) or callable(effect)):
        raise ConfigError(
            f"tool {tool!r} has the effect {effect!r}; it is one of {', '.join(EFFECTS)}, "
            "or a function of the arguments that returns one of them"
        )
