import pytest

from memfit.data.listing import list_folder, split_indices
from memfit.errors import InputError


def folder(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.touch()
    return root


def test_folders_are_classes_in_the_order_of_their_names(tmp_path):
    listing = list_folder(
        folder(tmp_path, "dog/b.png", "dog/deep/a.JPG", "cat/x.jpeg", ".git/y.jpg", "cat/.hidden.jpg")
    )
    assert listing.class_names == ("cat", "dog")
    assert listing.labels == (0, 1, 1)
    assert [path.rpartition("/")[2] for path in listing.paths] == ["x.jpeg", "b.png", "a.JPG"]
    assert (listing.ignored, listing.notes) == ((), ())


def test_what_is_no_picture_is_left_out_with_a_reason(tmp_path):
    listing = list_folder(folder(tmp_path, "cat/x.jpg", "dog/y.jpg", "cat/notes.txt", "dog/scan.tiff"))
    assert [each.reason for each in listing.ignored] == [
        "not a picture by its name",
        "TensorFlow cannot decode .tiff files",
    ]


def test_a_single_class_an_empty_one_and_pictures_without_one_are_said(tmp_path):
    assert "single class, 'cat'" in list_folder(folder(tmp_path / "one", "cat/x.jpg")).notes[0]
    notes = list_folder(folder(tmp_path / "two", "cat/x.jpg", "dog/y.jpg", "empty/", "z.jpg")).notes
    assert "no pictures in the folders of empty" in notes[0]
    assert "1 pictures directly in the folder" in notes[1]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ((), "no pictures in"),
        (("cat/notes.txt",), r"cannot be used: .*notes\.txt"),
        (("a.jpg", "b.jpg"), r"holds 2 pictures but no folders.*memfit\.data\.images"),
    ],
)
def test_a_folder_without_pictures_in_folders_is_refused(tmp_path, names, said):
    with pytest.raises(InputError, match=said):
        list_folder(folder(tmp_path, *names))


def test_a_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist; expected a folder"):
        list_folder(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file"):
        list_folder(tmp_path / "file")


def test_the_split_depends_on_the_seed_alone():
    train, held_out = split_indices(100, 0.2, 7)
    assert (len(train), len(held_out)) == (80, 20)
    assert sorted(train + held_out) == list(range(100))
    assert split_indices(100, 0.2, 7) == (train, held_out)
    assert split_indices(100, 0.2, 8)[1] != held_out
    assert split_indices(5, 0.0, 7) == ([0, 1, 2, 3, 4], [])


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 1.5, 0.01, 0.999])
def test_a_split_that_leaves_nothing_is_refused(fraction):
    with pytest.raises(InputError, match="validation_split"):
        split_indices(10, fraction, 0)
