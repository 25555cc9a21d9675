"""A plan: which techniques with which values, as data that can be written by hand, saved and loaded."""

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from memfit.errors import InputError
from memfit.planning.prediction import Prediction
from memfit.units import Size

_FORMAT = 1
_NOT_TECHNIQUES = ("model", "prediction")


@dataclass(frozen=True)
class Plan:
    """What to change so that training fits; what is `None` stays as it is.

    Example:
        ```python
        plan = Plan(micro_batch=16, remat=6, precision="mixed_bfloat16")
        plan.save("plan.json")
        memfit.fit(model, x, y, batch_size=64, plan=plan)
        ```
    """

    micro_batch: int | None = None
    """Samples worked on at a time; the batch stays the one that was asked for."""
    remat: int | tuple[str, ...] | None = None
    """A number of segments, of which all but the last are recomputed; or names of layers to recompute, where
    `"first..last"` is one segment."""
    precision: str | None = None
    """`"mixed_float16"` or `"mixed_bfloat16"`."""
    fused_batch_norm: bool | None = None
    """Whether batch normalisation uses TensorFlow's fused kernel."""
    jit: bool | None = None
    """Whether XLA compiles the step."""
    workspace: Size | None = None
    """The most scratch memory a cuDNN convolution may ask for; it also keeps XLA from trying kernels that want far
    more. It is the process's: the first convolution decides."""
    optimizer: str | None = None
    """Another optimizer, by Keras's name."""
    model: str | None = None
    """The fingerprint of the model it was made for; `None` fits every model."""
    prediction: Prediction | None = field(default=None, compare=False)
    """What `memfit.plan` predicted of it; `None` for a plan written by hand."""

    def __post_init__(self) -> None:
        if isinstance(self.remat, list):
            object.__setattr__(self, "remat", tuple(self.remat))

    @property
    def techniques(self) -> dict[str, Any]:
        """The techniques it uses and their values."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _NOT_TECHNIQUES}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def feasible(self) -> bool | None:
        """Whether it fits its budget; `None` for a plan written by hand."""
        return None if self.prediction is None else self.prediction.feasible

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in self.techniques.items()}
        predicted = {} if self.prediction is None else self.prediction.to_dict()
        return {"memfit_plan": _FORMAT, "model": self.model, "techniques": plain, **predicted}

    @classmethod
    def from_dict(cls, values: Any) -> "Plan":
        """From what `to_dict` returned.

        Raises:
            InputError: If it is something else, or has techniques this version does not know.
        """
        if not isinstance(values, dict) or "memfit_plan" not in values:
            raise InputError('this is not a saved plan: it has no "memfit_plan". Save one with plan.save(path).')
        if values["memfit_plan"] != _FORMAT:
            raise InputError(
                f"the plan has format {values['memfit_plan']!r}, this memfit reads {_FORMAT}. Make it again."
            )
        techniques = values.get("techniques")
        if not isinstance(techniques, dict):
            raise InputError(f'the plan\'s "techniques" must be names with values; got {techniques!r}.')
        known = {each.name for each in fields(cls)} - {*_NOT_TECHNIQUES}
        if unknown := sorted(techniques.keys() - known):
            names = ", ".join(sorted(known))
            raise InputError(f"the plan has unknown techniques: {', '.join(unknown)}. Known are {names}.")
        try:
            prediction = Prediction.from_dict(values) if "feasible" in values else None
        except (KeyError, TypeError) as error:
            raise InputError(f"the plan's prediction is incomplete: {error} is missing. Make it again.") from error
        return cls(**techniques, model=values.get("model"), prediction=prediction)

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "Plan":
        """Read what `save` wrote.

        Raises:
            InputError: If the file is not there or not a plan.
        """
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"the plan {str(path)!r} cannot be read: {error.strerror}.") from error
        except ValueError as error:
            raise InputError(f"the plan {str(path)!r} is not JSON: {error}.") from error
        return cls.from_dict(values)

    def __str__(self) -> str:
        # The one look to the right: printing is the reporter's work.
        from memfit.report.plan import plan_text

        return plan_text(self)

    def _repr_html_(self) -> str:
        from memfit.report.plan import plan_html

        return plan_html(self)
