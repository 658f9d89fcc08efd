// One model at work on the clip: which model, measure, stack and layer; what contributes to a word, and to what it contributes; the map.

import { standing, work } from "./api.js";
import { asked, hear, look, make, on, page, roleOf, setDepth } from "./clip.js";
import { Store } from "./store.js";
import { colour } from "./words.js";

const MOST_TOKENS = 60, PITCH = 26; // tokens in a line; pixels of a row, where there are few
const store = new Store();
const number = (share) => (Number.isNaN(share) ? "–" : share >= 9.95 ? share.toFixed(0) : share.toFixed(1));

export function stored() { return store; }

export class Panel {
  // `leads` says whether this panel colours the words and the waveform; `lead` asks for that.
  constructor(element, { leads, lead, changed, closed }) {
    Object.assign(this, { element, leads, changed, rows: null, map: null, units: "word" });
    this.find = (selector) => element.querySelector(selector);
    for (const name of ["model", "measure", "stack", "units"]) {
      this.find(`.${name}`).addEventListener("change", (event) => { this[name] = event.target.value; this.rows = null; this.refresh(); });
    }
    this.find(".twin").addEventListener("change", () => this.refresh());
    this.find(".layer").addEventListener("input", (event) => setDepth(this.depthOf(Number(event.target.value))));
    this.find(".run").addEventListener("click", () => this.run());
    this.find(".close").addEventListener("click", () => closed(this));
    this.find(".map canvas").addEventListener("click", (event) => this.pick(event));
    for (const kind of ["focusin", "pointerdown"]) element.addEventListener(kind, () => { if (!leads()) lead(this); });
    new ResizeObserver(() => this.draw()).observe(this.find(".map"));
    DARK.addEventListener("change", () => this.draw());
    on("layer", () => this.draw());
    on("word", () => { this.rows = null; this.draw(); });
    on("roles", () => this.draw());
  }

  get entry() {
    const seed = this.find(".twin").checked ? this.seedOf(this.model) : null;
    return { name: this.model, seed };
  }

  // The twin that is stored with a run, or else that of seed 0.
  seedOf(name) { return store.entries().find((entry) => entry.name === name && entry.seed !== null)?.seed ?? 0; }

  depthOf(index) { return this.map && this.map.layers.length > 1 ? index / (this.map.layers.length - 1) : 1; }

  get layer() { return this.map ? Math.round((page.depth ?? 1) * (this.map.layers.length - 1)) : 0; }

  // What is measured: tokens are those of a measurement of words.
  get measuredUnits() { return this.units === "frame" ? "frame" : "word"; }

  // Fill the choices, get what is missing, show what there is.
  async refresh() {
    if (!page.clip) return;
    this.rows = null;
    const reads = (name) => page.readers.includes(name) === Boolean(page.clip.sentence);
    const names = [...new Set([...page.session.models.filter(reads), ...store.entries().map((entry) => entry.name)])];
    this.model = names.includes(this.model) ? this.model : names[0];
    choose(this.find(".model"), names.map((name) => [name, name]), this.model);
    choose(this.find(".measure"), page.session.measures.map(({ name }) => [name, name.replaceAll("_", " ")]), this.measure ??= "value_zeroing");
    const words = Boolean(page.clip.words?.length);
    for (const name of ["word", "token"]) this.find(`.units option[value=${name}]`).disabled = !words;
    this.find(".units option[value=frame]").disabled = Boolean(page.clip.sentence);
    this.find(".units").value = this.units;
    await this.measured();
  }

  async measured() {
    const { measure, measuredUnits: units, entry, stack } = this, question = store.question(entry, units);
    this.stop?.abort();
    if (!store.has(question, measure, this.stack)) {
      if (units === "word" && !page.clip.words?.length) {
        this.fail("The map of words appears when the words have times. For a map of frames, which takes longer, choose frames as units.");
        return;
      }
      if (!(page.clip.recording || page.clip.sentence) || !page.session.models.includes(entry.name)) {
        this.fail(page.clip.recording || page.clip.sentence
          ? `To measure with ${entry.name}, start the page with --model ${entry.name}.`
          : "Without its sound the clip cannot be measured again.");
        return;
      }
      this.stop = new AbortController();
      this.element.classList.add("busy");
      this.note(`${measure.replaceAll("_", " ")}: asked for …`);
      try {
        const told = (job) => this.note(standing(job));
        const answer = await work("measure", { clip: asked(), model: entry.name, seed: entry.seed, measures: [measure], units, stack: this.stack ?? null }, { signal: this.stop.signal, told });
        store.add(question, [measure], answer);
      } catch (error) {
        if (!this.stop.signal.aborted) this.fail(error.name === "AbortError" ? "Cancelled: choose a measure or units to start again." : error.message);
        return;
      }
      if (question !== store.question(this.entry, this.measuredUnits) || measure !== this.measure || stack !== this.stack) return; // asked for another meanwhile
    }
    this.element.classList.remove("busy");
    this.show(question);
  }

