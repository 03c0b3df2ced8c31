"""What `--scale S` means: the paper's run with S times its budget of likelihood evaluations (NLE).

It is a rule on the values of a configuration, by the names of their keys, so that it holds for any
method. S = 1 changes nothing. Below it:

| setting | rule |
|---|---|
| `batch` N | max(64, N·S): batches shrink first |
| `steps` K, of every stage | K·f with f = S·N/batch: the rest of S is taken from steps |
| M of PCE, levels of MLMC, policies P | the paper's |
| IO-SMC²: `trajectories`, `particles`, `steps` | in turn, down to 64, 64 and 5 |
| `learning_rate`, with its last value | divided by f, up to 2e-3, so that fewer steps still move |
| `decay_every` | times f |
| `monitor_every` | times f, and at most 64 estimates along the way: they change nothing here |
| `clip` of a gradient's norm | at most 1: of 64 trajectories a single one decides the gradient |
| `width` w of a network | 8·round(w·S^(1/3)/8), within 32 and w |
| `blocks`, `layers` of a network | half, rounded up, once its width is below half |
| `hidden` layers of its embedding | in proportion to its width, in whole numbers |
| `heads` of a network | halved until each has at least 16 dimensions |
| sizes of policies | the paper's |
| bounds | N = 512; M·S, not below 10⁵; no references beside |
| choice among P policies | N = 256; a tenth of the M of the bounds |
| estimates along the way | M = 1,000 |

Both stages of a method shrink alike, so that the split of the budget between them stays. Bounds of
N = 512 and M = 10⁵ take 1.5·10⁹ evaluations at T = 30, a second or two on two cores: at the scales
that those can do, less than a quarter of the training of any method with a network.

f below 1/8 or so means few steps of a policy (80 of 500 on the dynamical systems at S = 0.01): what
is then compared is how methods begin.
"""

import math
from collections.abc import Mapping
from typing import Any

from scorebed.errors import require
from scorebed.paper.data import read

SMALLEST_BATCH = 64
FEWEST_SWEEPS = 5
LARGEST_RATE = 2e-3
LARGEST_CLIP = 1.0
SMALLEST_WIDTH, WIDTH_STEP, SMALLEST_HEAD = 32, 8, 16
OUTER, SMALLEST_INNER = 512, 100_000
SELECT_OUTER, SELECT_SHARE = 256, 10
MONITOR_INNER, MOST_ESTIMATES = 1_000, 64

POLICY, EVALUATION = "policy_training", "evaluation"
Tables = Mapping[str, Any]


def scaled_settings(values: Tables, scale: float) -> dict[str, Any]:
    """The settings that S times the budget changes, by their dotted keys; none at S = 1.

    `values` are those of a whole configuration of the paper (`runs.config.to_values`).
    """
    require(
        0 < scale <= 1,
        "--scale",
        got=f"{scale:g}",
        expected="a share of the paper's budget, above 0 and up to 1",
        fix="1 is the paper itself, 0.01 a hundredth of it.",
    )
    if scale == 1:
        return {}
    tables = {name: table for name, table in values.items() if isinstance(table, Mapping)}
    found: dict[str, Any] = {}
    training: dict[str, int] = {}
    factor = 1.0  # on the steps of policies, and of what is trained together with them
    if POLICY in tables:
        nested = [name for name, table in tables.items() if _nested(table)]
        training, factor = _steps(tables[POLICY], scale)
        for name in nested:
            sizes, training, factor = _particles(tables[name], tables[POLICY]["steps"], scale)
            found |= _keyed(name, sizes)
    for name, table in tables.items():
        if name == EVALUATION:
            found |= _keyed(name, _bounds(table, scale))
            continue
        changed, of_table = training if name == POLICY else {}, factor
        if name != POLICY and "steps" in table and "batch" in table:
            changed, of_table = _steps(table, scale)
        found |= _keyed(name, changed | _rates(table, of_table) | _network(table, scale))
    return found


