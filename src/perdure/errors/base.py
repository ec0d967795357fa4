"""The root of the tree."""

from __future__ import annotations


class PerdureError(Exception):
    """The root of every error perdure raises."""
