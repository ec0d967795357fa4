"""What a pending call says of itself."""

from __future__ import annotations

import pytest

from perdure.loop import PendingCall, PendingReason
from perdure.wire import FunctionCall

CALL = FunctionCall(call_id="c1", name="pay", arguments='{"cents": 5}')


@pytest.mark.parametrize(
    ("arguments", "runs_with"),
    [
        (None, '{"cents": 5}'),
        ('{"cents": 3}', '{"cents": 3}'),
        ("", ""),  # a hook that took them away: it is not the model's that run then
        ("{}", "{}"),
    ],
)
def test_a_call_runs_with_what_a_hook_gave_it_else_with_its_own(
    arguments: str | None, runs_with: str
) -> None:
    pending = PendingCall(call=CALL, reason="held", arguments=arguments)
    assert pending.runs_with == runs_with
    assert pending.call.arguments == '{"cents": 5}'


@pytest.mark.parametrize(
    ("reason", "dispatched", "may_have_run"),
    [
        ("held", False, False),
        ("held", True, True),
        ("aborted", False, True),
        ("unknown", False, True),
        ("suspended", True, False),
        ("undispatched", False, False),
    ],
)
def test_a_call_may_have_run_if_it_may_have_entered_its_tool(
    reason: PendingReason, dispatched: bool, may_have_run: bool
) -> None:
    pending = PendingCall(call=CALL, reason=reason, dispatched=dispatched)
    assert pending.may_have_run is may_have_run
