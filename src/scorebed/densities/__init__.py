"""Densities that stand in for the intractable ones: q(y | ξ) for the marginal likelihood, q(z | y,
ξ) for the posterior.
"""

from scorebed.densities.flow_marginal import (
    ConditionalFlow,
    FlowCoordinates,
    FlowSizes,
    JointFlow,
    MarginalDensity,
    flow_coordinates,
    marginal_flow,
)
from scorebed.densities.mixture_posterior import GaussianMixture, MixturePosterior, PosteriorDensity

__all__ = [
    "ConditionalFlow",
    "FlowCoordinates",
    "FlowSizes",
    "GaussianMixture",
    "JointFlow",
    "MarginalDensity",
    "MixturePosterior",
    "PosteriorDensity",
    "flow_coordinates",
    "marginal_flow",
]
