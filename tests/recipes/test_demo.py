"""The lines of the study that runs in the background are printed, all of them, and in order."""

import subprocess
import sys

from recipes import demo, english_homophony


def test_what_a_process_writes_is_printed_until_it_ends(tmp_path, capsys):
    code = "import sys, time\nfor i in range(3): print('line', i, flush=True); time.sleep(0.1)\nsys.exit(2)"
    log = tmp_path / "log"
    with (
        log.open("wb") as output,
        subprocess.Popen([sys.executable, "-c", code], stdout=output) as process,
    ):
        demo.print_lines(log, process)
    assert process.returncode == 2
    assert capsys.readouterr().out == "line 0\nline 1\nline 2\n"


def test_the_nouns_of_the_demo_are_in_the_template():
    template = english_homophony.tomllib.loads(english_homophony.TEMPLATE.read_text())
    assert len(set(english_homophony.choose_nouns(template, demo.NOUNS))) == 20
