// Clips whose player moves over the map. No network, no library; `maps.js` and `tables.js` stand before it.

for (const card of document.querySelectorAll(".why-card")) card.addEventListener("toggle", () => openWhy(card));
for (const element of document.querySelectorAll(".clip:not(.why-card)")) {
  if (element.localName === "details") element.addEventListener("toggle", () => openClip(element));
  else showClip(element);
}
openLinked();
for (const figure of document.querySelectorAll("figure.series")) slideThrough(figure);
window.addEventListener("hashchange", openLinked);

// A closed clip is a template, which costs a browser next to nothing: it is made and drawn when it is opened first.
function openClip(element) {
  const template = element.querySelector("template");
  if (!element.open || !template) return;
  template.replaceWith(template.content);
  hintWhereWide(element);
  showClip(element);
}

// What models wrote about a clip, and why: the views are made when they are opened first; until then it is text.
function openWhy(card) {
  const place = card.querySelector(".why-place");
  if (!card.open || place.dataset.ready !== undefined) return;
  place.dataset.ready = "";
  const { views, sound } = JSON.parse(card.querySelector('script[type="application/json"]').textContent);
  place.replaceChildren(...views.map(({ model, view }) => {
    const part = document.createElement("section"), heading = document.createElement("h4"), root = document.createElement("div");
    heading.textContent = model;
    part.append(heading, root);
    if (view.sound) view.sound.wav = sound || null;
    explanationView(root, view);
    return part;
  }));
}

// A link to a clip opens it.
function openLinked() {
  const element = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (element && element.matches("details.clip")) { element.open = true; element.scrollIntoView(); }
}

