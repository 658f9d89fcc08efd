// The clips of a run: a table to sort, each clip opens.

import { get, post } from "./api.js";
import { make } from "./clip.js";

export async function setUpListing(opened, failed) {
  const table = await get("api/clips");
  document.querySelector("#run-name").textContent = `Clips of ${table.name}`;
  document.querySelector("#run-note").textContent = [`${table.rows.length} clips`, table.note].filter(Boolean).join(". ");
  const head = make("tr", {}, ...table.columns.map((name, column) => make(
    "th", { scope: "col", className: table.numeric[column] ? "" : "text" }, make("button", { type: "button", text: name }),
  )));
  const rows = table.rows.map((cells) => make("tr", {}, ...cells.map(([numeric, text, value], column) => cellOf(table, cells, { numeric, text, value, column }, opened, failed))));
  const element = make("table", { className: "sortable" }, make("thead", {}, head), make("tbody", {}, ...rows));
  document.querySelector("#run-table").replaceChildren(element);
  sortable(element);
}

function cellOf(table, cells, { numeric, text, value, column }, opened, failed) {
  const cell = make("td", { className: numeric ? "" : `text${text.length > 40 ? " long" : ""}` });
  if (numeric) cell.dataset.value = value;
  if (table.columns[column] !== "clip") { cell.textContent = text; return cell; }
  const open = async () => {
    try {
      opened(await post("api/clips", { name: text }));
      document.querySelector("#clip").scrollIntoView({ block: "start" });
    } catch (error) { failed(error); }
  };
  cell.append(make("button", { type: "button", className: "link", text, onclick: open }));
  return cell;
}
