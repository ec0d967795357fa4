"""The names of approvers: what each looks like, and which cannot stand beside which."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

_ALPHABETS: Sequence[tuple[str, str]] = (
    # Cyrillic
    (
        (
            "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425\u0406\u0408"
            "\u0405\u04ae\u050c\u051a\u051c\u04c0"
        ),
        "ABEKMHOPCTYXIJSYGQWI",
    ),
    (
        (
            "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u04bb\u04cf\u051b"
            "\u051d\u0475\u04af\u044c\u043a"
        ),
        "aeopcyxijsdhlqwvybk",
    ),
    # Greek
    (
        (
            "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
            "\u03f9\u037f"
        ),
        "ABEZHIKMNOPTYXCJ",
    ),
    (
        "\u03bf\u03b1\u03c1\u03bd\u03b9\u03ba\u03c5\u03c7\u03b3\u03b7\u03c3\u03f2\u03f3",
        "oapvikuxynocj",
    ),
    # Armenian
    (
        "\u0555\u054d\u054f\u0585\u0578\u057d\u0570\u0581\u0566\u0575",
        "OUSonuhgqj",
    ),
    # Cherokee
    (
        (
            "\u13a0\u13a1\u13a2\u13a9\u13aa\u13ab\u13ac\u13b3\u13b7\u13bb\u13c0\u13c3\u13d4\u13d5"
            "\u13d9\u13de\u13df\u13e2\u13e6\u13f4"
        ),
        "DRTYAJEWMHGZWSVLCPKB",
    ),
    # Lisu
    (
        (
            "\ua4d0\ua4d1\ua4d3\ua4d4\ua4d6\ua4d7\ua4d9\ua4da\ua4dc\ua4dd\ua4df\ua4e0\ua4e1\ua4e2"
            "\ua4e3\ua4e6\ua4e7\ua4ea\ua4eb\ua4ec\ua4ee\ua4f0\ua4f2\ua4f3\ua4f4"
        ),
        "BPDTGKJCZFMNLSRVHWXYAEIOU",
    ),
    # Latin
    (
        (
            "\u0131\u0261\u0251\u0269\u0185\u01c0\u026a\u028f\u0274\u0280\u0299\u0262\u029c\u029f"
            "\u1d00\u1d04\u1d05\u1d07\u1d0a\u1d0b\u1d0d\u1d0f\u1d18\u1d1b\u1d1c\u1d20\u1d21\u1d22"
            "\ua731"
        ),
        "igaiblIYNRBGHLACDEJKMOPTUVWZS",
    ),
)
"""Letters that look like Latin ones, alphabet by alphabet; those of Latin itself at the end."""

_LOOKS = str.maketrans(
    {a: b for ours, latin in _ALPHABETS for a, b in zip(ours, latin, strict=True)}
)

_CAPITAL_I = str.maketrans("I", "l")

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

_IGNORABLE = frozenset(
    (
        *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0),
        *range(0x180B, 0x1810),
        *range(0xFE00, 0xFE10),
        *range(0xE0100, 0xE01F0),
    )
)
"""What Unicode lets a reader leave out and does not call a format; and the empty Braille cell."""

_LETTERS = frozenset({"Lu", "Ll", "Lt", "Lo"})

_TOGETHER = frozenset({"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"})
"""Scripts that are written in one word."""


def looks_of(name: str) -> frozenset[str]:
    """What a name looks like as it is, in small and in great letters, whatever its alphabet.

    Two names that share a look cannot be told apart: they differ in case, in form or in letters of
    other alphabets that look the same.
    """
    plain = unicodedata.normalize("NFKD", name)
    forms = (plain, plain.lower(), plain.upper(), plain.casefold())
    return frozenset(
        _folded(text) for text in (*forms, plain.translate(_LOOKS).translate(_CAPITAL_I))
    )


def _folded(text: str) -> str:
    once = text.translate(_LOOKS).casefold()
    return unicodedata.normalize("NFKC", once.translate(_LOOKS).casefold())


def names_fault(names: Sequence[str]) -> str:
    """Why names cannot be those of approvers; empty if they can.

    Each has to be readable on its own: no characters that nobody sees, single blanks between its
    words, and one script in a word. No two of them may look alike.
    """
    seen: dict[str, str] = {}
    for name in names:
        if fault := _name_fault(name):
            return fault
        looks = looks_of(name)
        other = next((seen[look] for look in looks if look in seen), None)
        if other is not None:
            return (
                f"{name!r} stands twice" if other == name else f"{other!r} and {name!r} look alike"
            )
        seen |= dict.fromkeys(looks, name)
    return ""


def _name_fault(name: str) -> str:
    """Why a text names nobody, whoever else is there; empty if it may."""
    if not name or name != name.strip():
        return f"{name!r} is no name"
    if any(unicodedata.category(one) in _HIDDEN or ord(one) in _IGNORABLE for one in name):
        return f"{name!r} has characters that nobody sees"
    if "  " in name or any(one.isspace() and one != " " for one in name):
        return f"{name!r} has other spaces than single blanks"
    mixed = next((word for word in name.split() if len(_scripts(word)) > 1), None)
    if mixed is not None:
        return f"{name!r} mixes scripts in one word: {', '.join(sorted(_scripts(mixed)))}"
    return ""


def _scripts(word: str) -> frozenset[str]:
    """The scripts of the letters of a word, as the names of characters begin."""
    letters = (one for one in unicodedata.normalize("NFKC", word) if _is_letter(one))
    scripts = (unicodedata.name(one, "UNKNOWN").split()[0].partition("-")[0] for one in letters)
    return frozenset("EAST ASIAN" if one in _TOGETHER else one for one in scripts)


def _is_letter(one: str) -> bool:
    return unicodedata.category(one) in _LETTERS
