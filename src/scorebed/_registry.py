"""Names under which users register what they wrote: policies, scores, bounds, methods."""

import re
from collections.abc import Container

from scorebed.errors import require


def require_new_name(what: str, name: object, built_in: Container[str], *, example: str) -> None:
    """Refuse a name that no command line takes, or that is ours. `what` is as in "a policy"."""
    require(
        isinstance(name, str) and re.fullmatch(r"[a-z][a-z0-9-]*", name) is not None,
        f"the name of {what}",
        got=repr(name),
        expected="small letters, digits and hyphens",
        fix=f'write it like "{example}".',
    )
    require(
        name not in built_in,
        f"the name of {what}",
        got=f"'{name}', which is built in",
        expected="another name",
        fix=f"call it my-{name}.",
    )
