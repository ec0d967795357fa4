"""The commands, their options and their exit codes."""

from __future__ import annotations

import asyncio

import click


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="perdure")
def cli() -> None:
    """An agent runtime for work that must not go wrong twice."""


@cli.command()
def demo() -> None:
    """Run an agent with two tools against a server on loopback. Needs no key and no network."""
    from perdure.cli.demo import run_demo

    asyncio.run(run_demo())
