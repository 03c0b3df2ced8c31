"""The sizes of a run, by preset, task, method and number of policies: TOML files beside this one.

`general.toml` explains their headings; `reader.py` puts them together."""

from scorebed.presets.files import read

PRESETS: tuple[str, ...] = tuple(read("general")["presets"])
