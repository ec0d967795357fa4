"""The curve of Ed25519, as far as it takes to know a weak key (RFC 8032, section 5.1)."""

from __future__ import annotations

import functools
from typing import TypeAlias

_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P) % _P
_ORDER = 2**252 + 27742317777372353535851937790883648493

_Point: TypeAlias = tuple[int, int, int, int]
_NEUTRAL: _Point = (0, 1, 1, 0)


@functools.lru_cache(maxsize=1024)
def weakness(raw: bytes) -> str:
    """What is wrong with the 32 bytes of a public key; empty if nothing is."""
    if len(raw) != 32:
        return f"it has 32 bytes, and this has {len(raw)}"
    y = int.from_bytes(raw, "little") & ((1 << 255) - 1)
    if y >= _P:
        return "it is not written canonically"
    x = _root((y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P)
    if x is None:
        return "it is no point of the curve"
    if x == 0 and raw[31] >> 7:
        return "it is not written canonically"
    if x & 1 != raw[31] >> 7:
        x = _P - x
    point = (x, y, 1, x * y % _P)
    if _is_neutral(_times(8, point)):
        return "it is of small order"
    return "" if _is_neutral(_times(_ORDER, point)) else "it is of mixed order"


def _root(square: int) -> int | None:
    root = pow(square, (_P + 3) // 8, _P)
    if (root * root - square) % _P:
        root = root * pow(2, (_P - 1) // 4, _P) % _P
    return None if (root * root - square) % _P else root


def _times(scalar: int, point: _Point) -> _Point:
    found = _NEUTRAL
    while scalar:
        if scalar & 1:
            found = _plus(found, point)
        point, scalar = _plus(point, point), scalar >> 1
    return found


def _plus(left: _Point, right: _Point) -> _Point:
    """The sum of two points in extended coordinates."""
    a = (left[1] - left[0]) * (right[1] - right[0]) % _P
    b = (left[1] + left[0]) * (right[1] + right[0]) % _P
    c = 2 * left[3] * right[3] * _D % _P
    d = 2 * left[2] * right[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _is_neutral(point: _Point) -> bool:
    return point[0] % _P == 0 and (point[1] - point[2]) % _P == 0
