
"use strict";
// Light or dark mode: that of the system, unless the reader has chosen one, which is stored.
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let choice = null;
  try { choice = localStorage.getItem("sudocot-theme"); } catch { /* storage may be off */ }
  const show = () => {
    root.dataset.theme = choice ?? (dark.matches ? "dark" : "light");
    const button = document.querySelector("button.theme");
    if (button) {
      const other = root.dataset.theme === "dark" ? "light" : "dark";
      button.textContent = other === "dark" ? "\u263e Dark" : "\u2600 Light";
      button.setAttribute("aria-label", `Switch to ${other} mode`);
    }
    document.dispatchEvent(new CustomEvent("themechange"));
  };
  dark.addEventListener("change", show);
  addEventListener("beforeprint", () => { root.dataset.theme = "light"; });
  addEventListener("afterprint", show);
  addEventListener("DOMContentLoaded", () => {
    document.querySelector("button.theme")?.addEventListener("click", () => {
      choice = root.dataset.theme === "dark" ? "light" : "dark";
      try { localStorage.setItem("sudocot-theme", choice); } catch { /* storage may be off */ }
      show();
    });
    show();
  });
  show();
})();
