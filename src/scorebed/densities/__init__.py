"""Densities that stand in for the intractable ones: q(y | ξ) for the marginal likelihood
(`flow_marginal.py`), q(z | y, ξ) for the posterior (`mixture_posterior.py`).
"""
