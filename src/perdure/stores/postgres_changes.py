"""Leases, messages, blobs, erasure and deletion in Postgres: work inside one transaction.

Leases lapse by the server's clock, which all drivers share.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.errors import ConfigError, FenceLost, Leased, NoEntry, NoSession
from perdure.log.entries import decode_entry
from perdure.log.ids import digest
from perdure.log.store import Fence, Lease, Message, Put
from perdure.log.writing import erased_line
from perdure.stores.postgres_append import check_fence, lock, settle
from perdure.stores.postgres_pool import Transaction

IN_FORCE = (
    "(nonce <> '' AND until > clock_timestamp() "
    "AND until <= clock_timestamp() + (seconds + 1) * interval '1 second')"
)
"""Whether a lease keeps others out. One that would last longer than was asked for is of a clock
that was set back since."""


async def key_of(transaction: Transaction, session: str) -> int:
    """The key of a session. Raises `NoSession`."""
    found = await transaction.row("SELECT key FROM @sessions WHERE id = %s", session)
    if found is None:
        raise NoSession(session)
    return int(found[0])


# --- leases ------------------------------------------------------------------------------


async def lease(
    transaction: Transaction, root: str, *, holder: str, nonce: str, seconds: float
) -> Lease:
    """Take a lease. Raises as `Leases.lease`."""
    found = await transaction.row("SELECT root FROM @sessions WHERE id = %s", root)
    if found is None:
        raise NoSession(root)
    if found[0] != root:
        raise ConfigError(f"session {root!r} is no root; lease {found[0]!r}")
    held = await transaction.row(
        f"SELECT counter, holder, {IN_FORCE} FROM @roots WHERE session = %s FOR UPDATE",  # noqa: S608
        root,
    )
    if held is None:
        raise NoSession(root)
    counter, current, in_force = held
    if in_force:
        raise Leased(root, current)
    await transaction.do(
        "UPDATE @roots SET counter = %s, nonce = %s, holder = %s, seconds = %s, "
        "until = clock_timestamp() + %s * interval '1 second' WHERE session = %s",
        counter + 1,
        nonce,
        holder,
        seconds,
        seconds,
        root,
    )
    return Lease(root=root, fence=Fence(counter + 1, nonce), holder=holder, seconds=seconds)


async def renew(transaction: Transaction, lease: Lease) -> Lease:
    """Hold a lease for as long again. Raises as `Leases.renew`."""
    seconds = lease.seconds or 0.0
    renewed = await transaction.do(
        "UPDATE @roots SET seconds = %s, until = clock_timestamp() + %s * interval '1 second' "
        "WHERE session = %s AND counter = %s AND nonce = %s AND nonce <> ''",
        seconds,
        seconds,
        lease.root,
        *lease.fence,
    )
    if renewed != 1:
        raise FenceLost(lease.root)
    return lease


async def release(transaction: Transaction, lease: Lease) -> None:
    """Give a lease back, if it is the one in force."""
    await transaction.do(
        "UPDATE @roots SET nonce = '', holder = '', until = 'epoch' "
        "WHERE session = %s AND counter = %s AND nonce = %s",
        lease.root,
        *lease.fence,
    )


# --- the inbox ---------------------------------------------------------------------------


async def put(transaction: Transaction, session: str, message: Message, *, stop: bool) -> Put:
    """Leave a message. Raises as `Inbox.put`."""
    locked = await lock(transaction, session, root="UPDATE" if stop else "KEY SHARE")
    key = locked.key
    if stop and locked.root != session:
        raise ConfigError(f"session {session!r} is no root; stop {locked.root!r}")
    there = await transaction.row(
        "SELECT number FROM @messages WHERE session = %s AND id = %s", key, message.id
    )
    if there is not None:
        await settle(transaction, key)
        return Put(there[0], duplicate=True)
    number = locked.messages + 1
    await transaction.do(
        "INSERT INTO @messages (session, number, id, stop, body) VALUES (%s,%s,%s,%s,%b)",
        key,
        number,
        message.id,
        stop,
        message.body,
    )
    await transaction.do("UPDATE @sessions SET messages = %s WHERE key = %s", number, key)
    if stop:
        await transaction.do("UPDATE @roots SET stops = stops + 1 WHERE session = %s", session)
    return Put(number)


# --- blobs -------------------------------------------------------------------------------


async def write_blob(transaction: Transaction, session: str, data: bytes) -> str:
    """Keep bytes. Raises `NoSession`."""
    name = digest(data)
    await transaction.do(
        "INSERT INTO @blobs VALUES (%s, %s, %b) ON CONFLICT DO NOTHING",
        await key_of(transaction, session),
        name,
        data,
    )
    return name


async def erase_blob(transaction: Transaction, session: str, name: str) -> None:
    """Remove bytes. Raises `NoSession`."""
    key = await key_of(transaction, session)
    await transaction.do("DELETE FROM @blobs WHERE session = %s AND digest = %s", key, name)


# --- erasing and deleting ----------------------------------------------------------------


async def erase(
    transaction: Transaction, session: str, fence: Fence, entries: Sequence[str]
) -> int:
    """Remove bodies, and those of the messages they consumed. Raises as `Erasure.erase`."""
    locked = await lock(transaction, session, root="SHARE")
    check_fence(locked.root, locked.counter, locked.nonce, fence)
    key = locked.key
    rows = await transaction.rows(
        "SELECT id, line FROM @entries WHERE session = %s AND id = ANY(%s)", key, list(entries)
    )
    lines: dict[str, bytes] = dict(rows)
    for entry in entries:
        if entry not in lines:
            raise NoEntry(entry)
    stubs = {entry: erased_line(line) for entry, line in lines.items()}
    gone = {entry: stub for entry, stub in stubs.items() if stub != lines[entry]}
    for entry, stub in gone.items():
        await _erase(transaction, key, entry, stub)
    saved = sum(len(lines[entry]) - len(stub) for entry, stub in gone.items())
    await transaction.do("UPDATE @sessions SET bytes = bytes - %s WHERE key = %s", saved, key)
    return len(gone)


async def _erase(transaction: Transaction, key: int, entry: str, stub: bytes) -> None:
    await transaction.do(
        "UPDATE @entries SET content = %s, line = %b WHERE session = %s AND id = %s",
        decode_entry(stub).erased,
        stub,
        key,
        entry,
    )
    await transaction.do(
        "UPDATE @messages SET body = '{}' WHERE session = %s AND entry = %s", key, entry
    )


async def delete(transaction: Transaction, session: str, *, fence: Fence | None) -> None:
    """Remove a session. Raises as `Log.delete`."""
    found = await transaction.row("SELECT key, root FROM @sessions WHERE id = %s", session)
    if found is None:
        return
    key, root = found
    lease = await transaction.row(
        f"SELECT counter, nonce, holder, {IN_FORCE} FROM @roots "  # noqa: S608
        "WHERE session = %s FOR UPDATE",
        root,
    )
    if lease is not None and lease[3] and (lease[0], lease[1]) != fence:
        raise Leased(root, lease[2])
    await transaction.do("DELETE FROM @sessions WHERE key = %s", key)
    await transaction.do("DELETE FROM @roots WHERE session = %s", session)
    await transaction.do("DELETE FROM @entries WHERE session = %s", key)
    await transaction.do("DELETE FROM @messages WHERE session = %s", key)
    await transaction.do("DELETE FROM @blobs WHERE session = %s", key)
