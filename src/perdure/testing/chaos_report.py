"""What a chaos test found, trial by trial, and in a page for a person."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from perdure.errors import PerdureError


class RuleBroken(PerdureError, AssertionError):
    """An agent did not survive its chaos.

    Attributes:
        report: What was found.
    """

    def __init__(self, report: ChaosReport) -> None:
        self.report = report
        super().__init__(f"the chaos broke a rule\n{report}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Firings:
    """How often one call took effect in a trial.

    Attributes:
        tool: The tool.
        effect: What it does to the world.
        call_id: The call, behind those of the sub-agents around it.
        entered: How often its tool was entered.
        keys: The idempotency keys that it was entered with.
        committed: How often its transaction committed; None if it has none.
    """

    tool: str
    effect: str
    call_id: str
    entered: int
    keys: frozenset[str]
    committed: int | None = None

    @property
    def fired(self) -> int:
        """How often it took effect, at most."""
        return self.entered if self.committed is None else self.committed


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run, the processes of which died as told.

    Attributes:
        run: Its id.
        faults: Where each of its processes died, in words; the last one lived.
        status: How it ended.
        firings: What took effect, call by call.
        lost: What was known and is gone.
        broken: The other rules that it broke.
        log: Where to look for it: the id of its session.
        waits: What it still waits for, in words, if it does.
    """

    run: str
    faults: tuple[str, ...]
    status: str
    firings: tuple[Firings, ...]
    lost: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    log: str = ""
    waits: str = ""

    @property
    def ok(self) -> bool:
        """Whether it broke no rule."""
        return not (self.lost or self.broken)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChaosReport:
    """What a chaos test found.

    Attributes:
        expected: How the run ends where nobody dies.
        writes: What its process writes then, in order.
        trials: Every run.
    """

    expected: str
    writes: tuple[str, ...]
    trials: tuple[Trial, ...]

    @property
    def ok(self) -> bool:
        """Whether no rule was broken."""
        return all(trial.ok for trial in self.trials)

    @property
    def lost(self) -> tuple[str, ...]:
        """Every result that was lost."""
        return tuple(f"{trial.run}: {one}" for trial in self.trials for one in trial.lost)

    @property
    def broken(self) -> tuple[str, ...]:
        """Every other rule that was broken."""
        return tuple(f"{trial.run}: {one}" for trial in self.trials for one in trial.broken)

    def most(self, tool: str) -> int:
        """The largest number of times that one call of a tool took effect."""
        return max((one.fired for one in self._firings() if one.tool == tool), default=0)

    def check(self) -> None:
        """Refuse a rule that was broken.

        Raises:
            RuleBroken: One was.
        """
        if not self.ok:
            raise RuleBroken(self)

    def _firings(self) -> Iterator[Firings]:
        return (one for trial in self.trials for one in trial.firings)

    def __str__(self) -> str:
        return "\n".join(_page(self))


def joined(reports: Sequence[ChaosReport]) -> ChaosReport:
    """Several reports as one."""
    return ChaosReport(
        expected=reports[0].expected if reports else "",
        writes=reports[0].writes if reports else (),
        trials=tuple(trial for report in reports for trial in report.trials),
    )


# --- the page -----------------------------------------------------------------------------------

_SHOWN = 20
"""How many broken rules are told in full."""


def _page(report: ChaosReport) -> Iterator[str]:
    killed = sum(len(trial.faults) for trial in report.trials)
    yield (
        f"{len(report.trials)} runs, {killed} processes died; "
        f"undisturbed, a run makes {len(report.writes)} writes and ends {report.expected!r}"
    )
    yield ""
    yield from _effects(report)
    yield ""
    ends: dict[str, int] = {}
    for trial in report.trials:
        end = f"{trial.status} ({trial.waits})" if trial.waits else trial.status
        ends[end] = ends.get(end, 0) + 1
    yield "ended: " + ", ".join(f"{count} {status}" for status, count in sorted(ends.items()))
    yield f"results lost: {len(report.lost)}"
    yield f"other rules broken: {len(report.broken)}"
    yield from _failures(report.trials)


def _effects(report: ChaosReport) -> Iterator[str]:
    rows = [("tool", "effect", "calls", "most firings of a call", "most keys of a call")]
    by_tool: dict[tuple[str, str], list[Firings]] = {}
    for trial in report.trials:
        for one in trial.firings:
            by_tool.setdefault((one.tool, one.effect), []).append(one)
    for (tool, effect), found in sorted(by_tool.items()):
        most = max(one.fired for one in found)
        keys = max(len(one.keys) for one in found)
        rows.append((tool, effect, str(len(found)), str(most), str(keys)))
    yield from _columns(rows)


def _columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _failures(trials: Iterable[Trial]) -> Iterator[str]:
    failed = [trial for trial in trials if not trial.ok]
    for trial in failed[:_SHOWN]:
        yield ""
        yield f"{trial.run} ({'; '.join(trial.faults) or 'undisturbed'}): {trial.status}"
        for one in trial.lost:
            yield f"  lost: {one}"
        for one in trial.broken:
            yield f"  broken: {one}"
    if len(failed) > _SHOWN:
        yield f"... and {len(failed) - _SHOWN} more runs"
