"""The illustrated report: one HTML page a run, or one page that compares several methods."""

from anedl.report.page import write_comparison, write_report

__all__ = ["write_comparison", "write_report"]
