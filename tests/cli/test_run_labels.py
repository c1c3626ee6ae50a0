"""`shufflesum run` with labels: counts, choices, groups and words, out of files, for people and programs."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.refusals import lacking

import shufflesum as ss
from shufflesum.cli.output import print_estimate
from shufflesum.estimate import estimate_of

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Refused

PRIVACY = ("--epsilon", "1", "--delta", "1e-6")
SURE = ("--confidence", "0.99999999")  # an interval of counts fails with probability at most 1e-8: it is exact
LABELS = ("yes", "no", "unsure")
USERS = 3000


@pytest.fixture(scope="session")
def people() -> dict[str, Any]:
    """Who answers what; all counts differ by far more than noise."""
    random = np.random.default_rng(7)
    country = random.permutation(np.repeat(["DE", "FR", "IT"], (1900, 1097, 3)))
    ticked = [["web", "mail"][: 1 + i % 2] if i % 4 else [] for i in range(USERS)]
    return {
        "answer": random.permutation(np.repeat(LABELS, (1700, 900, 400))),
        "age": random.permutation(np.repeat([17.0, 18.0, 64.5, 120.0], (100, 500, 900, 1500))),
        "ticked": ticked,
        "country": country,
        "visits": np.where(country == "DE", 80.0, 20.0) + random.uniform(-10, 10, USERS),
    }


@pytest.fixture(params=["csv", "parquet"])
def survey(request: pytest.FixtureRequest, folder: Path, people: dict[str, Any]) -> str:
    return write_survey(folder, people, request.param)


def write_survey(folder: Path, people: dict[str, Any], kind: str) -> str:
    if kind == "parquet":
        parquet.write_table(
            pa.table(people | {"ticked": pa.array(people["ticked"], pa.list_(pa.string()))}), "s.parquet"
        )
        return "s.parquet"
    with (folder / "s.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(people)
        cells = people | {"ticked": [";".join(labels) for labels in people["ticked"]]}
        writer.writerows(zip(*cells.values(), strict=True))
    return "s.csv"


def holds(estimate: Mapping[str, Any], truth: Sequence[float], what: str = "count_interval") -> bool:
    lower, upper = (np.array(end, dtype=float) for end in estimate[what])
    return bool(np.all((lower <= truth) & (truth <= upper)))


def test_one_label_of_each_user(command: Command, survey: str, folder: Path) -> None:
    asked = ("run", survey, "--categories", "answer", "--labels", "yes,no,unsure", *PRIVACY, *SURE)
    done = command(*asked, "--json", "-o", "counts.json", "--plot", "counts.svg")
    assert done.estimate["labels"] == list(LABELS)
    assert holds(done.estimate, (1700, 900, 400))
    assert not holds(done.estimate, (900, 1700, 400)), "labels could be in any order"
    assert done.document["plan"]["domain"] == {
        "kind": "categories",
        "labels": list(LABELS),
        "other": False,
        "column": "answer",
    }
    assert json.loads((folder / "counts.json").read_text())["estimate"] == done.estimate
    assert lacking((folder / "counts.svg").read_text(), "unsure", "Private counts of") == []


def test_a_person_sees_counts_shares_and_places(command: Command, survey: str) -> None:
    done = command("run", survey, "--categories", "answer", "--labels", "yes,no,unsure", *PRIVACY, "-o", "c.csv")
    assert lacking(done.out, "3,000 users", "label", "count", "share", "unsure", "Ranks 1-3 are certain") == []
    assert "wrote c.csv" in done.out
    assert done.err.count("\n") == 1  # a second run is a second release


@pytest.mark.parametrize("mechanism", ["randomized-response", "noisy-counts"])
def test_it_is_said_that_one_process_saw_the_data_whatever_the_plan(
    command: Command, survey: str, folder: Path, mechanism: Any
) -> None:
    asked = ("run", survey, "--categories", "answer")
    plan = ss.plan(users=USERS, domain=ss.Categories(LABELS), epsilon=1.0, delta=1e-6, mechanism=mechanism)
    (folder / "plan.json").write_text(plan.to_json())
    for how in (("--labels", ",".join(LABELS), *PRIVACY, "--mechanism", mechanism), ("--plan", "plan.json")):
        said = command(*asked, *how).out
        assert lacking(said, "this process saw the data") == []
        assert "collude" not in said


def test_labels_come_from_a_file_a_list_or_a_number(command: Command, folder: Path) -> None:
    np.save("codes.npy", np.repeat([0, 1, 2], (500, 300, 200)))
    (folder / "labels.txt").write_text("\ufeff0\n\n 1 \n2\n")
    for labels in ("3", "0,1,2", "labels.txt"):
        estimate = command("run", "codes.npy", "--labels", labels, *PRIVACY, *SURE, "--json").estimate
        assert list(map(str, estimate["labels"])) == ["0", "1", "2"]
        assert holds(estimate, (500, 300, 200))


def test_true_and_false_are_labels_however_they_are_written(command: Command, folder: Path) -> None:
    (folder / "b.csv").write_text("b\n" + "True\n" * 700 + "FALSE\n" * 200 + "true\n" * 100)
    estimate = command(
        "run", "b.csv", "--categories", "b", "--labels", "true,false", *PRIVACY, *SURE, "--json"
    ).estimate
    assert estimate["labels"] == [True, False]
    assert holds(estimate, (800, 200))


def test_everything_else_is_counted_as_other_on_request(command: Command, survey: str) -> None:
    asked = ("run", survey, "--categories", "answer", "--labels", "yes,no", "--other", *PRIVACY, *SURE, "--json")
    estimate = command(*asked).estimate
    assert estimate["labels"] == ["yes", "no", "other"]
    assert holds(estimate, (1700, 900, 400))


def test_numbers_fall_into_public_bins(command: Command, survey: str) -> None:
    asked = ("run", survey, "--categories", "age", "--bins", "0,18,65,120", *PRIVACY, *SURE, "--json")
    done = command(*asked)
    assert done.estimate["labels"] == ["0 to 18", "18 to 65", "65 to 120"]
    assert holds(done.estimate, (100, 1400, 1500))
    assert done.document["plan"]["domain"]["column"] == "age"


def test_several_labels_of_each_user(command: Command, survey: str, people: dict[str, Any]) -> None:
    asked = (
        "run",
        survey,
        "--multi-choice",
        "ticked",
        "--max-choices",
        2,
        "--labels",
        "mail,web,fax",
        *PRIVACY,
        *SURE,
        "--json",
    )
    truth = [sum(label in ticked for ticked in people["ticked"]) for label in ("mail", "web", "fax")]
    assert truth == [1500, 2250, 0]
    estimate = command(*asked).estimate
    assert holds(estimate, truth)
    assert not holds(estimate, truth[::-1])


def test_means_of_groups(command: Command, survey: str, people: dict[str, Any], folder: Path) -> None:
    (folder / "countries.txt").write_text("DE\nFR\nIT\n")
    asked = ("run", survey, "--group-by", "country", "--labels", "countries.txt", "--columns", "visits")
    done = command(*asked, "--bounds", "0:100", *PRIVACY, *SURE, "--json", "--plot", "g.svg")
    estimate = done.estimate
    assert (estimate["groups"], estimate["too_few"][:2]) == (["DE", "FR", "IT"], [False, False])
    assert holds(estimate, (1900, 1097, 3))
    assert (estimate["mean"][2] is None) == estimate["too_few"][2]  # three people are told from none now and then
    truth = [people["visits"][people["country"] == country].mean() for country in ("DE", "FR")]
    large = {"ends": [end[:2] for end in estimate["confidence_interval"]]}
    assert holds(large, truth, "ends")
    assert not holds(large, truth[::-1], "ends")
    domain = done.document["plan"]["domain"]
    assert (domain["column"], domain["values"]["columns"]) == ("country", ["visits"])
    assert "Private means by group of" in (folder / "g.svg").read_text()
    shown = command(*asked, "--bounds", "0:100", *PRIVACY)
    assert lacking(shown.out, "group", "users", "mean", "DE", "FR", "IT") == []


def test_groups_with_too_few_users_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    plan = ss.plan(
        users=USERS, domain=ss.GroupBy(["DE", "FR", "IT"], (2,)), epsilon=1.0, delta=1e-6, noise_by="curator"
    )
    table = np.full(plan.cells, 2000)
    table[-1] = 0  # the last group's count: less than any noise leaves
    print_estimate(estimate_of(plan, USERS, 0, table), 0.95, ("visits", "age"))
    shown = capsys.readouterr().out
    assert lacking(shown, "too few users", "1 of 3 groups have too few", "visits", "age") == []
    assert shown.count("too few users") == 2


def test_groups_of_several_numbers_show_their_names(command: Command, survey: str) -> None:
    asked = ("run", survey, "--group-by", "country", "--labels", "DE,FR,IT", "--columns", "visits,age")
    shown = command(*asked, "--bounds", "0:120", *PRIVACY)
    assert lacking(shown.out, "entry", "visits", "age", "DE") == []


def test_words_that_nobody_listed(command: Command, folder: Path) -> None:
    words = np.repeat(["tea", "coffee", "water", "maté"], (1500, 900, 500, 100))
    (folder / "w.csv").write_text("drink\n" + "\n".join(words) + "\n")
    (folder / "asked.txt").write_text("coffee\ntea\nwater\nmaté\nmilk\n")
    asked = ("run", "w.csv", "--open-vocabulary", "drink", "--candidates", "asked.txt", *PRIVACY)
    # The interval of a word is a law over random hashes on a grid, with its own tails: 1e-8 on either side.
    done = command(*asked, *SURE, "--json", "-o", "w.csv.parquet", "--plot", "w.svg")
    assert done.estimate["labels"] == ["coffee", "tea", "water", "maté", "milk"]
    assert holds(done.estimate, (900, 1500, 500, 100, 0))
    assert not holds(done.estimate, (1500, 900, 500, 100, 0))
    assert parquet.read_table(folder / "w.csv.parquet").column("name").to_pylist()[0] == "coffee"
    assert "milk" in (folder / "w.svg").read_text()
    shown = command(*asked, "--width", 50, "--depth", 8)
    assert lacking(shown.out, "3,000 users", "tea", "share", "are certain") == []


def test_many_labels_are_shown_by_their_counts(command: Command, folder: Path) -> None:
    np.save("codes.npy", np.repeat(np.arange(40), np.arange(40) * 150 + 1))  # steps of 20 standard errors
    done = command("run", "codes.npy", "--labels", 40, *PRIVACY)
    assert lacking(done.out, "10 of 40 labels are shown, the largest counts", "-o OUT") == []
    assert done.out.index(" 39 ") < done.out.index(" 38 ") < done.out.index(" 35 ")


def test_a_plan_names_its_column(command: Command, survey: str) -> None:
    plan = ss.plan(users=USERS, domain=ss.Categories(LABELS, column="answer"), epsilon=1.0, delta=1e-6)
    Path("plan.json").write_text(plan.to_json())
    for named in ((), ("--categories", "answer")):
        assert holds(command("run", survey, "--plan", "plan.json", *named, *SURE, "--json").estimate, (1700, 900, 400))


# Refused


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ("--categories answer", "[missing-argument] --labels never"),
        ("--categories answer --labels yes,no", "[unknown-label] public --other"),
        ("--categories answer --labels yes", "[out-of-range]"),
        ("--categories answer --labels yes,yes,no", "[conflicting-arguments] 'yes'"),
        ("--categories answer --labels yes,,no", "[wrong-type] --labels"),
        ("--categories answer --labels nowhere.txt", "[unreadable] nowhere.txt"),
        ("--categories answer --labels yes,no --bins 0,1", "[conflicting-arguments] --bins"),
        ("--categories answer --labels yes,no --max-choices 2", "[conflicting-arguments] --max-choices"),
        ("--categories answer --labels yes,no --multi-choice ticked", "[conflicting-arguments] --multi-choice"),
        ("--categories answer --labels yes,no,unsure --bounds 0:1", "[conflicting-arguments] bounds"),
        ("--categories answer --labels yes,no,unsure --clip", "[impossible-combination] clip"),
        ("--categories answer --labels yes,no,unsure --missing midpoint", "[impossible-combination] midpoint"),
        ("--categories answer --labels yes,no,unsure --candidates words.txt", "[conflicting-arguments] --candidates"),
        ("--categories answer --labels yes,no,unsure --columns age", "[conflicting-arguments] --columns"),
        ("--categories nowhere --labels yes,no,unsure", "[unknown-column] 'nowhere' --categories"),
        ("--categories age --bins 0,18,x", "[wrong-type] --bins"),
        ("--categories age --bins 0,18,65", "[out-of-bounds] --clip --other"),
        ("--categories age --bins 9,1", "[bad-bounds] bins"),
        ("--multi-choice ticked --labels web,mail", "[missing-argument] --max-choices"),
        ("--multi-choice ticked --labels web,mail --max-choices 1", "[too-many-labels] most"),
        ("--multi-choice ticked --labels web,fax --max-choices 2", "[unknown-label]"),
        ("--group-by country --columns visits --bounds 0:100", "[missing-argument] --labels"),
        ("--group-by country --labels DE,FR --columns visits --bounds 0:100", "[unknown-label]"),
        ("--group-by country --labels DE,FR,IT --columns visits --bounds 0:50", "[out-of-bounds] --clip"),
        ("--group-by country --labels DE,FR,IT --columns visits --other", "[conflicting-arguments] --other"),
        ("--open-vocabulary answer", "[missing-argument] --candidates"),
        ("--open-vocabulary answer --labels yes,no --candidates words.txt", "[conflicting-arguments] --labels"),
        ("--open-vocabulary answer --candidates nowhere.txt", "[unreadable] nowhere.txt"),
        ("--open-vocabulary answer --candidates empty.txt", "[no-rows] empty.txt"),
        ("--open-vocabulary answer --width 1 --candidates words.txt", "[out-of-range] width"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    refused: Refused, folder: Path, people: dict[str, Any], options: str, facts: str
) -> None:
    (folder / "words.txt").write_text("yes\nno\n")
    (folder / "empty.txt").write_text("\n \n")
    name = write_survey(folder, people, "csv")
    assert lacking(refused(name, *options.split(), *PRIVACY), *facts.split()) == []


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ("--labels yes,no,unsure", "[conflicting-arguments] --labels --plan"),
        ("--other", "[conflicting-arguments] --other --plan"),
        ("--multi-choice ticked", "[conflicting-arguments] --multi-choice --categories"),
        ("--categories country", "[columns-mismatch] 'answer' 'country'"),
        ("--columns age", "[conflicting-arguments] --columns"),
    ],
)
def test_a_plan_is_for_what_it_is_for(
    refused: Refused, folder: Path, people: dict[str, Any], options: str, facts: str
) -> None:
    plan = ss.plan(users=USERS, domain=ss.Categories(LABELS, column="answer"), epsilon=1.0, delta=1e-6)
    (folder / "plan.json").write_text(plan.to_json())
    name = write_survey(folder, people, "csv")
    assert lacking(refused(name, "--plan", "plan.json", *options.split()), *facts.split()) == []


def test_a_plan_for_numbers_takes_no_labels_and_no_other_columns(
    refused: Refused, folder: Path, people: dict[str, Any]
) -> None:
    plan = ss.plan(users=USERS, shape=2, bounds=(0, 120), columns=["visits", "age"], epsilon=1.0, delta=1e-6)
    (folder / "plan.json").write_text(plan.to_json())
    name = write_survey(folder, people, "csv")
    said = refused(name, "--plan", "plan.json", "--categories", "answer")
    assert lacking(said, "[conflicting-arguments]", "--categories") == []
    said = refused(name, "--plan", "plan.json", "--columns", "age,visits")
    assert lacking(said, "[columns-mismatch]", "'visits', 'age'") == []


def test_columns_of_a_plan_are_found_by_their_names(command: Command, survey: str, people: dict[str, Any]) -> None:
    plan = ss.plan(users=USERS, shape=2, bounds=(0, 120), columns=["visits", "age"], epsilon=1.0, delta=1e-6)
    Path("plan.json").write_text(plan.to_json())
    estimate = command("run", survey, "--plan", "plan.json", "--json").estimate
    mean, error = (np.array(estimate[name]) for name in ("mean", "standard_error"))
    truth = np.array([people["visits"].mean(), people["age"].mean()])
    # Beyond 7 standard errors with probability below 1e-10, as the sum of 3,000 bounded terms.
    assert np.all(np.abs(mean - truth) <= 7 * error)
    assert not np.all(np.abs(mean - truth[::-1]) <= 7 * error)


@pytest.mark.parametrize(
    ("arguments", "users"),
    [
        ("--columns age --bounds 0:120", 900),
        ("--categories age --bins 0,18,65,120 --quantiles 0.5", 900),
        ("--categories answer --labels yes,no", 950),
        ("--group-by answer --labels yes,no --columns age --bounds 0:120", 850),
        ("--open-vocabulary answer --candidates words.txt", 950),
    ],
)
def test_rows_that_lack_something_are_left_out_on_request(
    command: Command, folder: Path, arguments: str, users: int
) -> None:
    rows = [f"{'' if i % 10 == 0 else i % 90},{'' if i % 20 == 1 else 'yes'}" for i in range(1000)]
    (folder / "gaps.csv").write_text("\n".join(["age,answer", *rows]))
    (folder / "words.txt").write_text("yes\nno\n")
    asked = ("run", "gaps.csv", *arguments.split(), *PRIVACY)
    refused = command(*asked)
    assert lacking(refused.err, "[missing-value]", "line", "--missing drop") == []
    done = command(*asked, "--missing", "drop", "--json")
    assert done.estimate["users"] == done.document["plan"]["guarantee"]["users"] == users
    assert done.estimate["adjusted"] == ["dropped"]
    assert "left out" in command(*asked, "--missing", "drop").out


def test_those_left_must_be_enough_for_the_plan(command: Command, folder: Path) -> None:
    (folder / "gaps.csv").write_text("age,n\n" + "1,1\n,1\n" * 500)
    (folder / "plan.json").write_text(
        ss.plan(users=501, shape=1, bounds=(0, 9), columns=["age"], epsilon=1.0, delta=1e-6).to_json()
    )
    run = ("run", "gaps.csv", "--plan", "plan.json", "--missing", "drop")
    assert lacking(command(*run).err, "[too-few-users]", "500 rows", "without missing values") == []
    asked = (
        "run",
        "gaps.csv",
        "--variance",
        "--columns",
        "age",
        "--bounds",
        "0:9",
        *PRIVACY,
        "--missing",
        "drop",
        "--json",
    )
    done = command(*asked).estimate
    assert (done["users"], done["adjusted"]) == (500, ["dropped"])


def test_the_most_frequent_labels_come_first_with_what_is_certain_of_their_ranks(
    command: Command, folder: Path
) -> None:
    counts = dict(zip("abcdefghijklmnop", (40, 900, 20, 700, *[10] * 12), strict=True))
    (folder / "many.csv").write_text("letter\n" + "".join(f"{name}\n" * count for name, count in counts.items()))
    asked = ("run", "many.csv", "--categories", "letter", "--labels", ",".join(counts), *PRIVACY, "--top", "2")
    shown = command(*asked, *SURE).out
    rows = re.findall(r"^ *([a-p]) +-?\d", shown, flags=re.MULTILINE)
    assert rows == ["b", "d"]
    assert lacking(shown, "Ranks 1-2 are certain", "2 of 16 labels are shown") == []
    top = command(*asked, "--json").document["top"]
    assert [row["label"] for row in top] == ["b", "d"]
    np.save("numbers.npy", np.zeros((1000, 2)))
    assert "[conflicting-arguments]" in command("run", "numbers.npy", *PRIVACY, "--top", "2").err


def test_how_many_users_a_list_of_words_does_not_cover(command: Command, folder: Path) -> None:
    counts = {"sun": 2500, "rain": 1500, "snow": 1000}
    (folder / "words.csv").write_text("word\n" + "".join(f"{name}\n" * count for name, count in counts.items()))
    (folder / "some.txt").write_text("sun\nrain\nsun\n")
    asked = (
        "run",
        "words.csv",
        "--open-vocabulary",
        "word",
        "--candidates",
        "some.txt",
        "--epsilon",
        "4",
        "--delta",
        "1e-6",
    )
    shown = command(*asked, *SURE).out
    found = re.search(
        r"About ([\d,]+) of 5,000 users hold a word that is not on this list .*: ([\d,]+) to ([\d,]+)", shown
    )
    assert found is not None, shown
    about, low, high = (int(text.replace(",", "")) for text in found.groups())
    assert low <= 1000 <= high
    assert low < about < high < 2500


def test_verbose_says_the_mechanism_and_nothing_else_does(command: Command, folder: Path) -> None:
    (folder / "yes.csv").write_text("answer\n" + "yes\n" * 900 + "no\n" * 300)
    asked = ("run", "yes.csv", "--categories", "answer", "--labels", "yes,no", *PRIVACY)
    assert "noisy-counts" not in command(*asked).out
    assert "mechanism: noisy-counts" in command(*asked, "--verbose").out
    document = command(*asked, "--verbose", "--json")
    assert "mechanism: noisy-counts" in document.err
    assert document.document["plan"]


def test_a_run_that_is_counted_says_nothing_of_a_second_release(command: Command, folder: Path) -> None:
    (folder / "yes.csv").write_text("answer\n" + "yes\n" * 900 + "no\n" * 300)
    plan = ss.plan(users=1000, domain=ss.Categories(["yes", "no"]), epsilon=1, delta=1e-6, noise_by="curator")
    (folder / "plan.json").write_text(plan.to_json())
    asked = ("run", "yes.csv", "--categories", "answer", "--plan", "plan.json")
    assert "second release" in command(*asked).err
    counted = (*asked, "--rounds-file", "rounds.db")
    assert "second release" not in command(*counted).err
    spent = command(*counted)
    assert spent.code == 2
    assert lacking(spent.err, "[rounds-spent]", "no round of it is left", "another plan", "budget ask") == []
    command("budget", "create", "budget.db", "--epsilon", "3", "--delta", "1e-5")
    assert "second release" not in command(*asked, "--budget", "budget.db").err
