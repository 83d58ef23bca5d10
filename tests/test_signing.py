"""Signatures of a manifest: by whom, whether they fit, and one line for whatever stands in the way."""

from __future__ import annotations

import base64
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.__main__ import main
from workloads import signing
from workloads.evidence import MANIFEST, RunDir, verify
from workloads.signing import BAD, GOOD, OPERATOR, UNKNOWN, WITNESS, SigningError, check, problem, sign, try_key
from workloads.sshsig import read_signature

needs_keygen = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")


@pytest.fixture(autouse=True)
def _no_key_of_mine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (signing.KEY_VARIABLE, signing.SIGNERS_VARIABLE, "SSH_AUTH_SOCK", "SSH_ASKPASS", "DISPLAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name, passphrase in (("operator", ""), ("customer", ""), ("locked", "secret")):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", name, "-f", str(folder / name)]
        subprocess.run(argv, check=True, capture_output=True)
    lines = [
        f"{n}@example.com {(folder / f'{n}.pub').read_text().rsplit(' ', 1)[0]}\n" for n in ("operator", "customer")
    ]
    (folder / "allowed").write_text("".join(lines))
    (folder / "customer-only").write_text(lines[1])
    (folder / "other-use").write_text(lines[0].replace(" ", ' namespaces="file" ', 1))
    return folder


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir.create(tmp_path, "g3")
    run.write_json("run.json", {"schema": 1, "run_id": run.run_id})
    run.seal("look-5")
    return run


def finish(run: RunDir) -> None:
    run.append("incidents.jsonl", {"kind": "x"})
    run.seal("end")


def one(path: Path, allowed: Path | None = None) -> signing.Signature:
    (found,) = check(path, allowed)
    return found


@needs_keygen
def test_every_seal_is_signed_where_a_key_is_named(run: RunDir, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(run.path) == []
    monkeypatch.setenv(signing.KEY_VARIABLE, str(keys / "operator"))
    assert try_key() is None
    finish(run)
    assert verify(run.path) == []
    assert problem(run.path) is None
    alone = one(run.path)
    assert (alone.role, alone.state, alone.principal) == (OPERATOR, UNKNOWN, None)
    listed = subprocess.run(
        ["ssh-keygen", "-l", "-f", str(keys / "operator.pub")], capture_output=True, text=True, check=True
    )
    assert alone.key == listed.stdout.split()[1]
    assert alone.line() == f"operator's signature: unknown: made by key {alone.key}, nobody vouches for it"
    known = one(run.path, keys / "allowed")
    assert (known.state, known.principal) == (GOOD, "operator@example.com")
    for signers in ("customer-only", "other-use"):
        assert one(run.path, keys / signers).state == UNKNOWN
    # With the very tools that whoever doubts has, and as ssh-keygen's manual says.
    argv = [
        "ssh-keygen",
        "-Y",
        "verify",
        "-f",
        keys / "allowed",
        "-I",
        "operator@example.com",
        "-n",
        "kvgate",
        "-s",
        run.path / f"{MANIFEST}.sig",
    ]
    assert (
        subprocess.run(argv, input=(run.path / MANIFEST).read_bytes(), capture_output=True, check=False).returncode == 0
    )


@needs_keygen
def test_a_signature_that_does_not_fit_is_bad(run: RunDir, keys: Path) -> None:
    sign(run.path, keys / "operator", OPERATOR)
    finish(run)
    early = one(run.path, keys / "allowed")
    assert early.state == BAD
    assert "as it was after segment 'look-5': what was sealed later is not signed" in early.told
    (run.path / MANIFEST).write_text("another\n")
    changed = one(run.path, keys / "allowed")
    assert changed.state == BAD
    assert changed.told.endswith("does not fit the manifest")


@needs_keygen
@pytest.mark.parametrize("content", [b"", b"x", b"-----BEGIN SSH SIGNATURE-----\n!\n-----END SSH SIGNATURE-----\n"])
def test_a_file_that_is_no_signature_is_bad(run: RunDir, content: bytes) -> None:
    (run.path / f"{MANIFEST}.sig").write_bytes(content)
    found = one(run.path)
    assert (found.state, found.key) == (BAD, None)
    assert found.told.startswith(f"{MANIFEST}.sig: not an SSH signature")


@needs_keygen
def test_a_signature_for_something_else_is_bad(run: RunDir, keys: Path) -> None:
    argv = ["ssh-keygen", "-Y", "sign", "-n", "file", "-f", str(keys / "operator"), str(run.path / MANIFEST)]
    subprocess.run(argv, check=True, capture_output=True)
    assert "a signature for 'file', not for 'kvgate'" in one(run.path).told


@needs_keygen
def test_a_second_signature_by_the_same_key_is_no_witness(run: RunDir, keys: Path) -> None:
    for role in (OPERATOR, WITNESS):
        sign(run.path, keys / "operator", role)
    assert [found.state for found in check(run.path, keys / "allowed")] == [GOOD, UNKNOWN]
    assert "nobody else has signed" in check(run.path, keys / "allowed")[1].told
    sign(run.path, keys / "customer", WITNESS)
    assert [found.principal for found in check(run.path, keys / "allowed")] == [
        "operator@example.com",
        "customer@example.com",
    ]


@needs_keygen
@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("locked", "the key is encrypted"),
        ("locked.pub", "the key is encrypted"),
        ("nope", "no such key"),
        ("allowed", "cannot sign"),
    ],
)
def test_a_key_that_cannot_sign_is_one_line_and_stops_nothing(
    run: RunDir, keys: Path, monkeypatch: pytest.MonkeyPatch, key: str, told: str
) -> None:
    monkeypatch.setenv(signing.KEY_VARIABLE, str(keys / key))
    assert told in (try_key() or "")
    finish(run)
    assert verify(run.path) == []
    said = problem(run.path)
    assert said is not None
    assert told in said
    assert said.isprintable()
    monkeypatch.setenv(signing.KEY_VARIABLE, str(keys / "operator"))
    run.seal("end")
    assert problem(run.path) is None