  show(question) {
    const maps = store.maps(question, this.measure);
    if (!maps.length) { this.fail(store.why(question, this.measure)); return; }
    if (!maps.some((map) => map.stack === this.stack)) this.stack = maps[0].stack;
    choose(this.find(".stack"), store.stacks(question).map((stack) => [stack, stack]), this.stack);
    const forms = maps.filter((map) => map.stack === this.stack); // words first, then tokens
    this.map = this.units === "word" ? forms[0] : forms.at(-1);
    if (page.depth === null && this.leads()) setDepth(this.depthOf(this.opening()));
    this.find(".body").hidden = false;
    this.note("");
    this.draw();
    this.changed();
  }

  // Index of the layer that is shown first: where the stack moves its targets, and unevenly.
  opening() {
    const index = this.map.layers.indexOf(this.map.opens);
    return index < 0 ? this.map.layers.length - 1 : index;
  }

  fail(reason) {
    this.element.classList.remove("busy");
    this.map = null;
    this.find(".body").hidden = true;
    this.note(reason);
    if (this.leads()) colour(null);
    this.changed();
  }

  note(text) { this.find(".note").textContent = text; }

  draw() {
    const { map } = this;
    if (!map || this.find(".body").hidden) return;
    const slider = this.find(".layer"), layer = this.layer, rows = this.rows ?? rowsOfWord(map, page.word);
    slider.max = map.layers.length - 1;
    slider.value = layer;
    slider.setAttribute("aria-valuetext", `layer ${map.layers[layer]}`);
    this.find("output").replaceChildren(make("b", { text: String(map.layers[layer]) }), ` (${map.layers[0]} to ${map.layers.at(-1)})`);
    this.find(".overlay").hidden = !isTimed(map, page.clip.seconds);
    drawMap(this.find(".map canvas"), map, layer, { rows, seconds: page.clip.seconds, frame: DARK.matches ? "#3ddc97" : "#0b8457", pitch: PITCH });
    drawScale(this.find(".bar canvas"));
    this.find(".bar .top").textContent = `${map.top.toFixed(0)} %`;
    this.label(rows);
    this.tell(layer, rows);
    if (this.leads()) colour(this.byWord(layer, rows));
  }

  // Names of rows beside the map, and of columns below it where these have no times.
  label(rows) {
    const { targets, sources } = this.map;
    placeRowLabels(this.find(".targets"), this.map, (row, text) => make("button", {
      type: "button", text, title: `row of ${targets[row].label}`, className: roleOf(targets[row].word),
      tabindex: rows.includes(row) ? 0 : -1, "aria-pressed": rows.includes(row), onclick: () => this.take(row),
    }), { most: PITCH });
    const named = isTimed(this.map, page.clip.seconds) || sources.length > MOST_TOKENS ? [] : sources.map((source, column) => {
      const [from, to] = edgesOf(this.map, column, page.clip.seconds), span = make("span", { text: source.label, title: source.label });
      span.style.left = `${100 * from}%`;
      span.style.width = `${100 * (to - from)}%`;
      return span;
    });
    this.find(".sources").replaceChildren(...named);
  }

  take(row) {
    const { word } = this.map.targets[row];
    if (word !== null && word !== page.word) look(word);
    this.rows = [row];
    this.draw();
  }

  // A click into the map: its row; the word of its column is heard.
  pick(event) {
    const box = event.target.getBoundingClientRect(), { targets, sources } = this.map;
    this.take(Math.min(Math.floor(((event.clientY - box.top) / box.height) * targets.length), targets.length - 1));
    const part = (event.clientX - box.left) / box.width;
    const column = sources.findIndex((_, index) => { const [from, to] = edgesOf(this.map, index, page.clip.seconds); return from <= part && part < to; });
    if (column >= 0 && sources[column].word !== null) hear(sources[column].word);
  }

