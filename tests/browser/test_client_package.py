"""The package: small, typed, made of what it says it is made of, and nothing that must not be in it."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from pathlib import Path

import pytest
from tests.browser.node import CLIENT

INSTALLED = pytest.mark.skipif(
    not (CLIENT / "node_modules" / ".installed").exists(),
    reason="what checks the browser client is not installed: make setup-browser",
)
SOURCES = sorted(path for path in CLIENT.glob("*.js") if not path.name.endswith(".min.js"))


def run(*arguments: str) -> str:
    done = subprocess.run(arguments, cwd=CLIENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@INSTALLED
def test_types_are_right() -> None:
    run("node_modules/.bin/tsc")


@INSTALLED
def test_the_type_checker_is_strict_enough_to_find_a_mistake(tmp_path: Path) -> None:
    for path in [*SOURCES, *CLIENT.glob("*.d.ts"), CLIENT / "tsconfig.json"]:
        (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "vendor").symlink_to(CLIENT / "vendor")
    (tmp_path / "node_modules").symlink_to(CLIENT / "node_modules")
    draws = tmp_path / "draws.js"
    draws.write_text(draws.read_text().replace("return drawn % bound", "return String(drawn % bound)"))
    done = subprocess.run([CLIENT / "node_modules/.bin/tsc"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "error TS" in done.stdout


@INSTALLED
@pytest.mark.parametrize(("script", "made"), [("vendor", "vendor/hpke.js"), ("minify", "shufflesum.min.js")])
def test_what_is_made_from_other_files_is_up_to_date(script: str, made: str, tmp_path: Path) -> None:
    command = json.loads((CLIENT / "package.json").read_text())["scripts"][script]
    fresh = tmp_path / "made.js"
    again = command.replace(f"--outfile={made}", f"--outfile={fresh}")
    assert again != command
    run("sh", "-c", f"PATH=node_modules/.bin:$PATH {again}")
    assert fresh.read_text() == (CLIENT / made).read_text(), f"run: npm run {script}"


def test_it_is_one_small_file_with_the_licence_of_what_is_in_it() -> None:
    module = (CLIENT / "shufflesum.min.js").read_bytes()
    assert len(module) < 40_000
    assert (CLIENT / "vendor" / "hpke.LICENSE.md").read_bytes().strip() in module
    size = f"{len(module) / 1000:.0f} kB ({len(gzip.compress(module)) / 1000:.0f} kB compressed)"
    for page in (CLIENT / "README.md", CLIENT.parents[1] / "docs" / "browser.md"):
        assert size in page.read_text()


def test_there_is_no_weak_randomness_and_nothing_is_loaded_from_elsewhere() -> None:
    for path in [*SOURCES, CLIENT / "vendor" / "hpke.js", CLIENT / "shufflesum.min.js"]:
        text = path.read_text()
        assert "Math.random" not in text
        assert not re.search(r"""(?:import\(|from\s*|import\s*)["'`]\s*(?:https?:)?//""", text)
        assert "eval(" not in text
        assert "new Function" not in text
        imported = set(re.findall(r"""(?:from|import)\s*\(?\s*["']([^"']+)["']""", text))
        assert all(name.startswith("./") for name in imported) or path.name == "node.js"


def test_modules_are_short_and_say_what_they_are_for() -> None:
    for path in SOURCES:
        lines = path.read_text().splitlines()
        assert len(lines) <= 400
        assert lines[0].startswith(("//", "/*"))


def test_the_vendored_library_is_the_one_that_is_named() -> None:
    lock = json.loads((CLIENT / "package-lock.json").read_text())
    found = lock["packages"]["node_modules/hpke"]
    page = (CLIENT / "vendor" / "README.md").read_text()
    assert found["integrity"] in page
    assert f"hpke-{found['version']}.tgz" in page
    assert "MIT" in (CLIENT / "vendor" / "hpke.LICENSE.md").read_text()


def test_the_lock_file_names_no_host() -> None:
    lock = json.loads((CLIENT / "package-lock.json").read_text())
    assert all("resolved" not in package for package in lock["packages"].values())


def test_what_is_published_is_whole() -> None:
    package = json.loads((CLIENT / "package.json").read_text())
    for path in [*package["exports"].values(), "./LICENSE", "./README.md", "./types.d.ts"]:
        assert (CLIENT / path).exists()
    assert package["license"] == "Apache-2.0"
    assert (CLIENT / "LICENSE").read_text() == (CLIENT.parents[1] / "LICENSE").read_text()
