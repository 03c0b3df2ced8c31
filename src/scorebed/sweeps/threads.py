"""The threads that a trial is compiled for: equally many on every machine.

XLA divides loops among the cores that it finds when it compiles, and rounding follows: training a
score may differ in its last digits between one core and two. How many of them a worker then really
has changes no digit (docs/decisions/049).
"""

import os

THREADS = "2"


def fix_threads() -> None:
    """To be called before JAX computes anything: a process in which it has keeps the number that it
    began with. The user's own `PJRT_NPROC` wins.
    """
    os.environ.setdefault("PJRT_NPROC", THREADS)
