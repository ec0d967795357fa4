"""Evidence: a decision with all that it rests on, as JSON, and the check of it without a store."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, cast

from perdure.ballots.counting import (
    FORMAT,
    Outcome,
    Policy,
    Subject,
    Tally,
    Uncounted,
    Vote,
    count,
    decision_bytes,
    policy_fault,
)
from perdure.ballots.keys import BadKey, Verifier, read_key

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class BadEvidence(ValueError):
    """It is no evidence of a decision; the message says where."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A decision with all that it rests on."""

    subject: Subject
    arguments: str
    """The arguments in the canonical form that the digest is of."""
    policy: Policy
    keys: Mapping[str, str]
    """The text of each approver's key when it was counted."""
    votes: tuple[Vote, ...]
    tally: Tally


def write_evidence(evidence: Evidence) -> str:
    """Evidence as JSON text."""
    return json.dumps(  # noqa: TID251 - nothing of perdure is imported here
        {"format": FORMAT, **dataclasses.asdict(evidence)}, ensure_ascii=False, indent=2
    )


def read_evidence(text: str | bytes) -> Evidence:
    """Evidence from JSON text, read strictly.

    Raises:
        BadEvidence: It is none: a member is missing, stands twice, is unknown or of another type.
    """
    try:
        given = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise BadEvidence(f"it is not JSON: {error}") from None
    return _evidence(given)


def _evidence(given: object) -> Evidence:
    members = _members(given, ("format", *_names(Evidence)), "evidence")
    if members.pop("format") != FORMAT:
        raise BadEvidence(f"its format is not {FORMAT}")
    keys = _members(members["keys"], None, "keys")
    tally = _members(members["tally"], _names(Tally), "tally")
    uncounted = _each(tally.pop("uncounted"), _names(Uncounted), "uncounted")
    return Evidence(
        subject=Subject(**_typed(_members(members["subject"], _names(Subject), "subject"))),
        arguments=_typed({"arguments": members["arguments"]})["arguments"],
        policy=Policy(**_typed(_members(members["policy"], _names(Policy), "policy"))),
        keys=_typed(keys),
        votes=tuple(Vote(**_typed(one)) for one in _each(members["votes"], _names(Vote), "votes")),
        tally=Tally(**_typed(tally), uncounted=tuple(Uncounted(**_typed(o)) for o in uncounted)),
    )


def _names(kind: type[DataclassInstance]) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _members(given: object, names: Sequence[str] | None, at: str) -> dict[str, object]:
    """The members of an object; these and no others, unless any will do."""
    if not isinstance(given, dict):
        raise BadEvidence(f"{at} is no object")
    members = cast("dict[str, object]", given)
    if names is not None and set(members) != set(names):
        odd = min(set(members).symmetric_difference(names))
        raise BadEvidence(f"{at} has {odd!r}" if odd in members else f"{at} has no {odd!r}")
    return dict(members)


def _each(given: object, names: Sequence[str], at: str) -> list[dict[str, object]]:
    if not isinstance(given, list):
        raise BadEvidence(f"{at} is no array")
    return [_members(one, names, at) for one in cast("list[object]", given)]


_TYPES: Mapping[str, tuple[type, ...]] = {
    "need": (int,),
    "at": (int,),
    "due": (int, type(None)),
    "signed": (bool,),
    "approves": (bool,),
}
_LISTS = frozenset({"approvers", "approved_by", "denied_by", "records"})
_OUTCOMES = frozenset({"pending", "approved", "denied", "expired"})


def _typed(members: dict[str, object]) -> dict[str, Any]:
    """Members of the types that their names have; texts unless it is said."""
    for name, value in members.items():
        if name in _LISTS:
            members[name] = _texts(value, name)
        elif type(value) not in _TYPES.get(name, (str,)):
            raise BadEvidence(f"{name} is {value!r}")
    if members.get("outcome", "pending") not in _OUTCOMES:
        raise BadEvidence(f"outcome is {members['outcome']!r}")
    return members


def _texts(given: object, at: str) -> tuple[str, ...]:
    texts = cast("list[object]", given) if isinstance(given, list) else [None]
    if not all(isinstance(one, str) for one in texts):
        raise BadEvidence(f"{at} is no array of texts")
    return tuple(cast("list[str]", texts))


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise BadEvidence("a member stands twice")
    return members


def _no_number(name: str) -> NoReturn:
    raise BadEvidence(f"{name} is no JSON value")


