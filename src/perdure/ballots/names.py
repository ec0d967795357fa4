"""The names of approvers: what each looks like, and which cannot stand beside which."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

_LOOKS = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u04bb\u04cf\u051b\u051d"
    "\u03bf\u03b1\u03c1\u03bd\u03b9\u03ba\u03c5\u03c7\u0131\u0261",
    "aeopcyxijsdhlqw" + "oapvikuxig",
)
"""Letters that look like Latin ones: Cyrillic, Greek, and two of Latin's own."""

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def look_of(name: str) -> str:
    """What a name looks like: equal for names that differ in case, in form or in lookalikes."""
    folded = unicodedata.normalize("NFD", name).casefold()
    return unicodedata.normalize("NFKC", folded).translate(_LOOKS)


def names_fault(names: Sequence[str]) -> str:
    """Why names cannot be those of approvers; empty if they can."""
    looks: dict[str, str] = {}
    for name in names:
        if not name or name != name.strip():
            return f"{name!r} is no name"
        if any(unicodedata.category(letter) in _HIDDEN for letter in name):
            return f"{name!r} has characters that nobody sees"
        other = looks.get(look_of(name))
        if other is not None:
            return (
                f"{name!r} stands twice" if other == name else f"{other!r} and {name!r} look alike"
            )
        looks[look_of(name)] = name
    return ""