def overrides(settings: Mapping[str, Any]) -> list[str]:
    """Settings as `key=value`, in TOML."""
    return [f"{key}={_toml(value)}" for key, value in settings.items()]


def _nested(table: Tables) -> bool:
    """Whether a method is one of particles within trajectories."""
    return all(size in table for size in _nested_sizes())


def _nested_sizes() -> dict[str, int]:
    """The sizes that multiply its cost, in the order in which they shrink, and how far."""
    return dict(read("items")["nested"])


def _particles(
    table: Tables, sweeps: int, scale: float
) -> tuple[dict[str, int], dict[str, int], float]:
    """Trajectories and particles, the sweeps that are left for S, and the factor on those."""
    sizes, left = {}, scale
    for size, smallest in _nested_sizes().items():
        sizes[size] = _shrunk(table[size], left, smallest)
        left *= table[size] / sizes[size]
    K = _shrunk(sweeps, left, FEWEST_SWEEPS)
    return sizes, {"steps": K}, K / sweeps


def _steps(table: Tables, scale: float) -> tuple[dict[str, int], float]:
    """Batch and steps of a stage, and the factor on its steps."""
    batch = _shrunk(table["batch"], scale, SMALLEST_BATCH)
    factor = scale * table["batch"] / batch
    return {"batch": batch, "steps": max(1, round(table["steps"] * factor))}, factor


def _rates(table: Tables, factor: float) -> dict[str, Any]:
    """Learning rates and the steps between their decays, clipping, and estimates on the way."""
    found: dict[str, Any] = {}
    if "clip" in table:
        found["clip"] = min(table["clip"], LARGEST_CLIP)
    if "learning_rate" in table:
        first = table["learning_rate"]
        raised = max(first, min(first / factor, LARGEST_RATE))
        found["learning_rate"] = raised
        for last in ("final_rate", "floor_rate"):
            if table.get(last):
                found[last] = table[last] * (raised / first)
    if "decay_every" in table:
        found["decay_every"] = max(1, round(table["decay_every"] * factor))
    if "monitor_every" in table:
        rarest = math.ceil(table["steps"] * factor / MOST_ESTIMATES)
        found["monitor_every"] = max(1, round(table["monitor_every"] * factor), rarest)
    if "monitor_inner" in table:
        found["monitor_inner"] = min(table["monitor_inner"], MONITOR_INNER)
    return found


def _network(table: Tables, scale: float) -> dict[str, Any]:
    """The sizes of a network."""
    if "width" not in table:
        return {}
    full = table["width"]
    width = WIDTH_STEP * round(full * scale ** (1 / 3) / WIDTH_STEP)
    width = min(full, max(width, SMALLEST_WIDTH))
    found: dict[str, Any] = {"width": width}
    for depth in ("blocks", "layers"):
        if depth in table and 2 * width < full:
            found[depth] = math.ceil(table[depth] / 2)
    if "hidden" in table:
        found["hidden"] = [max(1, round(size * width / full)) for size in table["hidden"]]
    if "heads" in table:
        heads = table["heads"]
        while heads > 1 and (width // heads < SMALLEST_HEAD or width % heads):
            heads //= 2
        found["heads"] = heads
    return found


def _bounds(table: Tables, scale: float) -> dict[str, Any]:
    inner = min(table["inner"], max(SMALLEST_INNER, round(table["inner"] * scale)))
    return {
        "outer": min(table["outer"], OUTER),
        "inner": inner,
        "select_outer": min(table["select_outer"], SELECT_OUTER),
        "select_inner": min(table["select_inner"], max(1, inner // SELECT_SHARE)),
        "references": False,
    }


def _shrunk(size: int, scale: float, smallest: int) -> int:
    return min(size, max(smallest, round(size * scale)))


def _keyed(table: str, changed: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{table}.{key}": value for key, value in changed.items()}


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
