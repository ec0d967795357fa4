"""Answers to questions of calls, held to the type that was asked for."""

from __future__ import annotations

from perdure.errors import InvalidArguments
from perdure.log import Call
from perdure.tools import parse_arguments
from perdure.tools.json_schema import check_value


def fault_in(call: Call, key: str, text: str) -> str:
    """Why JSON text does not answer the question that a call waits for; empty if it does."""
    wait = call.wait
    schema = wait.get("schema") if wait.get("name") == key else None
    try:
        value = parse_arguments(f'{{"answer":{text}}}', required=True)["answer"]
        check_value(schema, value, "answer")
    except InvalidArguments as error:
        return str(error)
    return ""
