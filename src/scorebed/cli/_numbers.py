"""Numbers as people write them: 2048, 1e6, 5_000_000, 0.5; and nothing else."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Annotated, Any, TypeAlias

from cyclopts import Parameter, Token

from scorebed.errors import InvalidValueError

LARGEST = 10**18


def _whole(smallest: int) -> Callable[[Any, Sequence[Token]], int]:
    def convert(_: Any, tokens: Sequence[Token]) -> int:
        text, number = tokens[0].value, _exact(tokens[0].value)
        if number is None or number.denominator != 1 or not smallest <= number <= LARGEST:
            raise InvalidValueError(
                tokens[0].keyword or "a number",
                got=f"'{text}'",
                expected=f"a whole number from {smallest} up",
                fix="for example 2048 or 1e6.",
            )
        return int(number)

    return convert


def _positive(_: Any, tokens: Sequence[Token]) -> float:
    text, number = tokens[0].value, _exact(tokens[0].value)
    if number is None or not 0 < number <= LARGEST:
        raise InvalidValueError(
            tokens[0].keyword or "a number",
            got=f"'{text}'",
            expected="a positive number",
            fix="for example 4 or 0.5.",
        )
    return float(number)


def _exact(text: str) -> Fraction | None:
    try:
        return Fraction(text.replace("_", "")) if len(text) < 40 else None
    except (ValueError, ZeroDivisionError):
        return None


# Whole numbers from as many up, and positive ones; 1e400, nan, 2.5 and the like are refused.
FromTwo: TypeAlias = Annotated[int, Parameter(converter=_whole(2))]
FromEight: TypeAlias = Annotated[int, Parameter(converter=_whole(8))]
Count: TypeAlias = Annotated[int, Parameter(converter=_whole(1))]
FromZero: TypeAlias = Annotated[int, Parameter(converter=_whole(0))]
Positive: TypeAlias = Annotated[float, Parameter(converter=_positive)]
