"""Evidence of a decision: checked without a store, and nothing in it can be changed unseen."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from perdure.ballots import (
    BadEvidence,
    BadKey,
    Evidence,
    Policy,
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


def test_the_policy_that_there_has_to_be() -> None:
    assert not check_evidence(evidence(), policy=Policy(need=1, approvers=NAMES, signed=True)).ok
    assert check_evidence(evidence(), policy=dataclasses.replace(TWO_OF_THREE, due=5)).ok


def test_an_expiry_is_checked_too() -> None:
    policy = dataclasses.replace(TWO_OF_THREE, due=100)
    votes = (signed(1, "ann", at=50), signed(2, "bo", at=101))
    tally = count(policy, SUBJECT, votes, keys(), now=150)
    expired = dataclasses.replace(evidence(), policy=policy, votes=votes, tally=tally)
    checked = check_evidence(read_evidence(write_evidence(expired)))
    assert (checked.ok, checked.outcome) == (True, "expired")


def test_the_verifier_loads_nothing_of_perdure_but_itself() -> None:
    program = (
        "import sys, perdure.ballots\n"
        "others = [n for n in sys.modules if n.startswith('perdure.')"
        " and not n.startswith('perdure.ballots')]\n"
        "assert not others, others\n"
        "assert 'cryptography' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
