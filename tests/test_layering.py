"""The layers of the library: a module imports only from layers above its own."""

import ast
import pathlib

import pytest

SOURCE = pathlib.Path(__file__).parents[1] / "src" / "scorebed"

# From the top down. A line may hold several modules; modules of one line may import each other.
LAYERS = (
    ("errors", "keys", "nle", "budgets", "once", "blame", "devices", "_allocator"),
    ("tasks",),
    ("nets", "modes", "anchors"),
    ("samplers",),
    ("policies",),
    ("rollout", "costs"),
    ("inference",),
    ("scores",),
    ("variational",),
    ("losses",),
    ("estimators",),
    ("bounds", "bounds_importance", "bounds_nuisance", "bounds_smc"),
    ("diagnostics", "check"),
    ("train",),
    ("baselines",),
    ("runs",),
    ("engines",),
    ("session",),
    ("pocket",),
    ("draw",),
    ("bench",),
    ("report",),
    ("cli", "web"),
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}

MODULES = sorted(
    path.relative_to(SOURCE)
    for path in SOURCE.rglob("*.py")
    if path.parts[-1] != "__init__.py" or path.parent != SOURCE
)


def layer_of(path: pathlib.Path) -> str:
    return path.parts[0].removesuffix(".py")


def imported_layers(source: str) -> set[str]:
    """Layers that a module imports from, at any depth of nesting: a late import is an import too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [node.module] if node.module != "scorebed" else [f"scorebed.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("scorebed.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_module_imports_only_from_layers_above(path):
    layer = layer_of(path)
    assert layer in RANK, f"{path} belongs to no layer: add it to LAYERS"
    imported = imported_layers((SOURCE / path).read_text()) & set(RANK)
    below = {name for name in imported if RANK[name] > RANK[layer]}
    assert not below, f"{path} imports from {sorted(below)}, which stand below {layer}"


def test_tasks_know_nothing_of_policies_and_nothing_above_runs_knows_of_files():
    for path in MODULES:
        text = (SOURCE / path).read_text()
        layer = layer_of(path)
        if layer == "tasks":
            assert "policies" not in imported_layers(text), path
        if RANK[layer] < RANK["runs"]:
            roots = {n.split(".")[0] for n in _imports(text)}
            assert not roots & {"pathlib", "tomllib", "tomli_w", "json", "safetensors", "pydantic"}, path


def _imports(source: str) -> set[str]:
    tree = ast.walk(ast.parse(source))
    return {
        name
        for node in tree
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    }


def test_the_check_sees_a_violation():
    assert imported_layers("def f():\n    from scorebed.policies.dad import DAD\n") == {"policies"}
    assert imported_layers("import scorebed.cli.main as m\nfrom scorebed import rollout") == {"cli", "rollout"}
