"""Where commands keep what they compile."""

import os

from scorebed.cli._compiled import keep_compiled

DIRECTORY, TIME = "JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


def test_it_is_the_users_cache_unless_the_user_says_otherwise(monkeypatch, tmp_path):
    for name in (DIRECTORY, TIME):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep_compiled()
    assert os.environ[DIRECTORY] == str(tmp_path / "scorebed" / "compiled")
    assert float(os.environ[TIME]) > 0
    monkeypatch.setenv(DIRECTORY, "elsewhere")
    keep_compiled()
    assert os.environ[DIRECTORY] == "elsewhere"
