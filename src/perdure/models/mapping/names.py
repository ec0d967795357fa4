"""Names of functions and ids of calls, as providers take them."""

from __future__ import annotations

import hashlib
import re

from perdure.errors import ConfigError
from perdure.models.mapping.losses import Lost


def checked_name(name: str, pattern: re.Pattern[str]) -> str:
    """The name of a tool, as a provider takes it.

    Raises:
        ConfigError: It takes no such name.
    """
    if not pattern.fullmatch(name):
        raise ConfigError(
            f"the provider takes no tool named {name!r}: it must be {pattern.pattern}"
        )
    return name


def legal_id(call_id: str, pattern: re.Pattern[str]) -> str:
    """A call id that a provider takes: as it is, or one that stands for it alone, always the same.

    Args:
        call_id: The id.
        pattern: What the provider takes, whole.
    """
    if pattern.fullmatch(call_id):
        return call_id
    return "call_" + hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def legal_name(name: str, pattern: re.Pattern[str], lost: Lost) -> str:
    """A function name, in a call that was made, that a provider takes."""
    if pattern.fullmatch(name):
        return name
    lost.add(name, "the provider takes no such function name; sent with '_' in it", ".name")
    legal = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]
    return legal if pattern.fullmatch(legal) else "_" + legal[:63]
