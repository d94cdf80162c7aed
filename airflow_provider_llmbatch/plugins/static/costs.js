// What runs have cost: by day, DAG, model and prompt, and against budgets; filtered here, from one answer.

import uPlot from "./uplot.js";
import { count, field, h, inert, loading, notify, problem, select, show } from "./dom.js";
import { ROOT, get } from "./net.js";

const DAYS = [["7", "last 7 days"], ["30", "last 30 days"], ["90", "last 90 days"]];
const MEASURES = { usd: ["Money", (row) => Number(row.usd)], tokens: ["Tokens", (row) => row.tokens_in + row.tokens_out] };
const GROUPS = [["dag_id", "DAG"], ["model", "Model"], ["prompt", "Prompt version"]];
const SHOWN_MOST = 50;
const HEIGHT = 220;

const main = document.querySelector("main");
const body = h("div", {});
const budgets = h("section", { "aria-labelledby": "budgets" });
const asked = new URLSearchParams(location.hash.slice(1));
const state = { days: asked.get("days") ?? "30", measure: asked.get("measure") ?? "usd", dag_id: asked.get("dag_id") ?? "", model: asked.get("model") ?? "", prompt: asked.get("prompt") ?? "" };
let found = null;
let chart = null;

const money = (usd) => `$${usd.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: usd < 1 ? 4 : 2 })}`;
const whole = (number) => number.toLocaleString("en");
const shown = (measure, number) => (measure === "usd" ? money(number) : whole(number));
const named = (name) => (name === "" ? "not known" : name);

function sum(rows) {
  const total = { usd: 0, tokens_in: 0, tokens_cached: 0, tokens_out: 0, calls: 0, unpriced: 0, maybe_paid: 0, estimated: false };
  for (const row of rows) {
    total.usd += Number(row.usd);
    for (const name of ["tokens_in", "tokens_cached", "tokens_out", "calls", "unpriced", "maybe_paid"]) total[name] += row[name];
    total.estimated ||= row.estimated;
  }
  return total;
}

// Rows that pass all filters.
function kept() {
  return found.spent.filter((row) => GROUPS.every(([key]) => state[key] === "" || row[key] === unset(state[key])));
}

// What is not known has a name among the choices, and none in the answer.
const UNKNOWN = "\u0000";
const unset = (value) => (value === UNKNOWN ? "" : value);

function grouped(rows, key) {
  const groups = new Map();
  for (const row of rows) groups.set(row[key], [...(groups.get(row[key]) ?? []), row]);
  return [...groups].map(([name, mine]) => [name, sum(mine)]);
}

function change(name, value) {
  state[name] = value;
  const told = new URLSearchParams(Object.entries(state).filter(([, each]) => each !== ""));
  history.replaceState(null, "", `#${told}`);
  if (name === "days") load();
  else draw();
}

function filters() {
  const choices = ([key, words]) => {
    const names = [...new Set(found.spent.map((row) => row[key]))].sort();
    const options = [["", "all"], ...names.map((name) => [name === "" ? UNKNOWN : name, named(name)])];
    if (state[key] !== "" && !options.some(([value]) => value === state[key])) options.push([state[key], state[key]]);
    return field(words, select(options, state[key], (value) => change(key, value), { id: `filter-${key}` }));
  };
  return h(
    "div",
    { class: "row" },
    field("Time", select(DAYS, state.days, (value) => change("days", value), { id: "filter-days" })),
    GROUPS.map(choices),
    field("Show", select(Object.entries(MEASURES).map(([key, [words]]) => [key, words]), state.measure, (value) => change("measure", value), { id: "filter-measure" })),
  );
}

function totals(rows) {
  const total = sum(rows);
  const about = total.estimated ? "about " : "";
  return h(
    "dl",
    { class: "box" },
    h("dt", {}, "Money"),
    h("dd", {}, h("strong", {}, `${total.unpriced ? "at least " : ""}${money(total.usd)}`)),
    h("dt", {}, "Tokens"),
    h("dd", {}, `${about}${whole(total.tokens_in)} in (${whole(total.tokens_cached)} cached), ${about}${whole(total.tokens_out)} out`),
    h("dt", {}, "Calls"),
    h("dd", {}, whole(total.calls)),
  );
}

