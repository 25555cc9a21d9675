"""The GPU catalog in the terminal."""

from collections.abc import Sequence

from rich.table import Table

from memfit.hardware.catalog import GPU
from memfit.units import format_size


def render_gpus(gpus: Sequence[GPU]) -> Table:
    """One line per GPU; what is not known is said to be unknown."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("GPU", no_wrap=True)
    for column in ("memory", "TensorFlow\ngets", "cc", "GB/s", "TFLOP/s\nfp32", "TFLOP/s\ntensor"):
        table.add_column(column, justify="right", no_wrap=True)
    for gpu in gpus:
        capability = gpu.compute_capability
        table.add_row(
            gpu.name,
            format_size(gpu.memory),
            format_size(gpu.default_limit),
            "unknown" if capability is None else f"{capability[0]}.{capability[1]}",
            _rate(gpu.bandwidth, 1e9),
            _rate(gpu.fp32_flops, 1e12),
            "none" if gpu.fp32_flops and not gpu.tensor_flops else _rate(gpu.tensor_flops, 1e12),
        )
    return table


def _rate(value: float | None, unit: float) -> str:
    return "unknown" if value is None else f"{value / unit:.4g}"
