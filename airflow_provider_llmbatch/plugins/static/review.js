// The queue of a task: its tickets, filtered and page by page, and what is decided of many at once.

import { ask, decide } from "./decide.js";
import { count, field, h, inert, loading, moment, problem, select, show } from "./dom.js";
import { ROOT, address, get, query } from "./net.js";
import { regularly } from "./page.js";
import { showTicket } from "./ticket.js";

const PAGE = 50;
const FILTERS = ["outcome", "error", "model", "reason", "decision"];
const COLUMNS = ["Item", "Outcome", "Error", "Model", "Attempts", "Tokens", "Decision"];
const ORDERS = [["index", "order of the items"], ["-tokens", "most tokens first"], ["-attempts", "most attempts first"], ["item_id", "item id"]];
const KEYS = [["j", "next line"], ["k", "previous line"], ["x", "select"], ["Enter", "open"], ["/", "search"], ["r", "retry"], ["s", "skip"], ["a", "accept"], ["e", "edit"], ["n", "next ticket"], ["p", "previous ticket"], ["Esc", "back to the list"], ["?", "these keys"]];

const [, dag, run, task] = location.pathname.match(/dags\/([^/]+)\/runs\/([^/]+)\/tasks\/([^/]+)\/review$/).map((part) => decodeURIComponent(part));
const index = new URLSearchParams(location.search).get("map_index") ?? "";
const mapIndex = /^\d+$/.test(index) ? index : "";

const main = document.querySelector("main");
const head = h("div", {});
const filters = h("div", { class: "row" });
const bulk = h("div", { class: "row middle" });
const list = h("div", {});
const overview = h("section", { "aria-label": "Tickets" }, filters, bulk, list);
const single = h("section", { "aria-label": "Ticket", hidden: true });

let queue = null;
let page = { total: 0, tickets: [] };
let opened = null;
let asking = null;
const chosen = { order_by: "index", decision: "open" };
let offset = 0;
const selected = new Set();
let isAll = false;

async function loadQueue(round) {
  const path = `/dags/${address(dag)}/runs/${address(run)}/tasks/${address(task)}/review`;
  const asked = query({ map_index: mapIndex });
  const found = await get(`${path}${query({ map_index: mapIndex, round })}`);
  const isSame = JSON.stringify(queue?.found) === JSON.stringify(found);
  queue = { ...found, found, path, asked, isOpen: found.state === "open" && found.round === found.rounds.at(-1).round };
  if (!isSame) drawHead();
}

function drawHead() {
  const ends = queue.default ? `; the rest is then set to “${queue.default}”` : "";
  const rounds = queue.rounds.map((each) => [String(each.round), `${each.round} (${each.state})`]);
  show(
    head,
    h("p", {}, h("a", { href: `${ROOT}review` }, "All queues")),
    h("h1", {}, "Review of ", inert(`${dag} · ${task}${mapIndex && ` [${mapIndex}]`}`)),
    h("p", { class: "soft" }, "Run ", inert(run)),
    h(
      "div",
      { class: "row middle" },
      h("progress", { max: Math.max(queue.needed, 1), value: Math.min(queue.decided, queue.needed), "aria-label": "Decided" }),
      h("span", {}, `${queue.decided.toLocaleString("en")} of ${queue.needed.toLocaleString("en")} needed are decided, of ${count(queue.tickets, "ticket")}`),
      h("span", { class: "soft" }, `State: ${queue.state}. Deadline: `, moment(queue.deadline), ends, "."),
      rounds.length > 1 && field("Round", select(rounds, String(queue.round), (value) => restart(Number(value)))),
    ),
  );
}

async function restart(round) {
  await loadQueue(round);
  drawFilters();
  await turn(0);
}

function drawFilters() {
  const choice = (name) => {
    const counts = Object.entries(queue.counts[name] ?? {}).sort(([, one], [, other]) => other - one);
    const options = [["", "any"], ...counts.map(([value, number]) => [value, `${value} (${number.toLocaleString("en")})`])];
    if (chosen[name] && !counts.some(([value]) => value === chosen[name])) options.push([chosen[name], `${chosen[name]} (0)`]);
    return field(name[0].toUpperCase() + name.slice(1), select(options, chosen[name] ?? "", (value) => ((chosen[name] = value), turn(0))));
  };
  const search = h("input", { type: "search", maxlength: 200, value: chosen.q ?? "", id: "search" });
  let timer = 0;
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => ((chosen.q = search.value), turn(0)), 200);
  });
  show(
    filters,
    FILTERS.map(choice),
    field("Item id has", search, "wide"),
    field("Order", select(ORDERS, chosen.order_by, (value) => ((chosen.order_by = value), turn(0)))),
  );
}

