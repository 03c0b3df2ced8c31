"""Every test runs with runtime shape checks of our own modules and strict promotion of array types."""

import jaxtyping

jaxtyping.install_import_hook("scorebed", "beartype.beartype").__enter__()

import jax  # noqa: E402

jax.config.update("jax_numpy_dtype_promotion", "strict")
