"""Tests of the recorded commit: checkout, local changes, installed package."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from data.runtime.code_commit import code_commit


def git(root: Path, *arguments: str) -> str:
    options = ("-c", "user.name=n", "-c", "user.email=e")
    command = ["git", *options, *arguments]
    return subprocess.run(
        command, cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "code"
    root.mkdir()
    git(root, "init", "-q")
    (root / "a.py").write_text("1\n")
    git(root, "add", "a.py")
    git(root, "commit", "-q", "-m", "first")
    git(root, "tag", "-a", "v1", "-m", "v1")
    return root


def test_the_commit_of_a_checkout_whatever_its_tags(checkout: Path) -> None:
    assert code_commit(checkout) == git(checkout, "rev-parse", "HEAD")


def test_local_changes_are_marked(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    (checkout / "new.py").write_text("not tracked\n")
    assert code_commit(checkout) == commit
    (checkout / "a.py").write_text("2\n")
    assert code_commit(checkout) == f"{commit}-dirty"


def test_no_commit_outside_a_checkout_and_none_of_one_around_it(checkout: Path) -> None:
    inner = checkout / "lib" / "site-packages"
    inner.mkdir(parents=True)
    assert code_commit(inner) is None


def test_none_without_git_or_with_a_broken_checkout(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / ".git" / "HEAD").write_text("nonsense\n")
    assert code_commit(checkout) is None
    monkeypatch.setenv("PATH", "")
    assert code_commit(checkout) is None
