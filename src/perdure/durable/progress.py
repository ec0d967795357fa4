"""What a driver has come to, so that one that does the same for ever is stopped."""

from __future__ import annotations

from itertools import islice

from perdure.durable.plan import Drive, Step
from perdure.errors import NoProgress
from perdure.log import Session
from perdure.loop import RunEnd

MOST_ENDS = 8
"""How many drives of one driver may end by themselves, one after the other, and its run go on. None
should: what ends so is over, or rests until somebody says something."""

MOST_EMPTY = 32
"""How many drives of one driver may follow each other that write nothing but where they begin and
end, and nobody else anything between them. None should: the plan is made from the record."""

_BOUNDS = frozenset({"run", "perdure:end", "perdure:owed", "config"})
"""What a drive writes of itself."""


class Progress:
    """What one driver has come to: how many drives followed each other and moved nothing."""

    __slots__ = ("_empty", "_ends", "_seen", "_session", "begun")

    def __init__(self, session: Session) -> None:
        self._session = session.id
        self._ends = 0
        self._empty = 0
        self._seen = session.version
        self.begun = session.version
        """The version at which the driver began."""

    def planned(self, step: Step) -> Step:
        """Take the next step and give it on.

        Raises:
            NoProgress: It drives the run, as steps before it did that all came to an end.
        """
        if isinstance(step, Drive) and (self._ends >= MOST_ENDS or self._empty >= MOST_EMPTY):
            raise NoProgress(self._session, max(self._ends, self._empty))
        return step

    def ended(self, end: RunEnd, session: Session) -> RunEnd:
        """Take how a drive of a session ended and give it on."""
        self._ends = self._ends + 1 if end.reason in ("done", "stopped") else 0
        written = islice(session.entries, self._seen, None)
        self._empty = self._empty + 1 if all(one.type in _BOUNDS for one in written) else 0
        self._seen = session.version
        return end
