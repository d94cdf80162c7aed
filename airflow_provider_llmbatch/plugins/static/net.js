// What the pages ask of the server they came from, and of no other.

export const ROOT = new URL("../", import.meta.url).pathname;
export const AIRFLOW = new URL("../../", import.meta.url).pathname;
const API = `${ROOT}api/v1`;

const WORDS = {
  0: "The server cannot be reached. What you wrote is still here; try again.",
  401: "You are not signed in any more. Sign in to Airflow, then load this page again.",
  403: "You may not do this. Ask whoever gives permissions in Airflow.",
};

export class Failure extends Error {
  constructor(status, body) {
    super(WORDS[status] ?? worded(body) ?? `The server answered ${status}.`);
    this.status = status;
    this.body = body;
    if (status === 403 && worded(body)) this.message = worded(body);
  }
}

function worded(body) {
  const detail = body?.detail;
  if (typeof detail === "string") return detail;
  if (Array.isArray(detail)) return detail.map((each) => `${each.loc?.slice(1).join(".")}: ${each.msg}`).join("; ");
  return null;
}

// Numbers that a browser cannot hold exactly are kept as they were written, where the browser can do that.
export function parse(text) {
  if (!JSON.rawJSON) return JSON.parse(text);
  return JSON.parse(text, (key, value, context) =>
    typeof value === "number" && context?.source && String(value) !== context.source ? JSON.rawJSON(context.source) : value,
  );
}

export const isExact = (value) => typeof value === "number" || Boolean(JSON.isRawJSON?.(value));

async function request(url, options = {}, read = JSON.parse) {
  let answer;
  try {
    answer = await fetch(url, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, null);
  }
  const text = await answer.text();
  let body = null;
  try {
    body = read(text);
  } catch {
    // what is no JSON comes from something in between, and says nothing to people
  }
  if (!answer.ok || body === null) throw new Failure(answer.status, body);
  return body;
}

export const get = (path, signal) => request(API + path, { signal });

// The same, with numbers in it that must stay as they are.
export const getExact = (path) => request(API + path, {}, parse);

// Ask Airflow's own API, which has lists that are asked for with a post.
export const ask = (url, body) =>
  request(url, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

// The body may be text, so that what was written goes out as it was written.
export const post = (path, body) =>
  request(API + path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });

export const remove = (path) => request(API + path, { method: "DELETE" });

export function query(values) {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== "" && value !== null && value !== undefined) asked.append(name, value);
  }
  return asked.size ? `?${asked}` : "";
}

export const address = (...parts) => parts.map(encodeURIComponent).join("/");
