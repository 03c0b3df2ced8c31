"""The arrays of any PyTree as named arrays in a safetensors file, and back into a template.

A leaf is named by the way to it, "encoder.mlp.layers.0.weight". JAX and NumPy arrays are saved with
their dtype and shape, typed PRNG keys by their key data; everything else in the tree (functions,
static numbers) is the template's business. Files hold no code and loading them runs none. A
checksum of everything stands in the header, by which a file with a flipped bit is refused."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import PyTree
from numpyro.distributions import Distribution

from scorebed.errors import CheckpointError, LeafMismatchError, NewerFormatError, require
from scorebed.runs import strict_json
from scorebed.runs.durable import replace_file
from scorebed.runs.strict_json import Json

FORMAT = 1

# All of our own header in one entry, because the library writes entries in no fixed order: equal
# trees then give equal bytes.
_HEADER = "scorebed"

_DTYPES = {
    "BOOL": "bool",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
_KEY_IMPLS = ("threefry2x32", "rbg", "unsafe_rbg")


class _Header(NamedTuple):
    keys: dict[str, str]
    metadata: dict[str, Json]
    sha256: str  # empty in a file of an earlier version


def save_leaves(path: Path, tree: PyTree, metadata: Mapping[str, Json] | None = None) -> None:
    """Write the arrays of `tree` to `path`, at once and durably. `metadata` is any JSON object, for
    `read_metadata`.
    """
    replace_file(path, encode_leaves(tree, metadata))


def load_leaves(path: Path, like: PyTree) -> PyTree:
    """`like` with its arrays replaced by those of a file. Leaves of `like` may be
    `jax.ShapeDtypeStruct`s.

    Raises `CheckpointError` for a damaged file, and `LeafMismatchError` unless names, shapes and
    dtypes are the same."""
    return decode_leaves(_read(path), like, where=str(path))


def read_metadata(path: Path) -> dict[str, Json]:
    """What `save_leaves` was given besides the arrays: enough to build the template, for who wrote
    it there.
    """
    data = _read(path)
    _arrays(data, str(path))  # which looks whether anything has changed
    return _header(data, str(path)).metadata


def leaf_names(tree: PyTree) -> list[str]:
    """The names under which the arrays of `tree` are saved, in the tree's order."""
    return [name for name, leaf in _named(tree) if _is_saved(leaf)]


def encode_leaves(tree: PyTree, metadata: Mapping[str, Json] | None = None) -> bytes:
    """The bytes of a file. Equal trees and metadata give equal bytes."""
    arrays, keys = {}, {}
    for name, leaf in _named(tree):
        if not _is_saved(leaf):
            continue
        if _is_key(leaf):
            keys[name], leaf = str(jr.key_impl(leaf)), jr.key_data(leaf)
        # The library writes memory as it lies: a transposed or strided array would be saved
        # scrambled.
        arrays[name] = np.asarray(leaf, order="C")
        dtype = arrays[name].dtype.name
        require(
            dtype in _DTYPES.values(),
            f"the leaf '{name}'",
            got=dtype,
            expected=f"one of {', '.join(_DTYPES.values())}",
            fix="save it in another precision.",
        )
    header = _Header(keys, strict_json.plain(metadata or {}), "")
    described = header._asdict() | {"format": FORMAT, "sha256": _content(header, arrays)}
    return safetensors.numpy.save(arrays, metadata={_HEADER: strict_json.dumps(described)})


def decode_leaves(data: bytes, like: PyTree, *, where: str) -> PyTree:
    """The inverse of `encode_leaves`; `where` names the source in errors."""
    keys = _header(data, where).keys
    found = {
        name: _wrap(array, keys.get(name), where) for name, array in _arrays(data, where).items()
    }
    ours = _named(like)
    _compare(found, {name: leaf for name, leaf in ours if _is_saved(leaf)}, where)
    leaves = [_like(found[name], leaf) if _is_saved(leaf) else leaf for name, leaf in ours]
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(like), leaves)


def digest(data: bytes) -> str:
    """The sha256 that checkpoints and records name a file by."""
    return hashlib.sha256(data).hexdigest()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _damaged(str(path), f"'{error.strerror or error!r}'") from error


def _header(data: bytes, where: str) -> _Header:
    """Our own entry of the header. Read before the arrays: a newer format may hold arrays that we
    cannot read.
    """
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or 8 + length > len(data):
        raise _damaged(where, f"{len(data)} bytes that end before the header does")
    try:
        ours = strict_json.loads(strict_json.loads(data[8 : 8 + length])["__metadata__"][_HEADER])
        number, keys, metadata = ours["format"], ours["keys"], ours["metadata"]
        good = isinstance(number, int) and isinstance(keys, dict) and isinstance(metadata, dict)
        good &= set(ours) <= {"format", "keys", "metadata", "sha256"}
    except (ValueError, TypeError, KeyError):
        good = False
    if not good:
        raise _damaged(where, "no header of ours")
    refuse_newer(number, FORMAT, where)
    return _Header(keys, metadata, str(ours.get("sha256", "")))


