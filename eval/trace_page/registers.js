
"use strict";
// Registers of a compiled model at the tokens of its trace. A row has the bits of all registers at one
// token: flags as they are; for a number, whether it is present, then its bits.
class Registers {
  constructor(packed, words) {
    this.depth = packed.depth;
    this.words = words;
    this.bytes = bytesOf(packed.rows);
    let offset = 0;
    this.all = packed.registers.map((register) => {
      offset += register.width;
      return { ...register, offset: offset - register.width };
    });
    this.named = Object.fromEntries(this.all.map((register) => [register.name, register]));
    this.rowBytes = Math.ceil(offset / 8);
    let row = 0;
    this.passes = packed.passes.map((pass) => {
      row += pass.rows;
      return { ...pass, firstRow: row - pass.rows };
    });
    const last = this.passes.at(-1);
    this.numTokens = last ? last.start + last.rows : 0;
  }

  // Pass and position of a token. A summary belongs to the segment that it ends, except for its last
  // token, which belongs to the next segment. Null if there are no registers.
  placeOf(token) {
    let pass = this.passes.findLast((one, i) => i === 0 || one.start + one.prompt - 1 <= token);
    return pass && token - pass.start < pass.rows ? { pass, position: token - pass.start } : null;
  }

  bit(place, index) {
    const byte = this.bytes[(place.pass.firstRow + place.position) * this.rowBytes + (index >> 3)];
    return (byte >> (index & 7)) & 1;
  }

  flag(place, name) { return this.bit(place, this.named[name].offset) === 1; }

  flags(place, register) {
    return Array.from({ length: register.width }, (_, i) => this.bit(place, register.offset + i));
  }

  // The number in a register, or -1.
  number(place, register) {
    const [isNumber, ...bits] = this.flags(place, register);
    return isNumber ? bits.reduce((sum, bit, i) => sum + (bit << i), 0) : -1;
  }

  // Digits of each cell.
  candidates(place, side) {
    const flags = this.flags(place, this.named.candidates);
    return Array.from({ length: flags.length / side }, (_, cell) =>
      Array.from({ length: side }, (_, i) => i + 1).filter((digit) => flags[cell * side + digit - 1]));
  }

  // Number of candidates of each cell; the flags are at most 0, 1, ..
  counts(place, side) {
    const flags = this.flags(place, this.named.counts);
    return Array.from({ length: flags.length / side }, (_, cell) =>
      side - flags.slice(cell * side, (cell + 1) * side).reduce((sum, flag) => sum + flag, 0));
  }

  // Cell of the next token if it is a coordinate, else -1.
  nextCell(place, numCells) {
    const cell = this.number(place, this.named.next) - NUM_SPECIALS;
    return cell < numCells ? Math.max(cell, -1) : -1;
  }

  // Tokens on the chain of parents, without the first one; the token itself comes last.
  chain(place) {
    const tokens = [];
    for (let position = place.position; position > 0;) {
      tokens.push(place.pass.start + position);
      const parent = this.number({ pass: place.pass, position }, this.named.parent);
      if (parent < 0 || parent >= position) break;
      position = parent;
    }
    return tokens.reverse();
  }

  // Lines of that chain on the decision stack, without givens and the final block.
  stack(place, search) {
    const { start, prompt } = place.pass;
    return this.chain(place).map((token) => search.lineAt(token)).filter((line, i, lines) =>
      line !== lines[i - 1] && search.isCoordinate(search.ids[search.starts[line]]) &&
      !search.givens[search.cellOf(line)] &&
      (search.blocks[line] === TRACE || search.starts[line] < start + prompt));
  }

