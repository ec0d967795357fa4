"""Answers to questions of calls, held to the type that was asked for.

The type is known to the tool that asks alone; everybody else has its JSON Schema, on the record of
the question. So an answer is checked twice. Whoever gives it, and the driver that takes it up, hold
it to the schema, which says as much as JSON Schema can. The tool then reads it, and one that cannot
be read, as a class of its own refuses it, is not taken: the question is asked again.
"""

from __future__ import annotations

from typing import Generic, TypeVar, cast

from perdure.errors import ConfigError, InvalidArguments
from perdure.log.entries import Json, WaitEntry
from perdure.tools.arguments import parse_value
from perdure.tools.json_schema import check_value
from perdure.tools.schema import shape_of
from perdure.tools.values import Json as Value
from perdure.wire import scalar_text

T = TypeVar("T")

MOST_SAID = 1000
"""How many characters of what a class says of an answer stand on the record."""

_ANSWER = "answer"
"""How the paths of faults begin."""


class Unfit(Exception):
    """An answer does not fit; the message says where and why. It never leaves this layer."""


class AnswerType(Generic[T]):
    """What an answer has to be: a schema for the record, and how it is read.

    Args:
        type: Any type that a parameter of a tool may have.
        key: The question's, for the error.

    Raises:
        ConfigError: No JSON Schema says what the type takes.
    """

    def __init__(self, type: type[T], key: str) -> None:  # noqa: A002 - the natural word
        try:
            self._shape = shape_of(type, exact=True, where=f"the answer to {key!r}")
        except (TypeError, AttributeError) as error:  # it is no type at all
            raise ConfigError(f"the answer to {key!r} cannot be of the type {type!r}") from error

    @property
    def schema(self) -> Json:
        """What the record says that an answer has to be."""
        return self._shape.schema()

    def read(self, text: str) -> T:
        """The answer that JSON text gives.

        Raises:
            Unfit: It gives none of the type.
        """
        try:
            return cast("T", self._shape.read(parse_value(text), _ANSWER))
        except InvalidArguments as error:
            why = _shown(error)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - the class's own code may raise anything
            why = f"{_ANSWER}: {_said(error)}"  # also a cancellation: nobody else cancels in here
        raise Unfit(scalar_text(why)[:MOST_SAID])


def fault_in(begin: WaitEntry, text: str) -> str:
    """Why JSON text does not answer the question that a wait began with; empty if it does."""
    try:
        value: Value = parse_value(text)
        check_value(begin.schema, value, _ANSWER, formats=True)
    except InvalidArguments as error:
        return _shown(error)
    except RecursionError:
        return f"{_ANSWER}: nested too deeply"
    return ""


def _shown(error: InvalidArguments) -> str:
    return f"{error.path or _ANSWER}: {error.reason}"


def _said(error: BaseException) -> str:
    """What an error of a class says; its own name if it says nothing, or fails to."""
    try:
        said = " ".join(str(error).split())
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - that is the class's own code, too
        said = ""
    return said or type(error).__name__
