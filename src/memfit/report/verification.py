"""How a verification is shown."""

from typing import TYPE_CHECKING

from memfit.report.plan_words import technique_value
from memfit.report.tables import as_text, table
from memfit.verification.differences import percent
from memfit.verification.verify import Verification

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHOWN = 10


def verification_text(verification: Verification) -> str:
    """A verification as `print` shows it."""
    how = ", ".join(f"{name} {technique_value(name, value)}" for name, value in verification.techniques.items())
    found = "remembered" if verification.remembered else f"{verification.seconds:.1f} s"
    where = f"({verification.samples} samples, {found})"
    title = f"{verification.model_name} with {how or 'nothing that claims the same result'}"
    if verification.exact:
        return f"{title}: same result to rounding {where}"
    if verification.inconclusive is not None:
        return f"{title}: not verified {where}\n{verification.reason}"
    rows = [(each.name, percent(each.relative)) for each in verification.differences[:_SHOWN]]
    more = len(verification.differences) - len(rows)
    parts: list[RenderableType] = [f"{title}: another result {where}", table(("differs", "by"), rows, numbers=(1,))]
    if more:
        parts.append(f"and {more} more values")
    parts.append('Plan without it, or accept the difference with numerics="close".')
    return as_text(*parts)
