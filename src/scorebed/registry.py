"""A table of names: what the command line and configuration files call a thing, and what makes it.

    POLICIES = Registry("policy", {"dad": DAD, "gru": GRUPolicy}, made_by="a class, or a function")
    register_policy = POLICIES.register

A registry is a mapping. `find` refuses an unknown name with the nearest one, and `register` adds a
user's entry under a name that is not built in. An entry may be `Late("module", "name")`: the module
is imported when the entry is first looked up, so that nobody waits for variants that are not used.
"""

import importlib
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple, TypeVar, cast

from scorebed.errors import UnknownNameError, require

Maker = TypeVar("Maker")
Registered = TypeVar("Registered")


class Late(NamedTuple):
    """What a module has under a name; with `made`, what that gives when it is called."""

    module: str
    name: str
    made: bool = False

    def load(self) -> Any:
        found = getattr(importlib.import_module(self.module), self.name)
        return found() if self.made else found


class Registry(MutableMapping[str, Maker]):
    """Built-in entries, and those that a user has registered.

    `kind` is what an entry is, in the singular; `made_by` says what may be registered, and
    `accepts` tests it. `about` is the documentation of this table."""

    def __init__(
        self,
        kind: str,
        built_in: Mapping[str, Maker | Late],
        *,
        made_by: str,
        accepts: Callable[[object], bool] = callable,
        about: str | None = None,
    ):
        self._entries: dict[str, Maker | Late] = dict(built_in)
        self.kind, self.made_by, self.built_in = kind, made_by, frozenset(built_in)
        self.accepts, self.__doc__ = accepts, about or type(self).__doc__

    def __getitem__(self, name: str) -> Maker:
        entry = self._entries[name]
        if isinstance(entry, Late):
            entry = self._entries[name] = entry.load()
        return cast(Maker, entry)

    def __setitem__(self, name: str, maker: Maker) -> None:
        self._entries[name] = maker

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries  # without a look at what it stands for

    def find(self, name: str) -> Maker:
        """The entry of a name.

        Raises `UnknownNameError`, which offers the nearest name, if there is none."""
        if name not in self:
            raise UnknownNameError(self.kind, name, self)
        return self[name]

    def register(self, name: str) -> Callable[[Registered], Registered]:
        """A decorator that adds what it decorates under `name`. Registering a name again replaces
        its entry, since a user's file may be executed more than once.

        Raises `InvalidValueError` if the name is malformed or built in."""
        well_formed = isinstance(name, str) and re.fullmatch(r"[a-z][a-z0-9-]*", name) is not None
        require(
            well_formed,
            f"the name of a {self.kind}",
            got=repr(name),
            expected="small letters, digits and hyphens",
            fix=f'write it like "my-{self.kind.replace(" ", "-")}".',
        )
        require(
            name not in self.built_in,
            f"the name of a {self.kind}",
            got=f"'{name}', which is built in",
            expected="another name",
            fix=f"call it my-{name}.",
        )

        def add(maker: Registered) -> Registered:
            require(
                self.accepts(maker),
                f"the {self.kind} '{name}'",
                got=f"a {type(maker).__name__}",
                expected=self.made_by,
                fix="write it above a class.",
            )
            self[name] = maker  # type: ignore[assignment]
            return maker

        return add
