"""What a build adds: the commit, addresses of the repository, and absolute links of the README.

The repository's address is that of the environment (`VISLEAK_REPOSITORY`, set by the release
workflow) or of the remote `origin`. Without one, addresses are left out and links stay relative.
"""

import os
import re
import subprocess
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

#: Beside the package's modules; `visleak --version` reads it.
COMMIT = Path("src/visleak/commit.txt")


def git(root: str, *arguments: str) -> str:
    """Return what git prints, empty where it cannot."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def commit_of(root: str) -> str:
    """Return the commit of a checkout; nothing where root only lies inside another repository."""
    return git(root, "rev-parse", "--short=12", "HEAD") if (Path(root) / ".git").exists() else ""


def repository_of(root: str) -> str:
    """Return the web address of the repository, empty where there is none."""
    found = os.environ.get("VISLEAK_REPOSITORY") or git(root, "remote", "get-url", "origin")
    found = re.sub(r"^git@([^:]+):", r"https://\1/", found).removesuffix(".git").rstrip("/")
    return found if re.fullmatch(r"https://[\w.-]+(/[\w.~-]+)+", found) else ""


def with_absolute_links(text: str, repository: str) -> str:
    """Return a page whose relative links and images lead to the repository."""

    def absolute(match: re.Match[str]) -> str:
        image, label, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        return f"{image}[{label}]({repository}/{'raw' if image else 'blob'}/HEAD/{target})"

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", absolute, text)


class Metadata(MetadataHookInterface):
    """README and addresses."""

    def update(self, metadata: dict[str, object]) -> None:
        """Add `readme` and `urls`."""
        text = (Path(self.root) / "README.md").read_text("utf-8")
        repository = repository_of(self.root)
        if repository:
            text = with_absolute_links(text, repository)
            metadata["urls"] = {
                "Source": repository,
                "Documentation": f"{repository}/blob/HEAD/docs/tour.md",
                "Issues": f"{repository}/issues",
                "Changelog": f"{repository}/blob/HEAD/CHANGELOG.md",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class Commit(BuildHookInterface):
    """The commit, as a file of the package."""

    def initialize(self, version: str, build_data: dict[str, object]) -> None:
        """Write the file where a checkout is built; a source distribution has it already."""
        commit = commit_of(self.root)
        if commit and version != "editable":
            (Path(self.root) / COMMIT).write_text(f"{commit}\n", "utf-8")
        artifacts = build_data["artifacts"]
        assert isinstance(artifacts, list)
        artifacts.append(str(COMMIT))

    def finalize(self, version: str, build_data: dict[str, object], artifact_path: str) -> None:
        """Leave no file behind in a checkout."""
        if (Path(self.root) / ".git").exists():
            (Path(self.root) / COMMIT).unlink(missing_ok=True)
