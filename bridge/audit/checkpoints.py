"""Signatures over the head of the chain, and the anchors that lie apart from the log.

A checkpoint record carries count, head and an Ed25519 signature over them. After each one an anchor, the same
statement about the checkpoint record itself, is added to `anchors.jsonl` in the keys' folder, and never taken away: a
tail that was cut stays visible. Knows no record but the checkpoint. Above: `group_commit` signs, `verify` checks.
"""

import contextlib
import json
import os
import secrets
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from bridge.audit.chain import Head
from bridge.contract.json_types import JsonObject

PRIVATE_KEY_FILE: Final = "audit.pem"
PUBLIC_KEY_FILE: Final = "audit.pub.pem"
REDACTION_KEY_FILE: Final = "redaction.key"
ANCHORS_FILE: Final = "anchors.jsonl"
_STATEMENT: Final = "mxs audit checkpoint 1\n{count}\n{head}\n"


def statement(count: int, head: str) -> bytes:
    """The bytes that are signed: that the chain has `count` records and the last one's hash is `head`."""
    return _STATEMENT.format(count=count, head=head).encode("ascii")


@dataclass(frozen=True)
class CheckpointVerifier:
    """The public half."""

    key: Ed25519PublicKey

    @property
    def key_id(self) -> str:
        """`sha256:` and the hex digest of the raw public key."""
        return "sha256:" + sha256(self.key.public_bytes_raw()).hexdigest()

    def holds(self, count: int, head: str, signature: object) -> bool:
        """Whether `signature` (base64) is this key's over `count` and `head`."""
        if not isinstance(signature, str):
            return False
        try:
            self.key.verify(b64decode(signature, validate=True), statement(count, head))
        except (InvalidSignature, Base64Error, ValueError):
            return False
        return True

    @classmethod
    def load(cls, file: Path) -> "CheckpointVerifier":
        """Reads a public key in PEM. Raises `OSError`, or `ValueError` if `file` holds no Ed25519 key."""
        key = serialization.load_pem_public_key(file.read_bytes())
        if not isinstance(key, Ed25519PublicKey):
            raise ValueError(f"{str(file)!r} holds no Ed25519 key")  # noqa: TRY004  the file's content is wrong, not a type
        return cls(key)


@dataclass(frozen=True)
class Keyring:
    """The keys' folder, opened for writing: signs, and keeps the anchors."""

    folder: Path
    signing_key: Ed25519PrivateKey
    redaction_key: bytes

    @classmethod
    def open(cls, folder: Path) -> "Keyring":
        """Loads the keys, making what is missing: folder 0700, files 0600. Raises `OSError`, `ValueError`."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        pem = _load_or_make(folder / PRIVATE_KEY_FILE, _new_private_pem)
        key = serialization.load_pem_private_key(pem, password=None)
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError(f"{PRIVATE_KEY_FILE!r} holds no Ed25519 key")  # noqa: TRY004  as above
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        _load_or_make(folder / PUBLIC_KEY_FILE, lambda: public)
        redaction_key = _load_or_make(folder / REDACTION_KEY_FILE, lambda: secrets.token_bytes(32))
        return cls(folder, key, redaction_key)

    @property
    def verifier(self) -> CheckpointVerifier:
        """The public half of the signing key."""
        return CheckpointVerifier(self.signing_key.public_key())

    def sign(self, head: Head) -> JsonObject:
        """`{"count", "head", "keyId", "signature"}`: the fields of a checkpoint record, and of an anchor."""
        signature = self.signing_key.sign(statement(head.seq, head.hash))
        return {
            "count": head.seq,
            "head": head.hash,
            "keyId": self.verifier.key_id,
            "signature": b64encode(signature).decode("ascii"),
        }

    def anchor(self, head: Head) -> None:
        """Adds a durable anchor for `head`. Raises `OSError`."""
        line = json.dumps(self.sign(head), separators=(",", ":")) + "\n"
        descriptor = os.open(self.folder / ANCHORS_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            if os.write(descriptor, line.encode("ascii")) != len(line):
                # The next anchor must not join the torn one to a line that nobody can read.
                os.write(descriptor, b"\n")
                raise OSError("the anchor was written in part")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_anchors(folder: Path, verifier: CheckpointVerifier) -> Mapping[int, str]:
    """Count → head of every anchor in `folder` that `verifier`'s key signed; others, torn ones too, say nothing."""
    return {anchor.seq: anchor.hash for line in _anchor_lines(folder) if (anchor := _anchor(line, verifier))}


def last_anchored_count(folder: Path, verifier: CheckpointVerifier) -> int:
    """How many records the last anchor speaks of; 0 without one. Raises `OSError`."""
    anchors = (_anchor(line, verifier) for line in reversed(_anchor_lines(folder)))
    return next((anchor.seq for anchor in anchors if anchor), 0)


def _anchor_lines(folder: Path) -> list[bytes]:
    try:
        return (folder / ANCHORS_FILE).read_bytes().splitlines()
    except FileNotFoundError:
        return []


def _anchor(line: bytes, verifier: CheckpointVerifier) -> Head | None:
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        stated = json.loads(line)
        anchor = Head(int(stated["count"]), str(stated["head"]))
        if verifier.holds(anchor.seq, anchor.hash, stated["signature"]):
            return anchor
    return None


def _new_private_pem() -> bytes:
    return Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _load_or_make(file: Path, make: Callable[[], bytes]) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        pass
    content = make()
    # Written aside and renamed, so that a crash or a full disk leaves no half of a key behind.
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    aside.rename(file)
    return content
