"""What a request could not carry to a provider.

An adapter maps what it can. The rest it names here, each item, part or setting with the reason, so
that nothing is left out in silence.
"""

from __future__ import annotations

from typing import NamedTuple


class Loss(NamedTuple):
    """Something of a request that its provider does not get.

    Attributes:
        at: Where it stands, as `input[3].content[1]` or `temperature`.
        what: What it is, as `input_image` or `reasoning`.
        reason: Why it was left out, or what went in its place.
    """

    at: str
    what: str
    reason: str
