"""What a table or figure of the paper is: units that are carried out, and a page made of their
records.
"""

import abc
from collections.abc import Mapping, Sequence

from scorebed.paper.page import Page
from scorebed.paper.study import Study
from scorebed.paper.units import Unit, UnitRecord


class PaperItem(abc.ABC):
    """A table or figure of the paper. It is made anew for every use and holds nothing."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The ITEM of the command line."""

    @property
    @abc.abstractmethod
    def title(self) -> str:
        """What it is, in words."""

    @abc.abstractmethod
    def units(self, study: Study) -> Sequence[Unit]:
        """What has to be carried out, in order."""

    @abc.abstractmethod
    def page(self, study: Study, records: Mapping[str, UnitRecord]) -> Page:
        """The item from the records that there are, by the names of their units."""
