"""Approximations of the marginal score ∇ log p(y_{1:T} | ξ_{1:T}), by the names that the command line knows."""
