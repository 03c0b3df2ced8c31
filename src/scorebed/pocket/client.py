"""Next design → measure → enter → next design, with NumPy and JAX alone:   python client.py tuesday.jsonl [SEED]

Enter `y`, or `y @ xi` if it was measured at another design. Every step is a line of the file, taken up again when it is opened.
"""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ABOUT = json.loads((HERE / "manifest.json").read_text())


def arrays(file: str) -> dict[str, np.ndarray]:
    data = (HERE / file).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    table = {name: at for name, at in json.loads(data[8:start]).items() if name != "__metadata__"}
    parts = {name: data[start:][slice(*at["data_offsets"])] for name, at in table.items()}
    types = {"F32": np.float32, "F64": np.float64, "I32": np.int32}
    return {name: np.frombuffer(parts[name], types[at["dtype"]]).reshape(at["shape"]) for name, at in table.items()}


def programs(seed: int) -> dict[str, Any]:
    from jax import export, jit

    weights = [arrays("policy.safetensors")[name] for name in ABOUT["weights"]]
    each = {name: export.deserialize(bytearray((HERE / f"{name}.jax").read_bytes())) for name in ABOUT["programs"]}
    run: dict[str, Any] = {name: partial(jit(program.call), *weights) for name, program in each.items()}
    return {**run, "noise": np.asarray(run["noise"](np.int32(seed))[0])}


class Policy:
    """`design()` → measure → `enter(y, xi)` → `design()` → …; `enter(None, xi)` is a trial that failed."""

    def __init__(self, run: dict[str, Any]):
        self.run, self.memory, self.step = run, run["init"](), 0

    def design(self) -> list[float]:
        return np.asarray(self.run["design"](*self.memory, self.run["noise"][self.step])[0]).tolist()

    def enter(self, y: list[float] | None, xi: list[float]) -> None:
        for values, quantities in ((xi, ABOUT["designs"]), (y or [0.0] * len(ABOUT["outcomes"]), ABOUT["outcomes"])):
            if len(values) != len(quantities) or not np.isfinite(values).all():
                raise ValueError(f"expected {len(quantities)} finite numbers: {[q['name'] for q in quantities]}")
        if y is not None:
            self.memory = self.run["update"](
                *self.memory, np.asarray(xi, ABOUT["dtype"]), np.asarray(y, ABOUT["dtype"])
            )
        self.step += 1


def main(make: Any = programs) -> None:
    log, seed = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    policy = Policy(make(seed := lines[0]["seed"] if lines else seed))
    for line in lines:
        policy.enter(line["y"], line["xi"])
    while policy.step < ABOUT["horizon"]:
        xi = policy.design()
        where = ", ".join(
            f"{q['name']} {x:.6g} {q['unit']}".rstrip() for q, x in zip(ABOUT["designs"], xi, strict=True)
        )
        typed = input(f"step {policy.step + 1} of {ABOUT['horizon']}: measure at {where}\n> ").partition("@")
        try:
            y, xi = [float(word) for word in typed[0].split()], [float(word) for word in typed[2].split()] or xi
            policy.enter(y, xi)
        except ValueError as error:
            sys.stderr.write(f"not stored: {error}\n")
            continue
        with log.open("a") as file:
            file.write(json.dumps({"seed": seed, "xi": xi, "y": y}) + "\n")


if __name__ == "__main__":
    try:
        main()
    except (EOFError, KeyboardInterrupt):
        sys.exit("\nEverything is stored. The same command goes on.")
