"""Where the work happens: when it is written, and how a sub-agent's is told (situations 72, 73)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from perdure import Agent
from perdure.errors import ConfigError
from perdure.log import Filters, Session, read_lines, subsession_id
from perdure.log.entries import EnvEntry
from perdure.log.environment import Env, EnvAsked, EnvSource, env_of
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call

CALL = "call_t0_1"
HERE: Env = {"cwd": "/work", "acme:region": {"zone": "b", "rank": 1}}


def agent_of(store: MemoryStore, env: EnvSource | None, **members: object) -> Agent:
    script = ["one", "two", "three", "four", "five", "six"]
    agent: Agent = Agent(ScriptedModel(script), store=store, env=env)
    return agent.with_(**members) if members else agent


async def read(store: MemoryStore, session: str) -> Session:
    stored = await store.read(session)
    reading = read_lines(stored.header, stored.lines)
    assert reading.faults == ()
    return reading.session


async def named(store: MemoryStore, name: str = "chat") -> Session:
    (listed,) = (await store.list(Filters(name=name))).sessions
    return await read(store, listed.id)


def written(session: Session) -> list[Env | None]:
    return [env_of(one) for one in session.entries if isinstance(one, EnvEntry)]


async def sent(store: MemoryStore, *envs: EnvSource | None) -> Session:
    """A chat that is taken up again for each environment."""
    for env in envs:
        async with agent_of(store, env).session("chat") as chat:
            await chat.send("hi")
    return await named(store)


async def test_it_is_written_behind_the_start_of_a_drive_and_once() -> None:
    store = MemoryStore()
    async with agent_of(store, HERE).session("chat") as chat:
        await chat.send("hi")
        await chat.send("again")
    session = await named(store)
    assert written(session) == [HERE]
    (entry,) = [one for one in session.entries if isinstance(one, EnvEntry)]
    start = session.entry(entry.parent or "")
    assert (start.type, start.members["phase"]) == ("run", "start")
    assert session.view().env == entry
    assert session.header.cwd == "/work"
    assert [one.name for one in (await store.list(Filters(cwd="/work"))).sessions] == ["chat"]


async def test_it_is_compared_by_value_with_every_member() -> None:
    same: Env = {"acme:region": {"rank": 1.0, "zone": "b"}, "cwd": "/work"}
    other: Env = {"cwd": "/work", "acme:region": {"zone": "c", "rank": 1}}
    more: Env = {**other, "acme:more": None}
    session = await sent(MemoryStore(), HERE, same, other, other, more, None)
    assert written(session) == [HERE, other, more]
    assert env_of(session.view().env) == more


async def test_a_function_is_asked_before_every_drive_and_may_leave_what_is_in_force() -> None:
    asked: list[EnvAsked] = []

    async def host(about: EnvAsked) -> Env | None:
        asked.append(about)
        return [HERE, None, {"cwd": "/elsewhere"}][len(asked) - 1]

    store = MemoryStore()
    async with agent_of(store, host).session("chat") as chat:
        for _ in range(3):
            await chat.send("hi")
    session = await named(store)
    assert written(session) == [HERE, {"cwd": "/elsewhere"}]
    assert [one.before for one in asked] == [None, HERE, HERE]
    assert {(one.session, one.parent, one.call_id) for one in asked} == {(session.id, "", "")}


async def test_a_run_by_id_is_listed_under_its_directory_and_tells_where_it_works() -> None:
    store = MemoryStore()
    await agent_of(store, HERE).run("go", run_id="order-1")
    session = await named(store, "order-1")
    assert (session.header.cwd, written(session)) == ("/work", [HERE])


async def child(store: MemoryStore, *, boss: EnvSource | None, clerk: EnvSource | None) -> Session:
    """The session of a sub-agent."""
    worker = Agent(ScriptedModel(["Filed."]), name="clerk", env=clerk)
    model = ScriptedModel([call("clerk", {"task": "file it"}), "Done."])
    agent = Agent(model, name="boss", tools=[worker.as_tool()], store=store, env=boss)
    async with agent.session("chat") as chat:
        await chat.send("go")
    return await read(store, subsession_id((await named(store)).id, CALL))


async def test_a_sub_agent_tells_its_own_environment_and_not_its_parents() -> None:
    sandbox: Env = {"cwd": "/sandbox", "workspace": {"kind": "container", "ref": "c1"}}
    found = await child(MemoryStore(), boss=HERE, clerk=sandbox)
    assert written(found) == [sandbox]
    assert found.header.cwd == "/work"  # where its parent works: so that listings find it


async def test_the_host_is_asked_about_a_sub_agent_too() -> None:
    asked: list[EnvAsked] = []

    def host(about: EnvAsked) -> Env:
        asked.append(about)
        return {"cwd": f"/box/{about.call_id}"} if about.call_id else HERE

    store = MemoryStore()
    found = await child(store, boss=host, clerk=None)
    parent = await named(store)
    assert written(found) == [{"cwd": f"/box/{CALL}"}]
    assert written(parent) == [HERE]
    assert asked[-1] == EnvAsked(found.id, parent.id, CALL, "clerk", HERE)
    assert found.header.cwd == "/work"


async def test_without_a_host_a_sub_agent_works_where_its_parent_does() -> None:
    assert written(await child(MemoryStore(), boss=HERE, clerk=None)) == [HERE]
    assert written(await child(MemoryStore(), boss=None, clerk=None)) == []


async def test_an_environment_that_only_the_record_knows_is_taken_over() -> None:
    store = MemoryStore()
    await sent(store, HERE)
    worker = Agent(ScriptedModel(["Filed."]), name="clerk")
    model = ScriptedModel(["one", call("clerk", {"task": "file it"}), "Done."])
    async with Agent(model, tools=[worker.as_tool()], store=store).session("chat") as chat:
        await chat.send("go")
    found = await read(store, subsession_id((await named(store)).id, "call_t1_1"))
    assert written(found) == [HERE]


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ("/work", "an environment is a mapping"),
        ({"id": "x"}, "cannot have the member 'id'"),
        ({"cwd": 7}, "no entry can hold"),
        ({"acme:n": float("nan")}, "no entry can hold"),
        ({"acme:text": "\ud800"}, "no entry can hold"),
        ({"acme:x": object()}, "no entry can hold"),
    ],
)
async def test_what_is_no_environment_is_refused(env: object, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        agent_of(MemoryStore(), env)  # type: ignore[arg-type]
    assert says in str(refused.value)
    if not isinstance(env, Mapping):
        return
    store = MemoryStore()
    async with agent_of(store, lambda _: env).session("chat") as chat:  # pyright: ignore[reportUnknownLambdaType]
        with pytest.raises(ConfigError):
            await chat.send("hi")
    assert written(await named(store)) == []
