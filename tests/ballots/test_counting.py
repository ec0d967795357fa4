"""The rule by which votes are counted, the bytes that are signed, and the names of approvers."""

from __future__ import annotations

import dataclasses

import pytest

from perdure.ballots import (
    Policy,
    Uncounted,
    Verifier,
    Vote,
    count,
    decision_bytes,
    names_fault,
    policy_fault,
    read_key,
    sharing,
)
from tests.ballots.people import (
    NAMES,
    SUBJECT,
    TWO_OF_THREE,
    key,
    keys,
    signed,
    turned,
    word,
)


def outcome(*votes: Vote, policy: Policy = TWO_OF_THREE, now: int | None = None) -> str:
    return count(policy, SUBJECT, votes, keys(), now=now).outcome


def reasons(*votes: Vote, policy: Policy = TWO_OF_THREE) -> list[str]:
    return [one.reason for one in count(policy, SUBJECT, votes, keys()).uncounted]


# --- what votes come to --------------------------------------------------------------------------


def test_as_many_as_are_needed_approve() -> None:
    assert outcome() == "pending"
    assert outcome(signed(1, "ann")) == "pending"
    assert outcome(signed(1, "ann"), signed(2, "cy")) == "approved"


def test_it_is_denied_when_the_others_are_not_enough() -> None:
    denials = [signed(1, "ann", approves=False), signed(2, "bo", approves=False)]
    assert outcome(denials[0]) == "pending"
    tally = count(TWO_OF_THREE, SUBJECT, denials, keys())
    assert (tally.outcome, tally.denied_by, tally.approved_by) == ("denied", ("ann", "bo"), ())


def test_one_approver_has_one_vote() -> None:
    assert outcome(signed(1, "ann"), signed(2, "ann")) == "pending"
    assert reasons(signed(1, "ann"), signed(2, "ann")) == ["superseded"]


def test_the_first_valid_vote_of_an_approver_stands() -> None:
    votes = (signed(1, "ann"), signed(2, "ann", approves=False), signed(3, "bo"))
    tally = count(TWO_OF_THREE, SUBJECT, votes, keys())
    assert tally.approved_by == ("ann", "bo")
    assert tally.uncounted == (Uncounted("v2", "ann", "superseded"),)


def test_a_forged_vote_does_not_take_the_seat() -> None:
    forged = signed(1, "ann", approves=False, by="mallory")
    tally = count(TWO_OF_THREE, SUBJECT, (forged, signed(2, "ann"), signed(3, "bo")), keys())
    assert tally.outcome == "approved"
    assert tally.uncounted == (Uncounted("v1", "ann", "bad signature"),)
    assert tally.records == ("v1", "v2", "v3")


def test_forged_denials_cannot_make_it_unreachable() -> None:
    forged = [signed(place, name, approves=False, by="mallory") for place, name in enumerate(NAMES)]
    assert outcome(*forged) == "pending"
    assert outcome(*forged, signed(7, "ann"), signed(8, "bo")) == "approved"


@pytest.mark.parametrize(
    "other",
    [
        {"session": "the parent's"},
        {"call": "call-2"},
        {"tool": "refund"},
        {"digest": "00" * 32},
        {"hold": "sha256:an earlier one"},
    ],
)
def test_a_signature_about_something_else_never_counts(other: dict[str, str]) -> None:
    elsewhere = dataclasses.replace(SUBJECT, **other)
    assert reasons(signed(1, "ann", subject=elsewhere)) == ["bad signature"]


def test_a_signature_counts_for_its_own_verdict_and_name() -> None:
    assert reasons(turned(signed(1, "ann"))) == ["bad signature"]
    assert reasons(dataclasses.replace(signed(1, "ann"), approver="bo")) == ["bad signature"]


def test_strangers_have_no_vote() -> None:
    assert reasons(signed(1, "dan")) == ["not eligible"]
    assert reasons(word(1, ""), policy=Policy()) == ["not eligible"]


