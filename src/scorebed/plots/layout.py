"""The layout of a finished figure."""

from matplotlib.figure import Figure


def lay_out(figure: Figure) -> Figure:
    """Place the axes of a finished figure for good, and give it back. `savefig` would draw all of
    it twice, the first time for this alone.
    """
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine(None)
    return figure
