"""`perdure runs`: what each command shows, what it tells a run, and how it ends."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import click
import pytest
from click.testing import CliRunner, Result

from perdure import (
    Agent,
    OutcomeUnknown,
    Tool,
    ToolDecision,
    interrupt,
    invoke as invoke_tool,
    receive,
    sleep_until,
    step,
    tool,
    wait_for,
)
from perdure.cli.runs import runs
from perdure.loop import Middleware, ToolCallInfo
from perdure.result import RunResult
from perdure.testing import ScriptedModel, Turn, call, turn
from tests.cli.terminal import COLUMNS, Piped, Terminal

Json = dict[str, object]


@tool(effect="once")
async def charge(cents: int) -> str:
    """Charge a card."""
    if cents == 13:
        raise OutcomeUnknown("the bank did not answer")
    return f"charged {cents}"


@tool(effect="once", timeout=0.001)
async def mail(to: str) -> str:
    """Send a mail."""
    raise OutcomeUnknown(f"the server of {to} did not answer")


NIGHT = 4_102_444_800 * 10**9
"""The first moment of 2100."""


@tool(effect="idempotent")
async def settle(cents: int) -> str:
    """Charge a card by another tool."""
    return str((await invoke_tool("charge", {"cents": cents})).output)


@tool(effect="keyed")
async def order(what: str) -> object:
    """Order something: where what it waits for is in the word."""
    placed = await step("place", lambda: f"placed {what}")
    if "sleep" in what:
        await sleep_until("the night", NIGHT)
    elif "signal" in what:
        return await wait_for("paid")
    elif "message" in what:
        message = await receive("orders")
        await message.ack()
        return message.value
    elif "everything" in what:
        await asyncio.gather(
            sleep_until("the night", NIGHT), wait_for("paid"), interrupt("age", "How old?", int)
        )
    elif "age" in what:
        return await interrupt("age", f"How old is {what}?", int)
    elif "unsure" in what:
        return await step("pay the bill", _unsure)
    return placed


def _unsure() -> str:
    raise OutcomeUnknown("the bank did not answer")


class AskFirst(Middleware):
    """Holds what costs much."""

    async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
        if "500" in info.call.arguments:
            return ToolDecision(action="hold", reason="it costs much")
        return None


def charging(cents: int, call_id: str = "c1") -> Turn:
    return call("charge", {"cents": cents}, call_id=call_id)


HALTS: list[Turn | str] = [charging(13), "I see."]
HELD: list[Turn | str] = [charging(500), "I see."]
MAILS: list[Turn | str] = [call("mail", {"to": "ann"}, call_id="c1"), "I see."]
DONE: list[Turn | str] = [charging(1), "It is charged."]
WAITS: dict[str, list[Turn | str]] = {
    what: [call("order", {"what": what}, call_id="c1"), "It is ordered."]
    for what in ("sleep", "signal", "message", "age", "unsure", "everything")
}
SETTLES: list[Turn | str] = [call("settle", {"cents": 13}, call_id="c1"), "It is settled."]
LONG: list[Turn | str] = [charging(1, f"c{number}") for number in range(9)]


def drive(
    store: str,
    run_id: str,
    script: list[Turn | str],
    *,
    name: str = "clerk",
    max_turns: int = 2,
    tools: Sequence[Tool] = (charge, mail, order, settle),
) -> RunResult:
    """Run by its id until it rests, as whoever drives runs does."""

    async def driven() -> RunResult:
        agent = Agent(
            ScriptedModel(script),
            name=name,
            tools=tools,
            middleware=[AskFirst()],
            store=store,
            max_turns=max_turns,
            grace=0.001,
        )
        try:
            return await agent.run("Charge it.", run_id=run_id)
        finally:
            await agent.aclose()

    return asyncio.run(driven())


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty store, which the commands use."""
    url = f"sqlite:///{tmp_path}/runs.db"
    monkeypatch.setenv("PERDURE_STORE", url)
    return url


