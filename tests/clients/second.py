"""A client that follows docs/wire.md: nothing of ours is imported, and seals come from another implementation.

It is small and slow on purpose. Section names in comments are those of the page.
"""

from __future__ import annotations

import hmac
import json
import math
import secrets
import struct
import time
import unicodedata
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import httpx
import numpy as np
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, PyHPKEError
from tests.clients.canonical import float_text, sha256

BLANK = 4294967295
SUITE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES128_GCM)
WHITESPACE = "".join(
    map(chr, [*range(0x09, 0x0E), *range(0x1C, 0x21), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B)])
) + "\u2028\u2029\u202f\u205f\u3000"  # fmt: skip


class RefusedError(Exception):
    """What the page says is to be refused, or what the shuffler has refused for good."""


# Values into the domain.


def text_of(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, int | float):
        return str(int(value)) if value == int(value) else float_text(value)
    return unicodedata.normalize("NFC", value).strip(WHITESPACE)


def code_of(labels: int | list[Any], value: Any) -> int | None:
    text = text_of(value)
    listed = [str(i) for i in range(labels)] if isinstance(labels, int) else [text_of(label) for label in labels]
    if text and text in listed:
        return listed.index(text)
    if not isinstance(labels, int) and text.lower() in ("true", "false"):
        for place, label in enumerate(labels):
            if label is (text.lower() == "true"):
                return place
    return None


def known_code(labels: int | list[Any], value: Any) -> int:
    code = code_of(labels, value)
    if code is None:
        raise RefusedError(f"no place for {value!r}")
    return code


def size_of(labels: int | list[Any]) -> int:
    return labels if isinstance(labels, int) else len(labels)


def category_of(domain: dict[str, Any], held: Any) -> int:
    if "labels" in domain:
        code = code_of(domain["labels"], held)
        return size_of(domain["labels"]) if code is None and domain["other"] else known_code(domain["labels"], held)
    edges, number = domain["bins"], math.nan if held is None else float(held)
    last = len(edges) - 1
    if not domain["other"]:
        if math.isnan(number):
            raise RefusedError("no number")
        number = min(max(number, edges[0]), edges[last])
    if not edges[0] <= number <= edges[last]:  # NaN, too
        return last
    return min(max(i for i in range(last + 1) if edges[i] <= number), last - 1)


