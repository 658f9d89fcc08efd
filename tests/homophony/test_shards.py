"""Stages in shards: the lines of one process, whoever did them, in whatever order, killed, done
twice, or both at once."""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import signal
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile

from speechmix.errors import InputError, StorageError
from speechmix.files.shard_assignment import WHOLE, Shard, shard_number
from speechmix.inputs.audio.decoding import open_bytes
from speechmix.interfaces.cli import main
from speechmix.runs.journal.stage_files import UNFINISHED
from speechmix.runs.journal.stage_journal import run_stage
from speechmix.runs.journal.stage_lines import (
    POSITION,
    lines,
    read_kept_lines,
    read_stage_options,
    summarize_stage_output,
)
from speechmix.studies.french import mine, stages, transcript_comparison
from speechmix.studies.french import stages as mined_lines
from speechmix.studies.french import stages as run_alignment_stage
from speechmix.studies.french.selection import select_examples
from speechmix.studies.french.stages import align_corpus, mine_corpus, transcribe_corpus
from speechmix.studies.french.study_folder import PAIRS, TRANSCRIPTS, WORDS
from speechmix.studies.french.study_status import (
    format_study_status,
    shards_to_resubmit,
    study_status,
)
from tests.reliability.kills import snapshot

pytest.importorskip("jiwer", reason="examples are chosen by transcript: extra speechmix[french]")

CLIPS = 24
TINY = SimpleNamespace(label="tiny", fingerprint="0", dtype="float32")
SPELLED = f"{TRANSCRIPTS}/tiny.jsonl"


def write_manifest(folder, names):
    """A clip a name, three kinds of sentence, word times and a cue of its own; every fifth is of a
    file that is not there."""
    soundfile.write(folder / "a.wav", np.sin(np.arange(16_000) / 9) / 3, 16_000)
    rows = []
    for i, name in enumerate(names):
        text = ("vois les livres", "oui", "les amis")[i % 3]
        words = [
            {"text": word, "start": k / 5, "end": (k + 1) / 5}
            for k, word in enumerate(text.split())
        ]
        row = {
            "path": "gone.wav" if i % 5 == 4 else "a.wav",
            "name": name,
            "text": text,
            "words": words,
        }
        pair = {"cue": "les", "target": text.split()[-1], "foil": "?"} if "les" in text else {}
        rows.append({**row, **pair})
    (folder / "m.jsonl").write_text(
        "".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8"
    )
    return folder / "m.jsonl"


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return write_manifest(tmp_path_factory.mktemp("corpus"), [f"clip_{i:02}" for i in range(CLIPS)])


@pytest.fixture(scope="module", autouse=True)
def quick_stages():
    """A mining without the lexicon, and a model that writes what is said, but for every fourth
    clip."""

    def transcribe_line(model, line, *, max_tokens):
        wrong = int(line["key"][-2:]) % 4 == 0
        transcript = "rien" if wrong else line["text"]
        return {
            "transcript": transcript,
            "errors": int(wrong),
            "words": 3,
            "wer": 0.0,
            "tokens": None,
        }

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "build_miners", lambda *options: ())
        patch.setattr(
            mined_lines,
            "mine_sentence",
            lambda miners, text: SimpleNamespace(pairs=[], dropped_candidates=[]),
        )
        patch.setattr(transcript_comparison, "transcribe_line", transcribe_line)
        yield


def do(stage, manifest, study, shard=WHOLE, **options):
    if stage == "mine":
        return mine_corpus(manifest, study, shard=shard, **options)
    if stage == "align":
        return align_corpus(study, shard=shard, **options)
    return transcribe_corpus(study, [TINY], shard=shard, **options)[0]


def all_shards(count):
    return [Shard(index, count) for index in range(1, count + 1)]


@pytest.fixture(scope="module")
def whole(manifest, tmp_path_factory):
    """The study by one process."""
    study = tmp_path_factory.mktemp("whole") / "study"
    for stage in ("mine", "align", "transcribe"):
        do(stage, manifest, study)
    select_examples(study)
    return study


