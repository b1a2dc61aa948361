"""A strict local Hugging Face hub, models and data sets: `python -m tests.emulators.hub --port N`.

In a test: `with running() as hub: …` with `hub.url` (for HF_ENDPOINT), `hub.state`, `hub.set([…])`.
Tokens: `hf_write` and `hf_read` of the user `me`, who is in the organization `team`; `hf_other` of
the user `other`. The client is huggingface_hub 2.4 as it is; it must be started with

    HF_ENDPOINT=<url> HF_HUB_DISABLE_XET=1

because Xet is a protocol of its own (its token routes answer 404 here and say so): the client then
uses git LFS, which the hub goes on to serve.

What is covered
- create, delete and settings of a repository; whoami-v2; info, tree (pages by Link), paths-info,
  refs, commits, super-squash, lfs-files and their deletion for good, validate-yaml of cards.
- preupload (LFS by suffix, size and content; .gitignore), commits in ndjson (files, LFS files,
  deleted files and folders, parentCommit), LFS batch with basic and multipart transfers and verify.
- resolve by HEAD and GET with ETag, X-Repo-Commit, Range; large files by a redirect to a storage of
  another origin, with signed addresses, which refuses an Authorization header as S3 does.
- the hub's errors with X-Error-Code and X-Error-Message; scopes of tokens; private repositories.
- gated repositories (`hub.repository(id).gated = "manual"`): listed, but their files are refused.
- what is deleted from a branch stays in the storage until it is deleted for good, as there.

Faults: POST /_faults with {"faults": [fault, …]} replaces them all; [] clears. A fault:
  match        regular expression of "METHOD path" (default: all); storage paths begin with
               /storage
  times        how often it acts (1)
  status       answer with this status instead; with retry_after (seconds, Retry-After), ratelimit
               (true: the RateLimit header too), message
  hang         real seconds before anything is done
  lost         true: do it, then end the connection without an answer
  drop_after   bytes of the request's body after which the connection ends
  slow         bytes per second at which the request's body is taken
  cut_after    bytes of the answer's body after which the connection ends
  stall_after  bytes of the answer's body after which nothing comes for `stall` seconds
  corrupt      position in the answer's body of the one byte that is wrong
  short        bytes that a file's answer lacks at its end, and does not announce
POST /_rate with {"bytes_per_second": N} limits each connection to the storage, null ends that.
POST /_plant with {"repo", "files": {path: size or text}, "kind"} commits files that nobody uploads,
of any size, with a content of their own that takes little of the disk.
GET /_state: {repos: {id: {private, head, commits, files, storage}}, requests, uploads}.

Not covered: spaces, pull requests, branches besides main, TLS, Xet: a repository with `xet` offers
it, and its token route then answers 404 or as a fault says.
"""

from tests.emulators.hub.server import Emulator, running

__all__ = ["Emulator", "running"]
