"""Looking up what came of halted calls, before a person is asked.

A reconciler only looks. What it found becomes a decision by policy, with its evidence; what it
could not find out stays halted.
"""

from __future__ import annotations

import asyncio
import inspect
import logging

import msgspec

from perdure.durable.consuming import Authority, not_halted, too_young
from perdure.errors import ConfigError, ToolError
from perdure.log import Call as RecordedCall
from perdure.log.resuming import run_again
from perdure.loop import Answer, Provenance, answer_with, approve
from perdure.tools import Call, ToolSet, to_result
from perdure.tools.effect import is_effect
from perdure.tools.result import given_json
from perdure.tools.tool import Found, NeverRan, Reconciled, Reconciler, reconciler_of

logger = logging.getLogger(__name__)

PATIENCE = 60.0
"""Seconds that a reconciler may take; after them the call stays halted."""

RECONCILED = "reconciled"
NEVER_RAN = f"{RECONCILED}: it never ran"


async def reconcile(authority: Authority, tools: ToolSet) -> dict[str, Answer]:
    """What the tools' reconcilers find of the calls that a run halts on, by call."""
    answers: dict[str, Answer] = {}
    for call in authority.view.calls.open.values():
        tool = tools.get(call.call.name)
        look_up = reconciler_of(tool) if tool is not None else None
        why = not_halted(call, rolls_back=authority.rolls_back)
        if look_up is None or why or run_again(call, tool).output is None:
            continue
        answer = _answer(authority, call, await _found(look_up, call))
        if answer is not None:
            answers[call.call_id] = answer
    return answers


async def _found(look_up: Reconciler, call: RecordedCall) -> Reconciled:
    last = call.last_dispatch
    effect = last.effect if last is not None and is_effect(last.effect) else "once"
    handle = Call(
        id=call.call_id,
        name=call.call.name,
        arguments=call.dispatched_arguments,
        idempotency_key=call.key,
        effect=effect,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            found = look_up(handle)
            return await found if inspect.isawaitable(found) else found
    except Exception:
        logger.exception("the reconciler of tool %r failed; the call stays halted", call.call.name)
        return None


def _answer(authority: Authority, call: RecordedCall, found: Reconciled) -> Answer | None:
    match found:
        case Found():
            return _known(call, found)
        case NeverRan():
            return _again(authority, call, found)
        case _:
            return None


def _known(call: RecordedCall, found: Found) -> Answer | None:
    try:
        output = to_result(found.output).output
        said = _said(found.evidence)
    except (ToolError, ConfigError):
        logger.exception("what the reconciler of tool %r found is not JSON", call.call.name)
        return None
    answer = answer_with(call.call_id, output, by="policy", reason=RECONCILED)
    return msgspec.structs.replace(answer, provenance=said)


def _again(authority: Authority, call: RecordedCall, found: NeverRan) -> Answer | None:
    last = call.last_dispatch
    if found.min_age is None and (last is None or last.lasts is None):
        logger.warning(
            "the reconciler of tool %r says that a call never ran, and nobody knows how long the "
            "tool may take: give the tool a timeout, or say min_age",
            call.call.name,
        )
        return None
    if too_young(authority, call, found.min_age or 0.0) is not None:
        return None
    try:
        said = _said(found.evidence)
    except ConfigError:
        logger.exception("what the reconciler of tool %r found is not JSON", call.call.name)
        return None
    answer = approve(
        call.call_id,
        by="policy",
        arguments=call.dispatched_arguments,
        reason=NEVER_RAN,
        idempotency_key=call.key,
        run_again=True,
    )
    return msgspec.structs.replace(answer, provenance=said)


def _said(evidence: object) -> Provenance:
    """What an answer rests on.

    Raises:
        ConfigError: It is not JSON.
    """
    text = given_json(evidence, "the evidence") if evidence is not None else ""
    return Provenance(evidence=text)
