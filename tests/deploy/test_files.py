"""Dockerfile, compose file and units: what linters and schemas can say of them, and who can reach whom."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.containers import COMPOSE, REPOSITORY, image

from shufflesum.cli import _group
from shufflesum.cli.commands import option_name, settings
from shufflesum.cli.serve import serve_command

SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SAMPLES = REPOSITORY / "deploy"
ROLES = ("shuffler", "analyzer")
UNITS = sorted(SAMPLES.glob("*.service"))


def tool(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    found = Path(sys.executable).with_name(name)
    return subprocess.run([found, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_a_linter_finds_nothing_in_the_dockerfile(tmp_path: Path) -> None:
    done = tool("hadolint", REPOSITORY / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")
    careless = tmp_path / "Dockerfile"
    careless.write_text("FROM python\nRUN cd /tmp\n")
    assert tool("hadolint", careless).returncode != 0


def test_the_compose_file_follows_its_schema(tmp_path: Path) -> None:
    check = ("--builtin-schema", "vendor.compose-spec")
    done = tool("check-jsonschema", *check, REPOSITORY / "compose.yaml")
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "compose.yaml"
    wrong.write_text((REPOSITORY / "compose.yaml").read_text().replace("read_only:", "readonly:"))
    assert tool("check-jsonschema", *check, wrong).returncode != 0


def test_a_linter_finds_nothing_in_yaml() -> None:
    rules = "line-length: {max: 140}, document-start: disable, comments: {min-spaces-from-content: 1}"
    done = tool(
        "yamllint",
        "--strict",
        "-d",
        f"{{extends: default, rules: {{{rules}}}}}",
        REPOSITORY / "compose.yaml",
        *sorted(SAMPLES.glob("*.yml")),
    )
    assert done.returncode == 0, done.stdout


def test_neither_party_reaches_the_others_database() -> None:
    for role, other in (ROLES, reversed(ROLES)):
        database = set(SERVICES[f"{role}-database"]["networks"])
        assert not database & set(SERVICES[other]["networks"])
        assert not database & set(SERVICES[f"{other}-database"]["networks"])
        assert database & set(SERVICES[role]["networks"])
        assert "ports" not in SERVICES[f"{role}-database"]
        assert all(COMPOSE["networks"][network] == {"internal": True} for network in database)
    assert set(SERVICES["shuffler"]["networks"]) & set(SERVICES["analyzer"]["networks"]) == {"between"}
    assert SERVICES["prepare"]["network_mode"] == "none"


def test_neither_party_holds_the_others_keys() -> None:
    volumes = {name: {volume.split(":")[0] for volume in service["volumes"]} for name, service in SERVICES.items()}
    assert volumes["shuffler"] & volumes["analyzer"] == {"public"}
    for role in ROLES:
        assert volumes[f"{role}-database"] == {f"{role}-db", f"{role}-data"}
        assert all(volume.endswith(":ro") for volume in SERVICES[role]["volumes"])


def test_servers_run_without_rights_and_write_nowhere() -> None:
    assert int(image().user) > 0
    for role in ("prepare", *ROLES):
        service = SERVICES[role]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "user" not in service
        assert "privileged" not in service


@pytest.mark.parametrize("role", ROLES)
def test_the_compose_file_gives_a_server_variables_that_it_knows(role: str) -> None:
    known = {
        f"SHUFFLESUM_{option_name(option).upper().replace('-', '_')}" for option in serve_command.commands[role].params
    }
    given = {name for name in SERVICES[role]["environment"] | image().environment if name.startswith("SHUFFLESUM_")}
    assert given <= known
    assert SERVICES[role]["command"] == ["serve", role]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_finds_nothing_wrong_and_little_exposed(unit: Path, tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed; apt-get install systemd brings it")
    copy = tmp_path / unit.name  # this machine has no /opt/shufflesum
    copy.write_text(unit.read_text().replace("/opt/shufflesum/", f"{sys.prefix}/"))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", copy], capture_output=True, text=True, check=False
    )
    exposure = re.search(r"exposure level .*: ([0-9.]+)", rated.stdout)
    assert exposure is not None
    assert float(exposure[1]) < 2.0  # of 10


@pytest.mark.parametrize("role", ROLES)
def test_units_and_sample_files_agree(role: str) -> None:
    unit = (SAMPLES / f"shufflesum-{role}.service").read_text()
    options = settings(SAMPLES / f"{role}.toml", _group)["serve"][role]
    assert f"shufflesum --config /etc/shufflesum/{role}.toml serve {role}\n" in unit
    assert f"StateDirectory=shufflesum-{role}\n" in unit
    assert str(options["store"]).startswith(f"sqlite:/var/lib/shufflesum-{role}/")
    assert not [value for value in options.values() if f"/etc/shufflesum/{ROLES[role == 'shuffler']}/" in str(value)]


@pytest.mark.parametrize("purpose", ["sslserver", "sslclient"])
def test_the_certificates_that_the_page_says_how_to_make_are_good_for_both_sides(purpose: str, tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "deploy.md").read_text()
    (recipe,) = re.findall(r"```sh\n(umask 077\nopenssl req -x509 .*?)```", page, re.DOTALL)
    subprocess.run(["sh", "-e", "-c", recipe], cwd=tmp_path, check=True, capture_output=True)
    for role, name in product(ROLES, (*ROLES, "localhost")):
        known = ("-CAfile", "ca.pem", "-purpose", purpose, "-verify_hostname", f"{name}.example.org")
        verify = ["openssl", "verify", "-x509_strict", *known, f"{role}/cert.pem"]
        verified = subprocess.run(verify, cwd=tmp_path, capture_output=True, check=False).returncode == 0
        assert verified == (name == role)
        assert (tmp_path / role / "tls.key").stat().st_mode & 0o077 == 0