def invoke(*arguments: str, given: str = "") -> Result:
    return CliRunner().invoke(runs, arguments, input=given, standalone_mode=False)


def code(result: Result) -> int:
    error = result.exception
    if isinstance(error, click.ClickException):
        return error.exit_code
    assert error is None, error
    return int(result.return_value)


def told(*arguments: str, given: str = "") -> str:
    """What a command says that succeeds."""
    result = invoke(*arguments, given=given)
    assert code(result) == 0, result.exception
    return result.stdout


def refused(*arguments: str) -> tuple[int, str]:
    """The exit code and the words of a command that does not."""
    result = invoke(*arguments)
    assert isinstance(result.exception, click.ClickException), result.exception
    return result.exception.exit_code, result.exception.format_message()


def look(run_id: str) -> Json:
    return cast("Json", json.loads(told("show", run_id, "--json")))


def waiting(run_id: str) -> Json:
    (one,) = cast("list[Json]", look(run_id)["waiting"])
    return one


def outputs(run_id: str) -> list[object]:
    entries = cast("list[dict[str, Json]]", look(run_id)["entries"])
    return [one["item"]["output"] for one in entries if "output" in one.get("item", {})]


# --- looking -----------------------------------------------------------------------------------


def test_ls_lists_runs_with_how_they_stand(store: str) -> None:
    drive(store, "one", DONE)
    drive(store, "two", HELD, name="asker")
    lines = [line.split("\t") for line in told("ls").splitlines()]
    assert [line[:3] for line in lines] == [
        ["one", "done", "clerk"],
        ["two", "input_required", "asker"],
    ]
    assert [line.split("\t")[0] for line in told("ls", "--limit", "1").splitlines()] == ["one"]
    assert told("ls", "--agent", "asker").split("\t")[0] == "two"
    assert told("ls", "--status", "done").split("\t")[0] == "one"
    both = told("ls", "--status", "done", "--status", "input_required", "--status", "halted")
    assert len(both.splitlines()) == 2
    (first, _) = map(json.loads, told("ls", "--json").splitlines())
    assert (first["run_id"], first["status"], first["kind"]) == ("one", "done", "run")


def test_ls_and_show_say_what_runs_have_spent(store: str) -> None:
    drive(store, "one", DONE)
    (line,) = told("ls", "--spend").splitlines()
    assert line.split("\t")[4:] == [str(look("one")["tokens"]), "0"]
    (listed,) = map(json.loads, told("ls", "--spend", "--json").splitlines())
    assert listed["spend"] == look("one")["spend"]
    assert listed["spend"]["requests"] == 2


def test_show_says_what_a_held_call_waits_for_since_when_and_what_to_do(store: str) -> None:
    drive(store, "order 42", HELD)
    text = told("show", "order 42")
    assert "is held: it costs much" in text
    assert "perdure runs approve 'order 42' c1\n" in text
    assert "perdure runs deny 'order 42' c1 --reason TEXT\n" in text
    assert "decision on c1: hold by policy (it costs much)" in text
    one = waiting("order 42")
    hold = next(line for line in text.splitlines() if "hold by policy" in line)
    assert one["since"] == hold.split()[0]
    assert (one["reason"], one["may_have_run"], one["attempted_at"]) == ("held", False, None)


def test_show_says_that_a_halted_call_may_have_run_and_when(store: str) -> None:
    drive(store, "r", HALTS)
    text = told("show", "r")
    assert "status\thalted" in text
    assert "may have run: it was dispatched, and nobody knows what came of it" in text
    assert "perdure runs resolve r c1 --output TEXT\n" in text
    assert "perdure runs resolve r c1 --never-ran --min-age SECONDS\n" in text
    one = waiting("r")
    dispatch = next(line for line in text.splitlines() if "dispatch of c1" in line)
    assert one["since"] == one["attempted_at"] == dispatch.split()[0]
    assert (one["effect"], one["may_have_run"]) == ("once", True)


