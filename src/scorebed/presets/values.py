"""Sizes of a run, by preset and task.

`paper` is the paper's own (appendix "Experimental Details"): its network, steps, batches, schedules
and evaluation sizes, for an accelerator and days. `laptop` is for twenty minutes on two cores,
`quick` for a few."""

import copy
from typing import Any

from scorebed.errors import UnknownNameError
from scorebed.policies import knows_modes, our_policy, paper_policy
from scorebed.runs.methods import BY_SCORE, UNTRAINED
from scorebed.runs.training import STATIC_RATE
from scorebed.tasks.base import IID, Markov, Task
from scorebed.tasks.library.cart_pole import CartPole
from scorebed.tasks.library.double_link import DoubleLink
from scorebed.tasks.library.gravimetry import Gravimetry
from scorebed.tasks.library.location import LocationFinding
from scorebed.tasks.library.pendulum import Pendulum
from scorebed.tasks.nuisance import has_nuisance

PRESETS = ("quick", "laptop", "paper")

Values = dict[str, Any]


def preset_values(
    preset: str, task_name: str, task: Task, *, method: str = "score", policy: str | None = None
) -> Values:
    """The configuration of a preset as nested values, before a user's own are laid over it.

    Without a policy: the paper's; for the methods by a score and two cores ours.
    """
    if preset not in PRESETS:
        raise UnknownNameError("preset", preset, PRESETS)
    paper, quick = preset == "paper", preset == "quick"
    if policy is None:
        ours = method in BY_SCORE and not paper
        policy = (
            method
            if method in ("static", *UNTRAINED)
            else (our_policy if ours else paper_policy)(task)
        )
    sizes = copy.deepcopy(_paper(task) if paper else _two_cores(task, policy, quick=quick))
    if method == "score" and knows_modes(task) and _without_network(task, preset):
        sizes["score"] |= _laplace(task)
    sizes["density"] = _density(task, method, paper=paper, quick=quick)
    sizes["iosmc"] = _nested(task, paper=paper)
    if method not in BY_SCORE:  # who is not done early uses what it is given
        sizes["policy_training"]["patience"] = 0
    sizes["policy_training"] |= _own(method, task, paper=paper, steps=sizes["density"]["steps"])
    if not task.has_density:
        sizes["score"] |= {"weights": "none"} | _without_density(preset)
        sizes["evaluation"]["outer"] = (
            2048  # experiments are all that the bound of a posterior takes
        )
    if method == "myopic" and not paper:  # it computes in every experiment
        sizes["evaluation"]["outer"] = 128
    return {"task": task_name, "method": method, "preset": preset, "policy": policy} | sizes


def _without_density(preset: str) -> Values:
    """A network for sliced score matching: particles are made of likelihoods, and a conservative
    one costs a third derivative.
    """
    if preset == "paper":
        return {"kind": "transformer-direct"}
    steps = 3000 if preset == "quick" else 10_000
    return {"kind": "transformer-direct", "width": 64, "blocks": 2, "heads": 4, "steps": steps}


def _density(task: Task, method: str, *, paper: bool, quick: bool) -> Values:
    """A flow for `varmarg`, a transformer for the others; the sizes of the paper, or about a tenth
    of them.
    """
    flow, dynamical = method == "varmarg", not isinstance(task, IID)
    if paper:
        paper_sizes: Values = {"width": 80, "layers": 5} if flow else {"width": 256, "layers": 4}
        return paper_sizes | {"steps": 199_500 if dynamical else 190_000, "batch": 1024}
    sizes: Values = (
        {"width": 64, "layers": 3} if flow else {"width": 32, "layers": 2, "heads": 4, "sigma": 0.1}
    )
    return sizes | {"steps": 2000 if quick else 20_000, "batch": 256, "ema": 0.99}


def _nested(task: Task, *, paper: bool) -> Values:
    """IO-SMC²: tempering and penalty as published for each system, and for any other as for the
    pendulum.
    """
    tempering, penalty = (0.25, 0.1) if isinstance(task, CartPole | DoubleLink) else (1.0, 0.2)
    sizes = (
        {"trajectories": 1024, "particles": 512}
        if paper
        else {"trajectories": 128, "particles": 64}
    )
    return sizes | {"tempering": tempering, "penalty": penalty}


def _own(method: str, task: Task, *, paper: bool, steps: int) -> Values:
    """What a method trains policies with that others do not."""
    paper_inner = 19 if isinstance(task, IID) else 399
    inner = paper_inner if paper else 255
    if method == "jointvarpost":
        rates = (1e-5, 5e-6) if paper else (3e-4, 0.0)
        return {
            "steps": steps if paper else min(steps, 4000 if isinstance(task, IID) else 1500),
            "schedule": "cosine",
            "learning_rate": rates[0],
            "final_rate": rates[1],
            "limit": 0.0,
        }
    if method == "mlmc":
        return {"base": 1 if paper else 8, "levels": 12 if paper else 6, "limit": 0.0}
    if method == "iosmc":
        rate = 5e-4 if isinstance(task, CartPole | DoubleLink) else 1e-3
        return {
            "steps": 25,
            "batch": 64,
            "inner": inner,
            "noise_rate": 1.0,
            "learning_rate": rate,
            "schedule": "constant",
            "limit": 0.0,
        }
    if method == "static":
        return {
            "inner": inner,
            "learning_rate": STATIC_RATE,
            "schedule": "cosine",
            "final_rate": 0.0,
            "limit": 0.0,
        }
    if method in ("pce", "nmc"):
        return {"inner": inner, "limit": 0.0}
    return {} if method in ("score", "jointscore") else {"limit": 0.0}


