// A form for a value, made from the JSON Schema of the outputs. What it has no field for is written as JSON.

import { h, inert } from "./dom.js";
import { isExact, parse } from "./net.js";

const DEEPEST = 8;
let fields = 0;

function resolve(schema, root) {
  let found = schema;
  for (let step = 0; step < DEEPEST && typeof found?.$ref === "string" && found.$ref.startsWith("#"); step += 1) {
    const parts = found.$ref.slice(1).split("/").filter(Boolean);
    const target = parts.reduce(
      (place, part) => (place && Object.hasOwn(place, unescaped(part)) ? place[unescaped(part)] : undefined),
      root,
    );
    found = { ...target, ...found, $ref: target?.$ref };
  }
  return found ?? {};
}

const unescaped = (part) => decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~");

// Whether a schema allows null beside one other thing, and what that is.
function split(schema, root) {
  const choices = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(choices)) {
    const others = choices.map((each) => resolve(each, root)).filter((each) => each.type !== "null");
    if (others.length === 1) return [{ ...schema, anyOf: undefined, oneOf: undefined, ...others[0] }, choices.length > 1];
  }
  if (Array.isArray(schema.type)) {
    const others = schema.type.filter((each) => each !== "null");
    if (others.length === 1) return [{ ...schema, type: others[0] }, schema.type.length > 1];
  }
  return [schema, false];
}

// What stands in a form before anybody has written anything.
export function blank(asked, root = asked, depth = 0) {
  const [schema, nullable] = split(resolve(asked, root), root);
  if (schema.default !== undefined) return schema.default;
  if (schema.const !== undefined) return schema.const;
  if (nullable) return null;
  if (Array.isArray(schema.enum)) return schema.enum[0];
  if (schema.type === "object" && depth < DEEPEST) {
    const needed = Object.entries(schema.properties ?? {}).filter(([name]) => schema.required?.includes(name));
    return Object.fromEntries(needed.map(([name, each]) => [name, blank(each, root, depth + 1)]));
  }
  return { object: {}, array: [], string: "", boolean: false }[schema.type] ?? null;
}

// Return an element in which a value can be changed; `change` gets each new value.
export function form(schema, value, change) {
  return node("Output", schema, value, change, schema, 0);
}

function node(name, asked, value, change, root, depth) {
  const [schema, nullable] = split(resolve(asked, root), root);
  const kind = kindOf(schema, value, nullable, depth);
  const body = KINDS[kind](schema.title || name, schema, value, change, root, depth);
  return nullable ? maybe(name, schema, body, value, change, root) : body;
}

function kindOf(schema, value, nullable, depth) {
  if (nullable && value === null) return "nothing";
  if (Array.isArray(schema.enum)) return schema.enum.every((each) => each === null || typeof each !== "object") ? "choice" : "json";
  const fits = {
    object: value !== null && typeof value === "object" && !Array.isArray(value) && !isExact(value) && schema.properties,
    array: Array.isArray(value) && schema.items && typeof schema.items === "object",
    string: typeof value === "string",
    number: isExact(value) || value === null,
    integer: isExact(value) || value === null,
    boolean: true,
  };
  return depth < DEEPEST && fits[schema.type] ? schema.type : "json";
}

function labelled(name, schema, control) {
  fields += 1;
  control.id = `field-${fields}`;
  const about = schema.description && h("span", { class: "soft", id: `${control.id}-about` }, inert(schema.description));
  if (about) control.setAttribute("aria-describedby", about.id);
  return h("div", { class: "field" }, h("label", { for: control.id }, inert(name)), control, about);
}

// A number; what is none stays a text, so that the check says so.
function written(name, schema, value, change, attributes) {
  const control = h("input", { type: "text", autocomplete: "off", ...attributes, value: value === null ? "" : JSON.stringify(value) });
  control.addEventListener("input", () => {
    const next = figure(control.value);
    control.setAttribute("aria-invalid", String(next === undefined));
    change(next === undefined ? control.value : next);
  });
  return labelled(name, schema, control);
}

