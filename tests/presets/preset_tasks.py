"""Tasks of every kind that a preset distinguishes: the library's, instances of its classes with
other sizes, and models of a user's own with each trait.
"""

# ruff: noqa: ARG002

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from scorebed.tasks import ORACLE_TASKS, TASKS
from scorebed.tasks.base import IID, Gaussian, History, Implicit, Markov, Task
from scorebed.tasks.declare import (
    measured,
    ordered,
    parameters,
    priced,
    ranges,
    steps_at_most,
    unbounded,
)
from scorebed.tasks.library.cart_pole import CartPole
from scorebed.tasks.library.double_link import DoubleLink
from scorebed.tasks.library.euler_maruyama import EulerMaruyama
from scorebed.tasks.library.gravimetry import Gravimetry
from scorebed.tasks.library.location import LocationFinding
from scorebed.tasks.library.pendulum import Pendulum
from scorebed.tasks.numpyro import from_numpyro
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian

EXAMPLES = Path(__file__).parents[2] / "examples" / "tasks"


class _Model(Task):
    horizon = 4
    prior = parameters({"rate": dist.LogNormal(0.0, 0.5), "offset": dist.Normal(0.0, 1.0)})
    designs = ranges({"time": (0.0, 5.0)})
    outcomes = measured("level")
    additive_noise = True


class _Curve(_Model, IID, Gaussian):
    def mean(self, theta, state, xi):
        return jnp.stack([theta[1] + jnp.exp(-theta[0] * xi[0])])

    def scale(self, theta, state, xi):
        return [0.1]


class Plain(_Curve):
    pass


class GrowingNoise(_Curve):
    additive_noise = False

    def scale(self, theta, state, xi):
        return [0.1 + 0.1 * xi[0]]


class Unbounded(_Curve):
    designs = unbounded("x", "y", scale=2.0)


class Constrained(_Curve):
    constraint = ordered(gap=0.1)


class Slow(_Curve):
    constraint = steps_at_most(0.5)


class Priced(_Curve):
    cost = priced("price", lambda xi: xi[0] ** 2, nats=0.1)


class ConstrainedPriced(_Curve):
    constraint = ordered(gap=0.1)
    cost = priced("price", lambda xi: xi[0] ** 2, nats=0.1)


class Nuisance(_Curve):
    interest = ("rate",)


class NuisanceGrowingNoise(GrowingNoise):
    interest = ("rate",)


class _Outcome(_Model, Implicit):
    additive_noise = False
    extra_noise = 1

    def outcome(self, theta, state, xi, noise):
        return jnp.stack([theta[1] + jnp.exp(-theta[0] * noise[1] * xi[0]) + noise[0]])


class Simulator(_Outcome, IID):
    pass


class SimulatorAdditive(_Outcome, IID):
    additive_noise = True
    extra_noise = 0

    def outcome(self, theta, state, xi, noise):
        return jnp.stack([theta[1] + xi[0] + noise[0]])


class SimulatorNuisance(_Outcome, IID):
    interest = ("rate",)


class SimulatorConstrained(_Outcome, IID):
    constraint = ordered(gap=0.1)


class SimulatorMarkov(_Outcome, Markov):
    def start(self):
        return jnp.zeros(1)


class SimulatorHistory(_Outcome, History):
    def initial(self, theta):
        return jnp.zeros(())

    def advance(self, theta, state, xi, y):
        return state + xi[0]


class Chain(_Model, Markov, Gaussian):
    def start(self):
        return jnp.zeros(1)

    def mean(self, theta, state, xi):
        return jnp.stack([theta[0] * state[0] + theta[1] * xi[0]])

    def scale(self, theta, state, xi):
        return [0.1]


class ChainConstrained(Chain):
    constraint = steps_at_most(0.5)


class ChainPriced(Chain):
    cost = priced("price", lambda xi: xi[0] ** 2, nats=0.1)


class ChainNuisance(Chain):
    interest = ("rate",)


class Memory(_Model, History, Gaussian):
    def initial(self, theta):
        return jnp.zeros(())

    def mean(self, theta, state, xi):
        return jnp.stack([theta[0] * state + theta[1]])

    def scale(self, theta, state, xi):
        return [0.1]

    def advance(self, theta, state, xi, y):
        return state + xi[0]


class MemoryConstrained(Memory):
    constraint = ordered(gap=0.1)


class MemoryNuisance(Memory):
    interest = ("rate",)


class Oscillator(EulerMaruyama):
    prior = parameters({"stiffness": dist.LogNormal(0.0, 0.1), "damping": dist.LogNormal(0.0, 0.1)})
    designs = ranges({"force": (-1.0, 1.0)})
    outcomes = measured("position", "velocity")

    def drift(self, y, xi, theta):
        return jnp.stack([y[1], xi[0] - theta[0] * y[0] - theta[1] * y[1]])


