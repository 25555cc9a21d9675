"""`memfit lint`: memory mistakes in training scripts, found before they run."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from memfit.errors import InputError
from memfit.lint.configuration import Configuration, find_configuration
from memfit.lint.engine import LintResult, Mending
from memfit.lint.engine import lint as lint_files
from memfit.lint.files import found_in
from memfit.lint.registry import RULES, codes_of, rule_called
from memfit.report.console import print_json, stderr, stdout
from memfit.report.lint_github import github_annotations
from memfit.report.lint_text import render_findings, render_rules

Codes = list[str] | None


def lint(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Python files, notebooks, or folders of them.", metavar="PATHS...")
    ] = None,
    select: Annotated[Codes, typer.Option(help="Only these rules: MF012, MF0, a name; with commas.")] = None,
    ignore: Annotated[Codes, typer.Option(help="Not these rules.")] = None,
    output: Annotated[
        Literal["text", "json", "github"], typer.Option("--format", help="How to show findings.")
    ] = "text",
    fix: Annotated[bool, typer.Option("--fix", help="Mend what can be mended without changing results.")] = False,
    unsafe_fixes: Annotated[
        bool, typer.Option("--unsafe-fixes", help="With --fix: mend also where results may change.")
    ] = False,
    explain: Annotated[str | None, typer.Option(help="Show the page of a rule.", metavar="RULE")] = None,
    rules: Annotated[bool, typer.Option("--rules", help="List all rules.")] = False,
    no_config: Annotated[bool, typer.Option("--no-config", help="Leave pyproject.toml alone.")] = False,
) -> None:
    """Find mistakes that cost memory in training scripts and notebooks, without running them.

    Exit code 0: nothing found; 1: findings; 2: wrong input, or a file that could not be read.
    """
    if explain is not None:
        stdout().print(rule_called(explain).page(), markup=False, soft_wrap=True)
        return
    if rules:
        stdout().print(render_rules(RULES), soft_wrap=True)
        return
    if not paths:
        raise InputError("there is nothing to lint. Name files or folders, such as `memfit lint train.py notebooks/`.")
    if unsafe_fixes and not fix:
        raise InputError("--unsafe-fixes says which fixes to make, and --fix that they are made. Add --fix.")
    configuration = _configured(paths, select, ignore, no_config=no_config)
    files = found_in(paths, configuration.exclude, configuration.root)
    mending: Mending = "unsafe" if unsafe_fixes else "safe" if fix else "none"
    with stderr().status(f"reading {len(files)} files"):
        result = lint_files(files, configuration, mending=mending)
    _show(result, output)
    raise typer.Exit(result.exit_code)


def _configured(paths: list[Path], select: Codes, ignore: Codes, *, no_config: bool) -> Configuration:
    """What pyproject.toml says, and on top of it what the command line says."""
    configuration = Configuration(root=Path.cwd()) if no_config else find_configuration(paths[0])
    if select:
        configuration = replace(configuration, select=codes_of(_split(select), "--select"))
    if ignore:
        ignored = configuration.ignore | codes_of(_split(ignore), "--ignore")
        configuration = replace(configuration, ignore=ignored)
    return configuration


def _split(values: list[str]) -> list[str]:
    return [each for value in values for each in value.split(",") if each.strip()]


def _show(result: LintResult, output: str) -> None:
    if output == "json":
        print_json(result.to_dict())
    elif output == "github":
        if lines := github_annotations(result):
            stdout().print(lines, markup=False, soft_wrap=True)
    else:
        stdout().print(render_findings(result), soft_wrap=True)
