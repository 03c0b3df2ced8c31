"""The policy in this folder, run by JAX if it is installed, else by onnxruntime:

ExportedPolicy(seed=0).design([{"xi": [0.5], "y": [1.2]}, …])     the next design after these steps
"""

import importlib.util
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

HERE = Path(__file__).resolve().parent
ABOUT = json.loads((HERE / "manifest.json").read_text())


class ExportedPolicy:
    """The policy of one experiment. `seed` is the seed of its noise, `make` the way to run it:
    `by_jax` or `by_onnx`.
    """

    def __init__(self, seed: int, make: Any = None):
        make = make or (by_jax if importlib.util.find_spec("jax") else by_onnx)
        self.run, self.noise = make(seed)

    def design(self, steps: list[dict[str, Any]]) -> list[float]:
        """The next design. A step whose outcome is None failed: it has used its noise, and the
        policy does not see it.
        """
        memory = self.run["init"]()
        for step in steps:
            if step["y"] is not None:
                given = (np.asarray(step[name], ABOUT["dtype"]) for name in ("xi", "y"))
                memory = self.run["update"](*memory, *given)
        return np.asarray(self.run["design"](*memory, self.noise[len(steps)])[0]).tolist()


def by_jax(seed: int) -> tuple[dict[str, Any], Any]:
    """The programs, and the noise of one experiment."""
    from jax import export, jit

    weights = load_file(HERE / "policy.safetensors")
    given = [weights[name] for name in ABOUT["weights"]]
    code = {name: bytearray((HERE / f"{name}.jax").read_bytes()) for name in ABOUT["programs"]}
    run: dict[str, Any] = {
        name: partial(jit(export.deserialize(code[name]).call), *given) for name in code
    }
    return run, np.asarray(run["noise"](np.int32(seed))[0])


def by_onnx(seed: int) -> tuple[dict[str, Any], Any]:
    """The same without JAX, for the seeds whose noise is in the folder."""
    fix = "Fix: pip install jax flatbuffers"
    if not ABOUT["onnx"]["programs"]:
        sys.exit(f"this policy has no ONNX form: {ABOUT['onnx']['reason']}. {fix}")
    if not importlib.util.find_spec("onnxruntime"):
        sys.exit("neither JAX nor onnxruntime is installed. Fix: pip install onnxruntime")
    noise = load_file(HERE / "noise.safetensors")["noise"]
    if not 0 <= seed < len(noise):
        sys.exit(f"the seed, got {seed}, expected 0 to {len(noise) - 1}. {fix}")
    return {name: _onnx(name) for name in ("init", "design", "update")}, noise[seed]


def _onnx(name: str) -> Any:
    import onnxruntime

    if name not in ABOUT["onnx"]["programs"]:  # a policy without a memory
        return lambda *_: []
    session = onnxruntime.InferenceSession((HERE / f"{name}.onnx").read_bytes())
    inputs = [given.name for given in session.get_inputs()]
    return lambda *values: session.run(None, dict(zip(inputs, values, strict=True)))
