"""IO-SMC²: policies by nested particle filters (Iqbal et al.), the paper's particle baseline."""
