"""`scorebed check`: sound tasks pass, and each fault is found, with the sentence that belongs to
it.
"""

import json

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest

import scorebed as sb
from scorebed.check import ERROR, check_task
from scorebed.check.one_step import axes, line, one_step_eig
from scorebed.cli._app import run
from scorebed.runs.user_task import read_task
from scorebed.tasks import make_task
from user_files import EXAMPLES, FILES, source, variant

TWICE_THE_NOISE = """
    def outcome(self, theta, state, xi, noise):
        return self.mean(theta, state, xi) + 2.0 * self.scale(theta, state, xi)[0] * noise
"""
NO_NORMALISER = """
    def log_prob(self, y, theta, state, xi):
        scale = self.scale(theta, state, xi)[0]
        return -0.5 * ((y[0] - self.mean(theta, state, xi)[0]) / scale) ** 2
"""
NO_CONSTANT = """
    def log_prob(self, y, theta, state, xi):
        scale = self.scale(theta, state, xi)[0]
        return -0.5 * ((y[0] - self.mean(theta, state, xi)[0]) / scale) ** 2 - jnp.log(scale)
"""
A_VECTOR = """
    def log_prob(self, y, theta, state, xi):
        return -0.5 * (y - self.mean(theta, state, xi)) ** 2
"""
SIGNS = """
    def outcome(self, theta, state, xi, noise):
        return jnp.sign(noise + self.mean(theta, state, xi))
"""
SHIFTED = """
    def outcome(self, theta, state, xi, noise):
        return self.mean(theta, state, xi) + 0.3 * noise + 0.1 * theta[0]
"""
A_PROFILE = """
    def sketch(self):
        from scorebed.tasks.sketch import Profile

        return Profile()
"""

# Found by tracing alone, in no time: the task, what is replaced, what is added, the kind, and parts
# of sentence and fix.
TRACED = {
    "a mean without its axis": (
        "SamplingTimes",
        [("jnp.stack([20.0", "(20.0"), ("* decay])", "* decay)")],
        "",
        "shape",
        "`mean` gives a single float32, expected shape (1,)",
        "jnp.stack([concentration])",
    ),
    "too few scales": (
        "ControlledSystem",
        [("[0.05, 0.05]", "[0.05]")],
        "",
        "shape",
        "`scale` gives 1 numbers, expected 2",
        "return […, …]",
    ),
    "a density per outcome": (
        "SamplingTimes",
        [],
        A_VECTOR,
        "shape",
        "`log_prob` gives float32 of shape (1,)",
        ".sum()",
    ),
    "whole numbers": (
        "SensorPlacement",
        [("** 2))])", "** 2))]).astype(int)")],
        "",
        "discrete",
        "`mean` gives int32: discrete outcomes have no score",
        "declare it by categories",
    ),
    "a Python if": (
        "SamplingTimes",
        [("        decay =", "        time = time if time > 1.0 else 1.0\n        decay =")],
        "",
        "traced",
        "my_task.py, line 22, got a Python branch (if",
        "jnp.where",
    ),
    "math in place of jnp": (
        "ControlledSystem",
        [("theta[0] * xi[0]", "float(theta[0]) * xi[0]")],
        "",
        "traced",
        "line 26, got a number or NumPy array",
        "jnp.exp",
    ),
    "randomness of its own": (
        "SamplingTimes",
        [("[20.0", "[np.random.normal()"), ("import jax.n", "import numpy as np, jax.n")],
        "",
        "impure",
        "`mean` gives different results for the same arguments",
        "from its noise or key",
    ),
    "a state of another shape": (
        "Dosing",
        [("jnp.zeros(())", "jnp.zeros(1)")],
        "",
        "shape",
        "`mean` gives float32 of shape (1, 1), expected shape (1,)",
        "jnp.stack",
    ),
    "a state that grows": (
        "Dosing",
        [("xi[0]) * jnp", "xi) * jnp"), ("None) / theta", "None)[0] / theta")],
        "",
        "shape",
        "`advance` gives a state of float32 of shape (1,), but the previous one was a single "
        "float32",
        "the same",
    ),
    "a sketch of another task": (
        "SensorPlacement",
        [],
        A_PROFILE,
        "declaration",
        "the sketch of SensorPlacement, got a Profile of 2 designs and 1 outcomes",
        "return Positions",
    ),
    "a wrong unpacking": (
        "ControlledSystem",
        [("jnp.zeros(2)", "jnp.zeros(3)")],
        "",
        "raises",
        "line 25, got ValueError: too many values to unpack",
        "correct that line",
    ),
}

