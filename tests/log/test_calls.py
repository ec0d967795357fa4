"""Calls, drives and queues, from the record alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perdure.log.header import Origin, new_header
from perdure.log.reading import read_session
from perdure.log.session import Session
from tests.log.building import Built, texts

Step = Callable[[Built], object]


def one_call() -> Built:
    built = Built()
    built.config()
    built.start()
    built.user()
    built.call("c", arguments='{"n":1}')
    built.response()
    return built


STATES: list[tuple[str, list[Step], str, bool]] = [
    ("nothing", [], "never_started", False),
    ("held", [lambda b: b.decide("c", "hold")], "held", False),
    ("released", [lambda b: b.decide("c", "hold"), lambda b: b.decide("c", "proceed")],
     "never_started", False),
    ("dispatched", [lambda b: b.dispatch("c", "k")], "in_flight", True),
    ("held after", [lambda b: b.dispatch("c"), lambda b: b.decide("c", "hold")], "held", True),
    ("again", [lambda b: b.decide("c", "hold"), lambda b: b.dispatch("c")], "in_flight", True),
    ("rejected", [lambda b: b.decide("c", "reject", reason="no")], "rejected", False),
    ("answered", [lambda b: b.dispatch("c"), lambda b: b.decide("c", "answer")], "answered", False),
    ("completed", [lambda b: b.dispatch("c"), lambda b: b.output("c")], "completed", False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "steps", "state", "ran"), STATES, ids=[s[0] for s in STATES])
def test_the_state_of_a_call(name: str, steps: list[Step], state: str, ran: bool) -> None:
    built = one_call()
    for step in steps:
        step(built)
    call = built.view.calls.named("c")
    assert call is not None
    assert (call.state, call.may_have_run) == (state, ran)
    assert built.faults == ()


def test_a_file_that_does_not_promise_dispatches_cannot_say() -> None:
    built = Built(new_header("s", "2026-10-01T12:00:00Z", records=["run"]))
    built.call("c")
    call = built.view.calls.named("c")
    assert call is not None
    assert (call.state, call.may_have_run) == ("unknown", True)


def test_a_second_run_repeats_the_last_hand_off() -> None:
    built = one_call()
    built.decide("c", "proceed", args={"n": 2})
    built.dispatch("c", "k1")
    built.decide("c", "proceed", args={"n": 3}, reason="again")
    call = built.view.calls.named("c")
    assert call is not None
    assert (call.key, call.dispatched_arguments, call.arguments) == ("k1", '{"n":2}', '{"n":3}')


def test_rewritten_arguments_come_back_as_they_were_spelled() -> None:
    built = one_call()
    exact = '{ "n": 123456789012345678901234567890 }'
    built.decide("c", "proceed", args={"n": 10**29}, **{"perdure:arguments": exact})
    call = built.view.calls.named("c")
    assert call is not None
    assert call.arguments == exact


def test_a_dispatch_on_another_branch_counts() -> None:
    built = one_call()
    back = built.session.leaf or ""
    built.dispatch("c", "k")
    built.output("c")
    built.rewind(back)
    call = built.view.calls.named("c")
    assert call is not None
    assert (call.state, call.key, call.dispatches) == ("in_flight", "k", ())


def test_a_dispatch_in_the_session_it_was_forked_from_counts() -> None:
    origin = one_call()
    base = origin.session.leaf or ""
    prefix = origin.session.path()
    origin.dispatch("c", "k")
    header = new_header("f", "2026-10-02T00:00:00Z", origin=Origin(origin.session.id, base))
    alone = Session(header, prefix)
    knowing = Session(header, prefix, origins=[origin.session])
    assert [s.calls()[0].state for s in (alone, knowing)] == ["unknown", "in_flight"]


def test_not_started_voids_the_dispatch_it_names() -> None:
    built = one_call()
    dispatch = built.dispatch("c", "k")
    built.add("perdure:not_started", {"call_id": "c", "target": dispatch})
    assert built.state("c") == "never_started"
    assert built.faults == ()


@pytest.mark.parametrize("then", ["decision", "dispatch"])
def test_not_started_counts_only_if_nothing_stands_between_it_and_its_dispatch(then: str) -> None:
    """Else it voids what somebody has resolved meanwhile (LOG 5.1)."""
    built = one_call()
    dispatch = built.dispatch("c", "k")
    if then == "decision":
        built.decide("c", "proceed", reason="it ran, I saw it")
    else:
        built.dispatch("c", "k")
    built.add("perdure:not_started", {"call_id": "c", "target": dispatch})
    assert built.state("c") == "in_flight"


def test_a_late_not_started_names_a_dispatch_that_is_no_longer_the_last() -> None:
    built = one_call()
    first = built.dispatch("c", "k")
    built.decide("c", "proceed", reason="run again")
    built.dispatch("c", "k")
    built.add("perdure:not_started", {"call_id": "c", "target": first})
    assert built.state("c") == "in_flight"


def test_two_dispatches_that_did_not_start_are_both_void() -> None:
    built = one_call()
    for _ in range(2):
        dispatch = built.dispatch("c", "k")
        built.add("perdure:not_started", {"call_id": "c", "target": dispatch})
    assert built.state("c") == "never_started"


def test_the_first_of_two_outputs_is_the_answer() -> None:
    built = one_call()
    built.dispatch("c")
    first = built.output("c", "1")
    built.output("c", "2")
    call = built.view.calls.named("c")
    assert call is not None
    assert call.output == first
    assert texts(built.view)[-2:] == ["1", "2"]  # both stay in the record


FORBIDDEN: list[tuple[str, list[Step]]] = [
    ("dispatch after reject", [lambda b: b.decide("c", "reject", reason="n"),
                               lambda b: b.dispatch("c")]),
    ("dispatch after answer", [lambda b: b.dispatch("c"), lambda b: b.decide("c", "answer"),
                               lambda b: b.dispatch("c")]),
    ("dispatch after output", [lambda b: b.dispatch("c"), lambda b: b.output("c"),
                               lambda b: b.dispatch("c")]),
    ("decision after reject", [lambda b: b.decide("c", "reject", reason="n"),
                               lambda b: b.decide("c", "proceed")]),
    ("decision after output", [lambda b: b.dispatch("c"), lambda b: b.output("c"),
                               lambda b: b.decide("c", "hold")]),
    ("reject after dispatch", [lambda b: b.dispatch("c"),
                               lambda b: b.decide("c", "reject", reason="n")]),
    ("reject without a reason", [lambda b: b.decide("c", "reject")]),
    ("answer without a dispatch", [lambda b: b.decide("c", "answer")]),
    ("no such verdict", [lambda b: b.decide("c", "perhaps")]),
    ("target is no call", [lambda b: b.add("dispatch", {"call_id": "c", "target": "sha256:x"})]),
    ("target is another call", [lambda b: b.call("d"), lambda b: b.response("resp_2"),
                                lambda b: b.add("dispatch", {"call_id": "d",
                                                             "target": b._calls["c"]})]),
    ("repeated call id", [lambda b: b.call("c", "resp_2")]),
    ("empty call id", [lambda b: b.call("", "resp_2")]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "steps"), FORBIDDEN, ids=[f[0] for f in FORBIDDEN])
def test_what_the_rules_forbid_is_reported(name: str, steps: list[Step]) -> None:
    built = one_call()
    for step in steps:
        step(built)
    faults = built.faults
    assert [fault.kind for fault in faults][-1:] == ["call"]
    assert faults[-1].line == len(built.session) + 1


def test_a_promised_dispatch_that_is_missing_is_reported_behind_the_base_alone() -> None:
    built = one_call()
    base = built.output("c")
    assert [fault.kind for fault in built.faults] == ["records"]
    header = new_header("f", "2026-10-02T00:00:00Z", origin=Origin("session", base))
    fork = Built(header, built.session.path(base))
    assert fork.faults == ()


# --- drives ----------------------------------------------------------------------------

REASONS: list[tuple[str, list[Step], str, list[str]]] = [
    ("error", [lambda b: b.response("r2", error={"message": "boom"})], "error", ["c"]),
    ("held", [lambda b: b.decide("c", "hold")], "input_required", ["c"]),
    ("in flight", [lambda b: b.dispatch("c")], "aborted", ["c"]),
    ("never started", [], "aborted", ["c"]),
    ("done", [lambda b: b.dispatch("c"), lambda b: b.output("c"), lambda b: b.answer(response="r2"),
              lambda b: b.response("r2")], "done", []),
    ("incomplete", [lambda b: b.dispatch("c"), lambda b: b.output("c"),
                    lambda b: b.answer(response="r2"),
                    lambda b: b.response("r2", incomplete={"reason": "max_output_tokens"})],
     "aborted", []),
    ("stopped", [lambda b: b.dispatch("c"), lambda b: b.output("c")], "stopped", []),
    ("rejected", [lambda b: b.decide("c", "reject", reason="n"), lambda b: b.output("c")],
     "stopped", []),
    ("held beside one in flight", [lambda b: b.decide("c", "hold"), lambda b: b.call("d", "r2"),
                                   lambda b: b.response("r2"), lambda b: b.dispatch("d")],
     "aborted", ["c", "d"]),
    ("held, then dispatched", [lambda b: b.decide("c", "hold"), lambda b: b.dispatch("c")],
     "aborted", ["c"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "steps", "reason", "pending"), REASONS, ids=[r[0] for r in REASONS]
)
def test_the_reason_of_a_drive(
    name: str, steps: list[Step], reason: str, pending: list[str]
) -> None:
    built = one_call()
    for step in steps:
        step(built)
    built.end()
    drive = built.view.drives.last
    assert drive is not None
    assert (drive.reason, list(drive.pending), drive.source) == (reason, pending, "input")
    assert built.faults == ()


@pytest.mark.parametrize(
    ("reason", "pending", "kinds"),
    [
        ("done", ["c"], ["reason"]),
        ("input_required", [], ["pending"]),
        ("error", ["c"], []),
        ("interrupted", ["c"], []),
    ],
)
def test_an_end_that_says_otherwise_is_reported(
    reason: str, pending: list[str], kinds: list[str]
) -> None:
    built = one_call()
    built.decide("c", "hold")
    built.end(reason=reason, pending=pending)
    assert [fault.kind for fault in built.faults] == kinds


def test_a_resume_takes_up_a_call_that_was_pending() -> None:
    built = one_call()
    built.decide("c", "hold")
    built.end()
    built.start("run_2", "resume")
    built.user("and this")
    built.decide("c", "proceed")
    built.dispatch("c")
    built.end("run_2")
    drive = built.view.drives.last
    assert drive is not None
    assert (drive.source, drive.pending) == ("resume", ("c",))
    assert built.faults == ()


def test_a_drive_that_holds_an_earlier_drives_call_waits_for_it() -> None:
    built = one_call()
    built.decide("c", "hold")
    built.end()
    built.start("run_2", "resume")
    built.decide("c", "hold", reason="still")
    built.end("run_2")
    drive = built.view.drives.last
    assert drive is not None
    assert (drive.reason, drive.pending) == ("input_required", ("c",))


def test_drives_do_not_nest() -> None:
    built = one_call()
    built.start("run_2")
    assert [fault.kind for fault in built.faults] == ["run"]


def test_the_end_of_no_drive_is_reported() -> None:
    built = one_call()
    built.end("another", "done", [])
    assert [fault.kind for fault in built.faults] == ["run"]


@pytest.mark.parametrize(
    ("told", "status"),
    [(None, "stopped"), ({"reason": "aborted", "cause": ""}, "aborted")],
)
def test_the_status_is_the_loops_own_word(told: dict[str, object] | None, status: str) -> None:
    built = one_call()
    assert built.session.status == "running"
    built.dispatch("c")
    built.output("c")
    if told:
        built.add("perdure:end", {"run_id": "run_1", **told})
    built.end()
    assert built.session.status == status
    built.add("perdure:closed", {"status": "cancelled"})
    assert built.session.status == "cancelled"


@pytest.mark.parametrize("suspended", [False, True])
def test_a_call_that_waits_is_suspended_not_held(suspended: bool) -> None:
    built = one_call()
    built.dispatch("c")
    built.decide("c", "hold", by="policy", **({"perdure:suspended": True} if suspended else {}))
    built.end()
    assert built.session.status == ("suspended" if suspended else "input_required")
    assert built.faults == ()


# --- queues ------------------------------------------------------------------------------


def queue(built: Built, text: str = "q", **members: object) -> str:
    item = {"type": "message", "role": "user", "content": text}
    return built.add("queued", {"item": item, "mode": "steer", **members})


def test_a_queued_input_is_owed_until_an_item_names_it() -> None:
    built = Built()
    first, second = queue(built, "a"), queue(built, "b")
    assert [one.id for one in built.session.queued()] == [first, second]
    built.user("a", queued_from=first)
    assert [one.id for one in built.session.queued()] == [second]


def test_the_end_of_a_drive_closes_what_it_does_not_owe() -> None:
    built = Built()
    built.start()
    lost, kept = queue(built, "a"), queue(built, "b")
    built.add("perdure:owed", {"run_id": "run_1", "queued": [kept]})
    built.end(reason="error")
    assert [one.id for one in built.session.queued()] == [kept]
    again = queue(built, "b", **{"perdure:again": kept})
    assert [one.id for one in built.session.queued()] == [again]
    assert lost not in built.session.view().queues.owed


def test_a_steer_accepted_then_the_end_then_a_crash_is_owed_still() -> None:
    """LOG 4.4: every prefix of what the end writes keeps it."""
    built = Built()
    built.start()
    kept = queue(built, "b")
    built.add("perdure:owed", {"run_id": "run_1", "queued": [kept]})
    built.add("perdure:end", {"run_id": "run_1", "reason": "done", "cause": ""})
    built.end(reason="error")
    queue(built, "b", **{"perdure:again": kept})
    lines = built.data.splitlines(keepends=True)
    for count in range(3, len(lines) + 1):
        owed = read_session(b"".join(lines[:count])).session.queued()
        assert [b'"b"' in bytes(one.item) for one in owed] == [True]
