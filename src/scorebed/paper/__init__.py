"""The paper re-run: its tables and figures, one command each (`scorebed paper ITEM`).

An item is a table or a figure (`items.py`). It is made of units (`units.py`), such as the rows of a
table, each of which leaves a small record; a row is an ordinary run folder. `scale.py` says what a
fraction of the paper's budget means, `published.toml` has the paper's figures.
"""
