"""The same with NumPy and onnxruntime alone:   python client_onnx.py tuesday.jsonl [SEED]"""

import sys
from typing import Any

import client
import onnxruntime


def program(name: str) -> Any:
    if name not in client.ABOUT["onnx"]["programs"]:  # a policy without a memory
        return lambda *_: []
    session = onnxruntime.InferenceSession((client.HERE / f"{name}.onnx").read_bytes())
    inputs = [given.name for given in session.get_inputs()]
    return lambda *values: session.run(None, dict(zip(inputs, values, strict=True)))


def programs(seed: int) -> dict[str, Any]:
    noise = client.arrays("noise.safetensors")["noise"]
    if not 0 <= seed < len(noise):
        sys.exit(f"the seed, got {seed}, expected 0 to {len(noise) - 1}: other seeds need JAX and client.py")
    return {**{name: program(name) for name in ("init", "design", "update")}, "noise": noise[seed]}


if __name__ == "__main__":
    client.main(programs)