def assert_same(study, whole, *outputs):
    """The same lines in the same order, entry for entry."""
    for output in outputs:
        here, there = (
            [json.dumps(line) for line in lines(folder / output)] for folder in (study, whole)
        )
        assert here == there


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.long), 7])
def test_shards_in_any_order_give_what_one_process_gives(count, manifest, whole, tmp_path):
    study, rng = tmp_path / "study", random.Random(count)
    for stage in ("mine", "align", "transcribe"):
        for shard in rng.sample(all_shards(count), count):
            do(stage, manifest, study, shard)
    assert_same(study, whole, PAIRS, WORDS, SPELLED)
    assert sum(1 for _ in lines(study / PAIRS)) == CLIPS
    select_examples(study)
    for name in ("counts.csv", "models.csv", "examples.csv", "dropped.csv"):
        assert (study / "examples" / name).read_bytes() == (whole / "examples" / name).read_bytes()
    tables = [pq.read_table(folder / "examples" / "examples.parquet") for folder in (study, whole)]
    assert tables[0].equals(tables[1])
    assert tables[0].num_rows > 5
    assert {path.name for path in (study / "pairs").glob("*.jsonl*")} == {
        f"{s.label}.jsonl" for s in all_shards(count)
    }


def test_stages_may_be_in_different_numbers_of_shards(manifest, whole, tmp_path):
    for counts in ((1, 2, 3), (3, 1, 2), (4, 6, 1)):
        study = tmp_path / "-".join(map(str, counts))
        for stage, count in zip(("mine", "align", "transcribe"), counts, strict=True):
            for shard in all_shards(count):
                do(stage, manifest, study, shard)
        assert_same(study, whole, PAIRS, WORDS, SPELLED)


def test_a_stage_needs_only_the_shards_that_hold_its_clips(manifest, tmp_path):
    do("mine", manifest, tmp_path, Shard(1, 4))
    do("mine", manifest, tmp_path, Shard(3, 4))
    do(
        "align", manifest, tmp_path, Shard(3, 6)
    )  # 3 modulo 2: of four shards the first and the third
    with pytest.raises(
        InputError, match=r"pairs lack shards 2/4 and 4/4: speechmix mine \.\.\. --shard 2/4"
    ):
        do("align", manifest, tmp_path, Shard(4, 6))
    with pytest.raises(InputError, match=r"words lack shards 1/6 and 5/6: speechmix align"):
        do("transcribe", manifest, tmp_path, Shard(1, 2))


def test_select_names_what_is_missing(manifest, tmp_path):
    for stage in ("mine", "align"):
        for shard in all_shards(3):
            do(stage, manifest, tmp_path, shard)
    do("transcribe", manifest, tmp_path, Shard(2, 3))
    with pytest.raises(
        InputError, match="transcripts of tiny lack shards 1/3 and 3/3: speechmix transcribe"
    ):
        select_examples(tmp_path)
    (tmp_path / "words" / "3-of-3.jsonl").unlink()
    with pytest.raises(InputError, match="words lack shard 3/3"):
        select_examples(tmp_path, models=[])


def test_another_number_of_shards_is_refused(manifest, whole, tmp_path):
    do("mine", manifest, tmp_path, Shard(1, 4))
    with pytest.raises(
        InputError,
        match="made in 4 shards, and this is --shard 1/3: go on with --shard i/4, or delete",
    ):
        do("mine", manifest, tmp_path, Shard(1, 3))
    with pytest.raises(InputError, match="made in 4 shards, and this is no --shard"):
        do("mine", manifest, tmp_path)
    with pytest.raises(
        InputError, match="made by one process, and this is --shard 1/3: go on without --shard"
    ):
        do("mine", manifest, whole, Shard(1, 3))
    (tmp_path / "pairs" / "2-of-3.jsonl").write_bytes(b"")
    with pytest.raises(InputError, match="pairs by 3 shards and 4 shards: expected one of them"):
        list(lines(tmp_path / PAIRS))


