"""What a recorder writes about spend: reservations, and what settles them.

A response that is recorded settles its own request. Which one of several that have ended took it is
known when it is recorded; what is held until then and was not taken gets an entry of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from perdure.log.entries import Json
from perdure.log.writing import Draft
from perdure.loop.account import Reservation
from perdure.loop.spend import NO_TOKENS, Charge, Spend, Tokens
from perdure.wire import Response


class _Held(NamedTuple):
    """A request that has ended as its server said, and may be the one that is answered."""

    reservation: Reservation
    charge: Charge


class Settled(NamedTuple):
    """What is written with a response."""

    drafts: list[Draft]
    """What settles other requests."""
    members: Json
    """What the response's own entry says of its request."""


class SpendLog:
    """Writes the spend of one session.

    Args:
        reserves: Whether reservations are written; else only what no response tells.
    """

    def __init__(self, *, reserves: bool) -> None:
        self.reserves = reserves
        self._open: list[Reservation] = []
        self._held: list[_Held] = []

    def reserve(self, reservation: Reservation) -> list[Draft]:
        """What precedes a request."""
        if not self.reserves:
            return []
        draft = Draft(
            "perdure:spend",
            _shown(
                {
                    "phase": "reserve",
                    "model": reservation.model,
                    "tokens": _counts(reservation.tokens),
                    "usd": _text(reservation.usd),
                }
            ),
        )
        reservation.entry = draft
        self._open.append(reservation)
        return [draft]

    def settle(self, reservation: Reservation, charge: Charge | None, *, told: bool) -> list[Draft]:
        """What follows a request that has ended; nothing yet if a response may tell of it."""
        if charge is not None and told:
            self._held.append(_Held(reservation, charge))
            return []
        if charge is None and not isinstance(reservation.entry, Draft):
            return []
        return [self._row(reservation, charge)]

    def response(self, response: Response | None) -> Settled:
        """What is written with the response of a turn."""
        taken = self._taken(response)
        held, self._held = [one for one in self._held if one is not taken], []
        drafts = [self._dropped(one) for one in held]
        if taken is None:
            return Settled(drafts, {"perdure:settled": True})
        if taken.reservation in self._open:
            self._open.remove(taken.reservation)
        named = taken.reservation.entry if self._open else None
        return Settled(drafts, {"perdure:reserved": named} if named is not None else {})

    def flush(self) -> list[Draft]:
        """What settles all that has ended: no response takes it any more."""
        held, self._held = self._held, []
        return [self._dropped(one) for one in held]

    def forget(self) -> None:
        """Another drive begins."""
        self._open.clear()
        self._held.clear()

    def _taken(self, response: Response | None) -> _Held | None:
        if response is None or not self._held:
            return None
        named = [one for one in self._held if one.reservation.response_id == response.id]
        return (named or self._held)[-1]

    def _dropped(self, held: _Held) -> Draft:
        """What settles a request whose answer nobody took."""
        reservation, charge = held
        if charge.came == "answered":
            charge = msgspec.structs.replace(charge, came="dropped")
        return self._row(reservation, charge)

    def _row(self, reservation: Reservation, charge: Charge | None) -> Draft:
        if reservation in self._open:
            self._open.remove(reservation)
        body: Json = {"phase": "settle", "target": reservation.entry, "came": "unsent"}
        if charge is not None:
            body |= {
                "came": charge.came,
                "model": charge.model,
                "tokens": _counts(charge.tokens),
                "usd": _text(charge.usd),
                "estimated": charge.estimated,
            }
        return Draft("perdure:spend", _shown(body))


def carried_draft(call_id: str, session: str, spend: Spend | None) -> Draft:
    """What a parent's record says of a sub-agent: its session, and once it has ended, its spend."""
    body: Json = {"phase": "child", "call_id": call_id, "session": session}
    if spend is not None:
        body["spend"] = _spend(spend)
    return Draft("perdure:spend", body)


def spend_json(spend: Spend) -> Json:
    """A spend as an entry holds it: money as text, what is nothing left out."""
    return _spend(spend)


def _spend(spend: Spend) -> Json:
    counts = {
        name: getattr(spend, name) for name in ("responses", "requests", "unpriced", "uncounted")
    }
    tokens = {name: _counts(getattr(spend, name)) for name in ("tokens", "estimated", "discarded")}
    money = {
        name: _text(getattr(spend, name) or None)
        for name in ("usd", "estimated_usd", "discarded_usd")
    }
    by_model = {model: _counts(one) for model, one in spend.by_model.items()}
    return _shown({**counts, **tokens, **money, "by_model": by_model})


def _counts(tokens: Tokens) -> Json:
    if tokens == NO_TOKENS:
        return {}
    counts = {name: getattr(tokens, name) for name in tokens.__struct_fields__}
    return {name: count for name, count in counts.items() if count}


def _text(usd: object) -> str:
    return "" if usd is None else f"{usd:f}"


def _shown(body: Json) -> Json:
    return {name: value for name, value in body.items() if value}
