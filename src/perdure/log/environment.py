"""Where the work of a session happens: what a host says of it, and when that is written.

An `env` entry holds until the next. The host is asked at the start of every drive, and what it says
is written if it is not what is in force, compared as canonical JSON with every member, known or
not. A sub-agent's work may happen elsewhere, in a sandbox, say, so the host is asked about it as
well, and only where there is no host is its parent's environment taken over.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias, cast

import msgspec

from perdure.errors import ConfigError, NotIJson
from perdure.log.entries import MESSAGE, SALT, EnvEntry, Json
from perdure.log.ids import ENVELOPE
from perdure.log.writing import NORMALISED, RESERVED, Draft, json_text
from perdure.wire import canonical_json

Env: TypeAlias = Mapping[str, object]
"""The members of an `env` entry: `cwd`, `vcs`, `files`, `tools`, `workspace`, and any of one's
own."""


class EnvAsked(NamedTuple):
    """What a host is asked about."""

    session: str
    """The session whose drive begins."""
    parent: str = ""
    """For a sub-agent's, the session that it works for."""
    call_id: str = ""
    """For a sub-agent's, the call of the parent that it serves."""
    agent: str = ""
    """The name of the agent, where the session says it."""
    before: Env | None = None
    """What is in force: of the session, or, where nothing is yet, of its parent."""


EnvSource: TypeAlias = "Env | Callable[[EnvAsked], Env | Awaitable[Env | None] | None]"
"""An environment, or a function that says it; one that says None leaves what is in force."""

_OWN = frozenset((*ENVELOPE, SALT, NORMALISED, MESSAGE))


async def ask(source: EnvSource, asked: EnvAsked) -> Env | None:
    """What a host says.

    Raises:
        ConfigError: It is no environment.
    """
    if not callable(source):
        return checked(source)
    said = source(asked)
    given = await said if inspect.isawaitable(said) else said
    return None if given is None else checked(given)


def checked(given: object) -> Env:
    """An environment that can be written.

    Raises:
        ConfigError: It is none.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(f"an environment is a mapping, not {given!r}")
    env = cast("Env", given)
    taken = sorted(RESERVED.intersection(env))
    if taken:
        raise ConfigError(f"an environment cannot have the member {taken[0]!r}")
    try:
        canonical_json(dict(env))
        msgspec.json.decode(json_text({**env, "type": "env"}), type=EnvEntry)
    except (NotIJson, msgspec.DecodeError) as error:
        raise ConfigError(f"an environment that no entry can hold: {error}") from None
    return env


def env_of(entry: EnvEntry | None) -> Json | None:
    """What an entry says of where the work happens; None without one."""
    if entry is None:
        return None
    return {name: value for name, value in entry.members.items() if name not in _OWN}


def env_draft(env: Env, before: EnvEntry | None) -> list[Draft]:
    """What is written of an environment: nothing if it is in force."""
    in_force = env_of(before)
    if in_force is not None and canonical_json(in_force) == canonical_json(dict(env)):
        return []
    return [Draft("env", env)]


def cwd_of(source: EnvSource | None) -> str:
    """The directory that a session begins in, as far as it can be told without asking."""
    cwd = "" if source is None or callable(source) else source.get("cwd")
    return cwd if isinstance(cwd, str) else ""
