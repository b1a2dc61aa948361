"""What each address of the hub's API means."""

from __future__ import annotations

import io
from typing import Any
from urllib.parse import parse_qs, quote

import yaml

from tests.emulators.hub import commits
from tests.emulators.hub.account import Token
from tests.emulators.hub.handler import Handler
from tests.emulators.hub.problems import Refused, no_entry
from tests.emulators.hub.repository import Commit, Repository, iso, key_of

NO_PAGE = "Sorry, we can't find the page you are looking for."


class Api(Handler):
    """The hub."""

    def route(self, method: str, path: str) -> None:
        if path == "/_state":
            return self.answer(self.hub.state)
        if path == "/_faults":
            self.hub.set(self.json_body().get("faults", []))
            return self.answer({})
        if path == "/_rate":
            self.hub.rate = self.json_body()["bytes_per_second"]
            return self.answer({})
        if path == "/_plant":
            return self.answer({"commit": self.hub.plant(**self.json_body())})
        with self.hub.accounts.lock:
            self._user = self.hub.accounts.identify(self.headers.get("Authorization"))
        kind, words = "model", self.words
        if words[0] == "datasets":
            kind, words = "dataset", words[1:]
        match method, words:
            case _, ["api", ("models" | "datasets") as kinds, owner, name, *rest]:
                return self._repository(method, key_of(kinds[:-1], f"{owner}/{name}"), rest)
            case "GET" | "HEAD", [owner, name, "resolve", revision, *parts]:
                repo = self._repo(key_of(kind, f"{owner}/{name}"))
                return self._resolve(repo, revision, "/".join(parts))
            case "POST", [owner, git, "info", "lfs", "objects", verb] if git.endswith(".git"):
                return self._lfs(key_of(kind, f"{owner}/{git[:-4]}"), verb)
            case "POST", ["api", "complete_multipart", upload]:
                self.hub.storage.check_signature(path, self.query, {})
                self.hub.storage.complete(upload, self.json_body())
                return self.answer({"success": True})
        return self._account(method)

    def _account(self, method: str) -> None:
        accounts = self.hub.accounts
        match method, self.words:
            case "GET", ["api", "whoami-v2"]:
                self.answer(accounts.whoami(self._user))
            case "GET", ["api", "agent-harnesses"]:
                self.answer({"standardEnvVars": [], "harnesses": {}})
            case "POST", ["api", "repos", "create"]:
                asked = self.json_body()
                with accounts.lock:
                    self.answer(accounts.create(self._user, asked, self.hub.url))
            case "DELETE", ["api", "repos", "delete"]:
                asked = self.json_body()
                with accounts.lock:
                    accounts.delete(self._user, asked)
                self.answer({})
            case "POST", ["api", "validate-yaml"]:
                self._validate(self.json_body())
            case _:
                raise Refused(404, NO_PAGE)

    def _repository(self, method: str, key: str, rest: list[str]) -> None:
        query = self.query
        match method, rest:
            case "GET", [] | ["revision", _]:
                revision = rest[1] if rest else "main"
                blobs = query.get("blobs", ["false"])[0].lower() in ("true", "1")
                self.answer(self._repo(key).info(revision, blobs=blobs))
            case "GET", ["tree", revision, *parts]:
                recursive = query.get("recursive", ["false"])[0].lower() in ("true", "1")
                path = "/".join(parts)
                self._page(self._repo(key).listing(revision, path, recursive=recursive))
            case "POST", ["paths-info", revision]:
                wanted = parse_qs(self.body().decode()).get("paths", [])
                self.answer(self._repo(key).paths(revision, wanted))
            case "GET", ["commits", revision]:
                self._repo(key).at(revision)
                self._page([_commit_item(c) for c in reversed(self._repo(key).commits)])
            case "GET", ["refs"]:
                head = self._repo(key).head.sha
                branch = {"name": "main", "ref": "refs/heads/main", "targetCommit": head}
                self.answer({"branches": [branch], "tags": [], "converts": []})
            case "GET", ["auth-check"]:
                self.hub.accounts.check_gate(self._user, self._repo(key))
                self.answer({})
            case "GET", ["lfs-files"]:
                self._page(_stored_items(self._repo(key, write=True)))
            case "GET", [word, *_] if word.startswith("xet-"):
                raise Refused(
                    404, "Xet is not emulated: start the client with HF_HUB_DISABLE_XET=1"
                )
            case _:
                self._change(method, key, rest)

    def _change(self, method: str, key: str, rest: list[str]) -> None:
        body = self.body() if rest[:1] == ["commit"] else b""
        asked = {} if body else self.json_body()
        with self.hub.accounts.lock:
            repo = self._repo(key, write=True)
            match method, rest:
                case "POST", ["preupload", revision]:
                    self.answer(commits.preupload(repo, revision, asked))
                case "POST", ["commit", revision]:
                    self._commit(repo, revision, body)
                case "POST", ["lfs-files", "batch"]:
                    wanted = asked["deletions"]
                    repo.delete_for_good(wanted["sha"], rewrite=bool(wanted["rewriteHistory"]))
                    self.answer({})
                case "POST", ["super-squash", "main"]:
                    repo.squash(str(asked.get("message")))
                    self.answer({})
                case "PUT", ["settings"]:
                    repo.private = asked.get("visibility", "private") == "private"
                    self.answer({"private": repo.private})
                case _:
                    raise Refused(404, NO_PAGE)

    def _commit(self, repo: Repository, revision: str, body: bytes) -> None:
        if self.headers.get("Content-Type") != "application/x-ndjson":
            raise Refused(400, "a commit is application/x-ndjson")
        if "create_pr" in self.query:
            raise Refused(400, "pull requests are not emulated")
        made = commits.commit(repo, revision, body, self._user.user if self._user else "")
        url = f"{self.hub.url}/{repo.key}/commit/{made.sha}"
        self.answer({"success": True, "commitOid": made.sha, "commitUrl": url, "hookOutput": ""})

    def _lfs(self, key: str, verb: str) -> None:
        asked = self.json_body()
        with self.hub.accounts.lock:
            repo = self._repo(key, write=True)
            match verb:
                case "batch":
                    if "git-lfs+json" not in self.headers.get("Accept", ""):
                        raise Refused(406, "Accept must be application/vnd.git-lfs+json")
                    hub, storage = self.hub.url, self.hub.files_url
                    made = self.hub.storage.batch(repo, asked, hub=hub, storage=storage)
                    kind = "application/vnd.git-lfs+json"
                    self.answer(made, headers={"Content-Type": kind})
                case "verify":
                    self.hub.storage.verify(repo, asked)
                    self.answer({"success": True})
                case _:
                    raise Refused(404, "no such verb of LFS")

    def _resolve(self, repo: Repository, revision: str, path: str) -> None:
        commit = repo.at(revision)
        headers = {"X-Repo-Commit": commit.sha}
        self.hub.accounts.check_gate(self._user, repo)
        entry = commit.tree.get(path)
        if entry is None:
            missing = no_entry(path)
            missing.headers |= headers
            raise missing
        if entry.content is not None:
            headers |= {"ETag": f'"{entry.oid}"', "Content-Type": "text/plain"}
            self.send_file(io.BytesIO(entry.content), entry.size, headers)
            return
        if entry.sha256 not in repo.storage:
            raise Refused(404, "the large file was deleted for good", "EntryNotFound")
        address = f"{self.hub.files_url}/storage/blob/{entry.sha256}"
        headers |= {
            "Location": self.hub.storage.signed(address),
            "X-Linked-Size": str(entry.size),
            "X-Linked-Etag": f'"{entry.sha256}"',
            "ETag": f'"{entry.oid}"',
        }
        self.start(302, 0, headers)

    def _page(self, items: list[dict[str, Any]]) -> None:
        first = int(self.query.get("cursor", ["0"])[0])
        most = min(int(self.query.get("limit", [str(self.hub.page)])[0]), self.hub.page)
        headers = {}
        if len(items) > first + most:
            rest = [f"{k}={quote(v[0])}" for k, v in self.query.items() if k != "cursor"]
            address = self.hub.url + self.path.partition("?")[0]
            following = "&".join([*rest, f"cursor={first + most}"])
            headers["Link"] = f'<{address}?{following}>; rel="next"'
        self.answer(items[first : first + most], headers=headers)

    def _validate(self, asked: dict[str, Any]) -> None:
        text = str(asked.get("content", ""))
        card = text.split("---")[1] if text.startswith("---") and text.count("---") > 1 else ""
        try:
            yaml.safe_load(card)
        except yaml.YAMLError as error:
            found = {"errors": [{"message": str(error)}], "warnings": []}
            raise Refused(400, "invalid metadata", body=dict(found)) from error
        self.answer({"errors": [], "warnings": []})

    def _repo(self, key: str, *, write: bool = False) -> Repository:
        accounts = self.hub.accounts
        return (accounts.writable if write else accounts.readable)(self._user, key)

    _user: Token | None = None


def _commit_item(commit: Commit) -> dict[str, Any]:
    authors = [{"user": commit.author}]
    return {
        "id": commit.sha,
        "title": commit.title,
        "message": commit.message,
        "authors": authors,
        "date": iso(commit.t),
    }


def _stored_items(repo: Repository) -> list[dict[str, Any]]:
    return [
        {
            "fileOid": oid,
            "filename": stored.filename,
            "oid": oid,
            "pushedAt": iso(stored.t),
            "ref": "main",
            "size": stored.size,
        }
        for oid, stored in repo.storage.items()
    ]
