"""Rollbacks whose forward runs are kept from running: they rest, and somebody lets them go on."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from perdure import Agent, Approval, OutcomeUnknown, Runs
from perdure.errors import NotHalted
from perdure.log import Store
from perdure.stores.memory import MemoryStore
from perdure.testing import call
from perdure.testing.scripted import TurnLike
from perdure.tools import Call, wrap
from tests.durable.bank import (
    Bank,
    Payment,
    cut_in_flight,
    failing,
    names,
    reasons,
    report,
    run,
    saga,
)
from tests.durable.world import RUN, cut_behind, session_of

SLOW = "call_t1_1"
WAITS = "it may have run, and waits to be run again: needs the approval of"


class Held(NamedTuple):
    """A rollback that rests, as the gate of a call that may have run was changed meanwhile."""

    store: MemoryStore
    bank: Bank
    agent: Agent


def gated(store: Store, bank: Bank, approval: Approval) -> Agent:
    slow = Payment(bank=bank, name="slow", effect="idempotent", does=lambda _: "at last")
    return saga(store, [], wrap(slow, approval=approval), failing(bank), Payment(bank=bank))


def names_undone(bank: Bank) -> list[str]:
    return [one.tool for one in bank.undone]


async def held(approval: Approval) -> Held:
    store, bank = await cut_in_flight("idempotent")
    agent = gated(store, bank, approval)
    result = await run(agent)
    assert (result.status, bank.did, bank.undone) == ("halted", [], [])
    assert names(report(result).unknown) == ["slow"]
    return Held(store, bank, agent)


@pytest.mark.parametrize("approval", [Approval(), Approval(of=["bo"])], ids=["anybody", "bo"])
async def test_a_gate_that_is_new_rests_the_rollback_until_it_is_opened(approval: Approval) -> None:
    store, bank, agent = await held(approval)
    version = (await session_of(store)).version
    assert (await run(agent)).status == "halted"
    assert (await session_of(store)).version == version
    await Runs(store).approve(RUN, SLOW, by="bo")
    assert (await run(agent)).status == "rolled_back"
    assert bank.did == ["slow {}"]
    assert [(one.tool, one.text) for one in bank.undone] == [
        ("slow", "at last"),
        ("pay", "pay did it"),
    ]


async def test_the_report_says_what_a_gate_holds() -> None:
    store, _, _ = await held(Approval(of=["bo"]))
    state = await Runs(store).get(RUN)
    assert state.report is not None
    assert reasons(state.report.unknown) == {"slow": f"{WAITS} bo"}


async def test_a_gate_that_is_changed_again_holds_again() -> None:
    store, bank, _ = await held(Approval(of=["bo"]))
    await Runs(store).approve(RUN, SLOW, by="bo")
    changed = gated(store, bank, Approval(of=["cy"]))
    assert ((await run(changed)).status, bank.did) == ("halted", [])
    assert (await run(changed)).status == "halted"
    await Runs(store).approve(RUN, SLOW, by="cy")
    assert ((await run(changed)).status, bank.did) == ("rolled_back", ["slow {}"])


async def test_a_denial_is_no_word_on_what_a_call_did() -> None:
    store, bank, agent = await held(Approval(of=["bo"]))
    await Runs(store).deny(RUN, SLOW, by="bo", reason="not today")
    result = await run(agent)
    assert (result.status, bank.undone, names(report(result).unknown)) == ("halted", [], ["slow"])
    await Runs(store).resolve(RUN, SLOW, output="receipt", by="ann")
    assert (await run(agent)).status == "rolled_back"
    assert [(one.tool, one.text) for one in bank.undone] == [
        ("slow", "receipt"),
        ("pay", "pay did it"),
    ]


async def test_somebody_says_that_a_held_call_never_ran() -> None:
    store, bank, agent = await held(Approval())
    await Runs(store).resolve(RUN, SLOW, never_ran=True, min_age=0, by="ann")
    assert (await run(agent)).status == "rolled_back"
    assert (bank.did, bank.undid) == ([], ["pay {}"])


async def test_somebody_says_that_a_held_call_failed() -> None:
    store, bank, agent = await held(Approval())
    await Runs(store).resolve(RUN, SLOW, failed="the bank says so", by="ann")
    assert (await run(agent)).status == "rolled_back"
    assert (bank.did, bank.undid) == ([], ["pay {}"])


async def test_a_held_call_is_settled_by_hand() -> None:
    store, bank, agent = await held(Approval())
    await Runs(store).resolve(RUN, SLOW, left=True, reason="small", by="ann")
    result = await run(agent)
    assert (result.status, bank.undid) == ("rolled_back", ["pay {}"])
    assert reasons(report(result).unknown) == {"slow": "left as it is: small"}


async def test_a_gate_that_was_opened_and_is_the_same_lets_the_rollback_pass() -> None:
    store, bank, agent = await held(Approval(of=["bo"]))
    await Runs(store).approve(RUN, SLOW, by="bo")
    assert (await run(agent)).status == "rolled_back"
    cut = await cut_behind(store, "perdure:tally", "dispatch")  # in the forward run
    bank.did.clear()
    bank.undone.clear()
    assert (await run(gated(cut, bank, Approval(of=["bo"])))).status == "rolled_back"
    assert (bank.did, names_undone(bank)) == (["slow {}"], ["slow", "pay"])


async def test_outside_a_rollback_a_held_call_waits_for_its_approval_alone() -> None:
    store, bank = MemoryStore(), Bank()
    script: list[TurnLike] = [call("slow"), "end"]
    slow = Payment(bank=bank, name="slow", effect="idempotent")
    await run(saga(store, script, slow))
    cut = await cut_behind(store, "dispatch")
    agent = saga(cut, script, wrap(slow, approval=Approval()))
    assert (await run(agent)).status == "input_required"
    with pytest.raises(NotHalted):
        await Runs(cut).resolve(RUN, "call_t0_1", output="it did")


# --- forward runs that give nothing ---------------------------------------------------------------


async def test_a_forward_run_that_gives_nothing_rests_and_the_next_driver_tries_again() -> None:
    store, bank = await cut_in_flight("idempotent")

    def unsure(call: Call) -> str:
        if len(bank.did) < 3:
            raise OutcomeUnknown("no answer")
        return "at last"

    slow = Payment(bank=bank, name="slow", effect="idempotent", does=unsure)
    agent = saga(store, [], slow, failing(bank), Payment(bank=bank))
    for tries in (1, 2):
        result = await run(agent)
        assert (result.status, len(bank.did), bank.undone) == ("halted", tries, [])
        why = "it may have run, and is run again to learn what it gave"
        assert reasons(report(result).unknown) == {"slow": why}
    assert (await run(agent)).status == "rolled_back"
    assert [one.text for one in bank.undone] == ["at last", "pay did it"]
