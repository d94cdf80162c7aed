// What people do with a rollout: pause, resume, promote.

import { field, h, inert, notify } from "./dom.js";
import { post } from "./net.js";
import { VERDICTS, percent } from "./rollouts_words.js";

const DONE = { pause: "Paused: workers that send now give the base to all within two seconds.", resume: "Resumed at the lowest rung.", promote: "Promoted." };

function ways(rollout) {
  if (rollout.state === "paused") return [{ act: "resume", title: `Resume at ${percent(rollout.ladder[0])}`, told: "It begins again at the lowest rung. Metrics that were worse have to be worse again before it pauses." }];
  const climbs = [];
  if (rollout.next_rate !== null) climbs.push({ act: "promote", to: "next", rate: rollout.next_rate });
  if (rollout.rate < 1 && rollout.next_rate !== 1) climbs.push({ act: "promote", to: "all", rate: 1 });
  return [
    { act: "pause", title: "Pause", told: "All items get the base from then on, within two seconds in tasks that run. Only a person resumes it." },
    ...climbs.map((each) => ({ ...each, title: `Promote to ${percent(each.rate)}`, told: `${percent(each.rate)} of the units get the candidate, in tasks that begin from then on.` })),
  ];
}

// The buttons; `latest` gives the rounds that are shown, and `drawn` shows a rollout as it is then.
export function actions(path, rollout, latest, drawn) {
  const buttons = ways(rollout).map((way) =>
    h("button", { type: "button", "data-key": way.act + (way.to ?? ""), disabled: !rollout.may_act, on: { click: () => ask(path, rollout, way, latest()[0], drawn) } }, `${way.title} …`),
  );
  return [
    h("div", { class: "row" }, buttons),
    !rollout.may_act && h("p", { class: "soft" }, "You may look at this rollout. To pause, resume or promote it, one has to be allowed to edit its DAG."),
  ];
}

// What speaks against a promotion.
function doubts(round) {
  const doubtful = (round?.comparisons ?? []).filter((each) => !["same", "better"].includes(each.verdict));
  if (!round) return h("p", { class: "bad" }, "No round has compared anything yet.");
  if (!doubtful.length) return h("p", { class: "soft" }, `In round ${round.number} no metric was worse.`);
  return h("p", { class: "bad" }, inert(`In round ${round.number}: ${doubtful.map((each) => `${each.metric} ${VERDICTS[each.verdict]}`).join(", ")}.`));
}

function ask(path, rollout, way, round, drawn) {
  const why = h("textarea", { maxlength: 2000, rows: 2, value: "" });
  const dialog = h(
    "dialog",
    { "aria-labelledby": "asked" },
    h(
      "form",
      { method: "dialog" },
      h("h2", { id: "asked" }, inert(`${way.title}: ${rollout.name}`)),
      h("p", {}, way.told),
      way.act === "promote" && doubts(round),
      field("Why (may be left out)", why, "field"),
      h("div", { class: "row" }, h("button", { value: "yes", class: "main" }, way.title), h("button", { value: "" }, "Cancel")),
    ),
  );
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (dialog.returnValue === "yes") send(path, { act: way.act, ...(way.to && { to: way.to }), why: why.value, after: rollout.number }, drawn);
  });
  document.body.append(dialog);
  dialog.showModal();
}

async function send(path, body, drawn) {
  try {
    const rollout = await post(`${path}/steps`, body);
    notify(DONE[body.act]);
    await drawn(rollout);
  } catch (error) {
    notify(error.message);
    if (error.body?.rollout) await drawn(error.body.rollout);
  }
}
