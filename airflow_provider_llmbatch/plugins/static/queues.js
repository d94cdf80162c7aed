// The list of queues.

import { count, h, inert, loading, moment, problem, select, show, field } from "./dom.js";
import { ROOT, address, get, query } from "./net.js";
import { regularly } from "./page.js";

const PAGE = 50;
const main = document.querySelector("main");
const list = h("div", {});
let state = "open";
let offset = 0;

function link(queue) {
  const path = `dags/${address(queue.dag_id)}/runs/${address(queue.run_id)}/tasks/${address(queue.task_id)}/review`;
  return `${ROOT}${path}${query({ map_index: queue.map_index < 0 ? "" : queue.map_index })}`;
}

function line(queue) {
  const index = queue.map_index < 0 ? "" : ` [${queue.map_index}]`;
  return h(
    "tr",
    {},
    h("td", { "data-name": "Queue" }, h("a", { href: link(queue) }, inert(`${queue.dag_id} · ${queue.task_id}${index}`))),
    h("td", { "data-name": "Run" }, inert(queue.run_id)),
    h("td", { "data-name": "State" }, queue.state, queue.round > 1 ? `, round ${queue.round}` : ""),
    h(
      "td",
      { "data-name": "Decided" },
      h("span", {}, `${queue.decided.toLocaleString("en")} of ${queue.needed.toLocaleString("en")} needed`),
    ),
    h("td", { "data-name": "Tickets", class: "figure" }, queue.tickets.toLocaleString("en")),
    h("td", { "data-name": "Opened" }, moment(queue.opened_at)),
    h("td", { "data-name": "Deadline" }, moment(queue.deadline)),
  );
}

function table(page) {
  const names = ["Queue", "Run", "State", "Decided", "Tickets", "Opened", "Deadline"];
  const more = (words, step, off) =>
    h("button", { type: "button", disabled: off, on: { click: () => ((offset += step), load()) } }, words);
  return [
    h(
      "table",
      { class: "cards" },
      h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col", class: name === "Tickets" && "figure" }, name)))),
      h("tbody", {}, page.queues.map(line)),
    ),
    page.total > PAGE &&
      h(
        "div",
        { class: "row middle" },
        more("Newer", -PAGE, offset === 0),
        more("Older", PAGE, offset + PAGE >= page.total),
        h("span", { class: "soft" }, count(page.total, "queue")),
      ),
  ];
}

async function load() {
  try {
    const page = await get(`/queues${query({ state, limit: PAGE, offset })}`);
    const none = state === "open" ? "No queue waits for you. One appears here when a review task finds items that failed." : "There has been no queue yet.";
    show(list, page.total ? table(page) : h("p", { class: "soft" }, none));
  } catch (error) {
    show(list, problem(error, load));
  }
}

const states = select([["open", "that wait"], ["all", "all"]], state, (value) => ((state = value), (offset = 0), load()));
show(main, h("div", { class: "row between" }, h("h1", {}, "Review queues"), field("Show", states)), list);
show(list, loading());
await load();
regularly(20, load);
