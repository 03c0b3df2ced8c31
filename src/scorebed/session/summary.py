"""Where an experiment stands and what it says, in plain values: for `--json` and for a page."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scorebed.errors import ScorebedError
from scorebed.session.circumstances import Expectation as Expectation
from scorebed.session.posterior import QUANTILES, Beliefs, Marginal
from scorebed.session.state import State
from scorebed.session.store import Experiment


def summarise(
    experiment: Experiment,
    path: Path,
    known: State,
    beliefs: Beliefs,
    expected: Expectation | None,
    circumstances: Sequence[str] = (),
    warnings: Sequence[str] = (),
    scope: str | None = None,
) -> dict[str, Any]:
    """Everything but the particles. `problem` is a sentence where there is no posterior, or one not
    to be trusted.
    """
    found: dict[str, Any] = {
        "posterior": None,
        "information": None,
        "ess": None,
        "particles": None,
        "problem": None,
    }
    try:
        posterior = beliefs.posterior(known.records)
    except ScorebedError as error:
        found["problem"] = str(error)
    else:
        found |= {
            "posterior": [plain(m) for m in posterior.marginals],
            "information": posterior.information,
        }
        found |= {
            "ess": posterior.ess,
            "particles": len(posterior.theta),
            "problem": posterior.warning,
        }
    return {
        **{name: getattr(experiment, name) for name in ("name", "run", "task", "seed", "created")},
        "db": str(path),
        "sequence": known.sequence,
        "step": known.step,
        "horizon": known.horizon,
        "trained_horizon": experiment.horizon,
        "finished": known.finished,
        "proposal": _values(known.proposal),
        "records": [_values(record) for record in known.records],
        "notes": [_values(note) for note in known.notes],
        "limits": _values(known.limits),
        "refinement": _values(known.refinement),
        "circumstances": list(circumstances),
        "warnings": list(warnings),
        **found,
        "scope": scope,
        "expected": _values(expected),
    }


def _values(part: Any) -> dict[str, Any] | None:
    return None if part is None else dataclasses.asdict(part)


def plain(marginal: Marginal) -> dict[str, Any]:
    """A marginal with its name and unit."""
    quantity = marginal.quantity
    quantiles = {
        f"{level:g}": value for level, value in zip(QUANTILES, marginal.quantiles, strict=True)
    }
    return {
        "name": quantity.name,
        "unit": quantity.unit,
        "nuisance": marginal.nuisance,
        "mean": marginal.mean,
        "sd": marginal.sd,
        "quantiles": quantiles,
    }
