"""Users' files and folders of reports at addresses: an object store over HTTP, and fsspec's memory."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, fs, parquet
from tests.batch.report_folders import grid_rows, noiseless_plan
from tests.refusals import refusal

from shufflesum.batch.files import Format, open_dataset
from shufflesum.batch.local import count, open_users, randomize
from shufflesum.batch.shuffle import shuffle
from shufflesum.batch.targets import PlainTarget
from shufflesum.errors import FileError, ParameterError, ReportsError
from shufflesum.tables.paths import Address, place
from shufflesum.tables.readers import open_table

PLAN = noiseless_plan()
TARGET = PlainTarget(PLAN)


@pytest.fixture(scope="module")
def store() -> Iterator[tuple[str, Any]]:
    """The address of a bucket in an object store that speaks S3, on this machine; and a way to write to it."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "someone")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        bucket = fs.S3FileSystem(endpoint_override=f"{host}:{port}", scheme="http", allow_bucket_creation=True)
        bucket.create_dir("hospital")
        yield "s3://hospital", bucket
    server.stop()


@pytest.fixture
def memory() -> tuple[str, Any]:
    """The same in fsspec's memory, which PyArrow has no name for."""
    import fsspec

    return "memory://hospital", fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem("memory")))


@pytest.fixture(params=["store", "memory"])
def there(request: pytest.FixtureRequest) -> tuple[str, Any]:
    found: tuple[str, Any] = request.getfixturevalue(request.param)
    return found


def put(files: Any, folder: Path, name: str) -> None:
    """Copy a folder to hospital/NAME."""
    for path in sorted(folder.iterdir()):
        files.create_dir(f"hospital/{name}")
        with files.open_output_stream(f"hospital/{name}/{path.name}") as stream:
            stream.write(path.read_bytes())


def test_all_three_steps_read_what_is_at_an_address(there: tuple[str, Any], tmp_path: Path) -> None:
    address, files = there
    rows, table = grid_rows(500, PLAN)
    (tmp_path / "users").mkdir()
    for number, part in enumerate(np.split(rows, [200])):
        columns = pa.table({f"x{i}": part[:, i] for i in range(3)})
        parquet.write_table(columns, tmp_path / "users" / f"{number}.parquet")
    (tmp_path / "users" / "2.parquet").touch()
    put(files, tmp_path / "users", "users")
    with pytest.warns(UserWarning, match=r"2\.parquet"):
        users = open_users(f"{address}/users")
    assert (users.rows, users.names) == (500, ("x0", "x1", "x2"))
    made = [randomize(users, tmp_path / "reports", TARGET) for _ in range(2)]
    assert made[0].identity == made[1].identity  # as it was finished before
    kinds: tuple[Format, ...] = ("parquet", "arrow")
    for kind in kinds:
        name = f"shuffled-{kind}"
        put(files, tmp_path / "reports", f"reports-{kind}")
        with refusal("missing-argument", "released=", error=ParameterError):
            shuffle(f"{address}/reports-{kind}", tmp_path / name)
        listed = tmp_path / "released.db"
        shuffle(f"{address}/reports-{kind}", tmp_path / name, released=listed, format=kind)
        put(files, tmp_path / name, name)
        dataset = open_dataset(f"{address}/{name}", stage="shuffled")
        counts, digests = count(dataset, TARGET)
        np.testing.assert_array_equal(counts.table, table)
        assert set(digests.values()) == set(count(open_dataset(tmp_path / name, stage="shuffled"), TARGET)[1].values())


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.feather"])
def test_files_of_text_and_of_arrow_are_read_at_addresses(there: tuple[str, Any], name: str) -> None:
    address, files = there
    table = pa.table({"x": [1.5, 2.5], "y": [3, 4]})
    text = b"x;y\n1,5;3\n2,5;4\n"
    with files.open_output_stream(f"hospital/{name}", compression=None) as stream:
        if name.endswith("feather"):
            with pa.ipc.new_file(stream, table.schema) as file:
                file.write_table(table)
        else:
            stream.write(gzip.compress(text) if name.endswith("gz") else text)
    found = open_table(f"{address}/{name}")
    assert (found.rows, found.names) == (2, ("x", "y"))
    assert np.concatenate(list(found.batches())).tolist() == [[1.5, 3], [2.5, 4]]


