"""Sign a run's manifest with an SSH key, and tell who signed it.

`ssh-keygen -Y` does the work, so that whoever doubts can check with a tool of his own. The operator signs at every
seal where KVGATE_SIGNING_KEY names a key; a witness signs a finished run. Nobody is ever asked for a passphrase.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workloads.plain import EvidenceError, open_plain, shown, write_whole
from workloads.seal import MANIFEST, parse
from workloads.sshsig import NAMESPACE, SIZE_MAX, SigningError, read_signature

__all__ = ["FILES", "Signature", "SigningError", "check", "problem", "sign", "sign_seal", "try_key"]

OPERATOR, WITNESS = "operator", "witness"
FILES = {OPERATOR: f"{MANIFEST}.sig", WITNESS: f"{MANIFEST}.witness.sig"}
UNSIGNED = f"{MANIFEST}.sig.error"  # one line: why the last seal could not be signed
KEY_VARIABLE, SIGNERS_VARIABLE = "KVGATE_SIGNING_KEY", "KVGATE_ALLOWED_SIGNERS"
GOOD, BAD, UNKNOWN = "good", "bad", "unknown"
_SIGNERS_BYTES_MAX = 1 << 20
_DEADLINE_S = 30.0  # an agent may ask its owner to confirm


@dataclass(frozen=True)
class Signature:
    """One signature of a manifest: GOOD fits and is vouched for, BAD does not fit, UNKNOWN is neither."""

    role: str
    state: str
    key: str | None  # fingerprint, as the signature file says
    principal: str | None  # whom the allowed signers name for the key
    told: str

    def line(self) -> str:
        """Return the signature as one line."""
        return f"{self.role}'s signature: {self.state}: {self.told}"


def sign_seal(run: Path) -> None:
    """Sign the manifest as the operator where KVGATE_SIGNING_KEY names a key. Never raises: a run goes on without.

    Why it failed is written beside the manifest. A signature of an earlier segment stays; it tells what it covers.
    """
    key = os.environ.get(KEY_VARIABLE)
    if not key:
        return
    try:
        try:
            sign(run, Path(key), OPERATOR)
        except (SigningError, EvidenceError, OSError) as error:
            write_whole(run / UNSIGNED, f"{_one_line(str(error))}\n".encode())
        else:
            (run / UNSIGNED).unlink(missing_ok=True)
    except OSError:
        return  # that there is no signature is told anyway


def problem(run: Path) -> str | None:
    """Return why the manifest could not be signed at the last seal, or None."""
    try:
        with open_plain(run / UNSIGNED) as f:
            return shown(f.read(1000).decode("utf-8", "replace").strip())
    except FileNotFoundError:
        return None
    except (OSError, EvidenceError) as error:
        return _one_line(str(error))


def try_key() -> str | None:
    """Return why the key of KVGATE_SIGNING_KEY cannot sign, or None: to be told before hours of measuring."""
    key = os.environ.get(KEY_VARIABLE)
    if not key:
        return None
    try:
        _signed(b"try\n", Path(key))
    except (SigningError, OSError) as error:
        return _one_line(str(error))
    return None


def sign(run: Path, key: Path, role: str) -> None:
    """Sign the manifest as it stands: `key` is a private key, or a public one whose other half an agent holds.

    Raises SigningError, EvidenceError, OSError.
    """
    content = _signed(_manifest(run), key)
    read_signature(content)
    write_whole(run / FILES[role], content)


def check(run: Path, allowed_signers: Path | None = None) -> list[Signature]:
    """Return what is to be said of each signature that lies beside the manifest, and of one that failed.

    Raises SigningError: the allowed signers cannot be read, or are none. EvidenceError, OSError: the manifest cannot.
    """
    if allowed_signers is not None:
        look_at_signers(allowed_signers)
    manifest = _manifest(run)
    found = [_check(run / name, role, manifest, allowed_signers) for role, name in FILES.items() if _lies(run / name)]
    keys = [signature.key for signature in found]
    if len(keys) == 2 and keys[0] is not None and keys[0] == keys[1]:
        # Whoever signs twice has not been watched by anybody.
        same = found[1]
        told = f"{same.told}; the operator's own key: nobody else has signed"
        state = UNKNOWN if same.state == GOOD else same.state
        found[1] = Signature(same.role, state, same.key, same.principal, told)
    return found


def look_at_signers(allowed: Path) -> None:
    """Raise SigningError, with the first line that ssh-keygen cannot take, for a file that is no list of signers.

    Without this, whoever names another file hears that nobody vouches for a key.
    """
    wanted = "a line of allowed signers is `NAME KEYTYPE KEY`, see ssh-keygen(1)"
    try:
        with open_plain(allowed) as f:
            content = f.read(_SIGNERS_BYTES_MAX + 1)
    except EvidenceError:
        raise SigningError(f"{allowed}: the allowed signers cannot be read: not a plain file") from None
    except OSError as error:
        raise SigningError(f"{allowed}: the allowed signers cannot be read: {error.strerror}") from None
    if len(content) > _SIGNERS_BYTES_MAX:
        raise SigningError(f"{allowed}: longer than any list of signers: {wanted}")
    if b"\0" in content:  # where ssh-keygen takes a line to end
        raise SigningError(f"{allowed}:{1 + content[: content.index(0)].count(10)}: not text: {wanted}")
    if b"PRIVATE KEY-----" in content:
        raise SigningError(f"{allowed}: a private key, not the allowed signers: {wanted}")
    if told := _first_fault(content):
        raise SigningError(f"{allowed}:{told}: {wanted}")


def _first_fault(content: bytes) -> str | None:
    """Return `LINE: what is wrong` of the first line that ssh-keygen cannot take; None also where it cannot be asked.

    It looks at lines only until one has the key of the signature, so it is asked about a key that nobody has.
    """
    # To some versions a blank line is a faulty one.
    lines = [line if line.strip() else b"#" for line in content.split(b"\n")]
    with tempfile.TemporaryDirectory(prefix="kvgate-signers-") as folder:
        key, signers = Path(folder) / "key", Path(folder) / "signers"
        signers.write_bytes(b"\n".join(lines) + b"\n")
        try:
            _keygen(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)], b"")
            key.with_name("key.sig").write_bytes(_signed(b"nobody's\n", key))
            argv = ["-Y", "find-principals", "-f", str(signers), "-s", f"{key}.sig"]
            told = _keygen(argv, b"").stderr.decode("utf-8", "replace")
        except SigningError:
            return None  # told of every signature, none of which can be checked
    found = re.search(rf"^{re.escape(str(signers))}:(\d+): (.+)$", told, re.MULTILINE)
    return _one_line(f"{found[1]}: {found[2]}") if found else None


def _check(file: Path, role: str, manifest: bytes, allowed: Path | None) -> Signature:
    try:
        if file.is_symlink():
            raise SigningError("not a plain file")
        with open_plain(file) as f:
            key = read_signature(f.read(SIZE_MAX + 1))
    except (SigningError, EvidenceError, OSError) as error:
        return Signature(role, BAD, None, None, f"{file.name}: {_one_line(str(error)).replace(f'{file}: ', '')}")
    try:
        if not _fits(file, manifest):
            return Signature(role, BAD, key, None, f"made by key {key}, {_covers(file, manifest)}")
        principal = _principal(file, manifest, allowed) if allowed is not None else None
    except SigningError as error:
        return Signature(role, UNKNOWN, key, None, f"made by key {key}, not checked: {error}")
    if principal is not None:
        return Signature(role, GOOD, key, principal, f"made by {principal} with key {key}")
    nobody = "nobody vouches for it" if allowed is None else f"nobody vouches for it in {allowed}"
    return Signature(role, UNKNOWN, key, None, f"made by key {key}, {nobody}")


def _fits(file: Path, content: bytes) -> bool:
    done = _keygen(["-Y", "check-novalidate", "-n", NAMESPACE, "-s", str(file.absolute())], content)
    return done.returncode == 0


def _covers(file: Path, manifest: bytes) -> str:
    for label, end in parse(manifest).segments[:-1]:
        if _fits(file, manifest[:end]):
            return f"for the manifest as it was after segment '{shown(label)}': what was sealed later is not signed"
    return "does not fit the manifest"


def _principal(file: Path, manifest: bytes, allowed: Path) -> str | None:
    signers, signature = str(allowed.absolute()), str(file.absolute())
    named = _keygen(["-Y", "find-principals", "-f", signers, "-s", signature], b"")
    for name in named.stdout.decode("utf-8", "replace").splitlines() if named.returncode == 0 else ():
        # `find-principals` does not look at whether the key may sign for this namespace.
        argv = ["-Y", "verify", "-f", signers, "-I", name, "-n", NAMESPACE, "-s", signature]
        if _keygen(argv, manifest).returncode == 0:
            return shown(name)
    return None


def _signed(content: bytes, key: Path) -> bytes:
    if not key.is_file():
        raise SigningError(f"{key}: no such key")
    with tempfile.TemporaryDirectory(prefix="kvgate-sign-") as folder:
        copy = Path(folder) / MANIFEST
        copy.write_bytes(content)
        done = _keygen(["-Y", "sign", "-n", NAMESPACE, "-f", str(key.absolute()), str(copy)], b"")
        made = copy.with_name(f"{MANIFEST}.sig")
        if done.returncode != 0 or not made.is_file():
            raise SigningError(f"{key}: cannot sign: {_said(done)}")
        return made.read_bytes()


def _keygen(args: Sequence[str], content: bytes) -> subprocess.CompletedProcess[bytes]:
    """Run ssh-keygen so that it can ask nobody: no terminal, no helper that asks, nothing to read but `content`."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "SSH_AUTH_SOCK") if name in os.environ}
    try:
        return subprocess.run(
            ["ssh-keygen", *args],
            env={**kept, "LC_ALL": "C", "SSH_ASKPASS_REQUIRE": "never"},
            input=content,
            capture_output=True,
            start_new_session=True,
            timeout=_DEADLINE_S,
            check=False,
        )
    except FileNotFoundError:
        raise SigningError("ssh-keygen is not installed") from None
    except subprocess.TimeoutExpired:
        raise SigningError(f"ssh-keygen did not answer within {_DEADLINE_S:.0f} s") from None
    except OSError as error:
        raise SigningError(f"ssh-keygen: {error.strerror}") from None


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    text = done.stderr.decode("utf-8", "replace").replace("Enter passphrase: ", "")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("@")]
    if "incorrect passphrase" in text:
        return "the key is encrypted: give it to an agent, and name the public key"
    return _one_line("; ".join(lines) or f"ssh-keygen ended with {done.returncode}")[:300]


def _manifest(run: Path) -> bytes:
    with open_plain(run / MANIFEST) as f:
        return f.read()


def _lies(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _one_line(text: str) -> str:
    return shown(" ".join(text.split()))
