"""The policy protocol: memory of the history, and the next design from it. Training, evaluation and
live experiments use the same methods.

The abstract methods say how a policy acts. The properties below them are traits: what training,
export and live experiments need to know about a policy, with defaults that fit a network trained by
gradients. Nobody asks for the class of a policy."""

import abc
from typing import Any, TypeAlias

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.errors import InvalidValueError, require

Memory: TypeAlias = Any  # a PyTree of arrays; None where there is nothing to remember


class Policy(eqx.Module):
    """π(ξ_t | h_{t−1}) in the form `init` → `design` → `update` → `design` → …

    Inherit from it for a policy of your own, made as `Mine(task, key=key)`: an equinox module whose
    arrays of floats are trained. `make_policy` makes the built-in ones.

    Attributes:
        adaptive: whether designs depend on earlier outcomes.
        trainable: whether it has parameters to train.
        design_nle: likelihood evaluations for the designs of one experiment.
        search_nle: likelihood evaluations of a search by which it was made.
        without_feedback: the designs that it starts from, if it has a whole sequence of them.
        noise_leaves: names of the leaves that set the scale of its noise.
        obeys_constraint: whether its designs satisfy the task's constraint without help.
        unwrapped: the policy inside the wrapper that imposes a constraint.
        max_steps: the largest number of measurements it has designs for, or None.
        beyond_training: what it does in experiments longer than those it was trained on.
        short_of_training: what it does in shorter ones.

    Methods:
        sample_noise: all of its randomness, drawn before the experiment.
        init: the memory of the empty history.
        design: the next design, from the memory.
        update: the memory after a design and its outcome.
        preferences: the unconstrained numbers behind a design, where it has any.
        log_choices: log-probabilities of names that were drawn; zero by default.
        lacks_designs: whether it has designs for fewer measurements than a number.
        extended: the same policy for another number of steps.

    Example:
        >>> import equinox as eqx
        >>> class Follow(sb.Policy):
        ...     gain: jnp.ndarray
        ...     space: object = eqx.field(static=True)
        ...
        ...     def sample_noise(self, horizon, *, key):
        ...         return jnp.zeros((horizon, 0))
        ...
        ...     def init(self):
        ...         return jnp.zeros(1)
        ...
        ...     def design(self, memory, noise):
        ...         return self.space.constrain(self.gain * memory)
        ...
        ...     def update(self, memory, xi, y):
        ...         return y
        >>> task = sb.make_task("linear-gaussian")
        >>> sb.simulate(task, Follow(jnp.ones(1), task.designs), key=jr.key(0)).xis.shape
        (3, 1)
    """

    @abc.abstractmethod
    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T n"]:
        """All of the policy's randomness, drawn before the experiment: one row per step, n = 0 if
        it is deterministic.
        """

    @abc.abstractmethod
    def init(self) -> Memory:
        """Memory of the empty history."""

    @abc.abstractmethod
    def design(self, memory: Memory, noise: Float[Array, " n"]) -> Float[Array, " dx"]:
        """The next design ξ_t."""

    @abc.abstractmethod
    def update(self, memory: Memory, xi: Float[Array, " dx"], y: Float[Array, " dy"]) -> Memory:
        """Memory after (ξ_t, y_t)."""

    def preferences(self, memory: Memory, noise: Float[Array, " n"]) -> Float[Array, " f"]:
        """The unconstrained numbers u behind the next design ξ(u), of a policy that has any: names
        are drawn by them in training.
        """
        del memory, noise
        raise InvalidValueError(
            f"the policy {type(self).__name__}",
            got="designs with names to choose among",
            expected="a policy with preferences",
            fix="use the policy belief, dad, gru, attention, plan or static.",
        )

    def log_choices(
        self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"], noise: Float[Array, "T n"]
    ) -> Float[Array, " T"]:
        """log of the probabilities with which the names among designs were drawn; zero for a policy
        that draws none.
        """
        del ys, noise
        return jnp.zeros(len(xis), xis.dtype)

    # ---- traits

    @property
    def adaptive(self) -> bool:
        """Whether designs depend on the outcomes of earlier steps."""
        return True

    @property
    def trainable(self) -> bool:
        """Whether it has parameters for training to improve."""
        return True

    @property
    def design_nle(self) -> int:
        """Likelihood evaluations for the designs of one experiment; 0 for a network."""
        return 0

    @property
    def search_nle(self) -> int:
        """Likelihood evaluations of a search by which it was made; 0 if there was none. A run keeps
        what a search has found.
        """
        return 0

    @property
    def without_feedback(self) -> Float[Array, "T dx"] | None:
        """The designs that it would carry out if it saw no outcome, where it starts from a whole
        sequence of them: what feedback is worth is told by comparing with these. Else None.
        """
        return None

    @property
    def not_exported(self) -> str:
        """Why it cannot run without the library, for the user; empty if it can."""
        return ""

    @property
    def noise_leaves(self) -> tuple[str, ...]:
        """Names of the leaves that set the scale of its noise. Training may give them larger
        steps.
        """
        return ()

    @property
    def obeys_constraint(self) -> bool:
        """Whether its designs satisfy the task's constraint without help (`constrained.obedient`
        wraps the others).
        """
        return False

    @property
    def unwrapped(self) -> "Policy":
        """The policy inside the wrapper that imposes a constraint; the policy itself if it has
        none.
        """
        return self

    @property
    def max_steps(self) -> int | None:
        """The largest number of measurements it has designs for; None if there is no largest."""
        return None

    def lacks_designs(self, measurements: int) -> bool:
        """Whether it has designs for fewer measurements than that."""
        return self.max_steps is not None and self.max_steps < measurements

    def extended(self, horizon: int, *, key: PRNGKeyArray) -> "Policy":
        """The same policy for experiments of `horizon` steps; `InvalidValueError` where it has no
        such form. What it has to make up is drawn with `key`.
        """
        del key
        require(
            self.max_steps is None or horizon <= self.max_steps,
            "the number of steps",
            got=horizon,
            expected=f"at most {self.max_steps}: this policy keeps a history of that length",
            fix="use a task with a longer horizon.",
        )
        return self

    @property
    def beyond_training(self) -> str:
        """What it does in experiments longer than those it was trained on, in a sentence; empty if
        that changes nothing.
        """
        return (
            "The policy's memory runs on past the end of training: designs there are "
            "extrapolation. "
            "Refining trains it for this end."
        )

    @property
    def short_of_training(self) -> str:
        """What it does in experiments shorter than those it was trained on, in a sentence; empty if
        that changes nothing.
        """
        return (
            "The policy does not know about the earlier end, and may put off what it would have "
            "done later. Refining makes it plan for this end."
        )


class StochasticPolicy(Policy):
    """A policy whose next design has a density. `--method iosmc` trains policies of this kind.

    Methods:
        sample_noise: all of its randomness, drawn before the experiment.
        init: the memory of the empty history.
        design: the next design, from the memory and noise.
        update: the memory after a design and its outcome.
        log_prob: the log-density of a design, given the memory.

    Example:
        >>> issubclass(sb.POLICIES["gru"], sb.StochasticPolicy)
        True
    """

    @abc.abstractmethod
    def log_prob(self, xi: Float[Array, " dx"], memory: Memory) -> Scalar:
        """log π(ξ | h_{t−1})."""
