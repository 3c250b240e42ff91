// Sorting by heading. Headings are buttons, so a keyboard does what a click does.

function sortable(table) {
  const heads = [...table.querySelectorAll("thead th")];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const numeric = head.classList.contains("num");
      // Numbers from the largest down first: that is where the trouble is.
      const first = numeric ? "descending" : "ascending";
      const second = numeric ? "ascending" : "descending";
      const order = head.getAttribute("aria-sort") === first ? second : first;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order);
      sortRows(table, column, numeric, order === "descending" ? -1 : 1);
    });
  });
}

function sortRows(table, column, numeric, sign) {
  const body = table.tBodies[0];
  const value = (row) => row.cells[column].dataset.v;
  const compare = (a, b) => {
    // What is missing is neither small nor large: it goes last, whichever the order.
    if (a === "" || b === "") return (a === "") - (b === "");
    return sign * (numeric ? Number(a) - Number(b) : a.localeCompare(b, undefined, { numeric: true }));
  };
  const rows = [...body.rows].map((row) => [value(row), row]);
  for (const [, row] of rows) row.classList.remove("same");
  rows.sort(([a], [b]) => compare(a, b));
  body.append(...rows.map(([, row]) => row));
}
