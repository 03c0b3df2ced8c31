"""A comparison of a score with the truth in plain values, as `diagnosis.json` has them."""

from typing import TYPE_CHECKING, Any, NamedTuple

from scorebed.diagnostics.direction import Direction, Tails
from scorebed.diagnostics.gradient_error import GradientError
from scorebed.diagnostics.groups import Agreement
from scorebed.diagnostics.score_error import ScoreError

if TYPE_CHECKING:
    from scorebed.diagnostics.diagnosis import Comparison

BATCHES = tuple(4**i for i in range(9))  # sizes at which the error of a gradient is given


class _Compared(NamedTuple):
    """The answer about a score, field by field."""

    truth: str
    outer: int
    inner: int | None
    particles: int | None
    draws: int | None
    effective_draws: float
    truth_noise: float
    truth_missed: float
    verdict: str
    cosine: float
    cosine_se: float
    length: float
    length_se: float
    relative_bias: float
    relative_bias_upper: float
    direction: dict[str, Any]
    gradient: dict[str, Any]
    pce: list[dict[str, Any]]
    batches: list[int]
    score_error: dict[str, Any]


def compared_values(found: "Comparison", sentence: str, outer: int) -> dict[str, Any]:
    """Everything in plain values."""
    theory = {} if found.theory is None else {"theory": found.theory.values()}
    compared = _Compared(
        truth=found.against.name,
        outer=outer,
        inner=found.against.inner,
        particles=found.against.particles,
        draws=found.against.draws,
        effective_draws=found.against.quality.ess,
        truth_noise=found.against.quality.noise,
        truth_missed=found.against.quality.missed,
        verdict=sentence,
        cosine=found.agreement.cosine.value,
        cosine_se=found.agreement.cosine.se,
        length=found.agreement.length.value,
        length_se=found.agreement.length.se,
        relative_bias=found.bias.value,
        relative_bias_upper=found.bias.upper,
        direction={name: _direction(each) for name, each in found.directions.items()},
        gradient={name: _gradient(error) for name, error in found.gradient.items()},
        pce=[{"inner": count, **_gradient(error)} for count, error in found.pce.items()],
        batches=list(BATCHES),
        score_error={name: _score_error(error) for name, error in found.errors.items()},
    )
    return compared._asdict() | theory


def _direction(found: Direction) -> dict[str, Any]:
    return {
        **_agreement(found.used),
        "plain": _agreement(found.plain),
        **_tails(found.tails),
        "outer": found.outer,
        "dropped": found.dropped,
    }


def _agreement(found: Agreement) -> dict[str, float]:
    return {
        "cosine": found.cosine.value,
        "cosine_se": found.cosine.se,
        "length": found.length.value,
        "length_se": found.length.se,
    }


def _tails(found: Tails, suffix: str = "") -> dict[str, float]:
    return {
        f"worst_percent_share{suffix}": found.worst,
        f"relative_error_median{suffix}": found.median,
        f"relative_error_rms{suffix}": found.mean,
    }


def _gradient(error: GradientError) -> dict[str, Any]:
    return {
        "squared_bias": error.squared_bias.value,
        "squared_bias_se": error.squared_bias.se,
        "squared_norm": error.squared_norm.value,
        "squared_norm_se": error.squared_norm.se,
        "variance": error.variance,
        "crossover": error.crossover,
        "mse": [error.mse(n) for n in BATCHES],
    }


def _score_error(error: ScoreError) -> dict[str, float]:
    return {
        "y": error.y.value,
        "y_se": error.y.se,
        "xi": error.xi.value,
        "xi_se": error.xi.se,
        **_tails(error.tails_y, "_y"),
        **_tails(error.tails_xi, "_xi"),
    }
