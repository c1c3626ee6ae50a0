"""The whole comparison: train what is missing, time what a client sends, draw every figure, write the page."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import numpy as np

from experiments.charts import curves_chart
from experiments.experiment import Row
from experiments.federated.data import Pictures, blobs, load_mnist
from experiments.federated.methods import (
    BOX,
    CURATOR,
    METHODS,
    NO_PRIVACY,
    OURS,
    Setting,
    l2_ball_plan,
    method,
)
from experiments.federated.runs import Curves, ModelName, Run, model_of, train
from experiments.figures import Figure
from experiments.report import About, Heading, write_report
from shufflesum._format import upwards
from shufflesum._machine import SYSTEM_CLOCK, cores
from shufflesum.errors import PrivacyError
from shufflesum.keys import generate_private_key
from shufflesum.planning import plan as make_plan
from shufflesum.plans import Plan
from shufflesum.plots import require_plots
from shufflesum.protocol import Randomizer
from shufflesum.sealing import SEALED_BYTES, Opener
from shufflesum.wire import Task, Upload

EPSILONS = (2.0, 4.0, 8.0)
_MNIST = Setting(users=6_000, rounds=30, clipping_norm=0.5, epsilon=2.0)
_MADE_UP = Setting(users=2_000, rounds=20, clipping_norm=0.5, epsilon=2.0)
_EACH = {"MNIST": 10}
_SKEWED = (NO_PRIVACY, CURATOR, OURS)
_LABELS_EACH = 2
_CLOSE_SEEDS = 8  # where two lines are close: the network beside the curator at the smallest epsilon
_MOST_OPENED = 20_000  # reports: enough to time them

PUBLISHED: tuple[Row, ...] = (
    {
        "work": "Girgis et al., CLDP-SGD (AISTATS 2021)",
        "epsilon": 5.0,
        "delta": 1e-5,
        "accuracy": 0.767,
        "setting": "MNIST, small network, 60,000 clients of one picture, gradients clipped in the largest entry",
    },
    {
        "work": "Girgis et al., CLDP-SGD (AISTATS 2021)",
        "epsilon": 10.0,
        "delta": 1e-5,
        "accuracy": 0.879,
        "setting": "the same",
    },
    {
        "work": "Liu et al., FLAME, SS-Topk (AAAI 2021; arXiv:2009.08063v1)",
        "epsilon": 4.696,
        "delta": 1e-5,
        "accuracy": None,
        "setting": "MNIST, logistic regression, d = 7,850, 1,000 clients, Laplace noise on chosen coordinates, local "
        "budget 78.5: 1.48 points below no privacy",
    },
)
"""What others have published, in their settings: neither clients, rounds nor models are ours."""

_HEADING = Heading(
    "Federated learning with a server nobody has to trust",
    "A softmax regression and a small network trained on the same clients, at the same clip and rounds, under five "
    "kinds of privacy. Epsilon and delta hold for a client over all rounds.",
)


@dataclass(frozen=True, slots=True)
class Federated:
    """What to do; `quick` is softmax regression with one epsilon and one seed."""

    folder: Path
    mnist: Path | None = None
    seeds: int = 3
    quick: bool = False
    command: str = "python -m experiments federated"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Where the page is and what it says in short."""

    page: Path
    data: str
    summary: list[str]
    measured: int
    reused: int


