"""Make `.venv` hold what a target needs: `python3 install.py core|dev|engine`.

Standard library only, and written so that an old Python can still read it and say what is wrong.
Each level is installed once per content of pyproject.toml. Any failure is one line that says what to do.
"""

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(ROOT, ".venv")
LEVELS = {"core": "", "dev": "[dev]", "engine": "[engine-cpu]"}
# Measured: the engine takes 4.3 GB installed and about as much again while pip unpacks it.
FREE_BYTES = {"core": 1 * 10**9, "dev": 1 * 10**9, "engine": 9 * 10**9}
# The builds of these that the default index carries do not fit the CPU build of torch, and then break the import of
# transformers. Serving text needs none of them.
UNFIT = ["torchvision", "torchaudio", "torchcodec"]


class Refused(Exception):
    """One line: what is wrong and what to do."""


def check_python():
    if sys.version_info < (3, 11):
        raise Refused(
            "Python %s is too old: KVGate needs 3.11 or newer; install it and run `make PYTHON=python3.11 ...`"
            % platform.python_version()
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        raise Refused("Python cannot make a virtual environment: install Debian's package python3-venv") from None


def check_processor(cpuinfo="/proc/cpuinfo"):
    if platform.machine() not in ("x86_64", "AMD64"):
        return
    try:
        with open(cpuinfo, encoding="utf-8", errors="replace") as f:
            flags = [line for line in f if line.startswith("flags")]
    except OSError:
        return
    if flags and "avx2" not in flags[0].split():
        raise Refused(
            "this CPU has no AVX2, which the CPU build of vLLM needs: use a newer machine or a lab site (SITE=)"
        )


def check_disk(level, folder=ROOT):
    free = shutil.disk_usage(folder).free
    if free < FREE_BYTES[level]:
        raise Refused(
            "no room on the disk of %s: %.1f GB free, %.0f GB needed to install; free some or clone elsewhere"
            % (folder, free / 1e9, FREE_BYTES[level] / 1e9)
        )


def stamp_of(level):
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as f:
        return hashlib.sha256(f.read() + sys.version.encode() + level.encode()).hexdigest()


def is_fresh(level):
    try:
        with open(os.path.join(VENV, ".kvgate-" + level), encoding="ascii") as f:
            return f.read().strip() == stamp_of(level) and os.path.exists(python_of_venv())
    except OSError:
        return False


def python_of_venv():
    return os.path.join(VENV, "bin", "python")


def explain(log_text):
    """Return the one line that tells the user why pip failed."""
    network = (
        "Temporary failure in name resolution",
        "Connection refused",
        "Network is unreachable",
        "timed out",
        "Max retries exceeded",
        "NewConnectionError",
        "Could not fetch URL",
        "ConnectionError",
    )
    if "No space left on device" in log_text:
        return "the disk is full: free some space and run the same command again"
    if "torch==" in log_text and "No matching distribution found for torch" in log_text:
        return (
            "pip cannot find the CPU build of torch: set PIP_EXTRA_INDEX_URL to the PyTorch CPU index or "
            "PIP_FIND_LINKS to a folder with the wheel, and run the same command again"
        )
    if any(sign in log_text for sign in network):
        return (
            "no package index can be reached: connect this machine, or set PIP_INDEX_URL to a mirror or "
            "PIP_NO_INDEX=1 and PIP_FIND_LINKS to a folder of wheels, and run the same command again"
        )
    errors = [line for line in log_text.splitlines() if line.startswith("ERROR:")]
    return errors[-1][len("ERROR:") :].strip() if errors else "pip failed"


def run(argv, log_path):
    with open(log_path, "ab") as log:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        with open(log_path, encoding="utf-8", errors="replace") as log:
            text = log.read()
        raise Refused("install: %s (log: %s)" % (explain(text[-200000:]), log_path))


def install(level):
    check_python()
    if level == "engine":
        check_processor()
    if is_fresh(level):
        return
    check_disk(level)
    # Not to stdout: that is for what the target itself prints, as `make draft-site > site.toml`.
    took = " (about 3 minutes)" if level == "engine" else ""
    print("install: %s into .venv, once%s" % (level, took), file=sys.stderr)
    if not os.path.exists(python_of_venv()):
        made = subprocess.run([sys.executable, "-m", "venv", VENV], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if made.returncode != 0:
            shutil.rmtree(VENV, ignore_errors=True)
            raise Refused("Python cannot make a virtual environment: install Debian's package python3-venv")
    log_path = os.path.join(VENV, "install-%s.log" % level)
    open(log_path, "wb").close()
    pip = [python_of_venv(), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    run([*pip, "-e", ROOT + LEVELS[level]], log_path)
    if level == "engine":
        run([python_of_venv(), "-m", "pip", "uninstall", "--disable-pip-version-check", "-y", *UNFIT], log_path)
    with open(os.path.join(VENV, ".kvgate-" + level), "w", encoding="ascii") as f:
        f.write(stamp_of(level) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("level", choices=sorted(LEVELS), nargs="+")
    try:
        for level in parser.parse_args().level:
            install(level)
    except Refused as error:
        print("kvgate: %s" % error, file=sys.stderr)
        return 4
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
