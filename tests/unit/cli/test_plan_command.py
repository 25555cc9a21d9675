import json
import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import pytest
from typer.testing import CliRunner

from memfit import framework
from memfit.cli import app
from memfit.errors import InputError
from memfit.estimation.phases import Peak
from memfit.planning.plan import Plan
from memfit.planning.prediction import Prediction
from memfit.planning.sweep import Sweep, SweepPoint
from memfit.trace import target
from memfit.units import GIB

FITS = Prediction(
    feasible=True,
    model_name="resnet50",
    batch_size=64,
    budget=8 * GIB,
    numerics="exact",
    gpu="GeForce RTX 3070",
    regime="graph",
    plain_peak=Peak(11 * GIB, 10 * GIB, 12 * GIB),
    margin=0.05,
    peak=Peak(7 * GIB, 6 * GIB, 8 * GIB),
    slowdown=0.12,
    grade="exact",
    verified="traced",
)
NO_WAY = Prediction(False, "resnet50", 64, GIB, "exact", "GeForce RTX 3070", "graph", FITS.plain_peak, 0.05)
SWEEP = Sweep(
    "resnet50", 64, "GeForce RTX 3070", "graph", 11 * GIB, (SweepPoint(8 * GIB, 7 * GIB, 0.12, "exact", {"remat": 4}),)
)


class FakePlanner:
    """Fits from 2 GiB on, and remembers what it was asked."""

    asked: ClassVar[dict] = {}

    def __init__(self, model, batch_size, *, gpu=None, jit="auto", data=None):
        FakePlanner.asked = {"model": model.name, "batch": batch_size, "gpu": gpu, "jit": jit}

    def plan(self, budget, *, numerics="exact", verify="trace"):
        self.asked.update(budget=budget, numerics=numerics, verify=verify)
        return Plan(micro_batch=16, prediction=FITS) if budget >= 2 * GIB else Plan(prediction=NO_WAY)

    def sweep(self, *, numerics="exact"):
        self.asked.update(numerics=numerics)
        return SWEEP


@pytest.fixture
def memfit_plan(monkeypatch, tmp_path):
    """Run the command in an empty folder, with all that needs TensorFlow left out."""
    planner = ModuleType("memfit.planning.planner")
    planner.Planner = FakePlanner
    monkeypatch.setitem(sys.modules, planner.__name__, planner)
    monkeypatch.setattr(framework, "import_for_predicting", lambda: None)
    monkeypatch.setattr(target, "load_target", lambda name, **options: SimpleNamespace(name="resnet50"))
    monkeypatch.setattr(FakePlanner, "asked", {})
    monkeypatch.chdir(tmp_path)
    # Long lines would be folded to the width of a terminal that is not there.
    return lambda *options: CliRunner(env={"COLUMNS": "120"}).invoke(app, ["plan", "m.keras", "-b", "64", *options])


def test_a_plan_that_fits_is_shown_and_ends_with_0(memfit_plan):
    done = memfit_plan("--budget", "8GiB")
    assert done.exit_code == 0
    assert done.stdout.startswith("resnet50, batch 64, in 8 GiB on GeForce RTX 3070: fits, 12 % slower")
    assert "--save plan.json" in done.stdout


def test_no_plan_ends_with_1(memfit_plan):
    done = memfit_plan("--budget", "1GiB")
    assert done.exit_code == 1
    assert "does not fit" in done.stdout


def test_options_reach_the_planner(memfit_plan):
    options = "--budget 8GiB --gpu 3070 --jit on --numerics close --verify measure"
    assert memfit_plan(*options.split()).exit_code == 0
    assert FakePlanner.asked == {
        **{"model": "resnet50", "batch": 64, "gpu": "3070", "jit": True},
        **{"budget": 8 * GIB, "numerics": "close", "verify": "measure"},
    }


@pytest.mark.parametrize(("budget", "code"), [("8GiB", 0), ("1GiB", 1)])
def test_json_is_the_plan(memfit_plan, budget, code):
    done = memfit_plan("--budget", budget, "--json")
    assert done.exit_code == code
    assert Plan.from_dict(json.loads(done.stdout)).feasible is (code == 0)


def test_saving_says_what_was_written_and_what_is_next(memfit_plan, tmp_path):
    done = memfit_plan("--budget", "8GiB", "--save", "plan.json")
    assert done.exit_code == 0
    assert done.stderr.splitlines()[-2:] == [
        "Wrote plan.json",
        'memfit.fit(model, x, y, batch_size=64, plan=memfit.Plan.load("plan.json"))',
    ]
    assert Plan.load(tmp_path / "plan.json") == Plan(micro_batch=16)
    assert "--save" not in done.stdout


def test_json_and_saving_keep_to_their_own_streams(memfit_plan):
    done = memfit_plan("--budget", "8GiB", "--json", "--save", "plan.json")
    assert json.loads(done.stdout)["techniques"] == {"micro_batch": 16}


def test_a_file_is_not_overwritten_and_no_work_is_done_for_it(memfit_plan, tmp_path):
    (tmp_path / "plan.json").write_text("mine")
    done = memfit_plan("--budget", "8GiB", "--save", "plan.json")
    assert isinstance(done.exception, InputError)
    assert "--force" in str(done.exception)
    assert (tmp_path / "plan.json").read_text() == "mine"
    assert not FakePlanner.asked


def test_force_overwrites(memfit_plan, tmp_path):
    (tmp_path / "plan.json").write_text("mine")
    assert memfit_plan("--budget", "8GiB", "--save", "plan.json", "--force").exit_code == 0
    assert Plan.load(tmp_path / "plan.json").micro_batch == 16


def test_no_plan_is_not_saved(memfit_plan, tmp_path):
    done = memfit_plan("--budget", "1GiB", "--save", "plan.json")
    assert done.exit_code == 1
    assert "Did not write plan.json" in done.stderr
    assert not (tmp_path / "plan.json").exists()


def test_a_sweep_needs_no_budget(memfit_plan):
    done = memfit_plan("--sweep", "--numerics", "any")
    assert done.exit_code == 0
    assert "remat 4 segments" in done.stdout
    assert FakePlanner.asked["numerics"] == "any"


def test_a_sweep_as_json(memfit_plan):
    assert json.loads(memfit_plan("--sweep", "--json").stdout) == SWEEP.to_dict()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "--budget is missing"),
        (["--budget", "lots"], "--budget 'lots' is not a usable memory size"),
        (["--budget", "8GiB", "--input", "224x224"], "separated by commas"),
        (["--sweep", "--save", "plan.json"], "Leave one of them out"),
        (["--budget", "8GiB", "--save", "nowhere/plan.json"], "a folder that exists"),
        (["--budget", "8GiB", "--save", "."], "must be a file"),
    ],
)
def test_wrong_input_is_refused_before_any_work(memfit_plan, options, says):
    done = memfit_plan(*options)
    assert isinstance(done.exception, InputError)
    assert says in str(done.exception)
    assert not FakePlanner.asked


def test_a_missing_budget_ends_with_2_and_one_sentence():
    child = [sys.executable, "-m", "memfit", "plan", "m.keras", "--batch", "64"]
    done = subprocess.run(child, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: --budget is missing")
    assert "Traceback" not in done.stderr


def test_help_does_not_import_tensorflow():
    code = (
        "import sys; from memfit.cli import app; app(['plan', '--help'], standalone_mode=False); "
        "sys.exit(9 if {'tensorflow', 'keras', 'numpy'} & set(sys.modules) else 0)"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert "--budget" in child.stdout
