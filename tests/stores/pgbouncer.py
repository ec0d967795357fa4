"""PgBouncer before a Postgres server, where the machine has it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.stores.postgres_server import becoming, server_user

_CONFIGURATION = """
[databases]
* = host={host} port={port} user={user}

[pgbouncer]
unix_socket_dir = {directory}
listen_addr =
listen_port = 6432
auth_type = any
pool_mode = transaction
default_pool_size = 3
server_round_robin = 1
"""


@contextlib.asynccontextmanager
async def pgbouncer(server: str, directory: Path) -> AsyncGenerator[str]:
    """Its URL. Transactions of one client go to whichever of three connections is free."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("no pgbouncer; the pooler of these tests stands in for it")
    parameters = conninfo_to_dict(server)
    if parameters.get("password"):
        pytest.skip("pgbouncer would need the server's password")
    user = server_user()
    if user is not None:
        os.chown(directory, user.pw_uid, user.pw_gid)
    made = directory / "pgbouncer.ini"
    made.write_text(
        _CONFIGURATION.format(
            host=parameters.get("host", "localhost"),
            port=parameters.get("port") or 5432,
            user=parameters.get("user", "postgres"),
            directory=directory,
        )
    )
    made.chmod(0o644)
    process = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
        [program, "-q", made],
        preexec_fn=becoming(user),  # noqa: PLW1509 - it starts no thread
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = (
        f"postgresql://{parameters.get('user', '')}@/{parameters.get('dbname', 'postgres')}"
        f"?host={directory}&port=6432"
    )
    try:
        await _answering(url, process)
        yield url
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)


async def _answering(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(200):
        with contextlib.suppress(psycopg.OperationalError):
            await (await psycopg.AsyncConnection.connect(url)).close()
            return
        if process.poll() is not None:
            break
        await asyncio.sleep(0.02)
    raise AssertionError("pgbouncer does not answer")
