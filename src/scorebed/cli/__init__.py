"""The `scorebed` command: it parses, calls and prints; there is no mathematics here.

Every command is one file `cli/NAME.py` with one function `NAME`, registered by its name in
`_app.COMMANDS`. What all of them share stands once: how answers are printed in `_output`, how bad
input is explained in `_errors`, exit codes in `_app`, Ctrl-C in `_interrupt`.

Command files import JAX, and anything that imports it, inside their function: `--help` must answer
at once."""

import gc
import sys
from collections.abc import Sequence
from typing import NoReturn

from scorebed.cli._compiled import keep_compiled
from scorebed.cli._interrupt import INTERRUPTED, quiet_interrupts

# Python's own thresholds are for programs of few objects. Tracing makes many that live on, and
# looking through all of them for garbage again and again finds none.
USUAL_THRESHOLDS = (700, 10, 10)
THRESHOLDS = (100_000, 20, 20)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command line and exit: 0 for an answer, 2 for bad input (one line on stderr), 130
    when interrupted.
    """
    keep_compiled()
    if gc.get_threshold() == USUAL_THRESHOLDS:
        gc.set_threshold(*THRESHOLDS)
    try:
        with quiet_interrupts():
            from scorebed.cli._app import (
                run,
            )  # late, so that an interrupt is quiet during the parser's imports too

            code = run(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)