function figure(text) {
  try {
    const value = parse(text);
    return isExact(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

const KINDS = {
  nothing: () => null,
  number: (name, schema, value, change) => written(name, schema, value, change, { inputmode: "decimal" }),
  integer: (name, schema, value, change) => written(name, schema, value, change, { inputmode: "numeric" }),
  string(name, schema, value, change) {
    const control = h("textarea", { rows: value.length > 60 || value.includes("\n") ? 5 : 1, value });
    control.addEventListener("input", () => change(control.value));
    return labelled(name, schema, control);
  },
  boolean(name, schema, value, change, root, depth) {
    // A box is ticked or not; what is neither is chosen anew, and stands there until it is.
    if (typeof value !== "boolean") return KINDS.choice(name, { ...schema, enum: [true, false] }, value, change, root, depth);
    const control = h("input", { type: "checkbox", checked: value });
    control.addEventListener("change", () => change(control.checked));
    return h("div", { class: "field" }, h("label", { class: "check" }, control, inert(name)));
  },
  choice(name, schema, value, change) {
    const known = schema.enum.findIndex((each) => JSON.stringify(each) === JSON.stringify(value));
    const control = h(
      "select",
      {},
      known < 0 && h("option", { value: "-1", selected: true }, `not allowed: ${JSON.stringify(value)}`),
      schema.enum.map((each, number) => h("option", { value: number, selected: number === known }, String(each))),
    );
    control.addEventListener("change", () => control.value >= 0 && change(schema.enum[control.value]));
    return labelled(name, schema, control);
  },
  object: objectFields,
  array: arrayFields,
  json(name, schema, value, change) {
    const control = h("textarea", { class: "code", rows: 4, spellcheck: "false", value: JSON.stringify(value, null, 2) });
    control.addEventListener("input", () => {
      try {
        change(parse(control.value));
        control.setAttribute("aria-invalid", "false");
      } catch {
        control.setAttribute("aria-invalid", "true");
      }
    });
    return labelled(`${name} (JSON)`, schema, control);
  },
};

function objectFields(name, schema, value, change, root, depth) {
  // A copy without a prototype: a field may be called like anything, "__proto__" included.
  let now = copied(value);
  const box = h("fieldset", {}, h("legend", {}, inert(name)));
  const body = h("div", {});
  const set = (key, next) => {
    now = copied(now);
    if (next === undefined) delete now[key];
    else now[key] = next;
    change(now);
  };
  const draw = () =>
    body.replaceChildren(
      ...Object.entries(schema.properties).map(([key, each]) => {
        if (key in now) return optional(schema, key, node(key, each, now[key], (next) => set(key, next), root, depth + 1));
        return h("p", {}, h("button", { type: "button", on: { click: () => (set(key, blank(each, root)), draw()) } }, inert(`Add ${key}`)));
      }),
      ...Object.keys(now)
        .filter((key) => !Object.hasOwn(schema.properties, key))
        .map((key) => optional(schema, key, KINDS.json(key, {}, now[key], (next) => set(key, next)))),
    );
  const optional = (within, key, element) =>
    within.required?.includes(key) && Object.hasOwn(within.properties, key)
      ? element
      : h("div", {}, element, h("button", { type: "button", on: { click: () => (set(key, undefined), draw()) } }, inert(`Remove ${key}`)));
  draw();
  box.append(body);
  return box;
}

function copied(value) {
  return Object.assign(Object.create(null), value);
}

function arrayFields(name, schema, value, change, root, depth) {
  let now = [...value];
  const box = h("fieldset", {}, h("legend", {}, inert(name)));
  const body = h("div", {});
  const set = (next, again) => {
    now = next;
    change(now);
    if (again) draw();
  };
  const draw = () =>
    body.replaceChildren(
      ...now.map((each, number) =>
        h(
          "div",
          {},
          node(`${name} ${number + 1}`, schema.items, each, (next) => set(now.with(number, next)), root, depth + 1),
          h("button", { type: "button", on: { click: () => set(now.toSpliced(number, 1), true) } }, inert(`Remove ${name} ${number + 1}`)),
        ),
      ),
      h("p", {}, h("button", { type: "button", on: { click: () => set([...now, blank(schema.items, root)], true) } }, inert(`Add to ${name}`))),
    );
  draw();
  box.append(body);
  return box;
}

// A field that may be null: a box to tick says whether it is.
function maybe(name, schema, body, value, change, root) {
  const place = h("div", {});
  if (body) place.append(body);
  const control = h("input", { type: "checkbox", checked: value === null });
  control.addEventListener("change", () => {
    const next = control.checked ? null : filled(schema, root);
    change(next);
    place.replaceChildren(...(next === null ? [] : [node(name, schema, next, change, root, 1)]));
  });
  return h("div", {}, h("label", { class: "check" }, control, inert(`${name} is null`)), place);
}

function filled(schema, root) {
  const start = blank({ ...schema, default: undefined }, root);
  return start === null && ["number", "integer"].includes(schema.type) ? 0 : start;
}