def test_a_folder_at_an_address_is_whole_or_refused(there: tuple[str, Any], tmp_path: Path) -> None:
    address, files = there
    np.save(tmp_path / "u.npy", grid_rows(20, PLAN)[0])
    randomize(open_users(tmp_path / "u.npy"), tmp_path / "reports", TARGET)
    shutil.copytree(tmp_path / "reports", tmp_path / "without")
    (tmp_path / "without" / "_shufflesum.json").unlink()
    put(files, tmp_path / "without", "half")
    for part in ("half", "half/part-000000.parquet"):
        with refusal("not-whole", "_shufflesum.json", error=ReportsError):
            open_dataset(f"{address}/{part}", stage="reports")
    (tmp_path / "reports" / "part-000000.parquet").rename(tmp_path / "reports" / "part-000001.parquet")
    put(files, tmp_path / "reports", "half")
    with refusal(("changed-afterwards", "counted-twice"), error=ReportsError):
        open_dataset(f"{address}/half", stage="reports")


def test_files_with_the_same_bytes_are_found_at_addresses_too(memory: tuple[str, Any], tmp_path: Path) -> None:
    address, files = memory
    (tmp_path / "users").mkdir()
    for name in "ab":
        feather.write_feather(pa.table({"x": np.arange(9.0)}), str(tmp_path / "users" / f"{name}.feather"))
    put(files, tmp_path / "users", "twins")
    with refusal("counted-twice", "memory://hospital/twins/a.feather", error=FileError):
        open_users(f"{address}/twins")


def test_what_cannot_be_read_at_an_address_is_no_missing_path(store: tuple[str, Any], tmp_path: Path) -> None:
    address, _ = store
    for missing in (
        f"{address}/nothing",
        f"{address}/nothing.parquet",
        "s3://no-such-bucket/users",
        "nosuch://x/users",
    ):
        with refusal("unreachable", missing, error=FileError):
            open_users(missing)
        with refusal("unreachable", missing, error=FileError):
            open_dataset(missing, stage="reports")
    with refusal("unreachable", "s3://hospital/x.csv", error=FileError) as caught:
        open_table("s3://someone:password@hospital/x.csv?session_token=password")
    assert "password" not in str(caught.value)


def test_nothing_is_written_to_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("u.npy", grid_rows(20, PLAN)[0])
    for output in ("s3://hospital/reports", Path("s3://hospital/reports")):
        with refusal("unwritable", "s3://hospital/reports: is an address", error=FileError):
            randomize(open_users("u.npy"), output, TARGET)
    randomize(open_users("u.npy"), "reports", TARGET)
    with refusal("unwritable", "s3://hospital/shuffled: is an address", error=FileError):
        shuffle("reports", "s3://someone:password@hospital/shuffled?token=password")
    with refusal("unwritable", "address", error=FileError):
        shuffle("reports", "shuffled", released="s3://hospital/released.db")
    assert sorted(os.listdir()) == [".reports.finished", "reports", "u.npy"]


def test_addresses_have_the_manners_of_paths() -> None:
    found = place("s3://bucket/users/a.csv.gz?region=eu-west-1")
    assert isinstance(found, Address)
    assert (found.name, found.stem, found.suffix) == ("a.csv.gz", "a.csv", ".gz")
    assert (str(found), str(found.parent / "b")) == ("s3://bucket/users/a.csv.gz", "s3://bucket/users/b")
    assert (found.parent / "b").text == "s3://bucket/users/b?region=eu-west-1"
    assert place("file:///tmp/a%20b") == Path("/tmp/a b")
    assert place("a/b") == place(Path("a/b")) == Path("a/b")
