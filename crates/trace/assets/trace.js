// Draws the charts that the page's data describes; the text says the same without this script.
"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const frame = (chart, width) => ({
    width, height: 320, marginTop: 34, marginLeft: 80, marginBottom: 42, marginRight: 20,
    x: {label: chart.x, nice: true}, y: {label: chart.y, grid: true, zero: true, nice: true},
  });

  const inPart = (points, part) => points.filter((p) => p[0] >= part[0] && p[0] <= part[1]);

  function sequence(whole, width, part) {
    const chart = {...whole};
    for (const name of ["data", "again", "acked", "edge", "sacked", "dsacked"]) chart[name] = inPart(whole[name], part);
    chart.stalls = whole.stalls.filter((s) => s[1] >= part[0] && s[0] <= part[1]);
    const place = {x: (p) => p[0], y: (p) => p[1]};
    const options = frame(chart, width);
    const px = (width - options.marginLeft - options.marginRight) / (part[1] - part[0]);
    return {
      ...options,
      x: {label: chart.x, domain: part},
      clip: true,
      marks: [
        // Plot's bundle has no rectangle: a rule as wide as the stall shades it.
        Plot.ruleX(chart.stalls, {x: (s) => (s[0] + s[1]) / 2, stroke: "var(--bad)", strokeOpacity: 0.25, strokeWidth: (s) => Math.max(2, (s[1] - s[0]) * px), strokeLinecap: "butt"}),
        Plot.line(chart.acked, {...place, stroke: "var(--c1)", curve: "step-after"}),
        Plot.dot(chart.data, {...place, r: 1.5, fill: "var(--c0)"}),
        Plot.line(chart.edge, {...place, stroke: "var(--soft)", curve: "step-after"}),
        Plot.dot(chart.sacked, {...place, r: 2.5, symbol: "triangle", stroke: "var(--c1)"}),
        Plot.dot(chart.dsacked, {...place, r: 3, symbol: "square", stroke: "var(--bad)"}),
        Plot.dot(chart.again, {...place, r: 4, symbol: "times", stroke: "var(--bad)"}),
      ],
    };
  }

  function lines(chart, width, part) {
    const colors = ["var(--c0)", "var(--c1)"];
    return {
      ...frame(chart, width),
      x: {label: chart.x, domain: part},
      marks: chart.lines.map((line, at) => Plot.line(inPart(line.points, part), {x: (p) => p[0], y: (p) => p[1], stroke: colors[at % 2], curve: "step-after", title: () => line.name})),
    };
  }

  // Range of time of a chart over time; null for other charts.
  function wholeOf(chart) {
    const all = chart.form === "sequence" ? [chart.data, chart.acked] : chart.form === "lines" ? chart.lines.map((line) => line.points) : null;
    if (!all) return null;
    let last = 1e-6;
    for (const points of all) for (const p of points) last = Math.max(last, p[0]);
    return [0, last];
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

  // Sorts a table by the column whose heading is clicked: numbers from the largest, words from A; again for the other way.
  for (const table of document.querySelectorAll("table.sortable")) {
    const value = (row, at) => {
      const text = row.cells[at].textContent;
      const number = Number(text);
      return Number.isNaN(number) ? text : number;
    };
    table.querySelectorAll("th").forEach((head, at) => head.addEventListener("click", () => {
      const turn = head.dataset.turn === "1" ? -1 : 1;
      head.dataset.turn = String(turn);
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => {
        const [x, y] = [value(a, at), value(b, at)];
        if (typeof x === "number" && typeof y === "number") return turn * (y - x);
        return turn * String(x).localeCompare(String(y));
      });
      table.tBodies[0].append(...rows);
    }));
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
    const whole = wholeOf(chart);
    const draw = (part) => {
      place.replaceChildren(Plot.plot({...{sequence, lines, cdf, bars}[chart.form](chart, width, part), ariaLabel: chart.title, symbol: {type: "identity"}, color: {type: "identity"}}));
    };
    draw(whole);
    if (!whole) continue;
    let part = whole;
    let begun = null;
    const at = (event) => {
      const {marginLeft, marginRight} = frame(chart, width);
      // The browser scales down a chart that is wider than its place.
      const drawn = place.firstChild.getBoundingClientRect();
      const across = ((event.clientX - drawn.left) * width / drawn.width - marginLeft) / (width - marginLeft - marginRight);
      return part[0] + Math.max(0, Math.min(1, across)) * (part[1] - part[0]);
    };
    place.addEventListener("pointerdown", (event) => { begun = at(event); });
    place.addEventListener("pointerup", (event) => {
      const ended = at(event);
      if (begun !== null && Math.abs(ended - begun) > (part[1] - part[0]) / 100) {
        part = [Math.min(begun, ended), Math.max(begun, ended)];
        draw(part);
      }
      begun = null;
    });
    place.addEventListener("dblclick", () => { part = whole; draw(part); });
  }
})();
