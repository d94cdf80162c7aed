// One ticket: what was asked, what came back, and what to make of it.

import { ask, decide } from "./decide.js";
import { diffView } from "./diff.js";
import { field, h, inert, longText, moment, problem, select, show } from "./dom.js";
import { blank, form } from "./form.js";
import { getExact, parse, post } from "./net.js";

const CHECK_AFTER_MS = 250;

function conversation(texts) {
  if (!texts.messages) {
    return [h("p", { class: "soft" }, "No request could be made of this item."), longText(JSON.stringify(texts.item, null, 2), "The item")];
  }
  return texts.messages.map((message) => [
    h("div", { class: "role" }, inert(message.role ?? "?")),
    longText(typeof message.content === "string" ? message.content : JSON.stringify(message.content, null, 2), `What ${message.role} said`),
  ]);
}

// What the model said, as JSON that can be edited where it is JSON at all.
function said(texts, schema) {
  if (texts.output !== null) return schema ? JSON.stringify(texts.output, null, 2) : String(texts.output);
  if (texts.raw_output === null) return "";
  if (!schema) return texts.raw_output;
  try {
    return JSON.stringify(parse(texts.raw_output), null, 2);
  } catch {
    return texts.raw_output;
  }
}

function start(text, schema) {
  if (!schema) return text;
  try {
    parse(text);
    return text;
  } catch {
    return JSON.stringify(blank(schema), null, 2);
  }
}

function facts(ticket) {
  const lines = {
    Outcome: ticket.outcome,
    Error: ticket.error,
    Status: ticket.status,
    Code: ticket.code,
    Reason: ticket.reason,
    Model: ticket.model,
    Prompt: ticket.prompt,
    "Finish reason": ticket.finish_reason,
    Attempts: ticket.attempts,
    Tokens: ticket.tokens,
    Group: ticket.group,
  };
  const known = Object.entries(lines).filter(([, value]) => value !== null);
  return h("dl", {}, known.map(([name, value]) => [h("dt", {}, name), h("dd", {}, inert(value))]));
}

function decided(decision) {
  const more = [decision.model, decision.prompt, decision.max_tokens && `${decision.max_tokens} tokens`].filter(Boolean);
  return [
    `${decision.kind} by ${decision.by.name || "the task itself"}${more.length ? ` (${more.join(", ")})` : ""}, `,
    moment(decision.at),
    decision.why && [": ", inert(decision.why)],
  ];
}

// The editor of an output: a form and its JSON, of which the JSON counts.
function editor(queue, initial, before) {
  const state = { text: initial, valid: false };
  const verdict = h("p", { role: "status", class: "soft" }, "Checking …");
  const difference = h("div", {});
  const place = h("div", {});
  let timer = 0;
  let asked = 0;

  const said = (valid, words) => {
    state.valid = valid;
    verdict.className = valid ? "good" : "bad";
    show(verdict, inert(words));
    editing.changed(valid);
  };
  const json = () => (queue.schema ? state.text : JSON.stringify(state.text));
  const check = async () => {
    const number = (asked += 1);
    show(difference, diffView(before, state.text));
    if (queue.schema) {
      try {
        parse(state.text);
      } catch (error) {
        said(false, `This is no JSON: ${error.message}`);
        return;
      }
    }
    try {
      const told = await post(`${queue.path}/check${queue.asked}`, `{"output":${json()}}`);
      if (number === asked) said(told.valid, told.valid ? "Valid: this can be saved." : told.why);
    } catch (error) {
      if (number === asked) said(false, error.message);
    }
  };
  const changed = (text) => {
    state.text = text;
    editing.changed((state.valid = false));
    clearTimeout(timer);
    timer = setTimeout(check, CHECK_AFTER_MS);
  };
  const raw = () => {
    const area = h("textarea", { class: "code", spellcheck: "false", "aria-label": queue.schema ? "Output as JSON" : "Output", value: state.text });
    area.addEventListener("input", () => changed(area.value));
    show(place, area);
  };
  const filled = () => {
    let value;
    try {
      value = parse(state.text);
    } catch {
      show(place, h("p", { class: "bad" }, "This is no JSON, so there is no form for it. Mend it as JSON first."));
      return;
    }
    show(place, form(queue.schema, value, (next) => changed(JSON.stringify(next, null, 2))));
  };
  const views = queue.schema
    ? h(
        "div",
        { class: "row", role: "group", "aria-label": "How to edit" },
        [["Form", filled], ["JSON", raw]].map(([name, draw], number) => {
          const button = h("button", { type: "button", "aria-pressed": String(number === 0) }, name);
          button.addEventListener("click", () => {
            for (const each of views.children) each.setAttribute("aria-pressed", String(each === button));
            draw();
          });
          return button;
        }),
      )
    : null;
  const editing = {
    changed: () => {},
    json,
    isValid: () => state.valid,
    element: h("div", {}, views, place, verdict, h("h2", {}, "Against what the model said"), difference),
    begin: () => {
      if (queue.schema) filled();
      else raw();
      return check();
    },
  };
  return editing;
}

