// Rollouts: the list of them, and one with all that its rounds have found.

import { count, h, inert, loading, moment, problem, show } from "./dom.js";
import { ROOT, address, get, query } from "./net.js";
import { regularly } from "./page.js";
import { actions } from "./rollouts_act.js";
import { findings } from "./rollouts_rounds.js";
import { percent, words } from "./rollouts_words.js";

const PAGE = 50;
const ROUNDS = 100;

const main = document.querySelector("main");
const [dag, name] = (location.pathname.match(/dags\/([^/]+)\/rollouts(?:\/([^/]+))?$/)?.slice(1) ?? []).map((part) => part && decodeURIComponent(part));
const path = `/dags/${address(dag ?? "")}/rollouts/${address(name ?? "")}`;
const state = h("div", {});
const rounds = h("div", {});
const list = h("div", {});
const choice = {};
let seen = null;
let offset = 0;

function version(arm, found) {
  const params = Object.keys(found.params).length ? `, ${JSON.stringify(found.params)}` : "";
  return [h("dt", {}, arm), h("dd", {}, inert(found.prompt), h("span", { class: "soft" }, inert(`${params} (${found.sha.slice(0, 12)})`)))];
}

function ladder(rollout) {
  return rollout.ladder.map((rung, place) => [
    place ? " → " : "",
    rung === rollout.rate ? h("strong", { "aria-current": "step" }, percent(rung)) : percent(rung),
  ]);
}

function standing(rollout) {
  const worse = Object.entries(rollout.streaks).map(([metric, times]) => `${metric} in ${count(times, "round")}`);
  return h(
    "section",
    { class: "box" },
    h(
      "h2",
      { class: "title" },
      h("span", { class: rollout.state === "paused" ? "bad" : "good" }, rollout.state),
      rollout.state === "paused" ? `: all get the base (it was at ${percent(rollout.rung)})` : `: ${percent(rollout.rate)} get the candidate`,
    ),
    h(
      "dl",
      {},
      h("dt", {}, "Ladder"),
      h("dd", {}, ladder(rollout), h("span", { class: "soft" }, rollout.promotes ? "; climbed by itself" : "; climbed by people alone")),
      version("Base", rollout.base),
      version("Candidate", rollout.candidate),
      h("dt", {}, "Assigned by"),
      h("dd", {}, inert(rollout.unit)),
      h("dt", {}, "Pauses when"),
      h("dd", {}, `a metric is worse in ${count(rollout.patience, "round")} running`, worse.length > 0 && h("span", { class: "bad" }, inert(`; worse so far: ${worse.join(", ")}`))),
      h("dt", {}, "Last"),
      h("dd", {}, moment(rollout.last.at), ": ", inert(words(rollout.last))),
    ),
    actions(path, rollout, () => seen.rounds, drawn),
  );
}

function log(rollout) {
  const names = ["Step", "When", "What", "Candidate", "By", "Why"];
  const line = (step) => [
    String(step.number),
    moment(step.at),
    step.round ? `round ${step.round}: ${step.action}` : step.action,
    percent(step.rate),
    step.by ? inert(step.by.name) : h("span", { class: "soft" }, "by itself"),
    inert(step.why),
  ];
  return h(
    "details",
    {},
    h("summary", {}, `Steps (the latest ${rollout.steps.length} of ${rollout.number})`),
    h(
      "table",
      { class: "cards" },
      h("thead", {}, h("tr", {}, names.map((each) => h("th", { scope: "col" }, each)))),
      h("tbody", {}, rollout.steps.map((step) => h("tr", {}, line(step).map((cell, place) => h("td", { "data-name": names[place] }, cell))))),
    ),
  );
}

// Show a rollout, unless it is as it was; what has the focus keeps it.
async function drawn(rollout) {
  if (seen?.rollout.number === rollout.number) return;
  const focused = document.activeElement?.dataset?.key;
  const isOpen = Boolean(state.querySelector("details[open]"));
  const before = seen?.rollout.rounds;
  seen = { rollout, rounds: seen?.rounds ?? [] };
  if (before !== rollout.rounds) seen.rounds = (await get(`${path}/rounds${query({ limit: ROUNDS })}`)).rounds;
  show(state, standing(rollout), log(rollout));
  state.querySelector("details").open = isOpen;
  if (focused) (state.querySelector(`[data-key="${focused}"]`) ?? state.querySelector("button"))?.focus();
  if (before !== rollout.rounds) show(rounds, findings(path, seen.rounds, choice));
}

async function loadOne() {
  try {
    await drawn(await get(path));
  } catch (error) {
    if (seen) throw error;
    show(state, problem(error, loadOne));
  }
}

function entry(rollout) {
  const cells = {
    Rollout: h("a", { href: `${ROOT}dags/${address(rollout.dag_id)}/rollouts/${address(rollout.name)}` }, inert(`${rollout.dag_id} · ${rollout.name}`)),
    State: h("span", { class: rollout.state === "paused" ? "bad" : "good" }, rollout.state),
    Candidate: percent(rollout.rate),
    Tried: inert(`${rollout.base.prompt} → ${rollout.candidate.prompt}`),
    Rounds: String(rollout.rounds),
    Last: [moment(rollout.last.at), ": ", inert(words(rollout.last))],
  };
  return h("tr", {}, Object.entries(cells).map(([column, cell]) => h("td", { "data-name": column }, h("span", {}, cell))));
}

async function loadList() {
  try {
    const page = await get(`/rollouts${query({ dag_id: dag, limit: PAGE, offset })}`);
    const button = (label, to, off) => h("button", { type: "button", disabled: off, on: { click: () => ((offset = to), loadList()) } }, label);
    const columns = ["Rollout", "State", "Candidate", "Tried", "Rounds", "Last"];
    if (!page.total) {
      show(list, h("p", { class: "soft" }, "No rollout has been opened", dag ? " by this DAG" : "", ". One appears here when its LLMBatchRolloutOperator runs."));
      return;
    }
    const focused = list.contains(document.activeElement) && document.activeElement.getAttribute("href");
    show(
      list,
      h(
        "table",
        { class: "cards" },
        h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col" }, column)))),
        h("tbody", {}, page.rollouts.map(entry)),
      ),
      page.total > PAGE && h("div", { class: "row" }, button("Newer", offset - PAGE, offset === 0), button("Older", offset + PAGE, offset + PAGE >= page.total)),
    );
    if (focused) [...list.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
  } catch (error) {
    show(list, problem(error, loadList));
  }
}

if (name) {
  show(main, h("h1", {}, inert(`${dag} · ${name}`)), h("p", {}, h("a", { href: `${ROOT}rollouts` }, "All rollouts")), state, rounds);
  show(state, loading());
  await loadOne();
  regularly(5, loadOne);
} else {
  show(main, h("h1", {}, dag ? inert(`Rollouts of ${dag}`) : "Rollouts"), dag && h("p", {}, h("a", { href: `${ROOT}rollouts` }, "All rollouts")), list);
  show(list, loading());
  await loadList();
  regularly(20, loadList);
}
