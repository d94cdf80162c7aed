// What rounds have found: metrics with intervals, how they went, and how scores are spread.

import { field, h, inert, moment, problem, select, show, loading } from "./dom.js";
import { get } from "./net.js";
import { distributionChart, effectChart } from "./rollouts_charts.js";
import { pairs } from "./rollouts_pairs.js";
import { VERDICTS, figure, percent, signed } from "./rollouts_words.js";

const COLUMNS = ["Metric", "Verdict", "Effect", "Interval", "Threshold", "Base", "Candidate", "Units", "Missing", "p (Holm)", "Power", "Distributions"];
const GOOD = { better: "good", worse: "bad", not_run: "bad" };

const between = (each) => (each.low === null ? "not known" : `${signed(each.low)} to ${signed(each.high)}`);

function line(each) {
  const cells = [
    inert(each.metric),
    h("strong", { class: GOOD[each.verdict] }, VERDICTS[each.verdict]),
    signed(each.effect),
    between(each),
    each.threshold === null ? "not known" : `±${figure(each.threshold)}`,
    figure(each.mean_base),
    figure(each.mean_candidate),
    each.paired ? `${each.base.toLocaleString("en")} pairs` : `${each.base.toLocaleString("en")} and ${each.candidate.toLocaleString("en")}`,
    `${each.missing_base.toLocaleString("en")} and ${each.missing_candidate.toLocaleString("en")}`,
    figure(each.p_holm),
    each.power === null ? "not known" : percent(each.power),
    [each.ks_distance === null ? "not known" : `D ${figure(each.ks_distance)}, p ${figure(each.ks_p)} (${each.ks_method})`],
  ];
  return [
    h("tr", {}, cells.map((cell, place) => h("td", { "data-name": COLUMNS[place] }, h("span", {}, cell)))),
    each.note && h("tr", {}, h("td", { colspan: COLUMNS.length, class: "soft", "data-name": "Note" }, h("span", {}, inert(`${each.metric}: ${each.note}`)))),
  ];
}

function metrics(round) {
  if (!round.comparisons.length) return h("p", { class: "soft" }, "This round has compared nothing.");
  return h(
    "div",
    { class: "wide-table", tabindex: "0", role: "group", "aria-label": "Metrics of the round" },
    h(
      "table",
      { class: "cards" },
      h("thead", {}, h("tr", {}, COLUMNS.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, round.comparisons.map(line)),
    ),
  );
}

// How a metric went over the rounds, as a chart and as the figures behind it.
function course(rounds, metric) {
  const known = rounds
    .map((round) => ({ number: round.number, ...round.comparisons.find((each) => each.metric === metric) }))
    .filter((each) => each.effect !== undefined && each.effect !== null)
    .reverse();
  if (!known.length) return h("p", { class: "soft" }, "This metric was not compared in any of these rounds.");
  const names = ["Round", "Effect", "Interval", "Threshold", "Verdict"];
  const row = (each) => [String(each.number), signed(each.effect), between(each), `±${figure(each.threshold)}`, VERDICTS[each.verdict]];
  return [
    effectChart(known, metric),
    h(
      "details",
      {},
      h("summary", {}, "Figures of this chart"),
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, known.map((each) => h("tr", {}, row(each).map((cell) => h("td", {}, cell))))),
      ),
    ),
  ];
}

function spread(path, round, metric) {
  const place = h("div", {});
  async function load() {
    try {
      const { distributions } = await get(`${path}/rounds/${round}/distributions`);
      const found = distributions.find((each) => each.metric === metric);
      show(place, found?.edges.length ? distributionChart(found) : h("p", { class: "soft" }, "This metric has no scores in this round."));
    } catch (error) {
      show(place, error.status === 404 ? h("p", { class: "soft" }, inert(error.message)) : problem(error, load));
    }
  }
  show(place, loading());
  load();
  return place;
}

// Everything about the rounds, the latest first; `choice` is what whoever looks has chosen, and stays so.
export function findings(path, rounds, choice) {
  if (!rounds.length) return h("p", { class: "soft" }, "No round has been closed yet. One is when grades come to an LLMBatchRolloutOperator.");
  const below = h("div", {});
  const names = [...new Set(rounds.flatMap((round) => round.comparisons.map((each) => each.metric)))];
  let chosen = rounds.find((round) => round.number === choice.round) ?? rounds[0];
  const telling = chosen.comparisons.find((each) => each.verdict === "worse") ?? chosen.comparisons[0];
  let metric = names.includes(choice.metric) ? choice.metric : (telling?.metric ?? names[0]);

  function draw() {
    const compared = chosen.comparisons.find((each) => each.metric === metric);
    show(
      below,
      h("p", {}, moment(chosen.at), ": ", h("strong", {}, chosen.action), inert(`, ${chosen.why}`)),
      chosen.mismatch_p !== null && h("p", { class: chosen.mismatch_p < 0.001 ? "bad" : "soft" }, `Units split as the rate says: p ${figure(chosen.mismatch_p)}.`),
      metrics(chosen),
      metric !== undefined && [
        h("div", { class: "columns" }, h("section", {}, h("h2", {}, inert(`${metric} by round`)), course(rounds, metric)), h("section", {}, h("h2", {}, inert(`Scores of ${metric} in round ${chosen.number}`)), spread(path, chosen.number, metric))),
        compared?.paired ? pairs(path, chosen.number, metric) : h("p", { class: "soft" }, "There are no pairs by this metric: production items get one version each."),
      ],
    );
  }

  const choices = rounds.map((round) => [String(round.number), `${round.number}: ${round.action}`]);
  draw();
  return [
    h(
      "div",
      { class: "row between" },
      h("h2", {}, "Rounds"),
      h(
        "div",
        { class: "row" },
        field("Round", select(choices, String(chosen.number), (value) => ((chosen = rounds.find((each) => String(each.number) === value)), (choice.round = chosen.number), draw()))),
        names.length > 0 && field("Metric", select(names.map((each) => [each, each]), metric, (value) => ((metric = choice.metric = value), draw()))),
      ),
    ),
    below,
  ];
}
