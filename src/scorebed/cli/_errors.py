"""Bad input, explained in one line: `error: what, got, expected. Fix: …`."""

import difflib
import sys
import typing
from collections.abc import Sequence

from cyclopts import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)
from cyclopts.argument import Argument

from scorebed.errors import InvalidValueError, ScorebedError, UnknownNameError

ROOT_OPTIONS = ("--help", "--version")
TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def complain(error: ScorebedError) -> int:
    """Print `error` as one line on stderr, whatever characters are in it, and give the exit
    code.
    """
    line = " ".join(str(error).split())
    sys.stderr.write(
        "error: " + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line) + "\n"
    )
    return 2


def explain(error: CycloptsError, *, commands: Sequence[str]) -> ScorebedError:
    """What the parser found wrong, in our own form and with the nearest right name."""
    command = " ".join(("scorebed", *(error.command_chain or ())))
    see = f"'{command} --help' shows what it takes."
    if isinstance(error, UnknownCommandError) and error.unused_tokens:
        given = error.unused_tokens[0]
        if error.app is not None and error.command_chain and not given.startswith("-"):
            below = [name for name in error.app if not name.startswith("-")]
            return UnknownNameError(f"command of '{command}'", given, below)
        return _unknown_command(given, commands)
    if isinstance(error, UnknownOptionError):
        given = (error.token.keyword or error.token.value).split("=")[0]
        known = [
            name
            for argument in error.argument_collection
            for name in argument.names
            if name.startswith("-")
        ]
        return UnknownNameError(f"option of '{command}'", given, [*known, *ROOT_OPTIONS])
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        return InvalidValueError(
            f"{error.keyword or error.argument.name} of '{command}'",
            got="nothing",
            expected=_expected(error.argument.hint),
            fix=see,
        )
    if isinstance(error, CoercionError) and error.token is not None and error.argument is not None:
        return _bad_value(
            error.token.keyword or error.argument.name, error.token.value, error.argument, see
        )
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return InvalidValueError(
            f"the arguments of '{command}'",
            got=f"'{error.unused_tokens[0]}'",
            expected="no more of them",
            fix=f"leave it out; {see}",
        )
    if isinstance(error, RepeatArgumentError):
        return InvalidValueError(
            f"{error.token.keyword} of '{command}'", got="it twice", expected="it once", fix=see
        )
    return InvalidValueError(
        f"the arguments of '{command}'", got=f"this: {error}", expected="a valid command", fix=see
    )


def _unknown_command(given: str, commands: Sequence[str]) -> ScorebedError:
    if not given.startswith("-"):
        return UnknownNameError("command", given, commands)
    near = difflib.get_close_matches(given, ROOT_OPTIONS, n=1, cutoff=0.7)
    return InvalidValueError(
        "the first argument of 'scorebed'",
        got=f"'{given}'",
        expected=f"a command ({', '.join(commands)}) or one of {', '.join(ROOT_OPTIONS)}",
        fix=f"did you mean '{near[0]}'?" if near else "write options after the command.",
    )


def _bad_value(name: str, given: str, argument: Argument, see: str) -> ScorebedError:
    choices = _choices(argument.hint)
    if choices:
        return UnknownNameError(name, given, choices)
    return InvalidValueError(name, got=f"'{given}'", expected=_expected(argument.hint), fix=see)


def _choices(hint: object) -> list[str]:
    return (
        [str(choice) for choice in typing.get_args(hint)]
        if typing.get_origin(hint) is typing.Literal
        else []
    )


def _expected(hint: object) -> str:
    """A type in the words of somebody who does not program."""
    choices = _choices(hint)
    if choices:
        return f"one of {', '.join(choices)}"
    words = [
        TYPES.get(kind, getattr(kind, "__name__", str(kind)))
        for kind in typing.get_args(hint) or (hint,)
    ]
    return " or ".join(word for word in words if word != "NoneType")
