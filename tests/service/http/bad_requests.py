"""Requests that a server must refuse, made up at random."""

from __future__ import annotations

import random
import secrets

from tests.fuzz import damaged_bytes
from tests.service.http.raw_connections import Target
from tests.service.servers import fake_upload

from shufflesum.sealing import SEALED_BYTES

__all__ = ["REPORTS", "USERS", "bad_for_a_shuffler", "bad_for_an_analyzer", "request_of"]

USERS, REPORTS = 4, 2

METHODS = [b"POST", b"POST", b"POST", b"PUT", b"GET", b"HEAD", b"DELETE", b"PATCH", b"OPTIONS"]
NAMES = [
    *(b"Authorization", b"Content-Type", b"X-Forwarded-For", b"Accept", b"Cookie", b"Host", b"Forwarded", b"Origin"),
    *(b"Accept-Encoding", b"Content-Encoding", b"Range", b"TE", b"Via", b"X-HTTP-Method-Override", b"Expect"),
]


def printable(source: random.Random, most: int) -> bytes:
    return bytes(source.choices(range(33, 127), k=source.randrange(most)))


def headers(source: random.Random) -> list[bytes]:
    """Some headers that mean nothing here, in bytes that HTTP allows."""
    values = (printable(source, 60), bytes(source.choices(range(128, 256), k=9)), b"", b"100-continue", b"a" * 5000)
    return [source.choice(NAMES) + b": " + source.choice(values) for _ in range(source.randrange(4))]


def request_of(method: bytes, path: bytes, lines: list[bytes], body: bytes) -> bytes:
    """A request that says how long it is, so that another one can follow."""
    head = [method + b" " + path + b" HTTP/1.1", b"Host: x", *lines, b"Content-Length: %d" % len(body)]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def elsewhere(source: random.Random, target: Target) -> bytes:
    """A path that leads nowhere."""
    path = source.choice([target.path, target.path + b"/uploads", target.path + b"/round", b"/healthz", b"/metrics"])
    kind = source.randrange(6)
    if kind == 0:
        return b"/~" + printable(source, 40).replace(b"#", b"").replace(b"?", b"").replace(b"%", b"")
    if kind == 1:
        return path + b"/" + source.choice([b"", b"..", b"%2e%2e/", b"x", b"%00", b"%ff", b"a" * 3000])
    if kind == 2:
        return b"/" + path
    if kind == 3:
        return path.upper()
    if kind == 4:
        return path[:2] + b"%" + source.choice([b"00", b"zz", b"2f", b"ff"]) + path[3:]
    at = source.randrange(1, len(path))
    return path[:at] + b"~" + path[at:]


def bad_for_a_shuffler(source: random.Random, target: Target) -> bytes:
    """A request with at least one thing wrong, and often several."""
    good = fake_upload(target.deployment.task).encode()
    bad = damaged_bytes(source, good, within=38)  # version, task, round: the rest of an upload may be anything
    uploads = target.path + b"/uploads"
    kind = source.randrange(10)
    if kind < 5:
        return request_of(b"POST", uploads + source.choice([b"", b"?", b"?x=1", b"?%ff"]), headers(source), bad)
    if kind < 7:
        return request_of(source.choice(METHODS), elsewhere(source, target), headers(source), good)
    if kind == 7:
        return request_of(source.choice(METHODS[3:]), uploads, headers(source), good)
    if kind == 8:
        guess = source.choice([b"", b"Bearer", b"Bearer " + printable(source, 40), b"Basic " + printable(source, 9)])
        return request_of(b"POST", target.path + b"/release", [b"Authorization: " + guess], bad)
    return request_of(b"POST", target.path.replace(b"/tasks/", b"/tasks/0") + b"/uploads", headers(source), good)


def bad_for_an_analyzer(source: random.Random, target: Target) -> bytes:
    """A batch with at least one thing wrong; that its reports cannot be opened is not among them."""
    right = USERS * REPORTS * SEALED_BYTES
    body = bytes(source.choice([right - 1, right + 1, right + SEALED_BYTES, source.randrange(right), 0]))
    secret = b"Authorization: " + f"Bearer {target.deployment.secret}".encode()
    batch = secrets.token_hex(16).encode()
    query = b"?round=1&users=%d" % USERS
    kind = source.randrange(8)
    if kind == 0:
        secret = b"Authorization: " + source.choice([b"", b"Bearer", b"Bearer ", secret[22:], b"bearer " + secret[22:]])
        body = bytes(right)
    elif kind == 1:
        batch = source.choice(
            [batch.upper() + b"A", batch[:-1], batch + b"0", printable(source, 30).strip(b"?#") or b"-"]
        )
        body = bytes(right)
    elif kind == 2:
        number = source.choice([b"0", b"1001", b"-1", b"%2b1", b"1e1", b"", b"1_0", b"%D9%A1", b"9" * 13, b"1&round=1"])
        query, body = b"?users=%d&round=%s" % (USERS, number), bytes(right)
    elif kind == 3:
        number = source.choice([b"0", b"3", b"-4", b"4.0", b"", b"9" * 12, b"9" * 5000, b"4&users=4", b"%00"])
        query, body = b"?round=1&users=" + number, bytes(right)
    elif kind == 4:
        query, body = source.choice([b"", b"?round=1", b"?users=4", b"?", b"?round&users"]), bytes(right)
    elif kind == 5:
        return request_of(source.choice(METHODS), elsewhere(source, target), [secret, *headers(source)], bytes(right))
    elif kind == 6:
        path = target.path + b"/batches/" + batch + query
        return request_of(source.choice(METHODS[3:]), path, [secret], bytes(right))
    return request_of(b"POST", target.path + b"/batches/" + batch + query, [secret], body)
