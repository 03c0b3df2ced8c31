"""Every test runs with runtime shape checks of our own modules and strict promotion of array
types.
"""

import ctypes
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator

import jaxtyping
import pytest

# Nearly all of the time goes into compiling programs that run once: without optimisation, in one
# piece, and with the emitters that compile in two fifths of the time. Flags of the user come last
# and win.
FAST_TO_COMPILE = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1"
)
os.environ["XLA_FLAGS"] = f"{FAST_TO_COMPILE} {os.environ.get('XLA_FLAGS', '')}"
# As the workers of a study: on any machine the same numbers here and in processes that tests start.
os.environ.setdefault("PJRT_NPROC", "2")

# What one worker, or a process that a test starts, has compiled the others take over. A folder of
# this run alone: nothing of an earlier one is taken.
IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
COMPILED = os.environ["TEST_COMPILED"] if IS_WORKER else tempfile.mkdtemp(prefix="compiled-")
os.environ |= {
    "TEST_COMPILED": COMPILED,
    "JAX_COMPILATION_CACHE_DIR": COMPILED,
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}

# Neither this process nor those that tests start need translate our modules anew each time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

jaxtyping.install_import_hook("scorebed", "beartype.beartype").__enter__()

import jax  # noqa: E402

jax.config.update("jax_numpy_dtype_promotion", "strict")

# Tracing makes many objects that live on: looking through them all for garbage takes a fifteenth of
# the time of the suite.
gc.set_threshold(200_000, 50, 100)


def pytest_collection_finish() -> None:
    """Modules and tests are never garbage: collections need not look at them, neither those between
    modules nor the five of pytest at the end.
    """
    gc.freeze()


def pytest_unconfigure() -> None:
    """The process that made the folder of compiled programs removes it."""
    if not IS_WORKER:
        shutil.rmtree(COMPILED, ignore_errors=True)


LARGEST = 1.3e9  # bytes of a worker; two of them are to stay below 4 GB


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Between two modules, give back what JAX has compiled once a worker has grown large."""
    changes = nextitem is None or nextitem.path != item.path
    if changes and resident_bytes() > LARGEST:
        jax.clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)


def resident_bytes() -> int:
    """Memory of this process that is in use."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def float64() -> Iterator[None]:
    """Double precision within one test, for laws that are identities."""
    with jax.enable_x64(True):
        yield
