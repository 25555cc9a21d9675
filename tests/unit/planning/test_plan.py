import json

import pytest

from memfit.errors import InputError
from memfit.planning.plan import Plan


def test_a_saved_plan_is_the_same_plan(tmp_path):
    plan = Plan(micro_batch=16, remat=("conv1", "conv2"), precision="mixed_bfloat16", jit=False, model="3-abc")
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan


def test_a_plan_says_what_it_changes():
    assert Plan(micro_batch=4, jit=False).techniques == {"micro_batch": 4, "jit": False}
    assert Plan().techniques == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "not a saved plan"),
        ('{"micro_batch": 4}', "not a saved plan"),
        ('{"memfit_plan": 99}', "format 99"),
        ('{"memfit_plan": 1}', "must be names with values"),
        ('{"memfit_plan": 1, "techniques": {"magic": 1}}', "unknown techniques: magic"),
        ('{"memfit_plan": 1, "techniques": {}, "feasible": true}', "prediction is incomplete: 'plain_peak_bytes'"),
    ],
)
def test_what_is_not_a_plan_is_refused(tmp_path, text, message):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        Plan.load(path)


def test_a_plan_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        Plan.load(tmp_path / "nothing.json")


def test_the_file_says_what_it_is(tmp_path):
    Plan(remat=3).save(tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text()) == {
        "memfit_plan": 1,
        "model": None,
        "techniques": {"remat": 3},
    }
