"use strict";
// Draws a run as the harness tells it. Every chart has one time axis: the whole run so far.
const COLOURS = ["#54aeff", "#d29922"];
const WIDTH = 640, HEIGHT = 220, LEFT = 56, BOTTOM = 24, TOP = 22;
const bar = document.getElementById("bar");
const state = document.getElementById("state");
let moments = [];

const rounded = (value) =>
  value >= 100 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));

function show(moment) {
  for (const place of document.querySelectorAll("[data-figure]")) {
    const value = moment[place.dataset.figure];
    if (value === undefined) continue;
    place.textContent = rounded(value);
    place.dataset.value = value;
  }
  bar.value = moment.elapsed;
  document.getElementById("elapsed").textContent = `${Math.max(0, moment.elapsed).toFixed(0)} s`;
}

function draw(chart) {
  const names = chart.dataset.lines.split(" ");
  const end = Math.max(1, moments.at(-1).elapsed);
  const top = Math.max(1e-3, ...moments.flatMap((moment) => names.map((name) => moment[name] ?? 0)));
  const x = (seconds) => LEFT + ((WIDTH - LEFT - 10) * Math.max(0, seconds)) / end;
  const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * value) / top;
  const parts = [0, top / 2, top].map(
    (value) =>
      `<line x1="${LEFT}" x2="${WIDTH - 10}" y1="${y(value)}" y2="${y(value)}" stroke="currentColor" stroke-opacity=".15"/>` +
      `<text x="${LEFT - 6}" y="${y(value) + 4}" text-anchor="end">${rounded(value)}</text>`,
  );
  parts.push(`<text x="${WIDTH - 10}" y="${HEIGHT - 6}" text-anchor="end">${end.toFixed(0)} s</text>`);
  names.forEach((name, number) => {
    const points = moments.filter((moment) => moment[name] !== undefined);
    const line = points.map((moment) => `${x(moment.elapsed).toFixed(1)},${y(moment[name]).toFixed(1)}`);
    parts.push(
      `<polyline data-line="${name}" points="${line.join(" ")}" fill="none" stroke="${COLOURS[number]}" stroke-width="2"/>`,
      `<text x="${LEFT + 110 * number}" y="14" fill="${COLOURS[number]}">${name}</text>`,
    );
  });
  chart.innerHTML = `<g font-size="12" fill="currentColor">${parts.join("")}</g>`;
}

const events = new EventSource("events");
let due = false;
events.addEventListener("begin", () => (moments = []));
events.addEventListener("progress", (event) => {
  const moment = JSON.parse(event.data);
  moments.push(moment);
  if (due) return;
  due = true; // the past comes all at once: one picture of it is enough
  requestAnimationFrame(() => {
    due = false;
    show(moments.at(-1));
    document.querySelectorAll("svg.live").forEach(draw);
  });
});
events.addEventListener("ended", (event) => {
  const { verdict, folder } = JSON.parse(event.data);
  state.textContent = verdict;
  state.className = `verdict ${["ok", "violated"].includes(verdict) ? verdict : "unknown"}`;
  document.getElementById("elapsed").textContent = `over; its report is ${folder}/report.html`;
  events.close();
});
events.addEventListener("error", () => {
  if (events.readyState !== EventSource.CLOSED) state.textContent = "connection lost";
});
events.addEventListener("open", () => (state.textContent = "running"));