// One entry for each day of the time, also where nothing was spent.
function byDay(rows) {
  const days = new Map();
  for (let at = Date.parse(found.since); at <= Date.parse(found.until); at += 86_400_000) days.set(new Date(at).toISOString().slice(0, 10), 0);
  for (const row of rows) {
    if (days.has(row.day)) days.set(row.day, days.get(row.day) + MEASURES[state.measure][1](row));
  }
  return [...days];
}

function bars(days) {
  const words = MEASURES[state.measure][0];
  const most = days.reduce((best, each) => (each[1] > best[1] ? each : best));
  const place = h("div", { class: "chart", role: "img", "aria-label": `${words} by day: ${shown(state.measure, days.reduce((all, [, each]) => all + each, 0))} in all, most on ${most[0]}. The table below has the figures.` });
  const draws = () => {
    chart?.destroy();
    const style = getComputedStyle(document.documentElement);
    const [ink, line, accent] = ["--soft", "--line", "--accent"].map((name) => style.getPropertyValue(name).trim()).map(resolved);
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui, sans-serif" };
    chart = new uPlot(
      {
        width: Math.max(place.clientWidth, 200),
        height: HEIGHT,
        legend: { show: false },
        cursor: { show: false },
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
        // Half a day to each side, so that the first and the last bar are whole.
        scales: { x: { range: (_, first, last) => [first - 43_200, last + 43_200] }, y: { range: (_, least, largest) => [0, largest > 0 ? largest * 1.05 : 1] } },
        axes: [
          { ...axis, grid: { show: false }, values: (_, at) => at.map((each) => new Date(each * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" })), incrs: [1, 2, 7, 14, 30].map((each) => each * 86400), space: 60 },
          { ...axis, size: 78, values: (_, at) => at.map((each) => shortened(each)) },
        ],
        series: [{}, { fill: accent, stroke: accent, width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [0.7, 60] }) }],
      },
      [days.map(([day]) => Date.parse(day) / 1000), days.map(([, each]) => each)],
      place,
    );
  };
  return [place, draws];
}

// A canvas takes no light-dark(): the browser tells which of both it is.
function resolved(colour) {
  const probe = h("span", {});
  probe.style.color = colour;
  document.body.append(probe);
  const told = getComputedStyle(probe).color;
  probe.remove();
  return told;
}

function shortened(number) {
  const text = number.toLocaleString("en", { notation: "compact", maximumFractionDigits: number < 1 ? 4 : 1 });
  return state.measure === "usd" ? `$${text}` : text;
}

function dayTable(days) {
  const spent = days.filter(([, each]) => each > 0).reverse();
  return h(
    "details",
    {},
    h("summary", {}, "Days in figures"),
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Day (UTC)"), h("th", { scope: "col", class: "figure" }, MEASURES[state.measure][0]))),
      h("tbody", {}, spent.map(([day, each]) => h("tr", {}, h("td", {}, day), h("td", { class: "figure" }, shown(state.measure, each))))),
    ),
  );
}

const COLUMNS = ["Money", "Share", "Tokens in", "Tokens out", "Calls"];