  // What each word of the clip contributes to the rows, as a part of the scale.
  byWord(layer, rows) {
    if (!rows.length || !page.clip.words) return null;
    const mean = meanRow(this.map, layer, rows), sums = new Array(page.clip.words.length).fill(0);
    this.map.sources.forEach((source, column) => { if (source.word !== null) sums[source.word] += mean[column]; });
    const top = this.map.units !== "word" ? Math.max(...sums) : this.map.top;
    return sums.map((sum) => sum / top);
  }

  // The word as coloured words: what it is made of, and what it contributes to each of the others.
  tell(layer, rows) {
    const { map } = this, looked = page.clip.words?.[page.word]?.[0], name = this.rows ? map.targets[this.rows[0]].label : looked;
    const made = rows.length ? grouped(map.sources, meanRow(map, layer, rows)) : [];
    const columns = this.rows?.length === 1 && map.stack === "decoder" ? ownColumn(map, this.rows[0]) : columnsOfWord(map, page.word);
    const sums = map.targets.map((_, row) => columns.reduce((sum, column) => sum + shareOf(map, layer, row, column), 0));
    const gives = columns.length ? grouped(map.targets, sums, true) : [];
    const none = looked ? "No row of this map is this word's." : "Choose a row of the map, or place words.";
    this.find(".made").replaceChildren(...line(map, name ? `${name} is made of` : "", made, "gives", none));
    this.find(".given").replaceChildren(...(looked ? line(map, `${looked} contributes to`, gives, "takes", "No column of this map is this word's.") : []));
  }

  run() {
    const button = this.find(".run");
    const stop = () => { clearInterval(this.running); this.running = null; button.textContent = "▶"; button.setAttribute("aria-label", "play through the layers"); };
    if (this.running) { stop(); return; }
    if (!this.map || this.map.layers.length < 2) return;
    button.textContent = "❚❚";
    button.setAttribute("aria-label", "stop at this layer");
    setDepth(0);
    this.running = setInterval(() => {
      if (!this.map || this.layer >= this.map.layers.length - 1) stop();
      else setDepth(this.depthOf(this.layer + 1));
    }, 800);
  }
}

function ownColumn(map, row) {
  const column = map.sources.findIndex((source) => source.label === map.targets[row].label && source.word === map.targets[row].word);
  return column < 0 ? [] : [column];
}

// Units with their shares; of very many, those of one word together (means of rows, sums of columns).
function grouped(units, shares, mean = false) {
  if (units.length <= MOST_TOKENS) return units.map((unit, i) => ({ label: unit.label, word: unit.word, share: shares[i] }));
  const groups = [];
  units.forEach((unit, i) => {
    if (groups.at(-1)?.word !== unit.word || !groups.length) groups.push({ label: unit.word === null ? "·" : page.clip.words?.[unit.word]?.[0] ?? unit.label, word: unit.word, share: 0, count: 0 });
    groups.at(-1).share += shares[i];
    groups.at(-1).count += 1;
  });
  return groups.map((group) => ({ ...group, share: mean ? group.share / group.count : group.share }));
}

function line(map, heading, parts, kind, none) {
  const top = parts.length && map.targets.length > MOST_TOKENS ? Math.max(...parts.map(({ share }) => share || 0)) : map.top;
  const tokens = parts.map(({ label, word, share }) => {
    const token = make("button", {
      type: "button", className: `token ${kind} ${roleOf(word)}`, tabindex: -1, title: `${label}: ${number(share)} %`,
      onclick: () => { if (word !== null) { look(word); hear(word); } },
    }, make("span", { text: label || "␣" }), make("small", { text: number(share) }));
    token.style.setProperty("--depth", (Number.isNaN(share) ? 0 : 0.7 * Math.min(Math.abs(share) / top, 1)).toFixed(3));
    return token;
  });
  return [make("h3", { text: heading }), tokens.length ? make("div", { className: "tokens" }, ...tokens) : make("p", { className: "quiet", text: none })];
}

function choose(select, options, value) {
  const there = [...select.options].map((option) => option.value).join("|");
  if (there !== options.map(([name]) => name).join("|")) select.replaceChildren(...options.map(([name, text]) => new Option(text, name)));
  select.value = value;
}
