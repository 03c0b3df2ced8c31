"""scorebed: policy-based Bayesian experimental design by score matching.

The nouns and verbs of the paper, and nothing else. A name is imported when it is first used, so
that the command line can answer before JAX is loaded.

A public name stands in three places: `__all__`, the imports for type checkers, and `_HOME`, the
module that each name is loaded from. Type checkers do not see `__getattr__`: a misspelt name is an
error to them.
"""

from typing import TYPE_CHECKING

from scorebed._platform import keep_large_blocks as _keep_large_blocks

__all__ = [
    "BOUNDS",
    "IID",
    "METHODS",
    "POLICIES",
    "SAMPLERS",
    "SCORES",
    "TASKS",
    "Bound",
    "Bounds",
    "BudgetExceededError",
    "CartPole",
    "DesignSampler",
    "Discrete",
    "DoubleLink",
    "EstimatorMethod",
    "EulerMaruyama",
    "Gaussian",
    "Gravimetry",
    "History",
    "Implicit",
    "InvalidValueError",
    "LinearGaussian",
    "LocationFinding",
    "Markov",
    "Method",
    "NoDensityError",
    "Noise",
    "Pendulum",
    "Policy",
    "Run",
    "Score",
    "ScoreKind",
    "ScoreValue",
    "ScorebedError",
    "Session",
    "StochasticPolicy",
    "SweepResult",
    "Task",
    "Trajectory",
    "UnknownNameError",
    "best_policy",
    "categories",
    "check_task",
    "continue_after",
    "counts",
    "diagnose",
    "distil",
    "draw_experiments",
    "draw_noise",
    "eig_bounds",
    "export_policy",
    "from_numpyro",
    "from_samples",
    "importance_bounds",
    "load",
    "log_likelihood",
    "log_likelihoods",
    "make_bound",
    "make_policy",
    "make_sampler",
    "make_task",
    "measured",
    "ordered",
    "paper_sampler",
    "parameters",
    "priced",
    "ranges",
    "register_bound",
    "register_method",
    "register_policy",
    "register_sampler",
    "register_score",
    "simulate",
    "simulate_outcomes",
    "smc_bounds",
    "steps_at_most",
    "sweep",
    "tight_bounds",
    "train_policies",
    "train_predictive",
    "train_score",
    "unbounded",
    "write_report",
]

__version__ = "0.2.0"

_keep_large_blocks()

if TYPE_CHECKING:
    from scorebed.bounds import BOUNDS, make_bound, register_bound, tight_bounds
    from scorebed.bounds.base import Bound, Bounds
    from scorebed.bounds.contrastive import eig_bounds
    from scorebed.bounds.importance import importance_bounds
    from scorebed.bounds.smc import smc_bounds
    from scorebed.check import check_task
    from scorebed.diagnostics.diagnosis import diagnose
    from scorebed.errors import (
        BudgetExceededError,
        InvalidValueError,
        NoDensityError,
        ScorebedError,
        UnknownNameError,
    )
    from scorebed.export.folder import export_policy
    from scorebed.inference.history import continue_after
    from scorebed.methods import METHODS, EstimatorMethod, Method, register_method
    from scorebed.plots.experiments import draw_experiments
    from scorebed.policies import POLICIES, make_policy, register_policy
    from scorebed.policies.base import Policy, StochasticPolicy
    from scorebed.report import write_report
    from scorebed.rollout import (
        Noise,
        Trajectory,
        draw_noise,
        log_likelihood,
        log_likelihoods,
        simulate,
        simulate_outcomes,
    )
    from scorebed.runs.load import Run, load
    from scorebed.samplers import SAMPLERS, make_sampler, register_sampler
    from scorebed.samplers.base import DesignSampler
    from scorebed.samplers.paper import paper_sampler
    from scorebed.scores import SCORES, register_score
    from scorebed.scores.base import Score, ScoreKind, ScoreValue
    from scorebed.session.session import Session
    from scorebed.sweeps.api import SweepResult, sweep
    from scorebed.tasks import TASKS, make_task
    from scorebed.tasks.base import IID, Gaussian, History, Implicit, Markov, Task
    from scorebed.tasks.constraints import ordered, steps_at_most
    from scorebed.tasks.declare import (
        categories,
        counts,
        measured,
        parameters,
        priced,
        ranges,
        unbounded,
    )
    from scorebed.tasks.discrete import Discrete
    from scorebed.tasks.library.cart_pole import CartPole
    from scorebed.tasks.library.double_link import DoubleLink
    from scorebed.tasks.library.euler_maruyama import EulerMaruyama
    from scorebed.tasks.library.gravimetry import Gravimetry
    from scorebed.tasks.library.location import LocationFinding
    from scorebed.tasks.library.pendulum import Pendulum
    from scorebed.tasks.numpyro import from_numpyro
    from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
    from scorebed.tasks.sample_prior import from_samples
    from scorebed.training.distillation import distil
    from scorebed.training.policy import best_policy, train_policies
    from scorebed.training.predictive import train_predictive
    from scorebed.training.score import train_score
