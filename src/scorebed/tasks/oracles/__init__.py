"""Tasks whose answers are known in closed form: the oracles of every estimator and bound."""