def test_show_asks_for_no_age_where_the_tool_has_a_timeout(store: str) -> None:
    drive(store, "r", MAILS)
    assert cast("list[str]", waiting("r")["todo"])[1] == "perdure runs resolve r c1 --never-ran"


def test_show_of_a_run_that_is_over_has_its_answer(store: str) -> None:
    drive(store, "r", DONE)
    text = told("show", "r")
    assert "answer\tIt is charged." in text
    assert "took\t2 turns, " in text
    assert text.endswith("closed: done\n")
    assert (look("r")["text"], look("r")["waiting"]) == ("It is charged.", [])


def test_show_says_what_was_told_and_not_taken_up(store: str) -> None:
    drive(store, "r", HELD)
    told("approve", "r", "c1", "--by", "ann")
    text = told("show", "r")
    assert "c1 approved by ann; the run takes it up when it is driven" in text
    assert "perdure runs approve" not in text
    assert waiting("r")["told"] == "c1 approved by ann"
    drive(store, "long", LONG)
    told("retry", "long", "--by", "bo")
    assert "told, and not taken up yet\n  told to go on by bo\n" in told("show", "long")


def test_show_says_what_may_be_done_about_a_run_that_a_limit_stopped(store: str) -> None:
    drive(store, "r", LONG)
    assert "stopped: max_turns; `perdure runs retry r` lets it go on" in told("show", "r")


def test_show_leads_to_what_waits_in_a_sub_agent_and_tells_what_it_did(store: str) -> None:
    cashier = Agent(
        ScriptedModel(HELD), name="cashier", tools=[charge], middleware=[AskFirst()]
    ).as_tool()
    boss: list[Turn | str] = [call("cashier", {"task": "Charge it."}, call_id="b1"), "All is well."]
    drive(store, "r", boss, tools=[cashier])
    text = told("show", "r")
    assert "b1 > c1  charge" in text
    assert "    waits for its agent, which waits for something\n" in text
    assert "  b1 > decision on c1: hold by policy (it costs much)\n" in text
    assert "b1 is suspended: it waits for its agent, which is input_required" in text
    (outer, inner) = cast("list[Json]", look("r")["waiting"])
    assert (outer["todo"], inner["path"]) == ([], ["b1"])
    approve, deny = cast("list[str]", inner["todo"])
    assert approve == f"perdure runs approve r c1 --session {inner['session']}"
    assert deny.startswith("perdure runs deny r c1 --session ")
    told(*shlex.split(approve)[2:])
    assert "c1 approved by" in told("show", "r")
    assert drive(store, "r", boss, tools=[cashier]).status == "done"


def test_show_says_until_when_a_call_sleeps(store: str) -> None:
    drive(store, "r", WAITS["sleep"])
    text = told("show", "r")
    assert "status\tsuspended, until 2100-01-01 00:00:00 UTC\n" in text
    assert "    sleeps until 2100-01-01 00:00:00 UTC (the night)\n" in text
    assert "c1 sleeps until 2100-01-01 00:00:00 UTC (the night)" in text
    assert 'step place of c1 gave "placed sleep"' in text
    one = waiting("r")
    assert (one["todo"], cast("Json", one["wait"])["due"]) == ([], NIGHT)


def test_show_says_for_which_signal_a_call_waits_until_it_is_told(store: str) -> None:
    drive(store, "r", WAITS["signal"])
    text = told("show", "r")
    assert "    waits for the signal paid\n" in text
    assert "perdure runs signal r paid JSON\n" in text
    assert told("signal", "r", "paid", '{"cents": 5}', "--by", "bank").startswith("r is told")
    text = told("show", "r")
    assert "perdure runs signal" not in text
    assert 'told, and not taken up yet\n  signal paid by bank: {"cents":5}\n' in text
    drive(store, "r", WAITS["signal"])
    assert 'c1 has the signal paid: {"cents":5}' in told("show", "r")
    assert outputs("r") == ['{"cents":5}']


