// How rollouts are put into words and figures.

const ARTS = { open: "opened", hold: "stays", promote: "promoted", pause: "paused", resume: "resumed" };

export const percent = (share) => `${(share * 100).toLocaleString("en", { maximumFractionDigits: 1 })} %`;

// What is nothing but rounding, and what is too small to be written out.
const NOTHING = 1e-12;
const SMALL = 1e-4;

function written(value, format) {
  if (value === null) return "not known";
  const size = Math.abs(value);
  if (size >= NOTHING && size < SMALL) return value.toLocaleString("en", { ...format, notation: "scientific" }).replace("E-", "E\u2212");
  return (size < NOTHING ? 0 : value).toLocaleString("en", format);
}

export const figure = (value) => written(value, { maximumSignificantDigits: 4 });

export const signed = (value) => written(value, { maximumSignificantDigits: 3, signDisplay: "exceptZero" });

// Who did what, and why.
export function words(step) {
  const by = step.by ? ` by ${step.by.name}` : step.round ? ` after round ${step.round}` : "";
  return `${ARTS[step.action]}${by}${step.why ? `: ${step.why}` : ""}`;
}

export const VERDICTS = {
  better: "better",
  same: "same",
  worse: "worse",
  not_enough: "not enough",
  not_run: "not run",
};
