"""An `Estimate` for people: a compact table in the terminal, a small page in a notebook."""

from html import escape
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from memfit.report.tables import as_text
from memfit.units import format_size

if TYPE_CHECKING:
    from memfit.estimation.estimate import Estimate
    from memfit.estimation.measure import Measurement
    from memfit.estimation.phases import Peak

_LARGEST = 5
_LAYERS = 6
_BAR = 24
_HTML_BAR = "background:#4878a8;height:.8em"


def render_estimate(estimate: "Estimate", *, phases: bool = False) -> RenderableType:
    """The page for the terminal.

    Args:
        estimate: What to show.
        phases: Also show evaluate and predict, which have to be traced first.
    """
    fits = estimate.limited(estimate.gpu.default_limit) is not None
    verdict = Text("fits", style="bold green") if fits else Text("does not fit", style="bold red")
    limit = format_size(estimate.gpu.default_limit)
    head = Text.assemble(
        (estimate.model_name, "bold"), f", batch {estimate.batch_size}, on {estimate.gpu.name}: ", verdict,
        f" ({limit} for TensorFlow)",
    )  # fmt: skip
    regime = Text(f"{estimate.regime}: {estimate.regime_reason}; {estimate.method}", style="dim")
    parts: list[RenderableType] = [head, regime, Text(), _peaks(estimate, phases), Text(), _kinds(estimate), Text()]
    parts += [_layers(estimate), Text(), _largest(estimate)]
    if estimate.unknown_ops:
        names = ", ".join(estimate.unknown_ops[:3])
        parts.append(
            Text(f"\n{len(estimate.unknown_ops)} operations of unknown size widen the band: {names}", "yellow")
        )
    return Group(*parts)


def estimate_text(estimate: "Estimate") -> str:
    """The same as plain text, for `print(estimate)`."""
    return as_text(render_estimate(estimate))


def estimate_html(estimate: "Estimate") -> str:
    """A small self-contained piece of HTML for notebooks."""
    peak = estimate.steady_peak
    rows = "".join(
        f"<tr><td>{escape(kind.replace('_', ' '))}</td><td style='text-align:right'>{format_size(size)}</td>"
        f"<td><div style='{_HTML_BAR};width:{160 * size / max(1, peak.value):.0f}px'></div></td></tr>"
        for kind, size in estimate.breakdown().items()
        if size
    )
    fits = estimate.limited(estimate.gpu.default_limit) is not None
    return (
        f"<div><b>{escape(estimate.model_name)}</b>, batch {estimate.batch_size}, on {escape(estimate.gpu.name)}: "
        f"<b>{format_size(peak.value)}</b> ({format_size(peak.low)} to {format_size(peak.high)}), "
        f"{'fits' if fits else 'does not fit'}<br><small>{escape(estimate.regime)}: "
        f"{escape(estimate.regime_reason)}; {escape(estimate.method)}</small>"
        f"<table>{rows}</table></div>"
    )


def _peaks(estimate: "Estimate", phases: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("predicted")
    for column in ("bytes", "from", "to"):
        table.add_column(column, justify="right")
    table.add_column("", style="dim")
    _add_peak(table, "steady peak", estimate.steady_peak, "in use while training")
    _add_peak(table, "first step", estimate.first_step_peak, "kernels are tried out")
    _add_peak(table, "reserved", estimate.reserved, "from the card, under growth")
    _add_peak(table, "process", estimate.process, "as nvidia-smi shows it")
    if phases:
        for phase in ("evaluate", "predict"):
            _add_peak(table, phase, estimate.phases[phase], "its steady peak")
    return table


def _add_peak(table: Table, name: str, peak: "Peak | None", meaning: str) -> None:
    if peak is None:
        table.add_row(name, "unknown", "", "", meaning)
    else:
        table.add_row(name, format_size(peak.value), format_size(peak.low), format_size(peak.high), meaning)


def _kinds(estimate: "Estimate") -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("at the peak")
    table.add_column("bytes", justify="right")
    table.add_column("share", justify="right")
    table.add_column("")
    total = max(1, estimate.steady_peak.value)
    for kind, size in estimate.breakdown().items():
        bar = Text("█" * round(_BAR * size / total), style="blue")
        table.add_row(kind.replace("_", " "), format_size(size), f"{100 * size / total:.0f} %", bar)
    return table


def _layers(estimate: "Estimate") -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("largest layers")
    table.add_column("bytes", justify="right")
    for layer, size in list(estimate.composition.by_layer().items())[:_LAYERS]:
        table.add_row(Text(layer), format_size(size))
    return table


def _largest(estimate: "Estimate") -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("largest tensors")
    table.add_column("bytes", justify="right")
    table.add_column("shape")
    table.add_column("layer", overflow="fold")
    for tensor in estimate.composition.live[:_LARGEST]:
        shape = "" if tensor.shape is None else f"{tensor.dtype}[{','.join(map(str, tensor.shape))}]"
        where = tensor.layer or tensor.op
        table.add_row(
            Text(tensor.op_type or tensor.op), format_size(tensor.bytes), Text(shape),
            Text(f"{where} ({tensor.source})" if tensor.source else where),
        )  # fmt: skip
    return table


def render_cards(estimate: "Estimate") -> Table:
    """The largest batch on each card of the catalog."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("\ncard")
    table.add_column("TensorFlow\ngets", justify="right")
    table.add_column("largest\nbatch", justify="right")
    for gpu, batch in estimate.gpus():
        table.add_row(gpu.name, format_size(gpu.default_limit), str(batch) if batch else "none")
    return table


def render_measurement(estimate: "Estimate", measurement: "Measurement") -> Table:
    """Predicted and measured side by side."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(f"\n{measurement.device} ({measurement.device_name})")
    for column in ("\npredicted", "\nmeasured", "\ndifference"):
        table.add_column(column, justify="right")
    rows = [
        ("steady peak", estimate.steady_peak, measurement.steady_peak),
        ("first step", estimate.first_step_peak, measurement.first_step_peak),
        ("evaluate", estimate.phases["evaluate"], measurement.evaluate_peak),
        ("predict", estimate.phases["predict"], measurement.predict_peak),
    ]
    for name, predicted, measured in rows:
        known = predicted is not None and measured
        difference = (
            f"{100 * (predicted.value / measured - 1):+.1f} %" if known and predicted and measured else "unknown"
        )
        table.add_row(name, format_size(predicted.value if predicted else None), format_size(measured), difference)
    return table
