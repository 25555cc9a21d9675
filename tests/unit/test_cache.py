import pytest

from memfit.cache import cache_directory, cached


@pytest.fixture(autouse=True)
def directory(monkeypatch, tmp_path):
    monkeypatch.setenv("MEMFIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Maker:
    def __init__(self, payload=b"result"):
        self.calls = 0
        self.payload = payload

    def __call__(self):
        self.calls += 1
        return self.payload


def test_what_was_made_is_not_made_again():
    make = Maker()
    assert [cached("graph", ("a", b"b"), make) for _ in range(3)] == [b"result"] * 3
    assert make.calls == 1


def test_another_key_is_another_result():
    make = Maker()
    for key in (("ab", "c"), ("a", "bc"), ("abc",)):
        cached("graph", key, make)
    assert make.calls == 3


@pytest.mark.parametrize("damage", [lambda data: data[:-3], lambda data: b"x" + data[1:], lambda _: b""])
def test_a_broken_file_is_made_again(directory, damage):
    make = Maker()
    cached("graph", ("a",), make)
    (file,) = directory.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert cached("graph", ("a",), make) == b"result"
    assert make.calls == 2


def test_a_directory_that_cannot_be_made_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MEMFIT_CACHE", str(tmp_path / "file" / "cache"))
    assert cached("graph", ("a",), Maker()) == b"result"


def test_it_can_be_switched_off(monkeypatch, directory):
    monkeypatch.setenv("MEMFIT_CACHE", "off")
    assert cache_directory() is None
    assert cached("graph", ("a",), Maker()) == b"result"
    assert not directory.exists()


def test_the_oldest_go_when_there_is_no_room(monkeypatch, directory):
    monkeypatch.setattr("memfit.cache._MOST_BYTES", 150)
    for number in range(5):
        cached("graph", (str(number),), Maker(bytes([number])))
    assert 1 <= len(list(directory.iterdir())) < 5
