"""What a run ran on: versions and the class of machine. No host name and no paths, so that a record
can be published.
"""

import importlib.metadata
import os
import platform
from typing import Any

from scorebed import __version__
from scorebed._platform import usable_cores

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy")


def environment() -> dict[str, Any]:
    """Versions of Python and the packages, platform, devices and cores."""
    import jax  # late: a run folder is opened and its configuration read without it

    device = jax.devices()[0]
    return {
        "python": platform.python_version(),
        "scorebed": __version__,
        **{name: importlib.metadata.version(name) for name in PACKAGES},
        "platform": {"system": platform.system(), "machine": platform.machine()},
        "device": {
            "platform": device.platform,
            "kind": device.device_kind,
            "count": jax.device_count(),
        },
        "cores": {"machine": os.cpu_count(), "usable": usable_cores()},
        "float64": bool(jax.config.read("jax_enable_x64")),
    }
