"""The paper's score network, direct and conservative: its symmetries, its window, its size, and
that it learns a known score.
"""

import functools
import itertools
import math

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from oracles import Accumulation
from scorebed.errors import InvalidValueError
from scorebed.nets.attention import sinusoidal_positions
from scorebed.nets.fourier import FourierFeatures
from scorebed.scores.conservative import ConservativeScore
from scorebed.scores.standardise import Standardiser
from scorebed.scores.transformer import Encoding, TransformerScore
from scorebed.tasks import TASKS
from scorebed.tasks.base import Markov
from scorebed.tasks.library.location import LocationFinding
from scorebed.tasks.library.pendulum import Pendulum
from scorebed.tasks.oracles.linear_markov import LinearMarkov

T = 4


TASK_KINDS = {
    "iid": LocationFinding(horizon=T),
    "markov": Pendulum(horizon=T),
    "history": Accumulation(),
}
FORMS = [("iid", False), ("iid", True), ("markov", False), ("markov", True), ("history", False)]
BATCH = (
    2 * T * 3 + 2
    # A point, another order of its steps, and 2 · D perturbations: every law below runs one
    # compiled function.
)


def shapes(make, task):
    """The module `make(standardiser, key)` as shapes alone: nothing is allocated or drawn."""
    dy, dx = jnp.zeros(task.outcome_dim), jnp.zeros(task.designs.dim)
    return eqx.filter_eval_shape(make, Standardiser(dy, dy, dy, dx, dx), jr.key(0))


@functools.cache
def tiny(kind, *, conservative):
    """A tiny network with numbers from numpy: compiling initialisers would take most of the time of
    these tests.
    """
    rng, task = np.random.default_rng(0), TASK_KINDS[kind]

    def make(standardise, key):
        network = TransformerScore(
            task,
            standardise,
            width=8,
            blocks=1,
            heads=2,
            features=6,
            sigma=0.3,
            hidden=(7,),
            key=key,
        )
        return ConservativeScore(network, key=key) if conservative else network

    arrays, other = eqx.partition(shapes(make, task), lambda a: isinstance(a, jax.ShapeDtypeStruct))
    score = eqx.combine(jax.tree.map(lambda a: 0.5 * rng.normal(size=a.shape), arrays), other)
    return eqx.tree_at(
        standardiser_of, score, jax.tree.map(lambda a: 0.5 + np.abs(a), standardiser_of(score))
    )


def network_of(score):
    return score.network if isinstance(score, ConservativeScore) else score


def standardiser_of(score):
    return network_of(score).standardise


def point(kind):
    """One experiment, y and ξ side by side."""
    task = TASK_KINDS[kind]
    return np.random.default_rng(1).normal(size=(T, task.outcome_dim + task.designs.dim))


QUICK = {
    "xla_backend_optimization_level": 0
}  # half of the compilation time, which is nearly all that these tests take


@eqx.filter_jit(compiler_options=QUICK)
def _evaluate(score, vs):
    dy = standardiser_of(score).scale_y.size
    ys, xis = vs[..., :dy], vs[..., dy:]
    potential = jax.vmap(score.potential)(ys, xis) if isinstance(score, ConservativeScore) else None
    return jnp.concatenate(jax.vmap(score)(ys, xis), axis=-1), potential


def evaluate(score, vs):
    """Scores [n T dy+dx] and potentials [n] of n ≤ BATCH experiments."""
    padded = np.zeros((BATCH, *vs.shape[1:]))
    padded[: len(vs)] = vs
    values, potentials = _evaluate(score, padded)
    return np.asarray(values)[: len(vs)], None if potentials is None else np.asarray(potentials)[
        : len(vs)
    ]


def jacobians(score, v):
    """Central differences of s, [D D] with the output first, and of Φ, [D]. In double precision,
    right to about 1e-8.
    """
    h = 1e-5
    steps = h * np.eye(v.size).reshape(v.size, *v.shape)
    values, potentials = evaluate(score, np.concatenate([v + steps, v - steps]))
    up, down = values.reshape(2, v.size, v.size)
    gradient = (
        None if potentials is None else (potentials[: v.size] - potentials[v.size :]) / (2 * h)
    )
    return (up - down).T / (2 * h), gradient


def reach(jacobian):
    """max |∂s_t / ∂(y, ξ)_u| over coordinates, a T × T matrix."""
    d = len(jacobian) // T
    return np.abs(jacobian).reshape(T, d, T, d).max((1, 3))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("kind", "conservative"), FORMS)
def test_scores_follow_a_permutation_of_steps_only_where_steps_are_exchangeable(kind, conservative):
    v, order = point(kind), np.array([3, 0, 1, 2])
    (straight, permuted), _ = evaluate(
        tiny(kind, conservative=conservative), np.stack([v, v[order]])
    )
    error = np.abs(permuted - straight[order]).max()
    assert error < 1e-12 if kind == "iid" else error > 1e-3


