"""Every call gets one id, and no two calls the same.

The id is decided when the call opens. A model's id stands unless it is empty or taken: by a call
of the transcript, by another of the same response, or reserved because a record holds it. The call
then runs under the model's id with a suffix that depends on nothing but what is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_LENGTH = 64

_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")


class CallIds:
    """The ids that are taken."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def reserve(self, ids: Iterable[str]) -> None:
        """Take ids."""
        self._taken.update(ids)

    def name(self, given: str) -> str:
        """The id for a call that the model named `given`; it is taken from now on."""
        chosen = given
        if not given or given in self._taken:
            chosen = self._free(_ILLEGAL.sub("_", given) or "call")
        self._taken.add(chosen)
        return chosen

    def _free(self, base: str) -> str:
        number = 2
        while True:
            suffix = f"_{number}"
            candidate = base[: MAX_LENGTH - len(suffix)] + suffix
            if candidate not in self._taken:
                return candidate
            number += 1

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._taken
