"use strict";
// The error browser: failed puzzles of a model, drawn on demand from the JSON block.
(() => {
  const PAGE = 40;
  const { sections } = JSON.parse(document.getElementById("failures").textContent);

  const element = (name, attributes = {}, text = "") => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== "") made.textContent = text;
    return made;
  };

  // A puzzle as a small board; blanks are empty, boxes have thicker lines.
  const board = (puzzle, side) => {
    const boxRows = Math.floor(Math.sqrt(side)), boxColumns = side / boxRows;
    const table = element("table", { class: "board", "aria-hidden": "true" });
    for (let row = 0; row < side; row++) {
      const line = table.insertRow();
      if (row % boxRows === 0) line.className = "edge";
      for (let column = 0; column < side; column++) {
        const cell = line.insertCell();
        const given = puzzle[row * side + column];
        cell.textContent = given === "." || given === "0" ? "" : given;
        if (column % boxColumns === 0) cell.className = "edge";
      }
    }
    return table;
  };

  // The first token that is not the solver's, a link to it where there is a trace page.
  const wrongToken = ([position, solver, model, margin, trace]) => {
    const line = element("div", { class: "wrong" });
    const where = `token ${(position + 1).toLocaleString("en")}`;
    line.append(trace ? element("a", { href: `${trace}#t=${position + 1}` }, where) : where);
    line.append(": ", element("b", {}, model || "end"), ", solver ", element("b", {}, solver || "end"));
    if (margin !== null) line.append(`, margin ${margin.toPrecision(3)}`);
    return line;
  };

  for (const part of document.querySelectorAll("section.errors")) {
    const { side, puzzles, models } = sections[Number(part.dataset.section)];
    const failuresOf = new Map(models.map(([label, rows]) => [label, new Map(rows.map((row) => [row[0], row]))]));
    const [first, second, reason] = ["first", "second", "reason"].map((name) => part.querySelector(`[name=${name}]`));
    const list = part.querySelector("ol"), more = part.querySelector(".more"), count = part.querySelector(".count");
    let shown = [];

    const draw = () => {
      const start = list.children.length;
      for (const [index, why, tokens, wrong] of shown.slice(start, start + PAGE)) {
        const [puzzle, length] = puzzles[index];
        const item = element("li");
        const text = element("div");
        text.append(element("strong", {}, why.replaceAll("_", " ")));
        text.append(element("span", { class: "quiet" }, ` CoT of ${length.toLocaleString("en")} tokens, ${tokens.toLocaleString("en")} generated`));
        const other = second.value && failuresOf.get(second.value).get(index);
        if (other) text.append(element("span", { class: "quiet" }, `; ${second.value}: ${other[1].replaceAll("_", " ")}`));
        if (wrong) text.append(wrongToken(wrong));
        text.append(element("code", {}, `sudocot trace --evaluation FOLDER ${puzzle} --out trace.html --open`));
        item.append(board(puzzle, side), text);
        list.append(item);
      }
      more.hidden = list.children.length >= shown.length;
    };

    const update = () => {
      const rows = [...failuresOf.get(first.value).values()];
      const reasons = new Map();
      for (const row of rows) reasons.set(row[1], (reasons.get(row[1]) ?? 0) + 1);
      const kept = reasons.has(reason.value) ? reason.value : "";
      const names = [...reasons].map(([name, n]) => new Option(`${name.replaceAll("_", " ")} (${n.toLocaleString("en")})`, name, false, name === kept));
      reason.replaceChildren(new Option("any", "", false, kept === ""), ...names);
      const others = second.value && failuresOf.get(second.value);
      shown = rows.filter(([index, why]) => (!kept || why === kept) && (!others || !others.has(index)));
      const suffix = second.value ? ` that ${second.value} solves` : "";
      count.textContent = `${shown.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} failed puzzles${suffix}, by CoT length`;
      list.replaceChildren();
      draw();
    };

    for (const field of [first, second, reason]) field.addEventListener("change", update);
    more.addEventListener("click", draw);
    update();
  }
})();
