// Runs: how far they are, what they have cost, what they wait for; and to stop them.

import { count, field, h, inert, loading, moment, notify, problem, show } from "./dom.js";
import { AIRFLOW, ROOT, address, ask, get, post, remove } from "./net.js";
import { regularly } from "./page.js";

const PAGE = 20;
// What has not said anything for so long is most likely not at work.
const SILENT_S = 60;

const main = document.querySelector("main");
const list = h("div", {});
const single = location.pathname.match(/dags\/([^/]+)\/runs\/([^/]+)\/progress$/)?.slice(1).map(decodeURIComponent);
const boxes = new Map();
let offset = 0;

const money = (usd) => `$${Number(usd).toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 4 })}`;

const WAITS = {
  in_flight: "a free slot among the calls at once",
  turn: "others, who have waited longer",
  throttle: "the service, which asked to wait",
  gate: "a route that is parked",
};

// Limits are named by account, models and amount, budgets by whose they are.
function named(key) {
  const parts = key.split("/");
  if (parts[0] === "budget") return `budget ${parts.slice(1).join("/")}`;
  if (parts.length !== 3) return WAITS[key] ?? key;
  const [account, models, limit] = parts;
  return `${limit.replaceAll("_", " ")} of account ${account}${models === "*" ? "" : `, models ${models}`}`;
}

function duration(seconds) {
  if (seconds === null) return "not known";
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  if (seconds < 5400) return `${Math.ceil(seconds / 60)} min`;
  return `${(seconds / 3600).toLocaleString("en", { maximumFractionDigits: 1 })} h`;
}

function spent(task) {
  const against = task.budget_usd ? ` of ${money(task.budget_usd)} budget` : task.planned_usd ? `, planned ${money(task.planned_usd)}` : "";
  return `${task.unpriced ? "at least " : ""}${money(task.usd)}${against}${task.unpriced ? "; some calls have no known price" : ""}`;
}

function meter(name, share) {
  return [
    h("dt", {}, inert(named(name))),
    h("dd", {}, h("progress", { max: 1, value: Math.min(share, 1), "aria-label": `Use of ${named(name)}` }), ` ${Math.round(share * 100)} %`),
  ];
}

function limits(task) {
  const use = {};
  for (const part of task.parts) {
    for (const [name, share] of Object.entries(part.use)) use[name] = Math.max(use[name] ?? 0, share);
  }
  const waits = [...new Set(task.parts.map((part) => part.waits_for).filter(Boolean))];
  const fullest = Object.entries(use).sort(([, one], [, other]) => other - one);
  return [
    task.state === "running" && [h("dt", {}, "Waits for"), h("dd", {}, waits.length ? inert(waits.map(named).join("; ")) : "nothing")],
    fullest.length ? fullest.map(([name, share]) => meter(name, share)) : [h("dt", {}, "Limits"), h("dd", {}, "their use is not known")],
  ];
}

function parts(task) {
  if (task.parts.length < 2) return null;
  return h(
    "details",
    {},
    h("summary", {}, count(task.parts.length, "part")),
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, ["Part", "State", "Done", "Items"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, task.parts.map((part) => h("tr", {}, [part.number, part.state, part.done, part.items].map((cell) => h("td", {}, String(cell)))))),
    ),
  );
}

function taskView(task) {
  const newest = task.parts.map((part) => part.at).filter(Boolean).sort().at(-1);
  const silent = newest ? (Date.now() - Date.parse(newest)) / 1000 : 0;
  const outcomes = Object.entries(task.counts).map(([outcome, number]) => `${outcome} ${number.toLocaleString("en")}`);
  if (task.resumed) outcomes.push(`from earlier tries ${task.resumed.toLocaleString("en")}`);
  const reasons = [...new Set(task.parts.map((part) => part.reason).filter(Boolean))];
  return h(
    "section",
    { class: "box" },
    h("h3", {}, inert(task.task_id), task.map_index >= 0 ? ` [${task.map_index}]` : "", h("span", { class: "soft" }, ` ${task.state}`)),
    h("p", {}, h("progress", { max: Math.max(task.items, 1), value: task.done, "aria-label": `Done of ${task.task_id}` }), ` ${task.done.toLocaleString("en")} of ${count(task.items, "item")}`),
    task.state === "running" && silent > SILENT_S && h("p", { class: "bad" }, `Nothing was heard for ${duration(silent)}. If Airflow shows the task as failed or deferred, that is why.`),
    h(
      "dl",
      {},
      task.state === "running" && [h("dt", {}, "Time left"), h("dd", {}, `${duration(task.eta_s)}, at ${task.rate.toLocaleString("en", { maximumFractionDigits: 1 })} items/s`)],
      h("dt", {}, "Outcomes"),
      h("dd", {}, inert(outcomes.join(", ") || "none yet")),
      h("dt", {}, "Tokens"),
      h("dd", {}, `${(task.tokens.in ?? 0).toLocaleString("en")} in (${(task.tokens.cached ?? 0).toLocaleString("en")} cached), ${(task.tokens.out ?? 0).toLocaleString("en")} out`),
      h("dt", {}, "Money"),
      h("dd", {}, spent(task)),
      limits(task),
      newest && [h("dt", {}, "As of"), h("dd", {}, moment(newest))],
      reasons.length > 0 && [h("dt", {}, "Reason"), h("dd", {}, inert(reasons.join("; ")))],
    ),
    parts(task),
  );
}

