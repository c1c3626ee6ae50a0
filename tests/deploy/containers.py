"""Services of compose.yaml without a container engine: the image's root as read-only mounts, its user, its command.

What the Dockerfile and the compose file say is taken from them: entry point, variables, user, volumes, what may be
written to. Names of services are addresses on loopback, so that several tests can run beside each other.
"""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml

__all__ = ["COMPOSE", "REPOSITORY", "Composed", "image", "why_no_containers"]

REPOSITORY = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())

_IN_NAMESPACE = r"""
set -eu
mount --make-rprivate /
root=$1/root tmp=$1/tmp/$2
mount -t tmpfs -o mode=755 tmpfs "$root"
for name in bin sbin lib lib32 lib64 libx32 usr; do
    if [ -L "/$name" ]; then cp -P "/$name" "$root/$name"; continue; fi
    [ -d "/$name" ] || continue
    mkdir "$root/$name"; mount --rbind "/$name" "$root/$name"; mount -o remount,bind,ro "$root/$name"
done
for path in /dev /proc; do mkdir "$root$path"; mount --rbind "$path" "$root$path"; done
mkdir -p "$root/etc" "$root/tmp" "$root/var/lib/shufflesum" "$root/opt/shufflesum"
for name in ld.so.cache nsswitch.conf ssl passwd group localtime; do
    [ ! -e "/etc/$name" ] || cp -rL "/etc/$name" "$root/etc/" 2>/dev/null
done
cp "$1/hosts" "$root/etc/hosts"
mount --bind "$tmp" "$root/tmp"; mount -o remount,bind,noexec,nosuid,nodev "$root/tmp" # as engines mount a tmpfs
mkdir -p "$root/tmp/kernels"; mount --bind "$KERNELS" "$root/tmp/kernels"
mount -o remount,bind,noexec,nosuid,nodev "$root/tmp/kernels"
for path in $PYTHON_AT; do
    mkdir -p "$root$path"; mount --bind "$path" "$root$path"; mount -o remount,bind,ro "$root$path"
done
ln -s "$BINARIES" "$root/opt/shufflesum/bin"
cp -r "$REPOSITORY/deploy" "$root/opt/shufflesum/deploy"
shift 2
while [ "$1" != -- ]; do
    volume=${1%%=*} rest=${1#*=}; target=${rest%:*} mode=${rest##*:}
    mkdir -p "$root$target"; mount --bind "$volume" "$root$target"; mount -o "remount,bind,$mode" "$root$target"
    shift
done
shift
mount -o remount,ro "$root"
exec chroot "$root" setpriv --reuid "$USER_ID" --regid "$USER_ID" --clear-groups --no-new-privs --bounding-set=-all \
    --inh-caps=-all --pdeathsig KILL /usr/bin/env -i "$@"
"""


@dataclass(frozen=True)
class Image:
    """What the Dockerfile says of the image that comes out at its end."""

    entrypoint: list[str]
    environment: dict[str, str]
    user: str
    health: list[str]


@cache
def image() -> Image:
    text = (REPOSITORY / "Dockerfile").read_text().replace("\\\n", " ")
    last = text.rpartition("\nFROM ")[2]
    lines = dict(re.findall(r"^([A-Z]+) +(.*)$", last, flags=re.MULTILINE))
    variables = dict(item.split("=", 1) for item in shlex.split(lines["ENV"]))
    variables["PATH"] = variables["PATH"].replace("$PATH", "/usr/local/bin:/usr/bin:/bin")
    return Image(
        json.loads(lines["ENTRYPOINT"]),
        variables,
        lines["USER"].partition(":")[0],
        json.loads(lines["HEALTHCHECK"].partition("CMD ")[2]),
    )


