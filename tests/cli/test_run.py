from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from pyarrow import parquet
from tests.refusals import lacking

import shufflesum as ss

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Within

PRIVACY = ("--epsilon", "1", "--delta", "1e-6")
QUICK = (*PRIVACY, "--coordinates", "3", "--levels", "4", "--json")  # nothing left to plan for three columns

Floats = NDArray[np.float64]


def write_table(path: Path, values: Floats, names: str = "") -> None:
    """Write three columns in the format of the suffix; CSV has a header if there are names."""
    if path.suffix == ".csv":
        np.savetxt(path, values, delimiter=",", header=names, comments="", fmt="%.17g")
    elif path.suffix == ".parquet":
        parquet.write_table(pa.table({name: values[:, i] for i, name in enumerate(names.split(","))}), path)
    elif path.suffix == ".npz":
        np.savez(path, values=values)
    else:
        np.save(path, values)


# What comes out


@pytest.mark.parametrize(
    ("name", "columns"),
    [("x.csv", "a,b,c"), ("x.csv", ""), ("x.parquet", "a,b,c"), ("x.npy", ""), ("x.npz", "")],
)
def test_every_format_gives_the_mean_of_its_columns_in_order(
    command: Command, folder: Path, crowd: Floats, within: Within, name: str, columns: str
) -> None:
    write_table(folder / name, crowd, columns)
    estimate = command("run", name, *QUICK).estimate
    assert within(estimate, crowd.mean(axis=0))
    assert not within(estimate, crowd.mean(axis=0)[::-1]), "the columns could be in any order"
    assert estimate["users"] == 5000


def test_a_parquet_column_of_lists_is_a_vector(command: Command, folder: Path, crowd: Floats, within: Within) -> None:
    parquet.write_table(pa.table({"id": range(5000), "vector": crowd.tolist()}), folder / "x.parquet")
    estimate = command("run", "x.parquet", *QUICK, "--columns", "vector").estimate
    assert within(estimate, crowd.mean(axis=0))
    assert not within(estimate, crowd.mean(axis=0)[::-1])


@pytest.mark.parametrize(
    ("header", "columns", "chosen"),
    [
        ("a,b,c", "c,a", (2, 0)),
        ("a,b,c", " b ", (1,)),
        ("a,b,c", "1:3", (1, 2)),
        ("a,b,c", "2:,a", (2, 0)),
        ("", "2,0", (2, 0)),
        ("", "0:2", (0, 1)),
    ],
)
def test_columns_are_chosen_by_name_position_and_range(
    command: Command, folder: Path, crowd: Floats, within: Within, header: str, columns: str, chosen: tuple[int, ...]
) -> None:
    write_table(folder / "x.csv", crowd, header)
    estimate = command("run", "x.csv", *PRIVACY, "--levels", 4, "--json", "--columns", columns).estimate
    assert within(estimate, crowd.mean(axis=0)[list(chosen)])


def test_a_first_line_that_counts_as_a_user_is_told(command: Command, folder: Path) -> None:
    (folder / "years.csv").write_text("2019,2020\n" + "1,2\n" * 600)
    target = ("--epsilon", 1, "--delta", 1e-6, "--bounds", "0:3000")
    guessed = command("run", "years.csv", *target)
    assert "so its first line is a user; say --header if not" in guessed.err
    assert "601 users" in guessed.out
    for insisted in ("--header", "--no-header"):
        assert "first line" not in command("run", "years.csv", insisted, *target).err


def test_how_a_file_is_read_is_told_with_the_option_that_says_otherwise(command: Command, folder: Path) -> None:
    (folder / "x.csv").write_text("a;b\n" + "0,25;0,75\n" * 600)
    done = command("run", "x.csv", *PRIVACY)
    told = ("by semicolon (--separator)", "decimal commas (--decimal)", "first line (--no-header)", "--encoding")
    assert lacking(done.out, *told) == []
    said = command("run", "x.csv", "--separator", ";", "--decimal", ",", "--header", "--encoding", "utf-8", *PRIVACY)
    assert "was read with" not in said.out
    assert command("run", "x.csv", *PRIVACY, "--json").document["estimate"]["users"] == 600


