"""How each model of a script is trained: with which plan, and so that it survives running out of memory."""

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from memfit.errors import InputError, MemfitError
from memfit.estimation.estimate import Estimate, default_gpu
from memfit.observe.machine import DeviceReader
from memfit.planning.applied import applied, check, fingerprint
from memfit.planning.plan import Plan
from memfit.planning.planner import Planner
from memfit.report.console import stderr
from memfit.report.plan_words import plan_sentence
from memfit.script.folder import Progress
from memfit.script.settings import AUTO, NONE, Settings
from memfit.script.words import say
from memfit.techniques.technique import Grade
from memfit.train.recovery import Recovered, Recovering, refuse_unrecoverable
from memfit.train.smaller import smaller_plans
from memfit.units import format_size, size_literal

# Plans of these may stay on a model between two fits, which saves tracing it again: nothing that a script can do with
# the model meanwhile, such as saving it, comes out differently.
_UNSEEN = {"micro_batch", "remat", "workspace"}

OnRecovery = Callable[[Recovered], None]


@dataclass(frozen=True)
class Way:
    """How a model is trained."""

    plan: Plan
    """What is applied at first."""
    smaller: bool
    """Whether there is a smaller way."""
    estimate: Any | None = None
    """What was predicted for the model as it is, where it was."""
    recovering: Recovering | None = None

    @property
    def techniques(self) -> dict[str, Any]:
        """What is applied now."""
        return (self.plan if self.recovering is None else self.recovering.plan).techniques

    @property
    def nothing_smaller(self) -> bool:
        """Whether every smaller way has been tried, or there is none."""
        return not self.smaller or (self.recovering is not None and self.recovering.exhausted)


