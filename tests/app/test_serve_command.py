"""`speechmix serve`: one call of the library; it says its address, answers there, ends by Ctrl-C
and leaves nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from speechmix.extensions.app import server
from speechmix.inputs import bundled
from speechmix.interfaces import cli
from tests.reports.synthetic_runs import synthetic_run


@pytest.fixture
def calls(monkeypatch):
    calls = []
    monkeypatch.setattr(
        server, "serve", lambda *models, **options: calls.append((*models, options))
    )
    return calls


def test_without_arguments_it_serves_what_comes_with_the_package_to_this_computer(calls):
    assert cli.main(["serve"]) == 0
    ((models, options),) = calls
    assert models == list(bundled.models().values())
    assert (options["host"], options["port"], options["run"], options["max_seconds"]) == (
        "127.0.0.1",
        0,
        None,
        60.0,
    )
    assert options["open_in_browser"]
    assert all(clip.meta["synthetic"] == "yes" for clip in options["examples"])


def test_its_options_are_those_of_the_call(calls, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "a").mkdir(parents=True)
    arguments = (
        "serve runs/a --model x --model y --audio sounds --max-seconds 9 --host 0.0.0.0 --port "
        "80 --no-browser --device cpu"
    )
    assert cli.main(arguments.split()) == 0
    ((models, options),) = calls
    assert models == ["x", "y"]
    told = {
        name: options[name]
        for name in ("run", "audio", "max_seconds", "host", "port", "open_in_browser")
    }
    assert told == {
        "run": "runs/a",
        "audio": "sounds",
        "max_seconds": 9.0,
        "host": "0.0.0.0",
        "port": 80,
        "open_in_browser": False,
    }
    assert options["load"].args[0].device == "cpu"


def test_a_folder_that_is_no_run_ends_with_the_reason(tmp_path, capsys):
    assert cli.main(["serve", str(tmp_path), "--no-browser"]) == 1
    assert "holds no run" in capsys.readouterr().err


def test_it_says_its_address_answers_there_and_ends_by_ctrl_c(tmp_path, monkeypatch):
    said, answered, opened = [], [], []
    run = synthetic_run(tmp_path / "run", clips=2, mapped=1)

    def interrupted(serving):
        serving.start()
        with urllib.request.urlopen(
            re.search(r"http://\S+", said[0])[0] + "api/clips", timeout=20
        ) as response:
            answered.append(response.read())
        serving.shutdown()
        raise KeyboardInterrupt

    start = server.Server.start

    def own_loop(serving):
        monkeypatch.undo()
        monkeypatch.setattr(server.webbrowser, "open", opened.append)
        return start(serving)

    monkeypatch.setattr(server.webbrowser, "open", opened.append)
    monkeypatch.setattr(server.Server, "serve_forever", interrupted)
    monkeypatch.setattr(server.Server, "start", own_loop)
    server.serve([], run=run, open_in_browser=False, log=said.append)
    assert b"clip_0000" in answered[0]
    assert said[-1] == "stopped"
    assert opened == []


@pytest.mark.long
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_the_process_ends_and_leaves_nothing(tmp_path, end):
    command = [sys.executable, "-m", "speechmix", "serve", "--no-browser", "--port", "0"]
    surroundings = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=surroundings
    )
    url = re.search(r"http://\S+", process.stdout.readline())[0]
    with urllib.request.urlopen(url, timeout=60) as page:
        assert b"speechmix" in page.read()
    process.send_signal(end)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out.strip().splitlines()[-1]) == (0, "stopped")
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
