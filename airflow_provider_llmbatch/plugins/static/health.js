// Credentials and endpoints that are parked, and a way to open them.

import { h, inert, loading, moment, notify, problem, show } from "./dom.js";
import { get, post } from "./net.js";
import { regularly } from "./page.js";

const main = document.querySelector("main");
const list = h("div", {});
const COLUMNS = ["What", "Name", "Why", "Since", "Tried again", "Open"];

async function open(gate) {
  try {
    draw(await post("/parked/open", { gate }));
    notify(`Calls go through ${gate} again. If it still fails, it is parked anew.`);
  } catch (error) {
    notify(error.message);
  }
}

function line(each) {
  const [kind, ...name] = each.gate.split("/");
  const cells = [
    kind,
    inert(name.join("/")),
    inert(each.reason || "no reason is known"),
    moment(each.since),
    each.until ? moment(each.until) : "when a person opens it",
    h("button", { type: "button", "aria-label": `Open ${each.gate}`, on: { click: () => open(each.gate) } }, "Open"),
  ];
  return h("tr", {}, cells.map((cell, number) => h("td", { "data-name": COLUMNS[number] }, cell)));
}

function draw(found) {
  if (!found.parked.length) {
    show(list, h("p", { class: "good" }, "No credential and no endpoint is parked."));
    return;
  }
  show(
    list,
    h(
      "table",
      { class: "cards" },
      h("thead", {}, h("tr", {}, COLUMNS.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, found.parked.map(line)),
    ),
  );
}

async function load() {
  if (list.contains(document.activeElement)) return;
  try {
    draw(await get("/parked"));
  } catch (error) {
    show(list, problem(error, load));
  }
}

show(
  main,
  h("h1", {}, "Routes"),
  h("p", { class: "soft" }, "What was refused or kept failing is parked: no worker uses it, but for one call now and then to try it. What is not listed may be used; whether it works is known only to those who call it."),
  list,
);
show(list, loading());
await load();
regularly(10, load);
