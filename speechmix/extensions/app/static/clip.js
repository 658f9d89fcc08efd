// What the page is about: one clip, the word that is looked at, the layer. Parts change it here and are told of it.

import { Player } from "./player.js";

export const page = {
  session: null, // what the server has: models, measures, examples
  readers: [], // the text models among them
  clip: null, // name, recording, seconds, text, words [text, start, end], alignment, cue, target, foil
  word: null, // index of the word that is looked at
  depth: null, // layer, 0 the first and 1 the last; null until a map of the clip is there
  past: [], // words as they were, with their text and who placed them, to take changes back
  player: new Player(),
};

const listeners = new Map();

// Events: clip (another one), text, words (placed or moved), word (another is looked at), layer, roles.
export function on(event, listener) {
  listeners.set(event, [...(listeners.get(event) ?? []), listener]);
}

export function tell(event) { (listeners.get(event) ?? []).forEach((listener) => listener()); }

// Open another clip; `prepare` runs when it is there, before anybody is told.
export function open(facts, prepare) {
  page.clip = { cue: [], placedText: facts.text, ...facts };
  page.past = [];
  page.word = firstWord();
  page.depth = null;
  prepare();
  tell("clip");
}

function firstWord() {
  const { words, target } = page.clip;
  return words?.length ? target ?? words.length - 1 : null;
}

// The clip as the server wants it with each request.
export function asked() {
  const { recording, sentence, name, text, language, words, alignment, cue, target, foil } = page.clip;
  return { recording, sentence, name, text, language, words, alignment, cue, target, foil };
}

export function setText(text) {
  if (text === (page.clip.text ?? "")) return;
  page.clip.text = text || null;
  tell("text");
}

// What is spoken ("fr"), for whoever places the words.
export function setLanguage(language) { page.clip.language = language || null; }

function sameWords(words, others) {
  return others?.length === words.length && words.every((word, i) => word[0] === others[i][0]);
}

// Keep the words for `takeBack`. Their text is the one they were placed of, whatever has been typed since.
function remember() {
  const { words, alignment, doubts, placedText } = page.clip;
  page.past.push({ words, alignment, doubts, placedText, text: placedText });
}

// Words placed anew: roles and the way back are those of other words.
export function setPlaced({ words, alignment, doubts, text }) {
  const same = sameWords(words, page.clip.words);
  if (page.clip.words) remember();
  page.clip.placedText = text ?? page.clip.text;
  Object.assign(page.clip, { words, alignment, doubts, text: text ?? page.clip.text });
  if (!same) Object.assign(page.clip, { cue: [], target: null, foil: null });
  if (!same || page.word === null) page.word = firstWord();
  tell("words");
}

export function setWords(words) {
  remember();
  page.clip.words = words;
  page.clip.alignment = "by hand";
  page.clip.doubts = [];
  tell("words");
}

export function takeBack() {
  if (!page.past.length) return;
  const former = page.past.pop(), { words } = former;
  if (!sameWords(words, page.clip.words)) Object.assign(page.clip, { cue: [], target: null, foil: null });
  Object.assign(page.clip, former);
  page.word = Math.min(page.word ?? 0, words.length - 1);
  tell("words");
}

export function look(word) {
  page.word = word;
  tell("word");
}

export function setRole(role, word) {
  const { clip } = page;
  if (role === "target") clip.target = clip.target === word ? null : word;
  else clip.cue = clip.cue.includes(word) ? clip.cue.filter((other) => other !== word) : [...clip.cue, word].sort((a, b) => a - b);
  if (role === "target") clip.foil = null; // it was another word's
  tell("roles");
}

export function roleOf(word) {
  if (word === null || !page.clip) return "";
  return page.clip.cue.includes(word) ? "cue" : word === page.clip.target ? "target" : "";
}

export function setDepth(depth) {
  page.depth = depth;
  tell("layer");
}

export function hear(word) {
  const placed = page.clip.words?.[word];
  if (placed) page.player.play(placed[1], placed[2]);
}

// An element: tag, properties (class, text, attributes with a dash or aria), children.
export function make(tag, { text, className, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("aria-")) element.setAttribute(name, String(value));
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
