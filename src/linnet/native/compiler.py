"""C to a shared library: the compiler found, flags for this machine, results cached.

Libraries are kept under the user's cache folder by a hash of their text, flags and compiler, and
put there by renaming, so that processes may share them. A digest of what was compiled ends each
file: one that is damaged is made again, since to load it would end the process. The kernels are
compiled once for each instruction set, apart from any model.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from linnet.errors import BackendError

SOURCES = Path(__file__).parent / "c"
CACHE_BYTES = 500_000_000
SEAL = b"linnet compiled\n"
PATIENCE = 900.0  # seconds for one file; a slow machine takes some tens of them
STALE = 3600.0  # seconds after which nobody builds in a folder any more
KERNELS = (
    "team.c",
    "slice.c",
    "dot.c",
    "linear.c",
    "many.c",
    "many_bf16.c",
    "row.c",
    "packed.c",
    "packed_one.c",
    "packed256.c",
    "packed_one256.c",
    "wide_few.c",
    "wide_many.c",
    "attention.c",
    "attend_bf16.c",
    "delta.c",
    "recurrent.c",
    "order.c",
    "choose.c",
    "cache8.c",
)
COMMON = (
    "-std=gnu11", "-O3", "-fPIC", "-fwrapv", "-fno-math-errno", "-fno-trapping-math",
    "-fopenmp-simd", "-fno-semantic-interposition", "-fvisibility=default", "-pthread", "-w",
)  # fmt: skip
# What a machine must have for each level, by the names of /proc/cpuinfo, and the flags.
LEVELS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "avx512": (
        ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16", "fma",
         "f16c", "bmi2"),
        ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni", "-mavx512bf16",
         "-mavx2", "-mfma", "-mf16c", "-mbmi2", "-mprefer-vector-width=512", "-mtune=native"),
    ),
    "avx512f": (
        ("avx512f", "avx512bw", "avx512dq", "avx512vl", "fma", "f16c", "bmi2"),
        ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx2", "-mfma", "-mf16c",
         "-mbmi2", "-mprefer-vector-width=512", "-mtune=native"),
    ),
    "avx2vnni": (("avx2", "fma", "f16c", "bmi2", "avx_vnni"),
                 ("-mavx2", "-mfma", "-mf16c", "-mbmi2", "-mavxvnni", "-mtune=native")),
    "avx2": (("avx2", "fma", "f16c", "bmi2"),
             ("-mavx2", "-mfma", "-mf16c", "-mbmi2", "-mtune=native")),
    "plain": ((), ()),
}  # fmt: skip


@cache
def find_cc() -> str | None:
    """The C compiler: `$CC`, else `cc`, `gcc` or `clang` on the path."""
    named = (os.environ.get("CC") or "").strip()
    for name in [named] if named else ["cc", "gcc", "clang"]:
        found = shutil.which(name.split()[0]) if name else None
        if found:
            return found
    return None


@cache
def cpu_features() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    for line in text.splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def level() -> str:
    """The instruction set to compile for: `$LINNET_NATIVE_LEVEL`, else the best of this machine."""
    wanted = os.environ.get("LINNET_NATIVE_LEVEL")
    for name, (needs, _) in LEVELS.items():
        if set(needs) <= cpu_features() and (wanted is None or wanted == name):
            return name
    if wanted in LEVELS:
        raise BackendError(f"LINNET_NATIVE_LEVEL: this machine does not have all of {wanted}")
    if wanted is not None:
        raise BackendError(f"LINNET_NATIVE_LEVEL is one of {', '.join(LEVELS)}, not {wanted!r}")
    return "plain"


def flags(name: str) -> tuple[str, ...]:
    extra = tuple(os.environ.get("LINNET_NATIVE_CFLAGS", "").split())
    return (*COMMON, *LEVELS[name][1], *extra)


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "linnet" / "native"


@cache
def compiler_version(cc: str) -> str:
    try:
        done = subprocess.run(
            [cc, "--version"], capture_output=True, text=True, errors="replace", check=False,
            timeout=30, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return cc  # whether it compiles, compiling tells
    return done.stdout.splitlines()[0] if done.stdout.strip() else cc


def digest(parts: Sequence[str]) -> str:
    h = hashlib.sha256()
    for part in parts:
        h.update(part.encode() + b"\0")
    return h.hexdigest()[:32]


def run(command: list[str]) -> None:
    """Run a command that makes the file after its `-o`. Raises BackendError where it does not."""
    made = Path(command[command.index("-o") + 1])
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False,
            timeout=PATIENCE, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise BackendError(
            f"the C compiler ({command[0]}) did not end within {PATIENCE:.0f} s"
        ) from None
    except OSError as error:
        raise BackendError(f"the C compiler cannot be run: {error}") from error
    if not done.returncode and not made.is_file():
        raise BackendError(f"the C compiler ({command[0]}) made no file, and no error either")
    if done.returncode:
        detail = "\n".join(done.stderr.strip().splitlines()[:12])
        raise BackendError(f"the C compiler failed ({' '.join(command[:1])}):\n{detail}")


def seal(path: Path) -> None:
    """End a file with its digest; linkers and loaders read no further than its own tables say."""
    data = path.read_bytes()
    with path.open("ab") as file:
        file.write(SEAL + hashlib.sha256(data).digest())


def whole(path: Path) -> bool:
    """Whether a file is there as it was when it was sealed."""
    try:
        if not path.is_file():
            return False
        data = path.read_bytes()
    except OSError:
        return False
    at = len(data) - len(SEAL) - hashlib.sha256().digest_size
    return at > 0 and data[at:] == SEAL + hashlib.sha256(memoryview(data)[:at]).digest()


def build(parts: Sequence[str], threads: int = 2, anew: bool = False) -> Path:
    """A shared library of the C texts `parts` and the kernels, from the cache where it is there
    (`anew`: not from there, since what is there cannot be used).

    Raises BackendError where there is no compiler, or it fails.
    """
    try:
        return _build(parts, threads, anew)
    except OSError as error:
        raise BackendError(f"what is compiled cannot be kept: {error}") from error


def _build(parts: Sequence[str], threads: int, anew: bool) -> Path:
    cc = find_cc()
    if cc is None:
        raise BackendError("there is no C compiler (cc) on the path")
    use = flags(level())
    kernels = {name: (SOURCES / name).read_text() for name in KERNELS}
    headers = {path.name: path.read_text() for path in sorted(SOURCES.glob("*.h"))}
    base = [cc, compiler_version(cc), *use, *headers.values()]
    name = f"{digest([*base, *kernels.values(), *parts])}.so"
    target = cache_folder() / name
    if not anew and whole(target):
        with contextlib.suppress(OSError):  # of others, or just removed by another process
            os.utime(target)
        return target
    folder = writable(cache_folder())
    target = folder / name
    if not anew and whole(target):
        return target
    with tempfile.TemporaryDirectory(dir=folder, prefix="build-") as temporary:
        room = Path(temporary)
        jobs: list[tuple[Path, list[str]]] = []
        objects: list[Path] = []
        moved: list[tuple[Path, Path]] = []
        # What is compiled is the text that the name is a digest of, whatever becomes of the files.
        for name, text in (*headers.items(), *kernels.items()):
            (room / name).write_text(text)
        for name, text in kernels.items():
            kept = folder / f"{digest([*base, text])}.o"
            objects.append(kept)
            if anew or not whole(kept):
                made = room / f"{name}.o"
                moved.append((made, kept))
                jobs.append((made, [cc, *use, "-c", str(room / name), "-o", str(made)]))
        for number, text in enumerate(parts):
            source, made = room / f"part{number}.c", room / f"part{number}.o"
            source.write_text(text)
            objects.append(made)
            jobs.append(
                (
                    made,
                    [
                        cc,
                        *use,
                        "-ffp-contract=off",
                        "-c",
                        str(source),
                        "-o",
                        str(made),
                    ],
                )
            )
        with ThreadPoolExecutor(threads) as pool:
            try:
                list(pool.map(lambda job: run(job[1]), jobs))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        for made, kept in moved:
            seal(made)
            os.replace(made, kept)
        linked = room / "linked.so"
        run([cc, *use, "-shared", *map(str, objects), "-o", str(linked), "-lm", "-pthread"])
        seal(linked)
        os.replace(linked, target)
    prune(folder)
    return target


ROOM = 32 << 20  # bytes that a build may need
_own: dict[int, Path] = {}  # a process's own folder, by its id


def writable(folder: Path) -> Path:
    """The folder where it can be written and has room, else one of this process's own, which
    goes when it ends. Raises BackendError where there is neither."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        if shutil.disk_usage(folder).free >= ROOM:
            return folder
        reason = "its disk is full"
    except OSError as error:
        reason = error.strerror or str(error)
    own = _own.get(os.getpid())
    if own is None:
        try:
            own = Path(tempfile.mkdtemp(prefix="linnet-"))
        except OSError as error:
            raise BackendError(f"{folder}: cannot be used ({reason}), nor {error}") from error
        _own[os.getpid()] = own
        atexit.register(_removed, os.getpid(), own)
        print(
            f"note: {folder} cannot be used ({reason}): what is compiled is not kept",
            file=sys.stderr,
        )
    return own


def _removed(process: int, folder: Path) -> None:
    if os.getpid() == process:  # not in a forked child
        shutil.rmtree(folder, ignore_errors=True)


def prune(folder: Path, most: int = CACHE_BYTES) -> None:
    """Remove what was used longest ago until the folder holds at most `most` bytes, and what a
    process that was killed had begun."""
    found = []
    for path in folder.iterdir():
        try:
            status = path.stat()
        except FileNotFoundError:  # another process was first
            continue
        if path.is_file():
            found.append((status.st_mtime, status.st_size, path))
        elif path.name.startswith("build-") and time.time() - status.st_mtime > STALE:
            shutil.rmtree(path, ignore_errors=True)
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found)[:-1]:
        if total <= most:
            break
        path.unlink(missing_ok=True)
        total -= size


def why_not() -> str | None:
    """Why this machine cannot use the backend, or None."""
    if sys.platform != "linux":
        return f"it is written for Linux, not {sys.platform}"
    return None if find_cc() else "there is no C compiler (cc) on the path"
