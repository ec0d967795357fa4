"""Every benchmark, one after the other: `python -m benchmarks [NAME ...]`."""

from __future__ import annotations

import subprocess
import sys

ALL = (
    "startup",
    "wire",
    "loop",
    "log",
    "stores",
    "recording",
    "sleepers",
    "client",
    "consumers",
    "adapter_openresponses",
    "adapter_chat",
    "adapter_anthropic",
    "adapter_gemini",
    "adapter_bedrock",
)


def main() -> None:
    """Run each in a process of its own, so that none warms another up."""
    names = sys.argv[1:] or ALL
    unknown = [name for name in names if name not in ALL]
    if unknown:
        sys.exit(f"no benchmark {unknown[0]!r}; there are: {', '.join(ALL)}")
    for name in names:
        print(f"== {name}", flush=True)
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=True)


if __name__ == "__main__":
    main()
