"""A bucket as a place, at AWS or at any service that speaks S3; needs s3fs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pod.store.places import Changed, Source, StoreError, copy_checked

PART = 16 * 1024 * 1024
MOST_PARTS = 9_000  # of an upload; S3 takes 10 000
# The mirror tries again by itself; few tries here tell sooner what is wrong.
PATIENCE = {
    "connect_timeout": 20,
    "read_timeout": 60,
    "retries": {"mode": "standard", "max_attempts": 3},
}


class S3Place:
    """Objects below `base` in a bucket; an object appears once it is whole."""

    def __init__(self, bucket: str, base: str, environment: Mapping[str, str]) -> None:
        self.bucket = bucket
        self.base = f"{base}/" if base else ""
        self.url = f"s3://{bucket}/{base}".rstrip("/")
        self.endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get(
            "AWS_ENDPOINT_URL"
        )
        try:
            import s3fs
        except ImportError as error:
            raise StoreError(
                f"checkpoint store {self.url}: s3fs is not installed in the worker's Python"
            ) from error
        region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
        client = {"endpoint_url": self.endpoint, "region_name": region}
        # Few services beside AWS know the checksums that its clients send since 2025.
        plain = dict.fromkeys(
            ("request_checksum_calculation", "response_checksum_validation"), "when_required"
        )
        self._files = s3fs.S3FileSystem(
            key=environment.get("AWS_ACCESS_KEY_ID"),
            secret=environment.get("AWS_SECRET_ACCESS_KEY"),
            token=environment.get("AWS_SESSION_TOKEN"),
            client_kwargs={name: value for name, value in client.items() if value},
            config_kwargs={**PATIENCE, **(plain if self.endpoint else {})},
            use_listings_cache=False,
            skip_instance_cache=True,
        )
        self._files.retries = 2  # s3fs does it on top

    def check(self) -> None:
        """Write and delete an empty object."""
        probe = self._key(".axr-probe")
        with self._told("write to it"):
            self._files.pipe_file(probe, b"")
            self._files.rm_file(probe)

    def listing(self, prefix: str) -> dict[str, int]:
        """The names below the prefix."""
        start = self._key("")
        with self._told("list it"):
            found = self._files.find(self._key(prefix).rstrip("/"), detail=True)
        names = {str(key).removeprefix(start): int(info["size"]) for key, info in found.items()}
        return {name: size for name, size in names.items() if name.startswith(prefix)}

    def put(self, files: Mapping[str, Source], *, delete: Sequence[str] = ()) -> None:
        """Upload one after the other, hashing on the way."""
        self.delete([*files][-1:])
        for name, source in files.items():
            size = source.path.stat().st_size
            part = max(PART, -(-size // MOST_PARTS))
            with source.path.open("rb") as reader, self._told(f"write {name} to it"):
                writer = self._files.open(self._key(name), "wb", block_size=part)
                try:
                    copy_checked(reader, writer, name, source.sha256)
                except BaseException:
                    writer.discard()  # to close it would make an object of what there is
                    writer.closed = True
                    raise
                writer.close()
        self.delete(delete)

    def get(self, name: str, target: Path) -> None:
        """Download one object."""
        with self._told(f"read {name} from it"):
            try:
                self._files.get_file(self._key(name), str(target))
            except FileNotFoundError as error:
                raise KeyError(name) from error

    def delete(self, names: Sequence[str]) -> None:
        """Delete one after the other; S3 does not mind what is not there."""
        with self._told("delete from it"):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    self._files.rm_file(self._key(name))

    def tidy(self, prefix: str) -> None:
        """End uploads in parts that a killed mirror has left: they are invisible and cost money."""
        with self._told("tidy it"):
            answer = self._call("list_multipart_uploads", Prefix=self.base + prefix)
            for upload in answer.get("Uploads") or []:
                ids = {"Key": upload["Key"], "UploadId": upload["UploadId"]}
                self._call("abort_multipart_upload", **ids)

    def _call(self, method: str, **arguments: Any) -> dict[str, Any]:
        return dict(self._files.call_s3(method, Bucket=self.bucket, **arguments) or {})

    def _key(self, name: str) -> str:
        return f"{self.bucket}/{self.base}{name}"

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

        where = f"checkpoint store {self.url}" + (f" at {self.endpoint}" if self.endpoint else "")
        try:
            yield
        except Changed:
            raise
        except NoCredentialsError as error:
            raise StoreError(
                f"{where}: can't {what} without credentials; set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY in the task file's env"
            ) from error
        except FileNotFoundError as error:
            raise StoreError(
                f"{where}: can't {what}: no bucket {self.bucket}; make it, or name another one"
            ) from error
        except PermissionError as error:
            raise StoreError(
                f"{where}: may not {what} ({error}); check the key and its policy"
            ) from error
        except (OSError, BotoCoreError, ClientError) as error:
            raise StoreError(f"{where}: can't {what}: {error}") from error
