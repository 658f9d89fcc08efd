// The page: opens clips, lets words be written and placed, keeps the panels up to date, tells what the server is doing.

import { cancelAll, get, onWork, post, sendSound, standing, work } from "./api.js";
import { asked, make, on, open, page, setLanguage, setPlaced, setRole, setText, takeBack } from "./clip.js";
import { setUpListing } from "./listing.js";
import { Panel, stored } from "./panel.js";
import { setUpQuiet } from "./quiet.js";
import { canRecord, decoded, Recorder } from "./recorder.js";
import { setUpSaving } from "./saving.js";
import { setUpWhy } from "./why.js";
import { setUpWords } from "./words.js";

const find = (selector) => document.querySelector(selector);
const panels = [];
let leader = null, quiet = null, why = null, heardBy = null, job = null;
const READABLE = /\.(wav|flac|ogg|oga|opus|mp3)$/i;
const WAIT = 400; // milliseconds without a change before words that were moved are measured again
window.speechmix = page; // to look at from the console

function fail(error) {
  if (error?.name === "AbortError") return;
  find("#notice span").textContent = error?.message ?? String(error);
  find("#notice").hidden = false;
}

function forgive() { find("#notice").hidden = true; }

onWork((jobs) => {
  const now = jobs.find((one) => one.state === "working") ?? jobs[0];
  job = now;
  find("#status").classList.toggle("busy", Boolean(now));
  find("#cancel").hidden = !jobs.some(({ id }) => id);
  const more = jobs.length > 1 ? ` · ${jobs.length - 1} waiting` : "";
  find("#status .told").textContent = now ? `${standing(now)}${more}` : "ready";
  showProgress();
});

// How much of the expected time has passed; a job that takes longer than expected stays just below the end.
function showProgress() {
  const bar = find("#progress");
  bar.hidden = !job;
  if (!job) return;
  const passed = (performance.now() - job.since) / 1000;
  bar.value = job.expected ? Math.min(0.97, passed / job.expected) : 0;
}
setInterval(showProgress, 200);

const modelNow = () => panels[0].entry.name ?? page.session.models[0];

// Clips ----------------------------------------------------------------------------------------------------------------

async function opened(facts, kept) {
  forgive();
  page.player.forget();
  panels.forEach((panel) => { panel.units = "word"; });
  if (kept?.models.length) {
    Object.assign(panels[0], { model: kept.models[0].name, units: kept.models[0].units });
    panels[0].find(".twin").checked = false;
  }
  find("#work").hidden = false;
  find("#begin").classList.add("small");
  find("#examples").open = false;
  open(facts, () => stored().keep(kept ?? { maps: [], models: [] }));
  const loaded = facts.recording && page.player.load(`api/recordings/${facts.recording}/sound`).catch(fail);
  if (facts.recording && !facts.text) await write();
  await loaded;
}

async function openFile(file) {
  try {
    await opened(await sent(file, file.name));
  } catch (error) { fail(error); }
}

async function sent(file, name) {
  if (READABLE.test(name)) return sendSound(file, name);
  try {
    return await sendSound(await decoded(file), `${name.replace(/\.[^.]*$/, "")}.wav`);
  } catch (error) {
    if (error.name !== "EncodingError") throw error;
    throw new Error(`${name} cannot be read as a recording: expected WAV, FLAC, OGG, MP3, or what this browser plays`);
  }
}

let recorder = null, asking = false; // the microphone was asked for, and the browser asks in turn

async function record() {
  const label = find("#record .label"), level = find("#level");
  if (recorder) {
    const done = recorder;
    recorder = null;
    find("#record").classList.remove("on");
    label.textContent = "Record";
    level.hidden = true;
    const blob = await done.stop();
    const time = new Date().toTimeString().slice(0, 8).replaceAll(":", "-");
    if (blob) await openFile(new File([blob], `recording_${time}.wav`));
    return;
  }
  if (!canRecord()) { fail(new Error("this browser gives no microphone to a page at this address: open it on the computer that serves it")); return; }
  if (asking) return;
  page.player.stop();
  const told = (seconds, loudness) => {
    level.querySelector("meter").value = loudness;
    level.querySelector("span").textContent = `${seconds.toFixed(1)} s`;
  };
  const started = new Recorder({ longest: page.session.longest, told, full: () => { if (recorder) record(); } });
  asking = true;
  try {
    await started.start();
  } catch (error) { fail(new Error(`no microphone: ${error.message}`)); return; } finally { asking = false; }
  recorder = started;
  forgive();
  find("#record").classList.add("on");
  label.textContent = "Stop";
  level.hidden = false;
}

