"""`# noqa` and `# noqa: MF012`: lines on which nothing, or one thing, is found."""

import io
import re
import tokenize

from memfit.lint.source import Source

_NOQA = re.compile(r"#\s*noqa(?P<codes>\s*:\s*[A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*)?", re.IGNORECASE)
_CODE = re.compile(r"[A-Z]+[0-9]+", re.IGNORECASE)


def allowed(source: Source) -> dict[int, frozenset[str] | None]:
    """What is allowed on which line: some codes, or everything (`None`)."""
    if "noqa" not in source.text.lower():
        return {}
    found: dict[int, frozenset[str] | None] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(source.text, newline="").readline):
            if token.type == tokenize.COMMENT and (match := _NOQA.search(token.string)) is not None:
                codes = match["codes"]
                found[token.start[0]] = None if codes is None else frozenset(_CODE.findall(codes.upper()))
    except (tokenize.TokenError, SyntaxError):
        return found
    return found


def is_allowed(code: str, lines: range, marks: dict[int, frozenset[str] | None]) -> bool:
    """Whether a finding on these lines is wanted: a mark on its first or its last line counts."""
    for line in (lines[0], lines[-1]):
        codes = marks.get(line, frozenset())
        if codes is None or code in codes:
            return True
    return False
