// The sound with its words: the picture, the words below it, borders to be moved by mouse or keys, the line that runs over it.

import { hear, look, make, on, page, roleOf, setWords } from "./clip.js";

const SHORTEST = 0.01; // seconds that a word keeps
const STEPS = { ArrowLeft: -0.01, ArrowRight: 0.01, PageDown: -0.1, PageUp: 0.1 };
const find = (selector) => document.querySelector(selector);
let shares = null; // how much each word gives to the one that is looked at, 0 to 1 of the scale

export function setUpWords() {
  for (const event of ["clip", "words", "word", "roles"]) on(event, draw);
  on("clip", showPicture);
  page.player.moved.add(move);
  find("#lane").addEventListener("keydown", walk);
}

function showPicture() {
  const { clip } = page, picture = find("#picture");
  find("#score").style.setProperty("--wide", `${Math.max(100, (100 * clip.seconds) / 15)}%`);
  find("#stage").classList.toggle("mute", !clip.recording);
  if (clip.recording) picture.src = `api/recordings/${clip.recording}/picture`;
  else picture.removeAttribute("src");
  picture.alt = `Waveform above spectrogram of ${clip.name}`;
  ticks(clip.seconds);
}

function ticks(seconds) {
  const step = [0.1, 0.2, 0.5, 1, 2, 5, 10].find((one) => seconds / one <= 12) ?? 20;
  const times = Array.from({ length: Math.floor(seconds / step + 1e-6) + 1 }, (_, i) => i * step);
  find("#axis").replaceChildren(...times.map((time) => {
    const tick = make("span", { text: String(Number(time.toFixed(1))) });
    tick.style.left = percent(time);
    return tick;
  }));
}

function percent(time) { return `${(100 * time) / page.clip.seconds}%`; }

// Colour the words by what they give; `of` is null where nothing was measured yet.
export function colour(of) {
  shares = of;
  paint();
}

function paint() {
  const words = [...find("#lane").querySelectorAll(".word")], bands = [...find("#bands").children];
  words.forEach((button, index) => {
    const share = shares?.[index], depth = share === undefined || Number.isNaN(share) ? 0 : 0.7 * Math.min(share, 1);
    button.style.setProperty("--depth", depth.toFixed(3));
    bands[index]?.style.setProperty("--depth", depth.toFixed(3));
  });
}

function draw() {
  const { words } = page.clip, focus = document.activeElement?.dataset?.border;
  find("#lane").replaceChildren(...(words ?? []).map(wordButton));
  find("#bands").replaceChildren(...(words ?? []).map(([, start, end], index) => {
    const band = make("div", { className: index === page.word ? "looked" : "" });
    band.style.left = percent(start);
    band.style.width = percent(end - start);
    return band;
  }));
  find("#borders").replaceChildren(...borders().map(borderHandle));
  if (focus) find(`[data-border="${focus}"]`)?.focus();
  paint();
  move(page.player);
}

function wordButton([text, start, end], index) {
  const button = make("button", {
    type: "button", text, className: `word ${roleOf(index)}`, "data-word": index, "aria-pressed": index === page.word,
    tabindex: index === (page.word ?? 0) ? 0 : -1,
    title: `${text}, ${start.toFixed(2)} to ${end.toFixed(2)} s${roleOf(index) ? `, the ${roleOf(index)}` : ""}`,
    onclick: () => { look(index); hear(index); find(`#lane [data-word="${index}"]`).focus(); },
  });
  button.style.left = percent(start);
  button.style.width = percent(end - start);
  return button;
}

// Arrow keys walk from word to word.
function walk(event) {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step || !page.clip?.words) return;
  event.preventDefault();
  look(Math.min(Math.max((page.word ?? 0) + step, 0), page.clip.words.length - 1));
  find(`#lane [data-word="${page.word}"]`).focus();
}

// Where words begin and end; where one ends as the next begins, that is one border: {end, start: indices, time}.
function borders() {
  const found = [];
  (page.clip.words ?? []).forEach(([, start, end], index) => {
    const last = found.at(-1);
    if (last && Math.abs(last.time - start) < 0.001) last.start = index;
    else found.push({ start: index, end: null, time: start });
    found.push({ start: null, end: index, time: end });
  });
  return found;
}

function limits({ start, end }) {
  const words = page.clip.words;
  const least = end !== null ? words[end][1] + SHORTEST : start > 0 ? words[start - 1][2] : 0;
  const most = start !== null ? words[start][2] - SHORTEST : end < words.length - 1 ? words[end + 1][1] : page.clip.seconds;
  return [least, most];
}

function nameOf({ start, end }) {
  const words = page.clip.words;
  if (start === null) return `end of ${words[end][0]}`;
  return end === null ? `start of ${words[start][0]}` : `border between ${words[end][0]} and ${words[start][0]}`;
}

function borderHandle(border) {
  const [least, most] = limits(border), near = border.start === page.word || border.end === page.word;
  const handle = make("div", {
    role: "slider", className: near ? "border near" : "border", tabindex: near ? 0 : -1, "aria-label": nameOf(border),
    "aria-orientation": "horizontal", "data-border": `${border.end ?? ""}|${border.start ?? ""}`,
    "aria-valuemin": least.toFixed(3), "aria-valuemax": most.toFixed(3), "aria-valuenow": border.time.toFixed(3),
    "aria-valuetext": `${border.time.toFixed(2)} seconds`, title: `${nameOf(border)}: ${border.time.toFixed(2)} s`,
  });
  handle.style.left = percent(border.time);
  handle.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    moveBorder(border, border.time + step * (event.shiftKey ? 0.1 : 1));
  });
  handle.addEventListener("pointerdown", (event) => drag(event, border, handle));
  return handle;
}

function moveBorder(border, time) {
  const [least, most] = limits(border), placed = Math.round(1000 * Math.min(Math.max(time, least), Math.max(most, least))) / 1000;
  if (Math.abs(placed - border.time) < 0.0005) return;
  setWords(page.clip.words.map(([text, start, end], index) => [
    text, index === border.start ? placed : start, index === border.end ? placed : end,
  ]));
}

function drag(event, border, handle) {
  if (event.button !== 0) return;
  event.preventDefault();
  handle.focus();
  handle.setPointerCapture(event.pointerId);
  const box = find("#stage").getBoundingClientRect(), [least, most] = limits(border);
  let time = border.time;
  const follow = ({ clientX }) => {
    time = Math.min(Math.max(((clientX - box.left) / box.width) * page.clip.seconds, least), most);
    handle.style.left = percent(time);
    handle.dataset.time = `${time.toFixed(2)} s`;
  };
  const end = ({ type }) => {
    handle.removeEventListener("pointermove", follow);
    delete handle.dataset.time;
    if (type === "pointerup") moveBorder(border, time);
    handle.style.left = percent(border.time);
  };
  handle.addEventListener("pointermove", follow);
  handle.addEventListener("pointerup", end, { once: true });
  handle.addEventListener("pointercancel", end, { once: true });
}

// The line over all that has times, and the word that sounds.
function move(player) {
  if (!page.clip) return;
  const now = player.now, started = Boolean(player.playing) || now > 0;
  document.querySelectorAll(".line").forEach((line) => {
    line.hidden = !started || !player.buffer;
    line.style.left = percent(Math.min(now, page.clip.seconds));
  });
  const sounding = player.playing ? (page.clip.words ?? []).findIndex(([, start, end]) => start <= now && now < end) : -1;
  find("#lane").querySelectorAll(".word").forEach((button, index) => button.classList.toggle("now", index === sounding));
  find("#play").textContent = player.playing ? "❚❚ Stop" : "▶ Play";
}