function groupTable([key, words]) {
  const of = MEASURES[state.measure][1];
  const groups = grouped(kept(), key).sort(([, one], [, other]) => of(other) - of(one));
  const all = groups.reduce((total, [, each]) => total + of(each), 0);
  const line = ([name, each]) => {
    const share = all ? of(each) / all : 0;
    const cells = [
      `${each.unpriced ? "at least " : ""}${money(each.usd)}`,
      [h("progress", { max: 1, value: share, "aria-label": `Share of ${named(name)}` }), ` ${Math.round(share * 100)} %`],
      whole(each.tokens_in),
      whole(each.tokens_out),
      whole(each.calls),
    ];
    return h(
      "tr",
      {},
      h("td", { "data-name": words }, h("div", {}, inert(named(name)))),
      cells.map((cell, number) => h("td", { "data-name": COLUMNS[number], class: COLUMNS[number] === "Share" ? "share" : "figure" }, h("div", {}, cell))),
    );
  };
  return h(
    "section",
    { "aria-label": `By ${words}` },
    h("h2", {}, `By ${key === "dag_id" ? words : words.toLowerCase()}`),
    h(
      "table",
      { class: "cards costs" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, words), COLUMNS.map((name) => h("th", { scope: "col", class: name !== "Share" && "figure" }, name)))),
      h("tbody", {}, groups.slice(0, SHOWN_MOST).map(line)),
    ),
    groups.length > SHOWN_MOST && h("p", { class: "soft" }, `${whole(groups.length - SHOWN_MOST)} more have less; filter to see them.`),
  );
}

// What the sums above leave out, and why.
function unknown(rows) {
  const total = sum(rows);
  const undated = sum(rows.filter((row) => row.day === ""));
  const sentences = [
    total.unpriced && `${count(total.unpriced, "call")} ${total.unpriced === 1 ? "has" : "have"} no known price, so the money is a lower bound. Give prices in the connection or in [llmbatch] prices_path.`,
    total.estimated && "Tokens of some calls were counted here, as the service did not tell them.",
    total.maybe_paid && `${count(total.maybe_paid, "call")} may have been charged without leaving a reply; ${total.maybe_paid === 1 ? "it is" : "they are"} not in the money.`,
    undated.calls > 0 && `${count(undated.calls, "call")} (${money(undated.usd)}) of earlier versions of this package ${undated.calls === 1 ? "has" : "have"} no day: counted in the sums, not in the chart.`,
    found.without_results && `${count(found.without_results, "run")} of these DAGs in this time ${found.without_results === 1 ? "has" : "have"} no results here: nothing was sent, or they were deleted. What deleted runs have cost is not known.`,
    found.left_out && `Only the latest ${whole(found.most_runs)} runs are read; ${count(found.left_out, "run")} before them ${found.left_out === 1 ? "is" : "are"} left out.`,
    found.unread && `${count(found.unread, "part")} of runs that have not ended ${found.unread === 1 ? "is" : "are"} too large to be added up now; they count when they end.`,
    ...found.unreadable.slice(0, 5).map((why) => `Could not be read: ${why}`),
    found.unreadable_total > 5 && `${whole(found.unreadable_total - 5)} more could not be read.`,
  ].filter(Boolean);
  return h(
    "section",
    { "aria-labelledby": "unknown" },
    h("h2", { id: "unknown" }, "What is not known"),
    sentences.length ? h("ul", {}, sentences.map((each) => h("li", {}, inert(each)))) : h("p", { class: "soft" }, "Nothing is missing from these sums, as far as the ledgers of these runs tell."),
    h("p", { class: "soft" }, `${count(found.runs, "run")} read, at most the latest ${whole(found.most_runs)}; days are those of UTC, from ${found.since} to ${found.until}.`),
  );
}

function draw() {
  const held = body.contains(document.activeElement) ? document.activeElement.id : "";
  const isOpen = Boolean(body.querySelector("details[open]"));
  const rows = kept();
  if (!found.spent.length) {
    show(body, filters(), h("p", { class: "soft" }, "Nothing was spent in this time, by DAGs that you may read. Costs appear here when a dispatch task begins to send."), unknown(rows));
  } else if (!rows.length) {
    show(body, filters(), h("p", { class: "soft" }, "Nothing was spent by what is chosen."), unknown(rows));
  } else {
    const days = byDay(rows);
    const [place, draws] = bars(days);
    const table = dayTable(days);
    table.open = isOpen;
    show(body, filters(), totals(rows), h("h2", {}, "By day"), place, table, GROUPS.map(groupTable), unknown(rows));
    draws();
    redraw = draws;
  }
  if (held) document.getElementById(held)?.focus();
}

