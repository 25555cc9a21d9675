"""All rules, in the order of their codes, and how they are chosen."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from memfit.errors import InputError
from memfit.lint.rule import Rule
from memfit.lint.rules import ALL

RULES: tuple[type[Rule], ...] = tuple(sorted(ALL, key=lambda rule: rule.code))
CODES = tuple(rule.code for rule in RULES)


def rule_called(wanted: str) -> type[Rule]:
    """The rule with that code or name.

    Raises:
        InputError: If there is none.
    """
    for rule in RULES:
        if wanted.upper() == rule.code or wanted.lower() == rule.name:
            return rule
    raise InputError(_unknown("rule", wanted, [*CODES, *(rule.name for rule in RULES)]))


def codes_of(wanted: Iterable[str], where: str) -> frozenset[str]:
    """The codes that codes, beginnings of codes such as `MF0`, and names stand for.

    Raises:
        InputError: If one of them stands for nothing.
    """
    found: set[str] = set()
    for each in wanted:
        text = each.strip()
        if text.upper() == "ALL":
            found.update(CODES)
            continue
        # MF by itself is every rule, M is a slip.
        codes = [code for code in CODES if len(text) > 1 and code.startswith(text.upper())]
        codes = codes or [rule.code for rule in RULES if rule.name == text.lower()]
        if not codes:
            raise InputError(_unknown(f"{where}: rule", text, [*CODES, *(rule.name for rule in RULES)]))
        found.update(codes)
    return frozenset(found)


def chosen(selected: frozenset[str] | None, ignored: frozenset[str]) -> tuple[type[Rule], ...]:
    """The rules to run."""
    return tuple(rule for rule in RULES if (selected is None or rule.code in selected) and rule.code not in ignored)


def _unknown(what: str, received: str, known: Sequence[str]) -> str:
    upper = {each.upper(): each for each in known}
    near = get_close_matches(received.upper(), upper, n=1, cutoff=0.5)
    hint = f"Did you mean {upper[near[0]]}? " if near else ""
    return f"{what} {received!r} does not exist. {hint}`memfit lint --rules` lists them all."
