"""What went wrong, in words for a person: what it is, what to do, and how the command ends."""

from __future__ import annotations

import os
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from perdure.cli.text import one_line
from perdure.errors import (
    AuthFailed,
    BadBody,
    ConfigError,
    ContextTooLong,
    ModelError,
    ModelTimeout,
    NotFound,
    Overloaded,
    PerdureError,
    QuotaExhausted,
    RateLimited,
    Rejected,
    RunFailed,
    ServerFailed,
    Transport,
    Truncated,
    UnknownModel,
)

FAILED, UNUSABLE = 1, 2
"""Exit codes: the run failed; it could not begin."""

LONGEST = 400
"""The most characters to show of what a server says."""


class Problem(NamedTuple):
    """What went wrong."""

    what: str
    todo: str = ""
    code: int = FAILED


class Unusable(ConfigError):
    """The command was used in a way that cannot work.

    Attributes:
        hint: What to do about it; may be empty.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        self.hint = hint
        super().__init__(message)


def problem_of(error: BaseException, model: str = "") -> Problem:
    """What an error means to somebody who runs `model` from the command line."""
    match error:
        case RunFailed():
            return problem_of(error.cause, model)
        case Unusable():
            return Problem(str(error), error.hint, UNUSABLE)
        case UnknownModel():
            return Problem(str(error), "for example: --model openai:gpt-5-mini", UNUSABLE)
        case ConfigError():
            return Problem(str(error), "", UNUSABLE)
        case Rejected():
            return Problem(_refusal(error), _after_refusal(error, model))
        case ModelError():
            return Problem(str(error), _after_failure(error, model))
        case PerdureError():
            return Problem(str(error))
        case _:
            return Problem(f"{type(error).__name__}: {error}")


def show_problem(console: Console, problem: Problem) -> None:
    """Show a problem in one line or two."""
    what = one_line(problem.what)
    if len(what) > LONGEST:
        what = what[:LONGEST] + "…"
    told = Text.assemble(("perdure: ", "bold red"), what)
    if problem.todo:
        told.append(f"\n  {one_line(problem.todo)}")
    console.print(told, soft_wrap=not console.is_terminal, highlight=False)


def _refusal(error: Rejected) -> str:
    said = error.message or error.type
    status = f" (HTTP {error.status})" if error.status else ""
    match error:
        case AuthFailed():
            return f"the server refused the key{status}: {said}"
        case QuotaExhausted():
            return f"the account has nothing left{status}: {said}"
        case RateLimited():
            return f"too many requests{status}: {said}"
        case Overloaded():
            return f"the server is overloaded{status}: {said}"
        case ContextTooLong():
            return f"the input is too long for the model{status}: {said}"
        case ServerFailed():
            return f"the server failed{status}: {said}"
        case _:
            return f"the server refused the request{status}: {said}"


def _after_refusal(error: Rejected, model: str) -> str:
    match error:
        case AuthFailed():
            return _about_key(model)
        case NotFound():
            return f"check the model's name and address: {model}"
        case QuotaExhausted():
            return "add credit to the account, or use another key or model"
        case RateLimited() | Overloaded() | ServerFailed():
            seconds = error.retry_after
            return f"try again in {seconds:.0f} s" if seconds else "try again later"
        case ContextTooLong():
            return "shorten the input, or use a model with a longer context"
        case _:
            return ""


def _after_failure(error: ModelError, model: str) -> str:
    match error:
        case BadBody():
            return f"is this the address of an Open Responses server? {_address(model)}"
        case ModelTimeout() if error.phase != "connect":
            return "try again; the server may be busy"
        case Transport():
            return f"check the network and the address: {_address(model)}"
        case Truncated():
            return "try again"
        case _:
            return ""


def _about_key(model: str) -> str:
    from perdure.models.catalogue import key_variables

    variables = key_variables(model.partition(":")[0])
    held = next((variable for variable in variables if os.environ.get(variable)), None)
    if held is not None:
        return f"check {held}"
    return f"set {variables[0]}" if variables else "check the key of this model"


def _address(model: str) -> str:
    base = os.environ.get("OPENAI_BASE_URL", "") if model.startswith("openai:") else ""
    return f"OPENAI_BASE_URL is {base}" if base else model
