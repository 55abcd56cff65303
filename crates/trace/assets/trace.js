// Draws the charts that the page's data describes; the text says the same without this script.
"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const frame = (chart, width) => ({
    width, height: 320, marginTop: 34, marginLeft: 80, marginBottom: 42, marginRight: 20,
    x: {label: chart.x, nice: true}, y: {label: chart.y, grid: true, zero: true, nice: true},
  });

  function sequence(chart, width) {
    const place = {x: (p) => p[0], y: (p) => p[1]};
    const options = frame(chart, width);
    const last = Math.max(1e-6, ...chart.data.map((p) => p[0]), ...chart.acked.map((p) => p[0]));
    const px = (width - options.marginLeft - options.marginRight) / last;
    return {
      ...options,
      x: {label: chart.x, domain: [0, last]},
      marks: [
        // Plot's bundle has no rectangle: a rule as wide as the stall shades it.
        Plot.ruleX(chart.stalls, {x: (s) => (s[0] + s[1]) / 2, stroke: "var(--bad)", strokeOpacity: 0.25, strokeWidth: (s) => Math.max(2, (s[1] - s[0]) * px), strokeLinecap: "butt"}),
        Plot.line(chart.acked, {...place, stroke: "var(--c1)", curve: "step-after"}),
        Plot.dot(chart.data, {...place, r: 1.5, fill: "var(--c0)"}),
        Plot.dot(chart.again, {...place, r: 4, symbol: "times", stroke: "var(--bad)"}),
      ],
    };
  }

  function cdf(chart, width) {
    let seen = 0;
    const points = [[chart.steps[0][0], 0], ...chart.steps.map(([value, count]) => [value, (seen += count) / chart.n])];
    const log = chart.steps[0][0] > 0 && chart.steps.at(-1)[0] / chart.steps[0][0] > 50;
    return {
      ...frame(chart, width),
      x: {label: chart.x, type: log ? "log" : "linear", nice: true},
      y: {label: "share", domain: [0, 1], grid: true},
      marks: [Plot.line(points, {x: (p) => p[0], y: (p) => p[1], stroke: "var(--c0)", curve: "step-after"})],
    };
  }

  function bars(chart, width) {
    return {
      ...frame(chart, width),
      y: {label: "pure ACKs", grid: true, zero: true, nice: true},
      marks: [
        Plot.ruleX(chart.steps, {x: (s) => s[0], y1: 0, y2: (s) => s[1], stroke: "var(--c0)", strokeWidth: 4, title: (s) => `${s[0]}: ${s[1]}`}),
        Plot.ruleY([0], {stroke: "var(--soft)"}),
      ],
    };
  }

  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    const chart = charts[Number(figure.dataset.chart)];
    const place = figure.querySelector(".chart");
    if (chart.steps?.length === 1) {
      const [[value, count]] = chart.steps;
      place.textContent = `all ${count}: ${value} ${chart.x}`;
      continue;
    }
    const width = Math.max(320, Math.min(place.clientWidth || 640, 900));
    place.replaceChildren(Plot.plot({...{sequence, cdf, bars}[chart.form](chart, width), ariaLabel: chart.title, symbol: {type: "identity"}, color: {type: "identity"}}));
  }
})();
