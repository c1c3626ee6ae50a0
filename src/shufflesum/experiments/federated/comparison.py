"""The whole comparison: train what is missing, draw every figure, write the page."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

from shufflesum._machine import cores
from shufflesum._rounding import upwards
from shufflesum.errors import PrivacyError
from shufflesum.experiments.federated.costs import cost_row
from shufflesum.experiments.federated.data import Pictures, blobs, load_mnist
from shufflesum.experiments.federated.methods import (
    BOX,
    CURATOR,
    METHODS,
    NO_PRIVACY,
    OURS,
    Setting,
    ball_plan,
    method,
)
from shufflesum.experiments.federated.runs import ModelName, Run, model_of, train
from shufflesum.experiments.federated.store import Curves
from shufflesum.experiments.figures import Figure
from shufflesum.experiments.page import About, Heading
from shufflesum.experiments.reproduction import write_report
from shufflesum.experiments.rows import Row
from shufflesum.planning import plan as make_plan
from shufflesum.plots import curves_chart, require_plots

__all__ = ["EPSILONS", "PUBLISHED", "Comparison", "Federated", "compare"]

EPSILONS = (2.0, 4.0, 8.0)
_MNIST = Setting(users=6_000, rounds=30, radius=0.5, epsilon=2.0)
_MADE_UP = Setting(users=2_000, rounds=20, radius=0.5, epsilon=2.0)
_EACH = {"MNIST": 10}
_SKEWED = (NO_PRIVACY, CURATOR, OURS)
_LABELS_EACH = 2

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
    command: str = "shufflesum reproduce --federated"


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
    wanted = [
        run
        for model in models
        for seed in range(request.seeds)
        for run in [
            *(_run(pictures, base, model, name, epsilon, seed) for epsilon in epsilons for name in METHODS),
            *(_run(pictures, base, model, name, epsilons[0], seed, _LABELS_EACH) for name in _SKEWED),
        ]
    ]
    wanted = list(dict.fromkeys(wanted))
    missing = [run for run in wanted if curves.get(run) is None]
    _train_all(pictures, missing, curves, lambda done: progress(95 * done // max(1, len(missing))))
    figures = [_figure(pictures, base, model, epsilons, request.seeds, curves) for model in models]
    figures += [_skewed_figure(pictures, base, model, epsilons[0], request.seeds, curves) for model in models]
    costs = [cost_row(model, ball_plan(model_of(model, pictures.pixels), base)) for model in models]
    summary = [
        *_in_short(pictures, base, models, epsilons, request.seeds, curves),
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


def _run(
    pictures: Pictures,
    base: Setting,
    model: ModelName,
    method: str,
    epsilon: float,
    seed: int,
    labels_each: int | None = None,
) -> Run:
    each = _EACH.get(pictures.name, 5) if labels_each is None else _EACH.get(pictures.name, 4)
    # without privacy there is no epsilon: one run serves for all
    setting = replace(base, epsilon=EPSILONS[0] if method == NO_PRIVACY else epsilon)
    return Run(model, method, setting, each, labels_each, seed)


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


def _curves(runs: Sequence[Run], curves: Curves) -> list[Row]:
    """The mean over seeds after each round, and the lowest and highest."""
    found = [curves.content.curves[run.key] for run in runs]
    return [
        {
            "line": runs[0].method,
            "epsilon": None if runs[0].method == NO_PRIVACY else runs[0].setting.epsilon,
            "round": number,
            "accuracy": statistics.fmean(values),
            "lowest": min(values),
            "highest": max(values),
            "standard error": statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None,
        }
        for number, values in enumerate(zip(*found, strict=True), start=1)
    ]


def _figure(
    pictures: Pictures, base: Setting, model: ModelName, epsilons: Sequence[float], seeds: int, curves: Curves
) -> Figure:
    groups = {
        f"ε = {epsilon:g}": [
            row
            for name in METHODS
            for row in _curves([_run(pictures, base, model, name, epsilon, seed) for seed in range(seeds)], curves)
        ]
        for epsilon in epsilons
    }
    dimension = model_of(model, pictures.pixels).dimension
    title = f"{model.capitalize()}, {dimension:,} parameters: test accuracy by round"
    about = f"{base.users:,} clients, {base.rounds} rounds, δ = {upwards(base.delta)} in all, clip {base.radius:g}"
    caption = (
        f"{about}; {seeds} seeds, mean and range. The trusted curator adds Gaussian noise to the exact sum; with local "
        "privacy every client adds it themselves. The paper's protocol is drawn at a certified noise, because its "
        "published formula has no noise probability below 1 here."
    )
    chart = curves_chart(groups, METHODS, title=title, subtitle=[about, pictures.note])
    return Figure(f"federated_{model}", title, caption, [row for rows in groups.values() for row in rows], chart)


def _skewed_figure(
    pictures: Pictures, base: Setting, model: ModelName, epsilon: float, seeds: int, curves: Curves
) -> Figure:
    rows = [
        row
        for name in _SKEWED
        for row in _curves(
            [_run(pictures, base, model, name, epsilon, seed, _LABELS_EACH) for seed in range(seeds)], curves
        )
    ]
    title = f"{model.capitalize()}, clients with two labels each"
    about = f"{base.users:,} clients, {base.rounds} rounds, ε = {epsilon:g}, δ = {upwards(base.delta)} in all"
    caption = f"{about}. Each client has pictures of two labels only (of three where a stack runs over a border)."
    chart = curves_chart({about: rows}, METHODS[: len(_SKEWED)], title=title, subtitle=[pictures.note])
    return Figure(f"federated_{model}_two_labels", title, caption, rows, chart)


def _in_short(
    pictures: Pictures,
    base: Setting,
    models: Sequence[ModelName],
    epsilons: Sequence[float],
    seeds: int,
    curves: Curves,
) -> list[str]:
    """Accuracies after the last round, every method beside the others."""
    lines = []
    for model in models:
        for labels, names, budgets in (
            (None, METHODS, epsilons),
            (_LABELS_EACH, _SKEWED, epsilons[:1]),
        ):
            for epsilon in budgets:
                words = []
                for name in names:
                    runs = [_run(pictures, base, model, name, epsilon, seed, labels) for seed in range(seeds)]
                    last = _curves(runs, curves)[-1]
                    error = last["standard error"]
                    words.append(f"{name} {last['accuracy']:.4f}" + (f" ± {error:.4f}" if error is not None else ""))
                skew = "" if labels is None else ", two labels a client"
                lines.append(f"{model}, epsilon {epsilon:g}{skew}: {'; '.join(words)}")
    return lines


def _published(pictures: Pictures, base: Setting, models: Sequence[ModelName]) -> list[str]:
    """What the paper's own formula says, for a single round with all of the budget."""
    lines = []
    for model in models:
        try:
            make_plan(
                users=base.users,
                shape=model_of(model, pictures.pixels).dimension,
                bounds=(-base.radius, base.radius),
                epsilon=base.epsilon,
                delta=base.delta,
                accountant="paper",
            )
        except PrivacyError as error:
            lines.append(f"{model}, the paper's protocol as published, even for one round: {error}")
        else:
            lines.append(f"{model}, the paper's protocol as published exists for one round")
    return lines


def _cost_words(row: Row) -> str:
    return (
        f"{row['model']}: a client sends {row['reports']:,} reports a round, {row['bytes raw']:,} bytes raw and "
        f"{row['bytes sealed']:,} sealed (the update itself: {row['bytes of the update itself (float32)']:,}); "
        f"randomizing takes {row['seconds to randomize']:.3f} s, sealing {row['seconds to seal']:.2f} s, opening one "
        f"client's {row['seconds to open']:.2f} s on one core, "
        f"{row['core hours to open a round']:.2f} core hours for a round"
    )
