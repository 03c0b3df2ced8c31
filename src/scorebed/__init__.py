"""scorebed: policy-based Bayesian experimental design by score matching.

The nouns and verbs of the paper, and nothing else. They are loaded when first used, so that the
command line can answer before JAX is imported."""

import importlib
from typing import TYPE_CHECKING

from scorebed._allocator import keep_large_blocks as _keep_large_blocks

if TYPE_CHECKING:
    from scorebed.bounds.contrastive import Bounds as Bounds
    from scorebed.bounds.contrastive import eig_bounds as eig_bounds
    from scorebed.check import check_task as check_task
    from scorebed.export.folder import export_policy as export_policy
    from scorebed.inference.history import continue_after as continue_after
    from scorebed.plots.experiments import draw_experiments as draw_experiments
    from scorebed.policies import POLICIES as POLICIES
    from scorebed.policies import make_policy as make_policy
    from scorebed.policies import register_policy as register_policy
    from scorebed.rollout import Trajectory as Trajectory
    from scorebed.rollout import log_likelihood as log_likelihood
    from scorebed.rollout import log_likelihoods as log_likelihoods
    from scorebed.rollout import simulate as simulate
    from scorebed.rollout import simulate_outcomes as simulate_outcomes
    from scorebed.runs.load import load as load
    from scorebed.samplers import SAMPLERS as SAMPLERS
    from scorebed.samplers import make_sampler as make_sampler
    from scorebed.samplers import register_sampler as register_sampler
    from scorebed.samplers.paper import paper_sampler as paper_sampler
    from scorebed.session.session import Session as Session
    from scorebed.tasks import TASKS as TASKS
    from scorebed.tasks import make_task as make_task
    from scorebed.training.policy import best_policy as best_policy
    from scorebed.training.policy import train_policies as train_policies
    from scorebed.training.score import train_score as train_score

_keep_large_blocks()

__version__ = "0.1.0"

_HOME = {
    "Bounds": "bounds.contrastive",
    "POLICIES": "policies",
    "SAMPLERS": "samplers",
    "Session": "session.session",
    "TASKS": "tasks",
    "Trajectory": "rollout",
    "best_policy": "training.policy",
    "check_task": "check",
    "continue_after": "inference.history",
    "draw_experiments": "plots.experiments",
    "eig_bounds": "bounds.contrastive",
    "load": "runs.load",
    "log_likelihood": "rollout",
    "log_likelihoods": "rollout",
    "make_policy": "policies",
    "make_sampler": "samplers",
    "make_task": "tasks",
    "simulate_outcomes": "rollout",
    "paper_sampler": "samplers.paper",
    "register_policy": "policies",
    "register_sampler": "samplers",
    "simulate": "rollout",
    "train_policies": "training.policy",
    "train_score": "training.score",
    "export_policy": "export.folder",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'scorebed' has no attribute '{name}'")
    return getattr(importlib.import_module(f"scorebed.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_HOME, "__version__"])
