"""`perdure models`: who can be asked, what they are set up by, and what they can do."""

from __future__ import annotations

import click
import msgspec
from rich.console import Console
from rich.text import Text

from perdure.cli.page import print_hanging
from perdure.cli.text import visible
from perdure.errors import UnknownModel
from perdure.models import schemes
from perdure.models.capabilities import Capabilities, of_scheme
from perdure.models.catalogue import Provider, providers

HEADINGS = ("MODEL STRING", "KEY SET", "TYPED ANSWERS", "TAKES", "VARIABLES")

FOOT = """
Typed answers: native, the provider holds the model to the schema; alone, only
where the model has no tools; by tool everywhere else. The variables hold the
key, in order, and the address. What a model can do is shown for the one that
is named: perdure models openai:gpt-4-turbo"""


@click.command()
@click.argument("names", nargs=-1, metavar="[PROVIDER | PROVIDER:MODEL]...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def models(*, names: tuple[str, ...], as_json: bool) -> int:
    """List the providers, the variables of their keys, and what their models can do.

    Whether a key is set is shown, its value never.
    """
    shown = [_named(name) for name in names] if names else list(providers())
    if as_json:
        for one in shown:
            click.echo(msgspec.json.encode(_members(one)).decode())
        return 0
    console, rows = Console(), [HEADINGS, *(_row(one) for one in shown)]
    lines = _table(rows)
    if console.is_terminal and max(map(len, lines)) > console.width:
        lines = _narrow(rows)
    for line in lines:
        print_hanging(console, Text(visible(line)))
    if not names:
        click.echo(FOOT)
    return 0


def _named(name: str) -> Provider:
    """A provider, with what the model can do that was named."""
    scheme, _, model = name.partition(":")
    found = next((one for one in providers() if one.scheme == scheme), None)
    if found is None:
        raise click.UsageError(str(UnknownModel(name, schemes())))
    if not model:
        return found
    return msgspec.structs.replace(found, example=name, can=of_scheme(scheme, model))


def _members(one: Provider) -> dict[str, object]:
    return {
        "scheme": one.scheme,
        "title": one.title,
        "model": one.example,
        "keys": one.keys,
        "needs_key": one.needs_key,
        "key_set": one.key_is_set,
        "address": one.address,
        "typed_answers": _typed(one.can),
        "can": msgspec.to_builtins(one.can),
    }


def _row(one: Provider) -> tuple[str, ...]:
    variables = " ".join((*one.keys, one.address)).strip()
    is_set = "yes" if one.key_is_set else "no" if one.needs_key else "-"
    takes = " ".join(name for name in ("images", "files", "audio") if getattr(one.can, name))
    return (one.example, is_set, _typed(one.can), takes or "text", variables)


def _typed(can: Capabilities) -> str:
    if can.schema_with_tools:
        return "native"
    return "alone" if can.schema else "by tool"


def _narrow(rows: list[tuple[str, ...]]) -> list[str]:
    """The same, each row's variables on a line of their own, where a screen has no room for all."""
    left = _table([row[:-1] for row in rows])
    pairs = zip(left, (row[-1] for row in rows), strict=True)
    return [line for row, variables in pairs for line in (row, f"    {variables}")]


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
