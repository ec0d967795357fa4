"""`perdure approve`, `approvals` and `keys`: what each shows, writes and refuses."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from perdure import Agent, Approval, SigningKey, tool
from perdure.cli.commands import cli
from perdure.result import RunResult
from perdure.testing import ScriptedModel, call
from tests.cli.terminal import COLUMNS, Terminal

RUN = "order-42"
CALL = "call_t0_1"
PEOPLE = ("ann", "bo", "cy")

pytestmark = pytest.mark.usefixtures("at_home")


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERDURE_STORE", f"sqlite:///{tmp_path}/runs.db")


def perdure(*words: str, text: str = "") -> Result:
    return CliRunner().invoke(cli, list(words), input=text)


def made_keys() -> dict[str, str]:
    return {name: perdure("keys", "new", f"{name}.pem").stdout.strip() for name in PEOPLE}


def agent_of(approval: Approval | bool, keys: dict[str, str]) -> Agent:
    @tool(approval=approval)
    async def charge(cents: int) -> str:
        """Charge a card."""
        return f"charged {cents}"

    model = ScriptedModel([call("charge", {"cents": 500}), "It is paid."])
    return Agent(model, tools=[charge], store=os.environ["PERDURE_STORE"], approvers=keys)


def drive(agent: Agent) -> RunResult[str]:
    async def run() -> RunResult[str]:
        result = await agent.run("Charge it.", run_id=RUN)
        await agent.aclose()
        return result

    return asyncio.run(run())


TWO = Approval(need=2, of=PEOPLE)


def test_a_key_is_for_its_owner_alone_and_never_overwritten() -> None:
    made = perdure("keys", "new", "ann.pem")
    assert made.exit_code == 0
    assert stat.S_IMODE(Path("ann.pem").stat().st_mode) == 0o600
    assert perdure("keys", "show", "ann.pem").stdout == made.stdout
    assert SigningKey.read(Path("ann.pem").read_bytes()).public == made.stdout.strip()
    again = perdure("keys", "new", "ann.pem")
    assert (again.exit_code, "never overwritten" in again.stderr) == (1, True)
    assert perdure("keys", "show", "ann.pem").stdout == made.stdout


def test_a_key_that_others_can_read_or_that_is_none_is_refused() -> None:
    made_keys()
    Path("ann.pem").chmod(0o640)
    shown = perdure("keys", "show", "ann.pem")
    assert (shown.exit_code, "chmod 600" in shown.stderr) == (2, True)
    Path("bo.pem").write_text("hello")
    shown = perdure("keys", "show", "bo.pem")
    assert (shown.exit_code, "no private key" in shown.stderr) == (2, True)
    nowhere = perdure("keys", "new", "there/is/no/folder.pem")
    assert (nowhere.exit_code, "cannot be written" in nowhere.stderr) == (2, True)


def test_two_of_three_vote_and_an_auditor_checks() -> None:
    keys = made_keys()
    agent = agent_of(TWO, keys)
    drive(agent)
    listed = perdure("approvals", "ls")
    assert listed.stdout.split("\t") == [
        RUN,
        CALL,
        'charge({"cents":500})',
        "needs 2 of ann, bo, cy",
        "no votes\n",
    ]
    told = perdure("approve", RUN, CALL, "--by", "ann", "--key", "ann.pem")
    assert (told.exit_code, told.stderr) == (0, 'charge({"cents":500})\n')
    assert told.stdout == (
        f"the vote of ann to approve {CALL} is in; it counts only if this is the key of ann that "
        f"the agent knows; 1 of 2 to approve, counted when {RUN} is driven\n"
    )
    assert "ann: approve (not taken up yet)" in perdure("approvals", "ls").stdout
    drive(agent)
    assert "ann: approve\n" in perdure("approvals", "ls").stdout
    early = perdure("approvals", "export", RUN, CALL)
    assert (early.exit_code, "no votes have decided" in early.stderr) == (1, True)
    assert perdure("approve", RUN, CALL, "--by", "cy", "--key", "cy.pem").exit_code == 0
    assert drive(agent).status == "done"
    assert perdure("approvals", "ls").stdout == ""

    exported = perdure("approvals", "export", RUN, CALL)
    Path("evidence.json").write_text(exported.stdout)
    options = [word for name in PEOPLE for word in ("--key", f"{name}={keys[name]}")]
    checked = perdure("approvals", "verify", "evidence.json", *options, "--need", "2")
    assert checked.exit_code == 0
    said = 'charge({"cents":500}) was approved by ann, cy: signed, checked with your keys\n'
    assert checked.stdout == said
    own = perdure("approvals", "verify", "-", text=exported.stdout)
    assert (own.exit_code, "the keys of the evidence itself" in own.stdout) == (0, True)


def test_a_vote_is_told_beside_those_that_wait() -> None:
    agent = agent_of(TWO, made_keys())
    drive(agent)
    for_it = ("approve", RUN, CALL, "--by", "ann", "--key", "ann.pem")
    perdure(*for_it)
    (line,) = perdure("approvals", "ls", "--json").stdout.splitlines()
    assert json.loads(line)["waiting"] == [{"approver": "ann", "verdict": "approve"}]
    again = perdure(*for_it, "--deny").stdout
    assert "ann has voted more than once, and the first vote that is valid counts" in again
    assert "1 of 2 to approve, counted" in again
    against = perdure("approve", RUN, CALL, "--by", "bo", "--key", "bo.pem", "--deny").stdout
    assert f"1 of 2 to approve, 1 to deny, counted when {RUN} is driven" in against
    stopped = perdure("approve", RUN, CALL, "--by", "an operator", "--deny").stdout
    assert "denied by an operator, who is none of the approvers" in stopped
    assert drive(agent).status == "done"
    assert "reject by human an operator" in perdure("runs", "show", RUN).stdout


def test_one_of_several_who_may_say_no_by_a_word_has_not_denied_it() -> None:
    agent = agent_of(Approval(of=["ann", "bo"]), {})
    drive(agent)
    said = perdure("runs", "deny", RUN, CALL, "--by", "ann").stdout
    assert said.startswith(f"the vote of ann to deny {CALL} is in; 0 of 1 to approve, 1 to deny")
    assert drive(agent).status == "input_required"
    said = perdure("runs", "approve", RUN, CALL, "--by", "bo").stdout
    assert f"1 of 1 to approve, 1 to deny, counted when {RUN} is driven" in said
    assert drive(agent).status == "done"
    assert perdure("approve", RUN, CALL, "--by", "bo").exit_code == 1


def test_what_waits_is_a_table_in_a_terminal() -> None:
    env = {"PERDURE_STORE": os.environ["PERDURE_STORE"]}
    drive(agent_of(TWO, made_keys()))
    with Terminal("approvals", "ls", env=env) as screen:
        screen.ends(0)
    assert screen.lines[0].split() == ["run", "call", "what", "whose", "votes", "until", "(UTC)"]
    assert screen.lines[1].startswith(RUN)
    assert max(map(len, screen.lines)) <= COLUMNS
    perdure("runs", "cancel", RUN)
    with Terminal("approvals", "ls", env=env) as screen:
        screen.ends(0)
    assert "no call waits for votes" in screen.text


def test_a_vote_against_it_denies() -> None:
    agent = agent_of(TWO, made_keys())
    drive(agent)
    for name in ("ann", "bo"):
        words = ("--by", name, "--key", f"{name}.pem", "--deny", "--reason", "too much")
        assert perdure("approve", RUN, CALL, *words).exit_code == 0
    assert drive(agent).status == "done"
    shown = perdure("runs", "show", RUN).stdout
    assert "ann votes to deny" in shown
    assert "is denied by ann, bo" in shown


def test_a_word_is_enough_where_one_person_has_to_agree() -> None:
    agent = agent_of(True, {})
    drive(agent)
    assert perdure("approve", RUN, CALL, "--by", "ann").exit_code == 0
    assert drive(agent).status == "done"
    exported = perdure("approvals", "export", RUN, CALL)
    checked = perdure("approvals", "verify", "-", text=exported.stdout)
    assert (checked.exit_code, "by word, nothing is signed" in checked.stdout) == (0, True)


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["--by", "ann"], 1, "it is not signed"),
        (["--by", "dan", "--key", "ann.pem"], 1, "none of the approvers"),
        (["--by", "ann", "--key", "nowhere.pem"], 2, "does not exist"),
    ],
)
def test_a_vote_that_cannot_count_is_refused(words: list[str], code: int, why: str) -> None:
    agent = agent_of(TWO, made_keys())
    drive(agent)
    told = perdure("approve", RUN, CALL, *words)
    assert (told.exit_code, why in told.stderr) == (code, True), told.stderr


def test_what_waits_is_listed_for_programs_and_with_the_commands_that_vote() -> None:
    agent = agent_of(TWO, made_keys())
    drive(agent)
    perdure("approve", RUN, CALL, "--by", "ann", "--key", "ann.pem")
    drive(agent)
    (line,) = perdure("approvals", "ls", "--json").stdout.splitlines()
    members = json.loads(line)
    assert members["votes"] == [{"approver": "ann", "verdict": "approve"}]
    assert (members["need"], members["of"], members["signed"]) == (2, list(PEOPLE), True)
    shown = perdure("runs", "show", RUN).stdout
    assert "needs the approval of 2 of ann, bo, cy (ann has approved)" in shown
    assert f"perdure approve {RUN} {CALL} --by NAME --key FILE --deny" in shown


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--need", "1"], 1),
        (["--key", "ann=KEY", "--need", "2"], 1),
        (["--key", "ann=KEY"], 2),
        (["--due", "5"], 1),
        (["--key", "ann"], 2),
        (["--key", "ann=no key"], 2),
    ],
)
def test_evidence_that_is_not_what_was_expected_is_told(options: list[str], code: int) -> None:
    keys = made_keys()
    agent = agent_of(TWO, keys)
    drive(agent)
    for name in ("ann", "bo"):
        perdure("approve", RUN, CALL, "--by", name, "--key", f"{name}.pem")
    drive(agent)
    text = perdure("approvals", "export", RUN, CALL).stdout
    known = [word.replace("KEY", keys["bo"]) for word in options]
    assert perdure("approvals", "verify", "-", *known, text=text).exit_code == code
    changed = text.replace('"approved"', '"denied"')
    assert perdure("approvals", "verify", "-", text=changed).exit_code == 1
    odd = perdure("approvals", "verify", "-", text="hello")
    assert (odd.exit_code, "- is no evidence: it is not JSON" in odd.stderr) == (2, True)
    assert perdure("approvals", "verify", "nowhere.json").exit_code == 2
