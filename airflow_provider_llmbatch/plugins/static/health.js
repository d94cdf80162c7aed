// Credentials and endpoints: how they fare; to open and reset them, and to pin a route.

import { count, h, inert, loading, moment, notify, problem, show } from "./dom.js";
import { get, post } from "./net.js";
import { regularly } from "./page.js";

const main = document.querySelector("main");
const list = h("div", {});
const COLUMNS = ["What", "Name", "State", "Failures", "p95", "Actions"];
const FIGURES = new Set(["Failures", "p95"]);

async function act(path, gate, words) {
  try {
    const told = await post(path, { gate });
    draw(told.routes ? told : await get("/routes"));
    notify(words);
    list.querySelector(`[data-gate="${CSS.escape(gate)}"] button`)?.focus();
  } catch (error) {
    notify(error.message);
  }
}

function askToPin(gate) {
  const dialog = h(
    "dialog",
    { "aria-labelledby": "pinning" },
    h(
      "form",
      { method: "dialog" },
      h("h2", { id: "pinning" }, "Pin the route"),
      h("p", {}, "All runs whose routes lead to ", inert(gate), " send everything there within two seconds, whatever their rules say and whether it is parked or not, until it is unpinned. Nothing falls back."),
      h("div", { class: "row" }, h("button", { value: "yes", class: "main" }, "Pin"), h("button", { value: "" }, "Cancel")),
    ),
  );
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (dialog.returnValue === "yes") act("/routes/pin", gate, `Runs send everything to ${gate} now.`);
  });
  document.body.append(dialog);
  dialog.showModal();
}

function standing(route) {
  const { parked, pin } = route;
  const until = parked?.until ? moment(parked.until) : "when a person opens it";
  return [
    pin && h("p", {}, h("strong", {}, "pinned"), " by ", inert(pin.by), ", ", moment(pin.at)),
    parked
      ? h("p", {}, h("strong", { class: "bad" }, "parked"), ": ", inert(parked.reason || "no reason is known"), "; since ", moment(parked.since), ", tried again ", until)
      : h("p", {}, route.answered_at || route.failed ? "open" : "open; nobody has called it lately"),
    route.answered_at && h("p", { class: "soft" }, "last answer ", moment(route.answered_at)),
  ];
}

function ways(route) {
  const { gate } = route;
  const button = (words, name, run) => h("button", { type: "button", "aria-label": `${name} ${gate}`, on: { click: run } }, words);
  return h(
    "div",
    { class: "row" },
    route.parked && button("Open", "Open", () => act("/parked/open", gate, `Calls go through ${gate} again. If it still fails, it is parked anew.`)),
    route.pin && button("Unpin", "Unpin", () => act("/routes/unpin", gate, `${gate} is not pinned any more; the rules decide.`)),
    !route.pin && route.may_be_pinned && button("Pin …", "Pin", () => askToPin(gate)),
    button("Reset", "Reset", () => act("/routes/reset", gate, `All that was seen at ${gate} is forgotten.`)),
  );
}

function line(route) {
  const [kind, ...name] = route.gate.split("/");
  const cells = [
    kind,
    inert(name.join("/")),
    standing(route),
    route.failed ? `${count(route.failed, "item")} in a row` : "none",
    kind !== "endpoint" ? "not counted" : route.p95_ms === null ? "not known" : `${Math.round(route.p95_ms).toLocaleString("en")} ms`,
    ways(route),
  ];
  return h("tr", { "data-gate": route.gate }, cells.map((cell, number) => h("td", { "data-name": COLUMNS[number], class: number === 0 ? "kind" : FIGURES.has(COLUMNS[number]) && "figure" }, h("div", {}, cell))));
}

function draw({ routes }) {
  const held = list.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
  const parked = routes.filter((route) => route.parked).length;
  const pinned = routes.filter((route) => route.pin).length;
  const sum = [parked ? `${parked} of ${routes.length} parked` : "No credential and no endpoint is parked", pinned && `${pinned} pinned`].filter(Boolean).join(", ");
  show(
    list,
    h("p", { class: parked ? "bad" : "good" }, `${sum}.`),
    routes.length
      ? h(
          "table",
          { class: "cards" },
          h("thead", {}, h("tr", {}, COLUMNS.map((name) => h("th", { scope: "col", class: FIGURES.has(name) && "figure" }, name)))),
          h("tbody", {}, routes.map(line)),
        )
      : h("p", { class: "soft" }, "No call was made within a day, or the state that this server reads is not that of the workers."),
  );
  // Who has moved to a button with the keyboard stays there when all is drawn anew.
  if (held) list.querySelector(`[aria-label="${CSS.escape(held)}"]`)?.focus();
}

async function load() {
  try {
    draw(await get("/routes"));
  } catch (error) {
    show(list, problem(error, load));
  }
}

show(
  main,
  h("h1", {}, "Routes"),
  h("p", { class: "soft" }, "Credentials and endpoints that workers have heard of within a day. What was refused or kept failing is parked: no worker uses it, but for one call now and then to try it. p95 is that of the last minute, and known where a rule of a run asks for latency."),
  list,
);
show(list, loading());
await load();
regularly(10, load);
