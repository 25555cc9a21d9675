"""Telling XLA what autotuning would have chosen on the card.

XLA can load the results of earlier autotuning from a file (`--xla_gpu_load_autotune_results_from`). Filling that file
from the workspace model makes the compiler itself schedule and lay out the step with those workspaces, which moves
more than their sum: ResNet50 at batch 32 needs 4 % more with them, because it is scheduled in another order.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from memfit.estimation.xla.convolution import from_key
from memfit.estimation.xla.workspace import Offered, offered_kernels, workspace
from memfit.hardware.catalog import GPU

# The log lines that name what would be timed: `autotuner.cc` announces how many, `autotuner_util.cc` gives each.
LOG_MODULES = "autotuner=5,autotuner_util=5"
_ANNOUNCED = re.compile(r"Finding configs for (\d+) unique instructions")
_MISSED = re.compile(r"cache miss: key = <key model='([^']*)', hlo='(.*?)', version=(\d+)>", re.DOTALL)
_RESULTS_VERSION = 3

_DOT = re.compile(
    r"= \w+\[([\d,]*)\]\S* dot\(\w+\[([\d,]*)\]\S* \S+, \w+\[[\d,]*\]\S* \S+\).*?lhs_contracting_dims=\{(\d+)\}"
)
# A sum this long into an output too small to occupy the card is split by cuBLAS, which takes its whole workspace for
# that (VGG16's first dense layer on an H200: 25,088 long, 16 x 4,096).
_LONG_CONTRACTION, _OUTPUT_TILE = 8192, 128 * 128


@dataclass(frozen=True)
class Candidate:
    """Something XLA would time on the card, under the key of its cache."""

    device: str
    hlo: str
    version: int


def announced(log: str) -> int | None:
    """How many instructions XLA is about to look up, once it has said so."""
    match = _ANNOUNCED.search(log)
    return int(match[1]) if match else None


def candidates(log: str) -> tuple[Candidate, ...]:
    """What XLA looked up in vain, from its log."""
    return tuple(Candidate(device, hlo, int(version)) for device, hlo, version in _MISSED.findall(log))


def offered_for(wanted: Sequence[Candidate], gpu: GPU) -> Offered:
    """The kernels cuDNN offers for the convolutions among them."""
    return offered_kernels([conv for candidate in wanted if (conv := from_key(candidate.hlo))], gpu)


def results_text(wanted: Sequence[Candidate], multiprocessors: int, offered: Offered) -> str:
    """The `AutotuneResults` to load, in protobuf's text format; what the model says nothing of is left out."""
    entries = [f"version: {_RESULTS_VERSION}"]
    for candidate in wanted:
        choice = _choice(candidate.hlo, multiprocessors, offered)
        if choice:
            entries.append(
                f"results {{ device: {_quoted(candidate.device)} hlo: {_quoted(candidate.hlo)} "
                f"result {{ {choice} }} version: {candidate.version} }}"
            )
    return "\n".join(entries) + "\n"


def _choice(hlo: str, multiprocessors: int, offered: Offered) -> str | None:
    convolution = from_key(hlo)
    if convolution is not None:
        size = workspace(convolution, multiprocessors, offered.get(convolution.problem, ())).likely
        return f"algorithm {{ algo_id: 1 workspace_size {{ value: {size} }} }}"
    return "gemm { algorithm: -1 }" if _is_split_by_cublas(hlo, multiprocessors) else None


def _is_split_by_cublas(hlo: str, multiprocessors: int) -> bool:
    match = _DOT.search(hlo)
    if match is None:
        return False
    output, left = (tuple(int(each) for each in match[group].split(",") if each) for group in (1, 2))
    contraction = left[int(match[3])]
    return contraction >= _LONG_CONTRACTION and math.prod(output) < multiprocessors * _OUTPUT_TILE // 2


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