Trusted = Literal["keys", "policy", "due"]


class Checked(NamedTuple):
    """What a check of evidence found."""

    faults: tuple[str, ...]
    """What is wrong with it; empty if its decision is what its votes come to."""
    outcome: Outcome
    """What the votes come to, whatever the evidence says."""
    trusted: tuple[Trusted, ...] = ()
    """What was taken from the evidence itself, because whoever checks said nothing of it. With
    `keys` or `policy` here the evidence is consistent, and may be made up as a whole."""

    @property
    def ok(self) -> bool:
        return not self.faults


def check_evidence(
    evidence: Evidence,
    *,
    keys: Mapping[str, str | Verifier] | None = None,
    policy: Policy | None = None,
) -> Checked:
    """Count the votes of evidence again, and compare.

    Who decided is shown with `keys` and `policy`. With `keys` alone there is always a fault: how
    many were needed would be the evidence's own word. That no vote was left out, and when each was
    given, is the word of whoever exported it.

    Args:
        evidence: What was exported.
        keys: The approvers' keys, as whoever checks knows them. Without them the evidence's own are
            used, which shows that it is consistent, and not who signed.
        policy: The policy that there has to be, in every member; a `due` of None leaves open when
            it expires, and then nothing has expired.

    Raises:
        BadKey: A key of `keys` cannot be used.
        ModuleNotFoundError: The package cryptography is not there.
    """
    faults: list[str] = []
    told, subject = evidence.policy, evidence.subject
    trusted = _trusted(keys, policy)
    faults += _policy_faults(evidence, keys, policy)
    if fault := policy_fault(told):
        faults.append(f"nothing is decided by its policy: {fault}")
    try:
        digest = hashlib.sha256(evidence.arguments.encode()).hexdigest()
        decision_bytes(subject, "", approves=True)
    except ValueError as error:
        return Checked((*faults, str(error)), "pending", trusted)
    if digest != subject.digest:
        faults.append("the digest is not that of the arguments")
    if len({vote.id for vote in evidence.votes}) != len(evidence.votes):
        faults.append("a vote stands twice")
    verifiers = _verifiers(evidence.keys if keys is None else keys, faults, strict=keys is not None)
    now = told.due if evidence.tally.outcome == "expired" else None
    try:
        tally = count(told, subject, evidence.votes, verifiers, now=now)
    except BadKey as error:
        return Checked((*faults, str(error)), "pending", trusted)
    faults += [
        f"{name} is {getattr(evidence.tally, name)}, and the votes come to {getattr(tally, name)}"
        for name in _names(Tally)
        if getattr(evidence.tally, name) != getattr(tally, name)
    ]
    return Checked(tuple(faults), tally.outcome, trusted)


def _trusted(keys: object, policy: Policy | None) -> tuple[Trusted, ...]:
    """What nobody but the evidence says."""
    due = policy is None or policy.due is None
    own: dict[Trusted, bool] = {"keys": keys is None, "policy": policy is None, "due": due}
    return tuple(name for name, is_own in own.items() if is_own)


def _policy_faults(
    evidence: Evidence, keys: Mapping[str, str | Verifier] | None, policy: Policy | None
) -> Iterator[str]:
    """What of the policy of evidence is not what whoever checks says."""
    told = evidence.policy
    if policy is not None:
        if dataclasses.replace(policy, due=told.due) != told:
            yield f"it was decided by another policy: {told}"
        if policy.due is not None and policy.due != told.due:
            yield f"it was due at {told.due}, and not at {policy.due}"
        if policy.due is None and evidence.tally.outcome == "expired":
            yield "that it expired is its own word; give the policy with its due"
        return
    if keys is None:
        return
    if not told.signed:
        yield "nothing is signed"
    if strangers := [name for name in told.approvers if name not in keys]:
        yield f"its approvers are others than those of the keys: {', '.join(strangers)}"
    yield f"that {told.need} had to approve is its own word; give the policy that there has to be"


def _verifiers(
    keys: Mapping[str, str | Verifier], faults: list[str], *, strict: bool
) -> dict[str, Verifier]:
    found: dict[str, Verifier] = {}
    for name, key in keys.items():
        try:
            found[name] = read_key(key) if isinstance(key, str) else key
        except BadKey as error:
            if strict:
                raise
            faults.append(f"the key of {name!r}: {error}")
    return found
