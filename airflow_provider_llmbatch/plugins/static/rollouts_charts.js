// Charts of rollouts: how a metric went over the rounds, and how its scores are spread in both arms.

import { h } from "./dom.js";
import { ROOT } from "./net.js";
import { figure, percent, signed } from "./rollouts_words.js";
import uPlot from "./uplot.js";

const HEIGHT = 220;
// Half the width of the end of an interval, in pixels.
const END = 4;
const charts = new Set();

document.head.append(h("link", { rel: "stylesheet", href: `${ROOT}static/uplot.css` }));

// What a canvas is painted with: an element says which colour of a pair counts now.
const probe = h("span", { class: "hidden", "aria-hidden": "true" });
const paint = (name) => () => {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
};

function repaint() {
  for (const chart of charts) {
    if (chart.root.isConnected) chart.redraw(false);
    else charts.delete(chart);
  }
}

new MutationObserver(repaint).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);

const axis = (more) => ({ stroke: paint("soft"), grid: { stroke: paint("line"), width: 1 }, ticks: { stroke: paint("line"), width: 1 }, font: "12px system-ui, sans-serif", ...more });

// An element with a chart in it that is as wide as there is room.
function charted(label, options, data) {
  const box = h("div", { class: "chart", role: "img", "aria-label": label });
  let chart = null;
  new ResizeObserver(() => {
    const width = box.clientWidth;
    if (!width) return;
    if (chart) {
      chart.setSize({ width, height: HEIGHT });
    } else {
      chart = new uPlot({ width, height: HEIGHT, legend: { show: false }, cursor: { show: false }, ...options }, data, box);
      charts.add(chart);
    }
  }).observe(box);
  return box;
}

// Lines from the lower to the upper end of each interval.
function intervals(known) {
  return (chart) => {
    const { ctx } = chart;
    const pixels = devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = paint("accent")();
    ctx.lineWidth = 1.5 * pixels;
    ctx.setLineDash([]);
    ctx.beginPath();
    for (const each of known) {
      const x = chart.valToPos(each.number, "x", true);
      const [low, high] = [each.low, each.high].map((end) => chart.valToPos(end, "y", true));
      ctx.moveTo(x, low);
      ctx.lineTo(x, high);
      for (const end of [low, high]) {
        ctx.moveTo(x - END * pixels, end);
        ctx.lineTo(x + END * pixels, end);
      }
    }
    ctx.stroke();
    ctx.restore();
  };
}

// The effect of a metric by round, with its interval, and the threshold below which it is worse.
export function effectChart(known, metric) {
  const limits = known.map((each) => -each.threshold);
  const ends = known.flatMap((each) => [each.low, each.high, -each.threshold, 0]);
  const room = (Math.max(...ends) - Math.min(...ends)) * 0.05 || 1;
  const latest = known.at(-1);
  const options = {
    scales: {
      x: { time: false, range: () => [known[0].number - 0.5, latest.number + 0.5] },
      y: { range: () => [Math.min(...ends) - room, Math.max(...ends) + room] },
    },
    axes: [axis({ incrs: [1, 2, 5, 10, 20, 50, 100], label: "Round", labelSize: 20, labelFont: "12px system-ui, sans-serif" }), axis({ size: 64, values: (_, values) => values.map(signed) })],
    series: [
      {},
      { stroke: paint("accent"), width: 1, points: { show: true, size: 8, fill: paint("accent") } },
      { stroke: paint("bad"), width: 1.5, dash: [6, 4], points: { show: known.length === 1 } },
    ],
    hooks: { draw: [intervals(known)] },
  };
  const label = `Effect of ${metric} by round, ${known.length} in all; in round ${latest.number} ${signed(latest.effect)}, between ${signed(latest.low)} and ${signed(latest.high)}.`;
  return [
    charted(label, options, [known.map((each) => each.number), known.map((each) => each.effect), limits]),
    h("p", { class: "soft" }, "Points with their 95 % intervals; above 0 the candidate is better. Dashed: the threshold. An interval that is all below it is worse."),
  ];
}

// Of a bin that is empty nothing is drawn.
const share = (counts) => {
  const whole = counts.reduce((sum, each) => sum + each, 0);
  return counts.map((each) => (each ? each / whole : null));
};

// How many of each arm have which score, as shares of the arm.
export function distributionChart(found) {
  const { edges, base, candidate } = found;
  const [first, last] = [edges[0], edges.at(-1)];
  const range = first === last ? [first - 1, last + 1] : [first, last];
  const middles = base.map((_, place) => (edges[place] + edges[place + 1]) / 2);
  const bars = (align) => uPlot.paths.bars({ size: [0.42, 48], align });
  const options = {
    scales: { x: { time: false, range: () => range }, y: { range: (_, low, high) => [0, high * 1.05 || 1] } },
    axes: [axis({ values: (_, values) => values.map(figure) }), axis({ size: 56, values: (_, values) => values.map(percent) })],
    series: [
      {},
      { stroke: paint("soft"), fill: paint("panel"), width: 1.5, paths: bars(-1), points: { show: false } },
      { stroke: paint("accent"), fill: paint("accent"), width: 1.5, paths: bars(1), points: { show: false } },
    ],
  };
  const names = ["From", "To", "Base", "Candidate"];
  const rows = base.map((_, place) => [figure(edges[place]), figure(edges[place + 1]), base[place].toLocaleString("en"), candidate[place].toLocaleString("en")]);
  return [
    charted(`Scores of ${found.metric}, base and candidate; the figures stand below.`, options, [middles, share(base), share(candidate)]),
    h("p", { class: "soft" }, "Shares of each arm by score. Outlined: base. Filled: candidate."),
    h(
      "details",
      {},
      h("summary", {}, "Figures of this chart"),
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell))))),
      ),
    ),
  ];
}
