
"use strict";
// Sorts a table by the column whose heading is pressed; pressed again, the other way round.
// Cells without a value stay last in both directions.
(() => {
  const compare = (a, b, isText) => (isText ? a.localeCompare(b, "en", { numeric: true }) : Number(a) - Number(b));

  for (const table of document.querySelectorAll("table.sortable")) {
    const headings = [...table.tHead.rows[0].cells].filter((heading) => heading.querySelector("button"));
    for (const heading of headings) heading.querySelector("button").addEventListener("click", () => {
      const index = heading.cellIndex;
      const isText = heading.classList.contains("text");
      const before = heading.getAttribute("aria-sort");
      // Numbers begin with the greatest, except ranks and p-values.
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
