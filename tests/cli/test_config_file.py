"""The file of `--config`: what cannot be an option is one error."""

from __future__ import annotations

import pytest

from speechmix.interfaces.cli import main


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("measure = " + "[" * 500 + "]" * 500, "is not valid TOML: nested too deeply"),
        (
            "[measure." + ".".join("a" * 500) + "]\nx = 1",
            "measure takes a text, a number or a list",
        ),
        ("seed = [1, [2]]", "found a table or a list of lists"),
        ("seed = " + "1" * 5000, "is not valid TOML"),
    ],
)
def test_nested_and_endless_values_are_refused(tmp_path, capsys, content, message):
    (tmp_path / "c.toml").write_text(content)
    assert main(["score", "--clips", "bundled:clips", "--config", str(tmp_path / "c.toml")]) == 1
    assert message in capsys.readouterr().err
