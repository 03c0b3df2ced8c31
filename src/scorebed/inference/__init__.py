"""Posterior of θ given one history: importance sampling from the prior, and tempered sequential Monte Carlo."""

from scorebed.inference.importance import ImportanceDraws as ImportanceDraws
from scorebed.inference.importance import ImportanceMoments as ImportanceMoments
from scorebed.inference.importance import effective_sample_size as effective_sample_size
from scorebed.inference.importance import importance_draws as importance_draws
from scorebed.inference.importance import importance_moments as importance_moments
from scorebed.inference.smc import SMCPosterior as SMCPosterior
from scorebed.inference.smc import tempered_smc as tempered_smc
from scorebed.inference.smc import update_smc as update_smc
