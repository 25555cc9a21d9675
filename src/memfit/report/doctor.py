"""A `Diagnosis` in the terminal."""

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memfit.hardware.doctor import Diagnosis, Finding
from memfit.hardware.nvml import GpuReading
from memfit.units import format_size

_STYLES = {"broken": "bold red", "warning": "yellow", "note": "cyan"}


def render_diagnosis(diagnosis: Diagnosis) -> RenderableType:
    """The whole page: facts first, then findings with the line to paste."""
    parts: list[RenderableType] = [_facts(diagnosis)]
    if diagnosis.nvml.gpus:
        parts += [Text("\nGPUs", style="bold"), _gpus(diagnosis.nvml.gpus)]
    if diagnosis.environment:
        parts += [Text("\nEnvironment", style="bold"), _environment(diagnosis)]
    parts.append(Text("\nFindings", style="bold"))
    if diagnosis.findings:
        parts += [_finding(finding) for finding in diagnosis.findings]
    else:
        parts.append(Text("  none: this machine is ready", style="green"))
    return Group(*parts)


def _facts(diagnosis: Diagnosis) -> Table:
    found, nvml, host = diagnosis.installation, diagnosis.nvml, diagnosis.host
    table = _grid()
    build = {True: f"CUDA {found.cuda_version} build", False: "CPU build", None: "build unknown"}[found.cuda_build]
    if found.tensorflow is None:
        table.add_row("TensorFlow", "not installed")
    else:
        table.add_row("TensorFlow", f"{found.tensorflow} ({found.distribution}, {build})")
    table.add_row("Keras", f"{found.keras or 'not installed'} on {escape(found.keras_backend)}")
    if nvml.driver:
        cuda = "unknown" if nvml.cuda_driver is None else f"{nvml.cuda_driver[0]}.{nvml.cuda_driver[1]}"
        table.add_row("Driver", f"{nvml.driver}, CUDA up to {cuda}")
    elif nvml.driver_present:
        table.add_row("GPU", f"an NVIDIA driver is loaded; {escape(nvml.unavailable or 'no GPU answers')}")
    else:
        table.add_row("GPU", "no NVIDIA driver")
    if diagnosis.probe is not None and not diagnosis.probe.error:
        table.add_row("TensorFlow sees", ", ".join(map(escape, diagnosis.probe.gpus)) or "no GPU")
    value = {True: "True (XLA)", False: "False (graph)", None: "unknown"}[diagnosis.auto_jit.value]
    table.add_row('jit_compile="auto"', f"{value}: {escape(diagnosis.auto_jit.reason)}")
    limit = "none" if host.cgroup_limit is None else format_size(host.cgroup_limit)
    free = f"{format_size(host.available)} available of {format_size(host.total)}, cgroup limit {limit}"
    table.add_row("Host RAM", free)
    return table


def _gpus(gpus: tuple[GpuReading, ...]) -> Table:
    table = _grid()
    for gpu in gpus:
        used = f"{format_size(gpu.used)} of {format_size(gpu.total)} in use"
        table.add_row(f"{gpu.index}  {escape(gpu.name)}", used)
        if gpu.processes is None:
            table.add_row("", "processes unknown")
        for process in gpu.processes or ():
            table.add_row("", f"{format_size(process.used)}  pid {process.pid}  {escape(process.name or 'unknown')}")
    return table


def _environment(diagnosis: Diagnosis) -> Table:
    table = _grid()
    for effect in diagnosis.environment:
        style = "" if effect.valid else "yellow"
        table.add_row(Text(f"{effect.name}={effect.value}"), Text(effect.effect, style=style))
    return table


def _finding(finding: Finding) -> RenderableType:
    head = Text.assemble("  ", (finding.severity, _STYLES[finding.severity]), f"  {finding.title}")
    lines: list[RenderableType] = [head, Padding(Text(finding.why, style="dim"), (0, 0, 0, 4))]
    if finding.fix:
        lines.append(Padding(Text(f"$ {finding.fix}", style="green"), (0, 0, 0, 4)))
    return Group(*lines)


def _grid() -> Table:
    table = Table.grid(padding=(0, 2), pad_edge=True)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    return table
