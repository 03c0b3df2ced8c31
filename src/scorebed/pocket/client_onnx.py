"""The same with onnxruntime in the place of JAX:   python client_onnx.py tuesday.jsonl [SEED]"""

import sys
from typing import Any

import client
import onnxruntime
from safetensors.numpy import load_file


def program(name: str) -> Any:
    if name not in client.ABOUT["onnx"]["programs"]:  # a policy without a memory
        return lambda *_: []
    session = onnxruntime.InferenceSession((client.HERE / f"{name}.onnx").read_bytes())
    inputs = [given.name for given in session.get_inputs()]
    return lambda *values: session.run(None, dict(zip(inputs, values, strict=True)))


def programs(seed: int) -> dict[str, Any]:
    noise = load_file(client.HERE / "noise.safetensors")["noise"]
    if not 0 <= seed < len(noise):
        sys.exit(f"the seed, got {seed}, expected 0 to {len(noise) - 1}: other seeds need JAX and client.py")
    return {**{name: program(name) for name in ("init", "design", "update")}, "noise": noise[seed]}


if __name__ == "__main__":
    client.main(programs)
