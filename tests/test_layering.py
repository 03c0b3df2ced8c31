"""The layers of the library: a module imports only from layers above its own."""

import ast
import pathlib

import pytest

SOURCE = pathlib.Path(__file__).parents[1] / "src" / "scorebed"

# From the top down. A line may hold several modules; modules of one line may import each other.
LAYERS = (
    (
        "errors",
        "keys",
        "nle",
        "registry",
        "_jit",
        "user_errors",
        "_sharding",
        "_platform",
        "_lapack",
    ),
    ("tasks",),
    ("nets",),
    ("samplers",),
    # What a policy may know of the posterior: these evaluate a task, and no policy.
    (
        "inference.modes",
        "inference.gaussian_mixture",
        "inference.blocks",
        "inference.resampling",
        "inference.resample_move",
    ),
    ("policies",),
    ("rollout",),
    ("inference",),
    ("scores",),
    ("densities",),
    ("estimators",),
    ("training.liveness", "training.dropped"),
    ("training.fit",),
    ("bounds",),
    ("diagnostics", "check"),
    ("training",),
    ("baselines",),
    ("plots",),
    # ---- the application: it knows of files, configuration and commands
    ("methods",),
    ("presets",),
    ("cluster",),
    ("runs",),
    ("session",),
    ("export",),
    ("bench",),
    ("report",),
    ("sweeps",),
    ("paper",),
    ("cli", "web"),
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}

MODULES = sorted(
    path.relative_to(SOURCE)
    for path in SOURCE.rglob("*.py")
    if path.parts[-1] != "__init__.py" or path.parent != SOURCE
)


def layer_of(module: str) -> str:
    """The layer of a module named without `scorebed.`: of the names in the list the longest that it
    starts with.
    """
    parts = module.split(".")
    named = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
    return next((name for name in named if name in RANK), parts[0])


def imported_modules(source: str) -> set[str]:
    """Modules that a module imports, at any depth of nesting: a late import is an import too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = (
                [node.module]
                if node.module != "scorebed"
                else [f"scorebed.{alias.name}" for alias in node.names]
            )
        found |= {name.removeprefix("scorebed.") for name in names if name.startswith("scorebed.")}
    return found


def module_of(path: pathlib.Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_module_imports_only_from_layers_above(path):
    layer = layer_of(module_of(path))
    assert layer in RANK, f"{path} belongs to no layer: add it to LAYERS"
    imported = {layer_of(name) for name in imported_modules((SOURCE / path).read_text())} & set(
        RANK
    )
    below = {name for name in imported if RANK[name] > RANK[layer]}
    assert not below, f"{path} imports from {sorted(below)}, which stand below {layer}"


def test_tasks_know_nothing_of_policies_and_nothing_above_runs_knows_of_files():
    for path in MODULES:
        text = (SOURCE / path).read_text()
        layer = layer_of(module_of(path))
        if layer == "tasks":
            assert "policies" not in {layer_of(name) for name in imported_modules(text)}, path
        if RANK[layer] < RANK["methods"]:
            roots = {n.split(".")[0] for n in _imports(text)}
            assert not roots & {
                "pathlib",
                "tomllib",
                "tomli_w",
                "json",
                "safetensors",
                "pydantic",
            }, path


def _imports(source: str) -> set[str]:
    tree = ast.walk(ast.parse(source))
    return {
        name
        for node in tree
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        )
    }


def test_the_check_sees_a_violation():
    assert imported_modules("def f():\n    from scorebed.policies.dad import DAD\n") == {
        "policies.dad"
    }
    assert imported_modules("import scorebed.cli.main as m\nfrom scorebed import rollout") == {
        "cli.main",
        "rollout",
    }
    assert layer_of("training.fit") == "training.fit"
    assert layer_of("training.policy") == "training"
