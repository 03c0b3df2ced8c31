"""The likelihood ledger: what each method costs in likelihood evaluations (NLE), and a purse that
cannot be overdrawn.

One NLE is one evaluation of p(y_t | θ, ξ_t, h_{t−1}), so the likelihood of a whole experiment costs
T. With K_P policy steps of batch N, K_U upfront steps of batch B_U and P policies (paper, "NLE
Calculations"):

    score, VarMarg, VarPost   K_U B_U T  +  P · K_P N T
    PCE                       P · K_P N (M + 1) T
    JointVarPost              P · K_J B_J T
    IO-SMC², lower            P · [K S (N M T + (N−1) M T) + N M T]
    IO-SMC², upper            P · [K S (N M T + (N−1)(M T + m)) + N M T + N m],   m = M R T(T+1)/2
    MLMC, padded              P · T N K_P M_0 2^l_max

Costs are exact Python integers, which neither round nor overflow. The one exception is the
*expected* cost of MLMC: its level probabilities are powers of 2^−τ, irrational for the paper's τ =
1.1, and everything derived from them is a float and named "expected".
"""

import abc
import dataclasses
import math
from typing import final

from scorebed.errors import BudgetExceededError, InvalidValueError, require

FROM_ZERO = {"smallest": 0}


def _require_whole(what: str, value: object, *, smallest: int) -> None:
    """Refuse everything but a plain int from `smallest`: a bool is a mistake, and a float or array
    may have rounded already.
    """
    require(
        type(value) is int and value >= smallest,
        what,
        got=repr(value),
        expected=f"a whole number (Python int) from {smallest}",
        fix="count in Python integers, not floats or arrays.",
    )


class Ledger:
    """Likelihood evaluations spent, by entry, against an optional budget.

    A charge that does not fit is refused whole: `BudgetExceededError`, and the ledger is as it was.
    """

    def __init__(self, budget: int | None = None):
        if budget is not None:
            _require_whole("the NLE budget", budget, smallest=0)
        self._budget = budget
        self._totals: dict[str, int] = {}

    @property
    def budget(self) -> int | None:
        """The most that may be spent; None for no limit."""
        return self._budget

    @property
    def totals(self) -> dict[str, int]:
        """NLE spent per entry, in the order of their first charges."""
        return dict(self._totals)

    @property
    def spent(self) -> int:
        """NLE spent in all."""
        return sum(self._totals.values())

    @property
    def remaining(self) -> int | None:
        """What still fits; None for no limit."""
        return None if self._budget is None else self._budget - self.spent

    def charge(self, entry: str, nle: int) -> None:
        """Spend `nle` on `entry`. Call it before the work, so that work which cannot be paid for is
        never done.
        """
        require(
            type(entry) is str and entry != "",
            "the name of a ledger entry",
            got=repr(entry),
            expected="a non-empty string",
            fix="name what the evaluations are for, such as 'policy'.",
        )
        _require_whole(f"the NLE charged to '{entry}'", nle, smallest=0)
        if self._budget is not None and nle > self._budget - self.spent:
            left = self._budget - self.spent
            raise BudgetExceededError(
                f"the charge to '{entry}', got {nle:,} NLE when {self.spent:,} of the budget of "
                f"{self._budget:,} are spent, "
                f"expected at most {left:,}. Fix: raise the budget by {nle - left:,} or plan "
                f"fewer steps or samples."
            )
        self._totals[entry] = self._totals.get(entry, 0) + nle

    def settle(self, entry: str, nle: int) -> None:
        """What an entry came to once its work was done; at most what was charged."""
        charged = self._totals.get(entry, 0)
        require(
            type(nle) is int and 0 <= nle <= charged,
            f"the NLE of '{entry}' in the end",
            got=f"{nle:,}",
            expected=f"at most the {charged:,} that were charged",
            fix="charge all that the work may take.",
        )
        self._totals[entry] = nle


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost(abc.ABC):
    """The sizes of a method that decide its cost, for P policies in an experiment of T steps."""

    T: int
    P: int = 1

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.type is int:
                smallest = field.metadata.get("smallest", 1)
                _require_whole(
                    f"{field.name} of {type(self).__name__}",
                    getattr(self, field.name),
                    smallest=smallest,
                )

    @abc.abstractmethod
    def bill(self) -> dict[str, int | float]:
        """Every amount that the method has, by name; floats only where the name says "expected"."""