function ways(path, stop, again) {
  const act = async (run, words) => {
    try {
      await run();
      notify(words);
    } catch (error) {
      notify(error.message);
    }
    again();
  };
  if (stop) {
    return h(
      "div",
      {},
      h("p", { class: "bad" }, "Stopped by ", inert(stop.by), stop.why ? [": ", inert(stop.why)] : "", ". To go on, lift the stop and clear the tasks that have stopped."),
      h("button", { type: "button", on: { click: () => act(() => remove(`${path}/stop`), "The run may send again; clear the tasks that have stopped.") } }, "Lift the stop"),
    );
  }
  return h("button", { type: "button", on: { click: () => askWhy((why) => act(() => post(`${path}/stop`, { why }), "The run stops within two seconds.")) } }, "Stop …");
}

function askWhy(go) {
  const why = h("input", { type: "text", maxlength: 200, value: "" });
  const dialog = h(
    "dialog",
    { "aria-labelledby": "stopping" },
    h(
      "form",
      { method: "dialog" },
      h("h2", { id: "stopping" }, "Stop this run"),
      h("p", {}, "Its tasks store what is in flight, leave the rest unsent, and fail without a retry."),
      field("Why (may be left out)", why),
      h("div", { class: "row" }, h("button", { value: "yes", class: "main" }, "Stop"), h("button", { value: "" }, "Cancel")),
    ),
  );
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (dialog.returnValue === "yes") go(why.value);
  });
  document.body.append(dialog);
  dialog.showModal();
}

async function draw(dag, run, about) {
  const path = `/dags/${address(dag)}/runs/${address(run)}`;
  const key = `${dag}\n${run}`;
  if (!boxes.has(key)) boxes.set(key, h("div", {}));
  const box = boxes.get(key);
  try {
    const [progress, stop] = await Promise.all([get(`${path}/progress`), get(`${path}/stop`)]);
    if (!progress.tasks.length && !single) return show(box);
    // What somebody has opened stays so when it is drawn anew.
    const isOpen = Boolean(box.querySelector("details[open]"));
    const isFocused = box.contains(document.activeElement);
    if (isFocused && isOpen) return null;
    show(
      box,
      h("div", { class: "row between middle" }, h("h2", {}, h("a", { href: `${ROOT}${path.slice(1)}/progress` }, inert(`${dag} · ${run}`))), about && h("span", { class: "soft" }, inert(about))),
      progress.tasks.length ? [progress.tasks.map(taskView), ways(path, stop.stop, () => draw(dag, run, about))] : h("p", { class: "soft" }, "No task of this run has begun to send items."),
    );
    if (isFocused) box.querySelector("button")?.focus();
  } catch (error) {
    show(box, h("h2", {}, inert(`${dag} · ${run}`)), problem(error, () => draw(dag, run, about)));
  }
  return null;
}

async function load() {
  if (single) {
    if (!boxes.size) show(list, loading());
    await draw(...single);
    show(list, [...boxes.values()]);
    return;
  }
  try {
    const { dag_ids } = await get("/dags");
    const body = { dag_ids, order_by: "-run_after", page_limit: PAGE, page_offset: offset };
    const found = dag_ids.length ? await ask(`${AIRFLOW}api/v2/dags/~/dagRuns/list`, body) : { dag_runs: [], total_entries: 0 };
    await Promise.all(found.dag_runs.map((run) => draw(run.dag_id, run.dag_run_id, run.state)));
    const button = (words, to, off) => h("button", { type: "button", disabled: off, on: { click: () => ((offset = to), load()) } }, words);
    show(
      list,
      found.dag_runs.length ? found.dag_runs.map((run) => boxes.get(`${run.dag_id}\n${run.dag_run_id}`)) : h("p", { class: "soft" }, "No run has sent anything yet. One appears here when a dispatch task starts."),
      found.total_entries > PAGE && h("div", { class: "row" }, button("Newer", offset - PAGE, offset === 0), button("Older", offset + PAGE, offset + PAGE >= found.total_entries)),
    );
  } catch (error) {
    show(list, problem(error, load));
  }
}

show(main, h("h1", {}, single ? "Progress of a run" : "Runs"), single && h("p", {}, h("a", { href: `${ROOT}runs` }, "All runs")), list);
show(list, loading());
await load();
regularly(single ? 5 : 30, load);
