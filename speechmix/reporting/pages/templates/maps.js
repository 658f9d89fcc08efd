// Maps as numbers: shares of rows, where a column is, how a map is drawn. The report and the app show maps with these.

// The numbers of a map [layer, target, source], read when they are used first.
function valuesOf(map) {
  if (!map.values) {
    const bytes = Uint8Array.from(atob(map.cells), (letter) => letter.charCodeAt(0));
    map.values = new Uint16Array(bytes.buffer);
  }
  return map.values;
}

// What a source contributes to a target, in percent of the row; NaN where there is no value.
function shareOf(map, layer, row, column) {
  const value = valuesOf(map)[(layer * map.targets.length + row) * map.sources.length + column];
  return value === 65535 ? NaN : (100 * value) / 65534;
}

// Mean of some rows: a share for each source.
function meanRow(map, layer, rows) {
  return map.sources.map((_, column) => rows.reduce((sum, row) => sum + shareOf(map, layer, row, column), 0) / rows.length);
}

function rowsOfWord(map, word) {
  return map.targets.flatMap((target, row) => (target.word !== null && target.word === word ? [row] : []));
}

function columnsOfWord(map, word) {
  return map.sources.flatMap((source, column) => (source.word !== null && source.word === word ? [column] : []));
}

// Whether columns are drawn at their times.
function isTimed(map, seconds) { return seconds > 0 && map.sources.every((source) => source.onset !== null); }

// Where a source's column is, as parts of the width.
function edgesOf(map, column, seconds) {
  const { sources } = map;
  if (!isTimed(map, seconds)) return [column / sources.length, (column + 1) / sources.length];
  return [sources[column].onset, sources[column].offset].map((time) => Math.min(time / seconds, 1));
}

// The same of each piece of a word in pieces; [from, to] of the others.
function piecesOf(map, column, seconds) {
  const { times } = map.sources[column];
  if (!times || !isTimed(map, seconds)) return [edgesOf(map, column, seconds)];
  return times.map((piece) => piece.map((time) => Math.min(time / seconds, 1)));
}

// Zero is light on a light page and dark on a dark one, so that the strongest cell stands out; paper is always light.
const DARK = matchMedia("screen and (prefers-color-scheme: dark)");
const NIGHT = COLORS.match(/.{6}/g).reverse().join("");
function pageColors() { return DARK.matches ? NIGHT : COLORS; }

const UNITS = { word: "words", token: "tokens", frame: "frames" }; // kinds of units, as a reader calls them

// Colour of a part of the scale, from 0 to 1; `colors` is the scale, six letters each.
function colorOf(part, colors = COLORS) {
  if (Number.isNaN(part)) return "#c7c7c7"; // no value
  const place = 6 * Math.round(255 * Math.min(Math.max(part, 0), 1));
  return `#${colors.slice(place, place + 6)}`;
}

// Neighbouring places as [first, last]: [2, 3, 4, 7] is [[2, 4], [7, 7]].
function runsOf(places) {
  const runs = [];
  for (const place of places) {
    if (runs.length && runs.at(-1)[1] === place - 1) runs.at(-1)[1] = place;
    else runs.push([place, place]);
  }
  return runs;
}

const TALL = 420, MOST_TALL = 2100, LABEL = 13; // pixels: a map of few rows at most, one of many rows at most, a row with a label

// How tall a row is, in pixels: the same for a row of cells and for its label. `most` is the pitch of a map with few rows.
function pitchOf(map, most = 17) {
  const rows = map.targets.length;
  if (rows * most <= TALL) return Math.max(most, 60 / rows);
  return Math.max(TALL / rows, map.units === "frame" ? 0 : Math.min(LABEL, MOST_TALL / rows));
}

// Rows that have room for their label: all of them, or as many as are not too close to each other; `first` go before others.
function labelledRows(map, pitch, first = []) {
  const step = Math.ceil((LABEL - 1) / pitch);
  const rows = map.targets.map((_, row) => row);
  if (step === 1) return new Set(rows);
  const others = map.units === "frame" ? [] : rows.filter((row) => row % step === 0 && first.every((one) => Math.abs(one - row) >= step));
  return new Set([...first, ...others]);
}

// Put a label of each row beside it; `make(row, text)` makes one.
function placeRowLabels(container, map, make, { most = 17, first = [] } = {}) {
  const pitch = pitchOf(map, most), labelled = labelledRows(map, pitch, first);
  container.style.height = `${pitch * map.targets.length}px`;
  container.replaceChildren(...map.targets.map((target, row) => {
    const label = make(row, labelled.has(row) ? target.label : "");
    label.style.top = `${row * pitch}px`;
    label.style.height = label.style.lineHeight = `${pitch}px`;
    return label;
  }));
}

// One layer of a map on a canvas: one frame around neighbouring rows, and one outline around the cells of some rows and columns;
// returns how tall a row is, in pixels of the canvas.
function drawMap(canvas, map, layer, { rows, seconds, colors = pageColors(), frame = "#0b8457", outlined = null, outline = "#0b8457", pitch = 17 }) {
  const height = pitchOf(map, pitch) * map.targets.length, scale = window.devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = Math.max(1, Math.round(canvas.clientWidth * scale));
  canvas.height = Math.round(height * scale);
  const pen = canvas.getContext("2d"), tall = canvas.height / map.targets.length;
  for (let column = 0; column < map.sources.length; column++) {
    for (const piece of piecesOf(map, column, seconds)) {
      const [from, to] = piece.map((part) => Math.round(part * canvas.width));
      for (let row = 0; row < map.targets.length; row++) {
        pen.fillStyle = colorOf(shareOf(map, layer, row, column) / map.top, colors);
        const top = Math.round(row * tall);
        pen.fillRect(from, top, Math.max(to - from, 1), Math.round((row + 1) * tall) - top);
      }
    }
  }
  pen.lineWidth = 2 * scale;
  const around = (left, right, first, last) =>
    pen.strokeRect(left + scale, first * tall + scale, right - left - 2 * scale, (last + 1 - first) * tall - 2 * scale);
  pen.strokeStyle = frame;
  for (const [first, last] of runsOf(rows)) around(0, canvas.width, first, last);
  if (!outlined) return tall;
  pen.strokeStyle = outline;
  const stretches = outlined.columns.some((column) => map.sources[column].times)
    ? outlined.columns.flatMap((column) => piecesOf(map, column, seconds))
    : runsOf(outlined.columns).map(([left, right]) => [edgesOf(map, left, seconds)[0], edgesOf(map, right, seconds)[1]]);
  for (const [from, to] of stretches) {
    for (const [first, last] of runsOf(outlined.rows)) around(from * canvas.width, to * canvas.width, first, last);
  }
  return tall;
}

// A scale of colours from left to right.
function drawScale(canvas, colors = pageColors()) {
  const pen = canvas.getContext("2d");
  for (let x = 0; x < 256; x++) { pen.fillStyle = colorOf(x / 255, colors); pen.fillRect(x, 0, 1, 1); }
}
