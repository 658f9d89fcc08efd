"use strict";
// Draws the words of each grounding in the document from the JSON beside it; all texts go in as text.
(() => {
  const SOURCES = { silence: "silence in place of all sound", noise: "noise in place of all sound", padding: "no padding behind the sound",
    prompt: "no prompt", previous: "no text of the window before" };
  const MARGIN = 0.15; // seconds that are played before and behind a word
  const LINE_WORDS = 12; // at most
  const STEPS = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: LINE_WORDS, ArrowUp: -LINE_WORDS, Home: -Infinity, End: Infinity };
  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }
  function clock(time) {
    const tenths = Math.round(10 * time), minutes = Math.floor(tenths / 600) % 60, hours = Math.floor(tenths / 36000);
    const seconds = ((tenths % 600) / 10).toFixed(1).padStart(4, "0");
    return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${seconds}` : `${minutes}:${seconds}`;
  }
  const percent = (value) => `${(100 * value).toFixed(value < 0.01 || value > 0.99 ? 1 : 0)} %`;

  function draw(root) {
    const view = root.querySelector(".gr-view"), data = JSON.parse(root.querySelector('script[type="application/json"]').textContent), { words } = data;
    const hasLoops = words.some((word) => word.loop !== null);

    // Words: one element each, of which the selected one is in the order of the tabulator; one listener for all.
    const lines = make("div", { role: "toolbar", "aria-label": "Words of the transcript; move with the arrow keys" });
    const panel = make("div", { class: "gr-panel", "aria-live": "polite" }, make("p", { class: "quiet" }, "Select a word to see what it comes from."));
    const buttons = words.map((word, index) => {
      const button = make("button", { type: "button", class: word.loop === null ? "gr-word" : "gr-word loop", "data-index": index, tabindex: index ? -1 : 0 }, word.text);
      return button;
    });
    let line = null, selected = null;
    words.forEach((word, index) => {
      if (!line || word.window !== words[index - 1].window || line.childElementCount >= LINE_WORDS) {
        line = make("div");
        lines.append(make("div", { class: "gr-line" }, make("time", {}, word.start === null ? "" : clock(word.start)), line));
      }
      line.append(buttons[index]);
    });

    const player = data.sound ? make("audio", { src: `data:audio/wav;base64,${data.sound}`, preload: "auto" }) : null;
    let stop = null;
    function follow() {
      if (player.currentTime >= stop) player.pause();
      if (!player.paused) requestAnimationFrame(follow);
    }
    function play({ start, end }) {
      if (!player || start === null) return;
      player.currentTime = Math.max(0, start - MARGIN);
      stop = end + MARGIN;
      if (player.paused) player.play().then(follow, () => {}); // a browser may want a click first
    }

    function facts(word) {
      const list = [];
      if (word.start !== null) list.push(`${clock(word.start)} to ${clock(word.end)}`);
      list.push(`effect of the sound: ${word.phrase_sound.toFixed(1)} nats in its phrase`);
      if (word.right !== null) list.push(`right: ${percent(word.right)}`);
      list.push(`the model's own probability: ${percent(word.probability)}`);
      if (word.runner_up_probability !== null) list.push(`runner-up: ${word.runner_up} (${percent(word.runner_up_probability)})`);
      return make("div", { class: "gr-facts" }, ...list.map((text) => make("span", {}, text)));
    }
    function bars(word) {
      const known = Object.keys(SOURCES).filter((source) => word[source] !== null);
      if (!known.length) return [];
      const largest = Math.max(1e-9, ...known.map((source) => Math.abs(word[source])));
      const cells = known.flatMap((source) => {
        const bar = make("i", word[source] < 0 ? { class: "less" } : {});
        bar.style.width = `${(100 * Math.abs(word[source])) / largest}%`;
        return [make("span", {}, SOURCES[source]), make("div", {}, bar), make("span", {}, word[source].toFixed(2))];
      });
      return [make("p", { class: "quiet" }, "What the word's log-probability loses by each change, in nats (negative: it gains):"), make("div", { class: "gr-bars" }, ...cells)];
    }
    function select(index) {
      const word = words[index];
      buttons[selected ?? 0].tabIndex = -1;
      buttons[selected ?? 0].removeAttribute("aria-pressed");
      selected = index;
      buttons[index].tabIndex = 0;
      buttons[index].setAttribute("aria-pressed", "true");
      panel.replaceChildren(make("h2", {}, word.text), make("p", {}, `${word.reason}.${word.loop === null ? "" : ` Part of loop ${word.loop + 1}.`}`), facts(word), ...bars(word));
      play(word);
    }
    lines.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) select(Number(button.dataset.index));
    });
    lines.addEventListener("keydown", (event) => {
      const step = STEPS[event.key], button = event.target.closest("button");
      if (!step || !button || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      const index = Math.min(Math.max(Number(button.dataset.index) + step, 0), words.length - 1);
      select(index);
      buttons[index].focus();
    });

    // Threshold and clean transcript ------------------------------------------------------------------------------------
    const slider = make("input", { type: "range", min: 0, max: 5, step: 0.1, value: data.threshold });
    const shown = make("output"), copy = make("button", { type: "button" }, "Copy the clean transcript"), copied = make("span", { role: "status" });
    const clean = make("textarea", { readonly: "", "aria-label": "clean transcript" });
    function mark() {
      const threshold = Number(slider.value), doubtful = words.map((word) => word.phrase_sound < threshold);
      buttons.forEach((button, index) => button.classList.toggle("doubtful", doubtful[index]));
      clean.value = words.filter((_, index) => !doubtful[index]).map((word) => word.text).join(" ");
      shown.textContent = `${threshold.toFixed(1)} nats: ${doubtful.filter(Boolean).length} of ${words.length} words are not in the sound`;
      copied.textContent = "";
    }
    slider.addEventListener("input", mark);
    copy.addEventListener("click", () => {
      clean.select();
      copied.textContent = document.execCommand("copy") ? "Copied." : "Selected: copy it with the keyboard.";
    });

    const legend = make("p", { class: "quiet gr-legend" });
    if (words.length) legend.append(make("span", { class: "doubtful" }, "Coloured, dotted line"), ": not in the sound. ");
    if (hasLoops) legend.append(make("span", { class: "loop" }, "Dashed box"), ": part of a repetition loop. ");
    if (words.length) legend.append(data.sound ? "Select a word to hear it, by click, tap or arrow keys." : `This page has no sound: ${data.no_sound}.`);
    const tools = words.length ? [make("div", { class: "gr-tools" }, make("label", {}, "Threshold ", slider), shown)] : [];
    const end = words.length ? [make("h2", {}, "Transcript without doubtful words"), clean, make("div", { class: "gr-tools" }, copy, copied)] : [];
    view.replaceChildren(legend, ...tools, ...(words.length ? [lines, panel] : []), ...end);
    mark();
  }
  for (const root of document.querySelectorAll(".gr:not([data-ready])")) {
    root.dataset.ready = "";
    draw(root);
  }
})();
