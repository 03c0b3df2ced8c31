"""matplotlib is imported by `plots/` and nowhere else, not even for types."""

import ast
import pathlib

SOURCE = pathlib.Path(__file__).parents[2] / "src" / "scorebed"


def imports_matplotlib(source: str) -> bool:
    """At any depth: inside of functions, and under TYPE_CHECKING."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        if any(name.partition(".")[0] == "matplotlib" for name in names):
            return True
    return False


def test_matplotlib_is_imported_in_plots_alone():
    found = {
        path.relative_to(SOURCE).parts[0]
        for path in SOURCE.rglob("*.py")
        if imports_matplotlib(path.read_text())
    }
    assert found == {"plots"}


def test_every_way_to_import_it_is_seen():
    assert imports_matplotlib("def f():\n    import matplotlib.pyplot as plt\n")
    assert imports_matplotlib("if TYPE_CHECKING:\n    from matplotlib.axes import Axes\n")
    assert not imports_matplotlib("import numpy\nfrom scorebed.plots import style\n")
