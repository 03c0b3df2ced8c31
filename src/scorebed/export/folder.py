"""The exported folder: weights, programs, manifest and client. All of it is data, or a script short
enough to read.

policy.safetensors               the weights
init, design, update, noise.jax  the programs, by `jax.export`
init, design, update.onnx        the same with their weights, where they convert
noise.safetensors                the noise of the seeds 0 to 255, for the ONNX form
client.py                        next design → measure → enter
policy.py                        the programs as one function, for the client or a user's script
manifest.json, SHA256SUMS        what it is, and hashes of every file
"""

import shutil
from importlib import resources
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from scorebed._platform import sync_folder
from scorebed.errors import InvalidValueError, RunFolderError, ScorebedError
from scorebed.export.imitation import Imitation, imitated
from scorebed.export.programs import (
    NAMES,
    NOISE,
    PLATFORMS,
    Programs,
    make_programs,
    noise_table,
    serialise,
)
from scorebed.runs import strict_json
from scorebed.runs.artifacts import fingerprint
from scorebed.runs.durable import explained, write_new
from scorebed.runs.env import environment
from scorebed.runs.load import Run, load
from scorebed.runs.serialisation import digest, encode_leaves
from scorebed.session.policy_runner import policy_sha256
from scorebed.tasks.base import IID, Task
from scorebed.tasks.spaces import Quantity

FORMAT, VERSION = "scorebed-export", 1
SEEDS = 256  # the ONNX form has the noise of this many


def export_policy(
    run: Run | Path | str,
    path: Path | str,
    *,
    distil: str | None = None,
    experiments: int = 512,
    outer: int = 256,
) -> dict[str, Any]:
    """Write the policy of a run to a folder that works without scorebed.

    Arguments:
        run: the run, or the path of its folder.
        path: the folder to make; its parent must exist.
        distil: a kind of network, by name, that is trained to imitate the policy and written in its
            place: for policies that need the model, and computers that cannot run them.
        experiments: simulated experiments to imitate.
        outer: experiments in which tight bounds say what the network loses.

    Returns:
        The manifest, as in the folder's `manifest.json`.

    Raises:
        RunFolderError: if `path` exists (it is left as it is) or cannot be written.
        InvalidValueError: if the designs are not those of a policy, or a package is missing.
        ScorebedError: if the policy cannot be exported. No folder is left behind.

    Example:
        >>> sb.export_policy("runs/linear-gaussian-score-1", "tuesday")["horizon"]
        3
    """
    run, path = run if isinstance(run, Run) else load(run), Path(path)
    if path.exists() or path.is_symlink():
        raise RunFolderError(
            f"the folder {path}",
            got="one that exists",
            expected="a new one, because nothing is ever overwritten",
            fix="choose another with --out.",
        )
    lost = None if distil is None else imitated(run, distil, experiments, outer)
    files, manifest = _contents(run, lost)
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


def _contents(run: Run, imitation: Imitation | None) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Every file of the folder, and the manifest; in memory, so that a failure leaves no folder."""
    if imitation is not None:
        run = eqx.tree_at(lambda run: run.policy, run, imitation.policy)
    if reason := run.policy.unwrapped.not_exported:
        raise InvalidValueError(
            f"the run {run.path}",
            got=reason,
            expected="a trained policy",
            fix="train one, for example with --method score.",
        )
    try:
        programs = make_programs(run.policy, run.task)
        files = {f"{name}.jax": serialise(programs, name) for name in NAMES}
    except (NotImplementedError, ValueError, TypeError) as error:
        if isinstance(error, ScorebedError):
            raise
        why = str(error).strip().splitlines()[0][:200]
        raise ScorebedError(
            f"the policy of {run.path}, got a program that cannot be exported ({why}), "
            "expected array operations only. Fix: use one of the built-in policies."
        ) from error
    files["policy.safetensors"] = encode_leaves(
        eqx.filter(run.policy, eqx.is_array), {"task": fingerprint(run.task)}
    )
    onnx_files, onnx = _onnx_form(programs)
    files |= onnx_files
    files |= {name: _script(name) for name in ("client.py", "policy.py")}
    about = {} if imitation is None else imitation.manifest(digest(files["policy.safetensors"]))
    manifest = _manifest(run, programs, onnx) | about
    manifest |= {"files": {name: digest(data) for name, data in sorted(files.items())}}
    files["manifest.json"] = (strict_json.dumps(manifest, indent=2) + "\n").encode()
    files["README.md"] = _readme(manifest).encode()
    sums = "".join(f"{digest(data)}  {name}\n" for name, data in sorted(files.items()))
    files["SHA256SUMS"] = sums.encode()
    return files, manifest


def _onnx_form(programs: Programs) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The programs as ONNX with a table of noise, and what the manifest says about them; no files
    and the reason if the policy has no ONNX form.
    """
    try:
        from scorebed.export.jaxpr_to_onnx import OPSET, NoOnnxError, to_onnx
    except ModuleNotFoundError as missing:
        raise InvalidValueError(
            "exporting a policy",
            got=f"no package '{missing.name}'",
            expected="onnx, which writes the ONNX form",
            fix="pip install 'scorebed[export]'.",
        ) from missing
    weights = list(programs.weights.values())
    # Without a memory, `init` and `update` compute nothing, and ONNX has no empty graphs.
    names = [name for name in NAMES if name != NOISE and programs.each[name].outputs]
    try:
        files = {f"{name}.onnx": to_onnx(name, programs.each[name], weights) for name in names}
    except NoOnnxError as error:
        return {}, {"programs": [], "reason": str(error)}
    noise = np.asarray(noise_table(programs, SEEDS))
    files["noise.safetensors"] = encode_leaves({"noise": noise})
    return files, {"programs": names, "opset": OPSET, "seeds": SEEDS}


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
        "outcomes": [_quantity(q) for q in task.outcomes],
        "parameters": [_quantity(q) for q in task.prior.quantities],
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
    limits = zip(*space.limits, strict=True) if space.bounded else [(None, None)] * space.dim
    return [
        _quantity(q) | {"low": low, "high": high}
        for q, (low, high) in zip(space.quantities, limits, strict=True)
    ]


def _quantity(quantity: Quantity) -> dict[str, Any]:
    return {"name": quantity.name, "unit": quantity.unit}


def _script(name: str) -> bytes:
    return resources.files("scorebed.export").joinpath(name).read_bytes()


def _readme(manifest: dict[str, Any]) -> str:
    onnx = manifest["onnx"]
    without_jax = (
        "Without JAX: `pip install numpy onnxruntime safetensors`."
        if onnx["programs"]
        else f"This policy has no ONNX form: {onnx['reason']}."
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

shows the next design, asks for the outcome, stores both in `tuesday.jsonl`, and continues there
when started again. The last number is the seed of the policy's noise{noise}. {without_jax}

{_whose_designs(manifest)} There is no posterior:
this folder does not contain the model.
"""


def _whose_designs(manifest: dict[str, Any]) -> str:
    if "distilled" not in manifest:
        return "The designs are those of `scorebed live` for the same outcomes and seed."
    made = manifest["distilled"]
    lost = (
        f"In {made['outer']} experiments it was behind that policy by {made['behind']:.3f} ± "
        f"{made['behind_se']:.3f} nats (tight lower bounds)."
        if made["outer"]
        else "What it loses has not been measured, because the model has no density."
    )
    return f"This network imitates the run's policy, {made['of']}. {lost}"
