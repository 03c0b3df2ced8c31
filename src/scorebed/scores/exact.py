"""The true score of the closed-form tasks: what every estimator is checked against."""

from jaxtyping import Array, Float

from scorebed.scores.base import Score, ScoreValue
from scorebed.tasks.oracles.closed_form import ClosedForm


class ExactScore(Score):
    """∇ log p(y | ξ) of a task that has it in closed form."""

    task: ClosedForm

    def __call__(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> ScoreValue:
        return ScoreValue(*self.task.score(ys, xis))

    @property
    def nle(self) -> int:
        return 0
