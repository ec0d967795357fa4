"""What `--tool FILE[:NAME]` finds in a file, and what it says where there is nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from perdure.cli.toolfiles import BadToolFile, load_tools
from tests.cli.terminal import Piped

HELLO = """
    from perdure import tool
    @tool
    def hello() -> str:
        "Say hello."
        return "hello"
"""


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def write(name: str, code: str) -> str:
    Path(name).write_text(dedent(code))
    return name


def names(*given: str) -> list[str]:
    return [tool.name for tool in load_tools(given)]


def refusal(*given: str) -> tuple[str, str]:
    """What is said, and what to do."""
    with pytest.raises(BadToolFile) as caught:
        load_tools(given)
    return str(caught.value), caught.value.hint


# --- what is found ------------------------------------------------------------------------


def test_every_tool_object_of_a_file_is_a_tool() -> None:
    code = """
        from perdure import Tool, tool
        from perdure.tools import TypedTool, RawTool, ToolResult

        @tool
        def first() -> str: return ""

        @tool(name="other")
        async def second() -> str: return ""

        third = RawTool(name="third", description="", fn=dict)

        class Handmade:
            name = "fourth"
            description = ""
            parameters = None
            async def execute(self, call): return ToolResult("")

        fourth = Handmade()
        def plain(a: int) -> int: return a
    """
    assert names(write("a.py", code)) == ["first", "other", "third", "fourth"]


def test_plain_functions_are_tools_where_a_list_named_tools_holds_them() -> None:
    code = (
        HELLO
        + """
    def add(a: int, b: int) -> int: return a + b
    def other(a: int) -> int: return a
    tools = [add, hello]
    """
    )
    assert names(write("a.py", code)) == ["hello", "add"]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("hello", ["hello"]),
        ("add", ["add"]),
        ("renamed", ["renamed"]),
        ("some", ["add", "renamed"]),
    ],
)
def test_a_name_chooses_a_tool_a_function_or_a_list(name: str, found: list[str]) -> None:
    code = (
        HELLO
        + """
    @tool(name="renamed")
    def original() -> str: return ""
    def add(a: int, b: int) -> int: return a + b
    some = (add, original)
    """
    )
    assert names(f"{write('a.py', code)}:{name}") == found


def test_a_file_is_loaded_once_and_a_tool_is_given_once() -> None:
    code = (
        HELLO
        + """
    def add(a: int, b: int) -> int: return a + b
    tools = [add]
    print("loaded")
    """
    )
    file = write("a.py", code)
    assert names(file, f"{file}:hello", f"./{file}:add", file) == ["hello", "add"]


def test_tools_of_several_files_come_together() -> None:
    write("b.py", "def twice(a: int) -> int: return 2 * a\ntools = [twice]")
    assert names(write("a.py", HELLO), "b.py") == ["hello", "twice"]


def test_a_file_can_import_its_neighbours() -> None:
    Path("deep").mkdir()
    write("deep/neighbour.py", HELLO)
    assert names(write("deep/a.py", "from neighbour import hello")) == ["hello"]


@pytest.mark.parametrize("name", ["json.py", "no suffix", "a:b.py", "tools.txt"])
def test_a_file_may_have_any_name(name: str) -> None:
    assert names(write(name, HELLO)) == ["hello"]
    assert sys.modules.get("json") is None or hasattr(sys.modules["json"], "loads")


def test_a_file_knows_where_it_is_and_is_not_the_main_program() -> None:
    code = (
        HELLO
        + """
    assert __file__.endswith("a.py")
    assert __name__ != "__main__"
    """
    )
    assert names(write("a.py", code)) == ["hello"]


def test_types_of_the_file_are_found_in_annotations() -> None:
    code = """
        from __future__ import annotations
        from dataclasses import dataclass
        from perdure import tool

        @dataclass
        class Box:
            width: int

        @tool
        def size(box: Box) -> int: return box.width
    """
    (tool,) = load_tools([write("a.py", code)])
    assert "width" in str(tool.parameters)


# --- what is refused ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "what", "todo"),
    [
        ("x = 1", "a.py holds no tool", "put @tool above a typed function"),
        ("def f(a: int): ...\ndef g(): ...", "a.py holds no tool", "put @tool above f, g, or list"),
        ("\n1 / 0", "a.py, line 2: ZeroDivisionError: division by zero", "correct the file"),
        ("x = (", "a.py, line 1: '(' was never closed", "correct the file"),
        ("import nowhere_x", "a.py, line 1: No module named 'nowhere_x'", "install it for "),
        ("import sys\nsys.exit(3)", "a.py, line 2: the file ends the program", "put what runs it"),
        ("raise Exception", "a.py, line 1: Exception", "correct the file"),
        ("tools = 3", "a.py: `tools` is no list", "make it a list"),
        ("tools = [3]", "a.py: 'tools' stands for 3, which is no tool", "a tool is a typed"),
        ("def f(a): ...\ntools = [f]", "a.py: tool 'f', parameter 'a'", ""),
    ],
)
def test_a_file_that_gives_no_tools_says_why(code: str, what: str, todo: str) -> None:
    said, hint = refusal(write("a.py", code))
    assert said.startswith(what)
    assert hint.startswith(todo)


def test_an_error_deep_below_is_told_with_the_files_own_line() -> None:
    write("below.py", "def fail(): raise ValueError('deep')")
    said, _ = refusal(write("a.py", "import below\n\nbelow.fail()"))
    assert said == "a.py, line 3: ValueError: deep"


@pytest.mark.parametrize(
    ("given", "what", "todo"),
    [
        ("no.py", "there is no file 'no.py'", "looked in "),
        ("no.py:name", "there is no file 'no.py'", "looked in "),
        (".", "'.' is a directory", "name a Python file"),
        ("a.py:nobody", "a.py has no tool 'nobody'", "it has: hello"),
        ("a.py:number", "a.py: 'number' stands for 3, which is no tool", "a tool is a typed"),
    ],
)
def test_a_name_that_is_not_there_says_what_is(given: str, what: str, todo: str) -> None:
    write("a.py", HELLO + "\n    number = 3")
    said, hint = refusal(given)
    assert said.startswith(what)
    assert hint.startswith(todo)


def test_two_tools_of_one_name_are_refused() -> None:
    write("a.py", HELLO)
    write("b.py", HELLO)
    done = Piped("run", "hi", "-m", "openai:x", "--tool", "a.py", "--tool", "b.py", cwd=".")
    assert done.code == 2
    assert done.err == "perdure: two tools are named 'hello'; a request needs distinct names\n"


def test_the_command_shows_no_traceback() -> None:
    write("a.py", "import json\n\njson.loads('x')")
    done = Piped("run", "hi", "-m", "openai:x", "--tool", "a.py", cwd=".")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("perdure: a.py, line 3: JSONDecodeError: Expecting value")
    assert len(done.err.splitlines()) == 2