@needs_keygen
def test_without_ssh_keygen_nothing_is_signed_and_nothing_called_good(
    run: RunDir, keys: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sign(run.path, keys / "operator", OPERATOR)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(signing.KEY_VARIABLE, str(keys / "operator"))
    found = one(run.path, keys / "allowed")
    assert found.state == UNKNOWN
    assert "not checked: ssh-keygen is not installed" in found.told
    assert "ssh-keygen is not installed" in (try_key() or "")
    finish(run)
    assert "ssh-keygen is not installed" in (problem(run.path) or "")


def test_allowed_signers_that_cannot_be_read_are_an_error(run: RunDir, tmp_path: Path) -> None:
    with pytest.raises(SigningError, match="cannot be read"):
        check(run.path, tmp_path / "nope")


@given(st.binary(max_size=400))
def test_no_signature_file_is_too_strange_to_be_read(content: bytes) -> None:
    armoured = (
        b"-----BEGIN SSH SIGNATURE-----\n" + base64.b64encode(b"SSHSIG" + content) + b"\n-----END SSH SIGNATURE-----\n"
    )
    for candidate in (content, armoured):
        try:
            assert read_signature(candidate).startswith("SHA256:")
        except SigningError as error:
            assert "\n" not in str(error)


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=80), st.binary(max_size=80))
def test_a_whole_signature_names_its_key_and_a_part_does_not(key: bytes, made: bytes) -> None:
    parts = b"".join(struct.pack(">I", len(part)) + part for part in (key, b"kvgate", b"", b"sha512", made))
    blob = b"SSHSIG" + struct.pack(">I", 1) + parts

    def armour(content: bytes) -> bytes:
        return b"-----BEGIN SSH SIGNATURE-----\n" + base64.encodebytes(content) + b"-----END SSH SIGNATURE-----\n"

    assert read_signature(armour(blob)).startswith("SHA256:")
    for end in range(10, len(blob)):
        with pytest.raises(SigningError):
            read_signature(armour(blob[:end]))