def test_other_options_are_refused_by_every_shard(manifest, tmp_path):
    do("mine", manifest, tmp_path, Shard(1, 2))
    with pytest.raises(InputError, match="language: 'fr', now 'de'"):
        do("mine", manifest, tmp_path, Shard(2, 2), language="de")
    do("mine", manifest, tmp_path, Shard(2, 2), language="de", overwrite=True)
    with pytest.raises(InputError, match="of other options than 1-of-2"):
        list(lines(tmp_path / PAIRS))
    do("mine", manifest, tmp_path, Shard(1, 2), language="de", overwrite=True)
    assert {line["language"] for line in read_kept_lines(tmp_path / PAIRS)} == {"de"}
    assert read_stage_options(tmp_path / PAIRS)["language"] == "de"


def test_shards_of_a_corpus_that_was_changed_between_them_are_not_put_together(tmp_path):
    manifest = write_manifest(tmp_path, [f"clip_{i:02}" for i in range(6)])
    do("mine", manifest, tmp_path / "study", Shard(1, 2))
    write_manifest(tmp_path, [f"clip_{i:02}" for i in range(9)])
    do("mine", manifest, tmp_path / "study", Shard(2, 2))
    with pytest.raises(InputError, match="of other corpus than"):
        list(lines(tmp_path / "study" / PAIRS))
    do("mine", manifest, tmp_path / "study", Shard(1, 2))
    assert [line["key"] for line in lines(tmp_path / "study" / PAIRS)] == [
        f"clip_{i:02}" for i in range(9)
    ]


