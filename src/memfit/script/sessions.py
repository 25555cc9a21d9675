"""How each model of a script is trained: with which plan, and so that it survives running out of memory."""

import math
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from memfit.compat.optimizers import optimizers_of
from memfit.compat.variables import bytes_besides
from memfit.errors import MemfitError
from memfit.estimation.estimate import Estimate, default_gpu
from memfit.hardware.device_reader import DeviceReader
from memfit.hardware.out_of_memory import out_of_memory
from memfit.planning.applied import check
from memfit.planning.plan import Plan
from memfit.planning.planner import Planner
from memfit.report.console import stderr
from memfit.report.plan_words import plan_sentence, techniques_line
from memfit.script.folder import Progress
from memfit.script.settings import AUTO, NONE, Settings
from memfit.script.words import say
from memfit.techniques import remat
from memfit.techniques.technique import Grade
from memfit.techniques.together import fingerprint
from memfit.train.fallbacks import smaller_plans
from memfit.train.recovered import Recovered
from memfit.train.session import Recovery, Session
from memfit.units import MIB, format_size, size_literal
from memfit.verification.samples import rows_of, spec_of
from memfit.verification.verify import verified

# Plans of these may stay on a model between two fits, which saves tracing it again: nothing that a script can do with
# the model meanwhile, such as saving it, comes out differently.
_UNSEEN = {"micro_batch", "remat", "workspace"}


# What is in use before the first batch counts as data.
_WORDS = {"input_batch": "data and other models", "optimizer_state": "optimizer state"}


@dataclass(frozen=True)
class Decision:
    """How a model is trained with batches of one size."""

    plan: Plan
    batch: int | None
    """Samples of a batch."""
    spec: Any
    """What a batch looks like."""
    has_fallback: bool
    """Whether there is something to try when memory runs out."""
    estimate: Any | None = None
    """What was predicted for the model without changes, where it was."""
    names: tuple[str, ...] = ()
    """What the plan can name in the model that it was made for."""


OnDecision = Callable[[Decision], None]
OnRecovery = Callable[[Recovered], None]


