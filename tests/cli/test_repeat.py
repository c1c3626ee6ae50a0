"""The line with which a page says how to repeat it."""

from __future__ import annotations

import sys

import click
import pytest

from shufflesum.cli.output import command_line


def test_secrets_on_the_command_line_are_not_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["s3://key:secret@bucket/users?token=secret", "--conf", "spark.key=secret", "--conf=spark.other=secret"]
    monkeypatch.setattr(sys, "argv", ["shufflesum", "analyze", *given, "--json"])
    monkeypatch.setenv("CONF", "spark.third=secret")
    monkeypatch.setenv("USERS", "s3://secret@bucket/others")
    monkeypatch.setenv("QUIET", "1")
    command = click.Command(
        "analyze",
        params=[
            click.Option(["--conf"], envvar="CONF", callback=lambda _, __, text: dict([text.split("=")])),
            click.Option(["--users"], envvar="USERS", multiple=True),
            click.Option(["--quiet"], envvar="QUIET", is_flag=True),
        ],
    )
    with command.make_context("analyze", []):
        line = command_line()
    assert line == (
        "shufflesum analyze 's3://bucket/users?(hidden)' --conf 'spark.key=(hidden)' '--conf=spark.other=(hidden)' "
        "--json --conf 'spark.third=(hidden)' --users s3://bucket/others --quiet"
    )