def in_a_process(job) -> int:
    """Start a job in a process of its own; returns its number."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            job()
            status = 0
        except StorageError as error:
            status = 7 if "1-of-2, is being written to by process" in str(error) else 2
        finally:
            os._exit(status)
    return child


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forks of one")
def test_two_shards_at_once_and_one_twice(manifest, whole, tmp_path, monkeypatch):
    """The first shard holds its lock until the second has ended, and its twin was refused."""
    reader, writer = os.pipe()
    done_reader, done_writer = os.pipe()
    make_mined_line = stages.make_mined_line
    waited = []

    def slow(*arguments, **options):
        if not waited:
            waited.append(True)
            os.write(writer, b"x")
            os.read(done_reader, 1)
        return make_mined_line(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(stages, "make_mined_line", slow)
        first = in_a_process(lambda: do("mine", manifest, tmp_path, Shard(1, 2)))
    os.read(reader, 1)  # at its first clip
    second = in_a_process(lambda: do("mine", manifest, tmp_path, Shard(2, 2)))
    twin = in_a_process(lambda: do("mine", manifest, tmp_path, Shard(1, 2)))
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in (second, twin)]
    os.write(done_writer, b"x")
    assert [*statuses, os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])] == [0, 7, 0]
    assert_same(tmp_path, whole, PAIRS)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the process that is killed is a fork")
@pytest.mark.parametrize("stage", ["mine", "align", "transcribe"])
def test_killed_in_the_middle_and_requeued(stage, manifest, whole, tmp_path, monkeypatch):
    before = ("mine", "align", "transcribe")[: ("mine", "align", "transcribe").index(stage)]
    for earlier in before:
        for shard in all_shards(2):
            do(earlier, manifest, tmp_path, shard)
    worker = {
        "mine": (stages, "make_mined_line"),
        "align": (run_alignment_stage, "recording_signature"),
        "transcribe": (transcript_comparison, "transcribe_line"),
    }
    module, name = worker[stage]
    work, calls = getattr(module, name), []

    def deadly(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return work(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(module, name, deadly)
        child = in_a_process(lambda: do(stage, manifest, tmp_path, Shard(1, 2)))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    output = {"mine": PAIRS, "align": WORDS, "transcribe": SPELLED}[stage]
    unfinished = tmp_path / output.removesuffix(".jsonl") / f"1-of-2.jsonl{UNFINISHED}"
    so_far = unfinished.read_bytes().splitlines()
    assert len(so_far) >= 2
    table = study_status(tmp_path).set_index("stage").loc[stage]
    assert (table.shards_done, table.shards, table.missing, table.unfinished) == (0, 2, "1,2", "1")
    assert table.clips_done + table.left_out == len(so_far) - 1
    path = do(stage, manifest, tmp_path, Shard(1, 2))
    assert path.read_bytes().splitlines()[1 : len(so_far)] == so_far[1:]
    do(stage, manifest, tmp_path, Shard(2, 2))
    assert_same(tmp_path, whole, output)
    assert not unfinished.exists()


def test_a_shard_that_is_done_does_nothing_again(manifest, tmp_path, monkeypatch):
    path = do("mine", manifest, tmp_path, Shard(1, 2))
    written, before = path.read_bytes(), snapshot(tmp_path)
    monkeypatch.setattr(stages, "make_mined_line", None)  # whoever calls it dies
    assert do("mine", manifest, tmp_path, Shard(1, 2)).read_bytes() == written
    assert snapshot(tmp_path) == before


def test_a_line_that_was_changed_is_noticed_and_made_again(manifest, whole, tmp_path):
    for shard in all_shards(2):
        do("mine", manifest, tmp_path, shard)
    path = tmp_path / "pairs" / "2-of-2.jsonl"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"livres", b"lavres", 1))
    with pytest.raises(InputError, match=r"2-of-2\.jsonl, line \d+, is damaged"):
        list(lines(tmp_path / PAIRS))
    status = study_status(tmp_path)
    assert status.loc[0, ["missing", "damaged"]].tolist() == ["2", "2"]
    do("mine", manifest, tmp_path, Shard(2, 2))
    assert path.read_bytes() == content
    path.rename(tmp_path / "pairs" / "1-of-2.jsonl")
    (tmp_path / "pairs" / "2-of-2.jsonl").write_bytes(content)
    with pytest.raises(InputError, match="is the shard 2-of-2: give it its name again"):
        list(lines(tmp_path / PAIRS))


def test_a_first_line_that_was_changed_is_noticed(manifest, whole, tmp_path):
    """It says of which shard and options the lines are: without it nobody knows."""
    for shard in all_shards(2):
        do("mine", manifest, tmp_path, shard)
    path = tmp_path / "pairs" / "2-of-2.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"language": "fr"', b'"language": "de"', 1))
    with pytest.raises(InputError, match=r"2-of-2\.jsonl, line 1, is damaged"):
        list(lines(tmp_path / PAIRS))
    assert study_status(tmp_path).loc[0, ["missing", "damaged"]].tolist() == ["2", "2"]
    with pytest.warns(UserWarning, match="set aside"):
        do("mine", manifest, tmp_path, Shard(2, 2))
    assert_same(tmp_path, whole, PAIRS)


def test_words_of_a_corpus_that_was_changed_between_shards_are_not_put_together(tmp_path):
    """The corpus is aligned as it is: no stage before this one tells one corpus from the other."""
    manifest = write_manifest(tmp_path, [f"clip_{i:02}" for i in range(6)])
    align_corpus(tmp_path / "study", source=manifest, shard=Shard(1, 2))
    write_manifest(tmp_path, [f"clip_{i:02}" for i in range(9)])
    align_corpus(tmp_path / "study", source=manifest, shard=Shard(2, 2))
    with pytest.raises(InputError, match="of other corpus than"):
        list(lines(tmp_path / "study" / WORDS))
    align_corpus(tmp_path / "study", source=manifest, shard=Shard(1, 2))
    align_corpus(tmp_path / "one", source=manifest)
    assert_same(tmp_path / "study", tmp_path / "one", WORDS)


def test_words_of_other_pairs_are_no_examples(tmp_path):
    """Nobody is asked to spell, so no transcript says whose words these are."""
    manifest = write_manifest(tmp_path, [f"clip_{i:02}" for i in range(6)])
    for stage in ("mine", "align"):
        do(stage, manifest, tmp_path / "study")
    manifest.write_text(
        manifest.read_text(encoding="utf-8").replace("vois les livres", "vois  les livres"), "utf-8"
    )
    do("mine", manifest, tmp_path / "study")
    with pytest.raises(InputError, match=r"belong to other pairs .*: align again"):
        select_examples(tmp_path / "study", models=[])


def test_a_shard_that_has_only_begun_does_not_say_of_which_model_it_is(manifest, whole, tmp_path):
    for stage in ("mine", "align"):
        do(stage, manifest, tmp_path)
    begun = tmp_path / TRANSCRIPTS / "tiny" / f"1-of-2.jsonl{UNFINISHED}"
    begun.parent.mkdir(parents=True)
    begun.touch()
    with pytest.raises(InputError, match=r"tiny.* does not say of which model"):
        select_examples(tmp_path)
    assert study_status(tmp_path).set_index("stage").loc[
        "transcribe", ["model", "missing"]
    ].tolist() == ["tiny", "1,2"]


def test_names_of_one_shard_leave_the_others_empty(tmp_path):
    names = [name for name in (f"clip_{i:02}" for i in range(60)) if shard_number(name, 3) == 2]
    manifest = write_manifest(tmp_path, names)
    for shard in all_shards(3):
        for stage in ("mine", "align", "transcribe"):
            do(stage, manifest, tmp_path / "study", shard)
    assert [line["key"] for line in lines(tmp_path / "study" / PAIRS)] == names
    assert summarize_stage_output(tmp_path / "study" / "pairs" / "1-of-3.jsonl").startswith(
        "pairs, shard 1-of-3: 0 kept, 0 dropped;"
    )
    assert pq.read_table(select_examples(tmp_path / "study") / "examples.parquet").num_rows > 3


def test_what_one_process_writes_is_what_earlier_versions_wrote(whole):
    """No entry is new, and the words say which pairs they are of by the same hash: of all lines one
    after the other."""
    first, *rows, last = [
        json.loads(line) for line in (whole / PAIRS).read_text(encoding="utf-8").splitlines()
    ]
    assert set(first) == {"stage", "options", "versions", "sum"}
    assert all(POSITION not in row for row in rows)
    assert (last["end"], last["inputs"]) == (CLIPS, {})
    entries = hashlib.sha256()
    for row in rows:
        if "why" not in row:
            entries.update(
                json.dumps([row["key"], row["text"], row["path"]], ensure_ascii=False).encode()
            )
    for output in (WORDS, SPELLED):
        last = json.loads((whole / output).read_text(encoding="utf-8").splitlines()[-1])
        assert last["inputs"] == {"pairs": entries.hexdigest()[:16]}


def test_recordings_of_a_data_set_are_read_where_they_lie_by_every_shard(tmp_path, monkeypatch):
    import datasets

    rows = [
        {
            "audio": {"bytes": b"RIFF%d" % i, "path": f"x/clip_{i:02}.wav"},
            "sentence": f"les livres {i}",
        }
        for i in range(11)
    ]
    data = datasets.Dataset.from_list(rows).cast_column("audio", datasets.Audio(decode=False))
    data.save_to_disk(tmp_path / "data")
    shard = Shard(2, 3)
    monkeypatch.setattr(
        mined_lines,
        "mine_sentence",
        lambda miners, text: SimpleNamespace(
            pairs=[mine("les chats").pairs[0]], dropped_candidates=[]
        ),
    )
    path = do("mine", tmp_path / "data", tmp_path / "study", shard)
    own = {f"clip_{i:02}": b"RIFF%d" % i for i in range(11) if shard.holds(f"clip_{i:02}")}
    assert {line["key"]: open_bytes(line["path"]).read() for line in lines(path)} == own
    assert not (tmp_path / "study" / "audio").exists()


def test_more_shards_than_a_process_may_have_files_open(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    items = [(f"clip_{i}", i) for i in range(300)]
    for shard in all_shards(80):
        own = [(key, i) for key, i in items if shard.holds(key)]
        run_stage(
            tmp_path / PAIRS,
            own,
            lambda i: {"number": i},
            options={},
            ingredients=lambda i, stored: {POSITION: i},
            shard=shard,
        )
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, hard))
        assert [line["number"] for line in lines(tmp_path / PAIRS)] == list(range(300))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def missing_by_stage(study):
    table = study_status(study).set_index("stage")
    return dict(
        zip(table.index, zip(table["missing"], table["outdated"], strict=True), strict=True)
    )


def test_status_knows_shards_that_do_not_belong_to_the_others(manifest, tmp_path):
    """Complete is not enough: what `lines` would refuse to put together, or a later stage to read,
    is to be done again."""
    for stage, count in (("mine", 2), ("align", 3), ("transcribe", 1)):
        for shard in all_shards(count):
            do(stage, manifest, tmp_path, shard)
    assert missing_by_stage(tmp_path) == dict.fromkeys(("mine", "align", "transcribe"), ("", ""))
    do("align", manifest, tmp_path, Shard(2, 3), method="ctc", overwrite=True)
    assert missing_by_stage(tmp_path)["align"] == ("1,3", "1,3")
    with pytest.raises(InputError, match="of other options"):
        list(lines(tmp_path / WORDS))
    for index in (1, 3):
        do("align", manifest, tmp_path, Shard(index, 3), method="ctc", overwrite=True)
    assert missing_by_stage(tmp_path)["align"] == ("", "")
    fewer = write_manifest(tmp_path, [f"clip_{i:02}" for i in range(CLIPS - 1)])
    for shard in all_shards(2):
        mine_corpus(fewer, tmp_path, shard=shard, overwrite=True)
    assert missing_by_stage(tmp_path) == {
        "mine": ("", ""),
        "align": ("1-3", "1-3"),
        "transcribe": ("1", "1"),
    }
    for shard in all_shards(3):
        do("align", manifest, tmp_path, shard, method="ctc")
    assert missing_by_stage(tmp_path)["align"] == ("", "")
    text = format_study_status(study_status(tmp_path), tmp_path)
    assert "transcribe tiny: not done; " in text
    assert "outdated: 1 (of other options" in text


def test_status_knows_a_stage_that_was_stopped_and_one_that_was_not_begun(
    manifest, tmp_path, monkeypatch
):
    for stage in ("mine", "align"):
        do(stage, manifest, tmp_path)
    text = format_study_status(study_status(tmp_path), tmp_path)
    assert text.endswith(f"transcribe: not begun: speechmix transcribe {tmp_path} --model MODEL")

    def stopped(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(transcript_comparison, "transcribe_line", stopped)
        with pytest.raises(KeyboardInterrupt):
            do("transcribe", manifest, tmp_path)
    text = format_study_status(study_status(tmp_path), tmp_path)
    assert "transcribe tiny: not done; " in text
    assert "unfinished: 1 (at work, or stopped)" in text
    assert "select" not in text
    do("transcribe", manifest, tmp_path)
    assert format_study_status(study_status(tmp_path), tmp_path).endswith(
        f"select: not done: speechmix select {tmp_path}"
    )


def test_status_on_the_command_line(manifest, whole, tmp_path, capsys):
    study = tmp_path / "run" / "corpus"
    assert main(["mine", str(manifest), "--out", str(study), "--shard", "2/5"]) == 0
    assert "pairs, shard 2-of-5: " in capsys.readouterr().out
    assert main(["mine", str(manifest), "--out", str(study), "--shard", "6/5"]) == 1
    assert "1/5 to 5/5" in capsys.readouterr().err
    assert main(["status", str(tmp_path / "run"), "--missing", "mine"]) == 0
    assert capsys.readouterr().out == "1,3-5\n"
    assert main(["status", str(study), "--missing", "align"]) == 0
    assert capsys.readouterr().out == "1-5\n"
    assert main(["status", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    assert "mine: 1 of 5 shards; " in printed
    assert "missing: 1,3-5" in printed
    assert main(["status", str(study), "--missing", "score"]) == 1
    assert "expected one of mine, align" in capsys.readouterr().err
    assert main(["status", str(tmp_path)]) == 1
    assert "is neither a study" in capsys.readouterr().err
    assert main(["status", str(whole)]) == 0
    printed = capsys.readouterr().out.splitlines()
    mined = sum(1 for _ in read_kept_lines(whole / PAIRS))
    assert printed[0].startswith(
        f"mine: done; {mined} clips done, {CLIPS - mined} left out (no pair"
    )
    assert printed[-1] == "select: done"
    assert format_study_status(study_status(whole), whole).splitlines() == printed
    with pytest.raises(InputError, match="by one process, not in shards"):
        shards_to_resubmit(study_status(whole), "mine")