def refuse_newer(number: int, ours: int, where: str) -> None:
    """Raise `NewerFormatError` for a format number that a later version of scorebed has written."""
    if number > ours:
        raise NewerFormatError(
            where,
            got=f"format {number}",
            expected=f"at most format {ours}",
            fix="install a newer version of scorebed.",
        )


def _arrays(data: bytes, where: str) -> dict[str, np.ndarray]:
    header = _header(data, where)
    try:
        found = {
            name: np.frombuffer(view["data"], np.dtype(_DTYPES[view["dtype"]])).reshape(
                view["shape"]
            )
            for name, view in safetensors.deserialize(data)
        }
    except KeyError as error:
        raise _damaged(where, f"arrays of type {error}") from error
    except (safetensors.SafetensorError, ValueError) as error:
        raise _damaged(where, f"'{error}'") from error
    if header.sha256 not in ("", _content(header, found)):
        raise _damaged(where, "a file that has changed since it was written")
    return found


def _content(header: _Header, arrays: Mapping[str, np.ndarray]) -> str:
    """The sha256 of all that a file says, in whatever order it is written."""
    said = hashlib.sha256(strict_json.dumps([FORMAT, header.keys, header.metadata]).encode())
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        said.update(strict_json.dumps([name, array.dtype.name, array.shape]).encode())
        said.update(array.tobytes())
    return said.hexdigest()


def _wrap(array: np.ndarray, impl: object, where: str) -> Any:
    """Key data as keys again; any other array as it is."""
    if impl is None:
        return array
    try:
        if impl not in _KEY_IMPLS:
            raise ValueError
        return jr.wrap_key_data(jnp.array(array), impl=impl)
    except (ValueError, TypeError) as error:
        raise _damaged(where, f"a random key of kind '{impl}' from {_kind(array)}") from error


def _damaged(where: str, got: str) -> CheckpointError:
    return CheckpointError(
        where,
        got=got,
        expected="an intact safetensors file of scorebed",
        fix="use another copy of it, or train again.",
    )


def _compare(found: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> None:
    faults = [
        f"'{name}' of {_kind(found[name])} for {_kind(leaf)}"
        if name in found
        else f"no '{name}' ({_kind(leaf)})"
        for name, leaf in wanted.items()
        if name not in found or _kind(found[name]) != _kind(leaf)
    ]
    faults += [
        f"an unexpected '{name}' ({_kind(leaf)})"
        for name, leaf in found.items()
        if name not in wanted
    ]
    if faults:
        more = f"; and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise LeafMismatchError(
            where,
            got="; ".join(faults[:5]) + more,
            expected="the names, shapes and types of the configured model",
            fix="load it with the configuration that it was saved with.",
        )


def _like(value: Any, template: Any) -> Any:
    """A loaded array as what the template has in its place, copied: the buffer of a file is
    read-only, and a training step may want to write its result where its argument was.
    """
    if isinstance(template, np.generic):
        return value[()]
    if isinstance(template, np.ndarray):
        return value.copy()
    return value if isinstance(value, jax.Array) else jnp.array(value)


def _is_saved(leaf: object) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _kind(leaf: Any) -> str:
    return (
        f"{leaf.dtype.name if isinstance(leaf.dtype, np.dtype) else leaf.dtype}{list(leaf.shape)}"
    )


def _named(tree: PyTree) -> list[tuple[str, Any]]:
    """The leaves in the tree's order, with their names."""
    return [(_name(path), leaf) for path, leaf in _ways(tree)]


def _ways(tree: PyTree) -> list[tuple[tuple[Any, ...], Any]]:
    """The leaves, and the ways to them. numpyro flattens a distribution in the order of a set,
    which is another one in every process: its parts go by the names of its attributes, not by their
    places.
    """
    found: list[tuple[tuple[Any, ...], Any]] = []
    for path, part in jax.tree_util.tree_leaves_with_path(
        tree, is_leaf=lambda part: isinstance(part, Distribution)
    ):
        if not isinstance(part, Distribution):
            found.append((path, part))
            continue
        for field in type(part).gather_pytree_data_fields():
            below = _ways(vars(part).get(field))
            found += [
                ((*path, jax.tree_util.GetAttrKey(field), *rest), leaf) for rest, leaf in below
            ]
    return found


def _name(path: tuple[Any, ...]) -> str:
    """The way to a leaf. Points inside of a dict's own keys are escaped, so that no two leaves
    share a name.
    """
    parts = [jax.tree_util.keystr((part,), simple=True) for part in path]
    name = (
        ".".join(part.replace("%", "%25").replace(".", "%2E") for part in parts)
        if parts
        else "array"
    )
    return "%5F_metadata__" if name == "__metadata__" else name  # reserved in the file format
