"""What only an import can tell, asked in child processes: a broken package spoils those alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

#: Seconds after which a child is given up on; a cold torch on a slow disk takes most of a minute.
PATIENCE: Final = 120.0

#: Name -> what the child runs; it ends by printing JSON.
PROBES: Final[Mapping[str, str]] = {
    "cv2": """
import json, cv2, numpy, scipy.linalg
from threadpoolctl import threadpool_info
print(json.dumps({"cv2": cv2.__version__, "pools": [
    {"api": p["user_api"], "library": p.get("internal_api"), "version": p.get("version"),
     "threads": p["num_threads"]} for p in threadpool_info()]}))
""",
    "torch": """
import json, torch
devices = [{"name": f"cuda:{n}", "what": torch.cuda.get_device_name(n),
            "bytes": torch.cuda.get_device_properties(n).total_memory}
           for n in range(torch.cuda.device_count() if torch.cuda.is_available() else 0)]
if torch.backends.mps.is_available():
    devices.append({"name": "mps", "what": "Apple GPU", "bytes": None})
print(json.dumps({"devices": devices, "threads": torch.get_num_threads(),
                  "cuda": torch.version.cuda}))
""",
    "torchvision": """
import json, torch, torchvision
torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
print(json.dumps({}))
""",
    "onnxruntime": """
import json, onnxruntime
print(json.dumps({"providers": onnxruntime.get_available_providers()}))
""",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a child said.

    Attributes:
        found: what it printed; empty where it failed.
        error: the last line of its complaint, ``None`` where all went well.
    """

    found: Mapping[str, Any]
    error: str | None


def ask(names: list[str], probes: Mapping[str, str] = PROBES) -> dict[str, Answer]:
    """Run probes, all at once, and return what they say."""
    children = {
        name: subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", "-c", probes[name]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="backslashreplace",
        )
        for name in names
    }
    return {name: _answer(child) for name, child in children.items()}


def _answer(child: subprocess.Popen[str]) -> Answer:
    try:
        said, complaint = child.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return Answer({}, f"no answer within {PATIENCE:g} s")
    lines = complaint.strip().splitlines()
    if child.returncode < 0:
        return Answer({}, f"the process was killed by signal {-child.returncode}")
    if child.returncode:
        return Answer({}, lines[-1].strip()[:300] if lines else f"exit code {child.returncode}")
    try:
        found: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return Answer({}, "it said nothing that can be read")
    return Answer(found, None)
