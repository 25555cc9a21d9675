"""What lint found, in the terminal: the line, a mark below it, why it costs memory and what to write."""

from collections.abc import Sequence

from rich.text import Text

from memfit.lint.engine import LintResult
from memfit.lint.finding import Broken, Finding
from memfit.lint.rule import Rule

_MOST_LINES = 3


def render_findings(result: LintResult) -> Text:
    """Every finding, then every file that could not be read, then the sum."""
    parts = [_finding(each) for each in result.findings]
    parts += [_broken(each) for each in result.broken]
    parts.append(_sum(result))
    return Text("\n").join(parts)


def _finding(finding: Finding) -> Text:
    place = finding.place
    text = Text.assemble((str(place), "bold"), ": ", (finding.code, "bold red"), f" {finding.message}\n")
    width = len(str(place.line + len(finding.lines) - 1))
    gutter = " " * width + " |"
    text.append(f"{gutter}\n", style="blue")
    for offset, line in enumerate(finding.lines[:_MOST_LINES]):
        text.append(f"{place.line + offset:>{width}} | ", style="blue")
        text.append(f"{line}\n")
        text.append(f"{gutter} ", style="blue")
        text.append(_mark(finding, offset) + "\n", style="red")
    if len(finding.lines) > _MOST_LINES:
        text.append(f"{gutter} ...\n", style="blue")
    for label, words in (("why", finding.why), ("instead", finding.instead)):
        text.append(f"{' ' * width} = ", style="blue")
        text.append(f"{label}: ", style="bold")
        text.append(f"{words}\n")
    if finding.fix is not None:
        how = "--fix" if finding.fix.safe else "--fix --unsafe-fixes"
        text.append(f"{' ' * width} = ", style="blue")
        text.append("fix: ", style="bold")
        text.append(f"{how} writes it\n", style="green")
    return text


def _mark(finding: Finding, offset: int) -> str:
    """Carets below the part of a line that is meant; tabs stay tabs, so that they stand where they should."""
    line, place = finding.lines[offset], finding.place
    indent = len(line) - len(line.lstrip())
    start = place.column - 1 if offset == 0 else indent
    end = place.end_column - 1 if offset == len(finding.lines) - 1 else len(line)
    before = "".join("\t" if character == "\t" else " " for character in line[:start])
    return before + "^" * max(1, end - start)


def _broken(broken: Broken) -> Text:
    cell = "" if broken.cell is None else f":cell {broken.cell}"
    line = "" if broken.line is None else f":{broken.line}"
    return Text.assemble(
        (f"{broken.path}{cell}{line}", "bold"), ": ", ("not linted", "bold red"), f": {broken.reason}\n"
    )


def _sum(result: LintResult) -> Text:
    count = len(result.findings)
    mended = f", {result.mended} mended" if result.mended else ""
    files = f"{result.files} file{'s' * (result.files != 1)}"
    if not count:
        text = Text(f"Nothing found in {files}{mended}.", style="green")
    else:
        text = Text(f"Found {count} in {files}{mended}.", style="bold")
        safe = sum(each.fix is not None and each.fix.safe for each in result.findings)
        unsafe = sum(each.fix is not None and not each.fix.safe for each in result.findings)
        if safe:
            text.append(f" {safe} can be mended with --fix.")
        if unsafe:
            text.append(f" {unsafe} {'more ' * bool(safe)}with --fix --unsafe-fixes.")
        text.append(f"\nmemfit lint --explain {result.findings[0].code} says more about a rule.", style="dim")
    if result.broken:
        text.append(f"\n{len(result.broken)} could not be read.", style="bold red")
    return text


def render_rules(rules: Sequence[type[Rule]]) -> Text:
    """Code, name and summary of rules."""
    width = max(len(rule.name) for rule in rules)
    lines = [
        Text.assemble((rule.code, "bold"), f"  {rule.name:<{width}}  ", (rule.summary().rstrip("."), "dim"))
        for rule in rules
    ]
    return Text("\n").join(lines)
