// A click on the head of a column sorts its table, a second click reverses the order, and a third restores it.
"use strict";
const NUMBER = /^<?[-+−]?(\d[\d,]*(\.\d+)?|\.\d+)(e[-+]?\d+)?(?![\w.])/i;

function number(text) {
  const found = NUMBER.exec(text);
  return found ? Number(found[0].replaceAll(/[<,]/g, "").replace("−", "-")) : NaN;
}

function sortable(table) {
  const body = table.tBodies[0], original = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  const text = (row, column) => row.cells[column].textContent.trim();
  // If a name stands for several rows, they must stay together, so this table cannot be sorted.
  if (original.length < 2 || original.some((row) => text(row, 0) === "")) return;

  heads.forEach((head, column) => {
    const filled = original.map((row) => text(row, column)).filter((entry) => entry !== "");
    const numeric = filled.filter((entry) => !isNaN(number(entry))).length * 2 > filled.length;
    const key = (row) => (numeric ? number(text(row, column)) : text(row, column));
    const last = (value) => value === "" || Number.isNaN(value);
    const turns = numeric ? ["descending", "ascending"] : ["ascending", "descending"];

    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    if (button.textContent === "") button.setAttribute("aria-label", "row");
    head.append(button);
    button.addEventListener("click", () => {
      const turn = turns[turns.indexOf(head.getAttribute("aria-sort")) + 1];
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      if (turn === undefined) return body.append(...original);
      head.setAttribute("aria-sort", turn);
      const sign = turn === "ascending" ? 1 : -1;
      const compare = (a, b) => {
        if (last(a) || last(b)) return last(a) - last(b); // missing values come last
        return sign * (numeric ? a - b : a.localeCompare(b, "en", { numeric: true }));
      };
      body.append(...[...original].sort((a, b) => compare(key(a), key(b))));
    });
  });
}

document.querySelectorAll("table").forEach(sortable);
