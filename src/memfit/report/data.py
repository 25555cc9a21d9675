"""What was decided about a data set, for people: short tables in the terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from memfit.data.facts import Bounds, Broken, Decision, Layout, Measured, Stage
from memfit.report.run_words import seconds_words
from memfit.report.tables import table
from memfit.units import format_size

_SHOWN = 10
_BYTES = (1,)


def render_data(facts: Layout | Bounds, skipped: Sequence[Broken] = ()) -> RenderableType:
    """The page for the terminal."""
    parts: list[RenderableType] = _layout(facts) if isinstance(facts, Layout) else _bounds(facts)
    if skipped:
        parts += [Text(), _skipped(skipped)]
    return Group(*parts)


def _layout(layout: Layout) -> list[RenderableType]:
    takes = f"takes up to {format_size(layout.ram_bytes)} of {format_size(layout.ram_budget)} of host memory"
    parts: list[RenderableType] = [Text(takes, style="bold"), Text(), _measured(layout.measured, exact=layout.exact)]
    for decision in layout.decisions:
        parts += [Text(), _decision(decision, layout)]
    for note in layout.notes:
        parts += [Text(), Text(f"note: {note}")]
    return parts


def _measured(measured: Measured, *, exact: bool) -> Table:
    how = "in full" if exact else "no larger than needed"
    rows = [
        ("on disk", format_size(measured.encoded_bytes), f"{1000 * measured.read_seconds:.2f} ms to read"),
        ("unpacked", format_size(measured.decoded_bytes), f"{1000 * measured.decode_seconds:.2f} ms to decode, {how}"),
        ("as it is fed", format_size(measured.sample_bytes), ""),
    ]
    return table((f"one sample, of {measured.sampled} looked at", "bytes", "time"), rows, numbers=_BYTES)


def _decision(decision: Decision, layout: Layout) -> Table:
    split = decision.split
    title = f"{split.name}: {split.samples:,} samples in batches of {split.batch_size}"
    rows = [(f"cache: {_cache(decision)}", _cache_bytes(decision), _why(decision, layout))]
    if better := _better(decision, layout):
        rows.append(("", "", better))
    pace = f"{decision.parallel_batches} batches in the making, {decision.parallel_decodes} pictures of each at once"
    rows.append(("on the way", format_size(decision.working_bytes), f"{pace}, {decision.prefetch} prefetched"))
    order = "shuffled anew each epoch, by number: no pictures wait in a buffer" if split.shuffled else "as listed"
    rows.append(("order", "", order))
    if split.augmented:
        rows.append(("augmentation", "", "after the cache, on the CPU, anew in each epoch"))
    return table((title, "bytes", "why"), rows, numbers=_BYTES)


def _cache(decision: Decision) -> str:
    kinds = {
        "decoded": "decoded, in memory",
        "encoded": "the files' bytes, in memory",
        "disk": "decoded, on disk",
        "none": "none",
    }
    words = kinds[decision.cache]
    if 0 < decision.cached_samples < decision.split.samples:
        words = f"{decision.cached_samples:,} of {decision.split.samples:,} {words}"
    return words


def _cache_bytes(decision: Decision) -> str:
    return format_size(decision.disk_bytes or decision.cache_bytes)


def _why(decision: Decision, layout: Layout) -> str:
    spent = (layout.measured.read_seconds + layout.measured.decode_seconds) * decision.split.samples
    epoch = f"an epoch then saves {seconds_words(decision.saved_seconds)} of {seconds_words(spent)}"
    whole = format_size(decision.whole_decoded_bytes)
    if decision.cache == "none":
        return f"there is no room for one: all decoded are {whole}"
    if decision.cache == "disk":
        return f"all decoded, {whole}, do not fit the budget; {epoch}"
    if decision.cache == "encoded":
        return f"all decoded, {whole}, do not fit; reading costs more than what fits of them; {epoch}"
    if decision.cached_samples < decision.split.samples:
        return f"as many as the budget holds of {whole}; {epoch}"
    return f"all of them fit; {epoch}"


def _better(decision: Decision, layout: Layout) -> str | None:
    if decision.cache == "decoded" and decision.cached_samples == decision.split.samples:
        return None
    budget = format_size(layout.enough_budget)
    if decision.cache == "disk":
        return f"ram_budget={budget} would hold everything in memory"
    room = format_size(decision.whole_decoded_bytes)
    return f"ram_budget={budget} would hold everything decoded; a cache_dir with {room} free would keep it on disk"


def _bounds(bounds: Bounds) -> list[RenderableType]:
    takes = f"is known to hold {format_size(bounds.ram_bytes)} of {format_size(bounds.ram_budget)} of host memory"
    rest = format_size(max(bounds.ram_budget - bounds.ram_bytes, 0))
    rows = [
        *((stage.what, format_size(stage.held_bytes), _stage(stage)) for stage in bounds.stages),
        ("one element", format_size(bounds.element_bytes), f"{bounds.prefetch} prefetched and one in use"),
        ("tf.data's autotuner", rest, "what it may take for buffers whose size it chooses"),
    ]
    return [Text(takes, style="bold"), Text(), table(("your pipeline", "bytes", ""), rows, numbers=_BYTES)]


def _stage(stage: Stage) -> str:
    return "" if stage.held_bytes is not None else "how many elements there are is not known"


def _skipped(skipped: Sequence[Broken]) -> Table:
    rows = [(each.path, each.reason) for each in skipped[:_SHOWN]]
    if len(skipped) > _SHOWN:
        rows.append((f"and {len(skipped) - _SHOWN} more", "memfit.data.skipped(dataset) lists them"))
    return table((f"left out: {len(skipped)} files", "why"), rows)