def dimension_of(structure: dict[str, Any]) -> int:
    match structure["kind"]:
        case "dense":
            return math.prod(structure["shape"])
        case "symmetric":
            return int(structure["size"] * (structure["size"] + 1) // 2)
    return len(structure["vectors"])


def coordinates_of(box: dict[str, Any], held: Any) -> list[tuple[float, float, float]]:
    """Each coordinate within its bounds, with them."""
    structure, array = box["structure"], np.array(held, dtype=float)
    match structure["kind"]:
        case "dense":
            values = array.reshape(structure["shape"]).ravel()
        case "symmetric":
            array = np.where(np.isnan(array), array.T, array)
            values = np.array(
                [array[i, j] / 2 + array[j, i] / 2 for i in range(len(array)) for j in range(i, len(array))]
            )
        case "span":
            entries = np.nan_to_num(array, nan=0.0, posinf=1e100, neginf=-1e100).ravel()
            values = np.linalg.lstsq(np.array(structure["vectors"]).T, entries, rcond=None)[0]
    lower, upper = (np.broadcast_to(end, len(values)).tolist() for end in box["bounds"])
    middle = [low / 2 + high / 2 for low, high in zip(lower, upper, strict=True)]
    filled = [m if math.isnan(v) else v for v, m in zip(values.tolist(), middle, strict=True)]
    return [(min(max(v, low), high), low, high) for v, low, high in zip(filled, lower, upper, strict=True)]


# Cells.


def happens(probability: float) -> bool:
    return secrets.randbits(53) < int(probability * 2**53)


def rounded(value: float, lower: float, upper: float, levels: int) -> int:
    place = min(max((value - lower) * levels / (upper - lower), 0.0), float(levels))
    return math.floor(place) + (secrets.randbits(53) < (place - math.floor(place)) * 2**53)


def blank_value(radix: int) -> int | None:
    """The value of a digit that has no cell."""
    return 0 if radix == 2 else radix // 2 if radix % 2 else None


def cells_of_digit(radix: int) -> int:
    return radix - (blank_value(radix) is not None)


class Cells:
    """What a plan makes of what a user holds."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.domain, self.mechanism = plan["domain"], plan["mechanism"]
        domain, mechanism = self.domain, self.mechanism
        kinds = domain["kind"], mechanism["kind"]
        self.digits, self.groups, self.dimension = mechanism.get("digits", 0), 1, 0
        self.positions: list[int] | None = None
        codes = len(domain["bins"]) - 1 if "bins" in domain else size_of(domain.get("labels", 0))
        codes += bool(domain.get("other"))
        match kinds:
            case "arrays", "randomized-response":
                self.dimension = dimension_of(domain["structure"])
                self.cells, self.reports = self.dimension * (mechanism["levels"] + 1), mechanism["coordinates"]
            case "arrays", "noisy-counts":
                self.dimension = dimension_of(domain["structure"])
                self._added(self.dimension * self.digits, self.dimension * self.digits)
            case "multi-choice", "noisy-counts":
                self.dimension = codes
                self._added(codes, domain["max_choices"])
            case "group-by", "noisy-counts":
                self.dimension, self.groups = dimension_of(domain["values"]["structure"]), codes
                own = self.dimension * self.digits + 1
                self._added(codes * own, own)
            case "categories", "randomized-response":
                self.cells, self.reports = codes, 1
            case "categories", "noisy-slots":
                self.cells, self.reports = codes, 1 + mechanism["slots"]
            case "open-vocabulary", "noisy-slots":
                self.cells, self.reports = domain["depth"] * domain["width"], 1 + mechanism["slots"]
            case _, "noisy-table":
                self._in_positions(codes)
            case "l2-ball", "one-bit":
                shapes = [domain["shape"]] if "shape" in domain else [layer["shape"] for layer in domain["layers"]]
                self.dimension = sum(map(math.prod, shapes))
                self.padded = max(2, 1 << (self.dimension - 1).bit_length())
                self.cells, self.reports = 2 * self.padded, mechanism["bits"] * self.padded
            case _:
                raise RefusedError(f"{kinds} are not on the page")

    def _in_positions(self, codes: int) -> None:
        """Noise by servers: positions."""
        domain, kind, counted = self.domain, self.domain["kind"], 0
        if self.mechanism["noise_by"] == "curator":
            raise RefusedError("one-process-only")
        self.cells, self.positions = codes, [0]
        if kind == "open-vocabulary":
            self.cells, self.positions = domain["depth"] * domain["width"], list(range(domain["depth"]))
        elif kind == "multi-choice":
            self.positions = list(range(codes)) if codes <= 64 else [0] * domain["max_choices"]
        elif kind in ("arrays", "group-by"):
            self.groups, counted = (codes, 1) if kind == "group-by" else (1, 0)
            self.dimension = dimension_of(domain.get("values", domain)["structure"])
            radices = self.mechanism["radices"]
            self.cells = self.groups * (self.dimension * sum(map(cells_of_digit, radices)) + counted)
            self.positions = list(range(self.dimension * len(radices) + counted))
        self.reports = len(self.positions)

    def _added(self, cells: int, most_own: int) -> None:
        if self.mechanism["cap"] is None:
            raise RefusedError("one-process-only")
        self.cells = cells
        self.cap = min(self.mechanism["cap"], sum(self.mechanism["trials"][self._class(cell)] for cell in range(cells)))
        self.reports = most_own + self.cap

    def _class(self, cell: int) -> int:
        """The digit of a cell, or the last class for the cells that count users."""
        digits: int = self.digits
        if self.domain["kind"] != "group-by":
            return cell % digits
        within = cell % (self.dimension * digits + 1)
        return digits if within == self.dimension * digits else within % digits

    def of(self, held: Any, round_number: int) -> list[int]:
        match self.mechanism["kind"]:
            case "randomized-response":
                return self._replaced(held)
            case "noisy-counts":
                own = self.own(held, round_number)
                noise = self._noise()
                while len(noise) > self.cap:
                    noise = self._noise()
                return [*own, *noise, *[BLANK] * (self.reports - len(own) - len(noise))]
            case "noisy-table":
                return self._at_positions(held, round_number)
            case "noisy-slots":
                chance, slots = self.mechanism["chance"], range(self.mechanism["slots"])
                noise = [secrets.randbelow(self.cells) if happens(chance) else BLANK for _ in slots]
                return self.own(held, round_number) + noise
        amplitude, levels = int(self.mechanism["amplitude"] * 2**31), self.levels(held, round_number)
        return [
            2 * place + (secrets.randbits(47) < 2**46 + amplitude * level)
            for place, level in enumerate(levels)
            for _ in range(self.mechanism["bits"])
        ]

    def own(self, held: Any, round_number: int) -> list[int]:
        """A user's own reports where noise is added."""
        match self.domain["kind"]:
            case "categories":
                return [category_of(self.domain, held)]
            case "multi-choice":
                chosen = sorted({known_code(self.domain["labels"], label) for label in held or []})
                most = min(len(chosen), self.domain["max_choices"])
                return secrets.SystemRandom().sample(chosen, most)
            case "open-vocabulary":
                function = secrets.randbelow(self.domain["depth"])
                return [function * self.domain["width"] + self.bucket(held, function, round_number)]
            case "group-by":
                first = known_code(self.domain["labels"], held[0]) * (self.dimension * self.digits + 1)
                return [*self._ones(self.domain["values"], held[1], first), first + self.dimension * self.digits]
        return self._ones(self.domain, held, 0)

    def _ones(self, box: dict[str, Any], held: Any, first: int) -> list[int]:
        cells = []
        for place, (value, lower, upper) in enumerate(coordinates_of(box, held)):
            level = rounded(value, lower, upper, 2**self.digits - 1)
            cells += [first + place * self.digits + j for j in range(self.digits) if level >> j & 1]
        return cells

    def _at_positions(self, held: Any, round_number: int) -> list[int]:
        """The truth at every position."""
        kind = self.domain["kind"]
        if kind in ("arrays", "group-by"):
            return self._digits_at_positions(held)
        if kind == "open-vocabulary":
            width = self.domain["width"]
            return [s * width + self.bucket(held, s, round_number) for s in range(self.domain["depth"])]
        own = self.own(held, round_number)
        if kind == "multi-choice" and self.cells <= 64:
            return [code if code in own else BLANK for code in range(self.cells)]
        return own + [BLANK] * (self.reports - len(own))

    def _digits_at_positions(self, held: Any) -> list[int]:
        radices, group, box = self.mechanism["radices"], 0, self.domain
        if self.domain["kind"] == "group-by":
            group, held, box = known_code(self.domain["labels"], held[0]), held[1], self.domain["values"]
        cells, first = [], 0
        for value, lower, upper in coordinates_of(box, held):
            level = rounded(value, lower, upper, math.prod(radices) - 1)
            for radix in radices:
                level, digit = divmod(level, radix)
                named = [each for each in range(radix) if each != blank_value(radix)]
                cells.append(first + group * len(named) + named.index(digit) if digit in named else BLANK)
                first += self.groups * len(named)
        return [*cells, first + group] if self.domain["kind"] == "group-by" else cells

    def _noise(self) -> list[int]:
        trials, probabilities = self.mechanism["trials"], self.mechanism["probabilities"]
        return [
            cell
            for cell in range(self.cells)
            for _ in range(trials[self._class(cell)])
            if happens(probabilities[self._class(cell)])
        ]

    def _replaced(self, held: Any) -> list[int]:
        noise, levels, sampled = (self.mechanism[name] for name in ("noise_probability", "levels", "coordinates"))
        if self.domain["kind"] == "categories":
            return [secrets.randbelow(self.cells) if happens(noise) else category_of(self.domain, held)]
        values, d = coordinates_of(self.domain, held), self.dimension
        if self.mechanism["sampling"] == "uniform":
            chosen = secrets.SystemRandom().sample(range(d), sampled)
        else:
            ends = [b * d // sampled for b in range(sampled + 1)]
            chosen = [ends[b] + secrets.randbelow(ends[b + 1] - ends[b]) for b in range(sampled)]
        return [
            place * (levels + 1)
            + (secrets.randbelow(levels + 1) if happens(noise) else rounded(*values[place], levels))
            for place in chosen
        ]

    def bucket(self, word: Any, function: int, round_number: int) -> int:
        """The hash."""
        text = text_of(word)
        if not text:
            raise RefusedError("no word")
        message = struct.pack(">II", round_number, function // 16) + text.encode()
        digest = hmac.digest(bytes.fromhex(self.domain["key"]), message, "sha512")
        return int(struct.unpack(">16I", digest)[function % 16]) * int(self.domain["width"]) >> 32

    def levels(self, held: Any, round_number: int) -> list[int]:
        """Vectors with a bounded norm, steps 1 to 4."""
        layers = [held] if "shape" in self.domain else held
        x = np.concatenate([np.array(layer, dtype=float).ravel() for layer in layers])
        if not np.isfinite(x).all():
            raise RefusedError("not finite")
        clipping_norm, tau = self.domain["clipping_norm"], self.mechanism["tau"]
        x = x - np.array(self.domain["center"] or 0.0)
        x *= min(1.0, clipping_norm / np.linalg.norm(x)) if x.any() else 1.0
        key = bytes.fromhex(self.domain["seed"])
        blocks = range(-(-len(x) // 512))
        stream = b"".join(hmac.digest(key, struct.pack(">II", round_number, block), "sha512") for block in blocks)
        x = np.where(np.unpackbits(np.frombuffer(stream, np.uint8))[: len(x)] == 1, -x, x)
        matrix = np.array([[(-1) ** (i & j).bit_count() for j in range(self.padded)] for i in range(self.padded)])
        y = matrix @ np.pad(x, (0, self.padded - len(x))) / (clipping_norm * tau)
        allowed, less = math.floor(Fraction(2**30 * self.padded) / Fraction(tau) ** 2), 2.0**-20
        while True:
            levels = [math.floor(2**15 * min(max(value, -1.0), 1.0) + 0.5) for value in y.tolist()]
            found = sum(level**2 for level in levels)
            if found <= allowed:
                return levels
            y, less = y * math.sqrt(allowed / found) * (1 - less), 4 * less


# Task file, the open round, sending.


class SecondClient:
    """One client of one task; `sent` are the cells of everybody who took part with it, by round."""

    def __init__(self, task: dict[str, Any], *, without_guarantee: bool = False) -> None:
        plan = task.get("plan", {})
        if (task.get("format"), plan.get("format")) != ("shufflesum-task-2", "shufflesum-plan-2"):
            raise RefusedError("another format")
        parameters = {name: plan[name] for name in ("format", "domain", "mechanism", "guarantee")}
        content = {name: task[name] for name in task if name != "id"} | {"plan": plan["id"]}
        self.cells = Cells(plan)
        fields = {
            *("format", "wire_version", "name", "shuffler", "analyzer_key"),
            *("smallest_batch", "rounds", "expires", "id", "plan"),
        }
        good = (
            task.keys() == fields
            and task["wire_version"] == 3
            and (sha256(parameters), sha256(content)) == (plan["id"], task["id"])
            and task["smallest_batch"] == (1 if self.cells.positions else plan["guarantee"]["users"])
            and task["rounds"] == plan["guarantee"]["rounds"]
            and (plan["cells"], plan["reports"]) == (self.cells.cells, self.cells.reports)
            and time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) < task["expires"]
            and (without_guarantee or plan["guarantee"]["accountant"] != "none")
        )
        if not good:
            raise RefusedError("the task is not what it says")
        self.task, self.address = task, f"{task['shuffler'].rstrip('/')}/tasks/{task['id']}"
        try:
            raw = bytes.fromhex(task["analyzer_key"])
            keys = [raw[start : start + 32] for start in range(0, len(raw), 32)]
            if len(keys) not in ((task["rounds"],) if self.cells.positions else (1, task["rounds"])):
                raise RefusedError("neither one key nor one for each round")
            self.keys = [SUITE.kem.deserialize_public_key(key) for key in keys]
            for key in self.keys:
                SUITE.create_sender_context(key)
        except (PyHPKEError, ValueError) as error:
            raise RefusedError("no key, or one of low order") from error
        self.http = httpx.Client(trust_env=False, headers={"User-Agent": "second"})
        self.sent: dict[int, list[int]] = {}
        self.repeated = 0

    def __enter__(self) -> SecondClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def open_round(self) -> int:
        if self.task["rounds"] == 1:
            return 1
        answer = self._until(lambda: self.http.get(f"{self.address}/round"), 200)
        found = answer.json()["open_round"]
        if found is None:
            raise RefusedError("round-closed")
        return int(found)

    def contribute(self, held: Any, token: str | None = None) -> None:
        round_number = self.open_round()
        cells = self.cells.of(held, round_number)
        assert len(cells) == self.cells.reports
        body = self.upload(cells, round_number)
        headers = {"Content-Type": "application/octet-stream"}
        headers |= {} if token is None else {"Authorization": f"Token {token}"}
        self._until(lambda: self.http.post(f"{self.address}/uploads", content=body, headers=headers), 201)
        self.sent.setdefault(round_number, []).extend(cells)

    def upload(self, cells: list[int], round_number: int) -> bytes:
        """Upload, and Sealed report."""
        task_id = bytes.fromhex(self.task["id"])
        positions = self.cells.positions or [0] * len(cells)
        ordered = cells if self.cells.positions else secrets.SystemRandom().sample(cells, len(cells))
        key, sealed = self.keys[round_number - 1 if len(self.keys) > 1 else 0], []
        for cell, position in zip(ordered, positions, strict=True):
            info = struct.pack(">10sHBB32sII", b"shufflesum", 3, 1, 3, task_id, round_number, position)
            enc, context = SUITE.create_sender_context(key, info)
            sealed.append(enc + context.seal(struct.pack(">I", cell)))
        header = struct.pack(">H32sI16s", 3, task_id, round_number, secrets.token_bytes(16))
        return header + b"".join(sealed)

    def _until(self, ask: Callable[[], httpx.Response], yes: int) -> httpx.Response:
        """Retry rules."""
        end, pause = time.monotonic() + 60, 0.1
        while True:
            wait, problem = 0.0, "unreachable"
            try:
                answer = ask()
            except httpx.RequestError:
                pass
            else:
                if answer.status_code == yes:
                    return answer
                problem, final = self._problem(answer)
                if problem == "repeated":
                    self.repeated += 1
                    return answer
                if final:
                    raise RefusedError(problem)
                after = answer.headers.get("Retry-After", "")
                wait = min(float(after), 60.0) if after.isascii() and after.isdigit() else 0.0
            wait = max(wait, pause) * (1 + secrets.randbelow(1000) / 1000)
            if time.monotonic() + wait > end:
                raise RefusedError(problem)
            time.sleep(wait)
            pause = min(2 * pause, 10.0)

    @staticmethod
    def _problem(answer: httpx.Response) -> tuple[str, bool]:
        try:
            document = json.loads(answer.content)
            return str(document["type"]).removeprefix("urn:shufflesum:problem:"), document["retry"] != "not-yet"
        except (ValueError, KeyError, TypeError):
            passing = answer.status_code >= 500 or answer.status_code in (408, 425, 429)
            return f"http-{answer.status_code}", not passing