def test_a_vote_without_a_key_or_of_another_algorithm_does_not_count() -> None:
    known = {name: verifier for name, verifier in keys().items() if name != "ann"}
    tally = count(TWO_OF_THREE, SUBJECT, [signed(1, "ann")], known)
    assert [one.reason for one in tally.uncounted] == ["no key"]
    other = dataclasses.replace(signed(1, "ann"), signature="ml-dsa-65:AAAA")
    assert reasons(other) == ["other algorithm"]
    assert reasons(word(1, "ann")) == ["other algorithm"]


def test_a_key_of_two_approvers_excludes_both() -> None:
    shared: dict[str, Verifier] = {**keys(), "bo": read_key(key("ann").public)}
    votes = (signed(1, "ann"), signed(2, "bo", by="ann"), signed(3, "cy"))
    tally = count(TWO_OF_THREE, SUBJECT, votes, shared)
    assert tally.outcome == "pending"
    assert [one.reason for one in tally.uncounted] == ["shared key", "shared key"]


class Nameless:
    """A verifier that says yes to all, and names no key."""

    alg = "ed25519"
    key_ids: tuple[str, ...] = ()

    def verify(self, message: bytes, signature: bytes) -> bool:
        return True


def test_a_verifier_without_a_key_of_its_own_counts_nothing() -> None:
    assert sharing({"ann": Nameless()}) == {"ann"}
    tally = count(TWO_OF_THREE, SUBJECT, [signed(1, "ann")], {**keys(), "ann": Nameless()})
    assert [one.reason for one in tally.uncounted] == ["shared key"]


def test_what_comes_behind_the_decision_does_not_count() -> None:
    votes = (signed(1, "ann"), signed(2, "bo"), signed(3, "cy", approves=False))
    assert reasons(*votes) == ["decided before"]
    assert outcome(*votes) == "approved"


def test_a_vote_that_came_too_late_does_not_count_and_time_ends_it() -> None:
    policy = dataclasses.replace(TWO_OF_THREE, due=100)
    in_time, late = signed(1, "ann", at=100), signed(2, "bo", at=101)
    assert reasons(in_time, late, policy=policy) == ["late"]
    assert outcome(in_time, late, policy=policy, now=99) == "pending"
    assert outcome(in_time, late, policy=policy, now=100) == "expired"
    assert outcome(in_time, signed(2, "bo", at=99), policy=policy, now=200) == "approved"


def test_the_first_word_decides_where_anybody_may() -> None:
    assert outcome(word(1, "x"), word(2, "y", approves=False), policy=Policy()) == "approved"
    assert outcome(word(1, "y", approves=False), word(2, "x"), policy=Policy()) == "denied"


def test_one_of_several_by_word_needs_one_yes_or_every_no() -> None:
    policy = Policy(approvers=("ann", "bo"))
    assert outcome(word(1, "ann", approves=False), policy=policy) == "pending"
    assert outcome(word(1, "ann", approves=False), word(2, "bo"), policy=policy) == "approved"
    both = (word(1, "ann", approves=False), word(2, "bo", approves=False))
    assert outcome(*both, policy=policy) == "denied"


# --- what is signed ------------------------------------------------------------------------------


def test_the_bytes_that_are_signed() -> None:
    subject = dataclasses.replace(SUBJECT, session="s", call="c", tool="t", hold="h")
    expected = (
        b"perdure.approval.v1\n"
        b"\x00\x00\x00\x01s\x00\x00\x00\x01c\x00\x00\x00\x01t"
        + bytes.fromhex(subject.digest)
        + b"\x00\x00\x00\x01h\x00\x00\x00\x02\xc3\xa9\x00"
    )
    assert decision_bytes(subject, "\xe9", approves=False) == expected


def test_no_two_subjects_have_the_same_bytes() -> None:
    left = dataclasses.replace(SUBJECT, session="a", call="bc")
    right = dataclasses.replace(SUBJECT, session="ab", call="c")
    assert decision_bytes(left, "x", approves=True) != decision_bytes(right, "x", approves=True)


