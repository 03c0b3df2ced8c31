"""Every test runs with runtime shape checks of our own modules and strict promotion of array types."""

import os

import jaxtyping

# Nearly all of the time goes into compiling programs that run once.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"

jaxtyping.install_import_hook("scorebed", "beartype.beartype").__enter__()

import jax  # noqa: E402

jax.config.update("jax_numpy_dtype_promotion", "strict")
