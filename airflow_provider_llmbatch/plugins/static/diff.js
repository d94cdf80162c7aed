// What an edit changes, line by line.

import { h, inert } from "./dom.js";

const MOST_CELLS = 4_000_000;

// The longest common subsequence of lines, after what begins and ends alike is set aside.
export function compare(before, after) {
  const left = before.split("\n");
  const right = after.split("\n");
  let head = 0;
  while (head < left.length && head < right.length && left[head] === right[head]) head += 1;
  let tail = 0;
  while (tail < left.length - head && tail < right.length - head && left.at(-1 - tail) === right.at(-1 - tail)) tail += 1;
  const a = left.slice(head, left.length - tail);
  const b = right.slice(head, right.length - tail);
  if (a.length * b.length > MOST_CELLS) return null;
  return [
    ...left.slice(0, head).map((line) => [" ", line]),
    ...middle(a, b),
    ...left.slice(left.length - tail).map((line) => [" ", line]),
  ];
}

function middle(a, b) {
  const width = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      longest[i * width + j] =
        a[i] === b[j] ? longest[(i + 1) * width + j + 1] + 1 : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const lines = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push([" ", a[i]]);
      i += 1;
      j += 1;
    } else if (i < a.length && (j === b.length || longest[(i + 1) * width + j] >= longest[i * width + j + 1])) {
      lines.push(["-", a[i]]);
      i += 1;
    } else {
      lines.push(["+", b[j]]);
      j += 1;
    }
  }
  return lines;
}

export function diffView(before, after) {
  if (before === after) return h("p", { class: "soft" }, "No change to what the model said.");
  const lines = compare(before, after);
  if (lines === null) return h("p", { class: "soft" }, "Both are too long to be compared line by line.");
  const kinds = { "+": "added", "-": "removed", " ": "" };
  const body = lines.slice(0, 2000).map(([sign, line]) => h("span", { class: kinds[sign] }, `${sign} `, inert(line.slice(0, 5000))));
  return h("div", { class: "diff", tabindex: "0", role: "group", "aria-label": "Changes to what the model said" }, body);
}
