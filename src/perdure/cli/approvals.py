"""`perdure approve`, `perdure approvals`, `perdure keys`: votes, what waits for them, evidence."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import click

from perdure.cli.given import Unusable
from perdure.cli.runs import (
    EXIT_CODES,
    Desk,
    Refused,
    say,
    saying,
    session_option,
    store_option,
    who,
    with_runs,
)
from perdure.cli.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from perdure.ballots import Policy, SigningKey
    from perdure.cli.runs_seen import Seen
    from perdure.durable.messages import Vote
    from perdure.log.approvals import HeldGate
    from perdure.loop import PendingCall

VERIFY_CODES = """\b
Exit codes:
  0    the votes come to what the evidence says
  1    they do not
  2    used wrongly, or no evidence at all
"""

OWNER_ONLY = 0o600


# --- voting --------------------------------------------------------------------------------------


@click.command(epilog=EXIT_CODES)
@click.argument("run")
@click.argument("call")
@saying
@session_option
@click.option(
    "--key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Your private key, where votes are signed.",
)
@click.option("--deny", is_flag=True, help="Vote against it.")
def approve(
    *,
    run: str,
    call: str,
    url: str,
    by: str | None,
    reason: str,
    session: str,
    key: Path | None,
    deny: bool,
) -> int:
    """Approve the held CALL of RUN, or vote for it where several people have to."""
    signing = _read_key(key) if key is not None else None
    approver = who(by)

    async def told(desk: Desk) -> int:
        from perdure.cli.votes import ballot_before, vote_words

        tell = desk.runs.deny if deny else desk.runs.approve
        signature = ""
        ballot = await ballot_before(desk, run, call, session)
        if signing is not None:
            ballot = ballot or await desk.runs.ballot(run, call, session=session)
            click.echo(one_line(f"{ballot.subject.tool}({ballot.arguments})"), err=True)
            signature = ballot.sign(signing, approver, approves=not deny)
        await tell(run, call, by=approver, signature=signature, session=session, reason=reason)
        signed = bool(signature)
        return say(
            await vote_words(desk, ballot, run, call, approver, approves=not deny, signed=signed)
        )

    return with_runs(url, told)


# --- looking -------------------------------------------------------------------------------------


@click.group()
def approvals() -> None:
    """What waits for votes, what was decided, and on what it rests."""


@approvals.command("ls", epilog=EXIT_CODES)
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def ls(*, url: str, as_json: bool) -> int:
    """List the calls that wait for votes, with who has voted."""

    async def listed(desk: Desk) -> int:
        from perdure.cli.runs_seen import look_at
        from perdure.cli.runs_shown import print_table

        rows: list[Sequence[str]] = []
        async for one in desk.runs.each():
            if one.status in _WAIT:
                for gate in _gates(await look_at(desk.store, one.run_id)):
                    if as_json:
                        click.echo(_json_line(gate))
                    else:
                        rows.append(_fields(gate))
        if not as_json:
            print_table(_COLUMNS, rows, none="no call waits for votes")
        return 0

    return with_runs(url, listed)


_WAIT = frozenset({"input_required", "suspended", "running", "aborted", "halted"})


_COLUMNS = ("run", "call", "what", "whose", "votes", "until (UTC)")


class _Gate(NamedTuple):
    """A call of a run that waits for votes."""

    run_id: str
    pending: PendingCall
    gate: HeldGate
    waiting: Sequence[Vote]
    """The votes in the inbox."""


def _gates(seen: Seen) -> Iterator[_Gate]:
    """The calls of a run that wait for votes."""
    from perdure.durable.messages import Vote

    sessions = {branch.session.id: branch.session for branch in seen.tree}
    told = [one.told for one in seen.inbox if isinstance(one.told, Vote)]
    for one in seen.waiting:
        view = sessions[one.call.session].view()
        call = view.calls.open.get(one.call.call.call_id)  # what a program waits for is no call
        gate = view.approvals.waiting(call) if call is not None else None
        if gate is not None and gate.tally is None:
            votes = [vote for vote in told if vote.hold == gate.hold.id]
            yield _Gate(seen.state.run_id, one.call, gate, votes)


def _fields(one: _Gate) -> list[str]:
    from perdure.cli.votes import Voted
    from perdure.log.timeline import day_and_time

    gate = one.gate
    voted = [Voted(vote.approver, vote.verdict == "approve", waits=False) for vote in gate.votes]
    voted += [Voted(vote.who, vote.approves, waits=True) for vote in one.waiting]
    due = gate.gate.due
    return [
        one.run_id,
        one.pending.call.call_id,
        f"{one.pending.call.name}({gate_arguments(one.pending, gate)})",
        f"needs {gate.gate.asks}",
        ", ".join(vote.words for vote in voted) or "no votes",
        *([] if due is None else [f"until {day_and_time(due)}"]),
    ]


def _json_line(one: _Gate) -> str:
    import msgspec

    pending, gate = one.pending, one.gate
    votes = [{"approver": vote.approver, "verdict": vote.verdict} for vote in gate.votes]
    waiting = [
        {"approver": vote.who, "verdict": "approve" if vote.approves else "deny"}
        for vote in one.waiting
    ]
    members: dict[str, object] = {
        "run": one.run_id,
        "call": pending.call.call_id,
        "session": pending.session,
        "path": pending.path,
        "tool": pending.call.name,
        "arguments": gate_arguments(pending, gate),
        "need": gate.gate.need,
        "of": gate.gate.of,
        "signed": gate.gate.signed,
        "due": gate.gate.due,
        "votes": votes,
        "waiting": waiting,
    }
    return msgspec.json.encode(members).decode()


def gate_arguments(pending: PendingCall, gate: HeldGate) -> str:
    """The arguments that are held."""
    held = gate.hold.arguments or bytes(gate.hold.args).decode()
    return held or pending.call.arguments or "{}"


@approvals.command(epilog=EXIT_CODES)
@click.argument("run")
@click.argument("call")
@store_option
@session_option
@click.option(
    "--hold", default="", metavar="ID", help="Of a call that was held more than once: which hold."
)
def export(*, run: str, call: str, url: str, session: str, hold: str) -> int:
    """Print the evidence of how CALL of RUN was decided: policy, keys, votes, tally."""

    async def exported(desk: Desk) -> int:
        sys.stdout.write(await desk.runs.evidence(run, call, session=session, hold=hold) + "\n")
        return 0

    return with_runs(url, exported)


@approvals.command(epilog=VERIFY_CODES)
@click.argument("file", type=click.Path(allow_dash=True, dir_okay=False))
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="NAME=KEY",
    help="An approver's public key, as you know it; for each of them. Without it those of the "
    "evidence are used.",
)
@click.option(
    "--need",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many had to approve; needed with --key.",
)
@click.option(
    "--due",
    type=int,
    metavar="NANOSECONDS",
    help="When it expired, since the Unix epoch; needed with --key for what has expired.",
)
def verify(*, file: str, keys: tuple[str, ...], need: int | None, due: int | None) -> int:
    """Count the votes of an exported decision again, without a store. `-` reads standard input.

    Signatures show that those who count voted so. That no vote was left out they do not show:
    docs/approvals.md says what does.
    """
    from perdure.ballots import BadEvidence, BadKey, check_evidence, read_evidence

    known = dict(_named_key(text) for text in keys)
    try:
        evidence = read_evidence(_read(file))
        policy = _policy(evidence.policy, known, need, due)
        checked = check_evidence(evidence, keys=known or None, policy=policy)
    except BadEvidence as error:
        raise Unusable(one_line(f"{file} is no evidence: {error}")) from error
    except (BadKey, ModuleNotFoundError) as error:
        raise Unusable(one_line(str(error))) from error
    if not checked.ok:
        raise Refused(one_line("; ".join(checked.faults)))
    subject, tally = evidence.subject, evidence.tally
    by = tally.denied_by if tally.outcome == "denied" else tally.approved_by
    by_whom = f" by {', '.join(by)}" if by else ""
    if not evidence.policy.signed:
        how = "by word, nothing is signed"
    elif known:
        how = "signed, checked with your keys"
    else:
        how = (
            "signed, checked with the keys of the evidence itself: that is consistent, and does "
            "not show who signed; give --key and --need"
        )
    return say(f"{subject.tool}({evidence.arguments}) was {tally.outcome}{by_whom}: {how}")


def _policy(
    told: Policy, known: Mapping[str, str], need: int | None, due: int | None
) -> Policy | None:
    """The policy that there has to be; without keys, what is not said is the evidence's own."""
    import dataclasses

    if not known:
        return dataclasses.replace(
            told,
            need=told.need if need is None else need,
            due=told.due if due is None else due,
        )
    if need is None:
        raise Unusable("say how many had to approve: --need N")
    same = frozenset(known) == frozenset(told.approvers)
    names = told.approvers if same else tuple(known)
    return dataclasses.replace(told, need=need, approvers=names, signed=True, due=due)


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise Unusable(f"{file} cannot be read: {error.strerror}") from None


