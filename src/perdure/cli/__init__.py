"""The `perdure` command: thin shells over the library.

Exit codes: 0 it went well; 1 a run failed; 2 the command was used wrongly or cannot begin; 130 it
was interrupted.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command line, and exit."""
    if not all(find_spec(name) for name in ("click", "rich")):
        print("perdure: the command line needs: pip install 'perdure[cli]'", file=sys.stderr)
        sys.exit(2)
    from perdure.cli.commands import cli

    cli(prog_name="perdure")
