"""One invocation of `bullpen`: the command, and every error as one line and an exit code.

0 done · 1 refused, or the goal not reached · 2 usage · 3 store or model unavailable ·
4 the human is asked something · 130 Ctrl-C · 141 the reader of a pipe has gone, as for any command in one.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from bullpen.cli import completion
from bullpen.cli.stream import drop

INTERRUPTED = 130
PIPE_CLOSED = 141


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    _open_what_is_closed()
    try:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # A terminal that is not UTF-8 gets `\u2713` instead of a traceback.
                stream.reconfigure(errors="backslashreplace")
        code = _run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        drop(sys.stdout)
        return PIPE_CLOSED
    except Exception as error:
        from bullpen.cli.fault import explain, report
        from bullpen.cli.options import wants_json

        fault = explain(error)
        if fault is None:
            raise
        try:
            sys.stdout.flush()
        except OSError:
            drop(sys.stdout)
        report(fault, as_json=wants_json(words))
        return fault.exit_code
    return code


def _run(words: list[str]) -> int:
    if os.environ.get(completion.VARIABLE):
        return completion.complete()
    from bullpen.cli.options import hoist

    chosen, rest = hoist(words)
    if chosen.version:
        from bullpen import __version__
        from bullpen.cli.text import json_text

        print(json_text({"version": __version__}) if chosen.json else f"bullpen {__version__}")
        return 0
    from bullpen.cli.root import invoke

    return invoke(rest or ["--help"], chosen)


def _open_what_is_closed() -> None:
    """Whoever starts it without one of the three (`<&-`, some supervisors) reads and writes nowhere. In this order they
    become 0, 1 and 2: no file of the store may be what others print into."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
