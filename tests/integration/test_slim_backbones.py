"""`memfit.suggest_backbones`: networks that fit, with what is predicted and what is documented."""

import json

import keras
import pytest

import memfit
from memfit.errors import InputError
from memfit.slimming.backbones import _classifier, _least_bytes, documented

SETTINGS = {"batch_size": 8, "gpu": "RTX 3060", "jit": False}


def test_every_network_of_the_table_is_there_and_none_is_missing():
    classes = {name for name in dir(keras.applications) if name[0].isupper()}
    assert {each.name for each in documented()} == classes


def test_those_that_fit_come_with_their_numbers():
    found = memfit.suggest_backbones((64, 64, 3), budget="1GiB", names=["MobileNet", "VGG16"], **SETTINGS)
    assert [each.name for each in found.backbones] == ["VGG16", "MobileNet"]  # 71.3 % and 70.4 %
    assert found.backbones[1].parameters == 3_228_864
    assert found.backbones[1].peak.low <= found.backbones[1].peak.value <= 2**30
    assert "70.4%" in str(found)
    assert "MobileNet" in found._repr_html_()
    assert json.loads(json.dumps(found.to_dict()))["backbones"][1]["documented_top1"] == 0.704


def test_what_is_too_large_is_said():
    found = memfit.suggest_backbones((64, 64, 3), budget="60MiB", names=["MobileNet", "VGG19"], **SETTINGS)
    assert [each.name for each in found.backbones] == []
    assert dict(found.rejected)["VGG19"].startswith("weights and optimizer alone")
    assert "needs" in dict(found.rejected)["MobileNet"]


@pytest.mark.parametrize("name", ["EfficientNetV2B0", "MobileNetV3Small"])
def test_what_a_network_cannot_do_without_is_below_its_peak(name):
    model = _classifier(name, (64, 64, 3))
    least, peak = _least_bytes(model, 32, compiled=False), memfit.estimate(model, 32, gpu="RTX 3060", jit=False)
    assert 0.5 * peak.steady_peak.value < least < peak.steady_peak.low


def test_no_more_networks_are_predicted_than_asked_for(capsys):
    found = memfit.suggest_backbones((64, 64, 3), budget="4GiB", names=["MobileNet", "VGG16"], count=1, **SETTINGS)
    assert [each.name for each in found.backbones] == ["VGG16"]
    assert not found.rejected
    assert "MobileNet" not in capsys.readouterr().err


def test_a_shape_a_network_does_not_take_is_said_in_its_own_words():
    found = memfit.suggest_backbones((16, 16, 3), budget="8GiB", names=["VGG16"], **SETTINGS)
    assert "16" in dict(found.rejected)["VGG16"]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"input_shape": (64, 64)}, "height, width and channels"),
        ({"names": ["ResNet18"]}, "ResNet18 is no network"),
        ({"count": 0}, "count=0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"budget": "much"}, "budget 'much'"),
    ],
)
def test_what_cannot_be_asked(settings, says):
    with pytest.raises(InputError, match=says):
        memfit.suggest_backbones(**{"input_shape": (64, 64, 3), "budget": "1GiB", **SETTINGS, **settings})
