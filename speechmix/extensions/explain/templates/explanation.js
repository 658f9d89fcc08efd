"use strict";
// The view of an explanation: explanationView(root, data, options) draws it, in a page, in a notebook, in the app.
// options: play(from, to) hears seconds where the page has a player of its own; file() writes the page there.
(() => {
  const NOTE = "Hover over a word, or tap it, to see its sources. Blue: the source supports the word. Orange: it opposes the word. " +
    "In each line, the largest number has the darkest colour. p: the model's probability of the word that it wrote. A source is a stretch of the " +
    "sound, or a word of the text. Each measure assigns a score, the attribution, to every source. “(own sound)”: the sound " +
    "at the time of the word itself. “(written)”: an earlier word of the transcript. The number in parentheses compares words: it is the source's share of " +
    "the attribution for this word minus its mean share for the other words, in percentage points. Effect of removal: the loss of the word's " +
    "log-probability (nats), or of its difference to that of the other word if two are compared, when a fill, such as silence, replaces this source alone. The number is the median over fills (of an earlier word, which its alternatives replace, the one nearest zero), with [lowest to highest].";
  const FINE = " If a measure scores each frame, the colours of the waveform are those of frames. The colours of the words below it are those of whole words.";
  const MOST = 8, DWELL = 120, DARKEST = 0.7; // sources told in a line; milliseconds before a word is heard
  const SVG = "http://www.w3.org/2000/svg";
  // A label without its own punctuation, which the sentence around it would double.
  const inSentence = (label) => label.replace(/(\p{L}|\p{N})[.,;:]+(?= \(|$)/u, "$1");
  const quoted = (label) => ({ "(nothing)": "no letter", "(end)": "the end of the text", "␣": "a space" })[label] ?? `“${label}”`;
  function make(tag, attributes = {}, ...children) {
    const element = tag === "svg" || tag === "path" || tag === "rect" ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  const digits = (value) => (value === 0 ? "0" : Math.abs(value) >= 0.001 && Math.abs(value) < 1e4 ? String(Number(value.toPrecision(2))) : value.toExponential(1));
  const signed = (value) => (value > 0 ? "+" : "") + digits(value);
  const told = (value, of) => (of === "share" ? `${(100 * value).toFixed(0)} %` : of === "size" ? digits(value) : signed(value));
  const seconds = ({ onset, offset }) => `${onset.toFixed(2)} to ${offset.toFixed(2)} s`;
  const timed = (source) => source.onset !== null;
  const pieces = (source) => (source.pieces.length ? source.pieces : [[source.onset, source.offset]]).map(([onset, offset]) => ({ onset, offset }));

  // Values as parts of the largest of them, -1 to 1.
  function depths(values) {
    const top = Math.max(0, ...values.map((value) => Math.abs(value ?? 0)));
    return values.map((value) => (value === null || !top ? 0 : value / top));
  }
  function colour(element, depth) {
    element.classList.toggle("takes", depth < 0);
    element.style.setProperty("--depth", (DARKEST * Math.min(Math.abs(depth), 1)).toFixed(3));
    return element;
  }
  // Values of frames, which come as 127ths of the largest, a byte each.
  const bytes = ({ largest, parts }) => [...atob(parts)].map((letter) => (((letter.charCodeAt(0) << 24) >> 24) * largest) / 127);
  const ranked = (values) => values.map((_, index) => index).filter((index) => values[index] !== null).sort((a, b) => values[b] - values[a]);

  // The tables that the package writes, of the same columns, as rows by name.
  function rowsOf(data) {
    return data.measures.flatMap(({ name, of, distance }) => data.choices.flatMap((choice) => {
      const values = choice.attribution[name], order = ranked(values), what = about(data, choice);
      return [...order].sort((a, b) => a - b).map((index) => {
        const { side, label, onset, offset, index: source } = data.sources[index], errors = choice.attribution_error[name];
        return { ...what, error: choice.error, measure: name, of, distance, side, source, label, own_sound: choice.own.includes(index) ? "True" : "False",
          onset, offset, attribution: values[index], attribution_error: errors?.[index], specific: choice.specific[name][index], rank: order.indexOf(index) + 1,
          value: choice.value, spelling_margin: choice.spelling_margin, spelling_prior: choice.spelling_prior, value_without: choice.value_without[index], drop: choice.drop[index],
          drop_low: choice.drop_low[index], drop_high: choice.drop_high[index], probability_without: choice.probability_without[index] };
      });
    }));
  }
  function rowsOfPairs(data) {
    return data.choices.flatMap((choice) => choice.pairs.map(({ first, second, kind, beyond, drop_first, drop_second, drop_both, fills, probability }) => {
      const [one, other] = [first, second].map((index) => data.sources[index]);
      return { ...about(data, choice), first_side: one.side, first: one.label, second_side: other.side, second: other.label, kind, beyond,
        drop_first, drop_second, drop_both, fills, probability_without: probability };
    }));
  }
  const about = (data, choice) => ({ item: data.item, written: data.units[choice.unit].label, unit: choice.unit, against: choice.against, foil: choice.contrast?.foil, probability: choice.probability });

  function csv(columns, rows) {
    const cell = (value) => {
      if (value === null || value === undefined) return "";
      const text = String(value);
      return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    return [columns, ...rows.map((row) => columns.map((name) => row[name]))].map((row) => row.map(cell).join(",")).join("\n") + "\n";
  }

  function download(content, type, name) {
    const link = make("a", { href: URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type })), download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  const styles = () => [...document.styleSheets].flatMap((sheet) => {
    try { return [...sheet.cssRules].map((rule) => rule.cssText); } catch { return []; } // a sheet from elsewhere
  }).filter((text) => text.includes(".why")).join("\n");

  // What is seen, as a picture: an SVG of the page's own elements, drawn by the browser.
  async function picture(root) {
    const copy = root.cloneNode(true), box = root.getBoundingClientRect(), shown = getComputedStyle(root), scale = 2;
    copy.querySelectorAll(".w-tools, audio, pre").forEach((element) => element.remove());
    const ground = [document.body, document.documentElement].map((element) => getComputedStyle(element).backgroundColor).find((paint) => !/, 0\)$|transparent/.test(paint));
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    copy.style.cssText = `color: ${shown.color}; background: ${ground ?? (dark ? "#121212" : "#fff")}; padding: 12px; width: ${box.width}px; color-scheme: ${dark ? "dark" : "light"}`;
    for (const name of ["--gives", "--takes", "--wave", "--grid"]) copy.style.setProperty(name, shown.getPropertyValue(name));
    const [width, height] = [box.width + 24, box.height + 24];
    const body = make("div", { xmlns: "http://www.w3.org/1999/xhtml" }, make("style", {}, styles()), copy);
    const text = new XMLSerializer().serializeToString(body);
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(`<svg xmlns="${SVG}" width="${width}" height="${height}"><foreignObject width="100%" height="100%">${text}</foreignObject></svg>`)}`;
    await image.decode();
    const canvas = make("canvas", { width: scale * width, height: scale * height });
    canvas.getContext("2d").drawImage(image, 0, 0, scale * width, scale * height);
    return new Promise((done) => canvas.toBlob(done, "image/png"));
  }

  class View {
    constructor(root, data, options) {
      Object.assign(this, { root, data, options, measure: data.measures[0]?.name, place: 0, aloud: true, fine: true, own: true, until: null });
      const wrapper = root.closest(".why-view");
      this.whole = wrapper && data.head ? `<!doctype html>\n<html lang="en"><head>${data.head}</head><body>${wrapper.outerHTML}</body></html>\n` : null;
      this.draw();
      this.choose(data.start ?? 0);
    }

    // Parts --------------------------------------------------------------------------------------------------------------

    draw() {
      const { data } = this;
      this.words = data.units.map((unit, index) => this.word(unit, index));
      this.audio = data.sound?.wav ? make("audio", { controls: true, preload: "metadata", src: `data:audio/wav;base64,${data.sound.wav}` }) : null;
      this.audio?.addEventListener("play", () => this.follow());
      this.instead = make("p", { class: "w-instead" });
      this.heading = make("p", { class: "w-heading", "aria-live": "polite" });
      this.lines = make("div", { class: "w-lines" });
      this.remarks = make("div", { class: "w-remarks" });
      const canHear = this.audio || this.options.play;
      const hear = canHear ? make("label", {}, make("input", { type: "checkbox", checked: true, onchange: ({ target }) => { this.aloud = target.checked; } }), " play on hover") : null;
      const fine = data.frames.length ? make("label", {}, make("input", { type: "checkbox", checked: true, onchange: ({ target }) => { this.fine = target.checked; this.show(); } }), " colour the waveform by frame") : null;
      const said = data.said ? ` · reference: ${data.said}` : "";
      const list = make("div", { class: "w-words", role: "toolbar", "aria-label": "Words of the transcript; move with the arrow keys" }, ...this.words);
      list.addEventListener("keydown", (event) => this.walk(event));
      this.root.replaceChildren(...[
        make("p", { class: "quiet" }, `${data.item} · ${data.by}${said}`),
        list, this.instead, this.measures(), this.heading, this.sound(), ...this.read(), this.lines, this.remarks, this.layers(),
        ...data.notes.map((note) => make("p", { class: "quiet note" }, note)),
        make("p", { class: "quiet" }, NOTE, data.frames.length ? FINE : ""),
        make("p", { class: "w-tools" }, hear, fine, ...this.files()), this.audio,
      ].filter(Boolean));
    }

    word(unit, index) {
      const begin = (event) => this.hover(index, event);
      return make("button", {
        type: "button", class: `w-word ${unit.kind}`, tabindex: index ? -1 : 0, onpointerenter: begin, onpointerleave: () => clearTimeout(this.waiting),
        onfocus: (event) => { if (event.target.matches(":focus-visible")) this.take(index); }, onclick: () => this.take(index),
      }, make("span", {}, unit.label || "␣"), make("small", {}, `p = ${digits(unit.probability)}`));
    }

    measures() {
      this.choosers = this.data.measures.map(({ name, title, unit, mark }) => make("button", {
        type: "button", title: `colour by ${title} (${unit})`, onclick: () => { this.measure = name; this.show(); },
      }, title, mark ? make("small", {}, `, ${mark}`) : null));
      const own = this.data.choices.some((choice) => choice.own.length) ? make("label", {}, make("input", { type: "checkbox", class: "w-own", checked: true, onchange: ({ target }) => { this.own = target.checked; this.show(); } }), " include the word's own sound") : null;
      return make("p", { class: "w-measures", role: "group", "aria-label": "Measure that colours the sources" }, ...this.choosers, own);
    }

    // The outline of the sound, each source in the colour of what it gives; each frame, where a measure tells them apart.
    sound() {
      const { sound, sources, frames } = this.data;
      this.parts = new Map();
      this.frames = [];
      if (!sound) return null;
      const count = sound.low.length, outline = (from, to) => {
        const bars = [];
        for (let i = from; i < to; i += 1) bars.push(`M${i + 0.5} ${100 - Math.max(sound.high[i], 1)}V${100 - Math.min(sound.low[i], -1)}`);
        return bars.join("");
      };
      const svg = make("svg", { viewBox: `0 0 ${count} 200`, preserveAspectRatio: "none", "aria-hidden": "true" }, make("path", { class: "w-outline", d: outline(0, count) }));
      const lane = make("div", { class: "w-lane" }), at = (time) => Math.min(Math.round((time / sound.seconds) * count), count);
      const marked = (from, to, of) => {
        const ground = make("rect", { class: `w-ground ${of}`, x: from, y: 0, width: Math.max(to - from, 1), height: 200 });
        const marks = [ground, make("path", { class: `w-given ${of}`, d: outline(from, Math.max(to, from + 1)) })];
        svg.append(...marks);
        return marks;
      };
      sources.forEach((source, index) => {
        if (!timed(source)) return;
        const marks = pieces(source).flatMap(({ onset, offset }) => {
          const button = make("button", { type: "button", tabindex: -1, title: `${source.label}, ${seconds({ onset, offset })}`, onclick: () => this.play({ onset, offset }) }, make("span", { class: /\d/.test(source.label) ? "w-number" : "" }, source.label), make("small", {}));
          button.style.left = `${(100 * onset) / sound.seconds}%`;
          button.style.width = `${(100 * (offset - onset)) / sound.seconds}%`;
          lane.append(button);
          return [...marked(at(onset), at(offset), "w-of-word"), button];
        });
        this.parts.set(index, marks);
      });
      this.frames = frames.slice(1).map((end, index) => marked(Math.min(at(frames[index]), count - 1), at(end), "w-of-frame"));
      this.picture = svg;
      const score = make("div", { class: "w-score" }, svg, lane);
      score.style.minWidth = `${Math.round(60 * sound.seconds)}px`;
      return make("div", { class: "w-wide", tabindex: 0, role: "region", "aria-label": "The sound, coloured by the contribution of each part" }, score);
    }

    // A text that is read stands where the sound would, a prompt below it; what is behind a sound below that.
    read() {
      return [["read", "text: "], ["padding", "behind the sound: "], ["asked", "prompt: "]].map(([side, name]) => {
        const read = this.data.sources.map((source, index) => [source, index]).filter(([source]) => source.side === side);
        read.forEach(([source, index]) => this.parts.set(index, [make("span", { class: "w-chip" }, source.label, make("small", {}))]));
        return read.length ? make("p", { class: "w-read" }, make("small", { class: "quiet" }, name), ...read.map(([, index]) => this.parts.get(index)[0])) : null;
      });
    }

    // What the model would have written from each layer, the last one first.
    layers() {
      const texts = this.data.layers ?? [];
      const row = (text, index) => make("p", { class: "w-line" }, make("em", {}, index ? `layer ${index - 1}` : "input of layer 0"), make("span", {}, text || "–"));
      return texts.length ? make("div", { class: "w-layers" }, make("p", { class: "quiet" }, "What the model would have written from each layer:"), ...texts.map(row).reverse()) : null;
    }

    // What happens -------------------------------------------------------------------------------------------------------

    choices(unit) { return this.data.choices.map((choice, place) => [choice, place]).filter(([choice]) => choice.unit === unit); }

    hover(unit, { pointerType }) {
      clearTimeout(this.waiting);
      if (pointerType === "touch" || this.root.querySelector(".w-words :focus-visible")) return;
      this.choose(this.first(unit));
      if (this.aloud) this.waiting = setTimeout(() => this.hear(), DWELL);
    }

    first(unit) { return (this.choices(unit).find(([{ against }]) => !against) ?? this.choices(unit)[0])[1]; }

    take(unit) {
      this.choose(this.first(unit));
      clearTimeout(this.waiting);
      this.hear();
    }

    walk(event) {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const unit = Math.min(Math.max(this.choice.unit + step, 0), this.words.length - 1);
      this.words[unit].focus();
    }

    get choice() { return this.data.choices[this.place]; }

    choose(place) {
      this.place = place;
      this.show();
    }

    // Without the word's own sound, if it is set aside: a share is then one of all else.
    besides(values, of) {
      const { own } = this.choice;
      if (this.own || !values) return values;
      const rest = of === "share" ? 1 - own.reduce((sum, index) => sum + (values[index] ?? 0), 0) : 1;
      return values.map((value, index) => (value === null || own.includes(index) || rest < 1e-12 ? null : value / rest));
    }

    values(name) { return this.besides(this.choice.attribution[name], this.data.measures.find((measure) => measure.name === name)?.of); }

    name(index) { return this.data.sources[index].name + (this.choice.own.includes(index) ? " (own sound)" : ""); }

    show() {
      const { data, choice, measure } = this;
      if (!choice) return;
      const values = this.values(measure) ?? data.sources.map(() => null), shades = depths(values), { of } = data.measures.find(({ name }) => name === measure) ?? {};
      data.units.forEach((unit, index) => {
        const button = this.words[index], own = index === choice.unit;
        colour(button, unit.source === null || own ? 0 : shades[unit.source]);
        button.setAttribute("aria-pressed", own);
        button.tabIndex = own ? 0 : -1;
      });
      this.parts.forEach((elements, index) => {
        elements.forEach((element) => colour(element, shades[index]));
        elements.at(-1).querySelector("small").textContent = values[index] === null ? "" : told(values[index], of);
      });
      const fine = this.byFrame();
      this.picture?.classList.toggle("w-fine", Boolean(fine));
      if (fine) depths(fine).forEach((shade, index) => this.frames[index].forEach((element) => colour(element, shade)));
      this.choosers.forEach((button, index) => button.setAttribute("aria-pressed", data.measures[index].name === measure));
      this.tellInstead();
      this.tell(values, of);
      this.lines.replaceChildren(...this.attribution(), this.shown(), this.together());
      this.remarks.replaceChildren(...choice.remarks[this.own ? "all" : "besides"].map((remark) => make("p", { class: "w-remark" }, remark)));
    }

    // What each frame gives, if that is known and asked for.
    byFrame() {
      const parts = this.fine && this.frames.length ? this.choice.by_frame[this.measure] : null, edges = this.data.frames;
      if (!parts) return null;
      const aside = this.own ? [] : this.choice.own.flatMap((index) => pieces(this.data.sources[index]));
      const isAside = (middle) => aside.some(({ onset, offset }) => middle >= onset && middle < offset);
      return bytes(parts).map((value, index) => (isAside((edges[index] + edges[index + 1]) / 2) ? null : value));
    }

    // What could have been written instead; where it was held against that, it has colours of its own.
    tellInstead() {
      const own = this.choice.unit, kinds = { "": "the word alone", reference: "against the reference", runner_up: "against the runner-up", foil: "against the foil" };
      const buttons = this.choices(own).map(([choice, place]) => {
        const text = choice.contrast ? `${choice.contrast.label} not ${choice.contrast.foil}` : this.data.units[own].label;
        const button = make("button", { type: "button", "aria-pressed": place === this.place, title: choice.name, onclick: () => { this.choose(place); this.instead.children[at]?.focus(); } },
          make("span", {}, text), make("small", {}, choice.contrast ? `${kinds[choice.against]}, p(${choice.contrast.foil}) = ${digits(choice.contrast.probability)}` : kinds[""]));
        const at = 1 + this.choices(own).findIndex(([, other]) => other === place);
        return button;
      });
      const others = this.choice.runners_up.map(({ label, probability, others }) =>
        `alternatives to “${label}” (p = ${digits(probability)}): ${others.map((other) => `“${other.label}” ${digits(other.probability)}`).join(", ")}`).join("; ");
      this.instead.replaceChildren(make("small", { class: "quiet" }, "explain "), ...buttons, make("small", { class: "quiet" }, others));
    }

    // In words, for who does not see colours.
    tell(values, of) {
      const { choice, data } = this, [first, second] = ranked(values), strongest = this.strongest(), isOwn = choice.own.includes(first);
      const word = data.units[choice.unit].label, { contrast } = choice;
      const heading = !contrast ? `${word}: p = ${digits(choice.probability)}.` : choice.error ? `${choice.name}.` : `${word === "(end)" ? "At the end" : `In “${word}”`}: why ${quoted(contrast.label)} and not ${quoted(contrast.foil)}?`;
      const parts = [];
      const { title, unit } = data.measures.find(({ name }) => name === this.measure) ?? {}, withUnit = (value) => `${told(value, of)}${of === "share" || of === "size" ? "" : ` ${unit}`}`;
      const decides = this.measure !== "occlusion" || values[first] >= data.deciding;
      if (first !== undefined && values[first] > 0) parts.push(`${decides ? "" : "No single source decides. "}Largest source: ${inSentence(this.name(first))}, ${withUnit(values[first])} by ${title}`);
      if (isOwn && second !== undefined && values[second] > 0) parts.push(`Largest other source: ${inSentence(this.name(second))}, ${withUnit(values[second])}`);
      if (strongest) parts.push(`Largest source in the sound: ${inSentence(strongest.label)}, ${seconds(strongest)}`);
      const fine = this.byFrame(), [peak] = fine ? ranked(fine) : [];
      if (peak !== undefined && fine[peak] > 0) parts.push(`Largest frame: at ${data.frames[peak].toFixed(2)} s`);
      this.heading.textContent = [heading, ...parts.map((part) => `${part}.`)].join(" ");
    }

    // The part of the sound that gives most to the word.
    strongest() {
      const values = this.values(this.measure) ?? [];
      const index = ranked(values).find((place) => timed(this.data.sources[place]));
      return index !== undefined && values[index] > 0 ? this.data.sources[index] : null;
    }

    attribution() {
      const effects = this.choice.drop.some((drop) => drop !== null);
      return this.data.measures.filter(({ name }) => !(effects && name === "occlusion")).map(({ name, title, of, unit, mark }) => {
        const rest = this.choice.rest[name], notes = [unit, mark, rest === undefined || rest === null ? "" : `assigned to no source: ${signed(rest)}`].filter(Boolean);
        return this.line(title, notes.join(", "), this.values(name), (value, index) => told(value, of) + this.specific(name, index));
      });
    }

    // Points of share that a source has more than for the other written words.
    specific(name, index) {
      const value = this.choice.specific[name]?.[index];
      return value === null || value === undefined ? "" : ` (${value > 0 ? "+" : ""}${(100 * value).toFixed(0)})`;
    }

    // What is printed first is what is coloured and sorted by: the nats that are lost.
    shown() {
      const { choice, data } = this, drops = this.besides(choice.drop);
      if (choice.drop.every((drop) => drop === null)) return "";
      const range = (index) => (choice.drop_low[index] === choice.drop_high[index] ? "" : ` [${signed(choice.drop_low[index])} to ${signed(choice.drop_high[index])}]`);
      const numbers = (drop, index) => `${signed(drop)}${range(index)}${this.specific("occlusion", index)}; p = ${digits(choice.probability_without[index])}`;
      const fills = (index) => data.fills.map(({ label }, fill) => [label, choice.drop_by_fill[fill][index]]).filter(([, drop]) => drop !== null).map(([label, drop]) => `${label} ${signed(drop)}`).join(", ");
      return this.line("effect of removal", `loss in nats [range over fills]; p of the word without the source`, drops, numbers, fills);
    }

    // Two sources taken away together: what that takes beyond the sum of what each takes alone.
    together() {
      const { pairs } = this.choice, telling = pairs.filter(({ kind }) => kind).slice(0, MOST);
      if (!pairs.length) return "";
      const shades = depths(pairs.map(({ beyond }) => beyond)), hint = { "either-or": "either of the two is enough", "both needed": "both of them are needed", undone: "removing one compensates for removing the other" };
      const chips = telling.map((pair) => {
        const names = [pair.first, pair.second].map((index) => this.data.sources[index].name).join({ "either-or": " or ", "both needed": " and " }[pair.kind] ?? " against ");
        const chip = make("span", { class: "w-chip", title: hint[pair.kind] }, names, make("small", {}, `${pair.kind} ${signed(pair.beyond)}, p = ${digits(pair.probability)}`));
        return colour(chip, shades[pairs.indexOf(pair)]);
      });
      const none = chips.length ? null : make("small", { class: "quiet" }, `in all ${pairs.length} pairs, removing both costs about as much as removing each in turn`);
      return make("div", { class: "w-line" }, make("em", {}, "both removed", make("small", {}, " nats beyond the sum of both; p without them")), ...chips, none);
    }

    // One line of sources, the strongest first.
    line(title, note, values, number, hint = () => "") {
      const shades = depths(values), order = ranked(values), strong = [...order].sort((a, b) => Math.abs(values[b]) - Math.abs(values[a])).slice(0, MOST);
      const chips = order.filter((index) => strong.includes(index)).map((index) => {
        const source = this.data.sources[index], label = [this.name(index), make("small", {}, number(values[index], index))];
        const title = [timed(source) ? seconds(source) : "", hint(index)].filter(Boolean).join("; ");
        const chip = timed(source) ? make("button", { type: "button", class: "w-chip", title, onclick: () => this.play(source) }, ...label) : make("span", { class: "w-chip", title: title || null }, ...label);
        return colour(chip, shades[index]);
      });
      const more = order.length - strong.length;
      return make("div", { class: "w-line" }, make("em", {}, title, make("small", {}, ` ${note}`)), ...chips, more > 0 ? make("small", { class: "quiet" }, `and ${more} weaker`) : null);
    }

    // Sound --------------------------------------------------------------------------------------------------------------

    hear() {
      const strongest = this.strongest();
      if (strongest) this.play(strongest);
    }

    play({ onset, offset }) {
      if (this.options.play) { this.options.play(onset, offset); return; }
      if (!this.audio) return;
      this.audio.currentTime = onset;
      this.until = offset;
      this.audio.play().catch(() => {}); // a browser that wants a click first
    }

    follow() {
      if (this.until !== null && this.audio.currentTime >= this.until) { this.until = null; this.audio.pause(); }
      if (!this.audio.paused) requestAnimationFrame(() => this.follow());
    }

    // Files --------------------------------------------------------------------------------------------------------------

    files() {
      const { columns } = this.data;
      const name = this.data.item.replace(/[^\p{L}\p{N}._-]+/gu, "_").slice(0, 80) || "why";
      const page = this.options.file ?? (this.whole && (() => download(this.whole, "text/html", `${name}.html`)));
      const made = { "Page (HTML)": page, "Picture (PNG)": async () => download(await picture(this.root), "", `${name}.png`), "Table (CSV)": () => download(csv(columns.attributions, rowsOf(this.data)), "text/csv", `${name}.csv`),
        "Pairs (CSV)": this.data.choices.some(({ pairs }) => pairs.length) && (() => download(csv(columns.pairs, rowsOfPairs(this.data)), "text/csv", `${name}_pairs.csv`)) };
      return Object.entries(made).filter(([, save]) => save).map(([text, save]) => make("button", { type: "button", onclick: save }, text));
    }
  }

  globalThis.explanationView = (root, data, options = {}) => { root.classList.add("why"); return new View(root, data, options); };
  for (const root of document.querySelectorAll(".why-view > .why:not([data-ready])")) {
    globalThis.explanationView(root, JSON.parse(root.nextElementSibling.textContent));
    root.dataset.ready = ""; // not before: a page that is saved draws itself again
  }
})();
