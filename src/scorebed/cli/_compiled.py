"""Keep what JAX compiles between commands: a second run of the same kind starts in a fraction of
the time.

The folder is the user's cache, $XDG_CACHE_HOME/scorebed or ~/.cache/scorebed, and may be deleted at
any time. What the user has set for JAX itself stands; JAX_ENABLE_COMPILATION_CACHE=false switches
it off."""

import os
from pathlib import Path

WORTH_KEEPING = 0.01  # seconds of compilation; a run has a hundred programs of some 0.03


def keep_compiled() -> None:
    """Tell JAX before it is imported."""
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # no home
        return
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache / "scorebed" / "compiled"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", str(WORTH_KEEPING))
