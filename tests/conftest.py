"""Every test runs with runtime shape checks of our own modules and strict promotion of array
types.
"""

import os
from collections.abc import Iterator

import jaxtyping
import pytest

# Nearly all of the time goes into compiling programs that run once. Flags of the user come last and
# win.
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0 " + os.environ.get("XLA_FLAGS", "")

jaxtyping.install_import_hook("scorebed", "beartype.beartype").__enter__()

import jax  # noqa: E402

jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture
def float64() -> Iterator[None]:
    """Double precision within one test, for laws that are identities."""
    with jax.enable_x64(True):
        yield
