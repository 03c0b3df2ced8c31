"""Everything that draws with matplotlib. Needs the extra `plots`.

Functions return a new figure, or draw into one that is given; `figure.savefig(…)` writes it.
matplotlib's global state is not touched. Callers import these modules late, so that commands which
draw nothing neither need nor load matplotlib."""

from scorebed.errors import ScorebedError

try:
    import matplotlib as matplotlib
except ModuleNotFoundError as missing:
    raise ScorebedError(
        f"drawing, got no package '{missing.name}', expected matplotlib. "
        "Fix: pip install 'scorebed[plots]'."
    ) from missing
