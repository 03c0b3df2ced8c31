"""The report of a run: one self-contained HTML file, without scripts. Needs the extra `plots`."""

from scorebed.report.page import write_report as write_report
