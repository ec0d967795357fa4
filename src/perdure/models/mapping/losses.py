"""What adapters gather of a request that its provider does not get. See `perdure.loop.losses`."""

from __future__ import annotations

from perdure.loop.losses import Loss

__all__ = ["Loss", "Lost"]


class Lost:
    """Where losses are gathered.

    Attributes:
        at: The place that losses are relative to, as `input[3]`.
        all: The losses.
    """

    __slots__ = ("all", "at")

    def __init__(self, at: str = "") -> None:
        self.at = at
        self.all: list[Loss] = []

    def add(self, what: str, reason: str, at: str = "") -> None:
        """Note a loss."""
        self.all.append(Loss(self.at + at, what, reason))