def test_show_says_from_which_channel_a_call_receives_and_send_sends_to_it(store: str) -> None:
    drive(store, "r", WAITS["message"])
    text = told("show", "r")
    assert "    waits for a message of orders\n" in text
    assert "perdure runs send r orders JSON --key KEY\n" in text
    assert told("send", "r", "orders", "[1]", "--key", "7").startswith("r has message 7 in orders")
    assert refused("send", "r", "orders", "[2]", "--key", "7")[0] == 1
    assert "told, and not taken up yet\n  message 7 of orders" in told("show", "r")
    drive(store, "r", WAITS["message"])
    assert "c1 is done with message 7 of orders" in told("show", "r")
    assert outputs("r") == ["[1]"]


def test_show_says_what_a_call_asks_and_answer_answers_it(store: str) -> None:
    drive(store, "r", WAITS["age"])
    text = told("show", "r")
    assert "    asks (age): How old is age?\n" in text
    assert "perdure runs answer r c1 age JSON\n" in text
    assert refused("answer", "r", "c1", "age", '"old"')[0] == 1
    exit_code, words = refused("answer", "r", "c1", "size", "3")
    assert (exit_code, words.partition(": ")[2]) == (1, "it does not ask 'size', it asks 'age'")
    assert refused("answer", "r", "c1", "age", "old")[0] == 2
    assert told("answer", "r", "c1", "age", "41", "--by", "ann").startswith("c1 has its answer")
    assert waiting("r")["told"] == "c1 answered by ann: 41"
    drive(store, "r", WAITS["age"])
    assert "c1 is answered (age) by ann: 41" in told("show", "r")
    assert outputs("r") == ["41"]


def test_show_says_all_that_a_call_waits_for_at_once(store: str) -> None:
    drive(store, "r", WAITS["everything"])
    text = told("show", "r")
    assert "status\tinput_required\n" in text
    assert (
        "    sleeps until 2100-01-01 00:00:00 UTC (the night); waits for the signal paid; "
        "asks (age): How old?\n"
    ) in text
    assert cast("list[str]", waiting("r")["todo"]) == [
        "perdure runs signal r paid JSON",
        "perdure runs answer r c1 age JSON",
    ]


def test_show_names_the_step_that_may_have_been_taken_and_resolve_settles_it(store: str) -> None:
    drive(store, "r", WAITS["unsure"])
    text = told("show", "r")
    assert "may have taken its step pay the bill, and nobody knows what came of it\n" in text
    assert "perdure runs resolve r c1 --step 'pay the bill' --value JSON\n" in text
    assert "resolve r c1 --step 'pay the bill' --never-ran --min-age SECONDS\n" in text
    given = ("--step", "pay the bill", "--value", '{"tx": 7}', "--by", "ann")
    assert (
        told("resolve", "r", "c1", *given) == "c1 is resolved; the call goes on when r is driven\n"
    )
    drive(store, "r", WAITS["unsure"])
    assert 'step pay the bill of c1 gave {"tx":7}, says ann' in told("show", "r")
    assert outputs("r") == ['{"tx":7}']


def test_show_says_which_call_of_a_tool_may_have_been_made_and_with_what(store: str) -> None:
    drive(store, "r", SETTLES)
    text = told("show", "r")
    assert '/1 (charge {"cents":13}), and nobody knows what came of it\n' in text
    assert '/1 (charge {"cents":13}) of c1 starts, effect once' in text
    value = next(one for one in cast("list[str]", waiting("r")["todo"]) if "--value" in one)
    told(*shlex.split(value.replace("JSON", "'\"charged 13\"'"))[2:])
    drive(store, "r", SETTLES)
    assert outputs("r") == ["charged 13"]


def test_text_of_models_and_people_reaches_no_terminal_as_it_is(store: str) -> None:
    drive(store, "r", ["\x1b[2Jgone"])
    assert "\x1b" not in told("show", "r")
    assert "␛[2Jgone" in told("show", "r")


