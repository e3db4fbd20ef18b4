
"use strict";
(() => {
  const WINDOW_LINES = 160; // Rendered lines on either side of the current one.
  const PAGE_LINES = 25;
  const data = JSON.parse(document.getElementById("trace-data").textContent);
  const numCells = data.side * data.side;
  const numIds = data.words.length;

  const streams = data.streams.map((stream) => ({ ...stream, ids: decodeIds(stream.ids, numIds) }));
  if (streams.length > 1) {
    const [solver, model] = streams;
    const ids = new solver.ids.constructor(model.shared + model.ids.length);
    ids.set(solver.ids.subarray(0, model.shared));
    ids.set(model.ids, model.shared);
    model.ids = ids;
  }
  const searches = new Map(); // Created when a stream is first shown.
  const searchOf = (index) => {
    if (!searches.has(index)) searches.set(index, new Search(streams[index].ids, numCells, data.givens));
    return searches.get(index);
  };

  // Registers of the model, if the page has them.
  const packed = document.getElementById("register-data");
  const registers = packed && new Registers(JSON.parse(packed.textContent), data.words);
  const registerList = registers && new RegisterList(registers, data.side);
  let marks = "candidates"; // Content of empty cells of the board.

  // Probabilities of the model's generated tokens, if the page has them.
  const promptLength = 2 * data.givens.filter(Boolean).length + 2;
  const probabilities = data.probabilities && {
    token: decodeIds(data.probabilities.token, 256),
    other: decodeIds(data.probabilities.other, numIds),
    otherProbability: decodeIds(data.probabilities.otherProbability, 256),
  };
  const UNSURE = 0.9;
  // Probability of a token of the shown stream, or null.
  const probabilityOf = (token) => {
    const share = current === streams.length - 1 ? probabilities?.token[token - promptLength] : undefined;
    return share === undefined ? null : share / 255;
  };

  let current = streams.length - 1;
  let search = searchOf(current);
  let position = 0;
  let shown = { from: 0, to: 0 }; // Rendered lines.
  let timer = null;
  let remember = null;

  // ---- board -------------------------------------------------------------------------------
  const peers = (() => {
    const place = (cell) => {
      const row = Math.floor(cell / data.side), col = cell % data.side;
      return [row, col, Math.floor(row / data.boxRows) * data.side + Math.floor(col / data.boxCols)];
    };
    const places = Array.from({ length: numCells }, (_, cell) => place(cell));
    return places.map((mine, cell) => places.flatMap((other, i) =>
      (i !== cell && mine.some((unit, k) => unit === other[k]) ? [i] : [])));
  })();

  const cells = (() => {
    const board = $("board");
    board.style.setProperty("--side", data.side);
    return Array.from({ length: numCells }, (_, cell) => {
      const node = make("div", "cell");
      const row = Math.floor(cell / data.side), col = cell % data.side;
      if (row % data.boxRows === 0) node.classList.add("top");
      if (col % data.boxCols === 0) node.classList.add("left");
      board.append(node);
      return node;
    });
  })();

  function drawBoard(state, place) {
    const digits = data.givens.slice();
    const kinds = data.givens.map((digit) => (digit ? "given" : ""));
    const wrong = new Set();
    const isOutput = state.block === OUTPUT;
    for (const line of state.stack) {
      const cell = search.cellOf(line);
      if (data.givens[cell]) continue;
      const options = search.digitsOf(line, state.end);
      if (search.isDeadEnd(line, state.end)) wrong.add(cell);
      digits[cell] = options[0] ?? 0;
      kinds[cell] = options.length > 1 ? "branch" : "forced";
    }
    if (isOutput) {
      for (const line of state.output) {
        const cell = search.cellOf(line), digit = search.digitsOf(line, state.end)[0];
        if (digit === undefined) continue;
        digits[cell] = digit;
        kinds[cell] = data.givens[cell] ? "given" : "written";
        if (data.solution && data.solution[cell] !== digit) wrong.add(cell);
      }
    } else {
      digits.forEach((digit, cell) => {
        if (digit && kinds[cell] !== "given" && peers[cell].some((other) => digits[other] === digit)) wrong.add(cell);
      });
    }
    const active = search.isCoordinate(search.ids[search.starts[state.line]]) ? search.cellOf(state.line) : -1;
    cells.forEach((node, cell) => {
      node.className = node.className.replace(/ (given|forced|branch|written|now|next|wrong|peer)/g, "");
      node.replaceChildren();
      if (kinds[cell]) node.classList.add(kinds[cell]);
      if (wrong.has(cell)) node.classList.add("wrong");
      if (cell === active) node.classList.add("now");
      else if (active >= 0 && !isOutput && peers[active].includes(cell)) node.classList.add("peer");
      const isOpen = cell === active && state.block === TRACE && !data.givens[cell];
      if (isOpen && (digits[cell] || !place)) drawCandidates(node, search.digitsOf(state.line, state.end));
      else if (digits[cell]) node.append(String(digits[cell]));
    });
    if (place) drawMarks(place, digits);
    else if (marks === "candidates" && !isOutput) drawPencilMarks(digits, active);
    $("board").setAttribute("aria-label", `Board with ${digits.filter(Boolean).length} of ${numCells} cells filled`);
  }

  function drawCandidates(node, digits, tried = digits[0]) {
    const grid = make("div", "candidates");
    grid.style.setProperty("--cols", data.boxCols);
    for (let digit = 1; digit <= data.side; digit++) {
      const isThere = digits.includes(digit);
      grid.append(make("span", digit === tried ? "tried" : "", isThere ? String(digit) : ""));
    }
    node.append(grid);
  }

  // Candidates of each empty cell; null for the others.
  function candidatesOf(digits) {
    const all = Array.from({ length: data.side }, (_, k) => k + 1);
    return digits.map((digit, cell) => {
      if (digit) return null;
      const taken = new Set(peers[cell].map((other) => digits[other]));
      return all.filter((each) => !taken.has(each));
    });
  }

  function drawPencilMarks(digits, active) {
    candidatesOf(digits).forEach((options, cell) => {
      if (options && cell !== active) drawCandidates(cells[cell], options, null);
    });
  }

  // Sentence that explains the solver's choice of the cell of a trace line, or an empty string.
  function whyThisCell(state) {
    const first = search.ids[search.starts[state.line]];
    if (state.block !== TRACE || !search.isCoordinate(first)) return "";
    const active = search.cellOf(state.line);
    const digits = data.givens.slice();
    for (const line of state.stack) {
      const cell = search.cellOf(line);
      if (cell !== active) digits[cell] = search.digitsOf(line, state.end)[0] ?? 0;
    }
    const options = candidatesOf(digits);
    if (options[active] === null) return "";
    const left = search.digitsOf(state.line, search.endOf(state.line)).length;
    const all = options[active].length;
    if (left < all) {
      const tried = all - left;
      return `The search is back at this cell: ${tried} of its ${all} candidates ${tried === 1 ? "has" : "have"} failed.`;
    }
    const fewest = Math.min(...options.filter(Boolean).map((each) => each.length));
    if (all > fewest) return `Another cell has fewer candidates (${fewest}); the solver would name that one.`;
    const ties = options.flatMap((each, cell) => (each && each.length === fewest ? [cell] : []));
    const number = fewest === 1 ? "1 candidate" : `${fewest} candidates`;
    if (ties[0] !== active) return `It has fewest candidates (${fewest}), but it is not the first such cell.`;
    return ties.length === 1
      ? `It alone has ${number}, fewer than all others.`
      : `It has ${number}, the fewest; of ${ties.length} such cells it is the first in row-major order.`;
  }

  // Candidates or their counts in empty cells, and the next cell, according to the registers.
  function drawMarks(place, digits) {
    const next = registers.nextCell(place, numCells);
    if (next >= 0) cells[next].classList.add("next");
    if (marks === "none") return;
    const options = registers.candidates(place, data.side), counts = registers.counts(place, data.side);
    const fewest = Math.min(...counts);
    cells.forEach((node, cell) => {
      if (digits[cell]) return;
      if (marks === "candidates") drawCandidates(node, options[cell], null);
      else node.append(make("span", counts[cell] === fewest ? "count fewest" : "count", String(counts[cell])));
    });
  }

  function chooseMarks(name) {
    marks = name;
    document.querySelectorAll("[data-marks]").forEach((button) => {
      button.setAttribute("aria-pressed", String(button.dataset.marks === name));
    });
    show();
  }

  // ---- description of the current token ----------------------------------------------------------
  function describe(state) {
    const id = search.ids[position], first = search.ids[search.starts[state.line]];
    if (!search.isCoordinate(first)) {
      return {
        [INPUT]: "The input block begins: the givens.",
        [END_INPUT]: "End of the input; the search begins.",
        [SUMMARY]: "A summary begins: givens and decision stack. It ends this segment.",
        [END_SUMMARY]: "End of the summary, which is the only context of the next segment.",
        [OUTPUT]: "The output block begins: the whole grid.",
        [END_OUTPUT]: "End of the output.",
      }[first] ?? `Token ${data.words[id]}`;
    }
    const place = data.words[first];
    const digits = search.digitsOf(state.line, state.end);
    if (state.block === INPUT) return `Given ${digits[0] ?? ""} at ${place}`;
    if (state.block === OUTPUT) return `Output ${digits[0] ?? ""} at ${place}`;
    if (state.block === SUMMARY) return `Summary: ${place} ${digits.join(" ")}`;
    const back = state.dropped ? `Back to ${place}, ${count(state.dropped)} line${state.dropped > 1 ? "s" : ""} dropped` : "";
    if (search.isDeadEnd(state.line, state.end)) return `${place} has no candidate left: dead end`;
    if (digits.length === 0) return back || `Next cell: ${place}`;
    const choice = digits.length === 1 ? `only ${digits[0]}` : `${digits.join(", ")}; ${digits[0]} is tried`;
    return back ? `${back}; left: ${choice}` : `${place} can be ${choice}`;
  }

  // ---- decision stack -------------------------------------------------------------------------
  function drawStack(state) {
    const list = $("stack");
    const nodes = state.stack.map((line, level) => {
      const digits = search.digitsOf(line, state.end);
      const node = make("li", digits.length > 1 ? "branch" : "");
      if (level === state.stack.length - 1) node.classList.add("top-line");
      node.append(make("span", "place", data.words[search.ids[search.starts[line]]]));
      if (search.isDeadEnd(line, state.end)) node.append(make("span", "dead", "<none>"));
      digits.forEach((digit, i) => node.append(make("span", i ? "later" : "tried", String(digit))));
      return node;
    });
    list.replaceChildren(...nodes);
    list.scrollTop = list.scrollHeight;
    const branches = state.stack.filter((line) => search.digitsOf(line, state.end).length > 1).length;
    $("stack-count").textContent = `${count(state.stack.length)} lines, ${count(branches)} open`;
  }

  // ---- tokens -----------------------------------------------------------------------------------
  function drawTokens(state) {
    const panel = $("tokens");
    const isInside = panel.dataset.stream === String(current) &&
      (state.line >= shown.from + WINDOW_LINES / 4 || shown.from === 0) &&
      (state.line < shown.to - WINDOW_LINES / 4 || shown.to === search.numLines);
    if (!isInside || state.line < shown.from || state.line >= shown.to) fillTokens(panel, state.line);
    panel.querySelectorAll(".current").forEach((node) => node.classList.remove("current"));
    const node = panel.querySelector(`[data-token="${position}"]`);
    if (node) {
      node.classList.add("current");
      node.parentElement.classList.add("current");
      const box = node.getBoundingClientRect(), frame = panel.getBoundingClientRect();
      panel.scrollTop += box.top - frame.top - panel.clientHeight * 0.45;
    }
  }

  function fillTokens(panel, middle) {
    shown = { from: Math.max(0, middle - WINDOW_LINES), to: Math.min(search.numLines, middle + WINDOW_LINES + 1) };
    panel.dataset.stream = String(current);
    const nodes = [];
    const more = (line, text) => {
      const button = make("button", "more", text);
      button.type = "button";
      button.dataset.line = line;
      nodes.push(button);
    };
    if (shown.from > 0) more(shown.from - 1, `${count(search.starts[shown.from])} tokens before`);
    let block = null;
    for (let line = shown.from; line < shown.to; line++) {
      const isTrace = search.blocks[line] === TRACE;
      const first = search.ids[search.starts[line]];
      const begins = first === INPUT || first === SUMMARY || first === OUTPUT;
      if (isTrace || begins || block === null) {
        block = make("div", isTrace ? "line" : "block");
        if (isTrace) block.style.setProperty("--indent", Math.min(search.indents[line], 16));
        if (search.blocks[line] === SUMMARY) block.classList.add("summary");
        nodes.push(block);
      }
      for (let k = search.starts[line]; k < search.endOf(line); k++) block.append(token(k), " ");
      if (isTrace || first === END_INPUT || first === END_SUMMARY || first === END_OUTPUT) block = null;
    }
    if (shown.to < search.numLines) more(shown.to, `${count(search.ids.length - search.starts[shown.to])} tokens after`);
    panel.replaceChildren(...nodes);
  }

  function token(k) {
    const id = search.ids[k];
    const node = make("span", "token", data.words[id] ?? `#${id}`);
    if (search.isCoordinate(id)) node.classList.add("place");
    else if (id === NONE) node.classList.add("dead");
    else if (id < NUM_SPECIALS) node.classList.add("mark");
    node.dataset.token = k;
    if (k === data.difference) node.classList.add("deviation");
    const share = probabilityOf(k);
    if (share !== null && share < 0.99) {
      node.classList.add("doubt");
      node.style.setProperty("--doubt", `${Math.round(60 * (1 - share))}%`);
    }
    return node;
  }

  // ---- model against solver ----------------------------------------------------------------------
  function drawContinuations() {
    const list = $("continuations");
    if (!list) return;
    const at = data.difference;
    streams.forEach((stream, index) => {
      list.append(make("dt", "", index ? "Model" : "Solver"));
      const row = make("dd");
      const from = Math.max(0, at - 6), to = Math.min(stream.ids.length, at + 14);
      if (at >= data.streams[index].total) row.append(make("span", "quiet", "(nothing more: it stopped here)"));
      else if (at >= stream.ids.length) row.append(make("span", "quiet", "(beyond the tokens in this page)"));
      else {
        for (let k = from; k < to; k++) {
          const word = data.words[stream.ids[k]] ?? `#${stream.ids[k]}`;
          row.append(make("span", k < at ? "same" : k === at ? "deviation" : "", word), " ");
        }
        if (to < data.streams[index].total) row.append("\u2026");
      }
      list.append(row);
    });
  }

  // ---- overview: stack depth over the tokens, with segment borders and the deviation ----------------
  function drawOverview() {
    const canvas = $("overview"), ratio = devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const last = Math.max(search.ids.length - 1, 1);
    const depths = sampleDepths(width);
    const top = Math.max(...depths, 1);
    context.fillStyle = color("--accent");
    context.globalAlpha = 0.45;
    depths.forEach((depth, x) => {
      const bar = (depth / top) * (height - 6);
      context.fillRect(x, height - bar, 1, bar);
    });
    context.globalAlpha = 1;
    context.fillStyle = color("--warn");
    const spacing = search.summaries.length / width;
    if (spacing < 0.34) {
      for (const at of search.summaries) context.fillRect(Math.round((at / last) * (width - 1)), 0, 1, height);
    }
    if (data.difference !== null && data.difference < search.ids.length) {
      context.fillStyle = color("--bad");
      const x = Math.round((data.difference / last) * (width - 1));
      context.fillRect(x - 1, 0, 3, height);
    }
  }

  // Least probability in each column of pixels, of the model's tokens.
  function drawHeat() {
    const canvas = $("heat");
    if (!canvas) return;
    canvas.hidden = current !== streams.length - 1;
    const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const style = getComputedStyle(document.documentElement);
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.fillStyle = style.getPropertyValue("--sunken").trim();
    context.fillRect(0, 0, width, height);
    context.fillStyle = style.getPropertyValue("--bad").trim();
    const last = Math.max(search.ids.length - 1, 1), doubts = new Float64Array(width);
    for (let token = promptLength; token < search.ids.length; token++) {
      const share = probabilityOf(token);
      if (share === null) continue;
      const from = Math.floor((token / last) * (width - 1)), to = Math.floor(((token + 1) / last) * (width - 1));
      for (let x = from; x <= Math.max(from, Math.min(to, width) - 1); x++) doubts[x] = Math.max(doubts[x], 1 - share);
    }
    doubts.forEach((doubt, x) => {
      context.globalAlpha = Math.sqrt(doubt);
      if (doubt) context.fillRect(x, 0, 1, height);
    });
  }

  // Sentence on the probability of the current token.
  function describeProbability() {
    const share = probabilityOf(position);
    if (share === null) return "The model did not generate this token.";
    const at = position - promptLength, text = (p) => (p > 0.995 ? "over 0.99" : p < 0.005 ? "under 0.01" : p.toFixed(2));
    return `Probability of the token: ${text(share)}; next likely: ${data.words[probabilities.other[at]]} ` +
      `(${text(probabilities.otherProbability[at] / 255)}).`;
  }

  function seekUnsure(isBack) {
    for (let token = position + (isBack ? -1 : 1); token >= 0 && token < search.ids.length; token += isBack ? -1 : 1) {
      const share = probabilityOf(token);
      if (share !== null && share < UNSURE) return seek(token);
    }
  }

  // Maximum depth in each column of pixels.
  function sampleDepths(width) {
    const depths = new Float64Array(width);
    const last = Math.max(search.ids.length - 1, 1);
    for (let line = 0; line < search.numLines; line++) {
      const from = Math.floor((search.starts[line] / last) * (width - 1));
      const to = Math.min(width - 1, Math.floor((search.endOf(line) / last) * (width - 1)));
      for (let x = from; x <= to; x++) depths[x] = Math.max(depths[x], search.depths[line]);
    }
    return depths;
  }

  function drawCursor() {
    $("cursor").style.left = `${(100 * position) / Math.max(search.ids.length - 1, 1)}%`;
  }

  // ---- moving ----------------------------------------------------------------------------------------
  function show() {
    const state = search.stateAt(position);
    const place = placeAt(position);
    if (place) state.stack = registers.stack(place, search);
    drawBoard(state, place);
    drawStack(state);
    drawTokens(state);
    drawCursor();
    if (registers) registerList.draw(place, whyNoRegisters());
    $("caption").textContent = describe(state);
    $("why").textContent = whyThisCell(state);
    if (probabilities) $("probability").textContent = describeProbability();
    $("marks-note").hidden = Boolean(place) || marks !== "candidates";
    rememberPosition();
    const segments = search.summaries.length + 1;
    const part = segments > 1 ? `, segment ${count(segmentOf(state))} of ${count(segments)}` : "";
    $("token-count").textContent = `${count(position + 1)} of ${count(search.ids.length)}${part}`;
    const slider = $("slider");
    slider.value = position;
    slider.setAttribute("aria-valuetext", `token ${position + 1} of ${search.ids.length}: ${data.words[search.ids[position]] ?? ""}`);
  }

  // Location of the registers at a token, or null. Tokens of the solver have the registers of the model
  // up to the first deviation.
  function placeAt(token) {
    if (!registers) return null;
    const isModels = current === streams.length - 1 || data.difference === null || token < data.difference;
    return isModels ? registers.placeOf(token) : null;
  }

  function whyNoRegisters() {
    if (position === data.streams[current].total - 1) return "The last token is not an input of the model.";
    return position < registers.numTokens
      ? "The model did not generate this token."
      : `This page contains registers at the first ${count(registers.numTokens)} tokens.`;
  }

  // A summary belongs to the segment that it ends.
  function segmentOf(state) {
    const before = lowerBound(search.summaries, position + 1);
    return search.blocks[state.line] === SUMMARY ? before : before + 1;
  }

  function lowerBound(sorted, value) {
    let low = 0, high = sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < value) low = middle + 1; else high = middle;
    }
    return low;
  }

  function seek(token) {
    position = Math.min(Math.max(Math.round(token), 0), search.ids.length - 1);
    show();
  }

  const seekLine = (line) => {
    const inside = Math.min(Math.max(line, 0), search.numLines - 1);
    seek(search.endOf(inside) - 1);
  };
  // Events are shown with their complete line.
  const seekEvent = (starts, isBack) => {
    const line = search.starts[search.lineAt(position)];
    const index = isBack ? lowerBound(starts, line) - 1 : lowerBound(starts, line + 1);
    if (index >= 0 && index < starts.length) seekLine(search.lineAt(starts[index]));
  };

  function choose(index) {
    current = index;
    search = searchOf(index);
    const stream = streams[index];
    $("slider").max = search.ids.length - 1;
    document.querySelectorAll("[data-stream]").forEach((button) => {
      if (button.tagName === "BUTTON") button.setAttribute("aria-pressed", String(Number(button.dataset.stream) === index));
    });
    document.querySelector('[data-action="summary"]').disabled = search.summaries.length === 0;
    document.querySelector('[data-action="branch"]').disabled = search.branches.length === 0;
    document.querySelector('[data-action="deadEnd"]').disabled = search.deadEnds.length === 0;
    const cut = $("cut");
    cut.hidden = stream.total <= search.ids.length;
    cut.textContent = `This page contains the first ${count(search.ids.length)} of ${count(stream.total)} tokens.`;
    drawOverview();
    drawHeat();
    seek(position);
  }

  function play(isOn) {
    if (timer !== null) cancelAnimationFrame(timer);
    timer = null;
    showPlaying(isOn);
    if (!isOn) return;
    if (position >= search.ids.length - 1) seek(0);
    let before = performance.now(), owed = 0;
    const tick = (now) => {
      owed += ((now - before) / 1000) * Number($("speed").value);
      before = now;
      const steps = Math.floor(owed);
      owed -= steps;
      if (steps > 0) seek(position + steps);
      if (position >= search.ids.length - 1) play(false);
      else timer = requestAnimationFrame(tick);
    };
    timer = requestAnimationFrame(tick);
  }

  const line = () => search.lineAt(position);
  const openFailure = (index) => { if (data.failure?.[index]) location.href = data.failure[index]; };
  const actions = {
    start: () => seek(0),
    end: () => seek(search.ids.length - 1),
    back: () => seek(position - 1),
    forward: () => seek(position + 1),
    lineBack: () => seekLine(line() - 1),
    lineForward: () => seekLine(position === search.endOf(line()) - 1 ? line() + 1 : line()),
    pageBack: () => seekLine(line() - PAGE_LINES),
    pageForward: () => seekLine(line() + PAGE_LINES),
    branch: (isBack) => seekEvent(search.branches, isBack),
    deadEnd: (isBack) => seekEvent(search.deadEnds, isBack),
    summary: (isBack) => seekEvent(search.summaries, isBack),
    difference: () => data.difference !== null && seek(data.difference),
    marks: () => chooseMarks(registers
      ? { candidates: "counts", counts: "none", none: "candidates" }[marks]
      : { candidates: "none", none: "candidates" }[marks]),
    unsure: (isBack) => probabilities && seekUnsure(isBack),
    failureBack: () => openFailure(0),
    failureForward: () => openFailure(1),
    failure: (isBack) => openFailure(isBack ? 0 : 1),
    help: toggleHelp,
    swap: () => streams.length > 1 && choose(1 - current),
    play: () => play(timer === null),
  };
  const keys = {
    ArrowLeft: "back", ArrowRight: "forward", ArrowUp: "lineBack", ArrowDown: "lineForward",
    PageUp: "pageBack", PageDown: "pageForward", Home: "start", End: "end",
    b: "branch", d: "deadEnd", s: "summary", x: "difference", m: "swap", c: "marks", " ": "play",
    u: "unsure", f: "failure", "?": "help",
  };

  const isScroll = (event) => /^(Arrow|Page)(Up|Down)$/.test(event.key) && event.target.id === "registers";
  onKeys(keys, (name, isShift) => {
    if (name !== "play" && timer !== null) play(false);
    actions[name](isShift);
  }, isScroll);
  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-action], button[data-stream], [data-marks], [data-token], [data-line]");
    if (!target) return;
    const { action, stream, token: at, line: to } = target.dataset;
    if (action) {
      if (action !== "play" && timer !== null) play(false);
      actions[action](event.shiftKey);
    } else if (target.dataset.marks) chooseMarks(target.dataset.marks);
    else if (stream !== undefined) choose(Number(stream));
    else if (at !== undefined) seek(Number(at));
    else seekLine(Number(to));
  });
  $("slider").addEventListener("input", (event) => seek(Number(event.target.value)));
  const seekPointer = (event) => {
    const box = $("overview").getBoundingClientRect();
    seek(((event.clientX - box.left) / box.width) * (search.ids.length - 1));
  };
  $("overview").addEventListener("pointerdown", (event) => {
    $("overview").setPointerCapture(event.pointerId);
    seekPointer(event);
  });
  $("overview").addEventListener("pointermove", (event) => { if (event.buttons) seekPointer(event); });
  const redraw = () => { drawOverview(); drawHeat(); };
  document.addEventListener("themechange", redraw);
  addEventListener("resize", redraw);

  // A link with #t=N opens the page at token N. Browsers throttle frequent changes of the URL.
  function rememberPosition() {
    clearTimeout(remember);
    remember = setTimeout(() => history.replaceState(null, "", `#t=${position + 1}`), 400);
  }
  const linked = () => Number(/^#t=(\d+)$/.exec(location.hash)?.[1] ?? 0);
  addEventListener("hashchange", () => { if (linked() && linked() !== position + 1) seek(linked() - 1); });

  drawContinuations();
  const start = linked();
  position = promptLength - 1; // The end of the input block.
  if (start) position = start - 1;
  choose(current);
  chooseMarks(marks);
})();
