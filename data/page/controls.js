"use strict";
// Parts of pages with a slider and keys: elements, packed data, keyboard and play button.
const $ = (id) => document.getElementById(id);
const count = (n) => n.toLocaleString("en-US");
const make = (tag, className, text) => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};
const bytesOf = (base64) => Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));

const toggleHelp = () => {
  const help = document.querySelector("details.help");
  help.open = !help.open;
};

function showPlaying(isOn) {
  $("play").textContent = isOn ? "\u23f8\ufe0e" : "\u25b6\ufe0e";
  $("play").setAttribute("aria-label", isOn ? "Pause" : "Play");
}

// Calls run(name, isShift) for a key of `keys`; Escape closes open details.
function onKeys(keys, run, isIgnored = () => false) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
    if (event.key === "Escape") {
      for (const open of document.querySelectorAll("details[open]")) open.open = false;
      return;
    }
    const isPress = event.key === " " && event.target.closest("button, summary");
    const name = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!name || isPress || isIgnored(event)) return;
    event.preventDefault();
    run(name, event.shiftKey);
  });
}