class Sessions:
    """Opens a session for each model at its first `fit`, and keeps it for the next.

    Args:
        settings: What was asked for.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._device = DeviceReader()
        self._saved = None if settings.plan in (AUTO, NONE) else Plan.load(settings.plan)
        self._decided: dict[tuple[object, ...], Decision] = {}
        # The model itself holds its session; holding that here as well would keep every model alive.
        self._kept: weakref.WeakKeyDictionary[Any, tuple[Decision, weakref.ref[Session]]] = weakref.WeakKeyDictionary()

    def open(
        self, model: Any, stack: ExitStack, notify: OnRecovery, decided: OnDecision, *, died: Progress | None
    ) -> Session:
        """Open a model's session until the stack is closed, or for longer where nobody can tell.

        Args:
            model: A compiled Keras model.
            stack: Lasts as long as the `fit`.
            notify: Is told when memory ran out and training continued.
            decided: Is told how the model is trained, when its first batch is there.
            died: How far the process came that died in this `fit`, and with which plan.
        """
        before = self._kept.get(model)
        kept = None if before is None else before[1]()
        if before is not None and kept is not None and kept.in_place:
            kept.notify = notify
            decided(before[0])
            return kept
        this: list[weakref.ref[Session]] = []

        def choose(batch: Any) -> Plan:
            decision = self._decide(model, batch, died)
            decided(decision)
            session = this[0]()
            if session is not None and decision.plan.techniques.keys() <= _UNSEEN:
                self._kept[model] = decision, this[0]
            elif session is not None:
                stack.push(session.__exit__)
            return decision.plan

        recovery = None
        if self._settings.recover:
            recovery = Recovery(notify, lambda reason: say(f"{model.name}: {reason}"), every_step=False)
        session = Session(
            model,
            Plan(),
            numerics=self._settings.numerics,
            recovery=recovery,
            choose=choose,
            step_aside=lambda reason: say(f"{model.name}: running without fallbacks: {reason}"),
        )
        this.append(weakref.ref(session))
        session.__enter__()
        return session

    def remember(self, model: Any, batch: int | None, techniques: dict[str, Any]) -> None:
        """Begin with these the next time that a model like this one is trained."""
        key = _key(model, batch)
        before = self._decided.get(key)
        if before is not None:
            names = tuple(remat.names(model))
            self._decided[key] = replace(before, plan=Plan(**techniques), has_fallback=True, names=names)

    def _decide(self, model: Any, batch: Any, died: Progress | None) -> Decision:
        spec = spec_of(batch, any_size=True)
        rows, mark = rows_of(batch), fingerprint(model)
        if died is not None and died.model == mark and rows is not None:
            before = Plan(**died.techniques)
            smaller = self._first_exact(model, before, batch)
            has_fallback = smaller is not None and self._has_fallback(model, smaller, rows)
            return Decision(smaller or before, rows, spec, has_fallback)
        key = _key(model, rows)
        decision = self._decided_before(model, batch, key)
        if decision is None:
            plan, estimate = self._planned(model, batch, rows)
            has_fallback, names = self._has_fallback(model, plan, rows), tuple(remat.names(model))
            decision = Decision(plan, rows, spec, has_fallback, estimate, names)
        self._decided[key] = decision
        return decision

    def _decided_before(self, model: Any, batch: Any, key: tuple[object, ...]) -> Decision | None:
        """What was decided for a model of the same architecture, where it holds for this one too.

        Another model has other names for its layers, and may have been compiled with another loss.
        """
        decision = self._decided.get(key)
        if decision is None:
            return None
        plan, names = decision.plan, tuple(remat.names(model))
        if len(names) != len(decision.names):
            return None
        if plan.remat is not None and names != decision.names:
            plan = replace(plan, remat=remat.renamed(plan.remat, decision.names, names))
        try:
            check(model, plan)
        except MemfitError:
            return None
        if self._settings.numerics == "exact" and not verified(model, plan.techniques, batch).exact:
            return None
        return replace(decision, plan=plan, names=names)

    def _first_exact(self, model: Any, plan: Plan, batch: Any) -> Plan | None:
        for each in smaller_plans(model, plan, rows_of(batch) or 1, self._settings.numerics):
            if self._settings.numerics != "exact":
                return each
            verification = verified(model, each.techniques, batch)
            if verification.exact:
                return each
            if verification.ran_out:
                # Not even a few samples fit, and every one of them takes TensorFlow's ten seconds to fail.
                return None
        return None

    def _has_fallback(self, model: Any, plan: Plan, rows: int | None) -> bool:
        if rows is None or not self._settings.recover:
            return False
        return next(smaller_plans(model, plan, rows, self._settings.numerics), None) is not None

    def _planned(self, model: Any, batch: Any, rows: int | None) -> tuple[Plan, Any | None]:
        if self._saved is not None:
            return self._saved_plan(model, batch), None
        if self._settings.plan != AUTO:
            return Plan(), None
        name = f"{model.name}, batch {rows}"
        budget = self._settings.device_limit or self._card_limit()
        if budget is None:
            say("--plan auto needs a memory size, and there is no GPU: add --budget 8GiB")
            return Plan(), None
        if rows is None:
            say(f"{model.name} is not planned: its data has no samples in rows")
            return Plan(), None
        try:
            with stderr().status(f"memfit: planning {name} for {format_size(budget)}"):
                planner = Planner(
                    model,
                    rows,
                    gpu=None if self._device.name.startswith("GPU") else "cpu",
                    jit=bool(model.jit_compile),
                    data=batch,
                    resident=bytes_besides(model, self._device.read()[0] or 0),
                )
                plan = planner.plan(budget, numerics=self._settings.numerics)
        except MemfitError as error:
            say(f"{name} is not planned: {error}")
            return Plan(), None
        except Exception as error:  # noqa: BLE001 (a plan is help, and the script has to run without)
            if out_of_memory(error) is not None:
                in_use = format_size(self._device.read()[0])
                say(
                    f"{name} is not planned: its weights and optimizer state do not fit in {format_size(budget)}, of "
                    f"which {in_use} are in use; try --budget {size_literal(2 * budget)}"
                )
                return Plan(), None
            say(f"{name} is not planned: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
            return Plan(), None
        say(f"{name}: {_plain_sentence(planner.plain, budget, changed=not plan.feasible or bool(plan.techniques))}")
        if plan.feasible:
            say(plan_sentence(plan.to_dict()))
            return plan, planner.plain
        on_gpu = self._device.name.startswith("GPU")
        likely = self._likely(planner, budget) if self._settings.recover and not on_gpu else None
        say(_what_would_fit(plan, numerics=self._settings.numerics, likely=likely))
        return likely or Plan(), planner.plain

    def _likely(self, planner: Planner, budget: int) -> Plan | None:
        """A plan that may fit, where none is certain to; less is tried if it does not."""
        try:
            plan = planner.likely(budget, numerics=self._settings.numerics)
        except Exception as error:  # noqa: BLE001 (a plan is help, and the script has to run without)
            if out_of_memory(error) is None and not isinstance(error, MemfitError):
                say(f"{planner.model.name}: no likely plan: {type(error).__name__}")
            return None
        return plan if plan.feasible and plan.techniques else None

    def _saved_plan(self, model: Any, batch: Any) -> Plan:
        plan = self._saved or Plan()
        try:
            check(model, plan)
        except MemfitError as error:
            say(f"{model.name}: running unmodified: {error}")
            return Plan()
        if self._settings.numerics == "exact":
            verification = verified(model, plan.techniques, batch)
            if not verification.exact:
                say(
                    f"{model.name}: running unmodified: the plan changes the result, {verification.reason}; "
                    "accept it with --numerics close"
                )
                return Plan()
        say(f"{model.name}: {plan_sentence(plan.to_dict())}")
        return plan

    def _card_limit(self) -> int | None:
        return default_gpu().default_limit if self._device.name.startswith("GPU") else None


def _key(model: Any, rows: int | None) -> tuple[object, ...]:
    """What models have in common that are trained with one plan."""
    optimizers = tuple(type(each).__qualname__ for each in optimizers_of(model))
    return fingerprint(model), rows, optimizers, bool(model.jit_compile), str(model.dtype_policy.name)


def _plain_sentence(plain: Estimate, budget: int, *, changed: bool) -> str:
    """What training takes without changes, and whether the planner found that it has to be changed."""
    peak = plain.steady_peak
    kind, most = max(plain.breakdown().items(), key=lambda each: each[1])
    fits = "more than" if changed else "within"
    if changed and peak.high <= budget:
        fits = f"with holes between tensors, {fits}"
    elif changed and peak.value <= budget:
        fits = f"it may take {format_size(peak.high)}, more than"
    share = f"{100 * most / sum(plain.breakdown().values()):.0f} % of it {_WORDS.get(kind, kind)}"
    return f"predicted peak without changes: {format_size(peak.value)}, {share}; {fits} {format_size(budget)}"


def _what_would_fit(plan: Plan, *, numerics: Grade, likely: Plan | None) -> str:
    """How training goes on with a budget that is too small, and what would be enough."""
    prediction = plan.prediction
    budget = "the budget" if prediction is None else format_size(prediction.budget)
    options = []
    if prediction is not None:
        for grade, size in prediction.smallest_budgets.items():
            enough = size_literal(math.ceil(size / MIB) * MIB)
            options.append(f"--budget {enough}" + ("" if grade == numerics else f" with --numerics {grade}"))
        if prediction.largest_batch:
            options.append(f"a batch of at most {prediction.largest_batch}")
    elif numerics == "exact":
        options = ["--numerics close"]
    hint = f"; what would fit: {', or '.join(options)}" if options else ""
    if likely is None:
        return f"No plan fits {budget}; running unmodified{hint}"
    return f"No plan is certain to fit {budget}; trying {techniques_line(likely.techniques)}, which may{hint}"
