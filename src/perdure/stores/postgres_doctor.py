"""What a Postgres store says of itself, above all whether its commits survive (LOG 1.8)."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from perdure.stores.postgres_pool import Transaction
from perdure.stores.upkeep import Finding

_SKEW = 5.0  # seconds that clocks may differ

_SETTINGS = """
SELECT current_setting('server_version'), current_setting('fsync'),
    current_setting('full_page_writes'), current_setting('synchronous_standby_names'),
    pg_is_in_recovery(), extract(epoch FROM clock_timestamp())::float8,
    (SELECT count(*) FROM pg_stat_replication),
    (SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'async')
"""


async def examine(transaction: Transaction, now: float) -> tuple[Finding, ...]:
    """What is right with the server, and what is not.

    Args:
        transaction: Where to ask.
        now: The time of this machine, in seconds since the Unix epoch.
    """
    return tuple([finding async for finding in _findings(transaction, now)])


async def _findings(transaction: Transaction, now: float) -> AsyncGenerator[Finding]:
    row = await transaction.row(_SETTINGS)
    version, fsync, pages, names, recovering, clock, standbys, behind = row
    yield Finding("ok", f"Postgres {version}, schema {transaction.schema!r}")
    if recovering:
        yield Finding("error", "the server is a standby", "name the primary in the URL")
    for name, value in (("fsync", fsync), ("full_page_writes", pages)):
        if value != "on":
            yield Finding(
                "error",
                f"{name} is {value!r}: a crash of the server loses acknowledged commits",
                f"set {name} = on",
            )
    if behind and not names:
        yield Finding(
            "warning",
            f"{behind} of {standbys} standbys follow asynchronously: a failover to one of them may "
            "lose acknowledged commits, and an effect may then happen twice",
            "set synchronous_standby_names, or accept it",
        )
    elif standbys:
        yield Finding("ok", f"commits wait for standbys: {names}")
    if abs(clock - now) > _SKEW:
        yield Finding(
            "warning",
            f"the server's clock and this machine's are {abs(clock - now):.0f} s apart",
            "synchronise both; due times are of the machines that drive",
        )
