
"use strict";
// Sorts a table by the column whose heading is clicked; a second click reverses the order.
// Cells without a value stay last in both directions.
(() => {
  const compare = (a, b, isText) => (isText ? a.localeCompare(b, "en", { numeric: true }) : Number(a) - Number(b));

  for (const table of document.querySelectorAll("table.sortable")) {
    const headings = [...table.tHead.rows[0].cells].filter((heading) => heading.querySelector("button"));
    for (const heading of headings) heading.querySelector("button").addEventListener("click", () => {
      const index = heading.cellIndex;
      const isText = heading.classList.contains("text");
      const before = heading.getAttribute("aria-sort");
      // Numbers are sorted in descending order first, except for ranks and p-values.
      const isSmallFirst = isText || ["#", "p"].includes(heading.textContent.trim());
      const first = isSmallFirst ? "ascending" : "descending";
      const other = isSmallFirst ? "descending" : "ascending";
      const direction = before === first ? other : first;
      for (const each of headings) each.setAttribute("aria-sort", each === heading ? direction : "none");
      const sign = direction === "ascending" ? 1 : -1;
      const value = (row) => row.cells[index].dataset.value ?? "";
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => {
        const x = value(a), y = value(b);
        if (x === "" || y === "") return (x === "") - (y === "");
        return sign * compare(x, y, isText);
      });
      table.tBodies[0].append(...rows);
    });
  }
})();

// Columns, filters and collapsed engines; hidden cells stay in the page and are printed.
(() => {
  for (const box of document.querySelectorAll(".picker input")) box.addEventListener("change", () => {
    for (const cell of document.querySelectorAll(`[data-column="${box.value}"]`)) cell.hidden = !box.checked;
  });

  const form = document.querySelector("form.filters");
  const update = () => {
    const chosen = new FormData(form);
    const fits = (element, names) => names.every((name) => !chosen.get(name) || element.dataset[name] === chosen.get(name));
    for (const section of document.querySelectorAll("section.puzzles")) {
      section.hidden = !fits(section, ["board", "cohort"]);
      for (const row of section.querySelectorAll(".leaderboard tbody tr")) {
        const isFolded = "folded" in row.dataset && !chosen.get("folded");
        row.hidden = isFolded || !fits(row, ["mode", "precision"]);
      }
    }
  };
  form.addEventListener("change", update);
  form.addEventListener("submit", (event) => event.preventDefault());
})();