async function turn(to) {
  offset = to;
  selected.clear();
  isAll = false;
  await loadTickets();
}

async function loadTickets() {
  asking?.abort();
  asking = new AbortController();
  try {
    page = await get(`${queue.path}/tickets${query({ ...chosen, map_index: mapIndex, round: queue.round, limit: PAGE, offset })}`, asking.signal);
    drawTickets();
  } catch (error) {
    if (error.name !== "AbortError") show(list, problem(error, loadTickets));
  }
}

function line(ticket) {
  const box = h("input", { type: "checkbox", checked: isAll || selected.has(ticket.id), "aria-label": `Select ${ticket.item_id}` });
  box.addEventListener("change", () => {
    isAll = false;
    if (box.checked) selected.add(ticket.id);
    else selected.delete(ticket.id);
    drawBulk();
  });
  const decision = ticket.decision ? `${ticket.decision.kind} by ${ticket.decision.by.name || "the task itself"}` : "open";
  const cells = [ticket.outcome, ticket.error ?? "", ticket.model ?? "", ticket.attempts.toLocaleString("en"), ticket.tokens.toLocaleString("en"), decision];
  return h(
    "tr",
    { "data-ticket": ticket.id },
    h("td", { "data-name": "Select" }, queue.may_decide && queue.isOpen ? box : null),
    h("td", { "data-name": "Item" }, h("a", { href: `#${encodeURIComponent(ticket.id)}` }, inert(ticket.item_id))),
    cells.map((cell, number) => h("td", { "data-name": COLUMNS[number + 1], class: (number === 3 || number === 4) && "figure" }, inert(cell))),
  );
}

function drawTickets() {
  if (!page.total) {
    const rest = Object.entries(chosen).some(([name, value]) => name !== "order_by" && value);
    show(list, h("p", { class: "soft" }, rest ? "No ticket matches. Change a filter to see others." : "This round has no tickets."));
    drawBulk();
    return;
  }
  const every = h("input", { type: "checkbox", "aria-label": "Select all of this page" });
  every.addEventListener("change", () => {
    for (const ticket of page.tickets) every.checked ? selected.add(ticket.id) : selected.delete(ticket.id);
    isAll = false;
    drawTickets();
    list.querySelector("thead input").checked = every.checked;
  });
  const button = (words, to, off) => h("button", { type: "button", disabled: off, on: { click: () => turn(to) } }, words);
  show(
    list,
    h(
      "table",
      { class: "cards" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, queue.may_decide && queue.isOpen ? every : h("span", { class: "hidden" }, "Select")), COLUMNS.map((name) => h("th", { scope: "col", class: ["Attempts", "Tokens"].includes(name) && "figure" }, name)))),
      h("tbody", {}, page.tickets.map(line)),
    ),
    h(
      "div",
      { class: "row middle" },
      button("Previous page", offset - PAGE, offset === 0),
      button("Next page", offset + PAGE, offset + PAGE >= page.total),
      h("span", { class: "soft" }, `${(offset + 1).toLocaleString("en")} to ${Math.min(offset + PAGE, page.total).toLocaleString("en")} of ${page.total.toLocaleString("en")}`),
      h("a", { href: `${ROOT}api/v1${queue.path}/tickets.csv${query({ ...chosen, map_index: mapIndex, round: queue.round })}`, download: true }, "Download as CSV"),
    ),
  );
  drawBulk();
}

