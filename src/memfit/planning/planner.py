"""`memfit.plan`: a model, a budget, and the fastest change that fits it."""

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

from memfit.errors import InputError
from memfit.estimation.estimate import Estimate, estimate, find_device
from memfit.estimation.graph import NO_LIMIT
from memfit.estimation.measure import CrashError, Measurement, OutOfMemoryError, measure
from memfit.estimation.phases import Peak
from memfit.estimation.regime import Jit
from memfit.estimation.source import cpu
from memfit.estimation.workspace import cpu_workspace
from memfit.hardware.catalog import GPU
from memfit.planning.applied import applied, check
from memfit.planning.plan import Plan
from memfit.planning.prediction import Prediction
from memfit.planning.reasons import contributions, rejected
from memfit.planning.search import Base, Candidate, Search
from memfit.planning.sweep import Sweep, SweepPoint
from memfit.techniques import workspace
from memfit.techniques.layer_graph import LayerGraph, is_graph, layer_graph
from memfit.techniques.micro_batch import passes
from memfit.techniques.optimizer_state import costs
from memfit.techniques.registry import technique
from memfit.techniques.remat_placement import RANGE, by_bytes
from memfit.techniques.remat_step import CalledStep
from memfit.techniques.technique import GRADES, Grade
from memfit.techniques.together import fingerprint
from memfit.trace.batch import batch_spec
from memfit.trace.function import TraceError
from memfit.trace.garbage import no_garbage_collected
from memfit.trace.step import Step, variable_bytes
from memfit.trace.tracer import trace_step
from memfit.units import MIB, Size, parse_size
from memfit.verification.samples import ROWS, batch_of, synthesized
from memfit.verification.verify import PROVEN, verified

Verify = Literal["trace", "measure", "none"]

# A band wider than this is no reason to leave more of the budget unused.
_MOST_MARGIN = 0.1
# How often a plan may turn out not to fit when its step is traced, before one is tried that is simulated to need far
# less, and then the smallest there is, which can be several times as slow.
_ATTEMPTS = 3
_FAR_BELOW = 0.7
# A traced step that was simulated to fit may be this much above; so may the allocator's holes under a limit.
_TIGHTER = 0.97
_VERIFIED: dict[Verify, Literal["traced", "measured"] | None] = {"trace": "traced", "measure": "measured", "none": None}
_ABOVE_THE_PEAK = (1.0, 1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0)
_HALF_NATIVE = (8, 0)
_SEGMENT_COUNTS = range(2, 13)
# What is tried of a model that is no graph of layers, as in recovery.
_WHOLE_MODEL_SEGMENTS = (4, 8, 16)
# Cost less than runs differ by (benchmarks/results/techniques_h200.json); a quarter of it made a U-Net 20 % slower.
_SCRATCH = "1GiB"
_SMALLER_OPTIMIZERS = ("lion", "sgd")


def plan(
    model: Any,
    batch_size: int,
    budget: Size,
    *,
    numerics: Grade = "exact",
    gpu: GPU | Size | None = None,
    jit: Jit = "auto",
    data: Any | None = None,
    verify: Verify = "trace",
) -> Plan:
    """Find the fastest change with which training fits a budget. Nothing is run.

    Args:
        model: A compiled Keras model; with `data` it need not be built.
        batch_size: The batch size, which stays what it is.
        budget: The memory TensorFlow may use, meant literally: training under this limit
            (`memfit.devices.configure(limit=...)`) must not run out.
        numerics: How exact it has to be: "exact" is the same result to rounding, "close" allows mixed precision and
            slices that batch normalisation sees alone, "any" another optimizer.
        gpu: The card, as for `memfit.estimate`.
        jit: What `compile(jit_compile=...)` will be given on the target.
        data: An example batch, as for `memfit.estimate`.
        verify: "trace" the planned step, also "measure" it on the device that is there, or "none".

    Returns:
        The plan, for `memfit.fit`. Print it; where nothing fits, `plan.feasible` is false and it says what would.

    Raises:
        InputError: If the model is not ready, or an argument cannot be used.

    Example:
        ```python
        plan = memfit.plan(model, batch_size=64, budget="8GiB", gpu="RTX 3070")
        memfit.fit(model, x, y, batch_size=64, plan=plan)
        ```
    """
    return Planner(model, batch_size, gpu=gpu, jit=jit, data=data).plan(budget, numerics=numerics, verify=verify)


