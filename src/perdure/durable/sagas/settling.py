"""Settling: somebody says what became of an effect that a rollback cannot undo by itself."""

from __future__ import annotations

from perdure.durable.addressing import Said, Target, addressed
from perdure.durable.messages import Settle, message_of
from perdure.errors import AlreadyResolved, NotHalted
from perdure.log import Store, View
from perdure.log.sagas import Done
from perdure.tools.result import given_json


async def tell_settle(
    store: Store,
    target: Target,
    said: Said,
    *,
    verdict: str,
    step: str = "",
    evidence: object = None,
) -> None:
    """Say that what a call did was undone by hand, or is left as it is.

    Args:
        store: Where the run is.
        target: The call.
        said: Who says so, and why.
        verdict: `compensated` or `left`.
        step: The step of the call, if it is a call that its tool made.
        evidence: Any JSON value: what the word rests on.

    Raises:
        NoRun: There is no such run.
        RunFinished: It is over.
        NotHalted: The rollback of its saga does not stop at this call.
        AlreadyResolved: Somebody said otherwise.
        ToolError: The evidence is not JSON.
    """
    at = await addressed(store, target)
    view, session = at.root.view(), at.session.id
    call = at.view.calls.named(target.call_id)
    if call is None:
        raise NotHalted(target.run_id, target.call_id, "there is no such call")
    done = Done(session, call.entry, step)
    settled = view.saga.of(done).last
    if settled is not None and settled.phase == "settled":
        if settled.verdict != verdict:
            raise AlreadyResolved(target.run_id, target.call_id, settled.verdict)
        return
    told = Settle(
        who=said.who,
        reason=said.reason,
        call_id=target.call_id,
        target=call.entry,
        session=session,
        step=step,
        tool=call.call.name,
        verdict=verdict,
        about=stopped_at(view, done),
        evidence=given_json(evidence, "the evidence") if evidence is not None else "",
    )
    if not told.about:
        raise NotHalted(target.run_id, target.call_id, "no rollback stops at it")
    await store.put(at.root.id, message_of(told, at.root))


def stopped_at(view: View, done: Done) -> str:
    """The entry that says that a rollback stops at something; empty if it does not."""
    undoing, halted = view.saga.of(done), view.saga.halted
    if undoing.last is not None and undoing.error and not undoing.is_over:
        return undoing.last.id
    at = Done(halted.session, halted.target, halted.step) if halted is not None else None
    return halted.id if halted is not None and at == done else ""
