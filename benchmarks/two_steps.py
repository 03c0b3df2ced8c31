"""One source on a line, two measurements: policies on one grid, by quadrature over the source and
both outcomes, in nats.

Greed begins at 0 and cannot see that another first design leaves more to the second one. The best
policy, greed and the best two designs without feedback are those of the grid; trained policies
follow PCE with 255 contrastive draws.

    python benchmarks/two_steps.py                      about three minutes
    python benchmarks/two_steps.py modes lookahead      some policies alone
    python benchmarks/two_steps.py --quick              does it run?
"""

import functools

import scorebed as sb  # before JAX, so that the memory allocator is set
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from measuring import arguments, table
from scorebed.estimators.pce import pce
from scorebed.policies.lookahead import Lookahead
from scorebed.tasks.library.location import LocationFinding
from scorebed.training.fit import member

LINE = LocationFinding(dim=1, sources=1, horizon=2)
NOISE = 0.5
RARE = 1e-5  # probability of a first outcome that is left out
STEPS, BATCH, RESTARTS = 1000, 128, 3


class Grid:
    """Sums over θ and over outcomes, which are `step` apart."""

    def __init__(self, points: int = 2001, step: float = 0.15):
        self.theta = np.linspace(-5, 5, points)
        self.prior = np.exp(-0.5 * self.theta**2) / np.exp(-0.5 * self.theta**2).sum()
        self.y, self.step = np.arange(-4.5, 11.5, step), step

    def densities(self, xi: float) -> np.ndarray:
        mean = np.log(0.1 + 1 / (1e-4 + (self.theta - xi) ** 2))
        z = (self.y - mean[:, None]) / NOISE
        return np.exp(-0.5 * z**2) / (NOISE * np.sqrt(2 * np.pi))

    def gains(self, weights: np.ndarray, xi: float) -> np.ndarray:
        """What one outcome at ξ is expected to tell, for each column of weights."""
        marginal = weights.T @ self.densities(xi)
        entropy = -(marginal * np.log(marginal + 1e-300)).sum(-1) * self.step
        return entropy - 0.5 * np.log(2 * np.pi * np.e * NOISE**2)

    def after(self, xi: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Likely first outcomes, their probabilities, and the weights that each leaves."""
        joint = self.prior[:, None] * self.densities(xi)
        marginal = joint.sum(0)
        likely = marginal * self.step > RARE
        return self.y[likely], marginal[likely] * self.step, (joint / marginal)[:, likely]

    def first(self, xi: float) -> float:
        return float(self.gains(self.prior[:, None], xi)[0])


def value(grid: Grid, policy: sb.Policy) -> tuple[float, float]:
    """The first design of a deterministic policy, and what both of its designs tell."""
    noise = policy.sample_noise(2, key=jr.key(0))
    first = jax.jit(lambda: policy.design(policy.init(), noise[0]))()

    @jax.jit
    def second(y):
        return policy.design(policy.update(policy.init(), first, y[None]), noise[1])[0]

    ys, shares, weights = grid.after(float(first[0]))
    xis = np.asarray(jax.lax.map(second, jnp.asarray(ys, first.dtype)))
    later = [grid.gains(weights[:, [i]], xi)[0] for i, xi in enumerate(xis)]
    return float(first[0]), grid.first(float(first[0])) + float(shares @ later)


def best(grid: Grid, firsts: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
    """The best of some first designs, and what it and the best of the second ones tell."""

    def total(xi: float) -> float:
        _, shares, weights = grid.after(xi)
        later = np.max([grid.gains(weights, second) for second in seconds], axis=0)
        return grid.first(xi) + float(shares @ later)

    found = [total(xi) for xi in firsts]
    return float(firsts[np.argmax(found)]), max(found)


def best_pair(grid: Grid, designs: np.ndarray) -> tuple[float, float]:
    """The best two designs that are chosen together before the first outcome."""

    def total(xi: float) -> float:
        _, shares, weights = grid.after(xi)
        return grid.first(xi) + max(float(shares @ grid.gains(weights, x)) for x in designs)

    found = [total(xi) for xi in designs]
    return float(designs[np.argmax(found)]), max(found)


def trained(name: str, steps: int) -> list[sb.Policy]:
    """Policies of one kind from several starts."""
    policies = sb.train_policies(
        LINE,
        functools.partial(pce, inner=255),
        name,
        count=RESTARTS,
        steps=steps,
        batch=BATCH,
        key=jr.key(1),
    ).policies
    return [member(policies, number) for number in range(RESTARTS)]


def main() -> None:
    """A row for every policy."""
    parser = arguments(__doc__)
    parser.add_argument("policies", nargs="*", default=["lookahead", "dad", "modes"])
    args = parser.parse_args()
    grid = Grid(201, 0.3) if args.quick else Grid()
    fine = np.linspace(-1.6, 1.6, 17 if args.quick else 161)
    firsts = np.linspace(0.45, 0.55, 1 if args.quick else 3)
    designs = np.linspace(-0.6, 0.6, 3 if args.quick else 13)
    rows: list[tuple[str, float, float]] = []

    def add(name: str, found: tuple[float, float]) -> None:
        rows.append((name, *found))
        print(*rows[-1], flush=True)

    add("the best policy", best(grid, firsts, fine))
    add("greed", best(grid, np.zeros(1), fine))
    add("the best two designs without feedback", best_pair(grid, designs))
    for name in ["static"] if args.quick else args.policies:
        if name == "lookahead":
            add(name, value(grid, Lookahead(LINE, particles=1024, key=jr.key(0))))
            continue
        found = [value(grid, policy) for policy in trained(name, 2 if args.quick else STEPS)]
        add(f"{name}, trained, best of {RESTARTS}", max(found, key=lambda each: each[1]))
        add(f"{name}, trained, worst", min(found, key=lambda each: each[1]))
    optimum = rows[0][2]
    table(
        ["policy", "first design", "nats", "to the best"],
        [[name, f"{xi:+.3f}", f"{v:.4f}", f"{v - optimum:+.4f}"] for name, xi, v in rows],
    )


if __name__ == "__main__":
    main()
