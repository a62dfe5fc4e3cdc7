"""Audits in the runs of experiment trackers, with the real libraries, offline."""

import pytest

import visleak
from visleak.errors import UsageError
from visleak.integrations.tracking import log_to_mlflow, log_to_wandb, rates


@pytest.fixture(scope="module")
def result(natural):
    """One of two test images leaks."""
    leaking, clean = (natural[name][:96, :96] for name in ("astronaut", "coffee"))
    return visleak.audit([leaking, clean], [leaking], within=False)


def test_rates_are_those_of_the_audit(result):
    found = rates(result)
    assert found["leaks/test/exact"] == 0.5
    assert found["leaks/test/near_or_exact_low"] < 0.5 < found["leaks/test/near_or_exact_high"]


def test_a_run_of_mlflow_has_rates_and_report(result, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(tmp_path.as_uri())
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
