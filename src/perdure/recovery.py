"""Recovery: whoever serves drives the runs that want a driver and have none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from perdure import durable
from perdure.durable import DEFAULT_CONCURRENCY, DEFAULT_EVERY, Recovered, Recovering, Recovery
from perdure.errors import ConfigError
from perdure.log import Store

if TYPE_CHECKING:
    from perdure.agent import Agent
    from perdure.programs import Program


async def recover(
    *agents: Agent[Any],
    programs: Sequence[Program[Any]] = (),
    store: str | Store = "",
    concurrency: int = DEFAULT_CONCURRENCY,
) -> list[Recovered]:
    """Drive every run of these agents and programs that wants a driver and has none, once.

    A run wants one when its process died, when it failed, when its time has come, or when somebody
    has told it something. One that waits for a person is left alone, and so is one that is driven.

    Args:
        agents: Whose runs. A run knows its agent by name, so names must differ.
        programs: The same of programs without a model.
        store: Where they are; the first agent's store, or program's, unless given.
        concurrency: How many are driven at once.

    Raises:
        ConfigError: No agent or program is given, one is none, two share a name, or there is no
            store.
        LogError: The store could not say which runs there are.
    """
    return await durable.recover(
        agents,
        _store_of(agents, programs, store),
        Recovery(concurrency=concurrency),
        programs=programs,
    )


def recovering(
    *agents: Agent[Any],
    programs: Sequence[Program[Any]] = (),
    store: str | Store = "",
    every: float = DEFAULT_EVERY,
    concurrency: int = DEFAULT_CONCURRENCY,
    on_recovered: Callable[[Recovered], None] | None = None,
) -> Recovering:
    """Recover again and again, in the background of an `async with` block.

    Example:
        `async with recovering(agent): await serve()`

    Leaving the block tells the drives to stop, waits for them to wind down, and gives their leases
    back, so that another process can go on at once.

    Args:
        agents: Whose runs. A run knows its agent by name, so names must differ.
        programs: The same of programs without a model.
        store: Where they are; the first agent's store, or program's, unless given.
        every: Seconds between two looks. A run that failed is tried again after a growing pause.
        concurrency: How many are driven at once.
        on_recovered: Hears of each run that was driven.

    Raises:
        ConfigError: No agent or program is given, one is none, two share a name, or there is no
            store.
    """
    recovery = Recovery(concurrency=concurrency, on_recovered=on_recovered)
    return Recovering(
        agents,
        _store_of(agents, programs, store),
        every=every,
        recovery=recovery,
        programs=programs,
    )


def _store_of(
    agents: Sequence[Agent[Any]], programs: Sequence[Program[Any]], store: str | Store
) -> Store:
    _check_drivers(agents, programs)
    drivers: tuple[Agent[Any] | Program[Any], ...] = (*agents, *programs)
    if not drivers:
        raise ConfigError("name the agents or programs whose runs are to be recovered")
    url = store or drivers[0].store
    if not url:
        raise ConfigError(f"{drivers[0].name!r} has no store; give one")
    return drivers[0].opened(url)


def _check_drivers(agents: object, programs: object) -> None:
    """Refuse what no run knows as its own: a program among agents would find none.

    Raises:
        ConfigError: Something is neither, or stands at the other's place.
    """
    for given, what in ((agents, "agents"), (programs, "programs")):
        if not isinstance(given, list | tuple):
            raise ConfigError(f"programs is a list of programs, not {given!r:.60}")
        for one in cast("Sequence[object]", given):
            if not hasattr(one, "tools_now") or isinstance(one, type):
                raise ConfigError(f"{what} to be recovered: {one!r:.60} is none")
            if hasattr(one, "body") != (what == "programs"):
                raise ConfigError(
                    f"{one!r:.60} does not stand among the {what}: "
                    "recover(agent, programs=[program])"
                )