@pytest.mark.usefixtures("float64")
def test_the_global_token_sums_up_the_experiment_in_any_order_and_reaches_the_heads():
    score, v = tiny("iid", conservative=False), point("iid")

    @eqx.filter_jit(compiler_options=QUICK)
    def encode(score, vs):
        ys, xis = vs[..., :1], vs[..., 1:]
        encodings = jax.vmap(score.backbone)(ys, xis)
        steps = encodings.steps[0]
        return encodings.summary, jax.vmap(
            lambda s: score.head_xi(Encoding(s, steps), ys[0], xis[0])
        )(encodings.summary)

    (one, permuted, other), (out_one, _, out_other) = encode(
        score, np.stack([v, v[[3, 0, 1, 2]], 2 * v])
    )
    np.testing.assert_allclose(permuted, one, rtol=1e-10)
    assert np.abs(other - one).max() > 1e-3
    assert np.abs(out_other - out_one).max() > 1e-4


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("kind", TASK_KINDS)
def test_without_attention_a_head_sees_its_own_step_and_in_markov_tasks_both_neighbours(kind):
    # The global token is then a constant, and all that reaches a head is its window: one that wraps
    # around at the ends, or has one side only, would show.
    score = tiny(kind, conservative=False)
    output = score.backbone.blocks[0].attention.to_output.weight
    blind = eqx.tree_at(
        lambda s: s.backbone.blocks[0].attention.to_output.weight, score, np.zeros_like(output)
    )
    distance = np.abs(np.subtract.outer(np.arange(T), np.arange(T)))
    seen = reach(jacobians(blind, point(kind))[0])
    assert seen[distance <= (kind == "markov")].min() > 1e-4
    assert seen[distance > (kind == "markov")].max() < 1e-8
    assert reach(jacobians(score, point(kind))[0]).min() > 1e-6


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("kind", ["iid", "markov"])
def test_a_conservative_score_is_the_gradient_of_its_potential_and_a_direct_one_of_nothing(kind):
    v, score = point(kind), tiny(kind, conservative=True)
    jacobian, gradient = jacobians(score, v)
    s = evaluate(score, v[None])[0].ravel()
    np.testing.assert_allclose(score.noise * s, gradient, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(jacobian, jacobian.T, rtol=1e-5, atol=1e-6)
    assert reach(jacobian).min() > 1e-5  # and it is the joint score: every step sees every other
    free, _ = jacobians(score.network, v)
    assert np.abs(free - free.T).max() > 1e-2


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("kind", "conservative"), FORMS)
def test_a_score_changes_with_the_units_of_its_inputs_as_a_gradient_does(kind, conservative):
    score, v, a, b = tiny(kind, conservative=conservative), point(kind), 1e3, 1e-4
    old = standardiser_of(score)
    fields = (old.mean_y, old.scale_y, old.scale_step, old.mean_xi, old.scale_xi)
    changed = tuple(c * x for c, x in zip((a, a, a, b, b), fields, strict=True))
    new = eqx.tree_at(
        lambda s: (s.mean_y, s.scale_y, s.scale_step, s.mean_xi, s.scale_xi), old, changed
    )
    units = np.concatenate([np.full_like(old.mean_y, a), np.full_like(old.mean_xi, b)])
    (value,), _ = evaluate(score, v[None])
    (other,), _ = evaluate(eqx.tree_at(standardiser_of, score, new), (units * v)[None])
    np.testing.assert_allclose(other * units, value, rtol=1e-9, atol=1e-10)


@pytest.mark.usefixtures("float64")
def test_a_compiled_and_mapped_score_is_the_plain_one():
    score, v = tiny("markov", conservative=False), point("markov")
    plain = score(jnp.asarray(v[:, :2]), jnp.asarray(v[:, 2:]))
    (_, compiled), _ = evaluate(score, np.stack([0 * v, v]))
    np.testing.assert_allclose(compiled, np.concatenate(plain, axis=-1), rtol=1e-9, atol=1e-12)


def still(changes):
    """The parameters whose change or gradient is exactly zero."""
    leaves = jax.tree_util.tree_leaves_with_path(changes)
    assert all(np.all(np.isfinite(x)) for _, x in leaves)
    return {jax.tree_util.keystr(path) for path, x in leaves if not np.any(x)}


def fixed(score):
    """The parameters that no training may touch."""
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(score)]
    ends = (".frequencies", ".noise")
    return {name for name in names if ".standardise." in name or name.endswith(ends)}


