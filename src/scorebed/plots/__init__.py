"""Everything that draws with matplotlib. Needs the extra `plots`."""