else:
    import gc as _gc
    import importlib as _importlib

    _HOME = {
        "BOUNDS": "bounds",
        "IID": "tasks.base",
        "METHODS": "methods",
        "POLICIES": "policies",
        "SAMPLERS": "samplers",
        "SCORES": "scores",
        "TASKS": "tasks",
        "Bound": "bounds.base",
        "Bounds": "bounds.base",
        "BudgetExceededError": "errors",
        "CartPole": "tasks.library.cart_pole",
        "DesignSampler": "samplers.base",
        "Discrete": "tasks.discrete",
        "DoubleLink": "tasks.library.double_link",
        "EstimatorMethod": "methods",
        "EulerMaruyama": "tasks.library.euler_maruyama",
        "Gaussian": "tasks.base",
        "Gravimetry": "tasks.library.gravimetry",
        "History": "tasks.base",
        "Implicit": "tasks.base",
        "InvalidValueError": "errors",
        "LinearGaussian": "tasks.oracles.linear_gaussian",
        "LocationFinding": "tasks.library.location",
        "Markov": "tasks.base",
        "Method": "methods",
        "NoDensityError": "errors",
        "Noise": "rollout",
        "Pendulum": "tasks.library.pendulum",
        "Policy": "policies.base",
        "Run": "runs.load",
        "Score": "scores.base",
        "ScoreKind": "scores.base",
        "ScoreValue": "scores.base",
        "ScorebedError": "errors",
        "Session": "session.session",
        "StochasticPolicy": "policies.base",
        "SweepResult": "sweeps.api",
        "Task": "tasks.base",
        "Trajectory": "rollout",
        "UnknownNameError": "errors",
        "best_policy": "training.policy",
        "categories": "tasks.declare",
        "check_task": "check",
        "continue_after": "inference.history",
        "counts": "tasks.declare",
        "diagnose": "diagnostics.diagnosis",
        "distil": "training.distillation",
        "draw_experiments": "plots.experiments",
        "draw_noise": "rollout",
        "eig_bounds": "bounds.contrastive",
        "export_policy": "export.folder",
        "from_numpyro": "tasks.numpyro",
        "from_samples": "tasks.sample_prior",
        "importance_bounds": "bounds.importance",
        "load": "runs.load",
        "log_likelihood": "rollout",
        "log_likelihoods": "rollout",
        "make_bound": "bounds",
        "make_policy": "policies",
        "make_sampler": "samplers",
        "make_task": "tasks",
        "measured": "tasks.declare",
        "ordered": "tasks.constraints",
        "paper_sampler": "samplers.paper",
        "parameters": "tasks.declare",
        "priced": "tasks.declare",
        "ranges": "tasks.declare",
        "register_bound": "bounds",
        "register_method": "methods",
        "register_policy": "policies",
        "register_sampler": "samplers",
        "register_score": "scores",
        "simulate": "rollout",
        "simulate_outcomes": "rollout",
        "smc_bounds": "bounds.smc",
        "steps_at_most": "tasks.constraints",
        "sweep": "sweeps.api",
        "tight_bounds": "bounds",
        "train_policies": "training.policy",
        "train_predictive": "training.predictive",
        "train_score": "training.score",
        "unbounded": "tasks.declare",
        "write_report": "report",
    }

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'scorebed' has no attribute '{name}'")
        # Modules are no garbage; looking for some again and again is an eighth of an import.
        collects = _gc.isenabled()
        _gc.disable()
        try:
            return getattr(_importlib.import_module(f"scorebed.{_HOME[name]}"), name)
        finally:
            if collects:
                _gc.enable()

    def __dir__() -> list[str]:
        return sorted([*_HOME, "__version__"])
