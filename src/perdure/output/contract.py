"""What is asked for: a type, and how to go about it."""

from __future__ import annotations

import dataclasses
import typing
from typing import TYPE_CHECKING, Generic, Literal, overload

from perdure.errors import ConfigError

if TYPE_CHECKING:  # the default of a type variable is known to type checkers alone before 3.13
    from typing_extensions import TypeVar

    OutputT = TypeVar("OutputT", default=str)
else:
    OutputT = typing.TypeVar("OutputT")

Mode = Literal["auto", "native", "tool"]
"""How the answer is had: as the table of capabilities says, by the provider, or by a tool."""

FINAL_TOOL = "final_answer"
"""The tool by which a model gives its answer where its provider cannot be held to a schema."""

DEFAULT_RETRIES = 2
"""How many answers that do not fit are sent back, unless an `Output` says otherwise."""


@dataclasses.dataclass(frozen=True, slots=True, init=False)
class Output(Generic[OutputT]):
    """A type to answer with, and how: `Agent(output=Output(Invoice, retries=1))`.

    A type alone, `Agent(output=Invoice)`, is this with the defaults.

    Args:
        form: A dataclass, a TypedDict, a msgspec Struct, a pydantic model, or any type that a
            tool's parameter may have. Of one that is no class, `int | str` say, type checkers see
            `object`.
        name: What the provider is told the answer is called; the type's name unless given.
        description: What the model reads of it; the type's docstring unless given.
        retries: How many answers that do not fit are sent back with what is wrong.
        mode: `native` and `tool` override the table of capabilities.

    Raises:
        ConfigError: `retries` is negative, or there is no such mode.
    """

    form: object
    name: str
    description: str
    retries: int
    mode: Mode

    @overload
    def __init__(
        self,
        form: type[OutputT],
        *,
        name: str = "",
        description: str = "",
        retries: int = DEFAULT_RETRIES,
        mode: Mode = "auto",
    ) -> None: ...

    @overload
    def __init__(
        self: Output[object],
        form: object,
        *,
        name: str = "",
        description: str = "",
        retries: int = DEFAULT_RETRIES,
        mode: Mode = "auto",
    ) -> None: ...

    def __init__(
        self,
        form: object,
        *,
        name: str = "",
        description: str = "",
        retries: int = DEFAULT_RETRIES,
        mode: Mode = "auto",
    ) -> None:
        if retries < 0:
            raise ConfigError(f"Output(retries=...) must not be negative, got {retries}")
        if mode not in typing.get_args(Mode):
            raise ConfigError(f"Output(mode=...) is one of auto, native, tool, not {mode!r}")
        given = {
            "form": form,
            "name": name,
            "description": description,
            "retries": retries,
            "mode": mode,
        }
        for member, value in given.items():
            object.__setattr__(self, member, value)
