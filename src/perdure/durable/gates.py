"""The gates of a run that is driven: votes are counted and people reminded before the next step."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Collection

from perdure.durable.driven import Driven
from perdure.durable.voting import (
    Counting,
    Reminder,
    reminder_of,
    reminders,
    tallies,
)
from perdure.log import Recording, Session, View
from perdure.tools import ToolSet

logger = logging.getLogger(__name__)


async def settle_gates(driven: Driven, recording: Recording, leave: Collection[str]) -> bool:
    """Write the tallies and the reminders that are due.

    A reminder is on the record before anybody hears of it: it is told at most once.

    Args:
        driven: Whose keys count.
        recording: The record.
        leave: Calls that somebody has answered in another way.

    Returns:
        Whether something was written, so that the record has to be read anew.

    Raises:
        ConfigError: The keys of an approver could not be had, or a verifier failed.
        LogError: The store refuses.
    """
    view, session = recording.view, recording.session
    if not any(view.approvals.waiting(call) for call in view.calls.open.values()):
        return False
    counting = counting_of(driven, session, view, await driven.tools_now())
    drafts = tallies(counting, leave)
    decided = {draft.body["call_id"] for draft in drafts}
    told = [one for one in reminders(counting) if one[1].call_id not in decided]
    if not drafts and not told:
        return False
    await recording.append(*drafts, *(draft for draft, _, _ in told))
    run = session.header.run
    last = {call.call_id: (draft, call, gate) for draft, call, gate in told}
    for draft, call, gate in last.values():
        run_id = run.id if run is not None else session.header.name
        await _remind(driven, reminder_of(run_id, session.id, draft, call, gate))
    return True


def wants_counting(driven: Driven, session: Session, view: View, tools: ToolSet) -> bool:
    """Whether `settle_gates` would write something."""
    counting = counting_of(driven, session, view, tools)
    return bool(tallies(counting) or reminders(counting))


def counting_of(driven: Driven, session: Session, view: View, tools: ToolSet) -> Counting:
    """What the votes of a session are counted with."""
    return Counting(
        session=session.id,
        view=view,
        tools=tools,
        source=driven.key_source,
        now=driven.clock.wall(),
    )


async def _remind(driven: Driven, reminder: Reminder) -> None:
    if driven.on_reminder is None:
        return
    try:
        told = driven.on_reminder(reminder)
        if inspect.isawaitable(told):
            await told
    except Exception:
        logger.exception("nobody could be reminded of call %r", reminder.call_id)
