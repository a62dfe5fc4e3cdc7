"""Groups, splits, filters, logs and tags with the real libraries, on planted duplicates."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import visleak
from visleak.errors import UsageError
from visleak.integrations import divided, duplicate_groups
from visleak.integrations.tracking import log_to_mlflow, log_to_wandb, rates


@pytest.fixture(scope="module")
def images(natural):
    """Eight images; 4 to 7 are mirrored, brighter, identical and identical copies of 0 to 3."""
    names = ("astronaut", "chelsea", "coffee", "rocket")
    first = [np.ascontiguousarray(natural[name][:96, :96]) for name in names]
    brighter = np.clip(first[1].astype(int) + 12, 0, 255).astype(np.uint8)
    return [*first, np.ascontiguousarray(first[0][:, ::-1]), brighter, first[2], first[3]]


def test_duplicates_share_a_group(images):
    assert duplicate_groups(images).tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert duplicate_groups(images, grade="exact").tolist() == [0, 1, 2, 3, 4, 5, 2, 3]
    # known groups connect further images
    known = duplicate_groups(images, groups=[*"aabcdefg"])
    assert known.tolist() == [0, 0, 1, 2, 0, 0, 1, 2]
    with pytest.raises(visleak.VisleakError, match="must have 8 values"):
        duplicate_groups(images, groups=[1])


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=40),
    st.lists(st.floats(0.1, 1.0), min_size=1, max_size=4),
    st.integers(0, 3),
)
def test_parts_cover_all_images_and_divide_no_group(groups, shares, seed):
    numbers = np.array(groups)
    parts = divided(numbers, shares, seed=seed)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(groups)))
    owners = [set(numbers[part].tolist()) for part in parts]
    assert sum(map(len, owners)) == len(set(groups))


def test_folds_of_scikit_learn(images):
    model_selection = pytest.importorskip("sklearn.model_selection")
    dummy = pytest.importorskip("sklearn.dummy")
    from visleak.integrations.sklearn import LeakFreeGroupKFold

    folds = LeakFreeGroupKFold(images, n_splits=4)
    rows, labels = np.zeros((8, 1)), np.array([0, 1] * 4)
    for train, test in folds.split(rows, labels):
        assert {row % 4 for row in train.tolist()}.isdisjoint(row % 4 for row in test.tolist())
    scores = model_selection.cross_val_score(dummy.DummyClassifier(), rows, labels, cv=folds)
    assert len(scores) == 4


def test_subsets_of_torch(images):
    data = pytest.importorskip("torch.utils.data")
    from visleak.integrations.torch import leak_free_split

    class Photos(data.Dataset):
        def __len__(self):
            return len(images)

        def __getitem__(self, row):
            return Image.fromarray(images[row]), row % 4

    train, test = leak_free_split(Photos(), (0.75, 0.25), seed=1)
    assert (len(train), len(test)) == (6, 2)
    assert {label for _, label in train}.isdisjoint(label for _, label in test)


def test_splits_of_hugging_face(images):
    datasets = pytest.importorskip("datasets")
    from visleak.integrations.datasets import filter_leaks

    def split(rows):
        content = {"image": [Image.fromarray(images[row]) for row in rows], "row": rows}
        features = datasets.Features({"image": datasets.Image(), "row": datasets.Value("int64")})
        return datasets.Dataset.from_dict(content, features=features)

    whole = datasets.DatasetDict({"train": split([0, 1, 2]), "test": split([4, 3, 5, 7])})
    fair = filter_leaks(whole)
    assert (fair["train"]["row"], fair["test"]["row"]) == ([0, 1, 2], [3, 7])
    assert filter_leaks(whole["test"], whole["train"], grade="exact")["row"] == [4, 3, 5, 7]
    with pytest.raises(visleak.VisleakError, match="needs train"):
        filter_leaks(whole["test"])


@pytest.fixture
def result(images, tmp_path):
    """An audit of a mirrored copy, an exact one, and an image that does not leak."""
    for side, rows in (("train", [0]), ("test", [4, 0, 2])):
        (tmp_path / side).mkdir()
        for number, row in enumerate(rows):
            Image.fromarray(images[row]).save(tmp_path / side / f"{number}.png")
    return visleak.audit(tmp_path / "test", tmp_path / "train", within=False)


def test_rates_are_those_of_the_audit(result):
    found = rates(result)
    assert found["leaks/test/exact"] == 1 / 3
    assert found["leaks/test/near_or_exact_low"] < 2 / 3 < found["leaks/test/near_or_exact_high"]


def test_a_run_of_mlflow_has_rates_and_report(result, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    mlflow.set_experiment("leaks")
    with mlflow.start_run() as run:
        log_to_mlflow(result)
    stored = mlflow.get_run(run.info.run_id)
    assert stored.data.metrics == pytest.approx(rates(result))
    assert stored.data.tags["leaks.headline"] == result.headline
    assert list(tmp_path.rglob("visleak/report.html"))


def test_a_run_of_wandb_has_rates_and_report(result, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    for name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    with pytest.raises(UsageError, match=r"wandb\.init"):
        log_to_wandb(result)
    with wandb.init(mode="offline", dir=str(tmp_path), project="test") as run:
        log_to_wandb(result)
        kept = dict(run.summary)
    assert {name: kept[name] for name in rates(result)} == rates(result)
    assert kept["leaks/headline"] == result.headline
    assert kept["leaks/report"]["_type"] == "html-file"


def test_a_view_of_fiftyone(result, tmp_path, monkeypatch):
    monkeypatch.setenv("FIFTYONE_DATABASE_DIR", str(tmp_path / "database"))
    monkeypatch.setenv("FIFTYONE_DO_NOT_TRACK", "true")
    fiftyone = pytest.importorskip("fiftyone")
    from visleak.integrations.fiftyone import tag_leaks

    dataset = fiftyone.Dataset.from_images_dir(str(tmp_path / "test"))
    view = tag_leaks(dataset, result)
    names = sorted(Path(path).name for path in view.values("filepath"))
    assert names == ["0.png", "1.png"]
    assert sorted(view.values("leak.label")) == ["exact", "near"]
    assert {Path(path) for path in view.values("leak.reference")} == {tmp_path / "train" / "0.png"}
    # a stricter one replaces it
    assert len(tag_leaks(dataset, result, grade="exact")) == 1
    assert len(dataset.load_saved_view("leaks")) == len(dataset.match_tags("leak")) == 1
    dataset.delete_samples(dataset.values("id"))
    with pytest.raises(UsageError, match="none of the 3 test images"):
        tag_leaks(dataset, result)
    dataset.delete()
