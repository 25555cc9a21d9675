"""Why a plan is what it is: what each of its techniques contributes, and what else was tried."""

from collections.abc import Iterator, Mapping

from memfit.planning.plan import Plan
from memfit.planning.prediction import Contribution, Rejected
from memfit.planning.search import Candidate, Search
from memfit.techniques.technique import GRADES, Grade, Verdict

# That a model has nothing to fuse is no news.
_ONLY_WHERE_THEY_APPLY = ("fused_batch_norm", "optimizer")


def contributions(
    search: Search, candidate: Candidate, made: Plan, verdicts: Mapping[str, Verdict]
) -> Iterator[Contribution]:
    """Each technique of a plan on top of those before it."""
    alone = search.like(candidate, segments=(), micro_batch=None)
    steps = [(name, alone) for name in search.bases[candidate.base].techniques]
    if made.workspace and "workspace" not in search.bases[candidate.base].techniques:
        steps.insert(0, ("workspace", search.plain))
    if candidate.segments:
        steps.append(("remat", search.like(candidate, segments=candidate.segments, micro_batch=None)))
    if candidate.micro_batch is not None:
        steps.append(("micro_batch", candidate))
    for name, reached in steps:
        verdict = verdicts[name]
        yield Contribution(name, verdict.why, verdict.grade, search.peak(reached), search.slowdown(reached))


def rejected(
    search: Search, chosen: Candidate | None, target: int, numerics: Grade, refused: Mapping[str, str]
) -> Iterator[Rejected]:
    """The well-known remedies one by one, and why they are not the plan.

    Args:
        search: Where the plan was found.
        chosen: What became the plan; `None` if nothing fits.
        target: The bytes that may be filled.
        numerics: How exact it had to be.
        refused: Techniques the model cannot carry, and why.
    """
    if chosen != search.plain:
        faster = chosen is not None and search.peak(search.plain) <= target
        yield _tried(search, "nothing changed", search.plain, "it fits, but is slower" if faster else "does not fit")
    # On top of what is free.
    free = next(at for at, base in enumerate(search.bases) if not base.superseded)
    alone = [each for each in search.candidates("any") if each.base == free]
    remat = [each for each in alone if each.segments and each.micro_batch is None]
    slices = [each for each in alone if not each.segments and each.micro_batch is not None]
    for name, kind in (("remat alone", remat), ("micro_batch alone", slices)):
        if not kind:
            continue
        fitting = [each for each in kind if search.roughly(each) <= target]
        best = fitting[0] if fitting else min(kind, key=search.roughly)
        if best == chosen:
            continue
        if GRADES.index(best.grade) > GRADES.index(numerics):
            why = f'is grade "{best.grade}", and numerics="{numerics}" was asked for'
        elif fitting and chosen is not None and best.seconds < chosen.seconds:
            why = "is over the budget when traced"
        elif fitting:
            why = "fits, but is slower"
        else:
            why = "does not fit even at its smallest"
        yield _tried(search, f"{name}{_value(best)}", best, why)
    for name, why in refused.items():
        if name not in _ONLY_WHERE_THEY_APPLY:
            yield Rejected(name, why)


def _tried(search: Search, what: str, candidate: Candidate, why: str) -> Rejected:
    return Rejected(what, why, search.peak(candidate), search.slowdown(candidate))


def _value(candidate: Candidate) -> str:
    if candidate.micro_batch is not None:
        return f" ({candidate.micro_batch})"
    return f" ({len(candidate.segments)} segments)"
