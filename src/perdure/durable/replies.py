"""Answers to questions of calls, held to the type that was asked for."""

from __future__ import annotations

from perdure.errors import InvalidArguments
from perdure.log.entries import WaitEntry
from perdure.tools import parse_arguments
from perdure.tools.json_schema import check_value


def fault_in(begin: WaitEntry, text: str) -> str:
    """Why JSON text does not answer the question that a wait began with; empty if it does."""
    try:
        value = parse_arguments(f'{{"answer":{text}}}', required=True)["answer"]
        check_value(begin.schema, value, "answer")
    except InvalidArguments as error:
        return str(error)
    return ""