def test_quantiles_need_no_bins(command: Command, folder: Path) -> None:
    rng = np.random.default_rng(0)
    values = np.exp(rng.normal(10, 1, 20_000)) * rng.choice([-1, 1], 20_000, p=[0.1, 0.9])
    (folder / "x.csv").write_text("income,other\n" + "".join(f"{value:.2f},1\n" for value in values))
    done = command(
        "run",
        "x.csv",
        *PRIVACY,
        "--columns",
        "income",
        "--quantiles",
        "0.05,0.5,0.9",
        "--confidence",
        "0.9999997",
        "--json",
    )
    found = done.estimate
    assert found["quantiles"] == [0.05, 0.5, 0.9]
    for q, value, lower, upper in zip(found["quantiles"], found["values"], *found["value_interval"], strict=True):
        exact = float(np.quantile(values, q))
        assert lower <= exact <= upper  # missed with a chance of 1e-6
        assert abs(value - exact) < 0.3 * abs(exact)
    assert abs(found["values"][1] - np.median(values)) < 0.1 * np.median(values)
    assert "counts" not in found  # nobody asked for the bins
    shown = command("run", "x.csv", *PRIVACY, "--columns", "income", "--quantiles", "0.5").out
    assert lacking(shown, "20,000 users", "guarantee", "quantile", "0.5") == []
    assert "labels are shown" not in shown


QUANTILES = ("--quantiles", "0.5,0.9")


def test_files_pages_and_pictures_hold_the_quantiles_that_were_asked_for(command: Command, folder: Path) -> None:
    (folder / "x.csv").write_text("income\n" + "".join(f"{value}.5\n" for value in range(10_000, 60_000, 25)))
    outputs = ("-o", "out.csv", "--report", "out.html", "--plot", "out.svg")
    shown = command("run", "x.csv", *PRIVACY, "--columns", "income", *QUANTILES, *outputs)
    with open("out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == ["0.5", "0.9"]
    for row in rows:
        assert float(row["lower"]) <= float(row["value"]) <= float(row["upper"])
        ends = f"{float(row['lower']):,.0f} to {float(row['upper']):,.0f}"
        assert lacking(shown.out, ends) == []
        assert lacking(Path("out.html").read_text(), ends, "Private quantiles of x.csv") == []
    assert "e+308" not in Path("out.html").read_text()
    assert "bins" not in Path("out.svg").read_text()


def test_bins_that_were_asked_for_stand_below_their_quantiles(command: Command, folder: Path) -> None:
    (folder / "x.csv").write_text("age\n" + "".join(f"{age}\n" for age in list(range(90)) * 20))
    asked = ("run", "x.csv", *PRIVACY, "--categories", "age", "--bins", "0,30,60,120", *QUANTILES)
    shown = command(*asked, "-o", "out.csv", "--report", "out.html", "--top", "2")
    assert lacking(shown.out, "2 of 3 labels are shown", "quantile", "30 to 60") == []
    with open("out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["entry"], row["name"]) for row in rows] == [
        ("quantile", "0.5"),
        ("quantile", "0.9"),
        ("label", "0 to 30"),
        ("label", "30 to 60"),
        ("label", "60 to 120"),
    ]
    assert (float(rows[0]["lower"]), float(rows[0]["upper"])) == (30, 60)
    assert rows[0]["share"] == ""
    assert abs(float(rows[2]["share"]) - 1 / 3) < 0.2
    assert Path("out.html").read_text().count("<table>") == 2
    refused = command("run", "x.csv", *PRIVACY, "--columns", "age", *QUANTILES, "--top", "2")
    assert lacking(refused.err, "[conflicting-arguments]", "--bins") == []


def test_capitals_rows_left_out_and_clipping_without_bounds(command: Command, folder: Path) -> None:
    rows = ["yes,1", "YES,2", "No,", "N/A,4"] * 200
    (folder / "x.csv").write_text("\n".join(["answer,n", *rows]))
    labels = ("--categories", "answer", "--labels", "yes,no", *PRIVACY)
    assert command("run", "x.csv", *labels, "--missing", "drop").code == 2
    done = command("run", "x.csv", *labels, "--missing", "drop", "--ignore-case", "--json")
    assert done.estimate["users"] == 600
    assert "200 of 800 rows were left out" in done.estimate["adjustment"]
    refused = command("run", "x.csv", "--columns", "n", "--missing", "drop", "--clip", *PRIVACY)
    assert lacking(refused.err, "[missing-argument]", "--clip", "--bounds") == []


def test_numbers_in_the_first_line_can_be_declared_a_header(command: Command, folder: Path) -> None:
    (folder / "x.csv").write_text("2019,2020\n" + "0.25,0.75\n" * 99)
    arguments = ("run", "x.csv", *PRIVACY, "--coordinates", 1, "--levels", 1, "--json")
    assert command(*arguments, "--header").document["plan"]["guarantee"]["users"] == 99
    refused = command(*arguments).err
    assert "line 1" in refused
    assert "[out-of-bounds]" in refused
    assert command(*arguments, "--no-header", "--clip", "--bounds", "0:1").document["plan"]["guarantee"]["users"] == 100


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4)])
def test_arrays_of_any_shape_come_back_in_that_shape(
    command: Command, folder: Path, within: Within, shape: tuple[int, ...]
) -> None:
    truth = 0.2 + 0.6 * np.random.default_rng(3).permuted(np.linspace(0, 1, max(2, int(np.prod(shape)))))
    truth = truth[: int(np.prod(shape))].reshape(shape)
    values = truth + np.random.default_rng(4).uniform(-0.2, 0.2, (5000, *shape))
    np.save(folder / "x.npy", values.astype(np.float32))
    dimension = max(1, int(np.prod(shape)))
    arguments = ("run", "x.npy", *PRIVACY, "--coordinates", dimension, "--levels", 4, "--json")
    document = command(*arguments).document
    estimate = document["estimate"]
    assert document["plan"]["dimension"] == dimension
    assert within(estimate, values.mean(axis=0))
    assert not within(estimate, values.mean(axis=0) + 0.2)
    assert np.shape(estimate["confidence_interval"]) == (2, *shape)
    assert np.shape(estimate["report_counts"]) == np.shape(estimate["sum"]) == shape