function actions(queue, ticket, go) {
  const act = async (kind, output = null) => {
    const about = `“${ticket.item_id}”`;
    const wish = kind === "edit" ? { kind, why: why.value } : await ask(kind, about, queue.choices);
    if (!wish) return;
    const replaces = ticket.decision ? { replaces: ticket.decision.id } : {};
    const told = await decide(queue, { ...wish, ...replaces, tickets: [ticket.id] }, output);
    if (told?.decided || told?.already || told?.conflicts_total) go.decided(ticket.id, ticket.next ?? ticket.previous);
  };
  const before = said(ticket.texts, queue.schema);
  const editing = editor(queue, start(before, queue.schema), before);
  const why = h("input", { type: "text", maxlength: 2000, value: "" });
  const save = h("button", { type: "button", class: "main", disabled: true, on: { click: () => editing.isValid() && act("edit", editing.json()) } }, "Save edit");
  editing.changed = (valid) => (save.disabled = !valid);
  const button = (kind, words, off = false) => h("button", { type: "button", disabled: off, on: { click: () => act(kind) } }, words);
  return {
    act: (kind) => {
      if (kind === "accept" && !ticket.acceptable) return;
      if (kind === "edit") editing.element.querySelector("textarea, input, select")?.focus();
      else act(kind);
    },
    begin: editing.begin,
    element: [
      h(
        "div",
        { class: "row" },
        button("retry", "Retry …"),
        button("skip", "Skip …"),
        button("accept", "Accept what the model said …", !ticket.acceptable),
      ),
      !ticket.acceptable && ticket.why_not && h("p", { class: "soft" }, "Cannot be accepted: ", inert(ticket.why_not)),
      h("h2", {}, "Edit"),
      editing.element,
      h("div", { class: "row" }, save, field("Why (may be left out)", why, "wide")),
    ],
  };
}

function heading(queue, ticket, go) {
  const step = (words, id) => h("button", { type: "button", disabled: !id, on: { click: () => go.to(id) } }, words);
  return [
    h(
      "div",
      { class: "row between middle" },
      h("button", { type: "button", on: { click: go.back } }, "Back to the list"),
      h("div", { class: "row" }, step("Previous", ticket.previous), step("Next", ticket.next)),
    ),
    h("h2", { class: "title", tabindex: "-1" }, "Ticket ", inert(ticket.item_id)),
    ticket.decision && h("div", { class: "box" }, "Decided: ", decided(ticket.decision)),
  ];
}

// Draw a ticket into `place`; returns what keys can do to it, or null when it could not be shown.
export async function showTicket(place, queue, id, go) {
  let ticket;
  try {
    ticket = await getExact(`${queue.path}/tickets/${encodeURIComponent(id)}${queue.asked}${queue.asked ? "&" : "?"}round=${queue.round}`);
  } catch (error) {
    show(place, h("button", { type: "button", on: { click: go.back } }, "Back to the list"), problem(error, () => go.to(id)));
    return null;
  }
  const texts = ticket.texts;
  const reply = texts.raw_output ?? (texts.output === null ? null : typeof texts.output === "string" ? texts.output : JSON.stringify(texts.output, null, 2));
  const can = queue.may_decide && queue.isOpen ? actions(queue, ticket, go) : null;
  const closed = queue.may_decide ? "This round takes no more decisions." : "You may read this queue, and not decide.";
  show(
    place,
    heading(queue, ticket, go),
    h(
      "div",
      { class: "columns" },
      h(
        "div",
        {},
        h("h2", {}, "Conversation"),
        conversation(texts),
        h("h2", {}, "What the model said"),
        reply === null ? h("p", { class: "soft" }, "Nothing.") : longText(reply, "What the model said"),
        texts.error && [h("h2", {}, texts.refusal ? "Refusal" : "Error"), longText(texts.error, "Error")],
        h("h2", {}, "Facts"),
        facts(ticket),
        ticket.history.length > 0 && [h("h2", {}, "History"), h("ul", {}, ticket.history.map((each) => h("li", {}, decided(each))))],
      ),
      h("div", {}, h("h2", {}, "Decide"), can ? can.element : h("p", { class: "soft" }, closed)),
    ),
  );
  place.querySelector(".title").focus();
  const began = can?.begin();
  return { ticket, act: can?.act ?? (() => {}), began };
}
