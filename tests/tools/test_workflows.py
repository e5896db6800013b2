"""The workflows run what a developer runs: make targets, with pinned actions."""

import re
from pathlib import Path

import pytest
import yaml

from tools import matrix

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text())
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def steps(name):
    """All steps of a workflow."""
    return [step for job in WORKFLOWS[name]["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_job_calls_make_targets_alone(name):
    """A step with a command calls one make target, which exists."""
    for command in (step["run"] for step in steps(name) if "run" in step):
        assert re.match(r"make (\S+)", command)[1] in TARGETS
        assert "\n" not in command.strip()


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_are_pinned(name):
    """An action is used at a commit, never at a tag that its author can move."""
    for used in (step["uses"] for step in steps(name) if "uses" in step):
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", used)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_tokens_have_few_rights(name):
    """A workflow can only read; one job of it may have the right to publish."""
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}
    wider = [job for job in WORKFLOWS[name]["jobs"].values() if "permissions" in job]
    assert all("environment" in job for job in wider)
    assert len(wider) <= 1


def test_the_nightly_run_has_each_environment():
    """The nightly matrix is that of `make matrix`."""
    (job,) = WORKFLOWS["nightly"]["jobs"].values()
    assert job["strategy"]["matrix"]["environment"] == list(matrix.ENVIRONMENTS)


def test_pull_requests_run_on_three_pythons():
    """All tests run on the lowest and the highest Python, and on one between."""
    (job,) = WORKFLOWS["pull-request"]["jobs"].values()
    pythons = job["strategy"]["matrix"]["python"]
    assert len(pythons) == 3
    assert {matrix.PYTHONS[0], matrix.PYTHONS[-1]} < set(pythons) < set(matrix.PYTHONS)
