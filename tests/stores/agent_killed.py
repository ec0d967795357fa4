"""Agents that charge a card, for processes that are killed on the way."""

from __future__ import annotations

import os

from perdure import Agent, tool
from perdure.log.store import Store
from perdure.testing import ScriptedModel, call
from perdure.testing.scripted import Script
from tests.stores.banks import Bank, Between, nothing, paying


def agent_of(store: Store, charges: str, script: Script) -> Agent:
    """An agent whose one tool charges a card, in a file."""

    @tool(effect="once")
    async def charge(cents: int) -> str:
        """Charge a card."""
        handle = os.open(charges, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(handle, f"{cents}\n".encode())
        os.close(handle)
        return "charged"

    return Agent(ScriptedModel(script), tools=[charge], store=store)


async def converse(store: Store, name: str, charges: str) -> str:
    """One send, in which the card is charged."""
    agent = agent_of(store, charges, [call("charge", {"cents": 5}), "It is done."])
    async with agent.session(name) as chat:
        return (await chat.send("Charge my card.")).text


def cents_of(name: str) -> int:
    """What is paid in a session, of which no two pay the same."""
    return int(name.rpartition("-")[2])


async def pay(bank: Bank, name: str, between: Between = nothing) -> str:
    """One send, in which something is paid by a transactional tool."""
    model = ScriptedModel([call("pay", {"cents": cents_of(name)}), "It is done."])
    agent = Agent(model, tools=[paying(bank, between)], store=bank.store)
    async with agent.session(name) as chat:
        return (await chat.send("Pay.")).text


async def go_on_paying(bank: Bank, name: str) -> str:
    """The next process takes the session up and says something harmless."""
    agent = Agent(ScriptedModel(["Hello."] * 3), tools=[paying(bank)], store=bank.store)
    async with agent.session(name) as chat:
        return (await chat.send("Hello?")).text


async def go_on(store: Store, name: str, charges: str) -> str:
    """The next process takes the session up and says something harmless."""
    agent = agent_of(store, charges, ["Hello."] * 3)
    async with agent.session(name) as chat:
        return (await chat.send("Hello?")).text