function showClip(element) {
  const data = JSON.parse(element.querySelector('script[type="application/json"]').textContent);
  const cues = [data.cue].flat(); // one word, or several that are one cue
  const find = (selector) => element.querySelector(selector);
  const audio = find("audio"), words = [...element.querySelectorAll(".words button")];
  const state = { map: null, rows: [], until: null };

  const chosen = {};
  const CHOICES = ["model", "stack", "measure", "units"];
  for (const name of CHOICES) {
    find(`select.${name}`).addEventListener("change", (event) => { chosen[name] = event.target.value; choose(); });
  }
  const slider = find(".layer");
  slider.addEventListener("input", draw);

  // Keep what is chosen where the others have it; else take the first there is.
  function choose() {
    let left = data.maps;
    for (const name of CHOICES) {
      const values = [...new Set(left.map((map) => map[name]))];
      if (!values.includes(chosen[name])) chosen[name] = values[0];
      const select = find(`select.${name}`);
      select.replaceChildren(...values.map((value) => new Option(UNITS[value] ?? value, value, false, value === chosen[name])));
      left = left.filter((map) => map[name] === chosen[name]);
    }
    find("select.units").parentElement.hidden = find("select.units").options.length < 2;
    state.map = left[0];
    const map = state.map;
    const layer = state.layer ?? data.start.layer ?? map.opens ?? 0;
    slider.max = map.layers.length - 1;
    slider.value = Math.max(0, map.layers.findLastIndex((one) => one <= layer));
    const decides = state.word === undefined && map.deciding !== null; // nothing clicked yet
    const word = state.word === undefined ? data.target : state.word;
    state.rows = decides ? [map.deciding] : rowsOfWord(map, word);
    label();
    draw();
  }

  function label() {
    const { targets, sources } = state.map;
    const decides = (row) => row === state.map.deciding;
    placeRowLabels(find(".targets"), state.map, (row, text) => {
      const button = document.createElement("button"), { label, word } = targets[row];
      button.type = "button";
      button.textContent = text;
      button.title = `row of ${label}${decides(row) ? ", the deciding position" : ""}`;
      button.className = `${roleOf(word)}${decides(row) ? " deciding" : ""}`;
      button.tabIndex = text ? 0 : -1;
      button.addEventListener("click", () => { state.rows = [row]; state.word = word; draw(); });
      return button;
    }, { first: state.map.deciding === null ? [] : [state.map.deciding] });
    const named = isTimed(state.map, data.seconds) || sources.length > 60 ? [] : sources.map((source, column) => {
      const span = document.createElement("span");
      const [from, to] = edgesOf(state.map, column, data.seconds);
      span.textContent = source.label;
      span.title = source.label;
      span.className = roleOf(source.word);
      span.style.left = `${100 * from}%`;
      span.style.width = `${100 * (to - from)}%`;
      return span;
    });
    find(".sources").replaceChildren(...named);
  }

  function roleOf(word) {
    return word === null ? "" : cues.includes(word) ? "cue" : word === data.target ? "target" : "";
  }

  function draw() {
    const map = state.map, layer = Number(slider.value);
    state.layer = map.layers[layer];
    find("output").textContent = `${map.layers[layer]}`;
    const outlined = { rows: rowsOfWord(map, data.target), columns: cues.flatMap((cue) => columnsOfWord(map, cue)) };
    drawMap(find(".map canvas"), map, layer, { rows: state.rows, seconds: data.seconds, frame: "#4a90e2", outlined });
    [...find(".targets").children].forEach((button, row) => button.setAttribute("aria-pressed", state.rows.includes(row)));
    drawScale(find(".bar canvas"));
    find(".bar .top").textContent = `${map.top.toFixed(0)} %`;
    find(".bar .sides").textContent = `of the total of the row. Row: ${map.row}. Column: ${map.column}.${outlined.rows.length && outlined.columns.length ? " Green outline: share of the cue in the target." : ""}`;
    tell(layer);
    move();
  }

  // The chosen row in words: what contributes to it, most first.
  function tell(layer) {
    const { targets, sources, measure, stack } = state.map, rows = state.rows;
    if (!rows.length) {
      find(".row").textContent = "Click a word to hear it and to see what contributes to it.";
      return;
    }
    const shares = meanRow(state.map, layer, rows).map((share, column) => [share, sources[column].label]);
    shares.sort((a, b) => b[0] - a[0]);
    const ofTarget = rowsOfWord(state.map, data.target).join() === rows.join() ? " (the target)" : "";
    const which = rows.length === 1 && rows[0] === state.map.deciding ? " (deciding position)" : ofTarget;
    const name = rows.map((row) => targets[row].label).join(" ") + which;
    const listed = shares.slice(0, 12).map(([part, from]) => `${from} ${Number.isNaN(part) ? "no value" : part.toFixed(1) + " %"}`);
    const more = shares.length > 12 ? `, and ${shares.length - 12} more` : "";
    find(".row").textContent = `Contributions to ${name} in layer ${state.layer} (${stack}, ${measure}): ${listed.join(", ")}${more}`;
  }

  // The position of the player: a line over what has times, a frame around the columns of the word that sounds.
  function move() {
    if (!audio) return;
    const now = audio.currentTime, word = data.words.find((one) => one.start <= now && now < one.end)?.word ?? -1;
    const line = find(".line"), band = find(".band"), started = now > 0 || !audio.paused;
    find(".clock").textContent = `${clocked(now)} of ${clocked(data.seconds)}`;
    line.hidden = !started;
    line.style.left = `${(100 * Math.min(now, data.seconds)) / data.seconds}%`;
    words.forEach((button, index) => button.classList.toggle("now", started && data.words[index].word === word));
    const columns = state.map ? columnsOfWord(state.map, word) : [];
    band.hidden = !started || word < 0 || !columns.length;
    if (!band.hidden) {
      const from = edgesOf(state.map, columns[0], data.seconds)[0], to = edgesOf(state.map, columns.at(-1), data.seconds)[1];
      band.style.left = `${100 * from}%`;
      band.style.width = `${100 * (to - from)}%`;
    }
    if (state.until !== null && now >= state.until) { state.until = null; audio.pause(); }
  }

  function follow() {
    move();
    if (!audio.paused) requestAnimationFrame(follow);
  }

  if (audio) {
    find(".clock").hidden = false;
    move();
    audio.addEventListener("play", follow);
    for (const event of ["seeking", "seeked", "timeupdate"]) audio.addEventListener(event, move);
    audio.addEventListener("pause", move);
  }
  words.forEach((button, index) => button.addEventListener("click", () => {
    state.word = data.words[index].word; // a word in pieces has a button for each
    if (audio) {
      audio.currentTime = data.words[index].start;
      state.until = data.words[index].end;
      audio.play();
    }
    if (state.map) choose();
  }));

  if (!data.maps.length) { element.querySelectorAll(".map, .targets, .sources").forEach((part) => part.remove()); return; }
  Object.assign(chosen, data.start);
  find(".controls").hidden = find(".bar").hidden = false;
  choose();
  new ResizeObserver(draw).observe(find(".map"));
  DARK.addEventListener("change", draw);
}

// Seconds with tenths, which a browser's own player does not show; minutes where there are any.
function clocked(seconds) {
  const rest = (seconds % 60).toFixed(1);
  return seconds < 60 ? `${rest} s` : `${Math.floor(seconds / 60)}:${rest.padStart(4, "0")}`;
}

// Tables and figures that are wider than the screen say that they can be moved.
const widths = new ResizeObserver((entries) => {
  for (const { target } of entries) target.classList.toggle("more", target.scrollWidth > target.clientWidth + 1);
});

function hintWhereWide(part) { for (const wide of part.querySelectorAll(".wide")) widths.observe(wide); }

hintWhereWide(document);

// A series of pictures, one at a time; without a script the last one is there.
function slideThrough(figure) {
  const [label, slider, output, image] = ["label", "input", "output", "img"].map((name) => figure.querySelector(name));
  const pictures = JSON.parse(figure.querySelector("script").textContent);
  label.hidden = false;
  slider.addEventListener("input", () => { [output.value, image.src] = pictures[slider.value]; });
}
