"""What one value of a configuration may be: whole numbers, rates, choices, and how a fault is
described.
"""

import math
import re
from collections.abc import Callable
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

LARGEST = 2**31 - 1  # steps are counted in 32 bits on the device


def _fault(expected: str) -> PydanticCustomError:
    return PydanticCustomError("value", "{expected}", {"expected": expected})


def whole(low: int, high: int) -> BeforeValidator:
    """A whole number within limits."""

    def check(value: object) -> int:
        # 1e4 is a float in TOML, and a whole number to whoever wrote it.
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise _fault(f"a whole number from {low} to {high}")
        return number

    return BeforeValidator(check)


def _finite(value: object) -> float:
    """A number as a float; NaN for what is no finite number, so that no comparison holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        number = float(value)
    except OverflowError:  # TOML integers have no limit
        return math.nan
    return number if math.isfinite(number) else math.nan


def _real(accepts: Callable[[float], bool], expected: str) -> BeforeValidator:
    def check(value: object) -> float:
        number = _finite(value)
        if not accepts(number):
            raise _fault(expected)
        return number

    return BeforeValidator(check)


def choice(*names: str) -> BeforeValidator:
    """One of some names."""

    def check(value: object) -> str:
        if not isinstance(value, str) or value not in names:
            raise PydanticCustomError("choice", "{names}", {"names": names})
        return value

    return BeforeValidator(check)


def digest() -> BeforeValidator:
    """The sha256 of something in hexadecimal, or nothing."""

    def check(value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(r"(?:[0-9a-f]{64})?", value):
            raise _fault("64 hexadecimal digits, or nothing")
        return value

    return BeforeValidator(check)


def _name(value: object) -> str:
    if (
        not isinstance(value, str)
        or not value.strip()
        or not value.isprintable()
        or len(value) > 1000
    ):
        raise _fault("a name of one line")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _fault("true or false")
    return value


def _widths(value: object) -> tuple[int, ...]:
    fault = _fault("a list of whole numbers from 1, such as [192, 128]")
    if not isinstance(value, list | tuple):
        raise fault
    if not all(isinstance(each, int) and 1 <= each <= LARGEST for each in value):
        raise fault
    return tuple(value)


def _weight_or_auto(value: object) -> float | str:
    number = _finite(value)
    if value != "auto" and not number > 0:
        raise _fault("a finite positive number or 'auto'")
    return "auto" if value == "auto" else number


Name: TypeAlias = Annotated[str, BeforeValidator(_name)]
Count: TypeAlias = Annotated[int, whole(1, LARGEST)]
Seed: TypeAlias = Annotated[
    int, whole(0, 2**32 - 1)
]  # beyond 32 bits two seeds may give the same key
Positive: TypeAlias = Annotated[float, _real(lambda x: x > 0, "a finite positive number")]
NonNegative: TypeAlias = Annotated[float, _real(lambda x: x >= 0, "a finite number from 0 up")]
Decay: TypeAlias = Annotated[
    float, _real(lambda x: 0 <= x < 1, "a number from 0 up to, but not, 1")
]
Rate: TypeAlias = Annotated[float, _real(lambda x: 0 < x <= 1, "a number above 0 and up to 1")]
Flag: TypeAlias = Annotated[bool, BeforeValidator(_flag)]
WeightOrAuto: TypeAlias = Annotated[float | Literal["auto"], BeforeValidator(_weight_or_auto)]
Widths: TypeAlias = Annotated[tuple[int, ...], BeforeValidator(_widths)]
AnyWhole: TypeAlias = Annotated[int, whole(-LARGEST, LARGEST)]
AnyNumber: TypeAlias = Annotated[float, _real(math.isfinite, "a finite number")]