@pytest.mark.parametrize("digest", ["", "zz", "00" * 31])
def test_a_digest_that_is_none_is_refused(digest: str) -> None:
    with pytest.raises(ValueError, match=r"SHA-256|hexadecimal"):
        decision_bytes(dataclasses.replace(SUBJECT, digest=digest), "ann", approves=True)


# --- policies ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (["alice", "Alice"], "look alike"),
        (["caf\xe9", "cafe\u0301"], "look alike"),
        (["stra\xdfe", "STRASSE"], "look alike"),
        (["\uff41nn", "ann"], "look alike"),
        (["ann", "\u0430nn"], "mixes scripts in one word: CYRILLIC, LATIN"),
        (["b\u03bfb"], "mixes scripts in one word: GREEK, LATIN"),
        (["a\u0578n"], "mixes scripts in one word: ARMENIAN, LATIN"),
        (["ann l\u0435e"], "mixes scripts"),
        (["Bo", "\u0412\u043e"], "look alike"),
        (["bo", "\u0412\u041e"], "look alike"),
        (["Zoe", "\u0396\u039f\u0395"], "look alike"),
        (["cope", "\u0441\u043e\u0440\u0435"], "look alike"),
        (["Eva", "\ua4f0\ua4e6\ua4ee"], "look alike"),
        (["HAL", "\u13bb\u13aa\u13de"], "look alike"),
        (["Kim", "\u212aim"], "look alike"),
        (["eve", "\u0435\u0475\u0435"], "look alike"),
        (["\xe8", "\u0450"], "look alike"),
        (["ann", "\u0251nn"], "look alike"),
        (["Ilse", "llse"], "look alike"),
        (["\u1d00\u0274\u0274", "Ann"], "look alike"),
        (["ann  lee"], "single blanks"),
        (["ann\xa0lee"], "single blanks"),
        (["ann\u3000lee"], "single blanks"),
        (["ann\ufe0f"], "nobody sees"),
        (["ann\U000e0100"], "nobody sees"),
        (["an\u034fn"], "nobody sees"),
        (["ann\u3164"], "nobody sees"),
        (["ann\u115f"], "nobody sees"),
        (["ann\u2800"], "nobody sees"),
        (["an\u180bn"], "nobody sees"),
        (["ann", "ann"], "twice"),
        ([""], "no name"),
        ([" ann"], "no name"),
        (["an\u200bn"], "nobody sees"),
        (["a\nn"], "nobody sees"),
        (["\ud800"], "nobody sees"),
    ],
)
def test_names_that_nobody_can_tell_apart_are_refused(names: list[str], fault: str) -> None:
    assert fault in names_fault(names)


def test_names_that_differ_may_stand_side_by_side() -> None:
    names = ["ann", "anne", "\u0430\u043d\u043d\u0430", "\xe9mile", "user1", "userl"]
    names += [
        "ann lee",
        "ann \u041b\u0438",
        "O'Neil",
        "anne-marie",
        "j.doe@example.org",
        "Ian",
        "al",
    ]
    names += [
        "\u041a\u0430\u0442\u044f",
        "\u6771\u4eac\u30bf\u30ef\u30fc",
        "\u0395\u03bb\u03ad\u03bd\u03b7",
    ]
    assert names_fault(names) == ""


@pytest.mark.parametrize(
    ("policy", "fault"),
    [
        (Policy(need=0), "cannot be needed"),
        (Policy(need=2), "cannot be needed"),
        (Policy(need=3, approvers=("a", "b"), signed=True), "cannot be needed"),
        (Policy(need=2, approvers=("a", "b")), "signed"),
        (Policy(signed=True), "names"),
        (Policy(approvers=("a", "A")), "look alike"),
        (Policy(), ""),
        (TWO_OF_THREE, ""),
    ],
)
def test_policies_by_which_nothing_can_be_decided(policy: Policy, fault: str) -> None:
    assert fault in policy_fault(policy)
    assert bool(policy_fault(policy)) == bool(fault)
