"""Secret parameters: filled when the tool is entered, and seen by nobody but the tool.

`key: Annotated[str, Secret("env:STRIPE_KEY")]` is in no schema and no arguments. The log, traces,
approval views and digests see the *reference*, `env:STRIPE_KEY`, and never the value (DESIGN 5).
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import partial
from pathlib import Path
from typing import cast

from perdure.errors import ConfigError, ToolError
from perdure.tools.result import ToolResult, failure, to_result
from perdure.tools.threads import start_thread
from perdure.tools.transaction import Transaction, Tx
from perdure.wire.parts import InputText, Part

_SHORTEST_HIDDEN = 8
"""Shorter values are not looked for in what a tool says: they would be found by chance."""


class Secret:
    """Where the value of a secret parameter comes from.

    Args:
        source: `env:NAME`, `file:PATH` (without its last line break), or a function, sync or async,
            that returns the value. It is asked each time the tool is entered.
        reference: What is shown in its place; for a function its name unless given.

    Raises:
        ConfigError: The source is neither.
    """

    __slots__ = ("_resolve", "reference")

    def __init__(
        self, source: str | Callable[[], str | Awaitable[str]], *, reference: str = ""
    ) -> None:
        if callable(source):
            self._resolve = source
            self.reference = reference or f"function:{_name_of(source)}"
            return
        scheme, _, where = source.partition(":")
        if scheme not in _READERS or not where:
            raise ConfigError(f"{source!r} is no secret: it is env:NAME, file:PATH or a function")
        self._resolve = partial(_READERS[scheme], where)
        self.reference = reference or source

    def __repr__(self) -> str:
        return f"Secret({self.reference!r})"

    async def value(self) -> str:
        """The value, now.

        Raises:
            ToolError: It cannot be had; the message names the reference.
        """
        try:
            if inspect.iscoroutinefunction(self._resolve):
                value = await self._resolve()
            else:
                value = await start_thread(self._resolve, name="perdure-secret")
                if inspect.isawaitable(value):
                    value = await value
        except Exception as error:  # noqa: BLE001 - a resolver may raise anything
            raise ToolError(
                f"the secret {self.reference!r} cannot be read: {_why(error)}"
            ) from None
        if not isinstance(value, str):
            raise ToolError(f"the secret {self.reference!r} is not a string")
        return value


def _name_of(function: Callable[..., object]) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', '')}.{name}".lstrip(".")


def _from_environment(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise LookupError("the environment variable is not set")
    return value


def _from_file(path: str) -> str:
    return Path(path).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")


_READERS: Mapping[str, Callable[[str], str]] = {"env": _from_environment, "file": _from_file}


def _why(error: Exception) -> str:
    # A resolver's own message may hold the secret; those of the system's files and ours do not.
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error) if type(error) is LookupError else type(error).__name__


# --- what a tool says of its secrets --------------------------------------------------


class Values:
    """The values of a call's secrets, and what hides them in what the tool says.

    It is a guard against accidents: a value that the tool encodes or cuts is not found.
    """

    __slots__ = ("_by_value",)

    def __init__(self, by_value: Mapping[str, str]) -> None:
        long = {value: ref for value, ref in by_value.items() if len(value) >= _SHORTEST_HIDDEN}
        self._by_value = long

    def hidden(self, text: str) -> str:
        """The text with each value replaced by its reference."""
        for value, reference in self._by_value.items():
            text = text.replace(value, f"[{reference}]")
        return text

    def hidden_in(self, result: ToolResult) -> ToolResult:
        """The result with each value in its text replaced."""
        output = result.output
        if isinstance(output, str):
            clean: str | tuple[Part, ...] = self.hidden(output)
        else:
            clean = tuple(self._hidden_part(part) for part in output)
        if clean == output:
            return result
        return ToolResult(clean, details=result.details, terminate=result.terminate)

    def hidden_after(self, tool: str, transaction: Transaction) -> Transaction:
        """The transaction function, with each value replaced in what it gives and raises."""

        def shown(tx: Tx) -> object:
            with self._hiding(tool):
                value = cast("Callable[[Tx], object]", transaction)(tx)
                return shown_later(value) if inspect.isawaitable(value) else self._shown(value)

        async def shown_later(value: Awaitable[object]) -> object:
            with self._hiding(tool):
                return self._shown(await value)

        return shown

    @contextlib.contextmanager
    def _hiding(self, tool: str) -> Generator[None]:
        try:
            yield
        except Exception as error:
            clean = self.hidden_error(tool, error)
            if clean is error:
                raise
        else:
            return
        raise clean from None

    def _shown(self, value: object) -> ToolResult:
        return self.hidden_in(to_result(value))

    def _hidden_part(self, part: Part) -> Part:
        return InputText(text=self.hidden(part.text)) if isinstance(part, InputText) else part

    def hidden_error(self, tool: str, error: BaseException) -> BaseException:
        """The error, or one without the values and without the causes that may hold them."""
        said = str(error)
        if self.hidden(said) == said:
            return error
        decisive = failure(tool, error)
        clean = ToolError(
            self.hidden(str(decisive)),
            details=getattr(decisive, "details", None),
            terminate=getattr(decisive, "terminate", False),
        )
        return clean.with_traceback(error.__traceback__)
