"""The client: randomizes on the user's own machine, seals, sends until the shuffler has it, and asks for estimates.

Taking part must not depend on the data, so they are moved into the plan's domain (`Domain.coercion`). *Once*, at the
client, is who has contributed to which round of which task, and with which bytes. An upload is written there before it
is first sent. Whatever happens then, a lost answer or a killed process, the same bytes under the same upload id go out
again, so that a shuffler recognises them and nobody counts twice.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from shufflesum._compiled import can_compile
from shufflesum._machine import SYSTEM_CLOCK, Clock
from shufflesum.errors import FileError, ParameterError, ShufflesumError
from shufflesum.estimate import BaseEstimate
from shufflesum.protocol import Randomizer, UnverifiedRandomizer
from shufflesum.service.http import messages
from shufflesum.service.http.messages import WebClient
from shufflesum.wire import Task, TaskError, Upload

__all__ = [
    "Client",
    "ContributedError",
    "Contributions",
    "Receipt",
    "RefusedError",
    "UnreachableError",
    "estimates_in",
    "fetch_estimate",
]

FORMAT = "shufflesum-contributions-1"

_MAX_LABEL = 1000
_TABLES = (
    "CREATE TABLE format (name TEXT NOT NULL)",
    f"INSERT INTO format VALUES ('{FORMAT}')",
    "CREATE TABLE contributions (task TEXT NOT NULL, label TEXT NOT NULL, round INTEGER NOT NULL, "
    "expires TEXT NOT NULL, upload BLOB, PRIMARY KEY (task, label, round)) WITHOUT ROWID",
)
_FIND = "SELECT upload FROM contributions WHERE task = ? AND label = ? AND round = ?"


def default_contributions() -> Path:
    """Where contributions are remembered: `SHUFFLESUM_CONTRIBUTIONS`, or a file in the user's data folder."""
    chosen = os.environ.get("SHUFFLESUM_CONTRIBUTIONS")
    if chosen:
        return Path(chosen)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "shufflesum" / "contributions.sqlite"