@needs_keygen
def test_sign_and_verify_on_the_command_line(run: RunDir, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def gates(*args: object) -> tuple[int, str, str]:
        status = main([str(arg) for arg in args])
        return status, *capsys.readouterr()

    finish(run)
    status, out, _ = gates("verify", run.path)
    assert (status, out.splitlines()[1:]) == (0, ["not signed by its operator"])
    assert gates("sign", run.path) == (4, "", "kvgate: name the key: --key KEY, or KVGATE_SIGNING_KEY\n")
    assert gates("sign", run.path, "--key", keys / "customer", "--as", "witness")[0] == 0
    status, out, told = gates("sign", run.path, "--key", keys / "operator", "--as", "witness")
    assert (status, out, told.count("\n")) == (4, "", 1)
    assert "already signed" in told
    status, out, _ = gates("verify", run.path, "--allowed-signers", keys / "allowed")
    assert status == 0
    assert "witness's signature: good: made by customer@example.com with key SHA256:" in out
    assert gates("verify", run.path, "--allowed-signers", keys / "nope")[0] == 4
    (run.path / f"{MANIFEST}.witness.sig").write_bytes(b"x")
    assert gates("verify", run.path)[0] == 1
    (run.path / "extra").write_bytes(b"")
    status, out, _ = gates("sign", run.path, "--key", keys / "operator", "--as", "operator")
    assert (status, (run.path / f"{MANIFEST}.sig").exists()) == (1, False)
    assert "extra: added since the run was sealed" in out


NOT_SIGNERS = {
    "a folder": (None, ": the allowed signers cannot be read: "),
    "binary": (b"\x00\xff\xfe" * 100, ":1: "),
    "another's words": (b"hello\n", ":1: "),
    "a key without its name": (b"ssh-ed25519 AAAA\n", ":1: "),
    "half a key": (b"# ours\n\n \na@example.com ssh-ed25519 AAAA\n", ":4: invalid key: "),
    "unknown option": (b"a@example.com what=1 %s\n", ":1: bad options"),
    "after a good line": (b"operator@example.com %s\nb@example.com rsa x\n", ":2: "),
    "a private key": (b"-----BEGIN OPENSSH PRIVATE KEY-----\nx\n", ": a private key, not the allowed signers: "),
    "huge": (b"#" * (1 << 20) + b"#\n", ": longer than any list"),
}


@needs_keygen
@pytest.mark.parametrize("name", NOT_SIGNERS)
def test_what_is_no_list_of_signers_is_refused_in_one_line(
    run: RunDir, keys: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content, told = NOT_SIGNERS[name]
    sign(run.path, keys / "operator", OPERATOR)
    file = tmp_path / "signers"
    if content is None:
        file.mkdir()
    else:
        key = b" ".join((keys / "operator.pub").read_bytes().split()[:2])
        file.write_bytes(content.replace(b"%s", key))
    assert main(["verify", str(run.path), "--allowed-signers", str(file)]) == 4
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert printed.err.startswith(f"kvgate: {file}{told}")


@needs_keygen
@pytest.mark.parametrize("extra", [b"", b"# whom we know\n\n \t\n", b'*@example.com namespaces="kvgate" %s\n'])
def test_a_list_as_ssh_keygen_takes_it_is_taken(run: RunDir, keys: Path, tmp_path: Path, extra: bytes) -> None:
    sign(run.path, keys / "operator", OPERATOR)
    key = b" ".join((keys / "operator.pub").read_bytes().split()[:2])
    file = tmp_path / "signers"
    file.write_bytes(b"%s\noperator@example.com %s a comment" % (extra.replace(b"%s", key), key))
    assert one(run.path, file).state == GOOD


def test_a_manifest_that_is_gone_from_beside_its_signature_was_there(
    run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    (run.path / MANIFEST).unlink()
    assert main(["verify", str(run.path)]) == 1
    assert "nothing seals this run" in capsys.readouterr().out
    (run.path / signing.FILES[OPERATOR]).write_bytes(b"x")
    assert main(["verify", str(run.path)]) == 1
    told = capsys.readouterr().out
    assert told.startswith(f"{MANIFEST}: missing, though {signing.FILES[OPERATOR]} shows that the run was sealed")
    assert "never" not in told
