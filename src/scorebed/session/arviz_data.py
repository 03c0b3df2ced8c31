"""An experiment in ArviZ's format: `InferenceData` before its version 1, `DataTree` from then on.

Groups `posterior` and `prior` have one variable per parameter, with a chain of as many draws as
there are particles; `observed_data` the outcomes and `constant_data` the designs, both along
`step`. Particles are no chain: effective sample sizes and R̂ by ArviZ say nothing about them
(`Posterior.ess` does)."""

from typing import Any

import numpy as np

from scorebed.errors import ScorebedError
from scorebed.session.events import ExperimentState
from scorebed.session.posterior import Posterior
from scorebed.tasks.base import Task
from scorebed.tasks.spaces import Quantity


def to_arviz(task: Task, state: ExperimentState, prior: Posterior, posterior: Posterior) -> Any:
    """The posterior after the measured steps, the prior, and the steps themselves."""
    try:
        import arviz
    except ModuleNotFoundError as missing:
        raise ScorebedError(
            "the posterior in ArviZ's format, got no package 'arviz', expected one. "
            "Fix: pip install 'scorebed[arviz]'."
        ) from missing
    steps = [record.step for record in state.measured]
    outcomes = _columns(task.outcomes, [record.y for record in state.measured])
    designs = _columns(task.designs.quantities, [record.used for record in state.measured])
    groups = {
        "posterior": _draws(posterior),
        "prior": _draws(prior),
        "observed_data": outcomes,
        "constant_data": designs,
    }
    along = {name: ["step"] for name in (*outcomes, *designs)}
    options = {"coords": {"step": steps}, "dims": along}
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict(groups, **options)
    return arviz.from_dict(**groups, **options)


def _draws(posterior: Posterior) -> dict[str, np.ndarray]:
    """[1 chain, N draws] of each parameter."""
    named = zip(posterior.quantities, posterior.theta.T, strict=True)
    return {quantity.name: values[None] for quantity, values in named}


def _columns(quantities: tuple[Quantity, ...], rows: list[Any]) -> dict[str, np.ndarray]:
    table = np.asarray(rows, np.float64).reshape(len(rows), len(quantities))
    return {quantity.name: table[:, i] for i, quantity in enumerate(quantities)}
