
"use strict";
// Replays a search from token ids: indexes the lines once, then computes the state at any token.
// Ids: 0 <pad> 1 <input> 2 </input> 3 <summary> 4 </summary> 5 <output> 6 </output> 7 <none>, then
// the coordinates, then the digits. The ids of a model need not be well formed.
const INPUT = 1, END_INPUT = 2, SUMMARY = 3, END_SUMMARY = 4, OUTPUT = 5, END_OUTPUT = 6, NONE = 7;
const NUM_SPECIALS = 8;
const TRACE = 0; // A line's block is TRACE, INPUT, SUMMARY or OUTPUT.
const SNAPSHOT_LINES = 256;

function decodeIds(base64, numIds) {
  const bytes = bytesOf(base64);
  if (numIds <= 256) return bytes;
  const view = new DataView(bytes.buffer);
  return Uint16Array.from({ length: bytes.length / 2 }, (_, i) => view.getUint16(2 * i, true));
}

class Search {
  // A line is a block token such as <input>, or a coordinate and the tokens up to the next line.
  constructor(ids, numCells, givens) {
    this.ids = ids;
    this.numCells = numCells;
    this.givens = givens;
    this.starts = new Uint32Array(ids.length + 1);
    this.blocks = new Uint8Array(ids.length);
    this.indents = new Uint8Array(ids.length); // Open branches below a line, at most 255.
    this.depths = new Uint16Array(ids.length); // Lines on the stack after a line.
    this.branches = [];
    this.deadEnds = [];
    this.summaries = [];
    this.snapshots = [];
    this.#index();
  }

  isCoordinate(id) { return id >= NUM_SPECIALS && id < NUM_SPECIALS + this.numCells; }
  isDigit(id) { return id >= NUM_SPECIALS + this.numCells; }
  cellOf(line) { return this.ids[this.starts[line]] - NUM_SPECIALS; }
  endOf(line) { return this.starts[line + 1]; }

  // Candidates of a line among the ids before `end`; empty for a dead end.
  digitsOf(line, end = this.endOf(line)) {
    const digits = [];
    for (let k = this.starts[line] + 1; k < Math.min(end, this.endOf(line)); k++) {
      if (this.isDigit(this.ids[k])) digits.push(this.ids[k] - NUM_SPECIALS - this.numCells + 1);
    }
    return digits;
  }

  isDeadEnd(line, end = this.endOf(line)) {
    const next = this.starts[line] + 1;
    return next < Math.min(end, this.endOf(line)) && this.ids[next] === NONE;
  }

  lineAt(token) {
    let low = 0, high = this.numLines - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.starts[middle] <= token) low = middle; else high = middle - 1;
    }
    return low;
  }

  #index() {
    const { ids, starts } = this;
    let numLines = 0;
    for (let k = 0; k < ids.length; k++) {
      const id = ids[k];
      if (numLines === 0 || (id < NUM_SPECIALS && id !== NONE) || this.isCoordinate(id)) starts[numLines++] = k;
    }
    this.numLines = numLines;
    starts[numLines] = ids.length;
    const state = this.#initial();
    let sinceSnapshot = SNAPSHOT_LINES, open = 0;
    for (let line = 0; line < numLines; line++) {
      if (++sinceSnapshot >= SNAPSHOT_LINES && state.block === TRACE) {
        this.snapshots.push({ line, stack: state.stack.slice() });
        sinceSnapshot = 0;
      }
      const first = ids[starts[line]];
      const isTraceLine = state.block === TRACE && this.isCoordinate(first);
      const isRetry = isTraceLine && state.stackOf[this.cellOf(line)] >= 0;
      const block = first === INPUT || first === SUMMARY || first === OUTPUT ? first : state.block;
      this.#apply(state, line);
      if (isTraceLine) {
        // The line itself is on the stack already and does not count for its own indent.
        if (isRetry) open = this.#openBranches(state.stack, state.stack.length - 1);
        this.indents[line] = Math.min(open, 255);
        const numDigits = this.digitsOf(line).length;
        if (numDigits > 1) { open++; this.branches.push(starts[line]); }
        if (this.isDeadEnd(line)) this.deadEnds.push(starts[line]);
      } else {
        if (first === END_SUMMARY) open = this.#openBranches(state.stack, state.stack.length);
        if (first === SUMMARY) this.summaries.push(starts[line]);
      }
      this.blocks[line] = block;
      this.depths[line] = state.stack.length;
    }
  }

  #openBranches(stack, length) {
    let count = 0;
    for (let i = 0; i < length; i++) if (this.endOf(stack[i]) - this.starts[stack[i]] > 2) count++;
    return count;
  }

  #initial() {
    return { block: TRACE, stack: [], stackOf: new Int32Array(this.numCells).fill(-1), pending: [], output: [], dropped: 0 };
  }

  #push(state, line) {
    state.stackOf[this.cellOf(line)] = state.stack.length;
    state.stack.push(line);
  }

  #cutStack(state, length) {
    while (state.stack.length > length) state.stackOf[this.cellOf(state.stack.pop())] = -1;
  }

  #apply(state, line) {
    const first = this.ids[this.starts[line]];
    state.dropped = 0;
    if (this.isCoordinate(first)) {
      if (state.block === SUMMARY) state.pending.push(line);
      else if (state.block === OUTPUT) state.output.push(line);
      else if (state.block === TRACE) {
        const level = state.stackOf[this.cellOf(line)];
        if (level >= 0) {
          state.dropped = state.stack.length - level;
          this.#cutStack(state, level);
        }
        this.#push(state, line);
      }
      return;
    }
    if (first === END_SUMMARY && state.block === SUMMARY) {
      // The summary is the only context of the next segment.
      this.#cutStack(state, 0);
      for (const entry of state.pending) {
        if (!this.givens[this.cellOf(entry)] && state.stackOf[this.cellOf(entry)] < 0) this.#push(state, entry);
      }
    }
    if (first === INPUT || first === SUMMARY || first === OUTPUT) {
      state.block = first;
      state.pending = [];
      state.output = [];
    } else if (first === END_INPUT || first === END_SUMMARY || first === END_OUTPUT) {
      if (first !== END_OUTPUT) state.block = TRACE;
    }
  }

  // State after the ids up to and including `token`.
  stateAt(token) {
    const line = this.lineAt(token);
    let low = 0, high = this.snapshots.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.snapshots[middle].line <= line) low = middle; else high = middle - 1;
    }
    const state = this.#initial();
    const snapshot = this.snapshots[low];
    for (const entry of snapshot.stack) this.#push(state, entry);
    for (let i = snapshot.line; i <= line; i++) this.#apply(state, i);
    return { ...state, line, end: token + 1 };
  }
}
