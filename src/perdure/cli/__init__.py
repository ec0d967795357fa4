"""The `perdure` command: thin shells over the library.

Exit codes, the same for every command but `runs`, where 1 is that the run refuses, and `log`, where
it is that a session does not verify:

| code | meaning |
|---|---|
| 0 | it is done |
| 1 | the run failed |
| 2 | the command was used wrongly or cannot begin: no key, an unknown model, a bad tool file |
| 3 | the run was stopped: by a limit, a guard, a filter or a tool |
| 4 | input is required: calls wait for an answer |
| 130 | it was interrupted |

The answer goes to standard output, everything else to standard error. Text of models, tools and
servers reaches a terminal without its control characters.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command line, and exit."""
    if not all(find_spec(name) for name in ("click", "rich")):
        print("perdure: the command line needs: pip install 'perdure[cli]'", file=sys.stderr)
        sys.exit(2)
    try:
        code = _run()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # whoever read the output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 1
    sys.exit(code)


def _run() -> int:
    import click

    from perdure.cli.commands import cli

    try:
        code: object = cli.main(prog_name="perdure", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return error.exit_code
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "perdure"
        print(f"{command}: {error.format_message()}", file=sys.stderr)
        print(f"  see: {command} --help", file=sys.stderr)
        return error.exit_code
    except click.ClickException as error:
        print(f"perdure: {error.format_message()}", file=sys.stderr)
        return error.exit_code
    except click.Abort:
        return 130
    return code if isinstance(code, int) else 0
