"""Evidence of a decision: checked without a store, and nothing in it can be changed unseen."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from perdure.ballots import (
    BadEvidence,
    BadKey,
    Evidence,
    Policy,
    Vote,
    check_evidence,
    count,
    read_evidence,
    write_evidence,
)
from tests.ballots.people import (
    ARGUMENTS,
    NAMES,
    SUBJECT,
    TWO_OF_THREE,
    key,
    keys,
    signed,
    turned,
    word,
)

VOTES = (
    signed(1, "ann", by="mallory"),
    signed(2, "ann"),
    signed(3, "bo", approves=False),
    signed(4, "cy"),
)


def evidence() -> Evidence:
    return Evidence(
        subject=SUBJECT,
        arguments=ARGUMENTS,
        policy=TWO_OF_THREE,
        keys={name: key(name).public for name in NAMES},
        votes=VOTES,
        tally=count(TWO_OF_THREE, SUBJECT, VOTES, keys()),
    )


def test_what_was_exported_is_what_was_decided() -> None:
    again = read_evidence(write_evidence(evidence()))
    assert again == evidence()
    checked = check_evidence(again, keys=evidence().keys, policy=TWO_OF_THREE)
    assert checked.ok
    assert checked.outcome == "approved"


Members = dict[str, Any]

TAMPERED: list[Callable[[Members], object]] = [
    lambda e: e["subject"].update(tool="refund"),
    lambda e: e["subject"].update(session="the parent's"),
    lambda e: e["subject"].update(hold="sha256:another"),
    lambda e: e["subject"].update(digest="00" * 32),
    lambda e: e["subject"].update(digest="zz"),
    lambda e: e.update(arguments='{"cents":5}'),
    lambda e: e["policy"].update(need=1),
    lambda e: e["policy"].update(signed=False),
    lambda e: e["policy"].update(approvers=["ann", "bo", "Bo"]),
    lambda e: e["keys"].update(ann=key("bo").public),
    lambda e: e["keys"].update(ann="ed25519:AQ"),
    lambda e: e["votes"].pop(0),
    lambda e: e["votes"].pop(2),
    lambda e: e["votes"].insert(0, e["votes"][1]),
    lambda e: e["votes"].reverse(),
    lambda e: e["votes"][2].update(approves=True),
    lambda e: e["votes"][3].update(signature=e["votes"][1]["signature"]),
    lambda e: e["tally"].update(outcome="denied"),
    lambda e: e["tally"].update(approved_by=["ann", "cy", "cy"]),
    lambda e: e["tally"]["records"].pop(),
    lambda e: e["tally"]["uncounted"].clear(),
]


@pytest.mark.parametrize("tamper", TAMPERED)
def test_a_change_of_anything_shows(tamper: Callable[[Members], object]) -> None:
    members = json.loads(write_evidence(evidence()))
    tamper(members)
    assert not check_evidence(read_evidence(json.dumps(members))).ok


ODD: list[Callable[[Members], object]] = [
    lambda e: e.update(format="perdure.approval.v2"),
    lambda e: e.update(more=1),
    lambda e: e.pop("tally"),
    lambda e: e["tally"].update(Outcome="approved"),
    lambda e: e["tally"].update(outcome="sure"),
    lambda e: e["tally"].pop("records"),
    lambda e: e["policy"].update(need="2"),
    lambda e: e["policy"].update(need=True),
    lambda e: e["policy"].update(approvers="ann"),
    lambda e: e["policy"].update(approvers=[1]),
    lambda e: e["votes"][0].update(approves=1),
    lambda e: e.update(votes={}),
    lambda e: e.update(keys=[]),
    lambda e: e["keys"].update(ann=1),
    lambda e: e.update(subject=None),
    lambda e: e.update(arguments={}),
]


@pytest.mark.parametrize("change", ODD)
def test_what_is_no_evidence_is_refused(change: Callable[[Members], object]) -> None:
    members = json.loads(write_evidence(evidence()))
    change(members)
    with pytest.raises(BadEvidence):
        read_evidence(json.dumps(members))


@pytest.mark.parametrize("text", ["", "[]", "null", '{"format":1,"format":1}', "NaN", "[" * 9999])
def test_text_that_is_no_evidence_is_refused(text: str) -> None:
    with pytest.raises(BadEvidence):
        read_evidence(text)


def test_the_keys_of_whoever_checks_decide() -> None:
    rotated = {**evidence().keys, "cy": key("cy/2").public}
    checked = check_evidence(evidence(), keys=rotated)
    assert (checked.ok, checked.outcome) == (False, "pending")
    with pytest.raises(BadKey):
        check_evidence(evidence(), keys={"ann": "no key"})


def test_keys_without_a_policy_leave_a_fault() -> None:
    checked = check_evidence(evidence(), keys=evidence().keys)
    assert not checked.ok
    assert "that 2 had to approve is its own word" in checked.faults[0]


def test_what_nobody_but_the_evidence_says_is_told() -> None:
    assert check_evidence(evidence()).trusted == ("keys", "policy", "due")
    assert check_evidence(evidence(), policy=TWO_OF_THREE).trusted == ("keys", "due")
    with_due = dataclasses.replace(TWO_OF_THREE, due=5)
    checked = check_evidence(evidence(), keys=evidence().keys, policy=with_due)
    assert (checked.trusted, checked.ok) == ((), False)


@pytest.mark.parametrize("asked", [TWO_OF_THREE, None])
def test_words_do_not_stand_for_signatures_where_the_keys_are_given(asked: Policy | None) -> None:
    policy = Policy(need=1, approvers=NAMES)
    votes = (word(1, "ann"),)
    forged = dataclasses.replace(
        evidence(), policy=policy, votes=votes, tally=count(policy, SUBJECT, votes, {})
    )
    assert check_evidence(forged).ok
    assert not check_evidence(forged, keys=evidence().keys, policy=asked).ok
    assert check_evidence(forged, keys=evidence().keys, policy=policy).ok


def test_approvers_whose_keys_nobody_gave_are_a_fault() -> None:
    two = {name: key(name).public for name in ("ann", "bo")}
    faults = check_evidence(evidence(), keys=two).faults
    assert any("others than those of the keys: cy" in fault for fault in faults)


class Odd:
    """A verifier whose answer is no bool."""

    alg = "ed25519"

    def __init__(self, name: str, answer: Callable[[], object]) -> None:
        self.key_ids = (name,)
        self.answer = answer

    def verify(self, message: bytes, signature: bytes) -> bool:
        return self.answer()  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


async def no() -> bool:
    return False


@pytest.mark.parametrize("answer", [no, lambda: 1, lambda: None, lambda: "no", lambda: [0]])
def test_a_verifier_that_does_not_say_true_or_false_verifies_nothing(
    answer: Callable[[], object],
) -> None:
    odd = {name: Odd(name, answer) for name in NAMES}
    with pytest.raises(BadKey, match="not True or False"):
        count(TWO_OF_THREE, SUBJECT, VOTES, odd)
    checked = check_evidence(evidence(), keys=odd, policy=TWO_OF_THREE)
    assert (checked.ok, checked.outcome) == (False, "pending")


FORGED_POLICIES = st.builds(
    Policy,
    need=st.integers(0, 3),
    approvers=st.lists(st.sampled_from((*NAMES, "mallory")), unique=True).map(tuple),
    signed=st.booleans(),
    due=st.sampled_from((None, 0, 100)),
)

FORGED_VOTES = st.lists(
    st.one_of(
        st.sampled_from(VOTES),
        st.builds(word, st.integers(10, 12), st.sampled_from(NAMES), approves=st.booleans()),
        st.builds(signed, st.integers(20, 22), st.sampled_from(NAMES), by=st.just("mallory")),
        st.sampled_from(VOTES).map(turned),
    ),
    unique_by=lambda vote: vote.id,
).map(tuple)


@given(
    policy=st.one_of(st.just(TWO_OF_THREE), FORGED_POLICIES),
    votes=FORGED_VOTES,
    arguments=st.sampled_from((ARGUMENTS, '{"cents":9}')),
    keys_of=st.sampled_from(("ann", "mallory")),
    now=st.sampled_from((None, 10**9)),
)
def test_several_changes_at_once_pass_for_no_decision_that_was_not_made(
    policy: Policy,
    votes: tuple[Vote, ...],
    arguments: str,
    keys_of: str,
    now: int | None,
) -> None:
    """Whoever forges makes the whole consistent; two approved it, and nobody else decided."""
    digest = hashlib.sha256(arguments.encode()).hexdigest()
    subject = dataclasses.replace(SUBJECT, digest=digest)
    shown = {**keys(), "ann": keys(keys_of).popitem()[1], "mallory": keys("mallory")["mallory"]}
    forged = Evidence(
        subject=subject,
        arguments=arguments,
        policy=policy,
        keys={name: one.key_ids[0] for name, one in shown.items()},
        votes=votes,
        tally=count(policy, subject, votes, shown, now=now),
    )
    checked = check_evidence(
        read_evidence(write_evidence(forged)), keys=evidence().keys, policy=TWO_OF_THREE
    )
    if checked.ok and checked.outcome != "pending":
        assert (arguments, checked.outcome) == (ARGUMENTS, "approved")
        assert forged.tally.approved_by in {("ann", "cy"), ("cy", "ann")}


def test_the_policy_that_there_has_to_be() -> None:
    assert not check_evidence(evidence(), policy=Policy(need=1, approvers=NAMES, signed=True)).ok
    assert not check_evidence(evidence(), policy=dataclasses.replace(TWO_OF_THREE, due=5)).ok
    due = dataclasses.replace(evidence(), policy=dataclasses.replace(TWO_OF_THREE, due=5))
    assert check_evidence(due, policy=TWO_OF_THREE).ok
    assert check_evidence(due, policy=due.policy).ok


def test_an_expiry_is_checked_too() -> None:
    policy = dataclasses.replace(TWO_OF_THREE, due=100)
    votes = (signed(1, "ann", at=50), signed(2, "bo", at=101))
    tally = count(policy, SUBJECT, votes, keys(), now=150)
    expired = dataclasses.replace(evidence(), policy=policy, votes=votes, tally=tally)
    checked = check_evidence(read_evidence(write_evidence(expired)))
    assert (checked.ok, checked.outcome) == (True, "expired")
    known = {name: key(name).public for name in NAMES}
    assert check_evidence(expired, keys=known, policy=policy).ok


def test_an_expiry_that_only_the_evidence_knows_of_is_a_fault() -> None:
    policy = dataclasses.replace(TWO_OF_THREE, due=1)
    votes = VOTES[1:2]  # cy's is left out
    tally = count(policy, SUBJECT, votes, keys(), now=1)
    forged = dataclasses.replace(evidence(), policy=policy, votes=votes, tally=tally)
    checked = check_evidence(forged, keys=evidence().keys, policy=TWO_OF_THREE)
    assert (checked.outcome, len(checked.faults)) == ("expired", 1)
    assert "that it expired is its own word" in checked.faults[0]


def test_the_verifier_loads_nothing_of_perdure_but_itself() -> None:
    program = (
        "import sys, perdure.ballots\n"
        "others = [n for n in sys.modules if n.startswith('perdure.')"
        " and not n.startswith('perdure.ballots')]\n"
        "assert not others, others\n"
        "assert 'cryptography' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
