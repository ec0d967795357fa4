"""What adapters share of settings: what all refuse, what they take from members of no type."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import cast

import msgspec

from perdure.errors import ConfigError
from perdure.models.mapping.kept import kept
from perdure.models.mapping.losses import Lost
from perdure.wire import (
    ABSENT,
    AllowedTools,
    CompactRequest,
    Format,
    FunctionChoice,
    Request,
    TextFormat,
)
from perdure.wire.jsontext import members_of


def refuse_held(request: Request | CompactRequest) -> None:
    """Refuse a conversation that a server holds: the history is always sent whole (DESIGN 5).

    Raises:
        ConfigError: The request names one.
    """
    for name, value in (
        ("previous_response_id", request.previous_response_id),
        ("conversation", request.unknown.get("conversation")),
    ):
        if value:
            raise ConfigError(
                f"{name} {value!r} names a conversation that the server holds; "
                "perdure sends the whole history, so give its items as input"
            )


def model_named(settings: Request) -> str:
    """The model that the settings name.

    Raises:
        ConfigError: They name none.
    """
    if not settings.model:
        raise ConfigError("the settings name no model")
    return settings.model


def report_settings(settings: Request, names: Sequence[str], lost: Lost, *, maker: str) -> None:
    """Note the settings that a provider has not.

    Args:
        settings: The settings.
        names: The members that it has not; how to shorten the input and what to include, which
            none of those who need this have, go without saying.
        lost: Where they are noted.
        maker: Who the provider is.
    """
    for name in names:
        if getattr(settings, name):
            lost.add(name, f"{maker} has no such setting", name)
    if settings.truncation and settings.truncation != "disabled":
        lost.add("truncation", f"{maker} never shortens the input", "truncation")
    for index, name in enumerate(settings.include or ()):
        if name != "reasoning.encrypted_content":
            lost.add(name, f"{maker} has nothing of the kind", f"include[{index}]")


def allowed_names(choice: AllowedTools) -> list[str]:
    """The functions that a choice of some tools allows."""
    return [tool.name for tool in choice.tools if isinstance(tool, FunctionChoice)]


def format_of(settings: Request, lost: Lost, *, maker: str) -> Format | None:
    """The format that an answer is to have, if that is not plain text.

    Args:
        settings: The settings.
        lost: Where it is noted that the provider has no verbosity.
        maker: Who the provider is.
    """
    text = settings.text or None
    if text is None:
        return None
    if text.verbosity:
        lost.add("verbosity", f"{maker} has no such setting", "text.verbosity")
    wanted = text.format or None
    return None if isinstance(wanted, TextFormat) else wanted


def own_settings(
    settings: Request, own: Container[str], elsewhere: Container[str], lost: Lost, *, maker: str
) -> Iterator[tuple[str, msgspec.Raw]]:
    """The members of a provider's own among those that the wire does not know.

    Args:
        settings: The settings.
        own: The members that the provider has.
        elsewhere: Members that somebody else reads.
        lost: Where the others are noted.
        maker: Who the provider is.
    """
    for name, raw in kept(settings).items():
        if name in elsewhere or raw == b"null":
            continue
        if name in own:
            yield name, msgspec.Raw(raw)
        elif not name.startswith("perdure:"):
            lost.add(name, f"{maker} has no such setting", name)


def stops_of(settings: Request) -> list[str]:
    """The texts to stop at, which the wire has no member for: `stop`, or `stop_sequences`."""
    members = kept(settings)
    raw = members.get("stop_sequences") or members.get("stop") or b"null"
    stop = msgspec.json.decode(raw, type=str | list[str] | None)
    return [stop] if isinstance(stop, str) else stop or []


def merged(made: object, own: msgspec.Raw) -> object:
    """A member with a provider's own put into it: its members win, one by one."""
    inner = members_of(own)
    if not isinstance(made, Mapping) or not inner:
        return own
    found = dict(cast("Mapping[str, object]", made))
    for name, raw in inner.items():
        found[name] = merged(found.get(name), raw)
    return found


def put_own(body: dict[str, object], settings: Request, mark: str) -> None:
    """Put the members that a mark on the settings holds into a body, member by member."""
    for name, own in members_of(kept(settings).get(mark, b"{}")).items():
        body[name] = merged(body.get(name), own)


def given(value: object) -> bool:
    """Whether a member says anything."""
    return value is not None and value is not ABSENT
