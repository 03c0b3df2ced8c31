"""Keep large temporaries in the heap.

glibc maps every large block afresh and unmaps it when it is freed; in array code on CPUs the page
faults that follow cost more than the arithmetic. `scorebed` sets this before JAX starts, whatever
the user's shell says; elsewhere than on glibc it does nothing."""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4


def keep_large_blocks() -> bool:
    """Tell malloc never to map single blocks and never to give memory back; True where that is
    understood.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(
        [mallopt(_M_MMAP_MAX, 0), mallopt(_M_TRIM_THRESHOLD, 2**31 - 1), mallopt(_M_TOP_PAD, 2**28)]
    )
