"""Sections of a configuration that every run has, whatever its method."""

import dataclasses
import math
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from scorebed.methods.fields import LARGEST, Count, Flag, whole

Row = tuple[float, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """The bounds on the EIG that a run reports, and those by which it chooses among policies."""

    outer: Count
    """Number of experiments, N, of the reported bounds."""
    inner: Count
    """Number of contrastive parameters, M, of the reported bounds."""
    select_outer: Count
    """Number of experiments of the bounds that choose the best policy, on draws of their own."""
    select_inner: Count
    """Number of contrastive parameters of the bounds that choose the best policy."""
    tight_outer: Annotated[int, whole(0, LARGEST)] = 0
    """Number of experiments of the tight bounds that lead where the reported ones are loose; 0 for
    none.
    """
    greedy: Flag = False
    """Whether the policy that looks one step ahead untrained is bounded with them, to compare."""
    references: Flag = True
    """Whether random designs and trained static ones are bounded as well as the policy."""


def _numbers(value: Any, depth: int) -> Any:
    """Nested lists of finite numbers as tuples."""
    if depth == 0:
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise PydanticCustomError(
                "value", "{expected}", {"expected": "lists of finite numbers"}
            )
        return float(value)
    if not isinstance(value, list | tuple):
        raise PydanticCustomError("value", "{expected}", {"expected": "lists of finite numbers"})
    return tuple(_numbers(part, depth - 1) for part in value)


_Numbers = Annotated[Row, BeforeValidator(lambda value: _numbers(value, 1))]
_Rows = Annotated[tuple[Row, ...], BeforeValidator(lambda value: _numbers(value, 2))]
_Matrices = Annotated[
    tuple[tuple[Row, ...], ...], BeforeValidator(lambda value: _numbers(value, 3))
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class HistoryConfig:
    """Steps that were over before the run, and what is known since: a Gaussian mixture in the
    latent coordinates of the prior.
    """

    designs: _Rows = ()
    """The designs of the steps that are over, one row each; none for a whole experiment."""
    outcomes: _Rows = ()
    """Their outcomes."""
    weights: _Numbers = ()
    """Weights of the mixture that the prior has become."""
    means: _Rows = ()
    """Means of its components."""
    factors: _Matrices = ()
    """Lower triangular factors of the components' covariances."""