class Fixed(Cost):
    """A cost that is known before the run: upfront + P · per policy."""

    @property
    @abc.abstractmethod
    def upfront(self) -> int:
        """Paid once, whatever P."""

    @property
    @abc.abstractmethod
    def per_policy(self) -> int:
        """Paid for each of the P policies."""

    @property
    def nle(self) -> int:
        """The total."""
        return self.upfront + self.P * self.per_policy

    def bill(self) -> dict[str, int | float]:
        return {"upfront": self.upfront, "per_policy": self.per_policy, "nle": self.nle}


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretrained(Fixed):
    """Score, VarMarg and VarPost: K_U upfront steps of batch B_U, then cheap policies of K_P steps
    of batch N.

    `networks` share the upfront steps, ⌊K_U / networks⌋ each (the paper trains three in its
    dynamical experiments); the remainder is not spent."""

    K_P: int
    N: int
    K_U: int
    B_U: int
    networks: int = 1

    def __post_init__(self) -> None:
        Fixed.__post_init__(self)
        require(
            self.steps_per_network >= 1,
            "K_U of Pretrained",
            got=self.K_U,
            expected=f"at least one step for each of {self.networks} networks",
            fix="raise K_U or train fewer networks.",
        )

    @classmethod
    def within(
        cls, budget: int, *, T: int, K_P: int, N: int, B_U: int, P: int = 1, networks: int = 1
    ) -> "Pretrained":
        """The largest K_U, a multiple of `networks`, whose total fits in `budget`; K_U + networks
        does not fit.
        """
        least = cls(T=T, P=P, K_P=K_P, N=N, K_U=networks, B_U=B_U, networks=networks)
        rounds = 1 + _extra_units(
            budget, least, unit=networks * B_U * T, smallest=f"K_U={networks}"
        )
        return dataclasses.replace(least, K_U=networks * rounds)

    @property
    def steps_per_network(self) -> int:
        """⌊K_U / networks⌋."""
        return self.K_U // self.networks

    @property
    def upfront(self) -> int:
        return self.networks * self.steps_per_network * self.B_U * self.T

    @property
    def per_policy(self) -> int:
        return self.K_P * self.N * self.T


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class PCE(Fixed):
    """PCE: every outer sample pays for its own θ and for M contrastive ones. NMC costs the same."""

    K_P: int
    N: int
    M: int

    @classmethod
    def within(cls, budget: int, *, T: int, K_P: int, N: int, P: int = 1) -> "PCE":
        """The largest M whose total fits in `budget`; M + 1 does not fit."""
        least = cls(T=T, P=P, K_P=K_P, N=N, M=1)
        return dataclasses.replace(
            least, M=1 + _extra_units(budget, least, unit=P * K_P * N * T, smallest="M=1")
        )

    @property
    def upfront(self) -> int:
        return 0

    @property
    def per_policy(self) -> int:
        return self.K_P * self.N * (self.M + 1) * self.T


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class JointVarPost(Fixed):
    """Posterior and policy trained together for K_J steps of batch B_J; nothing is shared between
    policies.
    """

    K_J: int
    B_J: int

    @classmethod
    def within(cls, budget: int, *, T: int, B_J: int, P: int = 1) -> "JointVarPost":
        """The largest K_J whose total fits in `budget`; K_J + 1 does not fit."""
        least = cls(T=T, P=P, K_J=1, B_J=B_J)
        return dataclasses.replace(
            least, K_J=1 + _extra_units(budget, least, unit=P * B_J * T, smallest="K_J=1")
        )

    @property
    def upfront(self) -> int:
        return 0

    @property
    def per_policy(self) -> int:
        return self.K_J * self.B_J * self.T