def test_tail_tells_what_happened_until_the_run_is_over(store: str) -> None:
    drive(store, "r", DONE)
    text = told("tail", "r")
    assert [line.split("  ")[1] for line in text.splitlines()][-2:] == [
        text.splitlines()[-2].split("  ")[1],
        "closed: done",
    ]
    assert "call charge" in text
    assert told("tail", "r", "--since", "3").count("\n") == text.count("\n") - 3
    lines = told("tail", "r", "--json").splitlines()
    assert json.loads(lines[-1])["type"] == "perdure:closed"
    assert lines == [json.dumps(json.loads(line), separators=(",", ":")) for line in lines]


def test_tail_of_a_run_that_goes_on_follows_it(store: str) -> None:
    drive(store, "r", HELD)
    with Terminal("runs", "tail", "r", env={"PERDURE_STORE": store}) as screen:
        screen.expect("decision on c1: hold by policy (it costs much)")
        told("deny", "r", "c1", "--reason", "too much", "--by", "ann")
        drive(store, "r", HELD)
        screen.expect("decision on c1: reject by human ann (Error: too much)")
        screen.expect("closed: done")
        screen.ends(0)


def test_tail_ends_with_ctrl_c(store: str) -> None:
    drive(store, "r", HELD)
    with Terminal("runs", "tail", "r", env={"PERDURE_STORE": store}) as screen:
        screen.expect("waiting: c1")
        screen.interrupt()
        screen.ends(130)
    assert "Traceback" not in screen.text


# --- telling -----------------------------------------------------------------------------------


def test_an_approved_call_runs_when_the_run_is_driven(store: str) -> None:
    drive(store, "r", HELD)
    assert told("approve", "r", "c1", "--arguments", '{"cents": 7}') == (
        "c1 is approved; it runs when r is driven\n"
    )
    assert drive(store, "r", HELD).status == "done"
    assert outputs("r") == ["charged 7"]


def test_a_denied_call_does_not_run_and_the_model_reads_why(store: str) -> None:
    drive(store, "r", HELD)
    told("deny", "r", "c1", "--reason", "too much", "--note", "ask bo", "--by", "ann")
    assert drive(store, "r", HELD).status == "done"
    assert outputs("r") == ["Error: too much"]
    assert "user: ask bo" in told("show", "r")


def test_a_halted_call_takes_the_output_that_somebody_says(store: str) -> None:
    drive(store, "r", HALTS)
    given = ("--evidence", '{"ledger": "ch_1"}', "--reason", "the bank has it", "--by", "ann")
    told("resolve", "r", "c1", "--output", "-", *given, given="charged 13")
    assert drive(store, "r", HALTS).status == "done"
    assert outputs("r") == ["charged 13"]
    assert 'answer by human ann (the bank has it), on evidence {"ledger":"ch_1"}' in told(
        "show", "r"
    )


def test_a_call_that_never_ran_runs_again(store: str) -> None:
    drive(store, "r", MAILS)
    told("resolve", "r", "c1", "--never-ran")
    assert drive(store, "r", MAILS).status == "halted"
    assert told("show", "r").count("dispatch of c1") == 2


def test_a_cancelled_run_is_closed_at_once_if_nobody_drives_it(store: str) -> None:
    drive(store, "r", HELD)
    assert told("cancel", "r", "--reason", "not wanted", "--by", "cy") == "r is cancelled\n"
    assert told("show", "r").endswith("closed: cancelled by cy (not wanted)\n")


def test_a_run_that_a_limit_stopped_goes_on_when_told(store: str) -> None:
    assert drive(store, "r", LONG).turns == 2
    told("retry", "r", "--by", "bo", "--reason", "nearly there")
    assert drive(store, "r", LONG).turns == 4
    assert "told to go on by bo (nearly there)" in told("show", "r")


def test_the_login_name_says_it_unless_another_is_given(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "dana")
    drive(store, "r", HELD)
    told("approve", "r", "c1")
    assert waiting("r")["told"] == "c1 approved by dana"