// Text and words -------------------------------------------------------------------------------------------------------

async function write() {
  const { clip } = page;
  try {
    const { text } = await work("write", { clip: asked(), model: modelNow() });
    if (page.clip !== clip) return;
    if (!text) { fail(new Error(`${modelNow()} hears no words: type what is said`)); return; }
    setText(text);
    await place();
  } catch (error) {
    fail(error);
    find("#text").focus();
    panels.forEach((panel) => panel.refresh());
  }
}

async function place() {
  const { clip } = page, [how, model] = find("#how").value.split("|");
  try {
    const placed = await work("place", { clip: asked(), how, model: model || modelNow() });
    if (page.clip === clip) setPlaced(placed);
  } catch (error) {
    fail(error);
    if (how === "evenly" || page.clip !== clip || page.clip.words) return;
    const evenly = await work("place", { clip: asked(), how: "evenly" }).catch(fail);
    if (evenly && page.clip === clip) setPlaced(evenly);
  }
}

// A typed sentence, which a text model reads.
async function read(text) {
  try { await opened(await post("api/texts", { text })); } catch (error) { fail(error); }
}

function facts() {
  const { clip } = page;
  find("#work").classList.toggle("sentence", Boolean(clip.sentence));
  const how = { evenly: "spread by their letters, not measured: move the borders", given: "as given", "by hand": "by hand" };
  const parts = clip.sentence ? [`${clip.words.length} words and signs`] : [clip.name, `${clip.seconds.toFixed(2)} s`, clip.synthetic ? "synthetic speech" : null,
    clip.words ? `word times: ${how[clip.alignment] ?? `by ${clip.alignment}`}` : null, ...(clip.doubts ?? []).map((doubt) => `doubtful: ${doubt}`), ...(clip.notes ?? [])];
  find("#facts").textContent = parts.filter(Boolean).join(" · ");
  find("#text").value = clip.text ?? "";
  clip.language ??= page.session.language;
  find("#language").value = clip.language ?? "";
  find("#undo").disabled = !page.past.length;
  document.title = `${clip.name} · speechmix`;
  for (const name of ["#write", "#place", "#play"]) find(name).disabled = !clip.recording;
  for (const name of ["#save-textgrid", "#save-row", "#save-page", "#save-picture"]) find(name).disabled = !clip.recording;
  wordTold();
}

function wordTold() {
  const word = page.clip.words?.[page.word];
  find("#word-told").textContent = word && !page.clip.sentence ? `${word[0]}, ${word[1].toFixed(2)} to ${word[2].toFixed(2)} s` : "";
  for (const role of ["cue", "target"]) {
    find(`#mark-${role}`).disabled = !word;
    find(`#mark-${role}`).setAttribute("aria-pressed", role === "cue" ? page.clip.cue.includes(page.word) : page.clip.target === page.word && page.word !== null);
  }
  find("#mark-quiet").disabled = !word || !page.clip.recording;
}

// Panels ---------------------------------------------------------------------------------------------------------------

function addPanel() {
  const element = find("#panel").content.firstElementChild.cloneNode(true);
  find("#panels").append(element);
  const panel = new Panel(element, { leads: () => leader === panel, lead, changed, closed });
  panel.find(".compare").addEventListener("click", () => addPanel().refresh());
  panels.push(panel);
  if (panels.length > 1) {
    const other = page.session.models.find((name) => name !== panels[0].model);
    panel.model = other ?? panels[0].model;
    panel.measure = panels[0].measure;
    panel.stack = panels[0].stack;
    if (!other) panel.find(".twin").checked = true;
  }
  if (panels.length === 1) lead(panel);
  arranged();
  return panel;
}

function closed(panel) {
  panel.stop?.abort();
  panels.splice(panels.indexOf(panel), 1);
  panel.element.remove();
  lead(panels[0]);
  arranged();
}

// The panel that colours the words and the waveform: that which was touched last.
function lead(panel) {
  leader = panel;
  panels.forEach((other) => other.element.classList.toggle("lead", other === panel));
  panel.draw();
}

function arranged() {
  find("#panels").classList.toggle("two", panels.length > 1);
  panels.forEach((panel) => {
    panel.find(".close").hidden = panels.length < 2;
    panel.find(".compare").hidden = panels.length > 1;
  });
  panels.forEach((panel) => panel.draw());
  page.player.tell();
}