def test_json_is_one_strict_object_with_the_promised_keys(command: Command, folder: Path, crowd: Floats) -> None:
    np.save(folder / "x.npy", crowd)
    done = command("run", "x.npy", *QUICK, "--sampling", "uniform")
    assert done.err.startswith("note: running this again is a second release")
    assert done.err.count("\n") == 1
    plan, estimate = done.document["plan"], done.estimate
    assert set(done.document) == {"plan", "estimate"}
    assert plan["mechanism"].pop("noise_probability") == pytest.approx(0.09, abs=0.02)
    assert plan["mechanism"] == {"kind": "randomized-response", "coordinates": 3, "levels": 4, "sampling": "uniform"}
    claim = {"epsilon": 1.0, "delta": 1e-6, "users": 5000, "honest_fraction": 1.0, "rounds": 1, "accountant": "exact"}
    assert plan["guarantee"] == claim
    assert (plan["dimension"], plan["cells"], plan["reports"]) == (3, 15, 3)
    listed = {"mean", "sum", "users", "standard_error", "confidence_interval", "report_counts", "guarantee_holds"}
    assert set(estimate) >= listed
    assert estimate["sum"] == [5000 * mean for mean in estimate["mean"]]
    assert estimate["report_counts"] == [5000] * 3
    assert estimate["guarantee_holds"] is True
    lower, upper = estimate["confidence_interval"]
    assert all(low < mean < high for low, mean, high in zip(lower, estimate["mean"], upper, strict=True))