# --- refusals ----------------------------------------------------------------------------------


REFUSED = {
    "approve done c1": "run 'done' is over: done",
    "cancel done": "run 'done' is over: done",
    "approve halts c1": "call 'c1' of run 'halts' waits for no decision: it is in_flight",
    "deny halts c9": "call 'c9' of run 'halts' waits for no decision: there is no such call",
    "resolve held c1 --output x": "call 'c1' of run 'held' is not halted: it is held",
}


@pytest.mark.parametrize("command", REFUSED)
def test_what_a_run_refuses_ends_with_1(store: str, command: str) -> None:
    for run_id, script in (("done", DONE), ("halts", HALTS), ("held", HELD)):
        if run_id in command.split():
            drive(store, run_id, script)
    before = look(command.split()[1])
    assert refused(*shlex.split(command)) == (1, REFUSED[command])
    assert look(command.split()[1]) == before


def test_a_call_that_may_still_run_is_not_resolved_as_one_that_never_did(store: str) -> None:
    drive(store, "r", HALTS)
    exit_code, words = refused("resolve", "r", "c1", "--never-ran", "--min-age", "3600")
    assert exit_code == 1
    assert words.endswith("may still be running; wait until it is 3600 s old")


def test_a_second_word_that_differs_is_refused(store: str) -> None:
    drive(store, "r", HALTS)
    told("resolve", "r", "c1", "--output", "charged")
    exit_code, words = refused("resolve", "r", "c1", "--output", "not charged")
    assert (exit_code, words) == (1, "call 'c1' of run 'r' was resolved before: charged")


UNUSABLE = {
    "show nothing": "there is no run 'nothing'",
    "show ''": "there is no run ''",
    "show \udcff": "there is no run ",
    "approve r c1 --session elsewhere": "run 'r' has no session 'elsewhere'",
    "signal r paid card": "VALUE is no JSON: JSON is malformed: invalid character (byte 0); a text "
    "has quotes of its own: '\"card\"'",
    "ls --status nothing": "Invalid value for '--status': 'nothing' is not one of 'idle', ",
    "ls --store memory:": "memory: is empty in every process",
    "ls --store sqlite:///nowhere.db": "there is no store at 'nowhere.db'",
    "ls --store file:///dev/null": "'/dev/null' is no directory",
    "tail nothing": "there is no run 'nothing'",
    "cancel nothing": "there is no run 'nothing'",
    "resolve r c1": "say what it gave with --output TEXT, --failed WHY, or --never-ran",
    "resolve r c1 --output x --never-ran": "say what it gave with --output TEXT, --failed WHY",
    "resolve r c1 --output x --evidence {": "--evidence is no JSON: Input data was truncated",
    "ls --store nowhere:x": "no store for 'nowhere:x'; a store URL begins with one of",
    "retry r": "run 'r' cannot be retried: no limit stopped the run",
    "resolve r c1 --never-ran": "the tool of call 'c1' has no timeout",
    "approve r c1 --arguments [": "",
    "resolve r c1 --value 1": "say what it gave with --output TEXT, --failed WHY, or --never-ran",
    "resolve r c1 --step charge": "say what it gave with --value JSON, or --never-ran",
    "signal r paid {": "VALUE is no JSON: Input data was truncated",
}


@pytest.mark.parametrize("command", UNUSABLE)
def test_what_cannot_be_done_ends_with_2(store: str, command: str) -> None:
    drive(store, "r", HELD if command.startswith("approve") else HALTS)
    exit_code, words = refused(*shlex.split(command))
    assert exit_code == 2
    assert words.startswith(UNUSABLE[command])


def test_without_a_store_the_variable_is_named() -> None:
    done = Piped("runs", "ls")
    assert done.code == 2
    assert "PERDURE_STORE" in done.err


# --- on a screen -------------------------------------------------------------------------------


