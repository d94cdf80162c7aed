// Pairs of the golden set that base and candidate have answered most unlike, side by side.

import { count, h, inert, longText, problem, select, show, field, loading } from "./dom.js";
import { get, query } from "./net.js";
import { figure, signed } from "./rollouts_words.js";

const PAGE = 5;
const SIDES = [
  ["either", "that differ most"],
  ["worse", "where the candidate is worse"],
  ["better", "where the candidate is better"],
];

function answer(arm, grade, said) {
  const head = h("div", { class: "role" }, `${arm}: ${figure(grade)}`);
  if (!said) return h("div", {}, head, h("p", { class: "soft" }, "This answer is no longer there: its results were deleted, or written anew."));
  return h(
    "div",
    {},
    head,
    said.outcome !== "ok" && h("p", { class: "bad" }, inert(`${said.outcome}${said.error ? `: ${said.error}` : ""}`)),
    said.text === null ? h("p", { class: "soft" }, "The model has said nothing.") : longText(said.text, `What the ${arm.toLowerCase()} said`),
    said.model && h("p", { class: "soft" }, inert(said.model)),
  );
}

function pair(each) {
  return h(
    "section",
    { class: "box" },
    h("h3", {}, inert(each.id), h("span", { class: each.effect < 0 ? "bad" : "good" }, ` ${signed(each.effect)}`)),
    each.question !== null && [h("div", { class: "role" }, "Asked"), longText(each.question, "What was asked")],
    each.reference !== null && [h("div", { class: "role" }, "Right"), longText(each.reference, "What is right")],
    h("div", { class: "columns" }, answer("Base", each.base, each.base_answer), answer("Candidate", each.candidate, each.candidate_answer)),
  );
}

// The pairs of a round by a metric, with ways to choose and to page.
export function pairs(path, round, metric) {
  const list = h("div", {});
  let side = "either";
  let offset = 0;

  async function load() {
    try {
      const page = await get(`${path}/rounds/${round}/pairs${query({ metric, side, limit: PAGE, offset })}`);
      const button = (label, to, off) => h("button", { type: "button", disabled: off, on: { click: () => ((offset = to), load()) } }, label);
      show(
        list,
        page.total > 0 && page.why_not && h("p", { class: "soft" }, inert(page.why_not)),
        page.total ? page.pairs.map(pair) : h("p", { class: "soft" }, side === "either" ? "No pair differs by this metric." : "There is no such pair."),
        page.total > PAGE &&
          h(
            "div",
            { class: "row middle" },
            button("Previous pairs", offset - PAGE, offset === 0),
            button("Next pairs", offset + PAGE, offset + PAGE >= page.total),
            h("span", { class: "soft" }, `${offset + 1} to ${Math.min(offset + PAGE, page.total)} of ${count(page.total, "pair")}`),
          ),
      );
    } catch (error) {
      show(list, error.status === 404 ? h("p", { class: "soft" }, inert(error.message)) : problem(error, load));
    }
  }

  show(list, loading());
  load();
  const choice = select(SIDES, side, (value) => ((side = value), (offset = 0), load()));
  return [h("div", { class: "row between" }, h("h2", {}, "Pairs"), field("Show pairs", choice)), list];
}
