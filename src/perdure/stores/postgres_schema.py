"""The tables of a Postgres store, and how older ones become those of today.

`@name` in a statement stands for the table `perdure_name` in the store's schema.
"""

from __future__ import annotations

from perdure.errors import ConfigError
from perdure.stores.postgres_pool import Pool, Transaction

_FIRST = (
    "CREATE TABLE @schema (owner TEXT NOT NULL, version INTEGER NOT NULL)",
    "INSERT INTO @schema VALUES ('perdure', 0)",
    """CREATE TABLE @sessions (
        key BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id TEXT COLLATE "C" NOT NULL UNIQUE,
        root TEXT COLLATE "C" NOT NULL,
        name TEXT COLLATE "C" UNIQUE,
        created_at TEXT COLLATE "C" NOT NULL,
        parent TEXT COLLATE "C" NOT NULL,
        cwd TEXT COLLATE "C" NOT NULL,
        run BOOLEAN NOT NULL,
        kind TEXT COLLATE "C" NOT NULL,
        version BIGINT NOT NULL,
        bytes BIGINT NOT NULL,
        messages BIGINT NOT NULL DEFAULT 0,
        settled BIGINT NOT NULL DEFAULT 0,
        status TEXT COLLATE "C" NOT NULL,
        due BIGINT,
        leaf TEXT COLLATE "C",
        header BYTEA NOT NULL
    ) WITH (fillfactor = 80)""",
    "CREATE INDEX ON @sessions (created_at, id)",
    "CREATE INDEX ON @sessions (status, created_at, id)",
    "CREATE INDEX ON @sessions (root)",
    "CREATE INDEX ON @sessions (parent) WHERE parent <> ''",
    "CREATE INDEX ON @sessions (due) WHERE due IS NOT NULL",
    # Of root sessions: the lease, and how many stops wait. An empty nonce is no lease.
    """CREATE TABLE @roots (
        session TEXT COLLATE "C" PRIMARY KEY,
        counter BIGINT NOT NULL DEFAULT 0,
        nonce TEXT COLLATE "C" NOT NULL DEFAULT '',
        holder TEXT NOT NULL DEFAULT '',
        seconds DOUBLE PRECISION NOT NULL DEFAULT 0,
        until TIMESTAMPTZ NOT NULL DEFAULT 'epoch',
        stops BIGINT NOT NULL DEFAULT 0
    ) WITH (fillfactor = 80)""",
    # `content` is the hash of a body that was erased, and null until then; `line` is then a stub.
    """CREATE TABLE @entries (
        session BIGINT NOT NULL,
        number BIGINT NOT NULL,
        id TEXT COLLATE "C" NOT NULL,
        parent TEXT COLLATE "C",
        parents TEXT,
        type TEXT COLLATE "C" NOT NULL,
        ts TEXT COLLATE "C" NOT NULL,
        content TEXT COLLATE "C",
        line BYTEA NOT NULL,
        PRIMARY KEY (session, number),
        UNIQUE (session, id)
    )""",
    # `entry` is the one that consumed the message.
    """CREATE TABLE @messages (
        session BIGINT NOT NULL,
        number BIGINT NOT NULL,
        id TEXT COLLATE "C" NOT NULL,
        stop BOOLEAN NOT NULL,
        entry TEXT COLLATE "C",
        body BYTEA NOT NULL,
        PRIMARY KEY (session, number),
        UNIQUE (session, id)
    )""",
    "CREATE INDEX ON @messages (session) WHERE entry IS NULL",
    """CREATE TABLE @blobs (
        session BIGINT NOT NULL,
        digest TEXT COLLATE "C" NOT NULL,
        data BYTEA NOT NULL,
        PRIMARY KEY (session, digest)
    )""",
)

MIGRATIONS = (_FIRST,)
"""What makes each version of the schema out of the one before. Never changed, only added to."""

VERSION = len(MIGRATIONS)

_LOCK = 0x70657264  # the first half of the advisory lock; the second is the schema's name


async def prepare(pool: Pool) -> None:
    """Make the tables, or bring them to today's version; many processes may do so at once.

    Raises:
        ConfigError: The schema has tables of these names that are not perdure's, or was made by a
            newer perdure, or may not be used.
        StoreFailed: The server could not be reached, or failed.
    """
    async with pool.direct() as transaction:
        if await _version(transaction) != VERSION:
            await _migrate(transaction)


async def _migrate(transaction: Transaction) -> None:
    schema = transaction.schema
    await transaction.do("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", _LOCK, schema)
    if not await transaction.rows("SELECT 1 FROM pg_namespace WHERE nspname = %s", schema):
        await transaction.do(f"CREATE SCHEMA {transaction.quoted}")
    for statements in MIGRATIONS[await _version(transaction) :]:
        for statement in statements:
            await transaction.do(statement)
    await transaction.do("UPDATE @schema SET version = %s", VERSION)


async def _version(transaction: Transaction) -> int:
    """The version of the schema; 0 if there is none."""
    rows = await transaction.rows(
        "SELECT c.relname::text, array_agg(a.attname::text ORDER BY a.attnum) "
        "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 "
        "WHERE n.nspname = %s AND c.relkind IN ('r', 'p', 'v', 'm', 'f') "
        "AND c.relname LIKE 'perdure\\_%%' GROUP BY c.relname",
        transaction.schema,
    )
    tables: dict[str, list[str]] = dict(rows)
    if not tables:
        return 0
    found: list[tuple[int]] = []
    if tables.get("perdure_schema") == ["owner", "version"]:
        found = await transaction.rows("SELECT version FROM @schema WHERE owner = 'perdure'")
    if not found:
        raise ConfigError(
            f"the schema {transaction.schema!r} has a table {min(tables)!r} that is not perdure's; "
            "name another schema"
        )
    ((version,),) = found
    if version > VERSION:
        raise ConfigError(
            f"the schema {transaction.schema!r} is of version {version}, made by a newer perdure; "
            f"this one knows {VERSION}"
        )
    return version
