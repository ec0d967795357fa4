"""A run with sub-agents, as a process that somebody kills: `python -m tests.budgets.killed`."""

from __future__ import annotations

import asyncio
import sys

from perdure import Agent, Budget, OpenResponses, Retry, Settings, tool
from perdure.stores.sqlite import SqliteStore

TASKS = 2
LOOKS = 2


@tool(effect="none")
async def look(n: int) -> str:
    """Look something up."""
    return f"seen {n}"


def lead(base_url: str, store: SqliteStore, budget: Budget | None = None) -> Agent:
    """An agent that gives two others work, all over HTTP."""
    client = OpenResponses(base_url, api_key="k")
    retry = Retry(max_attempts=5, backoff=lambda _attempt, _error: 0.0)
    short = Settings(max_tokens=40)
    kid = Agent(
        client,
        model_name="kid",
        name="kid",
        description="Looks.",
        tools=[look],
        retry=retry,
        settings=short,
    )
    return Agent(
        client,
        model_name="lead",
        tools=[kid.as_tool()],
        store=store,
        retry=retry,
        settings=short,
        budget=budget,
        sequential=True,
    )


async def main(base_url: str, path: str, tokens: str) -> None:
    """Run to the end, and say how it stands."""
    store = SqliteStore(path)
    budget = Budget(tokens=int(tokens)) if tokens else None
    result = await lead(base_url, store, budget).run("Go.", run_id="r")
    sys.stdout.write(f"{result.status} {result.cause}\n")
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