def _named_key(text: str) -> tuple[str, str]:
    name, equals, key = text.partition("=")
    if not (name and equals and key):
        raise Unusable(f"--key is NAME=ed25519:..., not {text!r}")
    return name, key


# --- keys ----------------------------------------------------------------------------------------


@click.group()
def keys() -> None:
    """The keys of those who approve."""


@keys.command()
@click.argument("file", type=click.Path(path_type=Path))
def new(*, file: Path) -> int:
    """Make a private key in FILE, which only you can read, and print the public one."""
    key = _new_key()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        with os.fdopen(os.open(file, flags, OWNER_ONLY), "wb") as opened:
            opened.write(key.pem)
    except FileExistsError:
        raise Refused(f"{file} is there already; a key is never overwritten") from None
    except OSError as error:
        raise Unusable(f"{file} cannot be written: {error.strerror}") from None
    click.echo(key.public)
    return 0


@keys.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def show(*, file: Path) -> int:
    """Print the public key of the private one in FILE."""
    click.echo(_read_key(file).public)
    return 0


def _new_key() -> SigningKey:
    from perdure.ballots import SigningKey

    try:
        return SigningKey()
    except ModuleNotFoundError as error:
        raise Unusable(str(error)) from None


def _read_key(file: Path) -> SigningKey:
    """A private key.

    Raises:
        Unusable: It is none, or others can read it.
    """
    from perdure.ballots import BadKey, SigningKey

    try:
        if os.name == "posix" and stat.S_IMODE(file.stat().st_mode) & 0o077:
            _unusable(f"others can read {file}: chmod 600 it, and have a new key if they did")
        return SigningKey.read(file.read_bytes())
    except (BadKey, ModuleNotFoundError) as error:
        raise Unusable(f"{file}: {error}") from None
    except OSError as error:
        raise Unusable(f"{file} cannot be read: {error.strerror}") from None


def _unusable(why: str) -> NoReturn:
    raise Unusable(why)


COMMANDS: tuple[click.Command, ...] = (approve, approvals, keys)
