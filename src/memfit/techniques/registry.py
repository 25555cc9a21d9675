"""All techniques by the name a plan calls them, in the order in which they are put onto a model."""

from pkgutil import resolve_name
from typing import cast

from memfit.techniques.technique import Technique

_MODULES = {
    "workspace": "memfit.techniques.workspace",
    "optimizer": "memfit.techniques.optimizer_state",
    "precision": "memfit.techniques.precision",
    "jit": "memfit.techniques.compile_mode",
    "fused_batch_norm": "memfit.techniques.fused_batch_norm",
    "remat": "memfit.techniques.remat",
    "micro_batch": "memfit.techniques.micro_batch",
}
NAMES = tuple(_MODULES)


def technique(name: str) -> Technique:
    """The technique of that name."""
    return cast("Technique", resolve_name(_MODULES[name]))
