"""A path and all that is projected from it, entry by entry.

A *view* follows one path: it takes the path's entries in order, and every projection it holds is
that of the last. Following an append costs the append (DESIGN 7).
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.log.approvals import ApprovalsFold
from perdure.log.calls import CallsFold, Elsewhere, nowhere
from perdure.log.context import Context, ContextFold
from perdure.log.drives import DrivesFold
from perdure.log.entries import (
    AnyEntry,
    ClosedEntry,
    EnvEntry,
    InfoEntry,
    LinkEntry,
    ResponseEntry,
)
from perdure.log.programs import TriesFold, program_due, program_status
from perdure.log.queues import QueuesFold
from perdure.log.requests import Rebuilt, TailFold, rebuild
from perdure.log.sagas import SagaFold
from perdure.log.spend import Spend, SpendFold
from perdure.log.status import due_of, status_of
from perdure.log.work import NOW, WorkFold


class View:
    """What the record says at one entry of one path. It moves on with `follow`."""

    def __init__(
        self,
        *,
        base: str = "",
        promised: bool = False,
        elsewhere: Elsewhere = nowhere,
        halts: bool = False,
        is_program: bool = False,
        is_saga: bool = False,
    ) -> None:
        self._own = not base
        self._base = base
        self._halts = halts
        self.is_program = is_program
        """It is the run of a program, whose steps and waits belong to no call."""
        self.is_saga = is_saga
        """It is all or nothing."""
        self._entries: list[AnyEntry] = []
        self._context = ContextFold()
        self._tail = TailFold()
        self._spend = SpendFold()
        self.calls = CallsFold(promised=promised, elsewhere=elsewhere)
        self.drives = DrivesFold()
        self.queues = QueuesFold()
        self.work = WorkFold()
        self.tries = TriesFold()
        """Of a program; calls count theirs themselves."""
        self.saga = SagaFold()
        self.approvals = ApprovalsFold()
        self.linked: set[str] = set()
        """The sessions that links of the path name."""
        self.closed: ClosedEntry | None = None
        """The end of the run (LOG 4.2)."""
        self.name = ""
        """What the last info entry calls the session."""
        self.env: EnvEntry | None = None
        """Where the work happens; None while nobody said."""

    def follow(self, entry: AnyEntry) -> None:
        """Go on to the next entry of the path."""
        item = self._context.apply(entry)
        about = self.calls.apply(entry, item, own=self._own)
        self._tail.apply(entry, item)
        made = self._tail.calls(entry) if isinstance(entry, ResponseEntry) else 0
        self.drives.apply(entry, about, self.calls, made)
        self.queues.apply(entry)
        self.work.apply(entry)
        if self.is_program:
            self.tries.apply(entry)
        self.saga.apply(entry)
        self.approvals.apply(entry, own=self._own)
        self._spend.apply(entry, self._context.settings.current.model)
        if isinstance(entry, ClosedEntry):
            self.closed = self.closed or entry
        elif isinstance(entry, LinkEntry):
            self.linked.add(entry.session)
        elif isinstance(entry, InfoEntry):
            self.name = entry.name
        elif isinstance(entry, EnvEntry):
            self.env = entry
        self._entries.append(entry)
        self._own = self._own or entry.id == self._base

    @property
    def leaf(self) -> str | None:
        """The entry it is at; None before the first."""
        return self._entries[-1].id if self._entries else None

    @property
    def path(self) -> Sequence[AnyEntry]:
        """The entries from the root to the leaf; it grows with the view."""
        return self._entries

    @property
    def own(self) -> bool:
        """Whether the next entry stands behind the base."""
        return self._own

    @property
    def context(self) -> Context:
        """The settings and items that the next request would hold."""
        return self._context.context()

    @property
    def folding(self) -> ContextFold:
        """The context as it grows, without a copy."""
        return self._context

    @property
    def unclaimed(self) -> tuple[str, ...]:
        """Items at the tail whose response entry is missing: their response was cut."""
        return self._tail.unclaimed

    @property
    def spend(self) -> Spend:
        return self._spend.spend()

    @property
    def status(self) -> str:
        if self.is_program:
            return program_status(self.drives, self.work, self.tries, self.closed)
        rolling = self.saga.status if self.closed is None and self.drives.open is None else ""
        return rolling or status_of(self.drives, self.calls, self.closed, halts=self._halts)

    @property
    def due(self) -> int | None:
        """When it wants to be driven, in nanoseconds since the Unix epoch."""
        if self.closed is not None or self.saga.tripped is not None:
            return None
        return program_due(self.drives, self.work) if self.is_program else self._due

    @property
    def _due(self) -> int | None:
        """The same of calls: one whose wait is over, and that was not entered since, is due now."""
        suspended = [call for call in self.calls.open.values() if call.suspended]
        if any(self.work.has_come(call.entry, call.wait) for call in suspended):
            return NOW
        dues = (due_of(self.calls), self.approvals.due(self.calls))
        return min((due for due in dues if due is not None), default=None)

    def request(self, entry: ResponseEntry) -> Rebuilt:
        """The request that `entry` answered, which is the leaf or comes next."""
        return rebuild(self._context, self._tail.output(entry))
