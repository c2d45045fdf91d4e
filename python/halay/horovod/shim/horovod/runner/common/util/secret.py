# SPDX-License-Identifier: Apache-2.0
"""Keys, and digests of messages by them."""

import hashlib
import hmac
import secrets

SECRET_LENGTH = 32  # bytes
DIGEST_LENGTH = 32
HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"

__all__ = [
    "DIGEST_LENGTH",
    "HOROVOD_SECRET_KEY",
    "SECRET_LENGTH",
    "check_digest",
    "compute_digest",
    "make_secret_key",
]


def make_secret_key() -> bytes:
    """A new one."""
    return secrets.token_bytes(SECRET_LENGTH)


def compute_digest(key: bytes, message: bytes) -> bytes:
    """SHA-256's HMAC."""
    return hmac.digest(key, message, hashlib.sha256)


def check_digest(key: bytes, message: bytes, digest: bytes) -> bool:
    """Whether it is the message's."""
    return hmac.compare_digest(compute_digest(key, message), digest)
