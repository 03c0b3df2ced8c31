"""Nuisance parameters: θ = (ψ, η), where ψ is of interest and η is not.

    EIG on ψ = E[log p(y | ψ, ξ) − log p(y | ξ)],   p(y | ψ, ξ) = E_{p(η|ψ)} p(y | ψ, η, ξ)

A task names ψ by `interest = ("strength",)`; without it all of θ is of interest. Draws of p(η | ψ)
come from the latent map θ = f(z): the z of ψ are kept, and those of η are drawn again. That is
valid if ψ does not depend on the z of η: for independent priors, and for correlated ones in which
the parameters of interest come first. Others are refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from scorebed.errors import InvalidValueError, UnknownNameError, require
from scorebed.keys import named
from scorebed.tasks.base import Task

DRAWS = 64
ROUNDING = 1e-3  # of the spread of a parameter: smaller changes are rounding


def of_interest(task: Task) -> tuple[int, ...]:
    """The coordinates of ψ in θ; all of them where the task names none."""
    names = [q.name for q in task.prior.quantities]
    require(
        isinstance(task.interest, tuple | list),
        f"`interest` of {type(task).__name__}",
        got=repr(task.interest),
        expected="a tuple of parameter names",
        fix='write interest = ("name",), with the comma.',
    )
    for name in task.interest:
        if name not in names:
            raise UnknownNameError(
                f"parameter in `interest` of {type(task).__name__}", str(name), names
            )
    return tuple(i for i, name in enumerate(names) if name in task.interest or not task.interest)


def has_nuisance(task: Task) -> bool:
    """Whether some parameters are not of interest."""
    return len(of_interest(task)) < task.prior.dim


def needs_conditional_score(task: Task) -> tuple[int, ...] | None:
    """The coordinates of ψ, if the score of log p(y | ψ, ξ) has to be learned; None if the task
    gives that term, by its likelihood or by additive noise.
    """
    if has_nuisance(task) or not (task.has_density or task.additive_noise):
        return of_interest(task)
    return None


def resample_nuisance(
    task: Task, z: Float[Array, " k"], fresh: Float[Array, "*b k"]
) -> Float[Array, "*b k"]:
    """z with the coordinates of η replaced by those of `fresh` ~ N(0, I): its f(z) is a draw of
    p(θ | ψ).
    """
    kept = of_interest(task)
    return jnp.where(jnp.asarray([i in kept for i in range(len(z))]), z, fresh)


def check_interest(task: Task, *, key: PRNGKeyArray) -> None:
    """Refuse a prior whose ψ changes with the z of η."""
    if not has_nuisance(task):
        return
    moved = np.asarray(_changes(task, key))
    names = ", ".join(f"'{task.prior.quantities[i].name}'" for i in of_interest(task) if moved[i])
    if names:
        raise InvalidValueError(
            f"the prior of {type(task).__name__}",
            got=f"{names} of interest, which depends on the latent numbers of nuisance parameters",
            expected="parameters of interest that do not depend on the others",
            fix="use independent priors, or write the parameters of interest first.",
        )


@eqx.filter_jit
def _changes(task: Task, key: PRNGKeyArray) -> Bool[Array, " k"]:
    """Which parameters change when the z of η are drawn again."""
    z, fresh = (jr.normal(named(key, part), (DRAWS, task.prior.dim)) for part in ("z", "fresh"))
    redrawn = jax.vmap(lambda z, fresh: resample_nuisance(task, z, fresh))(z, fresh)
    before, after = (jax.vmap(task.prior.from_latent)(each) for each in (z, redrawn))
    # A compiled program may round equal numbers differently in two places.
    return (jnp.abs(after - before) > ROUNDING * before.std(0)).any(0)


def refuse_nuisance(task: Task, what: str, fix: str) -> None:
    """Refuse nuisance parameters, for methods in which all of θ is of interest."""
    if has_nuisance(task):
        raise InvalidValueError(
            f"{what} of {type(task).__name__}",
            got="a task with nuisance parameters",
            expected="one without them",
            fix=fix,
        )
