"use strict";
// Sorting and filtering of the tables that are there without it, too. No name of the report is ever made markup here.

const order = new Intl.Collator("en", { numeric: true });

function keyOf(row, column, number) {
  const cell = row.cells[column];
  const text = cell.dataset.v ?? cell.textContent.trim();
  return number || cell.dataset.v !== undefined ? Number.parseFloat(text) || 0 : text;
}

function sort(table, column, descending) {
  const heads = [...table.tHead.rows[0].cells];
  const number = heads[column].classList.contains("number");
  const sign = descending ? -1 : 1;
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [keyOf(row, column, number), row]);
  const numbers = rows.every(([key]) => typeof key === "number");
  rows.sort(([a], [b]) => sign * (numbers ? a - b : order.compare(a, b)));
  body.replaceChildren(...rows.map(([, row]) => row));
  heads.forEach((head, place) => {
    if (place === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
}

for (const table of document.querySelectorAll(".scroll > table")) {
  if (table.tBodies[0].rows.length < 2) continue;
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    if (!head.textContent) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      sort(table, column, before ? before === "ascending" : head.classList.contains("number"));
    });
    head.append(button);
  });
}

for (const form of document.querySelectorAll("form.filter")) {
  const table = document.getElementById(form.dataset.table);
  const [search, ...choices] = form.querySelectorAll("input, select");
  const status = form.querySelector("output");
  let texts = null;
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    texts ??= new Map([...table.tBodies[0].rows].map((row) => [row, row.textContent.toLowerCase()]));
    let seen = 0;
    for (const [row, text] of texts) {
      const fits = words.every((word) => text.includes(word))
        && choices.every((choice) => !choice.value || row.cells[choice.dataset.column].textContent === choice.value);
      row.hidden = !fits;
      seen += fits;
    }
    status.value = words.length || choices.some((choice) => choice.value) ? `${seen} of ${texts.size} are shown` : "";
  };
  form.hidden = false;
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
}

// Who follows a link to a namespace's page reads on there, also with a keyboard or a screen reader.
addEventListener("hashchange", () => {
  const place = location.hash ? document.getElementById(location.hash.slice(1)) : null;
  if (place?.matches("section.namespace")) {
    place.querySelector("h2").focus();
    scrollTo(0, 0);
  }
});
