"""Make Keras/TensorFlow training fit in the GPU memory there is.

Importing memfit is cheap: nothing here imports TensorFlow, the first call that needs it does.
"""

from pkgutil import resolve_name
from typing import TYPE_CHECKING

from memfit.errors import MemfitError

if TYPE_CHECKING:
    from memfit import compress, data, layers
    from memfit.estimation.estimate import Estimate, estimate
    from memfit.estimation.measure import Measurement, measure
    from memfit.hardware import devices
    from memfit.hardware.catalog import GPU, find_gpu
    from memfit.observe.oom import explain_oom
    from memfit.observe.recorder import Recorder
    from memfit.planning.plan import Plan
    from memfit.planning.planner import Planner, plan
    from memfit.planning.verify import verify
    from memfit.slimming.backbones import suggest_backbones
    from memfit.slimming.compare import Comparison, compare
    from memfit.slimming.slim import slim
    from memfit.techniques.optimizer_state import costs as optimizer_costs
    from memfit.train.applied import applied
    from memfit.train.fit import fit
    from memfit.verification.verify import Verification

__version__ = "0.1.0.dev0"
__all__ = [
    "GPU",
    "Comparison",
    "Estimate",
    "Measurement",
    "MemfitError",
    "Plan",
    "Planner",
    "Recorder",
    "Verification",
    "__version__",
    "applied",
    "compare",
    "compress",
    "data",
    "devices",
    "estimate",
    "explain_oom",
    "find_gpu",
    "fit",
    "layers",
    "measure",
    "optimizer_costs",
    "plan",
    "slim",
    "suggest_backbones",
    "verify",
]

# Public name → where it lives; imported when the name is first used.
_LAZY = {
    "Comparison": "memfit.slimming.compare:Comparison",
    "Estimate": "memfit.estimation.estimate:Estimate",
    "GPU": "memfit.hardware.catalog:GPU",
    "Measurement": "memfit.estimation.measure:Measurement",
    "Plan": "memfit.planning.plan:Plan",
    "Planner": "memfit.planning.planner:Planner",
    "Verification": "memfit.verification.verify:Verification",
    "Recorder": "memfit.observe.recorder:Recorder",
    "applied": "memfit.train.applied:applied",
    "data": "memfit.data",
    "compare": "memfit.slimming.compare:compare",
    "compress": "memfit.compress",
    "devices": "memfit.hardware.devices",
    "estimate": "memfit.estimation.estimate:estimate",
    "explain_oom": "memfit.observe.oom:explain_oom",
    "find_gpu": "memfit.hardware.catalog:find_gpu",
    "fit": "memfit.train.fit:fit",
    "layers": "memfit.layers",
    "measure": "memfit.estimation.measure:measure",
    "optimizer_costs": "memfit.techniques.optimizer_state:costs",
    "plan": "memfit.planning.planner:plan",
    "slim": "memfit.slimming.slim:slim",
    "suggest_backbones": "memfit.slimming.backbones:suggest_backbones",
    "verify": "memfit.planning.verify:verify",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = resolve_name(_LAZY[name])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