function changed() {
  if (heardBy !== null && heardBy !== modelNow()) { quiet.again(); why.forget(); }
  why.named();
  heardBy = modelNow();
  const models = page.session.models.filter((name) => !page.readers.includes(name)), how = find("#how"), value = how.value;
  const options = [...models.map((name) => [`model|${name}`, `by ${name}`]), ["synthesis|", "by a synthetic voice"], ["evenly|", "evenly, for moving by hand"]];
  if (how.options.length !== options.length) how.replaceChildren(...options.map(([name, text]) => new Option(text, name)));
  how.value = value || options[0][0];
}

let waiting = null;
function measureSoon(wait) {
  clearTimeout(waiting);
  panels.forEach((panel) => panel.element.classList.add("busy"));
  waiting = setTimeout(() => panels.forEach((panel) => panel.refresh()), wait);
}

// Setting up -----------------------------------------------------------------------------------------------------------

function listen() {
  quiet = setUpQuiet(modelNow);
  why = setUpWhy(modelNow, fail);
  find("#record").addEventListener("click", record);
  find("#open").addEventListener("click", () => find("#file").click());
  find("#file").addEventListener("change", ({ target }) => { if (target.files.length) openFile(target.files[0]); target.value = ""; });
  find("#notice button").addEventListener("click", forgive);
  find("#write").addEventListener("click", write);
  find("#read").addEventListener("submit", (event) => { event.preventDefault(); read(find("#sentence").value); });
  find("#cancel").addEventListener("click", cancelAll);
  find("#said").addEventListener("submit", (event) => {
    event.preventDefault();
    forgive();
    const text = find("#text").value.trim();
    if (page.clip.sentence) { read(text); return; }
    setText(text);
    place();
  });
  find("#language").addEventListener("change", ({ target }) => setLanguage(target.value.trim()));
  find("#play").addEventListener("click", () => page.player.toggle());
  find("#undo").addEventListener("click", takeBack);
  find("#mark-cue").addEventListener("click", () => setRole("cue", page.word));
  find("#mark-target").addEventListener("click", () => setRole("target", page.word));
  find("#mark-quiet").addEventListener("click", () => quiet.toggle(page.word));
  document.addEventListener("keydown", (event) => {
    if (event.key !== " " || event.target.closest("button, input, select, textarea, summary, a")) return;
    event.preventDefault();
    if (page.clip?.recording) page.player.toggle();
  });
  for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => event.preventDefault());
  document.addEventListener("dragover", () => document.body.classList.add("over"));
  for (const kind of ["dragleave", "drop"]) document.addEventListener(kind, () => document.body.classList.remove("over"));
  document.addEventListener("drop", ({ dataTransfer }) => { if (dataTransfer.files.length) openFile(dataTransfer.files[0]); });
  on("clip", facts);
  on("clip", () => measureSoon(0));
  on("text", facts);
  on("words", facts);
  on("words", () => measureSoon(page.past.length ? WAIT : 0));
  on("word", wordTold);
  on("roles", wordTold);
  setUpSaving(() => panels, fail);
}

async function begin() {
  page.session = await get("api/session");
  find("#longest").textContent = page.session.longest;
  find("#fill").replaceChildren(...page.session.fills.map((fill) => new Option({ zeros: "digital silence", room: "the room's own sound", noise: "noise like it", word: "another word" }[fill] ?? fill, fill)));
  find("#examples").hidden = !page.session.examples.length;
  find("#examples .chips").replaceChildren(...page.session.examples.map(({ name, text }) => make("button", {
    type: "button", className: "chip", text: text ?? name, title: name,
    onclick: () => post("api/examples", { name }).then((facts) => opened(facts)).catch(fail),
  })));
  setUpWords();
  listen();
  addPanel();
  changed();
  if (page.session.run) {
    find("#run").hidden = false;
    find("#begin h2").textContent = "Or say something.";
    await setUpListing((answer) => opened({ ...answer.clip, notes: answer.notes }, answer), fail);
  }
  find("#status .told").textContent = "ready";
  if (page.session.models.length) page.readers = (await work("load", { model: page.session.models[0] })).text_models;
  find("#sentence").disabled = find("#read button").disabled = !page.readers.length;
  find("#no-reader").hidden = page.readers.length > 0;
  changed();
}

begin().catch(fail);
