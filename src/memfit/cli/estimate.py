"""`memfit estimate`: what a model's step will take."""

from typing import TYPE_CHECKING, Annotated

import typer

from memfit import framework
from memfit.cli.target import JIT, Batch, Card, InputShape, JitChoice, Loss, Optimizer, Policy, Target, parse_shape
from memfit.hardware.nvml import read_nvml
from memfit.report.console import print_json, stderr, stdout

if TYPE_CHECKING:
    from memfit.estimation.estimate import Estimate
    from memfit.estimation.measure import Measurement


def estimate(
    target: Target,
    batch: Batch,
    input_shape: InputShape = None,
    optimizer: Optimizer = None,
    loss: Loss = None,
    policy: Policy = None,
    jit: JitChoice = "auto",
    gpu: Card = None,
    cards: Annotated[bool, typer.Option("--gpus", help="Also show the largest batch on every card.")] = False,
    measured: Annotated[bool, typer.Option("--measure", help="Also run it here and compare.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predict the peak memory of a model's training step, without running it and without a GPU.

    Exit code 0: it fits the card; 1: it does not.
    """
    framework.import_for_predicting()
    from memfit.estimation.estimate import estimate_phases
    from memfit.report.estimate import render_cards, render_estimate, render_measurement
    from memfit.trace.target import load_target

    shape = parse_shape(input_shape)
    with stderr().status(f"building {target}"):
        model = load_target(target, input_shape=shape, optimizer=optimizer, loss=loss, policy=policy)
    with stderr().status("tracing one step of each phase"):
        result = estimate_phases(model, batch_size=batch, gpu=gpu, jit=JIT[jit])
        fits = result.fits(result.gpu.default_limit)
        phases = result.phases
    measurement, here = _measured_here(model, batch, result) if measured else (None, result)
    if as_json:
        answer = result.to_dict()
        if measurement is not None:
            answer["measured"] = measurement.to_dict()
            answer["predicted_here_bytes"] = here.steady_peak.value
        if cards:
            answer["largest_batch"] = {card.name: size for card, size in result.gpus()}
        print_json(answer)
    else:
        out = stdout()
        out.print(render_estimate(result, phases=bool(phases)))
        if measurement is not None:
            out.print(render_measurement(here, measurement))
        if cards:
            out.print(render_cards(result))
    raise typer.Exit(0 if fits else 1)


def _measured_here(model: object, batch: int, result: "Estimate") -> "tuple[Measurement, Estimate]":
    """Run the model on the device that is there, and predict for that device."""
    from memfit.estimation.estimate import estimate as predict
    from memfit.estimation.measure import measure

    with stderr().status("measuring: a few steps in a child process"):
        measurement = measure(model, batch, jit=result.regime == "xla" if read_nvml().gpus else False)
    if measurement.device.startswith("GPU"):
        return measurement, predict(model, batch_size=batch, gpu=measurement.device_name, jit=measurement.jit)
    return measurement, predict(model, batch_size=batch, gpu="cpu", jit=False)
