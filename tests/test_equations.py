"""The table of the paper's equations: every file and function that it names exists, and shows its
equation.
"""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
SOURCE = ROOT / "src" / "scorebed"
PAGE = (ROOT / "docs" / "equations.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "`" in line]
PLACES = sorted(set(re.findall(r"`([\w/]+\.py): (\w+)`", "\n".join(ROWS))))
# A relation between two sides; "when M ≥ 2" and the like have digits alone on one of them.
RELATION = re.compile(r"[^\s=≤≥∝~↦]\s*(?:=|≤|≥|∝|~|↦)\s*[^\s=\d]")


def docstrings(path: str, name: str) -> list[str | None]:
    """Of the function or class, and of its file; an empty list if there is no such function."""
    tree = ast.parse((SOURCE / path).read_text())
    found = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
    ]
    return [ast.get_docstring(found[0]), ast.get_docstring(tree)] if found else []


def shows_an_equation(text: str | None) -> bool:
    return RELATION.search(text or "") is not None


@pytest.mark.parametrize(("path", "name"), PLACES, ids=lambda value: value)
def test_what_the_table_names_is_there_and_shows_an_equation(path, name):
    assert (SOURCE / path).is_file(), f"docs/equations.md names {path}"
    found = docstrings(path, name)
    assert found, f"{path} has no {name}"
    assert any(map(shows_an_equation, found)), f"neither {path} nor {name} shows an equation"


def test_every_row_names_a_place():
    assert len(ROWS) > 50
    for row in ROWS:
        code = row.strip("|").split("|")[2]
        assert re.fullmatch(r" `[\w/]+\.py: \w+`(, `[\w/]+\.py: \w+`)* ", code), row


def test_an_equation_is_told_from_a_sentence():
    assert shows_an_equation("MSE_N = ‖B‖² + V_s / N")
    assert shows_an_equation("σ ~ U(low, high)")
    assert not shows_an_equation("The prior.")
    assert not shows_an_equation("A batch of M ≥ 2 outcomes.")
    assert not shows_an_equation(None)
    assert docstrings("estimators/score.py", "no_such_function") == []
