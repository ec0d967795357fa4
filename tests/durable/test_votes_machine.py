"""Votes in any order, beside a small reference model, and beside the verifier that has no store.

They are forged, repeated, late, by strangers, about other arguments or another verdict, signed
about a hold that has expired, with keys that were changed meanwhile. The model knows who said what
about which hold; it knows nothing of entries, signatures and bytes.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from perdure import Agent, Approval, Ballot, Runs
from perdure.ballots import check_evidence, read_evidence
from perdure.durable.messages import Vote
from perdure.log.entries import RefusedEntry, TallyEntry, VoteEntry
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock
from tests.ballots.people import key
from tests.durable.voters import CALL, gated_agent, smuggle
from tests.durable.world import RUN, World, entries_of

T = TypeVar("T")

PEOPLE = ("ann", "bo", "cy")
NEED = 2
EXPIRES = 60
LEVELS = 3

About = Literal["this", "an earlier hold", "other arguments", "another session", "another verdict"]
ABOUT: tuple[About, ...] = (
    "this",
    "an earlier hold",
    "other arguments",
    "another session",
    "another verdict",
)


FORGERS = ("bo", "mallory")

TWISTS = (*ABOUT[1:], *FORGERS, "an old key", "put about an earlier hold", "malformed")

Spec: TypeAlias = tuple[str, bool, str]
"""Who votes, what, and what is wrong with it, if something is."""

VOTES: st.SearchStrategy[Spec] = st.tuples(
    st.sampled_from(("ann", "bo", "cy", "ann", "bo", "cy", "dan")),
    st.sampled_from((True, True, False)),
    st.sampled_from(("",) * 2 * len(TWISTS) + TWISTS),
)


class Said(NamedTuple):
    """A vote, as the model knows it."""

    name: str
    approves: bool
    signer: str
    key: int
    """Which of the signer's keys it was: they change."""
    about: About
    """What was signed, however it was put."""
    hold: int
    """The hold it was put about."""
    malformed: bool


class Put(NamedTuple):
    """The same, and when it was put."""

    said: Said
    at: int


class Counted(NamedTuple):
    """What the votes about one hold came to."""

    outcome: str
    approved_by: tuple[str, ...] = ()
    denied_by: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


def policy_of(levels: int) -> Approval:
    escalate = policy_of(levels - 1) if levels > 1 else None
    return Approval(need=NEED, of=PEOPLE, expires=EXPIRES, escalate=escalate)


