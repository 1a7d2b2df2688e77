"""The project's own set-up: one place for Debian packages, every Python package pinned, scripts that can be run."""

import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REQUIREMENTS = ["tests/requirements.txt", "bench/requirements.txt", "interop/requirements.txt"]


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_python_packages_are_pinned(name):
    lines = [l for l in (ROOT / name).read_text().splitlines() if l and not l.startswith("#")]
    assert lines
    for line in lines:
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9.]+", line), line


def test_tests_do_not_need_torch():
    assert "torch" not in (ROOT / "tests/requirements.txt").read_text()


def test_debian_packages_say_what_for_and_stand_once():
    lines = [l for l in (ROOT / "packaging/debian-packages.txt").read_text().splitlines() if not l.startswith("#")]
    names = []
    for line in lines:
        match = re.fullmatch(r"(\S+) +# \S.*", line)
        assert match, line
        names.append(match[1])
    assert len(names) == len(set(names))


def test_missing_packages_are_named_where_they_cannot_be_installed(tmp_path):
    """Neither root nor sudo: the message names exactly what is missing, and the exit status is a failure."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ["bash", "sed", "awk", "env"]:
        (tools / name).symlink_to(subprocess.check_output(["bash", "-c", f"command -v {name}"], text=True).strip())
    for name, body in {"dpkg-query": '[ "${@: -1}" = have-it ] && echo -n installed', "id": "echo 1000"}.items():
        (tools / name).write_text(f"#!/bin/bash\n{body}\n")
        (tools / name).chmod(0o755)
    packages = tmp_path / "list.txt"
    packages.write_text("have-it # there\nlack-it # not there\n")
    run = subprocess.run(["/bin/bash", ROOT / "packaging/install-packages", packages], capture_output=True, text=True,
                         env={"PATH": str(tools)}, stdin=subprocess.DEVNULL)
    assert run.returncode == 1
    assert "apt-get install lack-it" in run.stderr and "have-it" not in run.stderr


def test_scripts_can_be_run():
    for script in subprocess.check_output(["git", "ls-files", "-s"], cwd=ROOT, text=True).splitlines():
        mode, _, _, name = script.split(maxsplit=3)
        with open(ROOT / name, "rb") as file:
            if file.read(2) == b"#!":
                assert os.access(ROOT / name, os.X_OK), name
