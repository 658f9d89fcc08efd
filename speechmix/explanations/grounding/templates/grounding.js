"use strict";
// Draws the words of a grounding from the JSON beside this script; all texts go in as text.
(() => {
  const root = document.currentScript.parentElement, view = root.querySelector(".gr-view");
  const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent), { words } = data;
  const SOURCES = { own_sound: "its own stretch of sound", other_sound: "other sound", padding: "padding behind the sound",
    earlier_text: "text before", prompt: "prompt" };
  const MARGIN = 0.15; // seconds that are played before and behind a word
  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }
  const clock = (time) => `${Math.floor(time / 60)}:${(time % 60).toFixed(1).padStart(4, "0")}`;
  const percent = (value) => `${(100 * value).toFixed(value < 0.01 || value > 0.99 ? 1 : 0)} %`;
  const isKnown = words.some((word) => word.made_up !== null);

  const slider = make("input", { type: "range", min: 0, max: 1, step: 0.01, value: data.threshold, "aria-label": "threshold" });
  const shown = make("output"), copy = make("button", { type: "button" }, "Copy the clean transcript"), clean = make("textarea", { readonly: "", "aria-label": "clean transcript" });
  const legend = make("p", { class: "quiet gr-legend" }, "Colour: probability that the word was not in the sound. ",
    make("span", { class: "doubtful" }, "Dotted"), ": above the threshold. ", make("span", { class: "loop" }, "Dashed"), ": part of a repetition loop. ",
    data.sound ? "Select a word to hear it." : "The sound is not in this page: the recording is longer than 3 minutes, or was not given.");
  const lines = make("div"), panel = make("div", { class: "gr-panel", "aria-live": "polite" }, make("p", { class: "quiet" }, "Select a word to see what it comes from."));
  const buttons = words.map((word, index) => {
    const button = make("button", { type: "button", class: word.loop === null ? "gr-word" : "gr-word loop", "data-index": index, "aria-pressed": "false" }, word.text);
    if (word.made_up !== null) button.style.setProperty("--made-up", word.made_up);
    return button;
  });
  let line = null;
  words.forEach((word, index) => {
    if (!line || word.window !== words[index - 1].window || line.childElementCount >= 12) {
      line = make("div");
      lines.append(make("div", { class: "gr-line" }, make("time", {}, word.start === null ? "" : clock(word.start)), line));
    }
    line.append(buttons[index]);
  });

  const player = data.sound ? make("audio", { src: `data:audio/wav;base64,${data.sound}`, preload: "auto" }) : null;
  let stop = null;
  function play({ start, end }) {
    if (!player || start === null) return;
    player.currentTime = Math.max(0, start - MARGIN);
    stop = end + MARGIN;
    player.play().catch(() => {});
  }
  if (player) player.addEventListener("timeupdate", () => { if (stop !== null && player.currentTime >= stop) { player.pause(); stop = null; } });

  function facts(word) {
    const list = [];
    if (word.start !== null) list.push(`${clock(word.start)} to ${clock(word.end)}`);
    if (word.made_up !== null) list.push(`not in the sound: ${percent(word.made_up)}`, `right: ${percent(word.right)}`);
    list.push(`the model's own probability: ${percent(word.probability)}`, `runner-up: ${word.runner_up} (${percent(word.runner_up_probability)})`);
    if (word.own_attention !== null) list.push(`cross-attention: ${percent(word.own_attention)} on its own stretch, ${percent(word.padding_attention)} on padding`);
    return make("div", { class: "gr-facts" }, ...list.map((text) => make("span", {}, text)));
  }
  function bars(word) {
    const known = Object.keys(SOURCES).filter((source) => word[source] !== null);
    const largest = Math.max(1e-9, ...known.map((source) => Math.abs(word[source])));
    const cells = known.flatMap((source) => {
      const bar = make("i", word[source] < 0 ? { class: "less" } : {});
      bar.style.width = `${(100 * Math.abs(word[source])) / largest}%`;
      return [make("span", {}, SOURCES[source]), make("div", {}, bar), make("span", {}, word[source].toFixed(2))];
    });
    return [make("p", { class: "quiet" }, "What the word's log-probability loses without each source, in nats (negative: it gains):"), make("div", { class: "gr-bars" }, ...cells)];
  }
  function select(index) {
    const word = words[index];
    buttons.forEach((button, other) => button.setAttribute("aria-pressed", String(other === index)));
    panel.replaceChildren(make("h2", {}, word.text), make("p", {}, `${word.reason}.`), facts(word), ...bars(word));
    play(word);
  }
  lines.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) select(Number(button.dataset.index));
  });
  function mark() {
    const threshold = Number(slider.value), doubtful = words.map((word) => word.made_up !== null && word.made_up > threshold);
    buttons.forEach((button, index) => button.classList.toggle("doubtful", doubtful[index]));
    clean.value = words.filter((_, index) => !doubtful[index]).map((word) => word.text).join(" ");
    shown.textContent = `${threshold.toFixed(2)}: ${doubtful.filter(Boolean).length} of ${words.length} words are doubtful`;
  }
  slider.addEventListener("input", mark);
  copy.addEventListener("click", () => { clean.select(); document.execCommand("copy"); });
  const tools = isKnown ? [make("div", { class: "gr-tools" }, make("label", {}, "Threshold ", slider), shown)] : [];
  const end = isKnown ? [make("h2", {}, "Transcript without doubtful words"), clean, make("div", { class: "gr-tools" }, copy)] : [];
  view.replaceChildren(legend, ...tools, lines, panel, ...end);
  mark();
})();