def test_what_nobody_reported_is_null_and_noted(command: Command, folder: Path) -> None:
    np.save(folder / "x.npy", np.full((3, 4, 10), 0.5))
    done = command("run", "x.npy", *PRIVACY, "--coordinates", 1, "--json", "-o", "o.csv", "--plot", "p.svg")
    counts = np.array(done.estimate["report_counts"])
    assert counts.sum() == 3
    for key in ("mean", "sum", "standard_error"):
        missing = np.array([[value is None for value in row] for row in done.estimate[key]])
        np.testing.assert_array_equal(missing, counts == 0)
    notes = done.err.splitlines()
    assert all(line.startswith("note: ") for line in notes)
    assert any("nobody reported" in line for line in notes)
    with (folder / "o.csv").open() as file:
        assert [row["value"] == "" for row in csv.DictReader(file)] == (counts == 0).reshape(-1).tolist()
    assert "<svg" in (folder / "p.svg").read_text()


def test_every_output_file_says_what_the_json_says(command: Command, folder: Path, crowd: Floats) -> None:
    np.save(folder / "x.npy", np.concatenate([crowd, crowd], axis=1).reshape(-1, 3, 2))
    for suffix in ("json", "csv", "parquet", "npz"):
        arguments = (*PRIVACY, "--coordinates", 2, "--levels", 3, "--json", "--confidence", 0.9, "-o", f"out.{suffix}")
        document = command("run", "x.npy", *arguments).document
        assert_same(document, read_output(folder / f"out.{suffix}"))
    assert sorted(path.name for path in folder.iterdir()) == ["out.csv", "out.json", "out.npz", "out.parquet", "x.npy"]


def read_output(path: Path) -> dict[str, Any]:
    if path.suffix == ".json":
        document: dict[str, Any] = json.loads(path.read_text())
        return {"plan": document["plan"], **document["estimate"]}
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            found = dict(arrays)
        return found | {"plan": json.loads(str(found["plan"]))}
    if path.suffix == ".csv":
        with path.open() as file:
            rows = [
                {key: float(row[key]) for key in row if key not in ("name", "notes")} for row in csv.DictReader(file)
            ]
        columns: dict[str, Any] = {key: [row[key] for row in rows] for key in rows[0]}
    else:
        table = parquet.read_table(path)
        columns = table.to_pydict() | {"plan": json.loads(table.schema.metadata[b"plan"])}
    assert list(zip(columns["index_0"], columns["index_1"], strict=True)) == list(np.ndindex(3, 2))
    kept = {"mean": "value", "sum": "sum", "standard_error": "std_error"}
    found = {key: np.reshape(columns[name], (3, 2)) for key, name in kept.items()}
    found["confidence_interval"] = [np.reshape(columns[key], (3, 2)) for key in ("lower", "upper")]
    return found | ({"plan": columns["plan"]} if "plan" in columns else {})


ONLY_ONCE = ("report_counts", "round", "users", "confidence_level", "rejected_reports", "guarantee_holds", "warnings")


def assert_same(document: dict[str, Any], found: dict[str, Any]) -> None:
    for key, value in document["estimate"].items():
        # One row per entry has no place for what there is only one of, nor for reports.
        if key in found or key not in ONLY_ONCE:
            np.testing.assert_array_equal(found[key], value, err_msg=key)
    for key, value in document["plan"].items():
        assert "plan" not in found or found["plan"][key] == value


@pytest.mark.parametrize("suffix", ["png", "svg", "html"])
def test_the_plot_is_a_whole_picture_that_needs_no_network(
    command: Command, folder: Path, crowd: Floats, suffix: str
) -> None:
    np.save(folder / "x.npy", crowd)
    assert command("run", "x.npy", *QUICK, "--plot", f"p.{suffix}").code == 0
    content = (folder / f"p.{suffix}").read_bytes()
    if suffix == "png":
        assert content.startswith(b"\x89PNG")
        assert content.endswith(b"IEND\xaeB`\x82")
    else:
        text = content.decode()
        assert text.rstrip().endswith(f"</{suffix}>")
        assert "Private mean of x.npy" in text
        assert not re.search(r"<script[^>]*\bsrc\s*=|<link\b|@import|\bimport\s*\(?['\"]https?:", text[:5000])
        assert not re.search(r"<(script|link|img|iframe)\b[^>]*\b(src|href)\s*=\s*['\"]?(https?:)?//", text)


