"""Networks of torch run on one thread: both cores are busy with tests already."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _one_torch_thread():
    torch.set_num_threads(1)