def _extra_units(budget: int, least: Fixed, *, unit: int, smallest: str) -> int:
    """How many times `unit` can be added to the smallest configuration of a method."""
    _require_whole("the NLE budget", budget, smallest=0)
    if least.nle > budget:
        affordable = (budget - least.upfront) // least.per_policy
        fewer = f"lower P to {affordable:,}, or " if affordable >= 1 else ""
        raise BudgetExceededError(
            f"{type(least).__name__} for P={least.P:,} policies, got a budget of {budget:,} NLE, "
            f"expected at least {least.nle:,} "
            f"(that is {smallest}). Fix: {fewer}raise the budget, or plan fewer policy steps or "
            f"smaller batches."
        )
    return (budget - least.nle) // unit


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class IOSMC2(Cost):
    """IO-SMC²: K score-climbing steps of S kernels, N trajectories, M particles, R moves at each
    degenerate step.

    How often the particles degenerate is random, so the cost is known only between `lower` and
    `upper`; runs report what they spent."""

    K: int
    N: int
    M: int
    R: int = dataclasses.field(metadata=FROM_ZERO)
    S: int

    @property
    def lower(self) -> int:
        """No step degenerates."""
        return self._total(moves=0)

    @property
    def upper(self) -> int:
        """Every step degenerates: R moves at step t re-evaluate t likelihoods for each of M
        particles.
        """
        return self._total(moves=self.M * self.R * (self.T * (self.T + 1) // 2))

    def _total(self, *, moves: int) -> int:
        weights = self.M * self.T
        kernel = self.N * weights + (self.N - 1) * (weights + moves)
        return self.P * (self.K * self.S * kernel + self.N * (weights + moves))

    def bill(self) -> dict[str, int | float]:
        return {"nle_lower": self.lower, "nle_upper": self.upper}


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class MLMC(Cost):
    """Randomised multilevel Monte Carlo: M_0 2^L inner samples at a random level L, clipped at
    `max_level`.

    As in the paper, only inner samples are counted; the likelihood of the outer θ (one more T per
    outer sample, which PCE pays) is left out."""

    K_P: int
    N: int
    M0: int
    tau: float
    max_level: int = dataclasses.field(metadata=FROM_ZERO)

    def __post_init__(self) -> None:
        Cost.__post_init__(self)
        level_probabilities(tau=self.tau, max_level=self.max_level)

    @property
    def padded(self) -> int:
        """What compiled code evaluates: every outer sample padded to the highest level."""
        return self.P * self.T * self.N * self.K_P * self.M0 * 2**self.max_level

    @property
    def expected_inner_capped(self) -> float:
        """E[M_0 2^min(L, l_max)], inner samples per outer sample."""
        return self.M0 * sum(
            p * 2**l
            for l, p in enumerate(level_probabilities(tau=self.tau, max_level=self.max_level))
        )

    @property
    def expected_inner_uncapped(self) -> float:
        """E[M_0 2^L] = M_0 (1 − 2^−τ) / (1 − 2^(1−τ)); infinite, and an error, for τ ≤ 1."""
        require(
            self.tau > 1,
            "the rate τ of MLMC",
            got=self.tau,
            expected="more than 1, for a finite mean cost",
            fix="raise τ, or use the capped cost.",
        )
        return self.M0 * (1 - 2.0**-self.tau) / (1 - 2.0 ** (1 - self.tau))

    def bill(self) -> dict[str, int | float]:
        outer = self.P * self.T * self.N * self.K_P
        return {
            "nle_padded": self.padded,
            "nle_expected_capped": outer * self.expected_inner_capped,
            "nle_expected_uncapped": outer * self.expected_inner_uncapped,
        }


def level_probabilities(*, tau: float, max_level: int) -> tuple[float, ...]:
    """P(min(L, l_max) = l) for l = 0, …, l_max, where P(L = l) = (1 − 2^−τ) 2^(−τ l): the top level
    takes the whole tail.
    """
    _require_whole("the highest level of MLMC", max_level, smallest=0)
    if (
        isinstance(tau, bool)
        or not isinstance(tau, int | float)
        or not (math.isfinite(tau) and tau > 0)
    ):
        raise InvalidValueError(
            "the rate τ of MLMC",
            got=repr(tau),
            expected="a finite number above 0",
            fix="the paper uses 1.1.",
        )
    ratio = 2.0**-tau
    probabilities = (*((1 - ratio) * ratio**l for l in range(max_level)), ratio**max_level)
    require(
        min(probabilities) > 0,
        "the levels of MLMC",
        got=f"τ={tau} with {max_level} levels",
        expected="levels whose probability is not zero in double precision",
        fix="lower τ or the highest level.",
    )
    return probabilities


def level_weights(*, tau: float, max_level: int) -> tuple[float, ...]:
    """1 / P(level = l) **after** clipping, so that probability times weight is 1 at every level,
    the top one included.
    """
    return tuple(1 / p for p in level_probabilities(tau=tau, max_level=max_level))
