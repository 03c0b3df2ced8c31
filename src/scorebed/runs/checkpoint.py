"""Checkpoints of a training stage: the last three that are intact, and log-spaced milestones.

A checkpoint is a folder `step-000000123` with the arrays (`leaves.safetensors`) and a
`manifest.json`, which holds the step, what the caller added, the size and sha256 of the arrays, and
a sha256 of itself. It is written aside and renamed when it is complete and on the disk, so that one
with its final name was whole at that moment; reading one checks that it still is."""

import logging
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxtyping import PyTree

from scorebed._platform import sync_folder
from scorebed.errors import CheckpointError, require
from scorebed.runs import strict_json
from scorebed.runs.durable import (
    explained,
    make_folder,
    remove_leftovers,
    temporary_beside,
    write_new,
)
from scorebed.runs.serialisation import decode_leaves, digest, encode_leaves, refuse_newer
from scorebed.runs.strict_json import Json

FORMAT = 1
KEEP = 3
HALVINGS = 4
LEAVES, MANIFEST = "leaves.safetensors", "manifest.json"

_log = logging.getLogger("scorebed.runs").warning


class Checkpoint(NamedTuple):
    """A state of training and what was saved with it."""

    step: int
    tree: PyTree
    extra: dict[str, Json]


class Checkpoints:
    """The checkpoints of one stage, in one folder, which comes to be with the first of them.

    `save` is for the owner of the run; reading needs no ownership. The first at or after each of
    `marks` stays for good, as milestones do. `on_warning` is given a sentence for each checkpoint
    that is skipped."""

    def __init__(
        self,
        folder: Path,
        *,
        marks: Sequence[int] = (),
        on_warning: Callable[[str], object] = _log,
    ):
        self.folder, self.marks, self._warn = folder, marks, on_warning
        self._intact: set[int] = set()

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, intact or not, from the first to the last."""
        if not self.folder.is_dir():
            return []
        names = (re.fullmatch(r"step-([0-9]{9,})", path.name) for path in self.folder.iterdir())
        return sorted({int(name[1]) for name in names if name})

    def save(self, step: int, tree: PyTree, extra: Mapping[str, Json] | None = None) -> Path:
        """Save the arrays of `tree` and the JSON object `extra`; returns when both are on the disk.

        A step that has an intact checkpoint with the same arrays keeps it, `extra` included; other
        arrays for it are refused, because the state of a step follows from the run. If this fails,
        for want of space or else, the earlier ones stay."""
        require(
            step >= 0,
            "the step of a checkpoint",
            got=step,
            expected="a whole number from 0",
            fix="count from 0.",
        )
        final, data = self._path(step), encode_leaves(tree)
        if self._holds(step, digest(data)):
            return final
        files = {LEAVES: {"bytes": len(data), "sha256": digest(data)}}
        manifest = _seal({"format": FORMAT, "step": step, "files": files, "extra": extra or {}})
        with explained("saving the checkpoint", final, needed=len(data) + len(manifest)):
            make_folder(self.folder)
            remove_leftovers(self.folder)
            temporary = temporary_beside(final)
            try:
                temporary.mkdir()
                write_new(temporary / LEAVES, data)
                write_new(temporary / MANIFEST, manifest)
                sync_folder(temporary)
                if final.exists():  # a damaged one
                    self._discard(step)
                temporary.rename(final)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
            sync_folder(self.folder)
        self._intact.add(step)
        self._prune()
        return final

    def latest(self, like: PyTree) -> Checkpoint | None:
        """The newest intact checkpoint, its arrays in the form of `like`; None if there is none.

        Damaged ones are skipped with a warning. One that is intact but does not fit `like`, or is
        of a newer format, is an error: so would be those before it."""
        steps = self.steps()
        for step in reversed(steps):
            try:
                return self.load(step, like)
            except CheckpointError as error:
                self._warn(f"Skipped a damaged checkpoint: {error}")
        if steps:
            self._warn(
                f"No intact checkpoint is left in {self.folder}: this stage starts again from "
                f"its beginning."
            )
        return None

    def load(self, step: int, like: PyTree) -> Checkpoint:
        """The checkpoint of one step; raises `CheckpointError` if there is none or it is
        damaged.
        """
        manifest, data = self._verified(step)
        tree = decode_leaves(data, like, where=str(self._path(step) / LEAVES))
        return Checkpoint(step, tree, manifest["extra"])

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:09d}"

    def _verified(self, step: int) -> tuple[dict[str, Any], bytes]:
        """Manifest and arrays, after every check that needs no template."""
        path = self._path(step)
        try:
            manifest = _unseal((path / MANIFEST).read_bytes())
            refuse_newer(manifest["format"], FORMAT, str(path))
            entry = manifest["files"][LEAVES]
            size = (path / LEAVES).stat().st_size
            _expect(manifest["step"] == step, f"the manifest of step {manifest['step']}")
            _expect(size == entry["bytes"], f"{size} bytes of arrays instead of {entry['bytes']}")
            data = (path / LEAVES).read_bytes()
            _expect(digest(data) == entry["sha256"], "arrays that are not those that were saved")
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise CheckpointError(
                str(path),
                got=f"'{reason}'",
                expected="an intact checkpoint",
                fix="go on from the one before it.",
            ) from error
        return manifest, data

    def _is_intact(self, step: int) -> bool:
        """Whether a checkpoint passes its checks, read once in the life of this object."""
        if step not in self._intact:
            try:
                self._verified(step)
            except CheckpointError:
                return False
            self._intact.add(step)
        return True

    def _holds(self, step: int, sha256: str) -> bool:
        """Whether the arrays are saved for this step already. Others that are intact raise an
        error.
        """
        try:
            manifest, _ = self._verified(step)
        except CheckpointError:
            return False
        same = manifest["files"][LEAVES]["sha256"] == sha256
        require(
            same,
            f"the arrays for {self._path(step)}",
            got="others than it holds",
            expected="the same arrays",
            fix="resume from the latest checkpoint, or train in a new run folder.",
        )
        return same

    def _prune(self) -> None:
        steps = self.steps()
        intact: list[int] = []
        for step in reversed(steps):
            if len(intact) < KEEP and self._is_intact(step):
                intact.append(step)
        for step in sorted(set(steps) - milestones(steps) - first_at_or_after(self.marks, steps)):
            if step < intact[-1]:
                try:
                    self._discard(step)
                except OSError as error:  # an old checkpoint too many is no reason to stop training
                    self._warn(
                        f"Could not remove the old checkpoint {self._path(step)}: {error.strerror}."
                    )

    def _discard(self, step: int) -> None:
        """Remove a checkpoint; renamed first, so that a crash half-way does not leave half of one
        under its name.
        """
        path = self._path(step)
        aside = temporary_beside(path)
        os.rename(path, aside)
        self._intact.discard(step)
        shutil.rmtree(aside)


def milestones(steps: Sequence[int]) -> set[int]:
    """The steps that stay for good: for each of 1, 2, 5, 10, 20, 50, …, the first one at or after
    it.
    """
    marks, decade = [], 1
    while steps and decade <= max(steps):
        marks += [decade, 2 * decade, 5 * decade]
        decade *= 10
    return first_at_or_after(marks, steps)


def first_at_or_after(marks: Sequence[int], steps: Sequence[int]) -> set[int]:
    """For each of `marks`, the first of `steps` at or after it, where there is one."""
    return {
        min(step for step in steps if step >= mark)
        for mark in marks
        if steps and mark <= max(steps)
    }


def halvings(steps: int) -> tuple[int, ...]:
    """1/16, 1/8, 1/4 and 1/2 of the steps of a stage, rounded up, each once."""
    return tuple(sorted({-(-steps // 2**k) for k in range(1, HALVINGS + 1)} - {0}))


def _seal(manifest: dict[str, Any]) -> bytes:
    """A manifest with its own sha256, without which a flipped bit in its numbers would go
    unseen.
    """
    body = strict_json.plain(manifest)
    seal = digest(strict_json.dumps(body).encode())
    return strict_json.dumps({"manifest": body, "sha256": seal}, indent=2).encode()


def _unseal(data: bytes) -> dict[str, Any]:
    sealed = strict_json.loads(data)
    _expect(isinstance(sealed, dict) and isinstance(sealed.get("manifest"), dict), "no manifest")
    body: dict[str, Any] = sealed["manifest"]
    _expect(
        sealed["sha256"] == digest(strict_json.dumps(body).encode()), "a manifest that has changed"
    )
    return body


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)
