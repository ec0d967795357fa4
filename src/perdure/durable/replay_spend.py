"""What the requests of a record took, as a replay of it takes it again.

So a run that is driven again spends what it spent then, before each of its requests, and stops at
the same point of the same budget. What an attempt took goes with its failure; what else was
discarded on the way to an answer goes with the answer, and what a process took that died goes with
the answer before.
"""

from __future__ import annotations

from typing import NamedTuple

from perdure.log.entries import AnyEntry, ResponseEntry, RunEntry, SpendEntry
from perdure.loop.spend import NO_SPEND, NO_TOKENS, ZERO, Charge, Spend


class Took(NamedTuple):
    """What a response of a record is replayed with."""

    charge: Charge | None
    """For one that failed: what it took."""
    discarded: Spend
    """What other requests took on the way to it."""


class SpendTrail:
    """The spend of a path, request by request."""

    def __init__(self) -> None:
        self._open: dict[str, SpendEntry] = {}
        self._rows: list[SpendEntry] = []

    def apply(self, entry: AnyEntry) -> Spend:
        """Take an entry that is no response; gives what a process took that died before it."""
        lost = NO_SPEND
        if isinstance(entry, SpendEntry) and entry.phase == "reserve":
            self._open[entry.id] = entry
        elif isinstance(entry, SpendEntry) and entry.phase == "settle":
            self._open.pop(entry.target, None)
            self._rows.append(entry)
        elif isinstance(entry, RunEntry) and entry.phase == "start":
            lost = _sum([*self._rows, *self._open.values()])
            self._open.clear()
            self._rows.clear()
        return lost

    def attempt(self) -> Charge | None:
        """What an attempt took that has failed and is made again; None if nobody says."""
        rows, self._rows = self._rows, []
        return _joined(rows)

    def response(self, entry: ResponseEntry, *, failed: bool) -> Took:
        """What a response is replayed with."""
        rows, self._rows = self._rows, []
        reserved = None
        if not entry.settled:
            reserved = self._open.pop(entry.reserved or next(iter(self._open), ""), None)
        if failed:
            own = rows if entry.settled or reserved is None else [*rows, reserved]
            return Took(_joined(own), NO_SPEND)
        others = [one for one in rows if one.came != "answered"]
        return Took(None, _sum(others))


def _joined(entries: list[SpendEntry]) -> Charge | None:
    """Several requests as the charge of one."""
    charges = [_charge(one) for one in entries if one.came != "unsent"]
    if not charges:
        return None
    first = charges[0]
    priced = [one.usd for one in charges if one.usd is not None]
    return Charge(
        model=first.model,
        tokens=sum((one.tokens for one in charges), NO_TOKENS),
        usd=sum(priced, ZERO) if priced else None,
        came=first.came,
        estimated=any(one.estimated for one in charges),
    )


def _sum(entries: list[SpendEntry]) -> Spend:
    total = NO_SPEND
    for one in entries:
        if one.came != "unsent":
            total = total.plus(_charge(one))
    return total


def _charge(entry: SpendEntry) -> Charge:
    return Charge(
        model=entry.model,
        tokens=entry.tokens,
        usd=entry.usd,
        came="lost" if entry.came == "unsent" or not entry.came else entry.came,
        estimated=entry.estimated or entry.phase == "reserve",
    )
