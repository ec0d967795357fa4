"""Judging a saga: what its ledger says of what was done and undone.

A compensation is known by its key, which is that of the call with an ending; so the ledger needs to
know nothing of sessions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from perdure.durable.sagas.plan import KEY
from perdure.testing.chaos_ledger import Line


@dataclasses.dataclass(slots=True, eq=False)
class Deed:
    """What happened to one call, by the places of its lines."""

    line: Line
    entered: list[int] = dataclasses.field(default_factory=list[int])
    left: list[int] = dataclasses.field(default_factory=list[int])
    raised: list[int] = dataclasses.field(default_factory=list[int])
    undoing: list[int] = dataclasses.field(default_factory=list[int])
    undone: list[int] = dataclasses.field(default_factory=list[int])

    @property
    def took_effect(self) -> bool:
        """Whether it gave something, or nobody saw it fail."""
        return bool(self.left) or len(self.entered) > len(self.raised)

    @property
    def name(self) -> str:
        return f"{self.line.tool} {self.line.call_id!r} ({self.line.effect})"


def faults_of(lines: Sequence[Line], status: str) -> Iterator[str]:
    """What a saga did wrong: nothing is undone without a rollback, and everything with one.

    What has a compensator and took effect is undone at least once, what failed never is; and what
    began after another had ended is undone before that.
    """
    deeds = _deeds(lines)
    undone = [one for one in deeds if one.undoing]
    if status not in ("rolled_back", "cancelled"):
        yield from (f"{one.name} was undone, and the run is {status!r}" for one in undone)
        return
    for one in deeds:
        undoable = one.line.undoable and one.line.effect != "none"
        if undoable and one.left and not one.undone:
            yield f"{one.name} took effect and was not undone"
        if one.undoing and not one.took_effect:
            yield f"{one.name} failed and was undone"
    for first in undone:
        for second in undone:
            later = first.left and second.entered and max(first.left) < min(second.entered)
            if later and min(first.undoing) < max(second.undoing):
                yield f"{first.name} was undone before {second.name}, which came later"


def _deeds(lines: Sequence[Line]) -> list[Deed]:
    deeds: dict[str, Deed] = {}
    for place, line in enumerate(lines):
        key = line.key.removesuffix(f"/{KEY}")
        match line.phase:
            case "entered":
                deeds.setdefault(key, Deed(line)).entered.append(place)
            case "left" | "raised" | "undoing" | "undone":
                deed = deeds.setdefault(key, Deed(line))
                {
                    "left": deed.left,
                    "raised": deed.raised,
                    "undoing": deed.undoing,
                    "undone": deed.undone,
                }[line.phase].append(place)
            case _:
                pass
    return list(deeds.values())
