"""Ctrl-C that ends a command quietly wherever it lands.

Python raises `KeyboardInterrupt` at whatever instruction is next, and two places cannot bear it.
Extension modules that are interrupted while they load fail with errors of their own, or crash;
there is nothing to tidy up yet, so there the process ends at once. Garbage-collection callbacks and
destructors swallow it with a traceback; there it is delivered again a moment later."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from scorebed._platform import interrupt

INTERRUPTED = 130
AGAIN_AFTER = 0.02


@contextlib.contextmanager
def quiet_interrupts() -> Iterator[None]:
    """Handle Ctrl-C as above. An application or shell that has its own idea of it keeps it."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    hook = sys.unraisablehook
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _deliver_again
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = hook


def _interrupt(signum: int, frame: FrameType | None) -> None:
    del signum
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


def _deliver_again(unraisable: Any) -> None:
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        main = threading.main_thread().ident
        threading.Timer(AGAIN_AFTER, interrupt, (main,)).start()
    else:
        sys.__unraisablehook__(unraisable)
