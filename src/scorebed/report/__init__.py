"""The report of a run: one HTML file that needs nothing beside it, neither network nor scripts.
Needs the extra `plots`.
"""

from scorebed.report.page import write_report as write_report