def _paper(task: Task) -> Values:
    """Tables "Policy training", "Score network training" and the P = 1 rows of the budget
    tables.
    """
    dynamical = not isinstance(task, IID)
    lambda_y, clip = (
        {
            "Pendulum": (0.0125, 5000.0),
            "CartPole": (0.004, 600.0),
            "DoubleLink": (0.02, 10_000.0),
            "Gravimetry": (10_000.0, 5000.0),
        }.get(type(task).__name__, (30.0, 600.0))
        if _built_in(task)
        else ("auto", 10.0)
    )
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
        "evaluation": {
            "outer": 2048,
            "inner": _paper_inner(task),
            "select_outer": 512,
            "select_inner": 1_000_000,
        },
    }


def _without_network(task: Task, preset: str) -> bool:
    """Whether the score comes from posterior modes, where these are known.

    Particles learn little of a void in a few minutes: 7.6 nats on gravimetry, where modes give 8.9.
    A plan that climbs the particles' gradient ends higher on the pendulum and the cart-pole, and
    lower on the double link (docs/results.md)."""
    if preset == "quick":
        return isinstance(task, Gravimetry)
    return preset == "laptop" and not isinstance(task, Pendulum | CartPole)


def _laplace(task: Task) -> Values:
    """One start suffices for the dynamical systems; sources, and a void, have to be looked for."""
    return {"kind": "laplace", "cloud": 8} | (
        {"particles": 16, "iterations": 16}
        if isinstance(task, IID)
        else {"particles": 1, "iterations": 6}
    )


def _two_cores(task: Task, policy: str, *, quick: bool) -> Values:
    """Likelihood particles and short schedules; a small transformer where the likelihood sees the
    whole history.

    A task of somebody's own may have a slow likelihood, so its bounds are smaller: theirs is a
    ceiling of log 10⁵ = 11.5 nats."""
    dynamical = not isinstance(task, IID)
    recurrent = dynamical or task.constraint is not None
    pooled, own = isinstance(task, IID | Markov), not _built_in(task)
    network: Values = (
        {"kind": "particles", "particles": 8, "cloud": 8, "width": 128}
        if pooled
        else {"kind": "transformer-direct", "width": 64, "blocks": 2, "heads": 4}
    )
    return {
        "policies": 3 if policy == "plan" and not quick else 1,
        "score": {
            **network,
            "steps": _score_steps(task, quick=quick),
            "batch": 256,
            "learning_rate": 1e-3,
            "clip": 10.0,
            "weights": "own",
            "ema": 0.99,
        },
        "policy_training": {
            "batch": 256,
            "schedule": "cosine",
            # Shortened gradients would weigh nats against costs wrongly.
            "limit": 0.0 if recurrent or task.cost is not None else 0.01,
            "noise_rate": 20.0 if recurrent else 1.0,
            "beta1": 0.9 if recurrent else 0.8,
            "beta2": 0.999 if recurrent else 0.998,
            "monitor_every": 25 if quick else 50,
            **_monitor(task, own=own),
            "patience": 50 if dynamical and quick else 0,
        }
        | _schedule(policy, task, dynamical=recurrent, quick=quick),
        "evaluation": {
            "outer": 512 if quick else 2048,
            "inner": 100_000 if own else _paper_inner(task) if not quick else 1_000_000,
            "select_outer": 1024 if dynamical and knows_modes(task) else 256,
            "select_inner": 20_000 if own else 100_000,
        },
    }


def _monitor(task: Task, *, own: bool) -> Values:
    """Estimates that good policies do not press against; by modes where these are known to tell
    nearly all.
    """
    if knows_modes(task) and not has_nuisance(task):
        return {"monitor": "importance", "monitor_inner": 256}
    return {"monitor_inner": 20_000 if own else 300_000 if _many_sources(task) else 100_000}


def _score_steps(task: Task, *, quick: bool) -> int:
    """About two minutes of stage 1: a step on the larger systems takes twice as long as on the
    pendulum.
    """
    if _many_sources(task):
        return 600 if quick else 2000
    if not quick:
        return 4000
    if isinstance(task, IID):
        return 1200
    return 1500 if isinstance(task, CartPole | DoubleLink) else 3000


def _schedule(policy: str, task: Task, *, dynamical: bool, quick: bool) -> Values:
    """How a policy is trained that has its own wishes, or any other."""
    if policy == "modes" and _many_sources(task):
        return {"steps": 50 if quick else 200, "batch": 64, "learning_rate": 1e-3}
    if policy == "modes":
        return {
            "steps": 150 if quick else 600,
            "batch": 64 if quick else 128,
            "learning_rate": 3e-3,
        }
    if policy == "plan":
        return {"steps": 150 if quick else 400, "batch": 256, "learning_rate": 1e-3, "ema": 0.9}
    return {
        "steps": (150 if dynamical else 300) if quick else 1000,
        "learning_rate": 5e-4 if dynamical else 1e-3,
    }


def _paper_inner(task: Task) -> int:
    """Contrastive parameters of the paper's bounds."""
    planar = isinstance(task, LocationFinding) and task.designs.dim == 2
    return 5_000_000 if planar or isinstance(task, Gravimetry) else 1_000_000


def _many_sources(task: Task) -> bool:
    """More than posterior modes are known to tell; a step of training takes seven times as long as
    with two sources.
    """
    return isinstance(task, LocationFinding) and not knows_modes(task)


def _built_in(task: Task) -> bool:
    return type(task).__module__.partition(".")[0] == "scorebed"
