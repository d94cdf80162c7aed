// What all pages share: the colours of Airflow's own pages around them, and what happens to an error nobody expected.

import { problem } from "./dom.js";

const root = document.documentElement;

function theme() {
  try {
    const around = window.parent !== window && window.parent.document.documentElement.classList;
    if (around && around.contains("dark")) return "dark";
    if (around && around.contains("light")) return "light";
    return localStorage.getItem("theme");
  } catch {
    return null;
  }
}

function dress() {
  const chosen = theme();
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
  else delete root.dataset.theme;
}

dress();
window.addEventListener("storage", dress);
if (window.parent !== window) {
  try {
    new MutationObserver(dress).observe(window.parent.document.documentElement, { attributes: true, attributeFilter: ["class"] });
  } catch {
    // a frame of another site has colours that this page cannot know
  }
}

let trouble = null;

// One error at a time: what happens every few seconds is not told again each time.
function tell(error) {
  trouble?.remove();
  trouble = null;
  if (error && error.name !== "AbortError") document.querySelector("main").prepend((trouble = problem(error)));
}

window.addEventListener("unhandledrejection", (event) => tell(event.reason));

// Run something every so often while somebody looks at the page; what goes wrong is told until it goes well again.
export function regularly(seconds, run) {
  const step = async () => {
    if (document.hidden) return;
    try {
      await run();
      tell(null);
    } catch (error) {
      tell(error);
    }
  };
  setInterval(step, seconds * 1000);
}
