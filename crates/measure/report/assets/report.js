// Draws the charts that the page's data describes. Every choice (scale, order, what is compared) was
// made when the data were made; without this script the tables say the same.
"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const SYMBOLS = ["circle", "square", "triangle", "diamond"];
  const PARTS = ["user", "system", "softirq", "irq", "steal", "idle"];

  const published = (chart, series) => chart.points.some((p) => p.series === series && p.published);
  const colour = (chart, series) =>
    chart.form === "split" ? `var(--${PARTS[series]})`
      : published(chart, series) ? "var(--published)"
      : `var(--c${series % 10})`;
  const symbol = (series) => SYMBOLS[series % SYMBOLS.length];

  const number = (value) =>
    value === 0 ? "0" : Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);
  const told = (chart, p) => {
    const interval = p.lo === undefined ? "" : ` [${number(p.lo)}, ${number(p.hi)}]`;
    const n = p.trials ? `\n${p.trials.length} trials` : "";
    return `${chart.series[p.series] || ""}\n${p.name}: ${number(p.median)}${interval}${n}`.trim();
  };
  const trials = (chart, key) =>
    chart.points.flatMap((p) => (p[key] || []).map((value) => ({...p, value})));
  // Long names keep their ends: what differs between cells usually stands there.
  const short = (text, most) =>
    text.length <= most ? text : `${text.slice(0, Math.ceil(most / 3))}…${text.slice(text.length - Math.floor(most * 2 / 3) + 1)}`;

  // On a log axis the ticks at 1, 2 and 5 have texts, as plain numbers.
  const digit = (value) => Math.round(value / 10 ** Math.floor(Math.log10(value) + 1e-9));
  const scale = (axis) => axis.log
    ? {type: "log", grid: true, nice: true, tickFormat: (value) => [1, 2, 5].includes(digit(value)) ? `${+value.toPrecision(3)}` : ""}
    : {type: "linear", grid: true, nice: true, zero: true};

  function line(chart, width) {
    const {x, y} = chart;
    // A log scale of Plot's writes only some of the ticks it is given; a linear one all of them.
    const place = x.log ? Math.log10 : (value) => value;
    const at = (p) => place(p.at);
    const ticks = new Map(x.ticks.map(([value, text]) => [place(value), text]));
    const turned = x.ticks.length > 8;
    // Texts that would touch the one before are left out; their ticks stay.
    const [first, last] = [Math.min(...ticks.keys()), Math.max(...ticks.keys())];
    const pixel = (value) => (value - first) / (last - first || 1) * (width - 100);
    let free = -Infinity;
    const texts = new Map();
    for (const [value, text] of [...ticks].sort((a, b) => a[0] - b[0])) {
      const half = turned ? 7 : text.length * 3.6 + 3;
      if (pixel(value) - half < free) continue;
      texts.set(value, text);
      free = pixel(value) + half;
    }
    return {
      width, height: turned ? 356 : 340, marginTop: 30, marginLeft: 60, marginBottom: turned ? 62 : 46, marginRight: 24,
      x: {ticks: [...ticks.keys()], tickFormat: (value) => texts.get(value) || "", label: x.label, inset: 8,
          tickRotate: turned ? -35 : 0},
      y: {...scale(y), label: y.label},
      // Curves stand a little beside each other, and trials beside their interval.
      marks: chart.series.flatMap((_, series) => {
        const of = (p) => p.series === series;
        const points = chart.points.filter(of);
        const hue = colour(chart, series);
        const hollow = published(chart, series);
        const dx = hollow ? 0 : Math.round((series - (chart.series.length - 1) / 2) * Math.min(5, 30 / chart.series.length));
        return [
          Plot.line(points, {x: at, y: "median", dx, stroke: hue, strokeWidth: 1.5, strokeDasharray: hollow ? "5 4" : null}),
          Plot.dot(trials(chart, "trials").filter(of), {x: at, y: "value", dx: dx - 5, r: 2, fill: hue, fillOpacity: 0.45}),
          Plot.dot(trials(chart, "aside").filter(of), {x: at, y: "value", dx: dx - 5, r: 3, symbol: "times", stroke: "var(--soft)"}),
          Plot.ruleX(points.filter((p) => p.lo !== undefined), {x: at, y1: "lo", y2: "hi", dx, stroke: hue, strokeWidth: 2.5}),
          Plot.dot(points, {x: at, y: "median", dx, r: 4, symbol: symbol(series), fill: hollow ? "var(--paper)" : hue, stroke: hue, title: (p) => told(chart, p)}),
        ];
      }),
    };
  }

  function rows(chart, width) {
    const {x, y} = chart;
    const names = [...new Set(chart.points.map((p) => p.name))];
    const blocks = chart.series.length;
    const longest = Math.max(...names.map((name) => name.length));
    const row = {y: "name", fy: "series"};
    const hue = (p) => p.published ? "var(--published)" : `var(--c${names.indexOf(p.name) % 10})`;
    const gap = blocks > 1 ? 30 : 10;
    const most = Math.max(14, Math.floor(width * 0.4 / 6.4));
    return {
      width, marginLeft: 24 + Math.min(longest, most) * 6.4, marginBottom: 40, marginTop: 8, marginRight: 24,
      height: 56 + blocks * (names.length * 22 + gap),
      x: {...scale(x), label: x.label},
      y: {domain: names, label: null, tickFormat: (name) => short(name, most), padding: 0.2, insetTop: blocks > 1 ? 18 : 0, insetBottom: 6, tickSize: 0},
      fy: {domain: chart.series.map((_, i) => i), axis: null, padding: 0.04},
      marks: [
        blocks > 1 ? Plot.text(chart.series.map((name, i) => ({name, i})), {fy: "i", frameAnchor: "top-left", dx: 2, dy: 1, text: (d) => short(d.name, Math.floor(width * 0.55 / 6.8)), fill: "var(--soft)", fontWeight: 600, lineAnchor: "top", stroke: "var(--paper)", strokeWidth: 4}) : null,
        Plot.dot(trials(chart, "trials"), {...row, x: "value", dy: 5, r: 2, fill: hue, fillOpacity: 0.45}),
        Plot.dot(trials(chart, "aside"), {...row, x: "value", dy: 5, r: 3, symbol: "times", stroke: "var(--soft)"}),
        Plot.ruleY(chart.points.filter((p) => p.lo !== undefined), {...row, x1: "lo", x2: "hi", stroke: hue, strokeWidth: 2.5}),
        Plot.dot(chart.points, {...row, x: "median", r: 4.5, fill: (p) => p.published ? "var(--paper)" : hue(p), stroke: hue, title: (p) => told(chart, p)}),
      ],
    };
  }

  function split(chart, width) {
    const names = [...new Set(chart.points.map((p) => p.name))];
    const longest = Math.min(Math.max(...names.map((name) => name.length)), 34);
    const end = new Map();
    const bars = chart.points.map((p) => {
      const x1 = end.get(p.name) || 0;
      end.set(p.name, x1 + p.median);
      return {...p, x1, x2: x1 + p.median};
    });
    return {
      width, height: 52 + names.length * 24, marginLeft: 14 + longest * 6.4, marginBottom: 40, marginTop: 6, marginRight: 24,
      x: {domain: [0, Math.max(100, ...end.values())], label: chart.x.label, ticks: 5},
      y: {domain: names, label: null, tickFormat: (name) => short(name, 34), padding: 0.2, tickSize: 0},
      marks: [
        Plot.barX(bars, {x1: "x1", x2: "x2", y: "name", fill: (p) => colour(chart, p.series), title: (p) => told(chart, p).replace("\n", ", ") + " %"}),
        Plot.ruleX([0], {stroke: "var(--soft)"}),
      ],
    };
  }

  function legend(chart) {
    const list = document.createElement("ul");
    list.className = "legend";
    const shape = (series) => ({
      square: "M2 2h10v10H2z", triangle: "M7 1l6 11H1z", diamond: "M7 0l6 7-6 7-6-7z",
    })[chart.form === "split" ? "square" : symbol(series)] || "M7 1a6 6 0 1 0 .01 0z";
    chart.series.forEach((name, series) => {
      const item = document.createElement("li");
      const hollow = published(chart, series);
      item.innerHTML = `<svg viewBox="-1 -1 16 16" aria-hidden="true"><path d="${shape(series)}" stroke-width="2" stroke="${colour(chart, series)}" fill="${hollow ? "none" : colour(chart, series)}"/></svg>`;
      item.append(name);
      list.append(item);
    });
    return list;
  }

  function draw() {
    for (const figure of document.querySelectorAll("figure[data-chart]")) {
      const chart = charts[Number(figure.dataset.chart)];
      const place = figure.querySelector(".chart");
      const width = Math.max(320, Math.min(place.clientWidth || 640, 900));
      const options = {line, rows, split}[chart.form](chart, width);
      const svg = Plot.plot({...options, marks: options.marks.filter(Boolean), ariaLabel: chart.title, color: {type: "identity"}, symbol: {type: "identity"}});
      const keyed = chart.form === "split" || (chart.form === "line" && chart.series.length > 1);
      place.replaceChildren(...(keyed ? [legend(chart)] : []), svg);
    }
  }

  let waiting;
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(draw, 150);
  });
  draw();
})();
