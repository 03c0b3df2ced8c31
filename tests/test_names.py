"""One name, one thing: no two public classes of the library share a name."""

import ast
import pathlib
from collections.abc import Iterator

SOURCE = pathlib.Path(__file__).parents[1] / "src" / "scorebed"


def public_classes(source: str) -> Iterator[str]:
    """Names of the classes that a module defines, at any depth, without a leading underscore."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def shared_names(sources: dict[str, str]) -> dict[str, list[str]]:
    """Names that are defined more than once, with the modules that define them."""
    homes: dict[str, list[str]] = {}
    for module, source in sources.items():
        for name in public_classes(source):
            homes.setdefault(name, []).append(module)
    return {name: modules for name, modules in homes.items() if len(modules) > 1}


def test_no_two_public_classes_share_a_name():
    sources = {
        str(path.relative_to(SOURCE)): path.read_text() for path in sorted(SOURCE.rglob("*.py"))
    }
    assert len(sources) > 100
    assert shared_names(sources) == {}


def test_the_check_sees_a_shared_name():
    sources = {
        "a.py": "class Run: ...\nclass _Part: ...",
        "b.py": "def f():\n    class Run: ...\nclass _Part: ...",
    }
    assert shared_names(sources) == {"Run": ["a.py", "b.py"]}
