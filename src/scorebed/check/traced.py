"""Faults that tracing alone shows: shapes, types, Python branches on traced values, and impurity.

A pure function gives the same program each time it is traced. Draws of NumPy's generator, clocks
and counters are numbers in the traced program, so two traces of an impure function differ; nothing
has to be compiled to see it."""

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from scorebed.check.finding import DISCRETE_OUTCOME, Finding, failed, fault
from scorebed.errors import ScorebedError
from scorebed.tasks.base import Gaussian, Task
from scorebed.tasks.cost import DesignCost
from scorebed.tasks.discrete import Discrete
from scorebed.tasks.nuisance import check_interest
from scorebed.tasks.priors import Prior
from scorebed.tasks.sketch import check_sketch
from scorebed.tasks.spaces import Quantity, Space


def traced_findings(task: Task) -> list[Finding]:
    """Faults of the declaration, then of each method, in the order of their calls."""
    found = _declaration(task) or _interest(task)
    if found:
        return found
    theta, xi, y, noise = (
        _vector(n) for n in (task.prior.dim, task.designs.dim, task.outcome_dim, task.noise_dim)
    )
    sample = _trace(task, "prior.sample", lambda: task.prior.sample(key=jr.key(0)))
    start = _trace(task, "initial", task.initial, theta)
    found = sample.found + start.found
    if found:
        return found
    found = _shape("prior.sample", sample.shape, task.prior.quantities, "parameter")
    state = start.shape
    found += _latent(task)
    if isinstance(task, Gaussian):
        found += _gaussian(task, theta, state, xi)
    if isinstance(task, Discrete):
        found += _undeclared(task) or _probabilities(task, theta, state, xi)
    if found:  # later findings would only repeat them
        return found
    outcome = _trace(task, "outcome", task.outcome, theta, state, xi, noise)
    density = (
        _trace(task, "log_prob", task.log_prob, y, theta, state, xi)
        if task.has_density
        else _Traced(None, [])
    )
    after = _trace(task, "advance", task.advance, theta, state, xi, y)
    found = outcome.found + density.found + after.found
    if not outcome.found:
        found += _shape("outcome", outcome.shape, task.outcomes, "outcome")
    if task.has_density and not density.found:
        found += _scalar("log_prob", density.shape)
    found += _cost(task, xi)
    return found if after.found else found + _same_state(state, after.shape)


class _Traced(NamedTuple):
    """The shapes of a function's results, or why there are none."""

    shape: Any
    found: list[Finding]


