"""Records of runs that were never carried out."""

from typing import Any

from scorebed.runs.record import BoundsRecord, Record


def some_bounds(lower: float = 3.0, **values: Any) -> BoundsRecord:
    """Bounds half a nat apart."""
    sizes = {"outer": 512, "inner": 999, "ceiling": 6.9, "saturated": 0.0}
    errors = {"lower_se": 0.1, "upper_se": 0.2}
    return BoundsRecord(**{"lower": lower, "upper": lower + 0.5, **errors, **sizes, **values})


def some_record(**values: Any) -> Record:
    """A record of a run on the pendulum."""
    usual = {
        "run": "run",
        "task": "pendulum",
        "method": "score",
        "preset": "quick",
        "policy": "plan",
        "policies": 1,
        "seed": 0,
        "bounds": some_bounds(),
        "bound": "contrastive",
        "nle": 1000,
        "nle_stages": {},
        "nle_evaluation": 0,
        "seconds": {},
        "references": {},
    }
    return Record(**usual | values)
