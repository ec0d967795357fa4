"""What `import perdure` costs beside bare Python, and what the face costs when it is first used."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.table import Table

RUNS = 15

PROGRAMS = {
    "python": "pass",
    "import perdure": "import perdure",
    "from perdure import Agent, tool": "from perdure import Agent, tool",
    "import msgspec": "import msgspec",
    "import aiohttp": "import aiohttp",
}


def seconds(program: str) -> float:
    """The least time of a process that runs `program`."""
    best = float("inf")
    for _ in range(RUNS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Run them and print the table."""
    table = Table("whole processes, milliseconds", "program", "time", "beside python")
    bare = seconds(PROGRAMS["python"])
    for name, program in PROGRAMS.items():
        took = seconds(program)
        table.row(name, took * 1e3, (took - bare) * 1e3)
    table.show()


if __name__ == "__main__":
    main()