class Contributions:
    """Contributions by (task, user label, round), in a file that several processes may share.

    A contribution is pending, with its bytes, until the shuffler has acknowledged it; then only the fact is kept.
    """

    def __init__(self, path: str | Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        with self._explained():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # For its owner only: pending uploads are sealed, but who took part is nobody's business.
            os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600))
            self._connection = sqlite3.connect(
                self.path, timeout=30, isolation_level=None, check_same_thread=False, cached_statements=32
            )
        try:
            with self._transaction():
                self._make_or_check()
            with self._explained():
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = FULL")
                self._connection.execute("PRAGMA secure_delete = ON")
                self._delete_expired_bytes(clock.now())
        except BaseException:
            self._connection.close()
            raise

    def known(self, task: Task, labels: Sequence[str], round_number: int) -> dict[str, bytes | None]:
        """Of these users, those who have contributed: None if acknowledged, else the pending bytes."""
        found: dict[str, bytes | None] = {}
        with self._explained(), self._lock:
            for label in labels:
                row = self._connection.execute(_FIND, (task.id, _checked(label), round_number)).fetchone()
                if row is not None:
                    found[label] = row[0]
        return found

    def claim(self, task: Task, round_number: int, uploads: Mapping[str, bytes]) -> dict[str, bytes | None]:
        """Remember uploads, durably, before they are sent; returns what is to be sent for each label.

        Where a contribution is known already the first one stands: its pending bytes, or None if acknowledged.
        """
        expires = task.expires.isoformat()
        with self._transaction() as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO contributions VALUES (?, ?, ?, ?, ?)",
                [(task.id, _checked(label), round_number, expires, upload) for label, upload in uploads.items()],
            )
            return {label: connection.execute(_FIND, (task.id, label, round_number)).fetchone()[0] for label in uploads}

    def acknowledge(self, task: Task, round_number: int, labels: Sequence[str]) -> None:
        """Remember that uploads were taken, and drop their bytes."""
        with self._transaction() as connection:
            connection.executemany(
                "UPDATE contributions SET upload = NULL WHERE task = ? AND label = ? AND round = ?",
                [(task.id, label, round_number) for label in labels],
            )

    def close(self) -> None:
        """Close the file; everything in it is durable already."""
        self._connection.close()

    def __enter__(self) -> Contributions:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make_or_check(self) -> None:
        tables = {name for (name,) in self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables:
            for statement in _TABLES:
                self._connection.execute(statement)
            return
        known = "format" in tables and self._connection.execute("SELECT name FROM format").fetchone()
        if known != (FORMAT,):
            raise FileError(
                "format-mismatch",
                f"{self.path} holds no contributions in the format {FORMAT}, but tables of another version or program "
                f"({', '.join(sorted(tables))[:100]}); finish older tasks with the version that began them, and name "
                "another file for this one (contributions=)",
            )

    def _delete_expired_bytes(self, now: datetime) -> None:
        """What was never acknowledged and never can be is not kept; that it was tried still is."""
        self._connection.execute(
            "UPDATE contributions SET upload = NULL WHERE upload IS NOT NULL AND expires < ?", (now.isoformat(),)
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._explained(), self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except FileError:
            raise
        except (sqlite3.Error, OSError) as error:
            raise FileError(
                "unreadable",
                f"the contributions in {self.path} cannot be used: {error}; nothing is sent without them, because "
                "nobody must count twice: name a file that you may write (contributions=)",
            ) from error


def _checked(label: str) -> str:
    if not isinstance(label, str) or not label.strip() or len(label) > _MAX_LABEL:
        raise ParameterError(
            "out-of-range",
            f"a user's label must be text of 1 to {_MAX_LABEL} characters",
            value=f"{label!r:.80}",
        )
    return label


_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
_LONGEST_ANSWER, _SLOWEST = 60.0, 4096  # seconds for a request and its answer, and bytes a second of an upload
_CHUNK = 256  # uploads that share one durable write of contributions
_WORTH_COMPILING = 256  # rows: for fewer, sealing included, compiling takes longer than it saves
_SENDERS = 8

Contribution = Literal["accepted", "repeated", "earlier"]


class ContributedError(ShufflesumError):
    """This user has contributed to this round of this task already."""


class _StoppedError(ShufflesumError):
    """An upload was not tried any further because another one failed; it is among the contributions."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """One user's contribution to a round: accepted now, repeated (the shuffler had it before), or made earlier."""

    user: str
    round_number: int
    contribution: Contribution


class Client:
    """Sends users' arrays or labels to a task's shuffler, privately and once each.

    `contributions` is where they are remembered (a file in the user's data folder unless given), `timeout` how many
    seconds to try before giving up, `ca_file` a file of certificates to trust instead of the system's. Plain HTTP
    is refused to anything but this machine unless `allow_plain_http`.
    """

    def __init__(
        self,
        task: Task,
        *,
        contributions: Contributions | str | Path | None = None,
        timeout: float = 60.0,
        allow_plain_http: bool = False,
        ca_file: str | Path | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if task.expired_at(clock.now()):
            raise TaskError("expired", f"task {task.name!r} expired at {task.expires}; ask for a new task file")
        if not timeout > 0:
            raise ParameterError("out-of-range", f"timeout is {timeout}; it must be a positive number of seconds")
        self.task = task
        self._timeout = timeout
        self._clock = clock
        self._web = WebClient(task.shuffler, allow_plain_http=allow_plain_http, ca_file=ca_file)
        self._owns_contributions = not isinstance(contributions, Contributions)
        self._contributions = (
            contributions
            if isinstance(contributions, Contributions)
            else Contributions(contributions or default_contributions(), clock)
        )
        self._coercion = task.plan.domain.coercion()
        self._randomizer: Randomizer | None = None  # the last one, because making one can take longer than using it

    def upload(
        self, held: Any, *, user: str = "me", round_number: int | None = None, token: str | None = None
    ) -> Receipt:
        """Randomize what one user holds, seal it and send it; returns once the shuffler has it for good.

        That is an array, or what else the task asks for: a label, a list of labels, a pair of group and array, a word.
        It is moved into the plan's domain; a label that has no place there is refused, and nothing is sent.
        Without a `round_number` it goes to the round that is open. Refused with `ContributedError` if this user has
        contributed to that round. If an earlier attempt was not acknowledged, its bytes are sent again, whatever
        `held` says now.
        """
        tokens = None if token is None else [token]
        (receipt,) = self.upload_many(self._coercion.wrap_one(held), [user], round_number=round_number, tokens=tokens)
        if receipt.contribution == "earlier":
            raise ContributedError(
                "duplicate-contribution",
                f"this user has contributed to round {receipt.round_number} of task {self.task.name!r} already; "
                "each user counts once in a round: wait for the next, or give another user's label",
                value=repr(user),
            )
        return receipt

    def upload_many(
        self,
        arrays: Any,
        users: Sequence[str],
        *,
        round_number: int | None = None,
        tokens: Sequence[str] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[Receipt]:
        """One upload for each row of `arrays`; users who have contributed are passed over (`earlier`).

        Rows may also be labels, lists of labels, or a pair of groups and arrays, as for `Randomizer.randomize`. A label
        that has no place in the plan is refused before anything is sent.

        The first refusal ends it with an error; what was sent is remembered, so that a second call goes on from there.
        """
        round_number = self.open_round() if round_number is None else round_number
        self.task.check_round(round_number)
        rows: Any = self.task.plan.domain.rows(arrays)
        if len(users) != len(rows) or len(set(users)) != len(users):
            raise ParameterError(
                "conflicting-arguments",
                f"{len(users)} user labels, {len(set(users))} different, for {len(rows)} rows; "
                "give each row a label of its own",
            )
        if tokens is not None and len(tokens) != len(rows):
            raise ParameterError(
                "too-few-tokens", f"{len(tokens)} tokens for {len(rows)} rows; every upload spends one of its own"
            )
        for token in tokens or ():
            if not token.isascii() or not token.isprintable() or " " in token:
                raise ParameterError(
                    "malformed",
                    "one of the tokens is none; give one line of a file of shufflesum tokens for each",
                    value=f"{token[:80]!r}",
                )
        randomizer = self._randomizer_for(round_number, compiled=can_compile() and len(rows) >= _WORTH_COMPILING)
        with randomizer.kernels():
            self._coercion.validate(rows)
        receipts: list[Receipt] = []
        with ThreadPoolExecutor(min(_SENDERS, len(rows))) as senders:
            for start in range(0, len(rows), _CHUNK):
                here = slice(start, start + _CHUNK)
                spent = [None] * len(rows[here]) if tokens is None else list(tokens[here])
                receipts += self._send_chunk(senders, randomizer, rows[here], users[here], spent)
                if progress is not None:
                    progress(len(receipts))
        return receipts

    def open_round(self) -> int:
        """The round that is open, asked of the shuffler where the task has several."""
        if self.task.rounds == 1:
            return 1
        answer = self._ask_until(200, None, "GET", "round")
        found = messages.read_answer(answer.body, messages.OpenRound)
        if found is None:
            raise RefusedError("bad-answer", f"{self.task.shuffler} did not say which round is open", final=True)
        if found.open_round is None:
            raise RefusedError(
                "round-closed", f"all {self.task.rounds} rounds of task {self.task.name!r} are closed", final=True
            )
        return found.open_round

    def acknowledged(self, users: Sequence[str], round_number: int) -> int:
        """How many of these users' contributions to a round the shuffler has acknowledged."""
        return sum(body is None for body in self._contributions.known(self.task, users, round_number).values())

    def close(self) -> None:
        """Close connections, and the contributions if this client opened them."""
        self._web.close()
        if self._owns_contributions:
            self._contributions.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send_chunk(
        self,
        senders: ThreadPoolExecutor,
        randomizer: Randomizer,
        rows: Any,
        users: Sequence[str],
        tokens: Sequence[str | None],
    ) -> list[Receipt]:
        round_number = randomizer.round_number
        known = self._contributions.known(self.task, users, round_number)
        fresh = [i for i, user in enumerate(users) if user not in known]
        sealed = {users[i]: self._seal(randomizer, rows[i : i + 1]) for i in fresh}
        to_send = known | self._contributions.claim(self.task, round_number, sealed)
        stop = threading.Event()
        jobs = [
            (user, senders.submit(self._send, body, token, stop))
            for user, token in zip(users, tokens, strict=True)
            if (body := to_send[user]) is not None
        ]
        made: dict[str, Contribution] = {}
        failures: list[ShufflesumError] = []
        try:
            for user, job in jobs:
                try:
                    made[user] = job.result()
                except _StoppedError:
                    continue
                except ShufflesumError as error:
                    failures.append(error)
        finally:
            stop.set()  # an interrupt must not wait for everybody's timeout
            self._contributions.acknowledge(self.task, round_number, list(made))
        if failures:
            raise failures[0]
        return [Receipt(user, round_number, made.get(user, "earlier")) for user in users]

    def _seal(self, randomizer: Randomizer, row: Any) -> bytes:
        reports = randomizer.randomize(self._coercion.clamp(row))
        return Upload.seal(self.task, reports, randomizer.round_number).encode()

    def _randomizer_for(self, round_number: int, *, compiled: bool) -> Randomizer:
        last = self._randomizer
        if last is None or last.round_number != round_number or (compiled and not last.compiled):
            kind = Randomizer if self.task.verified else UnverifiedRandomizer
            self._randomizer = last = kind(
                self.task.plan,
                clip=self._coercion.clip,
                missing=self._coercion.missing,
                round_number=round_number,
                compiled=compiled,
            )
        return last

    def _send(self, body: bytes, token: str | None, stop: threading.Event) -> Contribution:
        """Post the same bytes until they are acknowledged; a failure stops all others that have not begun."""
        headers = {"Content-Type": "application/octet-stream"}
        if token is not None:
            headers["Authorization"] = f"Token {token}"
        try:
            self._ask_until(201, stop, "POST", "uploads", body=body, headers=headers)
        except ShufflesumError as error:
            if isinstance(error, RefusedError) and error.problem == "repeated":
                return "repeated"  # it had arrived, and only the answer was lost
            stop.set()
            raise
        return "accepted"

    def _ask_until(
        self, yes: int, stop: threading.Event | None, method: str, path: str, *, body: bytes = b"", **request: Any
    ) -> messages.Answer:
        """Ask until the status is `yes`; raises the refusal that is final, or the last one when time is up."""
        import httpx

        seconds = _LONGEST_ANSWER + len(body) / _SLOWEST
        stop = stop or threading.Event()
        end = self._clock.monotonic() + self._timeout
        pause = _FIRST_PAUSE
        while not stop.is_set():
            wait = 0.0
            problem: RefusedError | UnreachableError
            try:
                answer = self._web.ask(
                    method, f"/tasks/{self.task.id}/{path}", seconds=seconds, body=body or None, **request
                )
            except messages.BadAnswerError as error:
                raise problem_of(self.task.shuffler, error) from error
            except (httpx.RequestError, TimeoutError) as error:
                reason = messages.why_unreachable(error)
                problem = UnreachableError(
                    "unreachable",
                    f"the shuffler {self.task.shuffler} did not answer within {self._timeout:g} s "
                    f"({reason}); uploads are kept: send again later, the same bytes will go",
                )
                if reason == messages.NOT_TRUSTED:
                    raise UnreachableError(
                        "untrusted",
                        f"the shuffler {self.task.shuffler} cannot be trusted ({error}); uploads are kept: give its "
                        "certificate authority (ca_file=), then send again",
                    ) from error
            else:
                if answer.status == yes:
                    return answer
                problem = problem_of(self.task.shuffler, answer)
                if problem.final:
                    raise problem
                wait = _seconds(answer.headers.get("retry-after"))
            # Up to twice as long at random, so that a crowd does not come back all at once.
            wait = max(wait, pause) * random.uniform(1, 2)
            if self._clock.monotonic() + wait > end:
                raise problem
            self._clock.wait(wait, stop)
            pause = min(2 * pause, _LONGEST_PAUSE)
        raise _StoppedError("stopped", "not sent, because another upload failed")


def _seconds(header: str | None) -> float:
    """Retry-After in seconds, within reason; a date or nonsense is no answer."""
    return min(float(header), 60.0) if header is not None and header.isascii() and header.isdigit() else 0.0


# ---- How a client reads what servers answer: a refusal, an analyzer's estimates, and where both servers stand.


class RefusedError(ShufflesumError):
    """The server said no; `problem` is its stable name for the reason, `final` whether it will never say yes."""

    def __init__(
        self, problem: str, message: str, *, final: bool = True, value: str | None = None, row: int | None = None
    ) -> None:
        super().__init__(problem, message, value=value, row=row)
        self.final = final

    def __reduce__(self) -> tuple[Any, ...]:
        """Whether it is final travels along."""
        return partial(RefusedError, final=self.final), (self.problem, str(self))


class UnreachableError(ShufflesumError, ConnectionError):
    """No answer came in time; uploads stay among the contributions, and the same bytes can be sent again."""


def unreachable(url: str, error: Exception) -> UnreachableError:
    """Why a server that was asked something has not answered, as an error."""
    reason = messages.why_unreachable(error)
    if reason == messages.NOT_TRUSTED:
        return UnreachableError(
            "untrusted", f"{url} cannot be trusted ({error}); give its certificate authority (ca_file=)"
        )
    return UnreachableError("unreachable", f"{url} did not answer ({reason}); see that the server runs")


def problem_of(url: str, answer: messages.Answer | messages.BadAnswerError) -> RefusedError:
    """A server's refusal as an error; of what is no problem document only the status counts."""
    if isinstance(answer, messages.BadAnswerError) or answer.status < 400:
        found = f"status {answer.status}" if isinstance(answer, messages.Answer) else str(answer)
        return RefusedError(
            "bad-answer",
            f"{url} did not answer as our servers do ({found}): something else is at this address, or in between; see "
            "the address, or try from another network",
            final=True,
        )
    name, detail, retry = messages.parse_problem(answer.body)
    if name is None:
        # A gateway in between may be having a bad moment; a plain 4xx will not change its mind.
        passing = answer.status >= 500 or answer.status in (408, 425, 429)
        name, detail = f"http-{answer.status}", f"{detail} (status {answer.status})"
    else:
        passing = retry == "not-yet"
    hint = "try again later" if passing else "sending the same again will not help"
    return RefusedError(name, f"{url} refused: {detail[:500]}; {hint}", final=not passing)


_PAUSE = 0.5  # seconds between two questions
_SECONDS = 10.0  # for a short answer


def fetch_estimate(
    task: Task,
    url: str,
    *,
    round_number: int | None = None,
    wait: float = 0.0,
    allow_plain_http: bool = False,
    ca_file: str | Path | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> dict[str, Any]:
    """The analyzer's answer for a task: every released round's estimate, or that of one round.

    Where there is none yet, or no answer, it is asked again for `wait` seconds; then `RefusedError` or
    `UnreachableError` tells why, and at once where waiting would not help. Tables of counts are asked for, and the rest
    is checked by them; `estimates_in` makes estimates of it, as the library's, which can be asked for more.
    """
    end = clock.monotonic() + wait
    with WebClient(url, allow_plain_http=allow_plain_http, ca_file=ca_file) as web:
        while True:
            try:
                return _estimates(task, web, round_number)
            except (RefusedError, UnreachableError) as error:
                passing = error.problem == "unreachable" if isinstance(error, UnreachableError) else not error.final
                if not passing or clock.monotonic() + _PAUSE > end:
                    raise
            clock.wait(_PAUSE)


def _estimates(task: Task, web: WebClient, round_number: int | None) -> dict[str, Any]:
    query = {"table": 1} | ({} if round_number is None else {"round": round_number})
    most = _most_bytes(task, round_number)
    try:
        document = _document(
            task, web, "estimate", "an analyzer", params=query, most=most, seconds=3 * _SECONDS + most / 1e6
        )
        rounds = document["rounds"]
        known = rounds and all(_is_round(found, task) for found in rounds)
        known = known and (round_number is None or [found["round"] for found in rounds] == [round_number])
    except RefusedError as refused:
        if refused.problem != "not-found":
            raise
        raise RefusedError(
            "not-found", f"{web.url} is no analyzer's address (a shuffler's?); ask the analyzer", final=True
        ) from refused
    except (ValueError, KeyError, TypeError, AttributeError):
        known = False
    if not known:
        raise _no_answer_of(web, "an analyzer", task)
    return document


def _most_bytes(task: Task, round_number: int | None) -> int:
    """More than any answer with estimates has: of each round its table, figures of every entry, names and labels."""
    plan = task.plan
    figures = 12 * plan.cells + 512 * plan.dimension + 2 * len(plan.to_json())
    return (1 << 20) + (task.rounds if round_number is None else 1) * (figures + (1 << 16))


def _document(task: Task, web: WebClient, path: str, whose: str, **request: Any) -> dict[str, Any]:
    """What a server answers for a task, as JSON of that task."""
    import httpx

    try:
        answer = web.ask("GET", f"/tasks/{task.id}/{path}", **request)
    except (httpx.RequestError, TimeoutError) as error:
        raise unreachable(web.url, error) from error
    except messages.BadAnswerError as error:
        raise problem_of(web.url, error) from error
    if answer.status != 200:
        raise problem_of(web.url, answer)
    try:
        document: dict[str, Any] = json.loads(answer.body, parse_constant=_refuse_constant)
        known = document["task"] == task.id
    except (ValueError, KeyError, TypeError, RecursionError):
        known = False
    if not known:
        raise _no_answer_of(web, whose, task)
    return document


def _no_answer_of(web: WebClient, whose: str, task: Task) -> RefusedError:
    return RefusedError("bad-answer", f"{web.url} did not answer as {whose} of task {task.id[:12]}", final=True)


def estimates_in(task: Task, document: dict[str, Any]) -> dict[int, BaseEstimate]:
    """The estimate of each round, from an answer of `fetch_estimate`."""
    return {found["round"]: messages.round_from_json(task.plan, found) for found in document["rounds"]}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _is_round(found: dict[str, Any], task: Task) -> bool:
    """Whether a round of an answer has all that is shown of it, and all of it follows from its table."""
    messages.round_from_json(task.plan, found)
    return type(found["round"]) is int and isinstance(found["guarantee"]["holds"], bool)


def fetch_status(
    task: Task,
    url: str,
    role: str,
    *,
    secret: str | None = None,
    allow_plain_http: bool = False,
    ca_file: str | Path | None = None,
) -> dict[str, Any]:
    """What a shuffler or an analyzer says of itself; a shuffler, without its operator's secret, only what all may know.

    `RefusedError` and `UnreachableError` tell why it says nothing.
    """
    path = "round" if role == "shuffler" and secret is None else "status"
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    with WebClient(url, allow_plain_http=allow_plain_http, ca_file=ca_file, timeout=_SECONDS) as web:
        return _document(task, web, path, "a server", headers=headers, seconds=_SECONDS)
