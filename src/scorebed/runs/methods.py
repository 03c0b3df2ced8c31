"""The methods by what they need: something learned upfront and shared among policies, or nothing; training, or none."""

from typing import NamedTuple

from scorebed.runs.config import RunConfig


class Learned(NamedTuple):
    """What a two-stage method learns before any policy: the name of its files, and its section of the configuration."""

    stem: str
    section: str

    def count(self, config: RunConfig) -> int:
        """How many of them a run has."""
        return config.score.seeds if self.section == "score" else 1


UPFRONT = {
    "score": Learned("score", "score"),
    "jointscore": Learned("score", "score"),
    "varmarg": Learned("marginal", "density"),
    "varpost": Learned("posterior", "density"),
}
BY_SCORE = ("score", "jointscore")
CONTRASTIVE = ("pce", "nmc", "static")
# Nothing is trained: designs are drawn, or found anew in every experiment.
UNTRAINED = ("random", "myopic")
