"""Sizes of a run, by preset and task.

`paper` is the paper's own (appendix "Experimental Details"): its network, steps, batches, schedules and evaluation sizes, for an
accelerator and days. `laptop` is for twenty minutes on two cores, `quick` for a few.
"""

import copy
from typing import Any

from scorebed.errors import UnknownNameError
from scorebed.policies import paper_policy
from scorebed.tasks.base import Task
from scorebed.tasks.gravimetry import Gravimetry
from scorebed.tasks.location import LocationFinding
from scorebed.tasks.sde import EulerMaruyama

PRESETS = ("quick", "laptop", "paper")

Values = dict[str, Any]


def preset_values(preset: str, task_name: str, task: Task, *, method: str = "score") -> Values:
    """The configuration of a preset as nested values, before a user's own are laid over it."""
    if preset not in PRESETS:
        raise UnknownNameError("preset", preset, PRESETS)
    sizes = copy.deepcopy(_paper(task) if preset == "paper" else _particles(task, quick=preset == "quick"))
    return {"task": task_name, "method": method, "preset": preset, "policy": paper_policy(task)} | sizes


def _paper(task: Task) -> Values:
    """Tables "Policy training", "Score network training" and the P = 1 rows of the budget tables."""
    dynamical, gravimetry = isinstance(task, EulerMaruyama), isinstance(task, Gravimetry)
    lambda_y, clip = {
        "Pendulum": (0.0125, 5000.0),
        "CartPole": (0.004, 600.0),
        "DoubleLink": (0.02, 10_000.0),
        "Gravimetry": (10_000.0, 5000.0),
    }.get(type(task).__name__, (30.0, 600.0))
    inner = 5_000_000 if gravimetry or (isinstance(task, LocationFinding) and task.designs.dim == 2) else 1_000_000
    return {
        "policies": 3 if dynamical else 1,
        "repeats": 4,
        "score": {
            "kind": "transformer",
            "width": 256,
            "blocks": 4,
            "heads": 8,
            "steps": 66_166 if dynamical else 190_000,
            "batch": 1024,
            "learning_rate": 2e-4,
            "floor_rate": 1e-5,
            "warmup_share": 0.001,
            "clip": clip,
            "lambda_y": lambda_y,
            "weights": "none",
            "seeds": 3 if dynamical else 1,
        },
        "policy_training": {
            "steps": 500 if dynamical else 10_000,
            "batch": 1024,
            "learning_rate": 1e-4 if dynamical else 5e-5,
            "schedule": "constant" if dynamical else "exponential",
            "beta1": 0.9 if dynamical else 0.8,
            "beta2": 0.999 if dynamical else 0.998,
            "keep": "last",
            "monitor_every": 50 if dynamical else 1000,
            "monitor_inner": 100_000,
        },
        "evaluation": {"outer": 2048, "inner": inner, "select_outer": 512, "select_inner": 1_000_000},
    }


def _particles(task: Task, *, quick: bool) -> Values:
    """Likelihood particles and short schedules, for two cores."""
    dynamical = isinstance(task, EulerMaruyama)
    policy_steps = 300 if quick else 1000
    return {
        "policies": 1,
        "score": {
            "kind": "particles",
            "particles": 8,
            "cloud": 8,
            "width": 128,
            "steps": (1500 if dynamical else 1200) if quick else 8000,
            "batch": 256,
            "learning_rate": 1e-3,
            "clip": 10.0,
            "weights": "own",
            "ema": 0.99,
        },
        "policy_training": {
            "steps": policy_steps,
            "batch": 256,
            "learning_rate": 5e-4 if dynamical else 1e-3,
            "schedule": "cosine",
            "limit": 0.0 if dynamical else 0.01,
            "beta1": 0.9 if dynamical else 0.8,
            "beta2": 0.999 if dynamical else 0.998,
            "monitor_every": 25 if quick else 50,
            "monitor_inner": 100_000,
        },
        "evaluation": {
            "outer": 512 if quick else 2048,
            "inner": 1_000_000,
            "select_outer": 256,
            "select_inner": 100_000,
        },
    }
