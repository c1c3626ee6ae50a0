"""Wheel, sdist and npm package: well described, whole, and working where the source tree is not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path, timeout: float = 600) -> str:
    """What a command prints, with nothing of the source tree in its environment."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV", "SHUFFLESUM"))
    }
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheel and sdist; the wheel is built from the sdist, so that nothing is missing in that."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


def test_twine_finds_nothing_wrong(packages: Path) -> None:
    printed = run(sys.executable, "-m", "twine", "check", "--strict", *packages.iterdir(), cwd=packages)
    assert printed.count("PASSED") == 2


def test_the_wheel_says_what_it_is_and_holds_the_package_alone(packages: Path) -> None:
    (wheel,) = packages.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [name for name in names if name.endswith("/METADATA")]
        said = message_from_string(archive.read(metadata).decode())
    assert said["License-Expression"] == "Apache-2.0"
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13, 14)} <= set(
        said.get_all("Classifier", [])
    )
    assert {name.split("/")[0].split("-")[0] for name in names} == {"shufflesum"}
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in wanted if ".egg-info" not in name} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_sdist_holds_the_package_and_what_builds_it(packages: Path) -> None:
    (sdist,) = packages.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert inside == {"LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg", "src"}


def test_everything_that_is_released_has_one_version(packages: Path) -> None:
    (wheel,) = packages.glob("*.whl")
    version = wheel.name.split("-")[1]
    assert json.loads((ROOT / "clients" / "browser" / "package.json").read_text())["version"] == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text()


def interpreters() -> list[str]:
    """All of Python 3.11 to 3.14 that are here; the one that runs this first."""
    others = [shutil.which(f"python3.{minor}") for minor in range(11, 15) if minor != sys.version_info.minor]
    pyenv = Path.home() / ".pyenv" / "versions"
    others += [
        str(path)
        for minor in range(11, 15)
        for path in sorted(pyenv.glob(f"3.{minor}.*/bin/python"))[:1]
        if minor != sys.version_info.minor
    ]
    found = dict.fromkeys(other for other in others if other)
    # pyenv puts a script in the path for each version, which fails unless that version is chosen.
    return [
        sys.executable,
        *(other for other in found if subprocess.run([other, "-V"], capture_output=True, check=False).returncode == 0),
    ]


@pytest.mark.parametrize("python", interpreters())
def test_the_wheel_alone_runs_demo_plots_and_service_outside_the_source_tree(
    python: str, packages: Path, tmp_path: Path
) -> None:
    (wheel,) = packages.glob("*.whl")
    run(python, "-m", "venv", tmp_path / "env", cwd=tmp_path)
    command = tmp_path / "env" / "bin"
    run(command / "pip", "install", "--quiet", f"{wheel}[files,plots,service]", cwd=tmp_path, timeout=1200)
    assert str(tmp_path) in run(command / "python", "-c", "import shufflesum; print(shufflesum.__file__)", cwd=tmp_path)
    run(command / "shufflesum", "demo", "-o", "demo", cwd=tmp_path)
    assert list((tmp_path / "demo").glob("*.png"))
    (tmp_path / "people.csv").write_text("age\n" + "".join(f"{18 + i % 60}\n" for i in range(2000)))
    target = ["--bounds", "0:120", "--epsilon", "1", "--delta", "1e-6"]
    run(
        command / "shufflesum", "run", "people.csv", *target, "--plot", "mean.svg", "--report", "run.html", cwd=tmp_path
    )
    assert "<svg" in (tmp_path / "mean.svg").read_text()
    assert "<html" in (tmp_path / "run.html").read_text()
    assert "both servers have stopped" in run(command / "python", ROOT / "examples/service.py", cwd=tmp_path)


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed: make setup-browser")
def test_the_browser_module_is_packed_whole_and_runs_from_its_package(tmp_path: Path) -> None:
    client = ROOT / "clients" / "browser"
    (packed,) = json.loads(run("npm", "pack", "--json", "--pack-destination", tmp_path, cwd=client))
    names = {entry["path"] for entry in packed["files"]}
    sources = {path.name for path in client.glob("*.js")} | {"types.d.ts"}
    vendor = {f"vendor/{path.name}" for path in (client / "vendor").iterdir() if path.suffix != ".mjs"}
    assert sources | vendor | {"LICENSE", "README.md", "package.json"} <= names
    assert not [name for name in names if name.startswith(("node_modules", "tests")) or name == "tsconfig.json"]
    with tarfile.open(tmp_path / packed["filename"]) as archive:
        archive.extractall(tmp_path / "node_modules", filter="data")
    (tmp_path / "node_modules" / "package").rename(tmp_path / "node_modules" / "shufflesum")
    for name in ("shufflesum", "shufflesum/shufflesum.min.js"):
        script = f'import {{ Task }} from "{name}"; console.log(typeof Task.load)'
        assert run("node", "--input-type=module", "-e", script, cwd=tmp_path).strip() == "function"
