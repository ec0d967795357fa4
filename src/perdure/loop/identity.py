"""Who runs a drive, and for whom: claims of whoever starts it, which no model can set.

A *deployment* is the identity of an agent's definition, a *principal* that of a run. Tools and
hooks see both, sub-agents inherit them, and the record has them with each decision and dispatch.
"""

from __future__ import annotations

from typing import cast

from perdure.errors import ConfigError

MAX_IDENTITY = 512
"""How many bytes the name of a deployment or a principal may have, as UTF-8."""


def check_identity(text: str, what: str) -> None:
    """Refuse what cannot say who runs something, or for whom.

    Raises:
        ConfigError: It is no printable text, or too long.
    """
    given = cast("object", text)
    if not isinstance(given, str) or not given.isprintable():
        raise ConfigError(f"{what} is a printable text, not {text!r}")
    if len(given.encode("utf-8", "surrogatepass")) > MAX_IDENTITY:
        raise ConfigError(f"{what} has at most {MAX_IDENTITY} bytes")