def _vector(n: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((n,), jnp.float32)


def _trace(task: Task, name: str, function: Callable[..., Any], *arguments: Any) -> _Traced:
    """Trace a method twice."""
    try:
        programs = []
        for _ in range(2):
            # A new function each time, because JAX caches traces.
            closed, shape = jax.make_jaxpr(lambda *a: function(*a), return_shape=True)(*arguments)
            programs.append((re.sub(r"0x[0-9a-f]+", "", str(closed.jaxpr)), closed.consts))
    except Exception as error:
        return _Traced(None, [failed(task, name, error)])
    (first, constants), (second, others) = programs
    same = len(constants) == len(others) and all(map(_equal, constants, others))
    if first == second and same:
        return _Traced(shape, [])
    return _Traced(
        shape,
        [
            fault(
                "impure",
                f"`{name}` gives different results for the same arguments",
                "take all randomness from its noise or key; use no generator, clock or counter",
            )
        ],
    )


def _equal(a: Any, b: Any) -> bool:
    if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        a, b = jr.key_data(a), jr.key_data(b)
    return np.array_equal(
        np.asarray(a), np.asarray(b), equal_nan=np.issubdtype(np.asarray(a).dtype, np.inexact)
    )


def _declaration(task: Task) -> list[Finding]:
    """The attributes of the class."""
    horizon = task.horizon
    faults = [
        (
            isinstance(horizon, int) and not isinstance(horizon, bool) and horizon >= 1,
            f"`horizon` is {horizon!r}, expected a whole number from 1",
            "give the number of steps of an experiment",
        ),
        (
            isinstance(task.prior, Prior),
            f"`prior` is a {type(task.prior).__name__}, expected a prior",
            "write prior = parameters({…}) of scorebed.tasks.declare",
        ),
        (
            isinstance(task.designs, Space),
            f"`designs` is a {type(task.designs).__name__}, expected a design space",
            "write designs = ranges({…}) or unbounded(…) of scorebed.tasks.declare",
        ),
        (
            isinstance(task.outcomes, tuple)
            and len(task.outcomes) > 0
            and all(isinstance(q, Quantity) for q in task.outcomes),
            f"`outcomes` is {task.outcomes!r}, expected a tuple of quantities",
            "write outcomes = measured(…) of scorebed.tasks.declare",
        ),
        (
            isinstance(task.additive_noise, bool),
            f"`additive_noise` is {task.additive_noise!r}, expected True or False",
            "write False if unsure: it is never wrong, only slower",
        ),
    ]
    found = [fault("declaration", sentence, fix) for sound, sentence, fix in faults if not sound]
    space = task.designs
    if (
        isinstance(space, Space)
        and space.bounded
        and not all(map(math.isfinite, sum(space.limits, ())))
    ):
        found.append(
            fault(
                "declaration",
                "the range of a design is not finite",
                "use unbounded(…, scale=…) for such a design",
            )
        )
    if not found:
        found = _constraint(task)
    return found


def _constraint(task: Task) -> list[Finding]:
    """A constraint, sketch or cost that does not fit the task."""
    try:
        _ = task.feasible
        check_sketch(task)
    except ScorebedError as error:
        return [_declared(error)]
    if task.cost is None or isinstance(task.cost, DesignCost):
        return []
    return [
        fault(
            "declaration",
            f"`cost` is a {type(task.cost).__name__}, expected the cost of a design",
            'write cost = priced("name [unit]", lambda xi: …, nats=…) of scorebed.tasks.declare',
        )
    ]


def _cost(task: Task, xi: Any) -> list[Finding]:
    if task.cost is None:
        return []
    try:
        jax.eval_shape(task.cost.of, xi)
    except ScorebedError as error:
        return [_declared(error)]
    except Exception as error:
        return [failed(task, "cost", error)]
    return []


def _declared(error: ScorebedError) -> Finding:
    sentence, _, fix = str(error).partition(". Fix: ")
    return fault("declaration", sentence, fix.rstrip("."))


def _interest(task: Task) -> list[Finding]:
    """Parameters of interest that do not exist, and extra noise of a model with a density."""
    try:
        check_interest(task, key=jr.key(0))
    except ScorebedError as error:
        return [_declared(error)]
    if task.extra_noise and task.has_density:
        return [
            fault(
                "declaration",
                "`extra_noise` is for models without a density, and this one has `log_prob`",
                "leave it out, or inherit from Implicit",
            )
        ]
    return []


def _latent(task: Task) -> list[Finding]:
    """θ = f(z) has to be differentiable, since particle scores and posteriors work in z."""
    try:
        jax.eval_shape(jax.jacfwd(task.prior.from_latent), _vector(task.prior.dim))
    except ScorebedError as error:
        sentence, _, fix = str(error).partition(". Fix: ")
        return [fault("prior", sentence, fix.rstrip("."))]
    except Exception as error:
        return [failed(task, "prior.from_latent", error)]
    return []


def _gaussian(task: Gaussian, theta: Any, state: Any, xi: Any) -> list[Finding]:
    mean = _trace(task, "mean", task.mean, theta, state, xi)
    found = mean.found or _shape("mean", mean.shape, task.outcomes, "outcome")
    if found:  # a scale may use the mean, and would fail with it
        return found
    scale, dy = _trace(task, "scale", task.scale, theta, state, xi), task.outcome_dim
    if scale.found:
        return scale.found
    parts = jax.tree.leaves(scale.shape)
    lengths = (
        [len(scale.shape)]
        if isinstance(scale.shape, list | tuple)
        else [s.shape[0] for s in parts if s.shape]
    )
    wrong = lengths != [dy] or (len(parts) == dy and any(p.shape not in ((), (dy,)) for p in parts))
    if wrong:
        got = (
            f"{len(parts)} numbers"
            if isinstance(scale.shape, list | tuple)
            else _shapes(scale.shape)
        )
        found.append(
            fault(
                "shape",
                f"`scale` gives {got}, expected {dy}: a standard deviation for each outcome",
                f"end it with return [{', '.join('…' for _ in range(dy))}]",
            )
        )
    return found


def _undeclared(task: Task) -> list[Finding]:
    """Outcomes of a discrete task without a list of their values."""
    return [
        fault(
            "declaration",
            f"the outcome '{q.name}' has no list of values",
            "write outcomes = categories(…) or counts(…) of scorebed.tasks.declare",
        )
        for q in task.outcomes
        if not q.values
    ]


def _probabilities(task: Discrete, theta: Any, state: Any, xi: Any) -> list[Finding]:
    """One probability for every value that was declared."""
    traced = _trace(task, "probabilities", task.probabilities, theta, state, xi)
    if traced.found:
        return traced.found
    wanted = [(len(q.values),) for q in task.outcomes]
    if [each.shape for each in jax.tree.leaves(traced.shape)] == wanted:
        return []
    names = " and ".join(f"'{q.name}' has {len(q.values)} values" for q in task.outcomes)
    return [
        fault(
            "shape",
            f"`probabilities` gives {_shapes(traced.shape)}, but {names}",
            "give one probability per value, in the order in which they were declared",
        )
    ]


def _shape(name: str, got: Any, quantities: tuple[Quantity, ...], what: str) -> list[Finding]:
    """One floating-point number per quantity."""
    n = len(quantities)
    if not isinstance(got, jax.ShapeDtypeStruct) or got.shape != (n,):
        names = ", ".join(q.name.replace(" ", "_") for q in quantities)
        stack = f"end it with return jnp.stack([{names}])"
        return [
            fault(
                "shape",
                f"`{name}` gives {_shapes(got)}, expected shape ({n},): one number per {what}",
                stack,
            )
        ]
    if jnp.issubdtype(got.dtype, jnp.floating):
        return []
    if what == "outcome" and (jnp.issubdtype(got.dtype, jnp.integer) or got.dtype == jnp.bool_):
        return [
            fault(
                "discrete",
                f"`{name}` gives {got.dtype}: discrete outcomes have no score",
                DISCRETE_OUTCOME,
            )
        ]
    return [
        fault("dtype", f"`{name}` gives {got.dtype}, expected float32", "add .astype(jnp.float32)")
    ]


def _scalar(name: str, got: Any) -> list[Finding]:
    if (
        isinstance(got, jax.ShapeDtypeStruct)
        and got.shape == ()
        and jnp.issubdtype(got.dtype, jnp.floating)
    ):
        return []
    return [
        fault(
            "shape",
            f"`{name}` gives {_shapes(got)}, expected a single number",
            "add up the outcomes' terms with .sum()",
        )
    ]


def _same_state(before: Any, after: Any) -> list[Finding]:
    """The state is carried from step to step, so its shapes and types must not change."""
    kinds = [[(s.shape, s.dtype) for s in jax.tree.leaves(state)] for state in (before, after)]
    forms: list[Any] = [jax.tree.structure(state) for state in (before, after)]
    if forms[0] == forms[1] and kinds[0] == kinds[1]:
        return []
    return [
        fault(
            "shape",
            f"`advance` gives a state of {_shapes(after)}, but the previous one was "
            f"{_shapes(before)}",
            "return the same arrays from initial and advance, as floats",
        )
    ]


def _shapes(value: Any) -> str:
    leaves = jax.tree.leaves(value)
    if not leaves:
        return "nothing"
    return " and ".join(
        f"{leaf.dtype} of shape {leaf.shape}" if leaf.shape else f"a single {leaf.dtype}"
        for leaf in leaves[:4]
    )