# Found by drawing: a compiled program each.
DRAWN = {
    "a design without effect": (
        "SensorPlacement",
        [("(y - b)", "(y - a)")],
        "",
        "no-effect",
        "the design 'sensor y' has no effect",
        "use xi[1]",
    ),
    "a sampler with twice the noise": (
        "SamplingTimes",
        [],
        TWICE_THE_NOISE,
        "density",
        "draws of 'concentration' spread 2 times as wide",
        "the same mean and noise",
    ),
    "false additive noise": (
        "SamplingTimes",
        [("additive_noise = False", "additive_noise = True")],
        "",
        "additive-noise",
        "`additive_noise` is True, but",
        "additive_noise = False",
    ),
}
DRAWN_SLOWLY = {
    "a sampler with another mean": (
        "SensorPlacement",
        [],
        SHIFTED,
        "density",
        "E[∇ log p] is",
        "the same mean",
    ),
    "a density without its normaliser": (
        "SamplingTimes",
        [],
        NO_NORMALISER,
        "density",
        "lacks a part of its normaliser",
        "−log(scale)",
    ),
    "a gradient that is NaN": (
        "SensorPlacement",
        [("(x - a) ** 2", "jnp.where(x > a, jnp.sqrt(x - a), 0.0)")],
        "",
        "gradient",
        "is NaN or infinite in",
        "smooth",
    ),
    "a gradient that is zero": (
        "ControlledSystem",
        [("theta[0] * xi[0]", "jnp.round(theta[0]) * xi[0]")],
        "",
        "gradient",
        "the gradient of `log_prob` in the parameter 'gain' is zero everywhere",
        "smooth in it",
    ),
    "a discrete design": (
        "ControlledSystem",
        [("* xi[0]", "* jnp.round(xi[0])")],
        "",
        "discrete",
        "the design 'force' has an effect, but its gradient is zero everywhere",
        "list its values",
    ),
    "discrete outcomes": (
        "SensorPlacement",
        [],
        SIGNS,
        "discrete",
        "takes 2 different values",
        "declare it by categories",
    ),
    "a parameter without effect": (
        "SensorPlacement",
        [("strength /", "1.0 /")],
        "",
        "no-effect",
        "the parameter 'strength' has no effect",
        "theta[2]",
    ),
    "a value at the edge": (
        "SamplingTimes",
        [("(0.1, 24.0)", "(0.0, 24.0)"), ("* decay]", "* decay + 0.01 * jnp.log(time)]")],
        "",
        "gradient",
        "at time = 0, where policies may go",
        "narrow its range",
    ),
    "a density off by a constant": (
        "SensorPlacement",
        [],
        NO_CONSTANT,
        "density",
        "off by +0.919 everywhere",
        "−½ log 2π",
    ),
}


def expect(folder, name, replacements, more, kind, sentence, fix):
    task = read_task(variant(folder, name, *replacements, more=more)).task
    found = check_task(task, key=jr.key(0))
    assert [f.kind for f in found] == [kind], [str(f) for f in found]
    assert sentence in found[0].sentence, found[0]
    assert fix in found[0].fix, found[0]


@pytest.mark.parametrize("fault", TRACED)
def test_a_fault_that_tracing_shows(tmp_path, fault):
    expect(tmp_path, *TRACED[fault])


QUICKEST = 4  # of them in every run, the others in the slow one


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=[pytest.mark.slow] * (i >= QUICKEST))
        for i, fault in enumerate(DRAWN)
    ],
)
def test_a_fault_that_draws_show(tmp_path, fault):
    expect(tmp_path, *DRAWN[fault])


@pytest.mark.slow
@pytest.mark.parametrize("fault", DRAWN_SLOWLY)
def test_a_rarer_fault_that_draws_show(tmp_path, fault):
    expect(tmp_path, *DRAWN_SLOWLY[fault])


