"""Tools from files: what `--tool FILE[:NAME]` names.

A *tool file* is a Python file. Its tools are the tool objects in it (`@tool`, `RawTool`, anything
with a tool's members) and what its list `tools` holds, where plain typed functions may stand too.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TypeGuard, cast

from perdure.cli.problems import Unusable
from perdure.errors import ConfigError
from perdure.tools import Tool, as_tool


class BadToolFile(Unusable):
    """A `--tool` names nothing that can be used."""


def load_tools(names: Iterable[str]) -> tuple[Tool, ...]:
    """The tools that `names`, each `FILE` or `FILE:NAME`, stand for; each tool once.

    Raises:
        BadToolFile: One of them stands for none.
    """
    files: dict[Path, _ToolFile] = {}
    found: dict[int, Tool] = {}
    for given in names:
        path, name = _split(given)
        if path not in files:
            files[path] = _ToolFile(path, _load(path, len(files)))
        file = files[path]
        tools = file.named(name) if name else file.all()
        found |= {id(tool): tool for tool in tools}
    return tuple(found.values())


def _split(given: str) -> tuple[Path, str]:
    whole = Path(given)
    file, _, name = given.rpartition(":")
    path, name = (Path(file), name) if file and not whole.exists() else (whole, "")
    if path.is_dir():
        raise BadToolFile(f"{str(path)!r} is a directory", "name a Python file that holds tools")
    if not path.exists():
        raise BadToolFile(f"there is no file {str(path)!r}", f"looked in {Path.cwd()}")
    return path.resolve(), name


# --- choosing -----------------------------------------------------------------------


class _ToolFile:
    """A file that was loaded."""

    def __init__(self, path: Path, module: ModuleType) -> None:
        self._shown = _shown(path)
        self._values: dict[str, object] = vars(module)
        self._module = module.__name__
        self._made: dict[int, Tool] = {}

    def all(self) -> list[Tool]:
        """Every tool of the file."""
        tools = [*self._objects(), *(self._tool(value, "tools") for value in self._listed())]
        if not tools:
            raise BadToolFile(f"{self._shown} holds no tool", self._advice())
        return tools

    def named(self, name: str) -> list[Tool]:
        """The tools of one name: a tool, a plain function, a list of them."""
        value = self._values.get(name)
        if value is None:
            tools = [tool for tool in self._objects() if tool.name == name]
            if not tools:
                raise BadToolFile(f"{self._shown} has no tool {name!r}", self._choice())
            return tools
        if isinstance(value, list | tuple):
            return [self._tool(one, name) for one in cast("Sequence[object]", value)]
        return [self._tool(value, name)]

    def _objects(self) -> Iterator[Tool]:
        return (value for value in self._values.values() if _is_tool(value))

    def _listed(self) -> Sequence[object]:
        listed = self._values.get("tools")
        if listed is None or isinstance(listed, ModuleType):  # `from perdure import tools`
            return ()
        if isinstance(listed, list | tuple):
            return cast("Sequence[object]", listed)
        raise BadToolFile(
            f"{self._shown}: `tools` is no list", "make it a list of functions and tools"
        )

    def _tool(self, value: object, name: str) -> Tool:
        if _is_tool(value):
            return value
        if isinstance(value, type) or not callable(value):
            raise BadToolFile(
                f"{self._shown}: {name!r} stands for {value!r}, which is no tool",
                "a tool is a typed function, or has @tool above it",
            )
        if id(value) not in self._made:
            try:
                self._made[id(value)] = as_tool(value)
            except ConfigError as error:
                raise BadToolFile(f"{self._shown}: {error}") from error
        return self._made[id(value)]

    def _choice(self) -> str:
        have = [name for name, value in self._values.items() if _is_tool(value)]
        return f"it has: {', '.join(have)}" if have else self._advice()

    def _advice(self) -> str:
        own = [
            name
            for name, value in self._values.items()
            if isinstance(value, FunctionType) and value.__module__ == self._module
        ]
        which = ", ".join(own) or "a typed function"
        return f"put @tool above {which}, or list functions: tools = [...]"


def _is_tool(value: object) -> TypeGuard[Tool]:
    """A class has the members of its objects, and is no tool itself."""
    return not isinstance(value, type) and isinstance(value, Tool)


# --- loading ------------------------------------------------------------------------


def _load(path: Path, number: int) -> ModuleType:
    """Run a file as a module, with its directory importable, as `python FILE` does."""
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    # A name of its own, so that no file stands in the way of a module of the same name.
    name = f"perdure_tool_file_{number}"
    spec = ModuleSpec(name, SourceFileLoader(name, str(path)), origin=str(path))
    spec.has_location = True
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        SourceFileLoader(name, str(path)).exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _broken(path, error) from error
    return module


def _broken(path: Path, error: BaseException) -> BadToolFile:
    line = _line_in(path, error)
    at = f"{_shown(path)}, line {line}" if line else _shown(path)
    said = " ".join(str(error).split())
    match error:
        case SyntaxError():
            return BadToolFile(f"{at}: {error.msg}", "correct the file")
        case SystemExit():
            hint = 'put what runs it as a script under `if __name__ == "__main__":`'
            return BadToolFile(f"{at}: the file ends the program", hint)
        case ModuleNotFoundError():
            return BadToolFile(f"{at}: {said}", f"install it for {sys.executable}")
        case ConfigError():
            return BadToolFile(f"{at}: {said}", "correct the file")
        case _:
            kind = type(error).__name__
            return BadToolFile(f"{at}: {kind}: {said}".rstrip(": "), "correct the file")


def _line_in(path: Path, error: BaseException) -> int | None:
    """The line of the file that failed, or that called what did."""
    if isinstance(error, SyntaxError):
        return error.lineno if error.filename == str(path) else None
    frames = traceback.extract_tb(error.__traceback__)
    return next((f.lineno for f in reversed(frames) if f.filename == str(path)), None)


def _shown(path: Path) -> str:
    """A path as short as it can be said here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
