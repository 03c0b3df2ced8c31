"""Numbers as people write them: 2048, 1e6, 5_000_000, 0.5; and nothing else."""

from fractions import Fraction

from scorebed.errors import InvalidValueError

LARGEST = 10**18


def whole(option: str, text: str, smallest: int) -> int:
    """The whole number that `text` is exactly; 1e400, nan, 2.5 and the like are refused in one
    line.
    """
    number = _exact(text)
    if number is None or number.denominator != 1 or not smallest <= number <= LARGEST:
        raise InvalidValueError(
            option,
            got=f"'{text}'",
            expected=f"a whole number from {smallest} up",
            fix="for example 2048 or 1e6.",
        )
    return int(number)


def positive(option: str, text: str) -> float:
    """The positive number that `text` is."""
    number = _exact(text)
    if number is None or not 0 < number <= LARGEST:
        raise InvalidValueError(
            option, got=f"'{text}'", expected="a positive number", fix="for example 4 or 0.5."
        )
    return float(number)


def _exact(text: str) -> Fraction | None:
    try:
        return Fraction(text.replace("_", "")) if len(text) < 40 else None
    except (ValueError, ZeroDivisionError):
        return None