@pytest.mark.usefixtures("float64")
def test_score_matching_moves_every_parameter_of_a_potential_but_the_fixed_ones():
    score, v = tiny("markov", conservative=True), point("markov")

    @eqx.filter_jit(compiler_options=QUICK)
    def gradient(score, ys, xis, targets):
        return jax.grad(
            lambda s: sum(((a - b) ** 2).sum() for a, b in zip(s(ys, xis), targets, strict=True))
        )(score)

    changes = gradient(score, v[:, :2], v[:, 2:], (v[::-1, :2], v[::-1, 2:]))
    constant = ".pooling.norm.shift"  # of Φ: no gradient sees it
    assert still(changes) == fixed(score) | {constant}


def affine(n, m):
    return n * m + m


def pooling_by_hand(task):
    """Trained parameters of the potential above the heads."""
    n = task.outcome_dim + task.designs.dim
    return 3 * n if n > 2 else affine(n, 128) + 3 * 128


def count_by_hand(task, *, width=256, blocks=4, features=64, hidden=(192, 128)):
    """Trained parameters, from the paper's table and the heads of the authors' program."""
    sizes = (2 * features, *hidden, width)
    embedding = sum(affine(n, m) for n, m in itertools.pairwise(sizes))
    attention = 4 * width**2 + 3 * width  # keys have no bias
    block = attention + affine(width, 2 * width) + affine(2 * width, width) + 2 * (2 * width)
    inputs = (6 if isinstance(task, Markov) else 3) * width
    residual = 2 * (2 * width + 2 * affine(width, width)) + 2 * width
    heads = [
        embedding + 2 * inputs + affine(inputs, width) + residual + affine(width, outputs)
        for outputs in (task.outcome_dim, task.designs.dim)
    ]
    return embedding + width + blocks * block + 2 * width + sum(heads)


# Conservative, the paper's sizes. Its "approximately 3 million" is without the residual blocks.
PAPER_COUNTS = {
    "location-finding": 3_282_636,
    "location-finding-3d": 3_282_896,
    "pendulum": 3_678_924,
    "cart-pole": 3_679_444,
    "double-link": 3_679_704,
    "gravimetry": 3_283_138,
}


def trained(score):
    fixed = jax.tree.leaves(standardiser_of(score))
    fixed += [score.noise] if isinstance(score, ConservativeScore) else []
    embeddings = jax.tree.leaves(score, is_leaf=lambda x: isinstance(x, FourierFeatures))
    fixed += [e.frequencies for e in embeddings if isinstance(e, FourierFeatures)]
    arrays = [x for x in jax.tree.leaves(score) if isinstance(x, jax.ShapeDtypeStruct)]
    return sum(math.prod(a.shape) for a in arrays) - sum(math.prod(a.shape) for a in fixed)


@pytest.mark.parametrize("name", PAPER_COUNTS)
def test_at_the_papers_sizes_it_has_about_three_million_parameters(name):
    task = TASKS[name]()
    score = shapes(
        lambda st, key: ConservativeScore(TransformerScore(task, st, key=key), key=key), task
    )
    assert trained(score) == PAPER_COUNTS[name] == count_by_hand(task) + pooling_by_hand(task)
    assert abs(trained(score) / 3e6 - 1) < 0.25
    assert trained(score.network) == count_by_hand(task)


@pytest.mark.parametrize("name", ["location-finding-3d", "double-link", "gravimetry"])
def test_both_forms_give_a_score_of_the_shape_of_the_data_and_cost_no_likelihood(name):
    task = TASKS[name]()
    ys, xis = (jnp.zeros((task.horizon, n)) for n in (task.outcome_dim, task.designs.dim))

    def both(standardise, key):
        direct = TransformerScore.small(task, standardise, key=key)
        conservative = ConservativeScore(direct, key=key)
        assert direct.nle == conservative.nle == 0
        return direct(ys, xis), conservative(ys, xis)

    for value in shapes(both, task):
        assert value.y.shape == ys.shape
        assert value.xi.shape == xis.shape


def test_positions_are_the_published_waves():
    width, length = 6, 4
    expected = [
        [f(t / 10_000 ** (2 * i / width)) for i in range(width // 2) for f in (math.sin, math.cos)]
        for t in range(length)
    ]
    np.testing.assert_allclose(sinusoidal_positions(length, width), expected, rtol=1e-12)
    np.testing.assert_allclose(
        sinusoidal_positions(length, 5)[:, 4], [math.sin(t / 10_000**0.8) for t in range(length)]
    )


def test_a_wrong_size_is_refused_at_construction():
    one, two = jnp.ones(1), jnp.ones(2)
    with pytest.raises(
        InvalidValueError, match="the standardiser of a score, got 2 outcome and 1 design"
    ):
        TransformerScore.small(LinearMarkov(), Standardiser(two, two, two, one, one), key=jr.key(0))
    with pytest.raises(InvalidValueError, match="the blocks of a transformer, got -1"):
        TransformerScore(
            LinearMarkov(), Standardiser(one, one, one, one, one), blocks=-1, key=jr.key(0)
        )
