"""The folder that goes to the bench: weights, programs, manifest and client. Everything in it is
data or a script to be read.

policy.safetensors               the weights
init, design, update, noise.jax  the programs, by `jax.export`
init, design, update.onnx        the same with their weights, where they convert
noise.safetensors                the noise of the seeds 0 to 255, for the ONNX form
client.py                        next design → measure → enter
policy.py                        the programs as a function, for the client or for a script of somebody's own
manifest.json, SHA256SUMS        what it is, and whether it is whole
"""

import shutil
from importlib import resources
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from scorebed.errors import InvalidValueError, RunFolderError, ScorebedError
from scorebed.export.onnx import NoOnnxError, to_onnx
from scorebed.export.programs import (
    NAMES,
    NOISE,
    PLATFORMS,
    Programs,
    make_programs,
    noise_of,
    serialised,
)
from scorebed.export.protobuf import OPSET
from scorebed.runs import strict_json
from scorebed.runs.artifacts import fingerprint
from scorebed.runs.durable import explained, sync_folder, write_new
from scorebed.runs.env import environment
from scorebed.runs.load import Run, load
from scorebed.runs.serialisation import digest, encode_leaves
from scorebed.session.policy_runner import policy_sha256
from scorebed.tasks.base import IID, Task
from scorebed.tasks.spaces import Box, Quantity

FORMAT, VERSION = "scorebed-pocket", 1
SEEDS = 256  # whose noise the ONNX form has


def export_policy(run: Run | Path | str, path: Path | str) -> dict[str, Any]:
    """Write the policy of a run to a new folder; gives its manifest. A folder that exists is
    refused, and left as it is.
    """
    run, path = run if isinstance(run, Run) else load(run), Path(path)
    if path.exists() or path.is_symlink():
        raise RunFolderError(
            f"the folder {path}",
            got="one that exists",
            expected="a new one, because nothing is ever overwritten",
            fix="name another with --out.",
        )
    files, manifest = _contents(run)
    with explained("making the folder", path):
        path.mkdir()
    try:
        with explained("writing", path, needed=sum(map(len, files.values()))):
            for name, data in files.items():
                write_new(path / name, data)
            sync_folder(path)
            sync_folder(path.absolute().parent)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return manifest


def _contents(run: Run) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Everything in memory first: what cannot be exported leaves no folder."""
    if run.config.method == "myopic":
        raise InvalidValueError(
            f"the run {run.path}",
            got="myopic designs, which are searched for anew with the task's own likelihood",
            expected="a policy that was trained",
            fix="train one, for example with --method score.",
        )
    try:
        programs = make_programs(run.policy, run.task)
        files = {f"{name}.jax": serialised(programs, name) for name in NAMES}
    except (NotImplementedError, ValueError, TypeError) as error:
        if isinstance(error, ScorebedError):
            raise
        reason = str(error).strip().splitlines()[0][:200]
        raise ScorebedError(
            f"the policy of {run.path}, got a program that cannot be written down ({reason}), "
            f"expected array operations alone. "
            "Fix: use one of the built-in policies."
        ) from error
    files["policy.safetensors"] = encode_leaves(
        eqx.filter(run.policy, eqx.is_array), {"task": fingerprint(run.task)}
    )
    try:
        weights = list(programs.weights.values())
        # A policy without a memory has nothing to compute there, and a graph without a node is
        # none.
        kept = [name for name in NAMES if name != NOISE and programs.each[name].outputs]
        files |= {f"{name}.onnx": to_onnx(name, programs.each[name], weights) for name in kept}
        files["noise.safetensors"] = encode_leaves({"noise": np.asarray(noise_of(programs, SEEDS))})
        onnx: dict[str, Any] = {"programs": kept, "opset": OPSET, "seeds": SEEDS}
    except NoOnnxError as error:
        onnx = {"programs": [], "reason": str(error)}
    files |= {name: _own(name) for name in ("client.py", "policy.py")}
    manifest = _manifest(run, programs, onnx) | {
        "files": {name: digest(data) for name, data in sorted(files.items())}
    }
    files["manifest.json"] = (strict_json.dumps(manifest, indent=2) + "\n").encode()
    files["README.md"] = _readme(manifest).encode()
    sums = "".join(f"{digest(data)}  {name}\n" for name, data in sorted(files.items()))
    files["SHA256SUMS"] = sums.encode()
    return files, manifest


def _manifest(run: Run, programs: Programs, onnx: dict[str, Any]) -> dict[str, Any]:
    task = run.task
    return {
        "format": FORMAT,
        "version": VERSION,
        "run": run.path.resolve().name,
        "task": run.config.task,
        "method": run.config.method,
        "policy": type(run.policy).__name__,
        "horizon": task.horizon,
        "independent": isinstance(task, IID),
        "designs": _designs(task),
        "outcomes": [_plain(q) for q in task.outcomes],
        "parameters": [_plain(q) for q in task.prior.quantities],
        "expected": {name: getattr(run.record.bounds, name) for name in ("lower", "upper")},
        "task_fingerprint": fingerprint(task),
        "policy_sha256": policy_sha256(run),
        "programs": list(NAMES),
        "platforms": list(PLATFORMS),
        "onnx": onnx,
        "dtype": programs.dtype,
        "weights": list(programs.weights),
        "memory": [{"shape": list(m.shape), "dtype": m.dtype.name} for m in programs.memory],
        "noise": programs.noise,
        "made_with": environment(),
    }


def _designs(task: Task) -> list[dict[str, Any]]:
    space = task.designs
    limits = (
        zip(space.low, space.high, strict=True)
        if isinstance(space, Box)
        else [(None, None)] * space.dim
    )
    return [
        _plain(q) | {"low": low, "high": high}
        for q, (low, high) in zip(space.quantities, limits, strict=True)
    ]


def _plain(quantity: Quantity) -> dict[str, Any]:
    return {"name": quantity.name, "unit": quantity.unit}


def _own(name: str) -> bytes:
    return resources.files("scorebed.export").joinpath(name).read_bytes()


def _readme(manifest: dict[str, Any]) -> str:
    onnx = manifest["onnx"]
    with_onnx = (
        "Without JAX: `pip install numpy onnxruntime safetensors`."
        if onnx["programs"]
        else f"There is no ONNX form of this policy: {onnx['reason']}."
    )
    designs, outcomes = (
        ", ".join(str(Quantity(q["name"], q["unit"])) for q in manifest[k])
        for k in ("designs", "outcomes")
    )
    noise = "" if manifest["noise"] else " (this policy has none)"
    return f"""# A policy for the bench

Trained on {manifest["task"]} by {manifest["method"]}, for {manifest["horizon"]} steps.
Designs: {designs}. Outcomes: {outcomes}.

    pip install numpy jax flatbuffers safetensors
    sha256sum --check SHA256SUMS
    python client.py tuesday.jsonl 0

shows the next design, asks for the outcome, keeps both in `tuesday.jsonl`, and goes on there when started again.
The last number is the seed of the policy's noise{noise}. {with_onnx}

The designs are those of `scorebed live` for the same outcomes and seed. The posterior is not here: this folder has no model.
"""
