"""The wheel holds what the library needs, and works where there is no source tree."""

import json
import os
import pathlib
import subprocess
import sys
import sysconfig
import tomllib
import urllib.request
import venv
import zipfile
from email.parser import Parser

import pytest

import scorebed

ROOT = pathlib.Path(__file__).parents[2]
SOURCE = ROOT / "src" / "scorebed"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TINY = (
    *("train", "linear-gaussian", "--preset", "quick", "--policy", "static", "--out", "run"),
    *("--set", "score.steps=4", "--set", "policy_training.steps=2"),
    *("--set", "evaluation.outer=8", "--set", "evaluation.inner=16"),
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> pathlib.Path:
    """Built as a package index would get it, by the backend that `pyproject.toml` names."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_all_of_the_package_and_nothing_else(wheel):
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = {
        str(path.relative_to(SOURCE.parent))
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == files
    kinds = {pathlib.Path(name).suffix for name in held}
    assert kinds == {".py", ".typed", ".toml", ".html", ".js", ".css", ".svg"}
    for name in ("py.typed", "presets/general.toml", "web/static/live.js", "templates/report.html"):
        assert f"scorebed/{name}" in held


def test_its_metadata_say_what_the_project_does(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata["Version"] == PROJECT["version"] == scorebed.__version__
    assert {"plots", "web", "sweep", "cluster", "tracking", "docs"} <= set(
        metadata.get_all("Provides-Extra")
    )
    pythons = [f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)]
    assert set(pythons) <= set(metadata.get_all("Classifier"))
    entry = archive.read(name.replace("METADATA", "entry_points.txt")).decode()
    assert "scorebed = scorebed.cli:main" in entry


def test_every_place_names_the_same_version():
    version = f"version: {PROJECT['version']}"
    assert version in (ROOT / "CITATION.cff").read_text().splitlines()
    assert f'  version: "{PROJECT["version"]}"' in (ROOT / "conda" / "recipe.yaml").read_text()
    assert f"\n## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_conda_recipe_has_the_dependencies_of_the_project():
    recipe = (ROOT / "conda" / "recipe.yaml").read_text().split("  run:\n")[1].split("\n\n")[0]
    needed = {line.strip("- ").replace(" ", "") for line in recipe.splitlines()}
    other_names = {"flatbuffers>=24.3.25": "python-flatbuffers>=24.3.25"}
    wanted = {other_names.get(each, each) for each in PROJECT["dependencies"]}
    assert needed == {*wanted, f"python{PROJECT['requires-python']}"}


@pytest.mark.slow
def test_the_wheel_works_in_an_environment_without_the_source(wheel, tmp_path):
    """Dependencies are those of this environment, by their folder; `scorebed` is the wheel's."""
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    paths = {"base": str(home), "platbase": str(home)}
    packages = pathlib.Path(sysconfig.get_path("purelib", vars=paths))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    pip += ["--disable-pip-version-check", "--no-deps", "--no-index", "--ignore-installed"]
    subprocess.run([*pip, str(wheel)], check=True)

    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    clean["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
    how = {"cwd": tmp_path, "env": clean, "check": True, "capture_output": True, "text": True}
    where = subprocess.run([python, "-c", "import scorebed; print(scorebed.__file__)"], **how)
    assert pathlib.Path(where.stdout.strip()).is_relative_to(packages)

    command = home / "bin" / "scorebed"
    trained = json.loads(subprocess.run([command, *TINY, "--json"], **how).stdout)
    assert trained["lower"] < trained["upper"] + 1
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000
    subprocess.run([command, "export", "run", "--out", "bench"], **how)
    assert (tmp_path / "bench").is_dir()

    serve = [command, "serve", "run", "--port", "0", "--json"]
    with subprocess.Popen(serve, cwd=tmp_path, env=clean, stdout=subprocess.PIPE) as server:
        try:
            answer = b"".join(iter(server.stdout.readline, b"}\n")) + b"}"
            link = json.loads(answer)["link"]
            with urllib.request.urlopen(link) as page:
                assert page.status == 200
                assert "scorebed" in page.read().decode()
        finally:
            server.terminate()
