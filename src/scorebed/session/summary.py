"""Where an experiment stands and what it says, in plain values: for `--json` and for a page."""

import dataclasses
from pathlib import Path
from typing import Any

from scorebed.errors import ScorebedError
from scorebed.session.posterior import QUANTILES, Beliefs, Marginal
from scorebed.session.state import State
from scorebed.session.store import Experiment


@dataclasses.dataclass(frozen=True)
class Expectation:
    """Bounds of the information that the policy's experiments give by their end, in nats, as the run measured them."""

    lower: float
    upper: float


def summarise(
    experiment: Experiment, path: Path, known: State, beliefs: Beliefs, expected: Expectation | None
) -> dict[str, Any]:
    """Everything but the particles. `problem` is a sentence where there is no posterior, or one not to be trusted."""
    found: dict[str, Any] = {"posterior": None, "information": None, "ess": None, "particles": None, "problem": None}
    try:
        posterior = beliefs.posterior(known.records)
    except ScorebedError as error:
        found["problem"] = str(error)
    else:
        found |= {"posterior": [plain(m) for m in posterior.marginals], "information": posterior.information}
        found |= {"ess": posterior.ess, "particles": len(posterior.theta), "problem": posterior.warning}
    return {
        **{name: getattr(experiment, name) for name in ("name", "run", "task", "seed", "horizon", "created")},
        "db": str(path),
        "sequence": known.sequence,
        "step": known.step,
        "finished": known.finished,
        "proposal": None if known.proposal is None else dataclasses.asdict(known.proposal),
        "records": [dataclasses.asdict(record) for record in known.records],
        "notes": [dataclasses.asdict(note) for note in known.notes],
        **found,
        "expected": None if expected is None else dataclasses.asdict(expected),
    }


def plain(marginal: Marginal) -> dict[str, Any]:
    """A marginal with its name and unit."""
    quantity = marginal.quantity
    quantiles = {f"{level:g}": value for level, value in zip(QUANTILES, marginal.quantiles, strict=True)}
    return {
        "name": quantity.name,
        "unit": quantity.unit,
        "mean": marginal.mean,
        "sd": marginal.sd,
        "quantiles": quantiles,
    }
