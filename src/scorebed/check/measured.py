"""Faults that draws show: values and gradients that are not finite or always zero, and a sampler
that disagrees with its density.

The noise of a step has as many coordinates as its outcome. If y = g(ε) is one-to-one, the density
follows exactly, draw by draw, and sampler and density are compared without statistics:

    log p(y | θ, ξ) = log N(ε; 0, I) − log |det ∂y/∂ε|

If this fails, g may be many-to-one. Then E[∇_θ log p] = 0, E[∇_y log p] = 0 and
E[(y − ȳ)ᵀ ∇_y log p] = −dy decide, at six standard errors, unless the outcome is monotone in its
noise, which is one-to-one."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from scorebed._jit import jit_once
from scorebed.check.draws import CONDITIONS, DRAWS, Draws, Experiments, draw_experiments, draw_steps
from scorebed.check.far import far_findings
from scorebed.check.finding import DISCRETE_OUTCOME, ERROR, HINT, WARNING, Finding, failed, fault
from scorebed.estimators.score import noise_change
from scorebed.keys import named
from scorebed.tasks.base import Gaussian, Task
from scorebed.tasks.declare import DISCRETE_DESIGNS
from scorebed.tasks.nuisance import has_nuisance

ALARM = 6.0  # standard errors
FEW_VALUES = 8  # an outcome with at least so many draws per distinct value is discrete


def measured_findings(task: Task, *, key: PRNGKeyArray) -> list[Finding]:
    """Faults in the values of a task that can be traced."""
    try:
        runs = draw_experiments(task, key=named(key, "runs"))
        draws = draw_steps(task, key=named(key, "draws"))
    except Exception as error:
        return [failed(task, "a simulated experiment", error)]
    found = _finite(task, runs, draws)
    if found:  # what follows would compare NaNs
        return found
    discrete = _declared_outcomes(task, draws) if task.discrete_outcomes else _discrete(task, draws)
    effects = _effects(task, runs)
    found = discrete + effects + _prior(runs)
    if task.discrete_outcomes:
        return found + _jumps(task)
    if not discrete and task.has_density:
        found += _density(task, draws)
    if not any(f.severity == ERROR for f in found):
        found += (
            _additive(task, runs)
            if task.has_density
            else _additive_outcome(task, key=named(key, "noise"))
        )
        found += far_findings(task, key=named(key, "far"))
    return found


def _finite(task: Task, runs: Experiments, draws: Draws) -> list[Finding]:
    """The first value that is not finite."""
    inside = slice(None, CONDITIONS)
    values = {
        "outcome": (runs.ys, draws.ys[inside]),
        "log_prob": (runs.log_lik, draws.log_prob[inside]),
    }
    for name, parts in values.items():
        share = max(float(np.mean(~np.isfinite(part))) for part in parts)
        if share:
            return [
                fault(
                    "gradient",
                    f"`{name}` is NaN or infinite in {share:.1%} of the draws",
                    f"look for logarithms and quotients of numbers that may be zero or "
                    f"negative{_scale(task)}",
                )
            ]
    if np.isnan(runs.change_log_lik).any() or np.isposinf(runs.change_log_lik).any():
        return [
            fault(
                "gradient",
                "`log_prob` is NaN for data of other parameters",
                f"make it finite for every draw of the prior{_scale(task)}",
            )
        ]
    gradients = {
        "the outcome": (runs.grad_y, draws.grad_y[inside], task.outcomes),
        "the parameter": (runs.grad_theta, draws.grad_theta[inside], task.prior.quantities),
        "the design": (
            runs.grad_xi + runs.along + runs.pull_xi,
            draws.grad_xi[inside],
            task.designs.quantities,
        ),
    }
    for what, (one, two, quantities) in gradients.items():
        bad = np.concatenate(
            [(~np.isfinite(part)).reshape(-1, len(quantities)) for part in (one, two)]
        )
        if bad.any():
            name = quantities[int(bad.sum(0).argmax())].name
            return [
                fault(
                    "gradient",
                    f"the gradient of {_likelihood(task)} in {what} '{name}' is NaN or infinite in "
                    f"{bad.any(1).mean():.1%} of the draws",
                    "smooth corners and roots at zero, as in jnp.sqrt(x**2 + 1e-12)",
                )
            ]
    return _edge(task, draws)


def _edge(task: Task, draws: Draws) -> list[Finding]:
    parts = (
        draws.ys,
        draws.log_prob[..., None],
        draws.grad_xi,
        draws.grad_theta,
        draws.jacobian.reshape(*draws.ys.shape[:2], -1),
    )
    for i, xi in enumerate(draws.xi):
        if i >= CONDITIONS and not all(np.isfinite(part[i]).all() for part in parts):
            where = ", ".join(
                f"{q.name} = {v:g}" for q, v in zip(task.designs.quantities, xi, strict=True)
            )
            return [
                fault(
                    "gradient",
                    f"a value or a gradient is NaN or infinite at {where}, where policies may go",
                    "narrow its range a little, or keep zero out of roots, logarithms and "
                    "quotients",
                )
            ]
    return []


def _likelihood(task: Task) -> str:
    """What depends on parameters and designs: the density, or the outcome if there is none."""
    return "`log_prob`" if task.has_density else "`outcome`"


def _scale(task: Task) -> str:
    return ", and whether `scale` is positive" if isinstance(task, Gaussian) else ""


def _discrete(task: Task, draws: Draws) -> list[Finding]:
    """Outcomes that take few values, or one."""
    found = []
    for i, q in enumerate(task.outcomes):
        distinct = [len(np.unique(ys[:, i])) for ys in draws.ys[:CONDITIONS]]
        if max(distinct) == 1:
            found.append(
                fault(
                    "density",
                    f"the outcome '{q.name}' does not depend on its noise",
                    f"use noise[{i}] in `outcome`",
                )
            )
        elif max(distinct) * FEW_VALUES < DRAWS or not draws.jacobian[:CONDITIONS, :, i].any():
            found.append(
                fault(
                    "discrete",
                    f"the outcome '{q.name}' takes {max(distinct)} different values: discrete "
                    f"outcomes have no score",
                    DISCRETE_OUTCOME,
                )
            )
    return found


def _declared_outcomes(task: Task, draws: Draws) -> list[Finding]:
    """Outcomes among the values that were declared, as often as their probabilities say."""
    for i, q in enumerate(task.outcomes):
        strange = draws.ys[..., i][~np.isin(draws.ys[..., i], np.asarray(q.values, np.float32))]
        if strange.size:
            return [
                fault(
                    "discrete",
                    f"the outcome '{q.name}' is {strange[0]:g} in some draws, which is not one of "
                    f"its {len(q.values)} values",
                    "give `outcome` the declared values alone, or let Discrete draw it",
                )
            ]
    if not task.has_density:
        return []
    chances = np.exp(draws.log_probs)
    total = chances.sum(-1)
    off = np.abs(total - 1)
    if off.max() > 1e-3:
        return [
            fault(
                "density",
                f"the probabilities of an outcome add up to {total[off.argmax()]:.4g}",
                "make them add up to one, for example by jax.nn.softmax",
            )
        ]
    if chances.min() < -1e-6 or not np.isfinite(chances).all():
        return [fault("density", "a probability is negative or NaN", "keep it between 0 and 1")]
    every = np.asarray(task.all_outcomes(), np.float32)
    n = draws.ys.shape[1]
    shares = np.stack([(draws.ys == y).all(-1).mean(-1) for y in every], axis=-1)
    away = np.abs(shares - chances) / (np.sqrt(chances * (1 - chances) / n) + 1 / n)
    if away.max() <= ALARM:
        return []
    return [
        fault(
            "density",
            "`outcome` and `log_prob` are different distributions: an outcome of probability "
            f"{chances.flat[away.argmax()]:.3g} has a share of {shares.flat[away.argmax()]:.3g} "
            "among the draws",
            "write both with the same probabilities, or inherit from Discrete",
        )
    ]


def _jumps(task: Task) -> list[Finding]:
    """Outcomes that jump have no additive noise."""
    if not task.additive_noise:
        return []
    return [
        fault(
            "additive-noise",
            "`additive_noise` is True, but outcomes are finitely many",
            "write additive_noise = False",
        )
    ]


def _effects(task: Task, runs: Experiments) -> list[Finding]:
    """Designs and parameters without an effect, or with one that no gradient sees."""
    found, k = [], task.prior.dim
    size = np.abs(runs.ys).max() or 1.0
    changes_y = runs.change_y.max(0) > 1e-6 * size
    changes_density = np.abs(runs.change_log_lik).max(0) > 1e-6 * (1 + np.abs(runs.log_lik).max())
    for i, q in enumerate(task.designs.quantities):
        of_y, of_density = changes_y[k + i], changes_density[k + i]
        if not of_y and not of_density:
            found.append(
                fault(
                    "no-effect",
                    f"the design '{q.name}' has no effect on outcomes or their density",
                    f"use xi[{i}] in the model, or leave the design out",
                )
            )
        elif of_y != of_density:
            which = ("outcomes", "their density") if of_y else ("the density", "the outcomes")
            found.append(
                fault(
                    "density",
                    f"the design '{q.name}' changes {which[0]} but not {which[1]}",
                    f"use xi[{i}] in both `outcome` and `log_prob`",
                )
            )
        elif not q.labels and not runs.grad_xi[..., i].any() and not runs.pull_xi[..., i].any():
            found.append(
                fault(
                    "discrete",
                    f"the design '{q.name}' has an effect, but its gradient is zero everywhere: it "
                    f"is discrete (round, floor, an index) or inside a stop_gradient",
                    DISCRETE_DESIGNS,
                )
            )
    for i, q in enumerate(task.prior.quantities):
        if not changes_density[i] and _through_others(task, i, changes_density[:k]):
            continue
        if not changes_density[i]:
            found.append(
                Finding(
                    "no-effect",
                    ERROR if changes_y[i] else WARNING,
                    f"the parameter '{q.name}' has no effect on {_likelihood(task)}: nothing can "
                    f"be learned about it",
                    f"use theta[{i}] in the model, or leave the parameter out",
                )
            )
        elif not runs.grad_theta[..., i].any():
            found.append(
                fault(
                    "gradient",
                    f"the gradient of {_likelihood(task)} in the parameter '{q.name}' is zero "
                    f"everywhere, though it has an effect",
                    "make the model smooth in it, without stop_gradient",
                )
            )
    return found


def _through_others(task: Task, number: int, effective: np.ndarray) -> bool:
    """Whether a parameter has its effect through others, as the mean of a hierarchical prior has:
    its latent number moves one that has an effect.
    """
    z = jnp.full(task.prior.dim, 0.3)
    jacobian = jit_once(jax.jacfwd(lambda z: task.prior.from_latent(z)))(z)
    moves = np.asarray(jacobian)[:, number] != 0
    return bool((moves & effective).any())


def _prior(runs: Experiments) -> list[Finding]:
    # At an atom the map is flat, and there is nothing to compare.
    gap = runs.prior_gap[np.isfinite(runs.prior_gap)]
    if not gap.size or np.quantile(np.abs(gap), 0.9) < 0.02:
        return []
    return [
        fault(
            "density",
            "draws of the prior do not follow its `log_prob`",
            "make from_latent the quantile function of the density",
        )
    ]


def _density(task: Task, draws: Draws) -> list[Finding]:
    """The sampler against the density."""
    sign, log_det = np.linalg.slogdet(draws.jacobian)
    dy = task.outcome_dim
    exact = -0.5 * (draws.noise**2).sum(-1) - 0.5 * dy * np.log(2 * np.pi) - log_det
    gap = draws.log_prob - exact
    # An outcome has 24 bits: if it is many times its noise, this much of the density is rounding.
    rounding = (
        8
        * np.finfo(np.float32).eps
        * (np.abs(draws.ys * draws.grad_y).sum(-1) + np.abs(draws.log_prob))
    )
    tolerance = 2e-3 + 2 * rounding
    wrong = ~(np.abs(gap) <= tolerance)
    if wrong.mean() < 0.002:
        return []
    centred = gap - np.median(gap, axis=1, keepdims=True)
    if (np.abs(centred) <= 2 * tolerance).mean() > 0.998:
        offsets = np.median(gap, axis=1)
        if np.ptp(offsets) <= 4 * tolerance.max():
            return [
                Finding(
                    "density",
                    WARNING,
                    f"`log_prob` is off by {offsets[0]:+.3g} everywhere: it is not normalised, "
                    f"which changes no gradient and no bound",
                    "add the constant of the density, for a Gaussian −½ log 2π per outcome",
                )
            ]
        return [
            fault(
                "density",
                "`log_prob` lacks a part of its normaliser that depends on θ or ξ",
                "add it, for a Gaussian −log(scale) per outcome",
            )
        ]
    return _disagreement(task, draws, one_to_one=bool((np.abs(sign.mean(1)) == 1).all()))


def _disagreement(task: Task, draws: Draws, *, one_to_one: bool) -> list[Finding]:
    """How sampler and density differ; nothing if they may agree."""
    n = draws.ys.shape[1]

    def standard_errors(x: np.ndarray) -> np.ndarray:
        return np.abs(x.mean(1)) / (x.std(1) / n**0.5 + 1e-30)

    by_theta, by_y = standard_errors(draws.grad_theta), standard_errors(draws.grad_y)
    stein = -(draws.ys - draws.ys.mean(1, keepdims=True)) * draws.grad_y
    spread = standard_errors(stein - 1)
    if max(by_theta.max(), by_y.max(), spread.max()) <= ALARM and not one_to_one:
        return []
    wide = stein.mean((0, 1))
    i = int(np.abs(np.log(np.maximum(wide, 1e-6))).argmax())
    if by_y.max() <= ALARM and spread.max() > ALARM and wide[i] > 0:
        words = (
            f"draws of '{task.outcomes[i].name}' spread {wide[i] ** 0.5:.2g} times as widely as "
            f"`log_prob` says"
        )
    elif max(by_theta.max(), by_y.max()) > ALARM:
        words = f"E[∇ log p] is {max(by_theta.max(), by_y.max()):.0f} standard errors from zero"
    else:
        words = "log p(y) does not match the noise behind y"
    return [
        fault(
            "density",
            f"`outcome` and `log_prob` are different distributions: {words}",
            "write both with the same mean and noise, or inherit from Gaussian and write mean and "
            "scale",
        )
    ]


def _additive_outcome(task: Task, *, key: PRNGKeyArray) -> list[Finding]:
    """The same without a density, from the part of the outcome that comes from noise."""
    change, allowed = noise_change(task, key=key)
    return _as_declared(task, change <= allowed)


def _additive(task: Task, runs: Experiments) -> list[Finding]:
    """If y = mean + constant · noise, log p(y | θ, ξ) stays the same when y follows ξ."""
    norm = lambda x: np.sqrt((x**2).sum((1, 2)))  # noqa: E731
    part, along = norm(runs.grad_xi), norm(runs.along)
    share = along / (part + 1e-3 * (part.mean() + 1e-30))
    return _as_declared(task, bool(np.quantile(share, 0.9) < 0.01 and share.max() < 0.1))


def _as_declared(task: Task, holds: bool) -> list[Finding]:
    if task.additive_noise and not holds:
        return [
            fault(
                "additive-noise",
                "`additive_noise` is True, but the noise changes with the design or the state",
                "write additive_noise = False",
            )
        ]
    if not task.additive_noise and holds and not has_nuisance(task):
        return [
            Finding(
                "additive-noise",
                HINT,
                "the noise is additive, which saves a part of every gradient",
                "write additive_noise = True",
            )
        ]
    return []
