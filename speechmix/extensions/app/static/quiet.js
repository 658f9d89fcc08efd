// Words muted in the sound, and what the model writes then, beside what it wrote before.

import { standing, work } from "./api.js";
import { asked, make, on, page } from "./clip.js";
import { Player } from "./player.js";

const find = (selector) => document.querySelector(selector);
const quiet = new Set();
const player = new Player();
let recording = null, stop = null;

export function setUpQuiet(modelOf) {
  const again = () => ask(modelOf());
  on("clip", () => { quiet.clear(); show(null); draw(again); });
  on("words", () => { for (const word of quiet) if (word >= page.clip.words.length) quiet.delete(word); draw(again); if (quiet.size) again(); });
  find("#fill").addEventListener("change", () => { if (quiet.size) again(); });
  find("#quiet-none").addEventListener("click", () => { quiet.clear(); draw(again); again(); });
  find("#quiet-hear").addEventListener("click", async () => {
    page.player.stop();
    await player.load(`api/recordings/${recording}/sound`);
    await player.play();
  });
  return { toggle: (word) => toggle(word, again), again: () => { if (quiet.size) again(); } };
}

function toggle(word, again) {
  if (quiet.has(word)) quiet.delete(word);
  else quiet.add(word);
  draw(again);
  again();
}

function draw(again) {
  const words = page.clip.words ?? [];
  find("#quiet-words").replaceChildren(...words.map(([text], word) => make("button", {
    type: "button", text, className: "chip", "aria-pressed": quiet.has(word), title: `${quiet.has(word) ? "unmute" : "mute"} ${text}`,
    onclick: () => { toggle(word, again); find(`#quiet-words :nth-child(${word + 1})`).focus(); },
  })));
  find("#quiet").hidden = !words.length || !page.clip.recording;
  find("#quiet-none").disabled = !quiet.size;
  document.querySelectorAll("#lane .word").forEach((button, word) => button.classList.toggle("silent", quiet.has(word)));
}

async function ask(model) {
  stop?.abort();
  const own = (stop = new AbortController());
  recording = null;
  show(null, quiet.size ? "the model transcribes …" : "");
  if (!quiet.size) return;
  try {
    const answer = await work("mute", { clip: asked(), model, words: [...quiet], fill: find("#fill").value }, {
      signal: own.signal, told: (job) => { if (own === stop) show(null, standing(job)); },
    });
    if (own !== stop) return;
    recording = answer.recording;
    show(answer);
  } catch (error) {
    if (error.name !== "AbortError" && own === stop) show(null, error.message);
  }
}

function show(answer, note = "") {
  find("#quiet-note").textContent = note || (answer && answer.before === answer.after ? "The model writes the same." : "");
  find("#quiet-hear").disabled = !answer?.recording;
  find("#quiet-texts").hidden = !answer;
  if (!answer) return;
  const side = (index) => answer.changes.map((pair) => make(pair[0] === pair[1] ? "span" : index ? "ins" : "del", { text: pair[index] ? `${pair[index]} ` : "" }));
  find("#before").replaceChildren(...side(0));
  find("#after").replaceChildren(...(answer.after ? side(1) : [make("em", { text: "nothing" })]));
}