@dataclass
class Composed:
    """The services of compose.yaml, with folders for volumes; `variables` are those of the shell that runs compose."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.chmod(0o755)
        (self.folder / "root").mkdir()
        (self.folder / "hosts").write_text(
            "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in self.addresses.items())
        )

    @cached_property
    def addresses(self) -> dict[str, str]:
        """Each service's address: on a network of this test's own, out of the sixteen million of loopback."""
        source = random.SystemRandom()
        network = f"127.{source.randrange(1, 255)}.{source.randrange(256)}"
        return {name: f"{network}.{number}" for number, name in enumerate(COMPOSE["services"], start=1)}

    def volume(self, name: str) -> Path:
        """A volume's folder, made with owner and mode as the image has them where it is mounted."""
        path = self.folder / "volumes" / name
        if not path.exists():
            path.mkdir(parents=True)
            os.chown(path, int(image().user), int(image().user))
            path.chmod(0o700 if name in ("shuffler", "analyzer") else 0o755)
        return path

    def environment(self, name: str) -> dict[str, str]:
        said = COMPOSE["services"][name].get("environment", {})
        return image().environment | {
            key: re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: self.variables.get(found[1], found[2]), str(value))
            for key, value in said.items()
        }

    def command(self, name: str) -> list[str]:
        service = COMPOSE["services"][name]
        return [*service.get("entrypoint", image().entrypoint), *service["command"]]

    def start(self, name: str, command: list[str] | None = None, **streams: Any) -> subprocess.Popen[bytes]:
        """A service's process, in a root of its own; or another command in its place."""
        service = COMPOSE["services"][name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        temporary = self.folder / "tmp" / name
        temporary.mkdir(parents=True, exist_ok=True)
        temporary.chmod(0o1777)
        environment = self.environment(name) | {"SHUFFLESUM_HOST": self.addresses[name]} | _bytecode()
        mounts = [(self.volume(volume), *_target(rest)) for volume, _, rest in _volumes(service)]
        return subprocess.Popen(
            [
                *("unshare", "--mount", "sh", "-c", _IN_NAMESPACE, "container", str(self.folder), name),
                *(f"{volume}={target}:{mode}" for volume, target, mode in mounts),
                *("--", *(f"{key}={value}" for key, value in environment.items())),
                *(command or self.command(name)),
            ],
            env={
                "PATH": os.environ["PATH"],
                "REPOSITORY": str(REPOSITORY),
                "BINARIES": str(Path(sys.executable).parent),
                "PYTHON_AT": " ".join(dict.fromkeys([str(REPOSITORY), sys.prefix, sys.base_prefix])),
                "USER_ID": image().user,
                "KERNELS": str(_kernels()),
            },
            **streams,
        )

    def run(self, name: str, command: list[str] | None = None) -> subprocess.CompletedProcess[bytes]:
        process = self.start(name, command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        out, _ = process.communicate(timeout=120)
        return subprocess.CompletedProcess([], process.returncode, out)

    def healthy(self, name: str) -> bool:
        return self.run(name, image().health).returncode == 0


def _kernels() -> Path:
    """Machine code, kept between tests: each would else compile it anew, as each new container does.

    `make test` keeps its own there, too: what is compiled for either is compiled for both.
    """
    path = Path(sys.prefix) / "kernels"
    path.mkdir(exist_ok=True)
    for folder in (path, *filter(Path.is_dir, path.iterdir())):
        os.chown(folder, int(image().user), int(image().user))
    assert image().environment["NUMBA_CACHE_DIR"] == "/tmp/kernels"
    return path


def _bytecode() -> dict[str, str]:
    """Where this process keeps its bytecode: an image has it beside its sources, which else each container compiles."""
    return {"PYTHONPYCACHEPREFIX": sys.pycache_prefix} if sys.pycache_prefix else {}


def _volumes(service: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [volume.partition(":") for volume in service["volumes"]]


def _target(mount: str) -> tuple[str, str]:
    path, _, mode = mount.partition(":")
    return path, mode or "rw"


def why_no_containers() -> str | None:
    """Why private mounts cannot be had here, or None where they can."""
    if os.getuid() != 0 or not shutil.which("unshare") or not shutil.which("setpriv"):
        return "private mounts need root, unshare and setpriv"
    tried = subprocess.run(["unshare", "--mount", "mount", "--make-rprivate", "/"], capture_output=True, check=False)
    return None if tried.returncode == 0 else "this machine allows no private mounts"
