"""scorebed: policy-based Bayesian experimental design by score matching.

The nouns and verbs of the paper, and nothing else. A name is imported when it is first used, so
that the command line can answer before JAX is loaded.

A public name stands in three places: `__all__`, the imports for type checkers, and `_HOME`, the
module that each name is loaded from. Type checkers do not see `__getattr__`: a misspelt name is an
error to them."""

from typing import TYPE_CHECKING

from scorebed._allocator import keep_large_blocks as _keep_large_blocks

__all__ = [
    "POLICIES",
    "SAMPLERS",
    "TASKS",
    "Bounds",
    "Session",
    "Trajectory",
    "best_policy",
    "check_task",
    "continue_after",
    "draw_experiments",
    "eig_bounds",
    "export_policy",
    "load",
    "log_likelihood",
    "log_likelihoods",
    "make_policy",
    "make_sampler",
    "make_task",
    "paper_sampler",
    "register_policy",
    "simulate",
    "simulate_outcomes",
    "train_policies",
    "train_score",
]

__version__ = "0.1.0"

_keep_large_blocks()

if TYPE_CHECKING:
    from scorebed.bounds.contrastive import Bounds, eig_bounds
    from scorebed.check import check_task
    from scorebed.export.folder import export_policy
    from scorebed.inference.history import continue_after
    from scorebed.plots.experiments import draw_experiments
    from scorebed.policies import POLICIES, make_policy, register_policy
    from scorebed.rollout import (
        Trajectory,
        log_likelihood,
        log_likelihoods,
        simulate,
        simulate_outcomes,
    )
    from scorebed.runs.load import load
    from scorebed.samplers import SAMPLERS, make_sampler
    from scorebed.samplers.paper import paper_sampler
    from scorebed.session.engine import Session
    from scorebed.tasks import TASKS, make_task
    from scorebed.training.policy import best_policy, train_policies
    from scorebed.training.score import train_score
else:
    import importlib as _importlib

    _HOME = {
        "POLICIES": "policies",
        "SAMPLERS": "samplers",
        "TASKS": "tasks",
        "Bounds": "bounds.contrastive",
        "Session": "session.engine",
        "Trajectory": "rollout",
        "best_policy": "training.policy",
        "check_task": "check",
        "continue_after": "inference.history",
        "draw_experiments": "plots.experiments",
        "eig_bounds": "bounds.contrastive",
        "export_policy": "export.folder",
        "load": "runs.load",
        "log_likelihood": "rollout",
        "log_likelihoods": "rollout",
        "make_policy": "policies",
        "make_sampler": "samplers",
        "make_task": "tasks",
        "paper_sampler": "samplers.paper",
        "register_policy": "policies",
        "simulate": "rollout",
        "simulate_outcomes": "rollout",
        "train_policies": "training.policy",
        "train_score": "training.score",
    }

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'scorebed' has no attribute '{name}'")
        return getattr(_importlib.import_module(f"scorebed.{_HOME[name]}"), name)

    def __dir__() -> list[str]:
        return sorted([*_HOME, "__version__"])
