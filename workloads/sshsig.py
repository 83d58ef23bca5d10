"""Read an SSH signature file as far as it names its key; whether it is true is for `ssh-keygen` to say.

The format is OpenSSH's PROTOCOL.sshsig.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Iterator

from workloads.plain import shown

NAMESPACE = "kvgate"
SIZE_MAX = 64 * 1024
_ARMOUR = (b"-----BEGIN SSH SIGNATURE-----", b"-----END SSH SIGNATURE-----")
_MAGIC = b"SSHSIG" + struct.pack(">I", 1)  # with its version


class SigningError(ValueError):
    """One line: why something cannot be signed or checked."""


def read_signature(content: bytes) -> str:
    """Return the fingerprint of the key that a signature file names, as `ssh-keygen -l` writes it.

    Raises SigningError: not a signature, or not for this namespace.
    """
    lines = content.strip().split(b"\n")
    if len(content) > SIZE_MAX or (lines[0].strip(), lines[-1].strip()) != _ARMOUR:
        raise SigningError("not an SSH signature")
    try:
        blob = base64.b64decode(b"".join(line.strip() for line in lines[1:-1]), validate=True)
    except binascii.Error:
        raise SigningError("not an SSH signature: not base64") from None
    if not blob.startswith(_MAGIC):
        raise SigningError("not an SSH signature of version 1")
    parts = list(_strings(blob[len(_MAGIC) :]))
    if len(parts) != 5 or not parts[0]:
        raise SigningError("not an SSH signature: cut off, or something is behind it")
    if parts[1] != NAMESPACE.encode():
        raise SigningError(f"a signature for '{shown(parts[1].decode('utf-8', 'replace'))}', not for '{NAMESPACE}'")
    digest = base64.b64encode(hashlib.sha256(parts[0]).digest()).decode().rstrip("=")
    return f"SHA256:{digest}"


def _strings(blob: bytes) -> Iterator[bytes]:
    while blob:
        if len(blob) < 4 or len(blob) - 4 < (size := struct.unpack(">I", blob[:4])[0]):
            raise SigningError("not an SSH signature: cut off")
        yield blob[4 : 4 + size]
        blob = blob[4 + size :]