class Ways:
    """Finds each model's way at its first `fit`, and remembers it.

    Args:
        settings: What was asked for.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._device = DeviceReader()
        self._saved = None if settings.plan in (AUTO, NONE) else Plan.load(settings.plan)
        self._known: dict[tuple[str, int | None], Way] = {}
        # The model itself holds what it recovers with; holding that here as well would keep every model alive.
        self._kept: weakref.WeakKeyDictionary[Any, tuple[Way, weakref.ref[Recovering]]] = weakref.WeakKeyDictionary()

    def enter(
        self,
        model: Any,
        stack: ExitStack,
        notify: OnRecovery,
        *,
        batch: int | None,
        spec: Any,
        died: Progress | None,
    ) -> Way:
        """Apply a model's way until the stack is closed, or for longer where nobody can tell.

        Args:
            model: A built, compiled Keras model.
            stack: Lasts as long as the `fit`.
            notify: Is told when memory ran out and training went on.
            batch: The batch size, where it is known.
            spec: What a batch looks like.
            died: How far the process came that died in this `fit`, and with which plan.
        """
        before = self._kept.get(model)
        kept = None if before is None else before[1]()
        if before is not None and kept is not None and kept.in_place:
            kept.notify = notify
            return replace(before[0], recovering=kept)
        way = self._found(model, batch, spec, died)
        if not self._settings.recover or not _recoverable(model):
            stack.enter_context(applied(model, way.plan))
            return way
        recovering = Recovering(model, way.plan, numerics=self._settings.numerics, notify=notify)
        way = replace(way, recovering=recovering)
        if way.techniques.keys() <= _UNSEEN:
            recovering.__enter__()
            self._kept[model] = replace(way, recovering=None), weakref.ref(recovering)
        else:
            stack.enter_context(recovering)
        return way

    def remember(self, model: Any, batch: int | None, techniques: dict[str, Any]) -> None:
        """Begin with these the next time that a model like this one is trained."""
        key = fingerprint(model), batch
        before = self._known.get(key)
        self._known[key] = Way(Plan(**techniques), smaller=True, estimate=before and before.estimate)

    def _found(self, model: Any, batch: int | None, spec: Any, died: Progress | None) -> Way:
        mark = fingerprint(model)
        if died is not None and died.model == mark and batch is not None:
            before = Plan(**died.techniques)
            plan = next(smaller_plans(model, before, batch, self._settings.numerics), before)
            return Way(plan, smaller=self._has_smaller(model, plan, batch))
        if (mark, batch) not in self._known:
            plan, estimate = self._planned(model, batch, spec)
            self._known[mark, batch] = Way(plan, self._has_smaller(model, plan, batch), estimate)
        return self._known[mark, batch]

    def _has_smaller(self, model: Any, plan: Plan, batch: int | None) -> bool:
        if batch is None or not _recoverable(model):
            return False
        return next(smaller_plans(model, plan, batch, self._settings.numerics), None) is not None

    def _planned(self, model: Any, batch: int | None, spec: Any) -> tuple[Plan, Any | None]:
        if self._saved is not None:
            return self._saved_plan(model), None
        if self._settings.plan != AUTO:
            return Plan(), None
        name = f"{model.name}, batch {batch}"
        budget = self._settings.device_limit or self._card_limit()
        if budget is None:
            say("--plan auto needs to know how much memory there is, and there is no GPU: add --budget 8GiB")
            return Plan(), None
        if batch is None:
            say(f"{model.name} is not planned: its batch size cannot be told from its data")
            return Plan(), None
        try:
            with stderr().status(f"memfit: looking for the fastest way to train {name} in {format_size(budget)}"):
                planner = Planner(
                    model,
                    batch,
                    gpu=None if self._device.name.startswith("GPU") else "cpu",
                    jit=bool(model.jit_compile),
                    data=_example(model, spec),
                    resident=self._resident(model),
                )
                plan = planner.plan(budget, numerics=self._settings.numerics)
        except MemfitError as error:
            say(f"{name} is not planned: {error}")
            return Plan(), None
        except Exception as error:  # noqa: BLE001 (a plan is help, and the script has to run without)
            say(f"{name} is not planned: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
            return Plan(), None
        say(f"{name}: {_plain_sentence(planner.plain, budget)}")
        say(plan_sentence(plan.to_dict()))
        if not plan.feasible:
            say(_what_would_fit(plan, numerics=self._settings.numerics))
            return Plan(), planner.plain
        return plan, planner.plain

    def _saved_plan(self, model: Any) -> Plan:
        plan = self._saved or Plan()
        try:
            check(model, plan)
        except MemfitError as error:
            say(f"{model.name} is trained as it is: {error}")
            return Plan()
        say(f"{model.name}: {plan_sentence(plan.to_dict())}")
        return plan

    def _resident(self, model: Any) -> int:
        """What the device holds besides the model: data, other models."""
        in_use, _ = self._device.read()
        own = [*model.variables, *getattr(model.optimizer, "variables", ()), *model.metrics_variables]
        sizes = {id(each): int(each.value.dtype.size) * int(each.value.shape.num_elements()) for each in own}
        return max(0, (in_use or 0) - sum(sizes.values()))

    def _card_limit(self) -> int | None:
        return default_gpu().default_limit if self._device.name.startswith("GPU") else None


def _recoverable(model: Any) -> bool:
    try:
        refuse_unrecoverable(model)
    except InputError:
        return False
    return True


def _example(model: Any, spec: Any) -> Any | None:
    """What a batch looks like, for models that do not say it themselves."""
    structure = getattr(getattr(model, "_functional", None) or model, "_inputs_struct", None)
    return None if structure is not None else tuple(each for each in spec if each is not None)


def _plain_sentence(plain: Estimate, budget: int) -> str:
    """What training takes as it is."""
    peak = plain.steady_peak
    kind, most = max(plain.breakdown().items(), key=lambda each: each[1])
    fits = "more than" if peak.high > budget else "within"
    share = f"{100 * most / sum(plain.breakdown().values()):.0f} % of it {kind}"
    return (
        f"as it is, a step takes {format_size(peak.value)} by prediction, {share}; that is {fits} {format_size(budget)}"
    )


def _what_would_fit(plan: Plan, *, numerics: Grade) -> str:
    prediction = plan.prediction
    smallest = prediction.smallest_budgets.get(numerics) if prediction is not None else None
    needed = f"; {size_literal(smallest)} would do" if smallest else ""
    return f"it is trained as it was written, and in smaller ways when memory runs out{needed}"