class Planner:
    """Plans for several budgets of one model, which is traced once.

    Args:
        model: A built, compiled Keras model.
        batch_size: The batch size.
        gpu: The card, as for `memfit.estimate`.
        jit: What `compile(jit_compile=...)` will be given on the target.
        data: An example batch, as for `memfit.estimate`.
        resident: Bytes of data that lie on the device all the time.
        prove: Whether to run exact plans on a few samples, to see that they are; otherwise that is left to `fit`.

    Raises:
        InputError: If the model is not ready, or an argument cannot be used.

    Example:
        ```python
        planner = memfit.Planner(model, batch_size=64, gpu="RTX 3070")
        plans = [planner.plan(budget) for budget in ("8GiB", "6GiB", "4GiB")]
        print(planner.sweep())
        ```
    """

    def __init__(
        self,
        model: Any,
        batch_size: int,
        *,
        gpu: GPU | Size | None = None,
        jit: Jit = "auto",
        data: Any | None = None,
        resident: Size = 0,
        prove: bool = True,
    ) -> None:
        self.model, self.batch_size = model, batch_size
        self._prove = prove
        self.gpu = find_device(gpu)
        self._jit, self._data = jit, data
        self._resident = parse_size(resident, what="resident") if resident else 0
        self.plain: Estimate = self._estimate()
        self._refused: dict[str, str] = {}
        self._unproven: dict[str, str] = {}
        self._traced: set[Grade] = set()

    def plan(self, budget: Size, *, numerics: Grade = "exact", verify: Verify = "trace") -> Plan:
        """The fastest change that fits a budget; see `memfit.plan`."""
        limit = parse_size(budget, what="budget")
        _refuse(numerics, GRADES, "numerics")
        _refuse(verify, ("trace", "measure", "none"), "verify")
        return self._proven(limit, numerics, verify, certain=True)

    def likely(self, budget: Size, *, numerics: Grade = "exact") -> Plan:
        """The fastest change whose most likely peak fits a budget, for a run that can recover where it does not.

        On a GPU that is what `plan` finds. A CPU takes a step's operations in another order each time, so that `plan`
        leaves room for all of them.
        """
        limit = parse_size(budget, what="budget")
        _refuse(numerics, GRADES, "numerics")
        plan = self._proven(limit, numerics, "trace", certain=False)
        if plan.feasible:
            return plan
        # Then without the room that is kept free of every budget.
        plan = self._proven(math.ceil(limit / (1 - self.margin)), numerics, "trace", certain=False)
        return replace(plan, prediction=plan.prediction and replace(plan.prediction, budget=limit))

    def _proven(self, limit: int, numerics: Grade, verify: Verify, *, certain: bool) -> Plan:
        with no_garbage_collected():
            plan = self._fastest(limit, numerics, verify, certain=certain)
            while self._prove and numerics == "exact" and verify != "none" and self._disproved(plan):
                plan = self._fastest(limit, numerics, verify, certain=certain)
            return plan

    def _disproved(self, plan: Plan) -> bool:
        """Whether a plan turns out to change the result; what does so is not planned with any more."""
        claimed = [name for name in PROVEN if name in plan.techniques]
        if not claimed or (whole := verified(self.model, plan.techniques, self._samples)).exact:
            return False
        # The first that does so alone: the plan without it is verified too, and each takes as long as an estimate.
        alone = ((name, verified(self.model, {name: plan.techniques[name]}, self._samples)) for name in claimed[:-1])
        name, found = next((each for each in alone if not each[1].exact), (claimed[-1], whole))
        self._unproven[name] = f"it changes the result: {found.reason}"
        self.__dict__.pop("search", None)
        self.__dict__.pop("graph", None)
        self._traced.clear()
        return True

    @cached_property
    def _samples(self) -> Any:
        """What plans are verified on: the user's own data, where there is some."""
        try:
            return batch_of(self._data, self.batch_size)
        except InputError:
            return synthesized(batch_spec(self.model, self._data)(ROWS))

    def _fastest(self, limit: int, numerics: Grade, verify: Verify, *, certain: bool) -> Plan:
        self._trace_bases(numerics)
        # What is run under the limit need not be kept away from it.
        target = limit if verify == "measure" else self._target(limit)
        fitting = int(target * _TIGHTER)
        tried: list[Candidate] = []
        while len(tried) <= _ATTEMPTS + 1:
            if len(tried) == _ATTEMPTS:
                fitting = int(target * _FAR_BELOW)
            candidate = self.search.fastest(fitting, numerics, besides=tried)
            if candidate is None or len(tried) > _ATTEMPTS:
                candidate = self.search.smallest(numerics)
                if candidate in tried or self.search.peak(candidate) > target:
                    break
            made = self._plan_of(candidate)
            made = replace(made, workspace=made.workspace or self._workspace(limit))
            peak, needed = self._verified(made, candidate, limit, verify, certain=certain)
            measured = self._measured(made, limit) if peak is not None and verify == "measure" else None
            if peak is not None and (verify != "measure" or measured is not None):
                return self._feasible(made, candidate, limit, numerics, peak, verify, measured)
            tried.append(candidate)
            # What it was traced to need more than simulated, others will need too, if not all of it.
            fitting = int(fitting * min(_TIGHTER, math.sqrt(self.search.peak(candidate) / needed)))
        if self._recomputing_bases_added():
            return self._fastest(limit, numerics, verify, certain=certain)
        return self._infeasible(limit, numerics)

    def sweep(self, *, numerics: Grade = "exact") -> Sweep:
        """What every budget costs in time."""
        _refuse(numerics, GRADES, "numerics")
        self._trace_bases(numerics)
        search = self.search
        points = [
            SweepPoint(
                budget=self._budget_for(search.peak(each)),
                peak=search.peak(each),
                slowdown=search.slowdown(each),
                grade=each.grade,
                techniques=self._plan_of(each).techniques,
            )
            for each in search.front(numerics)
        ]
        plain = self.plain
        return Sweep(
            plain.model_name, self.batch_size, self.gpu.name, plain.regime, self._plain_peak.value, tuple(points)
        )

    @cached_property
    def margin(self) -> float:
        """The share of a budget that is kept free for what the prediction leaves open."""
        peak = self._plain_peak
        return min(_MOST_MARGIN, 1 - peak.value / peak.high)

    @cached_property
    def _plain_peak(self) -> Peak:
        return _ample(self.plain)

    def _estimate(self) -> Estimate:
        return estimate(
            self.model, self.batch_size, gpu=self.gpu, jit=self._jit, data=self._data, resident=self._resident
        )

    @cached_property
    def search(self) -> Search:
        """All ways to train that were looked at."""
        step = self.plain.step if self.plain.regime == "graph" else self._executors_step({})
        plain = Base({}, "exact", CalledStep(step, self._calls), self._plain_peak.value)
        slices = self._grade_of("micro_batch", max(1, self.batch_size // 2)) if self._can_slice(step) else None
        return Search(
            batch=self.batch_size,
            gpu=self.gpu,
            regime=self.plain.regime,
            slices=slices,
            starts=self._starts(),
            bases=[plain],
            resident=self._resident,
            passes=1 if slices is None else self._passes,
        )

    @cached_property
    def _passes(self) -> int:
        """How often a slice runs forward."""
        try:
            return passes(self.model, batch_spec(self.model, self._data)(ROWS))
        except Exception:  # noqa: BLE001 (a model may take only its own batch; then slices are refused when traced)
            return 2

    def _can_slice(self, step: Step) -> bool:
        """Whether there is a smaller batch; a step with a fixed batch inside takes no other."""
        if step.only_batch is not None:
            self._refused["micro_batch"] = "the model has a fixed batch size inside"
        return self.batch_size > 1 and step.only_batch is None

    @property
    def _takes_any_batch(self) -> bool:
        return self.search.bases[0].called.step.only_batch is None

    def _trace_bases(self, numerics: Grade) -> None:
        """Trace what a grade allows of the techniques that change a step's operations."""
        bases = self.search.bases
        for grade in GRADES[: GRADES.index(numerics) + 1]:
            if grade in self._traced:
                continue
            self._traced.add(grade)
            exact = bases[-1] if grade == "close" else bases[0]
            if grade == "exact" and self._can_fuse:
                bases[0] = replace(bases[0], superseded=True)
                bases.append(self._base({"fused_batch_norm": True}, "exact"))
            elif grade == "exact" and self._copies_patches:
                bases.append(self._base(workspace.for_cpu(), "exact"))
            elif grade == "close" and self._grade_of("precision", self._half):
                try:
                    bases.append(self._base({**exact.techniques, "precision": self._half}, "close"))
                except TraceError as error:
                    # Code of the user's own may mix types.
                    self._refused["precision"] = str(error)
            elif grade == "any":
                current = [base for base in bases if not base.superseded]
                bases += [smaller for base in current for smaller in self._with_smaller_optimizers(base)]

    def _recomputing_bases_added(self) -> bool:
        """Whether steps were traced just now that recompute a model in which no segments can be placed.

        Each takes as long as an estimate, so that they are traced only where nothing else fits.
        """
        bases = self.search.bases
        if self.graph is not None or any("remat" in base.techniques for base in bases):
            return False
        free = workspace.for_cpu() if self._copies_patches else {}
        before = len(bases)
        for count in _WHOLE_MODEL_SEGMENTS:
            if self._grade_of("remat", count) == "exact":
                with suppress(TraceError):
                    bases.append(self._base({**free, "remat": count}, "exact"))
        return len(bases) > before

    def _base(self, techniques: Mapping[str, Any], grade: Grade) -> Base:
        with self._as_on_target(Plan(**techniques)):
            planned = self._estimate()
            peak = _ample(planned).value
            step = planned.step if self.plain.regime == "graph" else None
        return Base(techniques, grade, CalledStep(step or self._executors_step(techniques), self._calls), peak)

    def _executors_step(self, techniques: Mapping[str, Any]) -> Step:
        """What the executor would run where XLA compiles; what XLA keeps is nearest to it with fused normalisation."""
        fused = {"fused_batch_norm": True} if self._grade_of("fused_batch_norm", True) else {}
        with applied(self.model, Plan(**{**techniques, **fused, "jit": False})):
            return trace_step(self.model, "train", gpu=self.gpu, data=self._data, batch_size=self.batch_size)

    def _with_smaller_optimizers(self, base: Base) -> Iterator[Base]:
        own = variable_bytes(base.called.step.variables, "optimizer")
        for cost in costs(self.model):
            if cost.name in _SMALLER_OPTIMIZERS and cost.state_bytes < own and self._grade_of("optimizer", cost.name):
                techniques = {**base.techniques, "optimizer": cost.name}
                yield replace(base, techniques=techniques, grade="any", saved=own - cost.state_bytes)

    @property
    def _can_fuse(self) -> bool:
        """Fused normalisation pays where the executor runs on a GPU; a CPU's takes more, and XLA fuses by itself."""
        on_gpu = self.plain.step.device == "GPU" if self.plain.regime == "graph" else False
        return on_gpu and self._grade_of("fused_batch_norm", True) is not None

    @property
    def _copies_patches(self) -> bool:
        """Whether gradients of convolutions take scratch memory on the CPU that other kernels do not."""
        step = self.search.bases[0].called.step
        taken = (cpu_workspace(step, at, self.batch_size) for at in range(len(step.ops)))
        return step.device == "CPU" and bool(workspace.for_cpu()) and any(each > MIB for each in taken)

    @property
    def _half(self) -> str:
        """What the card computes fast: bfloat16 needs no loss scaling, but an Ampere."""
        capability = self.gpu.compute_capability
        return "mixed_float16" if capability and capability < _HALF_NATIVE else "mixed_bfloat16"

    @cached_property
    def graph(self) -> LayerGraph | None:
        """The model's layers, whose names segments are made of; `None` if it is no graph of layers."""
        if not is_graph(self.model):
            self._refused["remat"] = (
                f"{type(self.model).__name__} is not a graph of layers, in which segments can be placed; only "
                f"remat={', '.join(map(str, _WHOLE_MODEL_SEGMENTS))} are tried"
            )
            return None
        if self._grade_of("remat", 2) is None:
            return None
        return layer_graph(self.model)

    @property
    def _calls(self) -> tuple[str, ...]:
        return tuple(call.name for call in self.graph.calls) if self.graph else ()

    def _starts(self) -> list[tuple[tuple[int, int], ...]] | None:
        """What `remat=N` would recompute, and what people do by hand: a checkpoint every so many layers."""
        if self.graph is None:
            return None
        count = len(self.graph.calls)
        found = [by_bytes(self.graph, segments) for segments in _SEGMENT_COUNTS if segments <= count]
        every = {max(2, round(factor * math.sqrt(count))) for factor in (0.5, 1.0, 2.0)}
        even = [tuple(pairwise(range(0, count, step))) for step in sorted(every)]
        return [*(tuple((part.start, part.stop) for part in each) for each in found), *even]

    def _grade_of(self, name: str, value: Any) -> Grade | None:
        """How exact a technique is for this model; `None`, and why, if it cannot carry it."""
        if name in self._unproven:
            self._refused[name] = self._unproven[name]
            return None
        try:
            return technique(name).check(self.model, value).grade
        except InputError as error:
            self._refused[name] = str(error)
            return None

    def _plan_of(self, candidate: Candidate) -> Plan:
        segments = {"remat": self._named(candidate.segments)} if candidate.segments else {}
        techniques = {**self.search.bases[candidate.base].techniques, **segments}
        return Plan(micro_batch=candidate.micro_batch, **techniques, model=fingerprint(self.model))

    def _workspace(self, limit: int) -> str | None:
        """The cap on convolutions' scratch where choosing their kernels might take more than there is."""
        step = self.search.bases[0].called.step
        convolves = step.device == "GPU" and any(op.type.startswith("Conv") for op in step.ops)
        return _SCRATCH if convolves and self.plain.first_step_peak.high > limit else None

    def _named(self, segments: tuple[tuple[int, int], ...]) -> tuple[str, ...]:
        calls = self.graph.calls if self.graph else ()
        ends = [(calls[start].name, calls[stop - 1].name) for start, stop in segments]
        return tuple(first if first == last else f"{first}{RANGE}{last}" for first, last in ends)

    def _as_on_target(self, made: Plan) -> AbstractContextManager[None]:
        """A plan applied as it will be where the step runs; a machine without a GPU would not compile it."""
        return applied(self.model, replace(made, jit=self.plain.regime == "xla"))

    def _verified(
        self, made: Plan, candidate: Candidate, limit: int, verify: Verify, *, certain: bool
    ) -> tuple[Peak | None, int]:
        """The peak of the planned step when it is really traced (`None` if it does not fit), and what it needs."""
        if verify == "none":
            simulated = self.search.peak(candidate)
            return Peak(simulated, simulated, int(simulated / (1 - self.margin))), simulated
        with self._as_on_target(made):
            planned = self.plain if candidate == self.search.plain else self._estimate()
            ample = _ample(planned)
            if verify == "measure":
                return planned.limited(limit), ample.value
            # A GPU's runs keep near the middle replay; a CPU takes any of its orders.
            every_order = certain and self.gpu is cpu()
            peak = self._under(planned, limit, every_order=every_order)
            return peak, self._target(ample.high) if every_order else ample.value

    def _under(self, planned: Estimate, limit: int, *, every_order: bool) -> Peak | None:
        """The peak of a planned step under a budget; `None` if it does not fit, in any order or in the likely one."""
        found = planned.limited(self._target(limit))
        return None if found is None or (every_order and found.high > limit) else found

    def _least_budget(self, planned: Estimate) -> int:
        """The smallest budget that a step was found to run under: near its peak holes between tensors matter."""
        peak = _ample(planned).value
        budgets = [self._budget_for(int(peak * factor)) for factor in _ABOVE_THE_PEAK]
        every_order = self.gpu is cpu()
        fitting = (each for each in budgets if self._under(planned, each, every_order=every_order) is not None)
        least = next(fitting, budgets[-1])
        # A little more may have holes in other places.
        return math.ceil(least / _TIGHTER)

    def _measured(self, made: Plan, limit: int) -> int | None:
        """The peak of a run under the limit; `None` if it does not come through."""
        try:
            measured: Measurement = measure(
                self.model,
                self.batch_size,
                jit=self.plain.regime == "xla",
                data=self._data,
                limit=limit,
                inside=("memfit.planning.applied:applied_from", made.to_dict()),
            )
        except (OutOfMemoryError, CrashError):
            return None
        return measured.steady_peak

    def _feasible(
        self,
        made: Plan,
        candidate: Candidate,
        limit: int,
        numerics: Grade,
        peak: Peak,
        verify: Verify,
        measured: int | None,
    ) -> Plan:
        search = self.search
        prediction = Prediction(
            feasible=True,
            peak=replace(peak, high=min(limit, peak.high)),
            slowdown=search.slowdown(candidate),
            grade=candidate.grade,
            parts=tuple(contributions(search, candidate, made, check(self.model, made))),
            rejected=tuple(rejected(search, candidate, self._target(limit), numerics, self._refused)),
            smallest_budgets={numerics: self._budget_for(search.peak(search.smallest(numerics)))},
            verified=_VERIFIED[verify],
            measured_peak=measured,
            **self._common(limit, numerics),
        )
        return replace(made, prediction=prediction)

    def _infeasible(self, limit: int, numerics: Grade) -> Plan:
        self._trace_bases("any")
        search, target = self.search, self._target(limit)
        smallest = {grade: search.smallest(grade) for grade in GRADES}
        budgets = {grade: self._budget_for(search.peak(each)) for grade, each in smallest.items()}
        # What was asked for is said for certain.
        with self._as_on_target(self._plan_of(smallest[numerics])):
            least = self._least_budget(self._estimate())
        budgets[numerics] = min(max(budgets[numerics], least), self._least_budget(self.plain))
        prediction = Prediction(
            feasible=False,
            rejected=tuple(rejected(search, None, target, numerics, self._refused)),
            smallest_budgets=budgets,
            largest_batch=search.largest_batch(target, numerics) if self._takes_any_batch else None,
            **self._common(limit, numerics),
        )
        return Plan(model=fingerprint(self.model), prediction=prediction)

    def _common(self, limit: int, numerics: Grade) -> dict[str, Any]:
        return {
            "model_name": self.plain.model_name,
            "batch_size": self.batch_size,
            "budget": limit,
            "numerics": numerics,
            "gpu": self.gpu.name,
            "regime": self.plain.regime,
            "plain_peak": self._plain_peak,
            "margin": self.margin,
        }

    def _target(self, limit: int) -> int:
        """What of a budget the prediction may fill."""
        return int(limit * (1 - self.margin))

    def _budget_for(self, peak: int) -> int:
        return math.ceil(peak / _TIGHTER / (1 - self.margin))


def _ample(predicted: Estimate) -> Peak:
    """The peak under a limit that is never reached."""
    return predicted.limited(NO_LIMIT) or predicted.steady_peak


def _refuse(value: object, allowed: tuple[str, ...], what: str) -> None:
    if value not in allowed:
        raise InputError(f"{what}={value!r} is not one of {', '.join(map(repr, allowed))}.")
