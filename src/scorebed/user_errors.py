"""Errors in a user's code, reported in one sentence with the user's line, without frames of this
library or of JAX.
"""

from collections.abc import Collection, Iterator
from typing import Any

import jax

from scorebed.errors import InvalidValueError, ScorebedError

# Modules made from users' files have names with this prefix, by which a traceback shows their
# frames.
PREFIX = "user_file_"
LONGEST = 200  # characters of a foreign message


def explain(error: BaseException, modules: Collection[str] = ()) -> ScorebedError | None:
    """An error that passed through the user's code, with the deepest line of that code; None if it
    did not.

    `modules` are the names of further user modules.
    """
    for part in _chain(error):
        found = user_line(part, modules)
        if found is not None:
            return _explained(part, *found)
    return None


def user_line(error: BaseException, modules: Collection[str] = ()) -> tuple[str, int] | None:
    """File and line of the deepest user frame in a traceback."""
    found, trace = None, error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if module.startswith(PREFIX) or module in modules:
            found = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    return found


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in seen:
        yield following
        seen.append(following)
        following = following.__cause__ or following.__context__


def _explained(error: BaseException, file: str, line: int) -> ScorebedError:
    where = f"{file}, line {line}"
    if isinstance(error, ScorebedError):
        return ScorebedError(f"{where}: {error}")
    return InvalidValueError(where, **reason(error))


def reason(error: BaseException) -> dict[str, Any]:
    """What is wrong and how to fix it, for the mistakes that everybody new to JAX makes."""
    if isinstance(error, jax.errors.TracerBoolConversionError):
        return {
            "got": "a Python branch (if, while, and, min, max) on a value that is only known when "
            "the compiled program runs",
            "expected": "array operations",
            "fix": "use jnp.where(condition, a, b), jnp.minimum or jnp.maximum.",
        }
    # math.exp(tracer) fails as a conversion to float, np.exp(tracer) as one to an array.
    if isinstance(
        error, jax.errors.ConcretizationTypeError | jax.errors.TracerArrayConversionError
    ):
        return {
            "got": "a number or NumPy array made from a value that is only known when the compiled "
            "program runs",
            "expected": "functions of jax.numpy",
            "fix": "use jnp.exp and the like instead of math and numpy.",
        }
    text = " ".join(str(error).split())
    text = text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
    kind = type(error).__name__
    return {
        "got": f"{kind}: {text}" if text else kind,
        "expected": "code that runs",
        "fix": "correct that line.",
    }
