"""The posterior of θ given one history: importance sampling, tempered SMC, modes and densities
fitted to them.
"""