function drawBulk() {
  if (!queue.may_decide || !queue.isOpen) {
    show(bulk, h("p", { class: "soft" }, queue.may_decide ? "This round takes no more decisions." : "You may read this queue, and not decide."));
    return;
  }
  const number = isAll ? page.total : selected.size;
  const button = (kind, words) => h("button", { type: "button", disabled: number === 0, on: { click: () => decideMany(kind) } }, words);
  show(
    bulk,
    h("span", { role: "status" }, isAll ? `All ${count(page.total, "ticket")} that match` : `${count(selected.size, "ticket")} selected`),
    button("retry", "Retry …"),
    button("skip", "Skip …"),
    button("accept", "Accept …"),
    !isAll && page.total > page.tickets.length && h("button", { type: "button", on: { click: () => ((isAll = true), drawTickets()) } }, `Select all ${page.total.toLocaleString("en")} that match`),
    h("button", { type: "button", on: { click: showKeys } }, "Keys"),
  );
}

async function decideMany(kind) {
  const number = isAll ? page.total : selected.size;
  if (!number) return;
  const wish = await ask(kind, isAll ? `all open ones of ${count(number, "ticket")}` : count(number, "ticket"), queue.choices);
  if (!wish) return;
  const { order_by: _, q, ...lists } = chosen;
  const filter = Object.fromEntries(Object.entries(lists).filter(([, value]) => value).map(([name, value]) => [name, [value]]));
  await decide(queue, { ...wish, ...(isAll ? { filter: { ...filter, q: q ?? "" } } : { tickets: [...selected] }) });
  await restart(queue.round);
  list.querySelector("tbody a")?.focus();
}

const go = {
  to: (id) => (location.hash = encodeURIComponent(id)),
  back: () => (location.hash = ""),
  decided: async (id, next) => {
    const isStillHere = () => decodeURIComponent(location.hash.slice(1)) === id;
    await loadQueue(queue.round);
    // Whoever has gone elsewhere meanwhile stays there.
    if (!isStillHere()) return opened ? undefined : loadTickets();
    if (next) go.to(next);
    else go.back();
  },
};

async function route() {
  const id = decodeURIComponent(location.hash.slice(1));
  const before = opened?.ticket.id;
  opened = null;
  overview.hidden = Boolean(id);
  single.hidden = !id;
  if (id) {
    show(single, loading());
    opened = await showTicket(single, queue, id, go);
    return;
  }
  show(single);
  drawFilters();
  await loadTickets();
  list.querySelector(`tr[data-ticket="${CSS.escape(before ?? "")}"] a`)?.focus();
}

function showKeys() {
  const dialog = h("dialog", { "aria-label": "Keys" }, h("dl", {}, KEYS.map(([key, words]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, words)])), h("form", { method: "dialog" }, h("button", { class: "main" }, "Close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function step(by) {
  const links = [...list.querySelectorAll("tbody a")];
  const at = links.findIndex((link) => link.closest("tr").contains(document.activeElement));
  links[Math.min(Math.max(at + by, 0), links.length - 1)]?.focus();
}

const OF_LIST = {
  j: () => step(1),
  k: () => step(-1),
  x: () => document.activeElement.closest("tr")?.querySelector("input")?.click(),
  "/": () => document.querySelector("#search").focus(),
  r: () => decideMany("retry"),
  s: () => decideMany("skip"),
  a: () => decideMany("accept"),
};
const OF_TICKET = {
  n: () => opened.ticket.next && go.to(opened.ticket.next),
  p: () => opened.ticket.previous && go.to(opened.ticket.previous),
  Escape: go.back,
  r: () => opened.act("retry"),
  s: () => opened.act("skip"),
  a: () => opened.act("accept"),
  e: () => opened.act("edit"),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const isWriting = event.target.matches("textarea, select, input:not([type=checkbox])");
  if (isWriting && event.key !== "Escape") return;
  if (isWriting) {
    event.target.blur();
    return;
  }
  const run = event.key === "?" ? showKeys : (opened ? OF_TICKET : OF_LIST)[event.key];
  if (!run || (!opened && location.hash.length > 1)) return;
  event.preventDefault();
  run();
});

async function begin() {
  show(main, loading());
  try {
    await loadQueue();
  } catch (error) {
    const words = error.status === 404 ? h("p", { class: "soft" }, "This task has opened no review queue. One appears here when a review task finds items that failed.") : problem(error, begin);
    show(main, h("p", {}, h("a", { href: `${ROOT}review` }, "All queues")), h("h1", {}, "Review of ", inert(`${dag} · ${task}`)), words);
    return;
  }
  show(main, head, overview, single);
  await route();
  window.addEventListener("hashchange", route);
  regularly(15, () => loadQueue(queue.round));
}

await begin();