let redraw = null;
let width = 0;

function again() {
  if (body.querySelector(".chart")) redraw?.();
}

new ResizeObserver(() => {
  if (body.clientWidth !== width) again();
  width = body.clientWidth;
}).observe(body);
new MutationObserver(again).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);

async function load() {
  if (!found) show(body, loading());
  body.setAttribute("aria-busy", "true");
  try {
    const wanted = state.days;
    const told = await get(`/costs?days=${encodeURIComponent(wanted)}`);
    if (wanted !== state.days) return;
    if (found) notify(`Costs of the last ${wanted} days.`);
    found = told;
    draw();
  } catch (error) {
    show(body, problem(error, load));
    found = null;
  } finally {
    body.removeAttribute("aria-busy");
  }
}

function resets(seconds) {
  const hours = seconds / 3600;
  return hours < 48 ? `in ${Math.ceil(hours)} h` : `in ${Math.ceil(hours / 24)} days`;
}

function budgetLine(budget) {
  const amount = (text) => (budget.unit === "usd" ? money(Number(text)) : whole(Number(text)));
  const isKnown = Number(budget.used) > 0;
  const names = ["Budget", "Connections", "Used", "Of", "Begins anew"];
  const cells = [
    [inert(budget.name), h("span", { class: "soft" }, ` per ${budget.per}`)],
    inert(budget.conn_ids.join(", ")),
    isKnown
      ? [h("progress", { max: 1, value: Math.min(budget.share, 1), "aria-label": `Use of budget ${budget.name}` }), h("span", { class: budget.share >= 1 && "bad" }, ` ${amount(budget.used)}, ${Math.round(budget.share * 100)} %`)]
      : `nothing that a worker has told of this ${budget.per}`,
    `${amount(budget.capacity)}${budget.unit === "tokens" ? " tokens" : ""}`,
    resets(budget.resets_s),
  ];
  return h("tr", {}, cells.map((cell, number) => h("td", { "data-name": names[number] }, h("div", {}, cell))));
}

async function loadBudgets() {
  const title = h("h2", { id: "budgets" }, "Budgets of connections");
  show(budgets, title, loading());
  try {
    const told = await get("/budgets");
    if (!told.may_see) return show(budgets, title, h("p", { class: "soft" }, "Budgets are shown to those who may read connections."));
    show(
      budgets,
      title,
      told.budgets.length > 0 &&
        h(
          "table",
          { class: "cards" },
          h("thead", {}, h("tr", {}, ["Budget", "Connections", "Used", "Of", "Begins anew"].map((name) => h("th", { scope: "col" }, name)))),
          h("tbody", {}, told.budgets.map(budgetLine)),
        ),
      !told.budgets.length && h("p", { class: "soft" }, "No connection in Airflow's database or the environment has a budget per day or month. Those in a secrets backend cannot be listed."),
      told.budgets.length > 0 && h("p", { class: "soft" }, "What is used is what the state knows, calls in flight with all that they have reserved. Connections in a secrets backend cannot be listed."),
      told.per_run.length > 0 && h("p", { class: "soft" }, "Budgets per run, of ", inert(told.per_run.join(", ")), ", stand with each run: ", h("a", { href: `${ROOT}runs` }, "Runs"), "."),
      told.unreadable.map((why) => h("p", { class: "bad" }, inert(why))),
    );
  } catch (error) {
    show(budgets, title, problem(error, loadBudgets));
  }
  return null;
}

document.head.append(h("link", { rel: "stylesheet", href: `${ROOT}static/uplot.css` }));
if (!DAYS.some(([value]) => value === state.days)) state.days = "30";
if (!(state.measure in MEASURES)) state.measure = "usd";
show(main, h("h1", {}, "Costs"), body, budgets);
await Promise.all([load(), loadBudgets()]);
