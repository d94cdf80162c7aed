// Deciding: what goes to the server, and what people are told of it.

import { count, field, h, inert, notify, select } from "./dom.js";
import { post } from "./net.js";

export const KINDS = { retry: "Retry", skip: "Skip", accept: "Accept", edit: "Edit" };

// Send a decision; `output` is JSON text, so that it arrives as it was written. Returns what became of it, or null.
export async function decide(queue, wish, output = null) {
  const body = JSON.stringify({ round: queue.round, ...wish });
  try {
    const told = await post(`${queue.path}/decisions${queue.asked}`, output === null ? body : `${body.slice(0, -1)},"output":${output}}`);
    notify(outcome(wish.kind, told));
    return told;
  } catch (error) {
    if (!error.body?.queue) {
      notify(error.message);
      return null;
    }
    notify(outcome(wish.kind, error.body));
    return error.body;
  }
}

function outcome(kind, told) {
  const parts = [];
  if (told.decided) parts.push(`${KINDS[kind]}: ${count(told.decided, "ticket")} decided.`);
  if (told.already) parts.push(`${count(told.already, "ticket")} had been decided so before.`);
  if (told.conflicts_total) {
    const by = told.conflicts[0].decision?.by.name;
    parts.push(`${count(told.conflicts_total, "ticket")} not changed: ${by ? `${by} decided before you` : "the round is closed"}.`);
  }
  if (told.refused_total) parts.push(`${count(told.refused_total, "ticket")} refused: ${told.refused[0].why}`);
  if (!parts.length) parts.push("Nothing was left to decide.");
  if (told.resumed) parts.push("The queue is complete; the task goes on.");
  return parts.join(" ");
}

// Ask how; resolves to the fields of a decision, or null when it is called off.
export function ask(kind, about, choices) {
  const wish = { kind, why: "" };
  const why = h("textarea", { maxlength: 2000, rows: 2, value: "" });
  const dialog = h(
    "dialog",
    { "aria-labelledby": "asked" },
    h(
      "form",
      { method: "dialog" },
      h("h2", { id: "asked" }, inert(`${KINDS[kind]} ${about}`)),
      kind === "retry" && retryFields(wish, choices),
      field("Why (may be left out)", why, "field"),
      h("div", { class: "row" }, h("button", { value: "yes", class: "main" }, KINDS[kind]), h("button", { value: "" , formnovalidate: true }, "Cancel")),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes" ? { ...wish, why: why.value } : null);
    });
  });
}

function retryFields(wish, choices) {
  const chooser = (name, words, offered) =>
    offered.length > 0 &&
    field(words, select([["", "as it was"], ...offered.map((each) => [each, each])], "", (value) => (wish[name] = value || null)));
  const most = h("input", { type: "number", min: 1, step: 1, value: "" });
  most.addEventListener("input", () => (wish.max_tokens = most.value ? Number(most.value) : null));
  return h(
    "div",
    { class: "row" },
    chooser("model", "Model", choices.models),
    chooser("prompt", "Prompt", choices.prompts),
    field("Largest output in tokens", most),
  );
}