def compare(request: Federated, progress: Callable[[int], None]) -> Comparison:
    """Run everything; `progress` is called with the percentage done. The same request goes on where it was stopped."""
    require_plots()
    started = time.monotonic()
    pictures = blobs() if request.mnist is None else load_mnist(request.mnist)
    base = _MADE_UP if request.mnist is None else _MNIST
    curves = Curves.open(request.folder, pictures)
    models: Sequence[ModelName] = ("softmax",) if request.quick else ("softmax", "network")
    epsilons = EPSILONS[:1] if request.quick else EPSILONS
    lines = [
        line
        for model in models
        for line in [
            *(_Line(model, name, epsilon) for epsilon in epsilons for name in METHODS),
            *(_Line(model, name, epsilons[0], _LABELS_EACH) for name in _SKEWED),
        ]
    ]
    trained = _Trained(pictures, base, request.seeds, curves)
    wanted = list(dict.fromkeys(run for line in lines for run in trained.runs(line)))
    missing = [run for run in wanted if curves.get(run) is None]
    _train_all(pictures, missing, curves, lambda done: progress(95 * done // max(1, len(missing))))
    figures = [_figure(trained, model, epsilons) for model in models]
    figures += [_skewed_figure(trained, model, epsilons[0]) for model in models]
    costs = [_cost_row(model, l2_ball_plan(model_of(model, pictures.pixels), base)) for model in models]
    summary = [
        *_in_short(trained, lines),
        *_published(pictures, base, models),
        *(_cost_words(row) for row in costs),
        *(
            f"published elsewhere: {row['work']}, epsilon {row['epsilon']}, delta {row['delta']}: "
            f"{'' if row['accuracy'] is None else format(row['accuracy'], '.1%') + '; '}{row['setting']}"
            for row in PUBLISHED
        ),
    ]
    about = About(
        request.command,
        f"{pictures.name}, {base.users:,} clients",
        pictures.fingerprint,
        pictures.note,
        time.monotonic() - started,
        request.seeds,
        len(wanted) - len(missing),
        len(missing),
    )
    page = write_report(
        request.folder, summary, {"Accuracy by round": figures}, about, lambda: None, _HEADING, {"costs": costs}
    )
    progress(100)
    return Comparison(page, about.data, summary, len(missing), len(wanted) - len(missing))


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of a figure: trainings that differ by their seed only."""

    model: ModelName
    method: str
    epsilon: float
    labels_each: int | None = None

    @property
    def words(self) -> str:
        """What a summary calls the lines that belong together."""
        skew = "" if self.labels_each is None else ", two labels a client"
        return f"{self.model}, epsilon {self.epsilon:g}{skew}"


@dataclass(frozen=True, slots=True)
class _Trained:
    """The trainings of all lines on one set of pictures."""

    pictures: Pictures
    base: Setting
    seeds: int
    curves: Curves

    def runs(self, line: _Line) -> list[Run]:
        """A run for each seed."""
        close = line.model == "network" and line.epsilon == EPSILONS[0] and line.method in (CURATOR, OURS)
        seeds = max(self.seeds, _CLOSE_SEEDS) if close else self.seeds
        each = _EACH.get(self.pictures.name, 5 if line.labels_each is None else 4)
        # without privacy there is no epsilon: one run serves for all
        setting = replace(self.base, epsilon=EPSILONS[0] if line.method == NO_PRIVACY else line.epsilon)
        return [Run(line.model, line.method, setting, each, line.labels_each, seed) for seed in range(seeds)]

    def rows(self, line: _Line) -> list[Row]:
        """The mean over seeds after each round, and the lowest and highest."""
        found = [self.curves.content.curves[run.key] for run in self.runs(line)]
        return [
            {
                "line": line.method,
                "epsilon": None if line.method == NO_PRIVACY else line.epsilon,
                "round": number,
                "accuracy": statistics.fmean(values),
                "lowest": min(values),
                "highest": max(values),
                "standard error": statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None,
                "seeds": len(values),
            }
            for number, values in enumerate(zip(*found, strict=True), start=1)
        ]


def _train_all(pictures: Pictures, runs: Sequence[Run], curves: Curves, done: Callable[[int], None]) -> None:
    for run in runs:  # plans are made once, before threads ask for the same one
        if run.method in (OURS, BOX):
            method(run.method, model_of(run.model, pictures.pixels), run.setting)
    with ThreadPoolExecutor(cores()) as pool:
        futures = {pool.submit(train, pictures, run): run for run in runs}
        try:
            for count, future in enumerate(as_completed(futures), start=1):
                curves.put(futures[future], future.result())
                done(count)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _figure(trained: _Trained, model: ModelName, epsilons: Sequence[float]) -> Figure:
    base, pictures = trained.base, trained.pictures
    groups = {
        f"ε = {epsilon:g}": [row for name in METHODS for row in trained.rows(_Line(model, name, epsilon))]
        for epsilon in epsilons
    }
    dimension = model_of(model, pictures.pixels).dimension
    title = f"{model.capitalize()}, {dimension:,} parameters: test accuracy by round"
    about = (
        f"{base.users:,} clients, {base.rounds} rounds, δ = {upwards(base.delta)} in all, clip {base.clipping_norm:g}"
    )
    caption = (
        f"{about}; mean and range over seeds. The trusted curator adds Gaussian noise to the exact sum; with local "
        "privacy every client adds it themselves. The paper's protocol is drawn at a certified noise, because its "
        "published formula has no noise probability below 1 here."
    )
    chart = curves_chart(groups, METHODS, title=title, subtitle=[about, pictures.note])
    return Figure(f"federated_{model}", title, caption, [row for rows in groups.values() for row in rows], chart)


def _skewed_figure(trained: _Trained, model: ModelName, epsilon: float) -> Figure:
    base = trained.base
    rows = [row for name in _SKEWED for row in trained.rows(_Line(model, name, epsilon, _LABELS_EACH))]
    title = f"{model.capitalize()}, clients with two labels each"
    about = f"{base.users:,} clients, {base.rounds} rounds, ε = {epsilon:g}, δ = {upwards(base.delta)} in all"
    caption = f"{about}. Each client has pictures of two labels only (of three where a stack runs over a border)."
    chart = curves_chart({about: rows}, METHODS[: len(_SKEWED)], title=title, subtitle=[trained.pictures.note])
    return Figure(f"federated_{model}_two_labels", title, caption, rows, chart)


def _in_short(trained: _Trained, lines: Sequence[_Line]) -> list[str]:
    """Accuracies after the last round, every method beside the others."""
    together: dict[str, list[str]] = {}
    for line in lines:
        last = trained.rows(line)[-1]
        error = "" if last["standard error"] is None else f" ± {last['standard error']:.4f}"
        together.setdefault(line.words, []).append(
            f"{line.method} {last['accuracy']:.4f}{error} ({last['seeds']} seeds)"
        )
    return [f"{words}: {'; '.join(parts)}" for words, parts in together.items()]


def _published(pictures: Pictures, base: Setting, models: Sequence[ModelName]) -> list[str]:
    """What the paper's own formula says, for a single round with all of the budget."""
    lines = []
    for model in models:
        try:
            make_plan(
                users=base.users,
                shape=model_of(model, pictures.pixels).dimension,
                bounds=(-base.clipping_norm, base.clipping_norm),
                epsilon=base.epsilon,
                delta=base.delta,
                accountant="paper",
            )
        except PrivacyError as error:
            lines.append(f"{model}, the paper's protocol as published, even for one round: {error}")
        else:
            lines.append(f"{model}, the paper's protocol as published exists for one round")
    return lines


def _cost_row(name: str, plan: Plan) -> Row:
    """One user's update randomized, sealed, and opened again; times are those that one core was busy."""
    key = generate_private_key()
    task = Task(
        name="costs",
        plan=plan,
        analyzer_key=key.public_key().public_bytes_raw(),
        shuffler="http://127.0.0.1:1",
        expires=SYSTEM_CLOCK.now().replace(microsecond=0) + timedelta(hours=1),
    )
    update = np.zeros((1, plan.dimension), dtype=np.float32)
    randomizer = Randomizer(plan)
    randomizer.randomize(update)  # the first call compiles
    started = time.process_time()
    reports = randomizer.randomize(update)
    randomized = time.process_time()
    upload = Upload.seal(task, reports, 1)
    sealed = time.process_time()
    piece = upload.sealed[: SEALED_BYTES * min(_MOST_OPENED, plan.reports)]
    with Opener(key, processes=1) as opener:
        task.open_reports(piece[:SEALED_BYTES], 1, opener)
        opening = time.process_time()
        task.open_reports(piece, 1, opener)
        opened = time.process_time()
    each = (opened - opening) / (len(piece) // SEALED_BYTES)
    return {
        "model": name,
        "parameters": plan.dimension,
        "reports": plan.reports,
        "bytes raw": plan.bytes_per_user["raw"],
        "bytes sealed": plan.bytes_per_user["sealed"],
        "bytes of the update itself (float32)": 4 * plan.dimension,
        "seconds to randomize": randomized - started,
        "seconds to seal": sealed - randomized,
        "seconds to open": each * plan.reports,
        "core hours to open a round": each * plan.reports * plan.users / 3600,
    }


def _cost_words(row: Row) -> str:
    return (
        f"{row['model']}: a client sends {row['reports']:,} reports a round, {row['bytes raw']:,} bytes raw and "
        f"{row['bytes sealed']:,} sealed (the update itself: {row['bytes of the update itself (float32)']:,}); "
        f"randomizing takes {row['seconds to randomize']:.3f} s, sealing {row['seconds to seal']:.2f} s, opening one "
        f"client's {row['seconds to open']:.2f} s on one core, "
        f"{row['core hours to open a round']:.2f} core hours for a round"
    )
