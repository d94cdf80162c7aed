// Elements are made here and nowhere else. Whatever an item holds becomes a text node, never markup.

// Characters that are not seen, or that turn others around: they are shown by their number.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff]/gu;
const SHOWN_FIRST = 20_000;

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    } else if (name === "value") {
      element.value = value;
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, String(value));
    }
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function show(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

// Text that somebody else wrote, with what is unseen in it made visible.
export function inert(text) {
  const fragment = document.createDocumentFragment();
  let from = 0;
  for (const match of String(text).matchAll(UNSEEN)) {
    const code = match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    fragment.append(String(text).slice(from, match.index), h("span", { class: "mark" }, `U+${code}`));
    from = match.index + match[0].length;
  }
  fragment.append(String(text).slice(from));
  return h("bdi", {}, fragment);
}

// The same for long texts: the rest is shown when somebody asks for it.
export function longText(text, label) {
  const whole = String(text);
  const body = h("div", { class: "text", tabindex: "0", role: "group", "aria-label": label }, inert(whole.slice(0, SHOWN_FIRST)));
  if (whole.length <= SHOWN_FIRST) return body;
  const more = h("button", { type: "button" }, `Show all ${whole.length.toLocaleString("en")} characters`);
  more.addEventListener("click", () => {
    show(body, inert(whole));
    more.remove();
  });
  return h("div", {}, body, more);
}

export function field(label, control, className = "") {
  return h("label", { class: className }, label, control);
}

export function select(options, chosen, change, attributes = {}) {
  const control = h(
    "select",
    { ...attributes, on: { change: () => change(control.value) } },
    options.map(([value, words]) => h("option", { value, selected: value === chosen }, words)),
  );
  return control;
}

export function moment(iso) {
  if (!iso) return "not set";
  const date = new Date(iso);
  return h("time", { datetime: iso, title: iso }, date.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" }));
}

export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

// A sentence at the edge of the page, which screen readers say too.
export function notify(words) {
  const line = h("div", {}, inert(words));
  document.querySelector(".notice").append(line);
  setTimeout(() => line.remove(), 8000);
}

export function problem(error, again) {
  return h(
    "div",
    { class: "box", role: "alert" },
    h("p", { class: "bad" }, inert(error.message)),
    again && h("button", { type: "button", on: { click: again } }, "Try again"),
  );
}

export const loading = () => h("p", { class: "soft", role: "status" }, "Loading …");
