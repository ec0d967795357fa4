"""Transactional tools: an effect in the log's own database stands with its output (LOG 6)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, cast

import pytest
import pytest_asyncio

from perdure import Agent, tool
from perdure.errors import FenceLost, NoTransactions, RunFailed, StaleVersion, StopRequested
from perdure.log.entries import AnyEntry, ItemEntry
from perdure.log.reading import read_lines
from perdure.log.store import Composed, Message, Store, Transactions
from perdure.loop import (
    Middleware,
    NextTool,
    ToolCallInfo,
    ToolOverride,
    ToolResultInfo,
    approve,
    invoke,
)
from perdure.stores import open_store
from perdure.testing import ScriptedModel, call, turn
from perdure.testing.scripted import Script
from perdure.testing.store_kit import chain, header
from perdure.tools import AsyncTx, Call, Secret, Tool, ToolResult, Transaction, Tx, current_call
from tests.stores.banks import Bank, PostgresBank, SqliteBank, careless, paying
from tests.stores.faults import Faults


class Case:
    """A bank, and what breaks it."""

    def __init__(self, bank: Bank, faults: Faults) -> None:
        self.bank = bank
        self.faults = faults
        self.entered: list[str] = []

    def agent(self, script: Script, *tools: Tool, **changes: object) -> Agent:
        chosen = tools or (paying(self.bank, lambda: self.entered.append("pay")),)
        return Agent(ScriptedModel(script), tools=chosen, store=self.bank.store, **changes)  # type: ignore[arg-type]

    async def entries(self, name: str = "chat") -> Sequence[AnyEntry]:
        (listed,) = [one for one in (await self.bank.store.list()).sessions if one.name == name]
        stored = await self.bank.store.read(listed.id)
        reading = read_lines(stored.header, stored.lines)
        assert reading.faults == ()
        return reading.session.entries

    async def outputs(self) -> list[str]:
        """The outputs on the record, in order, and what landed before its place."""
        found: list[str] = []
        for entry in await self.entries():
            if entry.type == "perdure:result":
                found.append(f"landed {entry.members['output']['output']}")  # type: ignore[index]
            elif isinstance(entry, ItemEntry) and b"function_call_output" in bytes(entry.item):
                found.append(entry.members["item"]["output"])  # type: ignore[index]
        return found


@pytest_asyncio.fixture(params=["sqlite", "postgres"])
async def case(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Case]:
    faults = Faults()
    bank: Bank
    if request.param == "sqlite":
        bank = SqliteBank(tmp_path / "bank.db", at=faults)
    else:
        server: str = request.getfixturevalue("postgres_server")
        schema: str = request.getfixturevalue("postgres_schema")
        bank = PostgresBank(server, schema, at=faults)
        await bank.open()
    yield Case(bank, faults)
    await bank.store.close()


PAY = call("pay", {"cents": 5})


async def said(agent: Agent) -> str:
    async with agent.session("chat") as chat:
        return (await chat.send("Pay.")).text


# --- both or neither --------------------------------------------------------------------------


async def test_what_a_tool_did_stands_with_its_output(case: Case) -> None:
    assert await said(case.agent([PAY, "Paid."])) == "Paid."
    assert case.bank.paid() == [5]
    assert await case.outputs() == ['{"payments":1}']


async def test_a_function_that_fails_leaves_nothing_and_the_model_reads_why(case: Case) -> None:
    def fails() -> None:
        raise ValueError("no cover")

    agent = case.agent([PAY, "Too bad."], paying(case.bank, fails))
    assert await said(agent) == "Too bad."
    assert case.bank.paid() == []
    assert await case.outputs() == ["Error: tool 'pay' panicked: no cover"]


async def test_a_result_that_is_no_json_undoes_what_was_done(case: Case) -> None:
    pays = case.bank.pays(5)

    def plain(tx: Tx) -> object:
        cast("Callable[[Tx], object]", pays)(tx)
        return object()

    @tool(effect="transactional")
    def pay(cents: int) -> Transaction:
        if isinstance(case.bank, SqliteBank):
            return plain

        async def later(tx: object) -> object:
            await cast("Callable[[object], Awaitable[object]]", pays)(tx)
            return object()

        return later

    await said(case.agent([PAY, "Too bad."], pay))
    assert case.bank.paid() == []
    (output,) = await case.outputs()
    assert "its result is not JSON" in output


async def test_a_body_that_returns_no_function_has_done_nothing(case: Case) -> None:
    @tool(effect="transactional")
    def pay(cents: int) -> str:
        return "paid"

    await said(case.agent([PAY, "Hm."], pay))
    assert await case.outputs() == [
        "Error: tool 'pay' is transactional, and its body returned no function that does it"
    ]


async def test_an_output_lands_with_its_effect_and_keeps_its_place(case: Case) -> None:
    paid = asyncio.Event()

    @tool
    async def slow() -> str:
        await paid.wait()
        return "slow"

    class Tells(Middleware):
        async def after_tool_call(self, info: ToolResultInfo) -> ToolOverride | None:
            if info.call.name == "pay":
                paid.set()
            return None

    both = turn(call("slow"), PAY)
    agent = case.agent([both, "Done."], slow, paying(case.bank), middleware=[Tells()])
    assert await said(agent) == "Done."
    assert await case.outputs() == ['landed {"payments":1}', "slow", '{"payments":1}']


async def test_what_stands_around_the_tool_cannot_change_what_was_committed(case: Case) -> None:
    class Changes(Middleware):
        async def wrap_tool_call(self, info: ToolCallInfo, next_tool: NextTool) -> ToolResult:
            await next_tool()
            raise ValueError("wrapped")

        async def after_tool_call(self, info: ToolResultInfo) -> ToolOverride | None:
            return ToolOverride(result=ToolResult("overridden"))

    agent = case.agent([PAY, "Done."], middleware=[Changes()])
    async with agent.session("chat") as chat:
        result = await chat.send("Pay.")
    (output,) = await case.outputs()
    assert output == '{"payments":1}'
    assert output in [getattr(item, "output", None) for item in result.items]


async def test_a_secret_does_not_leave_the_function(case: Case) -> None:
    @tool(effect="transactional")
    def pay(
        cents: int, key: Annotated[str, Secret(lambda: "s3cr3tkey", reference="key")]
    ) -> Transaction:
        return case.bank.runs(f"DROP {key}")

    await said(case.agent([PAY, "Done."], pay))
    (output,) = await case.outputs()
    assert "s3cr3t" not in output


# --- a commit whose outcome is unknown --------------------------------------------------------


@pytest.mark.parametrize(("point", "calls"), [("commit", 2), ("committed", 1)])
async def test_an_unknown_commit_is_settled_by_looking_for_the_output(
    case: Case, point: str, calls: int
) -> None:
    def breaks() -> None:
        case.entered.append("pay")
        if len(case.entered) == 1:
            case.faults.fail(point, lambda: OSError("gone"))  # type: ignore[arg-type]

    assert await said(case.agent([PAY, "Paid."], paying(case.bank, breaks))) == "Paid."
    assert len(case.entered) == calls
    assert case.bank.paid() == [5]
    assert await case.outputs() == ['{"payments":1}']


# --- a dispatch without an output -------------------------------------------------------------


async def test_a_call_that_was_cut_before_it_committed_runs_again(case: Case) -> None:
    entered = asyncio.Event()

    @tool(effect="transactional")
    async def pay(cents: int) -> Transaction:
        entered.set()
        await asyncio.Event().wait()
        return case.bank.pays(cents)

    agent = case.agent([PAY], pay, grace=0.0)
    async with agent.session("chat") as chat:
        sending = asyncio.create_task(chat.send("Pay."))
        await entered.wait()
        chat.abort("enough")
        assert (await sending).status == "aborted"
        (pending,) = chat.state.pending
        assert pending.may_have_run
    async with case.agent([PAY, "Paid."]).session("chat") as chat:
        assert (await chat.resume(approve(pending.call.call_id))).text == "Paid."
    assert case.bank.paid() == [5]


# --- where it is refused ----------------------------------------------------------------------


@pytest.mark.parametrize("run_id", [None, "order-42"])
@pytest.mark.parametrize("kind", ["memory", "jsonl", "none"])
async def test_the_definition_is_refused_where_nothing_commits_it(
    kind: str, run_id: str | None, tmp_path: Path
) -> None:
    @tool(effect="transactional")
    def pay(cents: int) -> Transaction:
        raise AssertionError("it ran")

    path = tmp_path / "sessions"
    url = {"memory": "memory:", "jsonl": f"file://{path}", "none": ""}[kind]
    agent = Agent(ScriptedModel([PAY]), tools=[pay], store=open_store(url) if url else "")
    with pytest.raises(NoTransactions) as refused:
        await (agent.run("Pay.", run_id=run_id) if run_id else agent.run("Pay."))
    assert str(refused.value) == (
        "tool 'pay' is transactional, and its effect would not commit with the log here; "
        "give the agent a sqlite: or postgresql: store, or the tool another effect"
    )
    if isinstance(agent.store, str):
        return
    assert (await agent.store.list()).sessions == ()
    await agent.store.close()
    assert not path.exists() or not list(path.rglob("*.jsonl"))


async def test_an_effect_that_turns_out_transactional_is_refused_before_it_is_dispatched() -> None:
    entered: list[int] = []

    @tool(effect=lambda arguments: "transactional")
    def pay(cents: int) -> None:
        entered.append(cents)

    with pytest.raises(RunFailed) as failed:
        await Agent(ScriptedModel([PAY, "Paid."]), tools=[pay]).run("Pay.")
    assert isinstance(failed.value.cause, NoTransactions)
    assert entered == []


async def test_no_tool_calls_a_transactional_one(case: Case) -> None:
    @tool
    async def outer() -> str:
        return str((await invoke("pay", {"cents": 5})).output)

    await said(case.agent([call("outer"), "Hm."], outer, paying(case.bank)))
    assert case.bank.paid() == []
    assert await case.outputs() == ["Error: tool 'pay' is transactional: no tool can call it"]


async def test_the_function_finds_no_call_to_step_in(case: Case) -> None:
    def asks() -> None:
        current_call()

    await said(case.agent([PAY, "Hm."], paying(case.bank, asks)))
    assert case.bank.paid() == []


async def test_a_handle_of_the_call_is_closed_when_the_function_runs(case: Case) -> None:
    @tool(effect="transactional")
    def pay(cents: int, handle: Call) -> Transaction:
        return case.bank.pays(cents, lambda: handle.progress("half"))

    await said(case.agent([PAY, "Hm."], pay))
    assert case.bank.paid() == []


# --- under the row lock -----------------------------------------------------------------------


async def transact(store: Store, bank: Bank, fence: object, *, version: int = 1) -> object:
    assert isinstance(store, Transactions)
    (entry,) = chain(2)[1:]
    return await store.transact(
        "s1",
        version,
        fence,  # type: ignore[arg-type]
        bank.pays(5),
        lambda value: Composed(entry),
    )


async def test_a_stop_keeps_the_function_from_being_called(case: Case) -> None:
    store = case.bank.store
    await store.create(header(), batch=chain(1))
    lease = await store.lease("s1", holder="test")
    await store.put("s1", Message(id="stop"), stop=True)
    with pytest.raises(StopRequested):
        await transact(store, case.bank, lease.fence)
    assert case.bank.paid() == []
    assert (await store.read("s1")).version == 1


async def test_a_stale_driver_calls_nothing(case: Case) -> None:
    store = case.bank.store
    await store.create(header(), batch=chain(1))
    lease = await store.lease("s1", holder="test")
    with pytest.raises(StaleVersion):
        await transact(store, case.bank, lease.fence, version=0)
    await store.release(lease)
    await store.lease("s1", holder="next")
    with pytest.raises(FenceLost):
        await transact(store, case.bank, lease.fence)
    assert case.bank.paid() == []


# --- what a function may not do ---------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT here",
        "ATTACH ':memory:' AS other",
        "PRAGMA synchronous = OFF",
        "SELECT line FROM perdure_entries",
        "UPDATE PERDURE_roots SET nonce = ''",
        "CREATE TRIGGER late AFTER INSERT ON perdure_entries BEGIN SELECT 1; END",
        "CREATE TEMP TABLE perdure_roots (session)",
        "DROP TABLE perdure_messages",
        "ALTER TABLE perdure_sessions RENAME TO mine",
    ],
)
async def test_sqlite_denies_what_would_break_the_log(tmp_path: Path, statement: str) -> None:
    case = Case(SqliteBank(tmp_path / "bank.db"), Faults())
    tool = careless(case.bank, [statement, "INSERT INTO noted VALUES (1)"])
    await said(case.agent([call("run"), "Done."], tool))
    first, second = (await case.outputs())[0].split(" | ")
    assert first.startswith("TransactionRefused: refused: ")
    assert second == "ran"
    assert case.bank.paid() == [1]  # what it did otherwise stands
    assert await said(case.agent(["Hello."] * 3)) == "Hello."
    await case.bank.store.close()


async def test_insert_or_rollback_ends_the_transaction_and_the_call_has_failed(
    tmp_path: Path,
) -> None:
    case = Case(SqliteBank(tmp_path / "bank.db"), Faults())
    ends = "INSERT OR ROLLBACK INTO paid VALUES (1)"
    tool = careless(case.bank, [ends, "INSERT INTO noted VALUES (1)"])
    assert await said(case.agent([call("run"), "Hm."], tool)) == "Hm."
    assert await case.outputs() == [
        f"Error: the transaction was ended by {ends!r}; nothing of it stands"
    ]
    assert case.bank.paid() == []
    await case.bank.store.close()


async def test_on_sqlite_the_function_is_plain(tmp_path: Path) -> None:
    case = Case(SqliteBank(tmp_path / "bank.db"), Faults())

    @tool(effect="transactional")
    def pay(cents: int) -> Transaction:
        async def later(tx: object) -> None:
            raise AssertionError("it ran")

        return later

    await said(case.agent([PAY, "Hm."], pay))
    (output,) = await case.outputs()
    assert "on SQLite the function of a transactional tool is a plain one" in output
    await case.bank.store.close()


async def test_a_handle_is_of_its_thread_and_its_time(tmp_path: Path) -> None:
    bank = SqliteBank(tmp_path / "bank.db")
    case = Case(bank, Faults())
    kept: list[Tx] = []
    errors: list[str] = []

    def use() -> None:
        try:
            kept[0].execute("DELETE FROM paid")
        except Exception as error:  # noqa: BLE001 - whatever it is
            errors.append(str(error))

    @tool(effect="transactional")
    def pay(cents: int) -> Transaction:
        def function(tx: Tx) -> object:
            kept.append(tx)
            if len(kept) > 1:
                use()
            thread = threading.Thread(target=use)
            thread.start()
            thread.join()
            return cast("Callable[[Tx], object]", bank.pays(cents))(tx)

        return function

    await said(case.agent([PAY, call("pay", {"cents": 6}), "Paid."], pay))
    other = "a transaction is used on the thread it was given on, only"
    assert errors == [other, "the transaction is over", other]
    assert bank.paid() == [5, 6]
    await bank.store.close()


async def test_a_transaction_shares_its_commit_with_nobody(tmp_path: Path) -> None:
    faults = Faults()
    bank = SqliteBank(tmp_path / "bank.db", at=faults)
    store = bank.store
    leases = []
    for number in range(3):
        await store.create(header(f"s{number}"), batch=chain(1))
        leases.append(await store.lease(f"s{number}", holder="test"))
    before = faults.counts["committed"]
    entry = chain(2)[1]
    append = [store.append(f"s{n}", 1, leases[n].fence, [entry]) for n in (0, 2)]
    first, second = (asyncio.ensure_future(one) for one in append)
    await asyncio.gather(first, transact(store, bank, leases[1].fence), second)
    assert faults.counts["committed"] - before >= 2
    assert bank.paid() == [5]
    await store.close()


# --- Postgres ---------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def postgres(postgres_server: str, postgres_schema: str) -> AsyncGenerator[Case]:
    bank = PostgresBank(postgres_server, postgres_schema)
    await bank.open()
    yield Case(bank, Faults())
    await bank.store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "COMMIT",
        "/* a comment */ commit and chain",
        "/* /* nested */ SELECT */ COMMIT",
        "-- a line\n ROLLBACK",
        "SAVEPOINT here",
        "SET LOCAL synchronous_commit = off",
        "PREPARE TRANSACTION 'x'",
        "COPY paid TO STDOUT",
        "",
    ],
)
async def test_postgres_runs_only_what_reads_and_changes_rows(
    postgres: Case, statement: str
) -> None:
    noted = "INSERT INTO noted VALUES (1)"
    await said(postgres.agent([call("run"), "Done."], careless(postgres.bank, [statement, noted])))
    first, second = (await postgres.outputs())[0].split(" | ")
    assert first.startswith("TransactionRefused: refused: ")
    assert second == "ran"
    assert postgres.bank.paid() == [1]


@pytest.mark.parametrize(
    "statement", ["SELECT 1; COMMIT", "SELECT 1/0", "SELECT nothing FROM nowhere"]
)
async def test_on_postgres_a_statement_that_failed_ends_the_transaction(
    postgres: Case, statement: str
) -> None:
    tool = careless(postgres.bank, [statement, "SELECT 1"])
    assert await said(postgres.agent([call("run"), "Hm."], tool)) == "Hm."
    (output,) = await postgres.outputs()
    assert output == f"Error: the transaction was ended by a statement in it: {statement!r}"
    assert postgres.bank.paid() == []


async def test_on_postgres_the_function_is_async(postgres: Case) -> None:
    @tool(effect="transactional")
    def pay(cents: int) -> Transaction:
        return lambda tx: "paid"

    await said(postgres.agent([PAY, "Hm."], pay))
    (output,) = await postgres.outputs()
    assert "on Postgres the function of a transactional tool is async" in output


async def test_a_connection_that_breaks_between_two_statements_begins_the_payment_anew(
    postgres: Case,
) -> None:
    calls: list[int] = []

    @tool(effect="transactional")
    def pay(cents: int) -> Transaction:
        async def later(tx: AsyncTx) -> str:
            calls.append(cents)
            await tx.execute("INSERT INTO paid VALUES ($1)", (cents,))
            if len(calls) == 1:
                await tx.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            await tx.execute("INSERT INTO noted VALUES ($1)", (cents,))
            return "paid"

        return later

    assert await said(postgres.agent([PAY, "Paid."], pay)) == "Paid."
    assert (calls, postgres.bank.paid()) == ([5, 5], [5])
    assert await postgres.outputs() == ["paid"]


async def test_a_function_cannot_loosen_the_commit(postgres: Case) -> None:
    import psycopg

    assert isinstance(postgres.bank, PostgresBank)
    with psycopg.connect(postgres.bank.url) as connection:
        connection.execute(
            b"CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            b"INSERT INTO paid SELECT 100 WHERE current_setting('synchronous_commit') "
            b"= 'on'; RETURN NULL; END $$"
        )
        connection.execute(
            b"CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON paid DEFERRABLE "
            b"INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.cents = 1) "
            b"EXECUTE FUNCTION tell()"
        )
    loosen = "SELECT set_config('synchronous_commit', 'off', true)"
    noted = "INSERT INTO noted VALUES (1), (100)"
    await said(postgres.agent([call("run"), "Done."], careless(postgres.bank, [loosen, noted])))
    assert sorted(postgres.bank.paid()) == [1, 100]