@pytest.mark.parametrize("name", ["SamplingTimes", "ControlledSystem"])
def test_examples_are_sound(name):
    assert check_task(read_task(f"{EXAMPLES / FILES[name]}:{name}").task, key=jr.key(0)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SensorPlacement", "Dosing"])
def test_further_examples_are_sound(name):
    assert check_task(read_task(f"{EXAMPLES / FILES[name]}:{name}").task, key=jr.key(0)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["location-finding", "pendulum", "double-link", "gravimetry", "linear-gaussian"]
)
def test_built_in_tasks_are_sound(name):
    # No false alarm on tasks whose laws are tested elsewhere; gravimetry's prior has an atom, the
    # double link four outcomes.
    assert check_task(make_task(name), key=jr.key(0)) == []


@pytest.mark.parametrize("name", FILES)
def test_an_example_has_less_than_25_lines(name):
    lines = source(name).split("class ")[1].splitlines()
    assert sum(bool(line.strip()) for line in lines) + 4 < 25  # with its imports


def test_the_information_gain_of_a_step_is_that_of_the_closed_form():
    # θ ~ N(0, 1), y = ξθ + ε: ½ log(1 + ξ²), up to 0.80 nats; 256 of 256 draws keep the estimate
    # within 0.1 of it. A wrong number of terms, log M for log(M + 1), or a state that is not the
    # first one would be outside.
    task = make_task("linear-gaussian")
    (values,) = axes(task.designs, 5)
    found = one_step_eig(task, line(task.designs, 0, values), key=jr.key(1))
    np.testing.assert_allclose(found, 0.5 * np.log1p(values**2), atol=0.1)


def test_the_command_finds_the_fault_in_one_line_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name = variant(tmp_path, *TRACED["too few scales"][:1], *TRACED["too few scales"][1])
    assert run(["check", name, "--json"]) == 2
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert (answer["sound"], answer["picture"]) == (False, None)
    assert answer["findings"][0]["kind"] == "shape"
    assert answer["findings"][0]["severity"] == ERROR
    assert (
        err
        == f"error: {name}, got 1 fault, expected a sound task. Fix: end it with return […, …].\n"
    )
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".png"] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_the_command_draws_a_sound_task(tmp_path, capsys, name):
    picture = tmp_path / "picture.png"
    assert run(["check", f"{EXAMPLES / FILES[name]}:{name}", "--out", str(picture)]) == 0
    assert "is sound" in capsys.readouterr().out
    assert picture.stat().st_size > 20_000


def test_a_prior_without_a_quantile_function_is_told(tmp_path):
    name = variant(
        tmp_path, "ControlledSystem", ("dist.Normal(1.0, 1.0)", "dist.VonMises(0.0, 1.0)")
    )
    (found,) = check_task(read_task(name).task, key=jr.key(0))
    assert "no quantile function" in found.sentence


def test_designs_from_a_list_cannot_be_constrained(tmp_path):
    name = variant(tmp_path, "SamplingTimes", ("(0.1, 24.0)", "[1.0, 4.0, 12.0]"))
    (found,) = check_task(read_task(name).task, key=jr.key(0))
    assert "designs that come from a list" in found.sentence


# ---- finitely many outcomes


class Coin(sb.IID, sb.Discrete):
    """Sound."""

    horizon = 2
    prior = sb.parameters({"bias": dist.Normal(0.0, 1.0)})
    designs = sb.ranges({"gain": (0.5, 2.0), "coin": ["old", "new"]})
    outcomes = sb.categories("side", ("heads", "tails"))

    def probabilities(self, theta, state, xi):
        del state
        heads = jax.nn.sigmoid(theta[0] * xi[0] * (1 + xi[1]))
        return jnp.stack([heads, 1 - heads])


class TooMany(Coin):
    def probabilities(self, theta, state, xi):
        return jnp.concatenate([super().probabilities(theta, state, xi), jnp.zeros(1)])


class Undeclared(Coin):
    outcomes = sb.measured("side")


class NotNormalised(Coin):
    def probabilities(self, theta, state, xi):
        return 1.1 * super().probabilities(theta, state, xi)


class OtherDraws(Coin):
    def outcome(self, theta, state, xi, noise):
        return 1 - super().outcome(theta, state, xi, noise)


class Halves(Coin):
    def outcome(self, theta, state, xi, noise):
        return super().outcome(theta, state, xi, noise) + 0.5


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (TooMany, "`probabilities` gives"),
        (Undeclared, "has no list of values"),
        (NotNormalised, "add up to 1.1"),
        (OtherDraws, "different distributions"),
        (Halves, "not one of its 2 values"),
    ],
)
def test_faults_of_finitely_many_outcomes_are_found(task, words):
    found = check_task(task(), key=jr.key(0))
    assert any(words in each.sentence for each in found), found


def test_sound_outcomes_and_designs_from_lists_pass():
    assert check_task(Coin(), key=jr.key(0)) == []
