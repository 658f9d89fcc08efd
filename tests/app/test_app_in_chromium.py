"""The app in a real browser: record, open, place, move, look, silence, compare, save; by mouse, by
keys, at two widths."""

from __future__ import annotations

import json

import numpy as np
import pytest
import soundfile

from speechmix.inputs import bundled
from speechmix.runs.results.open_run import open_run
from tests.app.serving import example, serving, worked
from tests.reports.chromium import EXECUTABLE, Browser
from tests.reports.synthetic_runs import synthetic_run

pytestmark = pytest.mark.skipif(EXECUTABLE is None, reason="no Chromium is installed")
EVIL = "<img src=x onerror=alert(1)>"
SAMPLE_RATE, PITCH = 16_000, 500.0  # of the tone that the fake microphone hears
PATIENCE = 120  # seconds, where a model is loaded on a machine that does other things
IDLE = (
    "document.querySelector('#status .told')?.textContent === 'ready' && "
    "[...document.querySelectorAll('.panel')].every((panel) => !panel.classList.contains('busy'))"
)
WORDS = (
    "speechmix.clip.words.map(([text, start, end]) => [text, Math.round(1000 * start), "
    "Math.round(1000 * end)])"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """SYNTHETIC: numbers alone, no model was run."""
    folder = synthetic_run(tmp_path_factory.mktemp("app") / "run", clips=4, mapped=3)
    table = (folder / "clips.csv").read_text().replace("elle a perdu les livres", EVIL, 1)
    (folder / "clips.csv").write_text(table)
    return open_run(folder)


@pytest.fixture(scope="module")
def server(run):
    with serving(run=run, max_seconds=5.0) as server:
        yield server


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    heard = tmp_path_factory.mktemp("microphone") / "tone.wav"
    soundfile.write(heard, 0.5 * np.sin(2 * np.pi * PITCH * np.arange(48_000 * 4) / 48_000), 48_000)
    flags = (
        "--use-fake-device-for-media-stream",
        "--use-fake-ui-for-media-stream",
        f"--use-file-for-fake-audio-capture={heard}",
    )
    with Browser(flags=flags) as browser:
        yield browser


@pytest.fixture
def page(browser, server):
    """The page as it is opened first."""
    browser.messages.clear()
    browser.open(server.url)
    browser.until(IDLE, PATIENCE)
    yield browser
    assert browser.messages == []


@pytest.fixture
def opened(page):
    """With a synthetic clip, measured."""
    page.evaluate("document.querySelectorAll('#examples .chip')[1].click()")
    page.until(
        f"speechmix.clip?.name === 'left_00_pl' && {IDLE} && speechmix.player.buffer && "
        f"!{hidden('.panel .body')}",
        60,
    )
    return page


def hidden(selector: str) -> str:
    return f"document.querySelector({json.dumps(selector)}).hidden"


def text(browser: Browser, selector: str) -> str:
    return browser.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")


def choose(browser: Browser, selector: str, value: str) -> None:
    browser.evaluate(
        f"{{ const s = document.querySelector({json.dumps(selector)}); s.value = "
        f"{json.dumps(value)}; "
        "s.dispatchEvent(new Event('change', {bubbles: true})); }"
    )


def test_it_begins_empty_and_asks_for_a_sound(page):
    assert "Record" in text(page, "#begin")
    assert "up to 5 s" in text(page, "#begin")
    assert page.evaluate(hidden("#work"))


def test_a_file_is_opened_written_placed_and_measured(page, tmp_path):
    clip = bundled.clips()[1]
    soundfile.write(tmp_path / f"{EVIL.replace('/', '')}.wav", clip.audio(SAMPLE_RATE), SAMPLE_RATE)
    page.upload("#file", next(tmp_path.iterdir()))
    page.until(f"speechmix.clip?.words && {IDLE} && !{hidden('.panel .body')}", PATIENCE)
    assert page.evaluate("speechmix.clip.name.includes('<')") is False
    assert page.evaluate("document.querySelectorAll('img[onerror]').length") == 0
    words = page.evaluate(WORDS)
    assert (
        " ".join(word for word, _, _ in words)
        == page.evaluate("document.querySelector('#text').value")
        != ""
    )
    assert "word times: by ctc" in text(page, "#facts")
    shares = page.evaluate(
        "[...document.querySelectorAll('.made .token small')].map((one) => Number(one.textContent))"
    )
    assert sum(shares) == pytest.approx(100, abs=1)


# What is asked is said to wait when it is long over: the server's first word of a request comes a
# second late.
LATE = """{ const original = window.fetch; window.fetch = async (path, options) => {
  const answer = await original(path, options);
  if (options?.method === "POST" && String(path).endsWith("api/jobs")) {
    await new Promise((done) => setTimeout(done, 1000));
    const taken = await answer.json();
    return new Response(JSON.stringify({ ...taken, job: { ...taken.job, state: "waiting", before: 0 } }));
  }
  return answer;
}; }"""


def test_what_is_over_before_it_is_said_to_wait_is_over(page):
    page.evaluate(LATE)
    page.evaluate("document.querySelectorAll('#examples .chip')[1].click()")
    page.until(f"speechmix.clip?.name === 'left_00_pl' && {IDLE} && !{hidden('.panel .body')}")


def test_a_sound_is_dropped_and_what_only_the_browser_reads_is_decoded_by_it(opened):
    seconds = opened.evaluate("speechmix.clip.seconds")
    opened.evaluate("""(async () => {
      const carried = new DataTransfer(), answer = await fetch(`api/recordings/${speechmix.clip.recording}/sound`);
      carried.items.add(new File([await answer.blob()], "dropped.m4a"));
      document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: carried, bubbles: true, cancelable: true }));
    })()""")
    opened.until(
        f"speechmix.clip.name === 'dropped' && {IDLE} && speechmix.clip.words && "
        f"!{hidden('.panel .body')}",
        PATIENCE,
    )
    assert opened.evaluate("speechmix.clip.seconds") == pytest.approx(seconds, abs=1e-3)


def test_what_is_no_recording_or_too_long_says_so(page, tmp_path):
    (tmp_path / "text.wav").write_text("no sound")
    soundfile.write(tmp_path / "long.flac", np.zeros(6 * SAMPLE_RATE), SAMPLE_RATE)
    for name, words in (
        ("text.wav", "cannot read text.wav as audio"),
        ("long.flac", "is 6.0 s long, the limit is 5 s"),
    ):
        page.upload("#file", tmp_path / name)
        page.until(f"document.querySelector('#notice').innerText.includes({json.dumps(words)})")
    page.messages[:] = [
        one for one in page.messages if "400" not in one
    ]  # the console's own line about each refusal


def test_the_microphone_is_recorded_as_it_sounds(page):
    page.click("#record")
    page.until("parseFloat(document.querySelector('#level span').textContent) > 0.6")
    page.click("#record")
    page.until(
        "speechmix.clip?.name.startsWith('recording_') && Boolean(speechmix.player.buffer)",
        PATIENCE,
    )
    samples = page.evaluate(
        "[...speechmix.player.buffer.getChannelData(0)].map((one) => Math.round(1e4 * one) / 1e4)"
    )
    rate = page.evaluate("speechmix.player.buffer.sampleRate")
    half = np.array(samples[len(samples) // 2 :]) * np.hanning(len(samples) - len(samples) // 2)
    loudest = np.argmax(np.abs(np.fft.rfft(half))) * rate / len(half)
    assert len(samples) / rate > 0.5
    assert loudest == pytest.approx(PITCH, abs=10)
    page.until(IDLE, PATIENCE)


def test_a_border_is_moved_by_mouse_and_by_keys_and_taken_back(opened):
    before, width = (
        opened.evaluate(WORDS),
        opened.evaluate("document.querySelector('#stage').clientWidth"),
    )
    cells = opened.evaluate("document.querySelector('.map canvas').toDataURL()")
    opened.drag('[data-border="0|1"]', 0.1 * width / opened.evaluate("speechmix.clip.seconds"))
    (_, start, end), (_, begin, last) = opened.evaluate(WORDS)
    assert (start, last) == (before[0][1], before[1][2])
    assert end == begin == pytest.approx(before[0][2] + 100, abs=5)
    opened.until(IDLE, PATIENCE)
    assert (
        opened.evaluate("document.querySelector('.map canvas').toDataURL()") != cells
    )  # measured with the new words
    opened.evaluate("document.querySelector('[data-border=\"0|1\"]').focus()")
    for key, shift, step in (
        ("ArrowLeft", False, -10),
        ("ArrowRight", True, 1),
        ("PageDown", False, -100),
    ):
        now = opened.evaluate(WORDS)[0][2]
        opened.press(key, shift=shift)
        assert opened.evaluate(WORDS)[0][2] == now + step
        assert opened.evaluate("document.activeElement.dataset.border") == "0|1"
    for _ in range(3):  # it stops at the other end of the word
        opened.press("PageDown")
    assert opened.evaluate(WORDS)[0][2] == opened.evaluate(WORDS)[0][1] + 10
    assert "by hand" in text(opened, "#facts")
    while not opened.evaluate("document.querySelector('#undo').disabled"):
        opened.click("#undo")
    assert opened.evaluate(WORDS) == before
    opened.until(
        f"{IDLE} && document.querySelector('.map canvas').toDataURL() === {json.dumps(cells)}",
        PATIENCE,
    )


def test_what_is_taken_back_has_the_text_and_the_aligner_it_had(opened):
    facts = "JSON.stringify([speechmix.clip.text, speechmix.clip.words, speechmix.clip.alignment])"
    before = opened.evaluate(facts)
    after = opened.evaluate(f"""(async () => {{
      const {{ setText, setPlaced, setWords, takeBack }} = await import("./static/clip.js");
      setText("un deux");
      setPlaced({{ words: [["un", 0.1, 0.2], ["deux", 0.2, 0.3]], alignment: "evenly", doubts: [] }});
      setWords([["un", 0.1, 0.25], ["deux", 0.25, 0.3]]);
      takeBack();
      const once = [speechmix.clip.text, speechmix.clip.alignment];
      takeBack();
      return [once, {facts}];
    }})()""")
    assert after == [["un deux", "evenly"], before]
    opened.until(IDLE, PATIENCE)


def test_a_microphone_is_asked_for_once_and_stored_maps_are_there_once(page):
    asked = page.evaluate("""(async () => {
      const devices = navigator.mediaDevices, given = devices.getUserMedia.bind(devices);
      let count = 0;
      devices.getUserMedia = (...options) => { count += 1; return given(...options); };
      document.querySelector("#record").click();
      document.querySelector("#record").click();
      await new Promise((done) => setTimeout(done, 500));
      return count;
    })()""")
    page.until("document.querySelector('#record').classList.contains('on')")
    maps = page.evaluate("""(async () => {
      const { Store } = await import("./static/store.js"), store = new Store();
      for (const _ of [1, 2]) store.add("a clip", ["attention"], { maps: [{ measure: "attention" }], refused: {} });
      return store.maps("a clip", "attention").length;
    })()""")
    assert (asked, maps) == (1, 1)


def test_the_line_is_where_the_sound_is(page, tmp_path):
    """The sound is a ramp, so that its value, as it is rendered, says which time it is; it is heard
    later by the latency.

    Line and sound are read as soon as the page has drawn the line. Where the machine took the
    processor away in between (more than 5 ms), the two are not of one moment and say nothing.
    """
    soundfile.write(
        tmp_path / "ramp.wav", np.linspace(-0.9, 0.9, 2 * SAMPLE_RATE), SAMPLE_RATE, subtype="FLOAT"
    )
    page.upload("#file", tmp_path / "ramp.wav")
    page.until(f"speechmix.clip?.name === 'ramp' && speechmix.player.buffer && {IDLE}", PATIENCE)
    seen = page.evaluate("""(async () => {
      const player = speechmix.player, meter = player.context.createAnalyser(), values = new Float32Array(32), seen = [];
      meter.fftSize = 32;
      meter.connect(player.context.destination);
      player.output = meter;
      const line = document.querySelector('.line'), draw = player.tell.bind(player);
      return new Promise((done) => {
        player.tell = () => {
          const before = performance.now();
          draw();
          meter.getFloatTimeDomainData(values);
          const drawn = parseFloat(line.style.left) / 100 * speechmix.clip.seconds;
          const rendered = (values.at(-1) / 0.9 + 1) / 2 * player.seconds;
          const heard = rendered - player.context.outputLatency, gap = performance.now() - before;
          const sounds = values[0] !== 0 && values.at(-1) !== 0;
          if (player.playing && sounds && heard > 0) seen.push([drawn, heard, gap, line.hidden]);
          if (!player.playing) done(seen);
        };
        player.play();
      });
    })()""")
    drawn, heard = np.array([[line, sound] for line, sound, gap, _ in seen if gap < 5]).T
    assert len(drawn) > 5
    assert not any(gone for *_, gone in seen)
    assert drawn[-1] - drawn[0] > 1.0
    assert np.abs(drawn - heard).max() < 0.020


def test_a_word_is_clicked_heard_and_seen(opened):
    opened.evaluate(
        "speechmix.player.moved.add(({ playing }) => { if (playing) window.heard = [playing.from, "
        "playing.until]; })"
    )
    opened.click('#lane [data-word="0"]')
    opened.until("window.heard")
    _, start, end = opened.evaluate(WORDS)[0]
    assert opened.evaluate("window.heard") == [
        pytest.approx(start / 1000, abs=1e-3),
        pytest.approx(end / 1000, abs=1e-3),
    ]
    assert text(opened, ".made h3") == "nos is made of"
    assert text(opened, ".given h3") == "nos contributes to"
    pressed = (
        "[...document.querySelectorAll('.targets button')].map((one) => "
        "one.getAttribute('aria-pressed'))"
    )
    assert opened.evaluate(pressed) == ["true", "false"]
    depths = opened.evaluate(
        "[...document.querySelectorAll('#bands div')].map((one) => "
        "parseFloat(one.style.getPropertyValue('--depth')))"
    )
    made = opened.evaluate(
        "[...document.querySelectorAll('.made .token small')].map((one) => Number(one.textContent))"
    )
    assert np.argmax(depths) == np.argmax(made)
    opened.until("!speechmix.player.playing")


def test_layers_stacks_measures_and_the_twin_change_without_asking_twice(opened):
    made = (
        "[...document.querySelectorAll('.made .token small')].map((one) => "
        "one.textContent).join(' ')"
    )
    choose(opened, ".panel .model", "tiny-french-whisper")
    opened.until(f"{IDLE} && document.querySelector('.panel .stack').length === 3", PATIENCE)
    opened.evaluate(
        "window.asked = []; { const own = window.fetch; "
        "window.fetch = (...what) => { window.asked.push(what[0]); return own(...what); }; }"
    )
    for visit in ("computed", "from memory"):
        seen = set()
        for measure in ("value_zeroing", "attention"):
            choose(opened, ".panel .measure", measure)
            for stack in ("encoder", "decoder", "cross"):
                choose(opened, ".panel .stack", stack)
                if visit == "computed":
                    opened.until(IDLE, PATIENCE)
                opened.evaluate("document.querySelector('.layer').focus()")
                for key in ("Home", "ArrowRight", "ArrowRight"):
                    opened.press(key)
                    seen.add(opened.evaluate(made))
        assert len(seen) > 13  # of 18
        assert visit == "computed" or opened.evaluate("window.asked") == []
        opened.evaluate("window.asked = []")
    trained = opened.evaluate(made)
    opened.click(".twin")
    opened.until(f"{IDLE} && {made} !== {json.dumps(trained)}", PATIENCE)
    opened.click(".twin")
    opened.until(f"{made} === {json.dumps(trained)}")
    opened.click(".panel .run")
    opened.until("document.querySelector('.layers output b').textContent === '0'")
    opened.until(
        "document.querySelector('.layers output b').textContent === '2' && "
        "document.querySelector('.run').textContent === '▶'"
    )


def test_it_opens_at_the_layer_where_there_is_most_to_see(opened, server):
    request = {"clip": example(server), "model": "tiny-french-ctc", "measures": ["value_zeroing"]}
    (found,) = worked(server, kind="measure", **request)["answer"]["maps"]
    assert found["opens"] != found["layers"][-1]  # nothing happens in the last one
    assert text(opened, ".layers output b") == str(found["opens"])


def test_a_decoder_is_shown_in_words_and_in_tokens_on_demand(opened):
    choose(opened, ".panel .model", "tiny-french-whisper")
    opened.until(f"{IDLE} && document.querySelector('.panel .stack').length === 3", PATIENCE)
    choose(opened, ".panel .stack", "decoder")
    opened.until(IDLE, PATIENCE)
    rows = "[...document.querySelectorAll('.panel .targets button')].map((one) => one.title)"
    words = opened.evaluate(rows)
    assert "row of maisons" in words
    choose(opened, ".panel .units", "token")
    opened.until(f"{IDLE} && {rows}.length > {len(words)}")
    assert "row of maisons" not in opened.evaluate(rows)


def test_what_a_model_has_not_says_so(opened):
    choose(opened, ".panel .measure", "globenc")
    opened.until(
        f"{IDLE} && document.querySelector('.note').textContent.includes('globenc')", PATIENCE
    )
    assert opened.evaluate(hidden(".panel .body"))
    choose(opened, ".panel .measure", "value_zeroing")
    opened.until(f"!{hidden('.panel .body')}")


def test_two_models_side_by_side(opened):
    opened.click(".compare")
    opened.until(
        f"document.querySelectorAll('.panel').length === 2 && {IDLE} && "
        "!document.querySelectorAll('.panel .body')[1].hidden",
        60,
    )
    assert opened.evaluate(
        "[...document.querySelectorAll('.panel .model')].map((one) => one.value)"
    ) == [
        "tiny-french-ctc",
        "tiny-french-whisper",
    ]
    boxes = opened.evaluate(
        "[...document.querySelectorAll('.panel')].map((one) => "
        "one.getBoundingClientRect()).map((r) => [r.top, r.left])"
    )
    assert boxes[0][0] == boxes[1][0]
    assert boxes[0][1] < boxes[1][1]
    opened.evaluate("document.querySelector('.layer').focus()")
    opened.press("Home")  # one slider leads, both go
    assert opened.evaluate(
        "[...document.querySelectorAll('.layers output b')].map((one) => one.textContent)"
    ) == [
        "0",
        "0",
    ]
    opened.click(".panel:last-child .close")
    assert opened.evaluate("document.querySelectorAll('.panel').length") == 1


def test_a_word_is_silenced_and_the_transcript_changes(opened):
    opened.click("#quiet-words .chip:first-child")
    opened.until(f"!{hidden('#quiet-texts')}", PATIENCE)
    before, after = text(opened, "#before").strip(), text(opened, "#after").strip()
    assert before != after
    assert opened.evaluate("document.querySelectorAll('#after ins').length") >= 1
    assert opened.evaluate("document.querySelector('#lane .word').classList.contains('silent')")
    opened.until("!document.querySelector('#quiet-hear').disabled")
    opened.click("#quiet-words .chip:first-child")
    opened.until(f"{hidden('#quiet-texts')} && {IDLE}")


@pytest.mark.parametrize(
    ("button", "name", "kind"),
    [
        ("page", "left_00_pl.html", "text/html"),
        ("picture", "left_00_pl.png", "image/png"),
        ("textgrid", "left_00_pl.TextGrid", "text/plain"),
        ("row", "left_00_pl.flac", "audio/flac"),
    ],
)
def test_it_is_saved(opened, button, name, kind):
    opened.send("Browser.setDownloadBehavior", behavior="deny")
    opened.click(f"#save-{button}")
    opened.until("speechmix.saved && !document.querySelector('#save [aria-busy]')", PATIENCE)
    saved = opened.evaluate("speechmix.saved")
    assert (saved["name"], saved["type"].partition(";")[0]) == (name, kind)
    assert saved["size"] > 100


def test_the_keyboard_alone_does_all_of_it(page):
    def tab_to(selector: str, most: int = 60) -> None:
        for _ in range(most):
            if page.evaluate(f"document.activeElement?.matches({json.dumps(selector)})"):
                outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                assert outline != "none" or selector == "#text"
                return
            page.press("Tab")
        raise AssertionError(f"{selector} is not reached")

    tab_to("#examples .chip:nth-child(2)")
    page.press("Enter")
    page.until(
        f"speechmix.clip?.words && speechmix.player.buffer && {IDLE} && !{hidden('.panel .body')}",
        PATIENCE,
    )
    page.evaluate("document.activeElement.blur()")
    page.press(" ")
    page.until("speechmix.player.playing")
    page.press(" ")
    page.until("!speechmix.player.playing")
    tab_to("#lane .word")
    word = page.evaluate("speechmix.word")
    page.press("ArrowLeft")
    assert page.evaluate("speechmix.word") == word - 1
    tab_to(".border")
    before = page.evaluate(WORDS)
    page.press("ArrowRight")
    assert page.evaluate(WORDS) != before
    page.until(IDLE, PATIENCE)
    tab_to(".panel .layer")
    page.press("End")
    last = int(text(page, ".layers output b"))
    page.press("ArrowLeft")
    assert text(page, ".layers output b") == str(last - 1)
    tab_to("#quiet-words .chip")
    page.press("Enter")
    page.until(f"!{hidden('#quiet-texts')}", PATIENCE)
    controls = "[...document.querySelectorAll('#save button, #transport button, .controls select')]"
    assert (
        page.evaluate(f"{controls}.filter((one) => !one.disabled && one.tabIndex < 0).length") == 0
    )
    nameless = (
        "!one.labels?.length && !one.innerText && !one.getAttribute('aria-label') && "
        "one.offsetParent && !one.title"
    )
    everything = "[...document.querySelectorAll('button, input, select, [role=slider]')]"
    assert page.evaluate(f"{everything}.filter((one) => {nameless}).length") == 0


@pytest.mark.long
def test_why_a_word_was_written_is_asked_hovered_heard_and_saved(opened):
    opened.evaluate(
        "speechmix.player.moved.add(({ playing }) => { if (playing) window.heard = [playing.from, "
        "playing.until]; })"
    )
    opened.click("#explain")
    opened.until(f"document.querySelectorAll('#why .w-word').length === 2 && {IDLE}", PATIENCE)
    place = opened.evaluate(
        "(() => { const word = document.querySelectorAll('#why .w-word')[1]; "
        "word.scrollIntoView({ block: 'center', behavior: 'instant' }); const box = "
        "word.getBoundingClientRect(); "
        "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
    )
    opened.send("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
    opened.until("window.heard")
    _, start, end = opened.evaluate(WORDS)[1]
    assert opened.evaluate("window.heard") == pytest.approx([start / 1000, end / 1000], abs=2e-3)
    assert "Largest source in the sound: maisons" in text(opened, "#why .w-heading")
    colours = (
        "[...document.querySelectorAll('#why .w-lane button')].map((part) => "
        "getComputedStyle(part).backgroundColor)"
    )
    assert len(set(opened.evaluate(colours))) == 2  # the page's own policy lets them be set
    for number, kind in enumerate(("text/html", "image/png", "text/csv")):
        opened.evaluate(
            "speechmix.saved = null; { const make = URL.createObjectURL; URL.createObjectURL = "
            "(blob) => "
            "{ speechmix.saved = { type: blob.type, size: blob.size }; return make(blob); }; }"
        )
        opened.evaluate(f"document.querySelectorAll('#why .w-tools button')[{number}].click()")
        opened.until("speechmix.saved", PATIENCE)
        saved = opened.evaluate("speechmix.saved")
        assert saved["type"].startswith(kind)
        assert saved["size"] > 1_000
    opened.evaluate(
        "document.querySelector('.panel .twin').click()"
    )  # another question: what was told is gone
    opened.evaluate(
        "import('./static/clip.js').then(({ setWords }) => "
        "setWords(speechmix.clip.words.map((word) => [...word])))"
    )
    opened.until(f"document.querySelectorAll('#why .w-word').length === 0 && {IDLE}", PATIENCE)


def test_clips_of_a_run_are_sorted_and_opened_as_they_are_stored(page):
    assert page.evaluate("[...document.querySelectorAll('#run-table tbody tr')].length") == 4
    assert page.evaluate("document.querySelectorAll('img[onerror]').length") == 0
    assert EVIL in text(page, "#run-table")
    page.click("#run-table th:first-child button")
    page.click("#run-table th:first-child button")
    first_cell = "document.querySelector('#run-table tbody tr td').textContent.trim()"
    page.until(f"{first_cell} === 'clip_0003'")
    page.evaluate(
        "[...document.querySelectorAll('#run-table .link')].find((one) => one.textContent === "
        "'clip_0001').click()"
    )
    opened = (
        "speechmix.clip?.name === 'clip_0001' && speechmix.player.buffer && "
        f"!{hidden('.panel .body')} && {IDLE}"
    )
    page.until(opened, PATIENCE)
    assert page.evaluate("document.querySelector('.panel .model').value") == "synthetic"
    assert page.evaluate("speechmix.player.seconds") == pytest.approx(1.0, abs=0.01)
    page.click(".twin")
    page.until(f"!{hidden('.panel .body')} && {IDLE}")
    choose(page, ".panel .measure", "alti")  # not stored, and the model is not here
    page.until("document.querySelector('.note').textContent.includes('--model synthetic')")
    page.evaluate(
        "[...document.querySelectorAll('#run-table .link')].find((one) => one.textContent === "
        "'clip_0003').click()"
    )
    page.until(
        "speechmix.clip?.name === 'clip_0003' && "
        "document.querySelector('#facts').textContent.includes('audio file of this clip was not found')"
    )


@pytest.mark.parametrize(
    ("width", "dark"),
    [
        pytest.param(1280, True, marks=pytest.mark.long),
        (420, False),
        pytest.param(420, True, marks=pytest.mark.long),
    ],
)
def test_it_fits_the_width_and_follows_the_colour_scheme(browser, server, width, dark):
    with browser.seen(width, 900, dark=dark):
        browser.open(server.url)
        browser.until(IDLE, PATIENCE)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        browser.evaluate("document.querySelectorAll('#examples .chip')[3].click()")
        browser.until(f"speechmix.clip && {IDLE} && !{hidden('.panel .body')}", PATIENCE)
        browser.click(".compare")
        browser.until(f"document.querySelectorAll('.panel').length === 2 && {IDLE}", PATIENCE)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") != dark
        assert browser.messages == []
