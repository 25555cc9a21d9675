"""A `Quantized` file for people."""

from html import escape
from typing import TYPE_CHECKING

from memfit.units import format_size

if TYPE_CHECKING:
    from memfit.compress.quantize import Quantized


def quantized_text(quantized: "Quantized") -> str:
    """A few lines, for `print(quantized)`."""
    return "\n".join(_lines(quantized))


def quantized_html(quantized: "Quantized") -> str:
    """The same for notebooks."""
    head, *rest = _lines(quantized)
    return f"<div><b>{escape(head)}</b><ul>{''.join(f'<li>{escape(line)}</li>' for line in rest)}</ul></div>"


def _lines(quantized: "Quantized") -> list[str]:
    share = quantized.file_bytes / max(1, quantized.float32_file_bytes)
    lines = [
        f"{quantized.path.name}: {quantized.scheme}",
        f"file: {format_size(quantized.file_bytes)}, {share:.0%} of float32 "
        f"({format_size(quantized.float32_file_bytes)})",
        f"activations of one sample: {format_size(quantized.activation_peak)} "
        f"(float32: {format_size(quantized.float32_activation_peak)})",
    ]
    if quantized.accuracy is not None and quantized.float32_accuracy is not None:
        points = 100 * (quantized.accuracy - quantized.float32_accuracy)
        lines.append(
            f"accuracy: {quantized.accuracy:.1%}, {points:+.1f} points (float32: {quantized.float32_accuracy:.1%})"
        )
    lines.append("training takes as much memory as before: only where the file runs it saves any")
    return lines