class OscillatorConstrained(Oscillator):
    constraint = steps_at_most(0.2)


class OscillatorNuisance(Oscillator):
    interest = ("stiffness",)


class OscillatorOfManyParameters(Oscillator):
    prior = parameters({tuple(f"coefficient {i}" for i in range(11)): dist.Normal(0.0, 1.0)})


class Sources(LocationFinding):
    pass


class SourcesInSteps(LocationFinding):
    constraint = steps_at_most(1.0)


class SourcesPriced(LocationFinding):
    cost = priced("price", lambda xi: xi[0] ** 2, nats=0.1)


class FirstSource(LocationFinding):
    interest = ("source 1 x", "source 1 y")


class Void(Gravimetry):
    pass


class VoidInSteps(Gravimetry):
    constraint = steps_at_most(10.0)


class VoidDepth(Gravimetry):
    interest = ("depth",)


class MyPendulum(Pendulum):
    pass


class MyCartPole(CartPole):
    interest = ("pole length",)


class MyDoubleLink(DoubleLink):
    constraint = steps_at_most(0.5)


class Line(LinearGaussian):
    pass


class LinePriced(LinearGaussian):
    cost = priced("price", lambda xi: xi[0] ** 2, nats=0.1)


def _numpyro(**traits: Any) -> Task:
    def model(xi):
        rate = numpyro.sample("rate", dist.LogNormal(0.0, 0.5))
        offset = numpyro.sample("offset", dist.Normal(0.0, 1.0))
        numpyro.sample("level", dist.Normal(offset + jnp.exp(-rate * xi[0]), 0.1))

    designs = ranges({"time": (0.0, 5.0)})
    return from_numpyro(model, designs=designs, observe="level", horizon=4, **traits)


def _example(file: str, name: str) -> Task:
    space: dict[str, object] = {"__name__": f"example_{file}"}
    exec((EXAMPLES / f"{file}.py").read_text(), space)
    return space[name]()  # type: ignore[operator]


LIBRARY: dict[str, Callable[[], Task]] = dict(TASKS)

OTHERS: dict[str, Callable[[], Task]] = {
    "one source on a line": lambda: LocationFinding(dim=1, sources=1, horizon=2),
    "three sources": lambda: LocationFinding(sources=3),
    "four sources in space": lambda: LocationFinding(dim=3, sources=4),
    "two sources in space": lambda: LocationFinding(dim=3),
    "ten sources in the plane": lambda: LocationFinding(sources=10),
    "ten sources on a line": lambda: LocationFinding(dim=1, sources=10),
    "a void below a plane": lambda: Gravimetry(dim=2),
    "a short pendulum": lambda: Pendulum(horizon=10),
    "a noisy cart-pole": lambda: CartPole(diffusion=0.3),
    **{f"oracle {name}": make for name, make in ORACLE_TASKS.items()},
    "numpyro": _numpyro,
    "numpyro, constrained": lambda: _numpyro(constraint=ordered(gap=0.1)),
    "numpyro, priced": lambda: _numpyro(cost=Priced.cost),
    "numpyro, nuisance": lambda: _numpyro(interest=("rate",)),
    "sampling times": lambda: _example("sampling_times", "SamplingTimes"),
    "sensor placement": lambda: _example("sensor_placement", "SensorPlacement"),
    "controlled system": lambda: _example("controlled_system", "ControlledSystem"),
    "dosing": lambda: _example("dosing", "Dosing"),
    "washout": lambda: _example("washout", "Washout"),
    **{
        kind.__name__: kind
        for kind in (
            Plain,
            GrowingNoise,
            Unbounded,
            Constrained,
            Slow,
            Priced,
            ConstrainedPriced,
            Nuisance,
            NuisanceGrowingNoise,
            Simulator,
            SimulatorAdditive,
            SimulatorNuisance,
            SimulatorConstrained,
            SimulatorMarkov,
            SimulatorHistory,
            Chain,
            ChainConstrained,
            ChainPriced,
            ChainNuisance,
            Memory,
            MemoryConstrained,
            MemoryNuisance,
            Oscillator,
            OscillatorConstrained,
            OscillatorNuisance,
            OscillatorOfManyParameters,
            Sources,
            SourcesInSteps,
            SourcesPriced,
            FirstSource,
            Void,
            VoidInSteps,
            VoidDepth,
            MyPendulum,
            MyCartPole,
            MyDoubleLink,
            Line,
            LinePriced,
        )
    },
    "Sources, ten": lambda: Sources(sources=10),
    "SourcesInSteps, ten in space": lambda: SourcesInSteps(dim=3, sources=10),
    "FirstSource, ten": lambda: FirstSource(sources=10),
}

ALL = LIBRARY | OTHERS
