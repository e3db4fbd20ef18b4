"use strict";
(() => {
  const data = JSON.parse(document.getElementById("steps-data").textContent);
  const numbersOf = (base64, type) => new type(bytesOf(base64).buffer);
  const numLayers = data.layers.length;
  const numTapes = data.heads[0].length;

  // Changes of registers: those of token i are at offsets[i] .. offsets[i + 1].
  const segments = data.segments.map((segment) => {
    const offsets = [0];
    for (const n of segment.counts) offsets.push(offsets.at(-1) + n);
    return {
      ...segment,
      offsets,
      changed: numbersOf(segment.changed, Uint16Array),
      changedLayers: numbersOf(segment.changedLayers, Uint16Array),
      changedTexts: numbersOf(segment.changedTexts, Uint32Array),
    };
  });
  let [current, position] = data.start;
  let layer = numLayers - 1;
  let registersShown = "used";
  let timer = null, remember = null;

  // ---- tapes -----------------------------------------------------------------------------------
  // Tapes after `time` steps.
  function tapesAt(time) {
    const tapes = Array.from({ length: numTapes }, () => Array(data.numCells).fill(data.blank));
    data.word.forEach((symbol, cell) => { tapes[0][cell] = symbol; });
    for (let step = 0; step < time; step++) {
      data.written[step].forEach((symbol, k) => { tapes[k][data.heads[step][k]] = symbol; });
    }
    return tapes;
  }

  function drawTapes(time, stated, isSummary) {
    const nodes = tapesAt(time).map((symbols, k) => {
      const tape = make("div", "tape");
      if (numTapes > 1) tape.append(make("span", "tape-name", `tape ${k + 1}`));
      const head = data.heads[time][k];
      symbols.forEach((symbol, cell) => {
        const node = make("div", "cell");
        if (symbol === data.blank) node.classList.add("blank");
        if (cell === head) node.classList.add("head");
        if (cell === stated && (k === 0 || isSummary)) node.classList.add("stated");
        node.append(make("b", "", symbol), make("i", "", cell === head ? `\u25b4${cell}` : String(cell)));
        tape.append(node);
      });
      return tape;
    });
    const panel = $("tapes");
    panel.replaceChildren(...nodes);
    const focus = panel.querySelector(".stated") ?? panel.querySelector(".head");
    if (focus) panel.scrollLeft = focus.offsetLeft - panel.clientWidth / 2;
    const steps = data.states.length - 1;
    const state = make("strong", "", data.states[time]);
    $("state").replaceChildren("State ", state, ` after ${count(time)} of ${count(steps)} ${steps === 1 ? "step" : "steps"}`);
  }

  // ---- tokens ----------------------------------------------------------------------------------
  function fillTokens() {
    const { tokens, prompt, wrong } = segments[current];
    const nodes = tokens.map((word, at) => {
      const node = make("button", "token");
      node.type = "button";
      node.tabIndex = -1;
      node.dataset.position = at;
      if (at < prompt) node.classList.add("prompt");
      if (String(at - 1) in wrong) node.classList.add("differs");
      node.append(make("small", "", count(at)), make("span", "", word));
      return node;
    });
    if (segments.length > 1) nodes.unshift(make("div", "segment-title", `Segment ${current + 1} of ${segments.length}`));
    $("tokens").replaceChildren(...nodes);
    $("tokens").dataset.segment = current;
    $("slider").max = tokens.length - 1;
  }

  function drawTokens() {
    const panel = $("tokens");
    if (panel.dataset.segment !== String(current)) fillTokens();
    panel.querySelectorAll(".current, .source").forEach((node) => node.classList.remove("current", "source"));
    const at = (place) => panel.querySelector(`[data-position="${place}"]`);
    for (const place of segments[current].sources[position]) at(place).classList.add("source");
    const node = at(position);
    node.classList.add("current");
    panel.scrollTop = node.offsetTop - panel.clientHeight * 0.45;
  }

  // ---- registers -------------------------------------------------------------------------------
  const rows = data.registers.map((register, index) => {
    const row = make("div", "register"), value = make("span", "value"), life = make("div", "life");
    const name = make("span", "name", register.name);
    if (register.symbol) name.title = register.symbol;
    life.setAttribute("role", "img");
    const bars = data.layers.map((_, at) => {
      const bar = make("button");
      bar.type = "button";
      bar.tabIndex = -1;
      bar.dataset.layer = at;
      bar.title = layerTitle(at);
      life.append(bar);
      return bar;
    });
    row.append(name, value, life, make("span", "meaning", register.meaning));
    return { index, row, value, bars, life };
  });
  const noRegisters = make("p", "quiet");
  noRegisters.id = "no-registers";
  $("registers").append(noRegisters, ...rows.map((each) => each.row));

  function layerTitle(at) {
    const [number, name] = data.layers[at];
    return number ? `Layer ${number}: ${name}` : "Embedding";
  }

  // Text of each register after each layer at the current token.
  function contents() {
    const { offsets, changed, changedLayers, changedTexts, counts } = segments[current];
    if (position >= counts.length) return null;
    const found = data.registers.map(() => []);
    for (let k = offsets[position]; k < offsets[position + 1]; k++) {
      found[changed[k]].push([changedLayers[k], data.texts[changedTexts[k]]]);
    }
    return found;
  }

  function drawRegisters() {
    const all = contents(), by = segments[current].by[position];
    const isLast = position === segments[current].tokens.length - 1;
    noRegisters.hidden = all !== null;
    noRegisters.textContent = isLast
      ? "The last token is not an input of the model."
      : `This page contains the registers of the first ${count(segments[current].counts.length)} tokens.`;
    for (const { index, row, value, bars, life } of rows) {
      const changes = all?.[index] ?? [];
      row.hidden = all === null || (registersShown === "used" && changes.length === 0);
      if (row.hidden) continue;
      let text = "", next = 0, shown = "", isNow = false;
      bars.forEach((bar, at) => {
        const isWritten = next < changes.length && changes[next][0] === at;
        if (isWritten) text = changes[next++][1];
        bar.className = isWritten ? "written" : text ? "holds" : "";
        if (at === layer) { bar.classList.add("at"); shown = text; isNow = isWritten; }
      });
      value.textContent = shown || "\u00b7";
      life.setAttribute("aria-label", `written in layers ${changes.map(([at]) => data.layers[at][0] || "0").join(", ")}`);
      row.classList.toggle("empty", !shown);
      row.classList.toggle("now", isNow);
      row.classList.toggle("decides", by.includes(index));
    }
    $("layer-name").textContent = `after ${layerTitle(layer).replace(/^./, (first) => first.toLowerCase())}`;
  }

  function chooseRegisters(name) {
    registersShown = name;
    document.querySelectorAll("[data-registers]").forEach((button) => {
      button.setAttribute("aria-pressed", String(button.dataset.registers === name));
    });
    drawRegisters();
  }

  // ---- moving ----------------------------------------------------------------------------------
  function show() {
    const segment = segments[current];
    const isSummary = segment.tokens[position].startsWith("(");
    drawTapes(segment.times[position], segment.cells[position], isSummary);
    drawTokens();
    drawRegisters();
    $("caption").textContent = segment.texts[position];
    const isEnd = position === segment.tokens.length - 1;
    const next = isEnd ? [] : ["Next ", make("strong", "", segment.tokens[position + 1]), " \u2013 "];
    $("why").replaceChildren(...next, segment.why[position]);
    const wrong = segment.wrong[position];
    $("wrong").hidden = wrong === undefined;
    $("wrong").textContent = `The model writes ${wrong} instead.`;
    $("token-count").textContent = `position ${count(position)} of 0 to ${count(segment.tokens.length - 1)}`;
    const slider = $("slider");
    slider.value = position;
    slider.setAttribute("aria-valuetext", `position ${position}: ${segment.tokens[position]}`);
    clearTimeout(remember); // Browsers throttle frequent changes of the URL.
    remember = setTimeout(() => history.replaceState(null, "", hash()), 400);
  }

  const hash = () => (segments.length > 1 ? `#s=${current + 1}&p=${position}` : `#p=${position}`);

  function seek(at, segment = current) {
    current = Math.min(Math.max(segment, 0), segments.length - 1);
    position = Math.min(Math.max(Math.round(at), 0), segments[current].tokens.length - 1);
    show();
  }

  // One token back or forward, across segments.
  function step(by) {
    const target = position + by;
    if (target < 0 && current > 0) seek(Infinity, current - 1);
    else if (target >= segments[current].tokens.length && current < segments.length - 1) seek(0, current + 1);
    else seek(target);
  }

  function chooseLayer(at) {
    layer = Math.min(Math.max(at, 0), numLayers - 1);
    drawRegisters();
  }

  function play(isOn) {
    clearInterval(timer);
    timer = null;
    showPlaying(isOn);
    if (!isOn) return;
    const isAtEnd = () => current === segments.length - 1 && position === segments[current].tokens.length - 1;
    if (isAtEnd()) seek(0, 0);
    timer = setInterval(() => {
      step(1);
      if (isAtEnd()) play(false);
    }, 1000 / Number($("speed").value));
  }

  const actions = {
    start: () => seek(0),
    end: () => seek(Infinity),
    back: () => step(-1),
    forward: () => step(1),
    layerBack: () => chooseLayer(layer - 1),
    layerForward: () => chooseLayer(layer + 1),
    segment: (isBack) => seek(0, current + (isBack ? -1 : 1)),
    registers: () => chooseRegisters(registersShown === "used" ? "all" : "used"),
    help: toggleHelp,
    play: () => play(timer === null),
  };
  const keys = {
    ArrowLeft: "back", ArrowRight: "forward", ArrowUp: "layerBack", ArrowDown: "layerForward",
    Home: "start", End: "end", s: "segment", a: "registers", "?": "help", " ": "play",
  };

  onKeys(keys, (name, isShift) => {
    if (["back", "forward", "start", "end", "segment"].includes(name) && timer !== null) play(false);
    actions[name](isShift);
  });
  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-action], [data-registers], [data-position], [data-layer]");
    if (!target) return;
    const { action, registers, position: at, layer: chosen } = target.dataset;
    if (action) {
      if (!["play", "layerBack", "layerForward"].includes(action) && timer !== null) play(false);
      actions[action](event.shiftKey);
    } else if (registers) chooseRegisters(registers);
    else if (at !== undefined) seek(Number(at));
    else chooseLayer(Number(chosen));
  });
  $("slider").addEventListener("input", (event) => seek(Number(event.target.value)));
  $("speed").addEventListener("change", () => { if (timer !== null) play(true); });

  // A link with #p=N opens the page at position N.
  const linked = () => /^#(?:s=(\d+)&)?p=(\d+)$/.exec(location.hash);
  const follow = () => {
    const found = linked();
    if (found && location.hash !== hash()) seek(Number(found[2]), found[1] ? Number(found[1]) - 1 : current);
  };
  addEventListener("hashchange", follow);
  chooseRegisters(registersShown);
  seek(position);
  follow();
})();
