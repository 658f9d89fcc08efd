// Two things: tables that sort, and clips whose player moves over the map. No network, no library.

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.querySelectorAll("th")];
  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const keyed = [...table.tBodies[0].rows].map((row) => [keyOf(row.cells[column]), row]);
    keyed.sort(([a], [b]) => compared(a, b, down ? -1 : 1));
    table.tBodies[0].append(...keyed.map(([, row]) => row));
  }));
}

function keyOf(cell) {
  if (!("value" in cell.dataset)) return cell.textContent;
  return cell.dataset.value === "" ? null : Number(cell.dataset.value);
}

function compared(a, b, sign) {
  if (a === null || b === null) return (a === null) - (b === null); // what has no value comes last either way
  return sign * (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }));
}

for (const element of document.querySelectorAll(".clip")) showClip(element);

function showClip(element) {
  const data = JSON.parse(element.querySelector('script[type="application/json"]').textContent);
  const cues = [data.cue].flat(); // one word, or several that are one cue
  const find = (selector) => element.querySelector(selector);
  const audio = find("audio"), words = [...element.querySelectorAll(".words button")];
  const state = { map: null, rows: [], until: null };

  const chosen = {};
  for (const name of ["model", "stack", "measure"]) {
    find(`select.${name}`).addEventListener("change", (event) => { chosen[name] = event.target.value; choose(); });
  }
  const slider = find(".layer");
  slider.addEventListener("input", draw);

  // Keep what is chosen where the others have it; else take the first there is.
  function choose() {
    let left = data.maps;
    for (const name of ["model", "stack", "measure"]) {
      const values = [...new Set(left.map((map) => map[name]))];
      if (!values.includes(chosen[name])) chosen[name] = values[0];
      const select = find(`select.${name}`);
      select.replaceChildren(...values.map((value) => new Option(value, value, false, value === chosen[name])));
      left = left.filter((map) => map[name] === chosen[name]);
    }
    state.map = left[0];
    const map = state.map;
    map.values ??= decoded(map);
    const layer = state.layer ?? data.start.layer;
    slider.max = map.layers.length - 1;
    slider.value = Math.max(0, map.layers.findLastIndex((one) => one <= layer));
    const decides = state.word === undefined && map.deciding !== null; // nothing clicked yet
    const word = state.word === undefined ? data.target : state.word;
    state.rows = decides ? [map.deciding] : map.targets.flatMap((target, row) => (target.word !== null && target.word === word ? [row] : []));
    label();
    draw();
  }

  function label() {
    const { targets, sources } = state.map;
    find(".targets").replaceChildren(...targets.map((target, row) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = targets.length > 60 ? "" : target.label;
      button.title = `row of ${target.label}`;
      button.className = roleOf(target.word);
      button.tabIndex = targets.length > 60 ? -1 : 0;
      button.addEventListener("click", () => { state.rows = [row]; state.word = target.word; draw(); });
      return button;
    }));
    const named = timed() || sources.length > 60 ? [] : sources.map((source, column) => {
      const span = document.createElement("span");
      const [from, to] = edges(column);
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

  function timed() { return data.seconds > 0 && state.map.sources.every((source) => source.onset !== null); }

  // Where a source's column is, as parts of the width.
  function edges(column) {
    const { sources } = state.map;
    if (!timed()) return [column / sources.length, (column + 1) / sources.length];
    return [sources[column].onset, sources[column].offset].map((time) => Math.min(time / data.seconds, 1));
  }

  function draw() {
    const map = state.map, layer = Number(slider.value), canvas = find(".map canvas");
    state.layer = map.layers[layer];
    find("output").textContent = `${map.layers[layer]}`;
    const height = Math.min(Math.max(map.targets.length * 17, 60), 420), scale = window.devicePixelRatio || 1;
    canvas.style.height = `${height}px`;
    canvas.width = Math.max(1, Math.round(canvas.clientWidth * scale));
    canvas.height = Math.round(height * scale);
    const pen = canvas.getContext("2d"), tall = canvas.height / map.targets.length;
    for (let column = 0; column < map.sources.length; column++) {
      const [from, to] = edges(column).map((part) => Math.round(part * canvas.width));
      for (let row = 0; row < map.targets.length; row++) {
        pen.fillStyle = colorOf(share(layer, row, column) / map.top);
        const top = Math.round(row * tall);
        pen.fillRect(from, top, Math.max(to - from, 1), Math.round((row + 1) * tall) - top);
      }
    }
    pen.lineWidth = 2 * scale;
    pen.strokeStyle = "#0b8457";
    for (const row of state.rows) pen.strokeRect(scale, row * tall + scale, canvas.width - 2 * scale, tall - 2 * scale);
    [...find(".targets").children].forEach((button, row) => button.setAttribute("aria-pressed", state.rows.includes(row)));
    find(".bar .top").textContent = `${map.top.toFixed(0)} %`;
    tell(layer);
    move();
  }

  function share(layer, row, column) {
    const { targets, sources, values } = state.map;
    const value = values[(layer * targets.length + row) * sources.length + column];
    return value === 65535 ? NaN : (100 * value) / 65534;
  }

  // The chosen row in words: what gives to it, most first.
  function tell(layer) {
    const { targets, sources, measure, stack } = state.map, rows = state.rows;
    if (!rows.length) {
      find(".row").textContent = "Click a word to hear it and to see its row.";
      return;
    }
    const mean = (column) => rows.reduce((sum, row) => sum + share(layer, row, column), 0) / rows.length;
    const shares = sources.map((source, column) => [mean(column), source.label]);
    shares.sort((a, b) => b[0] - a[0]);
    const decides = rows.length === 1 && rows[0] === state.map.deciding ? " (decides the spelling)" : "";
    const name = rows.map((row) => targets[row].label).join(" ") + decides;
    const listed = shares.slice(0, 12).map(([part, from]) => `${from} ${Number.isNaN(part) ? "no value" : part.toFixed(1) + " %"}`);
    const more = shares.length > 12 ? `, and ${shares.length - 12} more` : "";
    find(".row").textContent = `${name} receives in layer ${state.layer} (${stack}, ${measure}) from: ${listed.join(", ")}${more}`;
  }

  // The position of the player: a line over what has times, a frame around the columns of the word that sounds.
  function move() {
    if (!audio) return;
    const now = audio.currentTime, word = data.words.findIndex((one) => one.start <= now && now < one.end);
    const line = find(".line"), band = find(".band"), started = now > 0 || !audio.paused;
    line.hidden = !started;
    line.style.left = `${(100 * Math.min(now, data.seconds)) / data.seconds}%`;
    words.forEach((button, index) => button.classList.toggle("now", started && index === word));
    const columns = state.map ? state.map.sources.flatMap((source, column) => (source.word === word ? [column] : [])) : [];
    band.hidden = !started || word < 0 || !columns.length;
    if (!band.hidden) {
      const from = edges(columns[0])[0], to = edges(columns.at(-1))[1];
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
    audio.addEventListener("play", follow);
    audio.addEventListener("seeked", move);
    audio.addEventListener("pause", move);
  }
  words.forEach((button, index) => button.addEventListener("click", () => {
    state.word = index;
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
  const pen = find(".bar canvas").getContext("2d");
  for (let x = 0; x < 256; x++) { pen.fillStyle = colorOf(x / 255); pen.fillRect(x, 0, 1, 1); }
  choose();
  new ResizeObserver(draw).observe(find(".map"));
}

function decoded(map) {
  const bytes = Uint8Array.from(atob(map.cells), (letter) => letter.charCodeAt(0));
  return new Uint16Array(bytes.buffer);
}

function colorOf(part) {
  if (Number.isNaN(part)) return "#c7c7c7"; // no value
  const place = 6 * Math.round(255 * Math.min(Math.max(part, 0), 1));
  return `#${COLORS.slice(place, place + 6)}`;
}
