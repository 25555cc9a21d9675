"""Counts of the matrix at the end of a test run."""

from collections import Counter

OUTCOME = "exactness"


def pytest_terminal_summary(terminalreporter):
    reports = terminalreporter.getreports("passed")
    counts = Counter(value for report in reports for name, value in report.user_properties if name == OUTCOME)
    if counts:
        terminalreporter.write_line(f"model x technique: {counts['equal']} equal, {counts['refused']} refused")
