"""Outputs of calls that tell an error: they begin with a word that the model reads."""

from __future__ import annotations

ERROR = "Error: "


def is_error(output: str) -> bool:
    """Whether an output tells an error."""
    return output.startswith(ERROR)


def error_output(message: str) -> str:
    """The output that tells an error."""
    return message if is_error(message) else ERROR + message