def test_everything_fits_a_screen(store: str) -> None:
    text = " ".join(["a long story"] * 60)
    two = turn(charging(13, "call_of_a_name_as_long_as_providers_give_1"), charging(500, "c2"))
    long = "orders/2026/a-name-that-somebody-made-of-many-words/42"
    drive(store, long, [two, text])
    drive(store, "short", [text])
    question = f"an age {text[:600]}"
    drive(store, "asks", [call("order", {"what": question}, call_id="c1")])
    drive(store, "sleeps", WAITS["sleep"])
    for arguments, seen in (
        (["ls"], "halted"),
        (["show", "short"], "a long sto…"),
        (["show", long], "is held: it costs much"),
        (["show", "asks"], "asks (age): How old is an age"),
        (["show", "sleeps"], "sleeps until 2100-01-01 00:00:00 UTC (the night)"),
    ):
        with Terminal("runs", *arguments, env={"PERDURE_STORE": store}) as screen:
            screen.ends(0)
        assert max(map(len, screen.lines)) <= COLUMNS, screen.text
        assert seen in screen.text


@pytest.mark.parametrize(
    "name",
    [
        *(
            "ls",
            "show",
            "tail",
            "approve",
            "deny",
            "resolve",
            "signal",
            "send",
            "answer",
            "cancel",
            "retry",
        )
    ],
)
def test_each_command_tells_its_exit_codes(name: str) -> None:
    command = runs.commands[name]
    text = command.get_help(click.Context(command, info_name=name, max_content_width=COLUMNS))
    assert "1    the run refuses" in text
    assert max(map(len, text.splitlines())) <= COLUMNS


def test_what_goes_on_below_a_line_stands_in_from_it(store: str) -> None:
    drive(store, "asks", [call("order", {"what": f"an age {'and a word ' * 30}"}, call_id="c1")])
    with Terminal("runs", "show", "asks", env={"PERDURE_STORE": store}) as screen:
        screen.ends(0)
    begin = screen.lines.index("waiting")
    waiting = screen.lines[begin + 1 : screen.lines.index("", begin)]
    assert len(waiting) > 8
    assert all(line.startswith("  ") for line in waiting), screen.text
    assert [line[:8].rstrip() for line in waiting].count("    asks") == 1


def test_what_cannot_be_written_is_told_in_a_line(store: str, tmp_path: Path) -> None:
    drive(store, "r", DONE)
    env = {"PERDURE_STORE": store}
    session = Piped("log", "export", "r", env=env)
    (tmp_path / "r.jsonl").write_text(session.out)
    for command in (
        ("log", "export", "r", "-o", f"{tmp_path}/none/r.jsonl"),
        ("log", "import", f"{tmp_path}/r.jsonl", "--store", "file:///dev/null/x"),
        ("doctor", "--store", "file:///dev/null"),
    ):
        done = Piped(*command, env=env)
        assert (done.code, done.out) == (2, ""), command
        assert done.err.count("\n") == 1, done.err


def test_a_command_that_looks_makes_no_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/typo/runs.db"
    for command in (("runs", "ls"), ("approvals", "ls"), ("log", "ls"), ("log", "reindex")):
        done = Piped(*command, "--store", url)
        assert (done.code, done.out) == (2, ""), command
        assert "there is no store at" in done.err
    assert not any(tmp_path.iterdir())
    done = Piped("doctor", "--store", url)
    assert done.code == 0
    assert done.out.startswith("warning ")
    assert "an empty one is made" in done.out


def test_what_looks_at_sessions_and_models_fits_a_screen(store: str) -> None:
    drive(store, "asks", [call("order", {"what": f"an age {'and a word ' * 30}"}, call_id="c1")])
    drive(store, "short", DONE)
    commands = [
        ("log", "show", "asks"),
        ("log", "tree", "asks"),
        ("log", "context", "asks"),
        ("log", "diff", "asks", "short"),
        ("models",),
    ]
    for command in commands:
        with Terminal(*command, env={"PERDURE_STORE": store}) as screen:
            screen.ends(0)
        assert max(map(len, screen.lines)) <= COLUMNS, screen.text
