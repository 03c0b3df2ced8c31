"""Next design → measure → enter → next design:   python client.py tuesday.jsonl [SEED]

Enter `y`, or `y @ xi` if it was measured at another design, or `s` if the trial failed. Every step is a line of the file.
"""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ABOUT = json.loads((HERE / "manifest.json").read_text())


def programs(seed: int) -> dict[str, Any]:
    from jax import export, jit
    from safetensors.numpy import load_file

    weights = load_file(HERE / "policy.safetensors")
    given = [weights[name] for name in ABOUT["weights"]]
    code = {name: bytearray((HERE / f"{name}.jax").read_bytes()) for name in ABOUT["programs"]}
    run: dict[str, Any] = {name: partial(jit(export.deserialize(code[name]).call), *given) for name in code}
    return run | {"noise": np.asarray(run["noise"](np.int32(seed))[0])}


def design(run: dict[str, Any], steps: list[dict[str, Any]]) -> list[float]:
    """The design after some steps. One without an outcome has used up its noise, and is forgotten otherwise."""
    memory = run["init"]()
    for step in steps:
        if step["y"] is not None:
            memory = run["update"](*memory, *(np.asarray(step[name], ABOUT["dtype"]) for name in ("xi", "y")))
    return np.asarray(run["design"](*memory, run["noise"][len(steps)])[0]).tolist()


def numbers(typed: str, quantities: list[dict[str, Any]]) -> list[float]:
    values = [float(word) for word in typed.split()]
    if len(values) != len(quantities) or not np.isfinite(values).all():
        raise ValueError(f"expected {len(quantities)} finite numbers: {[q['name'] for q in quantities]}")
    return values


def main(make: Any = programs) -> None:
    log, seed = Path(sys.argv[1]), int((sys.argv[2:] or ["0"])[0])
    steps = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    run = make(seed := steps[0]["seed"] if steps else seed)
    while len(steps) < ABOUT["horizon"]:
        xi = design(run, steps)
        at = ", ".join(f"{q['name']} {x:.6g} {q['unit']}".rstrip() for q, x in zip(ABOUT["designs"], xi, strict=True))
        y, _, used = input(f"step {len(steps) + 1} of {ABOUT['horizon']}: measure at {at}\n> ").partition("@")
        try:
            outcome = None if y.strip() == "s" and ABOUT["independent"] else numbers(y, ABOUT["outcomes"])
            steps.append({"seed": seed, "xi": numbers(used, ABOUT["designs"]) if used else xi, "y": outcome})
        except ValueError as error:
            sys.stderr.write(f"not stored: {error}\n")
            continue
        with log.open("a") as file:
            file.write(json.dumps(steps[-1]) + "\n")


if __name__ == "__main__":
    try:
        main()
    except (EOFError, KeyboardInterrupt):
        sys.exit("\nEverything is stored. The same command goes on.")
