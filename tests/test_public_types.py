"""Type checkers see every public name with its type, and report a name that does not exist."""

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import scorebed

SOURCE = Path(scorebed.__file__)
ROOT = SOURCE.parents[2]
NAMES = [*scorebed.__all__, "__version__"]
MISSPELT = "eig_boundz"
# A user's file. Notes of `reveal_type` have the code `misc`, which our configuration switches off.
PROBE = [
    '# mypy: enable-error-code="misc"',
    "import scorebed as sb",
    *(f"reveal_type(sb.{name})" for name in NAMES),
    f"sb.{MISSPELT}",
]
LINES = {name: PROBE.index(f"reveal_type(sb.{name})") + 1 for name in NAMES}
LAST = len(PROBE)


def run(command: list[str], folder: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=500,
        env=os.environ | environment,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr  # 2: the checker itself failed
    return done.stdout


def by_mypy(folder: Path) -> tuple[dict[int, str], dict[int, str]]:
    """Revealed types and errors in the user's file, by line."""
    pytest.importorskip("mypy", reason="this test needs mypy: pip install mypy")
    settings = ["--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary"]
    cache = ["--cache-dir", str(ROOT / ".mypy_cache")]  # shared with `make types`
    program = [sys.executable, "-m", "mypy", *settings, *cache, "probe.py"]
    text = run(program, folder, MYPYPATH=str(SOURCE.parents[1]))
    notes = re.findall(r'^probe\.py:(\d+): note: Revealed type is "(.*)"$', text, re.MULTILINE)
    errors = re.findall(r"^probe\.py:(\d+): error: (.*)$", text, re.MULTILINE)
    return {int(n): found for n, found in notes}, {int(n): found for n, found in errors}


def by_pyright(folder: Path) -> tuple[dict[int, str], dict[int, str]]:
    """Likewise. The package pyright[nodejs] brings the checker and its runtime."""
    if importlib.util.find_spec("pyright") is not None:
        program = [sys.executable, "-m", "pyright"]
    elif (path := shutil.which("pyright")) is not None:
        program = [path]
    else:
        pytest.skip("this test needs pyright: pip install 'pyright[nodejs]'")
    settings = {"include": ["probe.py"], "extraPaths": [str(SOURCE.parents[1])]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    text = run(
        [*program, "--outputjson", "--pythonpath", sys.executable, "--project", str(folder)],
        folder,
        PYRIGHT_PYTHON_IGNORE_WARNINGS="1",
    )
    types, errors = {}, {}
    for finding in json.loads(text)["generalDiagnostics"]:
        line, message = finding["range"]["start"]["line"] + 1, finding["message"]
        if finding["severity"] == "error":
            errors[line] = message
        elif found := re.fullmatch(r'Type of ".*?" is "(.*)"', message, re.DOTALL):
            types[line] = found[1]
    return types, errors


@pytest.fixture(scope="module", params=[by_mypy, by_pyright], ids=["mypy", "pyright"])
def findings(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("types")
    (folder / "probe.py").write_text("\n".join([*PROBE, ""]))
    return request.param(folder)


def test_a_misspelt_name_is_the_only_error(findings):
    _, errors = findings
    assert list(errors) == [LAST]
    assert MISSPELT in errors[LAST]


def test_every_public_name_has_its_type(findings):
    """`Any` may stand inside of a type, as in a callable with any arguments, but not for what a
    name is or returns. `Unknown`, a checker's word for an import that it could not follow, may not
    stand anywhere.
    """
    types, _ = findings
    assert set(types) == set(LINES.values())
    untyped = {
        name: types[line]
        for name, line in LINES.items()
        if types[line] in ("Any", "object")
        or types[line].endswith("-> Any")
        or re.search(r"\bUnknown\b", types[line])
    }
    assert untyped == {}


def test_the_three_lists_of_names_agree():
    (branch,) = (
        node
        for node in ast.parse(SOURCE.read_text()).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    imported = {
        alias.asname or alias.name: node.module.removeprefix("scorebed.")
        for node in branch.body
        for alias in node.names
    }
    assert imported == scorebed._HOME
    assert sorted(scorebed.__all__) == sorted(scorebed._HOME)
    assert len(set(scorebed.__all__)) == len(scorebed.__all__)


@pytest.mark.parametrize("name", scorebed.__all__)
def test_a_public_name_is_loaded_on_first_use(name):
    home = importlib.import_module(f"scorebed.{scorebed._HOME[name]}")
    assert getattr(scorebed, name) is getattr(home, name)
    assert name in dir(scorebed)


def test_a_misspelt_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=f"no attribute '{MISSPELT}'"):
        getattr(scorebed, MISSPELT)


def test_importing_the_package_loads_neither_jax_nor_a_module_of_ours():
    code = "import sys, scorebed; print(*sorted(sys.modules))"
    path = os.pathsep.join([str(SOURCE.parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    loaded = done.stdout.split()
    assert "jax" not in loaded
    ours = {name for name in loaded if name.split(".")[0] == "scorebed"}
    assert ours == {"scorebed", "scorebed._platform"}
