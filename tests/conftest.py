"""What the tests of several rooms need."""

import importlib.util
import io
import os
import shutil
import signal
import sys
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from skimage import data
from threadpoolctl import threadpool_limits

import planted_pool
import toy_clip
import toy_word_clip

hypothesis.settings.register_profile("visleak", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("visleak")

# A shell has what it runs in the background ignore interrupts, and so do all processes begun there:
# tests that interrupt one of theirs would wait for nothing.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Many tests start Python: it takes twice as long to load the package where no bytecode is kept.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

#: Loaded as what they are, but not searched for doctests: several modules of one name collide.
collect_ignore_glob = ["conftest.py", "*/conftest.py"]

SAVEFIG = Figure.savefig

#: Natural images and textures that come with scikit-image, without a download.
NAMES = ("astronaut", "chelsea", "coffee", "rocket", "camera", "coins", "moon", "brick", "grass")


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Keep BLAS threads from fighting over the cores with other tests (100 times slower)."""
    with threadpool_limits(1):
        yield


def blank_figure(_, file, *, format, **how):
    """Write an empty figure."""
    if format == "svg":
        file.write(b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"/>')
    else:
        Image.new("L", (9, 9)).save(file, format)


@pytest.fixture(scope="session", autouse=True)
def _blank_figures():
    """Draw no figures, which takes most of the time of a small report; see `drawn_figures`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", blank_figure)
        yield


@pytest.fixture(scope="module")
def drawn_figures():
    """Draw figures as users see them: for modules of tests that look at them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", SAVEFIG)
        yield


@pytest.fixture(scope="module")
def script():
    """Load a script of the benchmarks or of the examples, whose folders are no packages."""
    with pytest.MonkeyPatch.context() as patch:

        def loaded(name, folder="benchmarks"):
            path = Path(__file__).parents[1] / folder / f"{name}.py"
            spec = importlib.util.spec_from_file_location(name, path)
            module = importlib.util.module_from_spec(spec)
            # dataclasses look their module up by name, and scripts import others beside them
            patch.setitem(sys.modules, name, module)
            patch.syspath_prepend(path.parent)
            spec.loader.exec_module(module)
            return module

        yield loaded


@pytest.fixture(scope="session")
def natural():
    """Return unrelated RGB images by name, read-only."""
    found = {}
    for name in NAMES:
        picture = getattr(data, name)()
        found[name] = picture if picture.ndim == 3 else np.repeat(picture[..., None], 3, axis=2)
        found[name].setflags(write=False)
    return found


def smooth(width=48, height=32, seed=0):
    """An image without any symmetry, that lossy formats keep well."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (4, 5, 3), dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


def encoded(image, kind="PNG", **options):
    Image.init()
    if kind not in Image.SAVE:
        pytest.skip(f"this Pillow writes no {kind}")
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


@pytest.fixture
def picture():
    return smooth


@pytest.fixture
def encode():
    return encoded


@pytest.fixture
def put(tmp_path):
    """Write an image (or bytes) below tmp_path; the ending says the format."""

    def write(name, content=None, seed=0):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            (content or smooth(seed=seed)).save(path)
        return path

    return write


@pytest.fixture(scope="session")
def planted(tmp_path_factory):
    """The folder of an audit with planted duplicates, and of a pool with planted traps."""
    root = planted_pool.plant(tmp_path_factory.mktemp("planted"))
    planted_pool.traps(root)
    planted_pool.audited(root)
    return root


@pytest.fixture(scope="session")
def clip_folder(tmp_path_factory):
    """The folder of a small CLIP with its tokenizer and processor."""
    pytest.importorskip("transformers")
    return toy_clip.make_clip(tmp_path_factory.mktemp("clips") / "clip")


@pytest.fixture(scope="session")
def word_clip(tmp_path_factory):
    """The folder of a CLIP of 16 x 16 pixels and whole words."""
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("word_clips") / "clip"
    return toy_word_clip.make_word_clip(folder, processor=True)


@pytest.fixture(scope="session")
def bare_clip(tmp_path_factory):
    """The folder of the same network without a processor's file."""
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("word_clips") / "bare"
    return toy_word_clip.make_word_clip(folder, processor=False)


@pytest.fixture(scope="module")
def chromium():
    """A browser, through Playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next((found for found in map(shutil.which, names) if found), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(names)} is on the PATH")
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()
