"use strict";
// Draws the words of each grounding in the document from the JSON beside it; all texts go in as text.
(() => {
  const SOURCES = { own_sound: "its own stretch of sound", other_sound: "other sound", padding: "padding behind the sound",
    earlier_text: "text before", prompt: "prompt" };
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
    const isKnown = words.some((word) => word.made_up !== null), hasLoops = words.some((word) => word.loop !== null);

    // Words: one element each, of which the selected one is in the order of the tabulator; one listener for all.
    const lines = make("div", { role: "toolbar", "aria-label": "Words of the transcript; move with the arrow keys" });
    const panel = make("div", { class: "gr-panel", "aria-live": "polite" }, make("p", { class: "quiet" }, "Select a word to see what it comes from."));
    const buttons = words.map((word, index) => {
      const button = make("button", { type: "button", class: word.loop === null ? "gr-word" : "gr-word loop", "data-index": index, tabindex: index ? -1 : 0 }, word.text);
      if (word.made_up !== null) button.style.setProperty("--made-up", word.made_up);
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
      if (word.made_up !== null) list.push(`not in the sound: ${percent(word.made_up)}`);
      if (word.right !== null) list.push(`right: ${percent(word.right)}`);
      list.push(`the model's own probability: ${percent(word.probability)}`);
      if (word.runner_up_probability !== null) list.push(`runner-up: ${word.runner_up} (${percent(word.runner_up_probability)})`);
      const shares = { "its own stretch": word.own_attention, padding: word.padding_attention };
      const known = Object.entries(shares).filter(([, share]) => share !== null).map(([name, share]) => `${percent(share)} on ${name}`);
      if (known.length) list.push(`cross-attention: ${known.join(", ")}`);
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
      return [make("p", { class: "quiet" }, "What the word's log-probability loses without each source, in nats (negative: it gains):"), make("div", { class: "gr-bars" }, ...cells)];
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
    const slider = make("input", { type: "range", min: 0, max: 1, step: 0.01, value: data.threshold });
    const shown = make("output"), copy = make("button", { type: "button" }, "Copy the clean transcript"), copied = make("span", { role: "status" });
    const clean = make("textarea", { readonly: "", "aria-label": "clean transcript" });
    function mark() {
      const threshold = Number(slider.value), doubtful = words.map((word) => word.made_up !== null && word.made_up > threshold);
      buttons.forEach((button, index) => button.classList.toggle("doubtful", doubtful[index]));
      clean.value = words.filter((_, index) => !doubtful[index]).map((word) => word.text).join(" ");
      shown.textContent = `${threshold.toFixed(2)}: ${doubtful.filter(Boolean).length} of ${words.length} words are doubtful`;
      copied.textContent = "";
    }
    slider.addEventListener("input", mark);
    copy.addEventListener("click", () => {
      clean.select();
      copied.textContent = document.execCommand("copy") ? "Copied." : "Selected: copy it with the keyboard.";
    });

    const legend = make("p", { class: "quiet gr-legend" });
    if (isKnown) {
      const patches = [0, 0.25, 0.5, 0.75, 1].map((value) => {
        const patch = make("span", { class: "gr-patch" }, String(value));
        patch.style.setProperty("--made-up", value);
        return patch;
      });
      legend.append("Colour: probability that the word was not in the sound, ", ...patches, ". ", make("span", { class: "doubtful" }, "Dotted line"), ": above the threshold. ");
    }
    if (hasLoops) legend.append(make("span", { class: "loop" }, "Dashed box"), ": part of a repetition loop. ");
    if (words.length) legend.append(data.sound ? "Select a word to hear it, by click, tap or arrow keys." : `This page has no sound: ${data.no_sound}.`);
    const tools = isKnown ? [make("div", { class: "gr-tools" }, make("label", {}, "Threshold ", slider), shown)] : [];
    const end = isKnown ? [make("h2", {}, "Transcript without doubtful words"), clean, make("div", { class: "gr-tools" }, copy, copied)] : [];
    view.replaceChildren(legend, ...tools, ...(words.length ? [lines, panel] : []), ...end);
    mark();
  }
  for (const root of document.querySelectorAll(".gr:not([data-ready])")) {
    root.dataset.ready = "";
    draw(root);
  }
})();
