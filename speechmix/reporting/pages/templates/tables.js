// Tables that sort by any column, up and down; the report and the app have them.

for (const table of document.querySelectorAll("table.sortable")) sortable(table);

function sortable(table) {
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
