"""What commands are given: a store to look into, a session of it, a status, a value in JSON."""

from __future__ import annotations

import shlex
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from perdure.log.store import Store

T = TypeVar("T")


class Unusable(click.ClickException):
    """The command cannot begin."""

    exit_code = 2


def existing_store(url: str) -> Store:
    """The store of a URL, for a command that looks into it: one that is not there is not made.

    Raises:
        Unusable: There is none.
        ConfigError: No store has its scheme, or it is not a URL of that store.
    """
    from perdure.stores import open_store, path_of

    store = open_store(url)
    if url.startswith("memory:"):
        raise Unusable("memory: is empty in every process; name the store where the runs are")
    path = path_of(url)
    if path is not None and not path.exists():
        raise Unusable(f"there is no store at {str(path)!r}; whoever runs with it first makes it")
    if path is not None and url.startswith("file:") and not path.is_dir():
        raise Unusable(f"{str(path)!r} is no directory; a file: store is a directory of sessions")
    return store


async def session_named(store: Store, given: str) -> str:
    """The id of the session that has a name, or the id that was given.

    Raises:
        Unusable: It can be neither.
    """
    from perdure.log.store import named_session
    from perdure.wire import scalar_text

    if not given or scalar_text(given) != given:
        raise Unusable(f"there is no session {given!r}")
    named = await named_session(store, given)
    return named.id if named is not None else given


def status_option(what: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """The option that names statuses.

    Args:
        what: What those have that are meant, in the words of the help.
    """
    from perdure.result import Status

    known = ("idle", *typing.get_args(Status))
    return click.option(
        "--status",
        multiple=True,
        type=click.Choice(known),
        metavar="STATUS",
        help=f"Only {what}. May be repeated.",
    )


def json_value(text: str | None, what: str) -> object:
    """A value that is given in JSON; None if nothing is.

    Args:
        text: What was given.
        what: What it was given for.

    Raises:
        Unusable: It is no JSON.
    """
    import msgspec

    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        word = text[:1].isalpha()
        hint = f"; a text has quotes of its own: {shlex.quote(_quoted(text))}" if word else ""
        raise Unusable(f"{what} is no JSON: {error}{hint}") from None


def _quoted(text: str) -> str:
    import msgspec

    from perdure.wire import scalar_text

    return msgspec.json.encode(scalar_text(text)).decode()
