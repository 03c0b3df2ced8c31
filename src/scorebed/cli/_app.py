"""The table of commands, and the way from a command line to an exit code."""

import io
import os
import sys

from cyclopts import App, CycloptsError

from scorebed import __version__
from scorebed.cli._errors import complain, explain
from scorebed.cli._output import log_to_stderr, stdout_console
from scorebed.errors import InvalidValueError, ScorebedError

# Each name is a file of this folder and the function in it, with its line in `scorebed --help`.
COMMANDS = {
    "tasks": "The built-in tasks and their dimensions.",
    "check": "Is this task of mine sound? What is wrong, how to mend it, and pictures.",
    "train": "Train a score and a policy on it, and bound its information gain.",
    "resume": "Go on with a run after any interruption.",
    "evaluate": "Bounds of a trained policy, of any size.",
    "diagnose": "Is the score good? Gradient bias and variance, coverage, conditioning.",
    "bench": "Methods side by side, at one budget or in one time.",
    "paper": "A table or figure of the paper, re-run at any scale.",
    "sweep": "Search policies on one score, by any number of workers.",
    "report": "A run as one HTML file: bounds, curves, experiments, cost.",
    "live": "The experiment at the bench: next design, measure, enter, next design.",
    "serve": "The experiment at the bench as a web page, and JSON for instruments.",
    "export": "The policy for a bench computer, which needs no scorebed there.",
    "nle": "The budget arithmetic of the paper, exact.",
}


def run(arguments: list[str]) -> int:
    """The exit code of one command line: 0 answered, 1 nobody reads our output any more, 2 bad
    input.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(
            errors="replace"
        )  # units and Greek letters on a terminal that has none
    log_to_stderr()
    try:
        _app(arguments)(arguments)
        sys.stdout.flush()
    except CycloptsError as error:
        return complain(explain(error, commands=tuple(COMMANDS)))
    except ScorebedError as error:
        return complain(error)
    except BrokenPipeError:
        _give_up_on_stdout()
        return 1
    except OSError as error:
        _give_up_on_stdout()
        return complain(
            InvalidValueError(
                str(error.filename or "the output"),
                got=error.strerror or repr(error),
                expected="something that can be read or written",
                fix="check the path, its permissions and the space left.",
            )
        )
    except Exception as error:
        explained = _in_user_task(error)
        if explained is None:
            raise
        return complain(explained)
    return 0


def _in_user_task(error: Exception) -> ScorebedError | None:
    """An error inside of the user's task, with its line. Such a task is there only if its
    module was loaded.
    """
    if "scorebed.user_errors" not in sys.modules:
        return None
    from scorebed.user_errors import explain

    return explain(error)


def _app(arguments: list[str]) -> App:
    console = stdout_console()
    app = App(
        name="scorebed",
        help="Bayesian experimental design by score matching: train the score once, then "
        "policies are cheap.",
        help_format="plaintext",
        help_formatter="default" if console.is_terminal else "plain",
        version=__version__,
        version_flags=["--version"],
        console=console,
        exit_on_error=False,
        print_error=False,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for name, summary in COMMANDS.items():
        # Command files are imported when called for. A summary given here would replace the
        # docstring in their own help.
        called = arguments[:1] == [name]
        app.command(f"scorebed.cli.{name}:{name}", name=name, help=None if called else summary)
    return app


def _give_up_on_stdout() -> None:
    """If stdout takes no more, send what is buffered to nowhere: the interpreter would stumble over
    it while shutting down.
    """
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