  // Short description of the value of a register; empty if there is none.
  text(place, register, side) {
    switch (register.kind) {
      case "flag": return this.bit(place, register.offset) ? "on" : "";
      case "digits": return this.flags(place, register).flatMap((flag, i) => (flag ? [i + 1] : [])).join(" ");
      case "pairs": return this.pairsText(this.flags(place, register));
      case "counts": return `fewest ${Math.min(...this.counts(place, side))}`;
    }
    const number = this.number(place, register);
    if (number < 0) return "";
    if (register.kind === "digit") return number === 0 ? "" : number > side ? "<none>" : String(number);
    if (register.kind === "token") return number === 0 && register.name !== "next" ? "" : this.words[number] ?? `#${number}`;
    return number.toLocaleString("en-US");
  }

  pairsText(flags) {
    const pairs = flags.reduce((sum, flag) => sum + flag, 0);
    return pairs ? `${pairs} pair${pairs > 1 ? "s" : ""}` : "";
  }

  // Reason for the next token, by the flags that determine it.
  decision(place, side) {
    const on = (name) => name in this.named && this.flag(place, name);
    const next = this.text(place, this.named.next, side);
    if (on("in summary")) return { next, why: "the summary copies the stack", by: ["in summary", "copied"] };
    if (on("written")) {
      return on("in block")
        ? { next, why: "the output continues", by: ["in block"] }
        : { next, why: "the line continues", by: ["written", on("after dead end") ? "retry digit" : "possible"] };
    }
    if (on("solved")) return { next, why: "the line ends and all cells are assigned", by: ["solved"] };
    if (on("due")) return { next, why: "the line ends and a summary is due", by: ["due"] };
    if (on("dead end")) {
      return on("has alternative")
        ? { next, why: "dead end: back to the nearest line with a candidate left", by: ["dead end", "alternative line"] }
        : { next, why: "dead end, and no line has a candidate left", by: ["dead end", "has alternative"] };
    }
    const fewest = Math.min(...this.counts(place, side));
    return { next, why: `the line ends: the first cell with fewest candidates, ${fewest}`, by: ["counts"] };
  }
}

// List of registers, last layers first, with the layers at which each one is present.
class RegisterList {
  constructor(registers, side) {
    this.registers = registers;
    this.side = side;
    this.rows = [];
    const panel = document.getElementById("registers");
    const layers = [...new Set(registers.all.map((register) => register.layers[0]))].sort((a, b) => b - a);
    for (const layer of layers) {
      const list = make("dl", "layer");
      panel.append(make("h3", "", layer ? `Layer ${layer}` : "Embedding"), list);
      registers.all.filter((one) => one.layers[0] === layer).forEach((one) => list.append(this.#row(one)));
    }
  }

  #row(register) {
    const [first, last] = register.layers, numLayers = this.registers.depth + 1;
    const row = make("div", "register"), name = make("dt", "", register.name);
    const value = make("dd", "value"), life = make("dd", "life");
    const bar = make("span", "bar"), inside = make("span");
    inside.style.left = `${(100 * first) / numLayers}%`;
    inside.style.width = `${(100 * (last - first + 1)) / numLayers}%`;
    bar.append(inside);
    bar.setAttribute("aria-hidden", "true");
    life.append(bar, make("span", "layers", first === last ? String(first) : `${first}\u2013${last}`));
    life.setAttribute("aria-label", `layers ${first} to ${last}`);
    row.append(name, value, life, make("dd", "meaning", register.meaning));
    this.rows.push({ register, row, value });
    return row;
  }

  // Show the registers at a token, or the reason why there are none.
  draw(place, reason) {
    const decision = document.getElementById("decision");
    const found = place && this.registers.decision(place, this.side);
    if (found) {
      const next = make("strong", "next-token", found.next);
      const by = found.by.map((name) => `${name}, layer ${this.registers.named[name].layers[0]}`).join("; ");
      decision.replaceChildren("Next ", next, ` \u2013 ${found.why} `, make("span", "quiet", `(${by})`));
    } else decision.replaceChildren(make("span", "quiet", reason));
    for (const { register, row, value } of this.rows) {
      const text = place ? this.registers.text(place, register, this.side) : "";
      value.textContent = text || "\u00b7";
      row.classList.toggle("empty", !text);
      row.classList.toggle("decides", Boolean(found) && found.by.includes(register.name));
    }
  }
}