@dataclasses.dataclass
class Model:
    """What has to become of the votes."""

    now: int = 0
    keys: dict[str, int] = dataclasses.field(default_factory=lambda: dict.fromkeys(PEOPLE, 0))
    holds: list[int] = dataclasses.field(default_factory=lambda: [0])
    """When each began."""
    inbox: list[Put] = dataclasses.field(default_factory=list[Put])
    taken: set[Said] = dataclasses.field(default_factory=set[Said])
    """What the inbox holds or a record has: once more, it is the same."""
    votes: list[Put] = dataclasses.field(default_factory=list[Put])
    """Those on the record about the last hold."""
    recorded: int = 0
    refused: int = 0
    tallies: list[Counted] = dataclasses.field(default_factory=list[Counted])
    over: bool = False

    def put(self, said: Said) -> None:
        if said not in self.taken:
            self.taken.add(said)
            self.inbox.append(Put(said, self.now))

    def drive(self) -> None:
        """Judge what was put, and count."""
        for one in self.inbox:
            if self.over or self._refuses(one.said):
                self.refused += 1
                self.taken.discard(one.said)
            else:
                self.recorded += 1
                self.votes.append(one)
        self.inbox.clear()
        while not self.over and (counted := self._counted()).outcome != "pending":
            self.tallies.append(counted)
            self.votes.clear()
            if counted.outcome == "expired" and len(self.holds) < LEVELS:
                self.holds.append(self.now)
            else:
                self.over = True

    def _refuses(self, said: Said) -> bool:
        elsewhere = said.hold != len(self.holds) - 1 or said.about == "other arguments"
        return elsewhere or said.malformed or said.name not in PEOPLE

    def _counted(self) -> Counted:
        due = self.holds[-1] + EXPIRES
        seats: dict[str, bool] = {}
        reasons: list[str] = []
        for said, at in self.votes:
            yes = sum(seats.values())
            decided = yes >= NEED or len(seats) - yes > len(PEOPLE) - NEED
            own = (said.signer, said.key) == (said.name, self.keys[said.name])
            if decided:
                reasons.append("decided before")
            elif at > due:
                reasons.append("late")
            elif said.about != "this" or not own:
                reasons.append("bad signature")
            elif said.name in seats:
                reasons.append("superseded")
            else:
                seats[said.name] = said.approves
        approved = tuple(name for name, yes in seats.items() if yes)
        denied = tuple(name for name, yes in seats.items() if not yes)
        outcome = "expired" if self.now >= due else "pending"
        if len(approved) >= NEED:
            outcome = "approved"
        elif len(PEOPLE) - len(denied) < NEED:
            outcome = "denied"
        return Counted(outcome, approved, denied, tuple(reasons))


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.store, self.world, self.clock = MemoryStore(), World(), FakeClock()
        self.ballots: list[Ballot] = []
        self.model = Model()
        self.checked = 0

    def do(self, work: Coroutine[object, object, T]) -> T:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.runner.close()

    def agent(self) -> Agent:
        known = {name: key(f"{name}/{n}").public for name, n in self.model.keys.items()}
        policy = policy_of(LEVELS)
        return gated_agent(self.store, self.world, policy, clock=self.clock, approvers=known)

    @initialize()
    def begin(self) -> None:
        assert self.do(self.agent().run("go", run_id=RUN)).status == "input_required"
        self.ballots.append(self.do(Runs(self.store).ballot(RUN, CALL)))

    # --- what happens --------------------------------------------------------------------------

    @rule(votes=st.lists(VOTES, min_size=1, max_size=5), then_drive=st.booleans())
    def vote(self, *, votes: list[Spec], then_drive: bool) -> None:
        for spec in votes:
            said = self._said(spec)
            self.do(smuggle(self.store, self._told(said)))
            self.model.put(said)
        if then_drive:
            self.drive()

    def _said(self, spec: Spec) -> Said:
        name, approves, twist = spec
        signer = twist if twist in FORGERS else name
        number = max(self.model.keys.get(signer, 0) - (twist == "an old key"), 0)
        hold = max(len(self.ballots) - 1 - (twist == "put about an earlier hold"), 0)
        about = twist if twist in ABOUT else "this"
        if about == "an earlier hold" and hold == 0:
            about = "another session"
        malformed = twist == "malformed"
        return Said(name, approves, signer, number, about, hold, malformed)

    def _told(self, said: Said) -> Vote:
        ballot = self.ballots[said.hold]
        signed = ballot.subject
        match said.about:
            case "an earlier hold":
                earlier = self.ballots[said.hold - 1].subject.hold
                signed = dataclasses.replace(signed, hold=earlier)
            case "other arguments":
                signed = dataclasses.replace(signed, digest="00" * 32)
            case "another session":
                signed = dataclasses.replace(signed, session="another")
            case _:
                pass
        approves = said.approves != (said.about == "another verdict")
        signing = key(f"{said.signer}/{said.key}")
        seen = dataclasses.replace(ballot, subject=signed)
        signature = seen.sign(signing, said.name, approves=approves)
        return Vote(
            who=said.name,
            call_id=CALL,
            hold=ballot.subject.hold,
            digest=signed.digest,
            approves=said.approves,
            signature=f"{signature[:-8]}" if said.malformed else signature,
            at=self.clock.wall(),
        )

    @rule(name=st.sampled_from(PEOPLE))
    def change_a_key(self, name: str) -> None:
        self.model.keys[name] += 1

    @rule(seconds=st.sampled_from((11, 26, 61)))
    def wait(self, seconds: int) -> None:
        self.do(self.clock.advance(seconds))
        self.model.now += seconds

    @rule()
    def drive(self) -> None:
        counting = dict(self.model.keys)
        over = self.model.over
        self.model.drive()
        result = self.do(self.agent().run("go", run_id=RUN))
        assert result.status == ("done" if self.model.over else "input_required")
        if len(self.ballots) < len(self.model.holds):
            self.ballots.append(self.do(Runs(self.store).ballot(RUN, CALL)))
        if self.model.over and not over:
            self._check_without_a_store(counting)

    def _check_without_a_store(self, counting: dict[str, int]) -> None:
        evidence = read_evidence(self.do(Runs(self.store).evidence(RUN, CALL)))
        known = {name: key(f"{name}/{number}").public for name, number in counting.items()}
        policy = dataclasses.replace(policy_of(1).policy, due=evidence.policy.due)
        checked = check_evidence(evidence, keys=known, policy=policy)
        assert checked.faults == ()
        assert checked.outcome == self.model.tallies[-1].outcome
        assert check_evidence(evidence).ok

    # --- what holds ----------------------------------------------------------------------------

    @invariant()
    def the_record_says_what_the_model_says(self) -> None:
        if not self.ballots:
            return
        entries = self.do(entries_of(self.store))
        assert [
            Counted(
                one.outcome,
                one.approved_by,
                one.denied_by,
                tuple(str(left["reason"]) for left in one.uncounted),
            )
            for one in entries
            if isinstance(one, TallyEntry)
        ] == self.model.tallies
        assert sum(isinstance(one, VoteEntry) for one in entries) == self.model.recorded
        assert sum(isinstance(one, RefusedEntry) for one in entries) == self.model.refused

    @invariant()
    def the_tool_ran_once_if_it_was_approved_and_else_never(self) -> None:
        approved = [one for one in self.model.tallies if one.outcome == "approved"]
        assert self.world.count(CALL) == len(approved) <= 1


Machine.TestCase.settings = settings(
    max_examples=80,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestVotes = Machine.TestCase
