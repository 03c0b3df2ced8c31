"""scorebed: policy-based Bayesian experimental design by score matching.

The nouns and verbs of the paper, loaded when first used so that the command line answers before JAX is imported.
"""

from scorebed._allocator import keep_large_blocks as _keep_large_blocks

_keep_large_blocks()

__version__ = "0.1.0"
