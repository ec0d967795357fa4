"""How far the agents of a program came, whose record does not say so: it stands on theirs.

A driver that finds a program cut counts it, and writes it with the end of the cut drive, so that a
try in which an agent came further is told from one in which it only waited.
"""

from __future__ import annotations

from perdure.errors import NoSession
from perdure.log.entries import StepEntry, WaitEntry
from perdure.log.ids import subsession_id
from perdure.log.path import View
from perdure.log.programs import program_work
from perdure.log.reading import read_lines
from perdure.log.store import Store
from perdure.log.work import CHILD


async def come_below(store: Store, session: str, view: View) -> int:
    """How far the agents of a program that have not ended came, with all below them.

    Args:
        store: Where their sessions are.
        session: The program's.
        view: Its record.

    Returns:
        Their dispatches, outputs, and steps and waits that ended. A dispatch of a call that a
        sub-agent works for is none of them, as no limit keeps it from being dispatched again; and
        what a crash cut of a model's answer is none, as it is asked anew.
    """
    waits = program_work(view.work).open_waits
    agents = [one.begin.name for one in waits if one.begin.kind == CHILD]
    return sum([await _come(store, subsession_id(session, name)) for name in agents])


async def _come(store: Store, session: str) -> int:
    try:
        stored = await store.read(session)
    except NoSession:  # it was linked, and had not begun
        return 0
    view = read_lines(stored.header, stored.lines).session.view()
    own = _own(view)
    return own + sum([await _come(store, below) for below in sorted(view.linked)])


def _own(view: View) -> int:
    calls = [call for call in view.calls if call.dispatches]
    dispatches = sum(len(call.dispatches) for call in calls if not call.has_child)
    outputs = sum(bool(call.output) for call in calls)
    work = [one for one in view.path if isinstance(one, StepEntry | WaitEntry)]
    return dispatches + outputs + sum(one.phase == "end" for one in work)
