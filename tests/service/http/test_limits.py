"""How much one address may ask for."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest
from tests.clocks import FakeClock
from tests.refusals import refusal
from tests.service.http_requests import Answer
from tests.service.processes import ServerProcess
from tests.service.servers import Deployment, StandInAnalyzer, fake_upload

from shufflesum.errors import ParameterError
from shufflesum.service.http import app as access
from shufflesum.service.http.app import AddressLimits, Limits
from shufflesum.service.http.messages import Refusal


def asks(limits: AddressLimits, address: str, **headers: str) -> str | None:
    """The problem of one upload from an address, if any; what a client must wait is a positive number."""
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    try:
        limits.check_upload({"client": (address, 1), "headers": named})
    except Refusal as error:
        return error.problem if int(error.headers["Retry-After"]) >= 1 else "no time to wait"
    return None


def test_uploads_beyond_a_minutes_worth_wait_and_are_let_in_again() -> None:
    clock = FakeClock()
    limits = AddressLimits(Limits(uploads=6), clock)
    assert [asks(limits, "192.0.2.1") for _ in range(7)] == [None] * 6 + ["address-limit"]
    assert asks(limits, "192.0.2.2") is None  # others are not concerned
    clock.wait(9.9)
    assert asks(limits, "192.0.2.1") == "address-limit"
    clock.wait(0.2)
    assert [asks(limits, "192.0.2.1") for _ in range(2)] == [None, "address-limit"]
    clock.wait(3600)
    assert [asks(limits, "192.0.2.1") for _ in range(7)] == [None] * 6 + ["address-limit"]


def test_what_one_holder_has_counts_as_one_address() -> None:
    limits = AddressLimits(Limits(uploads=1))
    assert asks(limits, "2001:db8::1") is None
    assert asks(limits, "2001:db8::ffff:2") == "address-limit"
    assert asks(limits, "2001:db8:0:1::1") is None
    assert asks(limits, "192.0.2.1") is None
    assert asks(limits, "::ffff:192.0.2.1") == "address-limit"


def test_this_machine_has_no_limit_unless_a_proxy_names_addresses() -> None:
    assert not any(asks(AddressLimits(Limits(uploads=1)), "127.0.0.1", x_real_ip="192.0.2.1") for _ in range(3))
    limits = AddressLimits(Limits(uploads=1, address_header="X-Forwarded-For"))
    assert asks(limits, "127.0.0.1", x_forwarded_for="192.0.2.1") is None
    # What a client has written itself stands before what the proxy adds.
    assert asks(limits, "127.0.0.1", x_forwarded_for="198.51.100.9, 192.0.2.1") == "address-limit"
    assert asks(limits, "127.0.0.1", x_forwarded_for="192.0.2.1:4711") == "address-limit"
    assert asks(limits, "127.0.0.1", x_forwarded_for="[2001:db8::1]:4711") is None
    assert asks(limits, "127.0.0.1", x_forwarded_for="2001:db8::2") == "address-limit"
    for nobody in ("unknown", "", "a" * 5000):
        assert asks(limits, "127.0.0.1", x_forwarded_for=nobody) == (None if nobody == "unknown" else "address-limit")
    assert [asks(limits, "127.0.0.1") for _ in range(2)] == [None, "address-limit"]  # around the proxy


def test_addresses_are_forgotten_and_a_flood_of_them_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "_MOST_ADDRESSES", 10)
    clock = FakeClock()
    limits = AddressLimits(Limits(uploads=2), clock)
    for last in range(50):
        asks(limits, f"192.0.2.{last}")
    assert len(limits._left) == 10
    clock.wait(60)
    asks(limits, "198.51.100.1")
    assert list(limits._left) == ["198.51.100.1"]


@pytest.mark.parametrize("values", [(-1, 0), (0, -1)])
def test_limits_below_nothing_are_refused(values: tuple[int, int]) -> None:
    with refusal("out-of-range", "per-address", error=ParameterError):
        Limits(*values)


def _not_loopback() -> None:
    access.is_loopback = lambda host: False  # type: ignore[attr-defined]  # tests have no other address


def reads(connection: socket.socket) -> bytes:
    said = b""
    with contextlib.suppress(ConnectionError):
        while not said.endswith((b"ok\n", b"}")) and (piece := connection.recv(4096)):
            said += piece
    return said


@pytest.mark.parametrize("role", ["shuffler", "analyzer"])
def test_connections_beyond_the_limit_are_told_to_come_back(tmp_path: Path, role: str) -> None:
    deployment = Deployment.small(tmp_path)
    options = ("--connections-per-address", "3")
    if role == "shuffler":
        started = deployment.shuffler("http://127.0.0.1:1", *options, prepare=_not_loopback)
    else:
        started = deployment.analyzer("--processes", "1", *options, prepare=_not_loopback)
    with started as server, contextlib.ExitStack() as stack:

        def connect() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))

        ask = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
        held = [connect() for _ in range(3)]
        for connection in held:
            connection.sendall(ask)
            assert b" 200 " in reads(connection)
        for _ in range(5):
            fourth = connect()
            fourth.sendall(ask)
            said = reads(fourth)
            assert b"HTTP/1.1 429 " in said
            assert b"urn:shufflesum:problem:address-limit" in said
            assert b"retry-after: " in said
        assert reads(connect()) == b""  # whoever says nothing is sent away as well
        held[0].close()
        for connection in held[1:]:
            connection.sendall(ask)
            assert b" 200 " in reads(connection)
        assert server.request("GET", "/healthz").status == 200


def test_uploads_beyond_the_limit_are_refused_and_count_later(tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path, users=5)
    options = ("--uploads-per-address", "3", "--address-header", "X-Forwarded-For")

    def send(server: ServerProcess, address: str) -> Answer:
        return server.upload(fake_upload(deployment.task), headers={"X-Forwarded-For": address})

    with StandInAnalyzer() as analyzer, deployment.shuffler(analyzer.url, *options) as server:
        answers = [send(server, "192.0.2.1") for _ in range(4)]
        assert [answer.status for answer in answers] == [201, 201, 201, 429]
        assert (answers[-1].problem, answers[-1].json["retry"]) == ("address-limit", "not-yet")
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 20
        assert [send(server, "192.0.2.2").status for _ in range(2)] == [201, 201]
        assert analyzer.wait_for(1)[0].users == 5
        assert "192.0.2" not in server.log.read_text()