def test_people_read_names_and_what_was_written(command: Command, folder: Path, crowd: Floats) -> None:
    write_table(folder / "x.csv", crowd, "[/b],height [cm],c")
    done = command("run", "x.csv", *PRIVACY, "--coordinates", 3, "--levels", 4, "-o", "out[b].json")
    assert (done.code, done.err.count("\n")) == (0, 1)
    for expected in ("5,000 users", "guarantee for one row: epsilon 1", "[/b]", "height [cm]", "wrote out[b].json"):
        assert expected in done.out


def test_people_read_that_nothing_was_sent(command: Command, folder: Path, crowd: Floats) -> None:
    write_table(folder / "x.csv", crowd, "a,b,c")
    done = command("run", "x.csv", *PRIVACY, "--digits", 2)
    for expected in ("this process saw the data",):
        assert expected in done.out


# What the options do


def test_a_plan_made_before_is_used_as_it_is(command: Command, folder: Path, crowd: Floats, within: Within) -> None:
    plan = ss.plan(
        users=4000,
        shape=(1, 3),
        epsilon=0.5,
        delta=1e-7,
        mechanism=ss.RandomizedResponse.Options(coordinates=1, levels=5),
    )
    (folder / "plan.json").write_text(plan.to_json())
    write_table(folder / "x.csv", crowd, "a,b,c")
    document = command("run", "x.csv", "--plan", "plan.json", "--json").document
    assert document["plan"] == {key: plan.summary()[key] for key in document["plan"]}
    assert document["estimate"]["users"] == 5000, "users are those who took part, not those planned for"
    assert within(document["estimate"], crowd.mean(axis=0)[None])


def test_the_user_column_is_no_data_and_has_every_user_once(
    command: Command, folder: Path, crowd: Floats, within: Within
) -> None:
    numbered = np.column_stack([crowd[:, :1], np.arange(5000), crowd[:, 1:]])
    write_table(folder / "x.csv", numbered, "a,who,b,c")
    assert within(command("run", "x.csv", *QUICK, "--user-column", "who").estimate, crowd.mean(axis=0))
    numbered[4999, 1] = 7
    write_table(folder / "x.csv", numbered, "a,who,b,c")
    done = command("run", "x.csv", *QUICK, "--user-column", "who")
    assert done.code == 2
    assert re.search("a user has 2 rows.*Combine each user's rows first.*average or sum", done.err)


def test_missing_values_become_the_midpoint_where_asked(
    command: Command, folder: Path, crowd: Floats, within: Within
) -> None:
    gaps = crowd.copy()
    gaps[::2, 0] = np.nan
    np.save(folder / "x.npy", gaps)
    estimate = command("run", "x.npy", *QUICK, "--missing", "midpoint").estimate
    assert within(estimate, np.where(np.isnan(gaps), 0.5, gaps).mean(axis=0))
    assert not within(estimate, np.nanmean(gaps, axis=0))


def test_values_are_clipped_where_asked(command: Command, folder: Path, crowd: Floats, within: Within) -> None:
    wide = np.where(np.arange(5000)[:, None] % 10 == 0, 3 - 6 * crowd, crowd)
    wide[0] = (np.inf, -np.inf, 1e300)
    np.save(folder / "x.npy", wide)
    estimate = command("run", "x.npy", *QUICK, "--clip", "--bounds", "-1:1").estimate
    assert within(estimate, np.clip(wide, -1, 1).mean(axis=0))
    assert not within(estimate, wide[1:].mean(axis=0))


def test_more_confidence_is_a_wider_interval(command: Command, folder: Path, crowd: Floats) -> None:
    np.save(folder / "x.npy", crowd)
    widths = []
    for level in (0.5, 0.999):
        lower, upper = command("run", "x.npy", *QUICK, "--confidence", level).estimate["confidence_interval"]
        widths.append(np.subtract(upper, lower))
    # 3.29 / 0.674 of a standard error, which hardly varies between runs.
    np.testing.assert_allclose(widths[1] / widths[0], 4.88, rtol=0.2)
