"use strict";
// Draws a run as the harness tells it. Every chart has one time axis: the whole run so far.
const COLOURS = ["#54aeff", "#d29922"];
const LANE = 56, HEAT_LEFT = 64, LAST = 14, YOUNG = 50;
const WIDTH = 640, HEIGHT = 220, LEFT = 62, BOTTOM = 26, TOP = 28;
const bar = document.getElementById("bar");
const state = document.getElementById("state");
const REFUSED = 6;
let moments = [], lock = null, refused = 0, turned = [], kept = {};

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

// The smallest round number that is at least so much: 1, 2, 4, 5, 6 or 8 times a power of ten, so that half of it is round, too.
function roundedUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ([1, 2, 4, 5, 6, 8, 10].find((step) => step * power >= value * 0.9999) ?? 10);
}

function draw(chart) {
  const names = chart.dataset.lines.split(" ");
  const end = Math.max(1, moments.at(-1).elapsed);
  const top = roundedUp(Math.max(1e-3, ...moments.flatMap((moment) => names.map((name) => moment[name] ?? 0))));
  const x = (seconds) => LEFT + ((WIDTH - LEFT - 10) * Math.max(0, seconds)) / end;
  const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * value) / top;
  const bands = (moments.at(-1).faults ?? []).map(([name, from, to]) => {
    const left = x(from / 1000), wide = Math.max(2, x((to ?? end * 1000) / 1000) - left);
    return `<rect class="band" x="${left}" y="${TOP}" width="${wide}" height="${HEIGHT - BOTTOM - TOP}" fill="var(--bad)" fill-opacity=".16"><title>${name}</title></rect>`;
  });
  const parts = [0, top / 2, top].map(
    (value) =>
      `<line x1="${LEFT}" x2="${WIDTH - 10}" y1="${y(value)}" y2="${y(value)}" stroke="currentColor" stroke-opacity=".15"/>` +
      `<text x="${LEFT - 6}" y="${y(value) + 5}" text-anchor="end">${rounded(value)}</text>`,
  );
  parts.push(`<text x="${LEFT}" y="${HEIGHT - 6}">0 s</text>`);
  parts.push(`<text x="${WIDTH - 10}" y="${HEIGHT - 6}" text-anchor="end">${end.toFixed(0)} s</text>`);
  names.forEach((name, number) => {
    const points = moments.filter((moment) => moment[name] !== undefined);
    const line = points.map((moment) => `${x(moment.elapsed).toFixed(1)},${y(moment[name]).toFixed(1)}`);
    parts.push(
      `<polyline data-line="${name}" points="${line.join(" ")}" fill="none" stroke="${COLOURS[number]}" stroke-width="2"/>`,
      `<rect x="${LEFT + 130 * number}" y="6" width="10" height="10" rx="2" fill="${COLOURS[number]}"/>`,
      `<text x="${LEFT + 16 + 130 * number}" y="16">${name}</text>`,
    );
  });
  chart.innerHTML = `<g font-size="15" fill="currentColor">${bands.join("")}${parts.join("")}</g>`;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function surface(canvas, height) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, context = canvas.getContext("2d");
  canvas.style.height = `${height}px`;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = "11px system-ui, sans-serif";
  return [context, width];
}

// A lane for each key: its last holders as wide as they held, a thin line for each hand-off between them.
function drawLanes() {
  const keys = Object.entries(lock.keys), canvas = document.getElementById("lanes");
  const [context, width] = surface(canvas, keys.length * LANE);
  let drawn = 0;
  keys.forEach(([key, told], number) => {
    // What has just ended is told a moment later: a hold that is as young would stand behind a gap that was none.
    const lasting = told.holds.filter((row) => lock.at - row[1] > YOUNG || !told.past.length);
    const past = told.past.length ? told.past : kept[key] ?? []; // a key that was quiet since shows its last holders
    kept[key] = past;
    const rows = [...past.slice(-LAST), ...lasting].sort((a, b) => a[1] - b[1]);
    const top = number * LANE + 16, thick = LANE - 26;
    context.fillStyle = colour("--dim");
    const from = rows.length ? rows[0][1] : lock.at, until = Math.max(...rows.map((row) => row[2] ?? lock.at), from + 1);
    const span = rows.length ? `${rounded(until - from)} ms are shown, until ${(until / 1000).toFixed(1)} s` : "nobody has held it yet";
    context.fillText(`${key}: ${told.waiting} waiting; ${span}`, 2, top - 4);
    const x = (at) => ((at - from) / (until - from)) * width;
    for (const [name, begin, end] of moments.at(-1)?.faults ?? []) {
      if (begin > until || (end ?? Infinity) < from) continue;
      const left = Math.max(0, x(begin));
      context.globalAlpha = 0.2;
      context.fillStyle = colour("--bad");
      context.fillRect(left, top, Math.max(2, Math.min(width, x(end ?? until)) - left), thick + 6);
      context.globalAlpha = 1;
      context.fillText(name, left + 4, top + thick + 5);
    }
    rows.forEach((row, place) => {
      const left = x(row[1]), wide = Math.max(1, x(row[2] ?? until) - left);
      context.fillStyle = colour(row[4] === 1 ? "--bad" : row[5] ? "--frozen" : place % 2 ? "--hold" : "--hold2");
      context.fillRect(left, top, wide, thick);
      if (place && row[2] !== null && rows[place - 1][2] !== null) {
        context.fillStyle = colour("--doubt");
        context.fillRect(x(rows[place - 1][2]), top + thick / 2, Math.max(1, left - x(rows[place - 1][2])), 1);
      }
      const label = `fence ${row[3]}`, short = String(row[3]);
      context.fillStyle = "#fff";
      if (wide > context.measureText(label).width + 8) context.fillText(label, left + 4, top + thick / 2 + 4);
      else if (wide > context.measureText(short).width + 4) context.fillText(short, left + 2, top + thick / 2 + 4);
      drawn += 1;
    });
  });
  canvas.dataset.drawn = drawn;
  canvas.dataset.refused = refused;
  const first = keys.flatMap(([key, told]) => told.waiters.map(([arrival, since]) => [since, `arrival ${arrival} (${key}, ${(lock.at - since).toFixed(0)} ms)`]));
  const names = first.sort((a, b) => a[0] - b[0]).slice(0, 8).map((waiter) => waiter[1]).join(", ");
  document.getElementById("waiters").textContent = names ? `First in the queue: ${names}` : "Nobody waits.";
  const last = turned.map(([key, , granted, , fence]) => `fence ${fence} (${key}, granted at ${(granted / 1000).toFixed(1)} s)`);
  document.getElementById("refused").textContent = last.length ? `Last refused as stale: ${last.join(", ")}` : "";
}

// A column for each report, a row for each half octave of the wait.
function drawHeat() {
  const canvas = document.getElementById("heat"), height = 180;
  const [context, width] = surface(canvas, height);
  const columns = moments.map((moment) => Object.entries(moment.waits ?? {}).map(([bucket, count]) => [+bucket, count]));
  const cells = columns.flat();
  if (!cells.length) return;
  const low = Math.min(...cells.map((cell) => cell[0])), high = Math.max(...cells.map((cell) => cell[0])) + 1;
  const most = Math.max(...cells.map((cell) => cell[1])), end = Math.max(1, moments.at(-1).elapsed);
  const row = (height - 26) / (high - low), x = (seconds) => HEAT_LEFT + ((width - HEAT_LEFT) * Math.max(0, seconds)) / end;
  context.fillStyle = colour("--hold");
  columns.forEach((column, number) => {
    const left = x(number ? moments[number - 1].elapsed : 0), wide = x(moments[number].elapsed) - left + 0.5;
    for (const [bucket, count] of column) {
      context.globalAlpha = 0.12 + 0.88 * Math.sqrt(count / most);
      context.fillRect(left, (high - 1 - bucket) * row + 4, wide, row + 0.5);
    }
  });
  context.fillStyle = colour("--bad");
  context.globalAlpha = 0.16;
  for (const [, begin, until] of moments.at(-1).faults ?? []) {
    const left = x(begin / 1000);
    context.fillRect(left, 4, Math.max(2, x((until ?? end * 1000) / 1000) - left), height - 26);
  }
  context.globalAlpha = 1;
  context.fillStyle = colour("--dim");
  const step = Math.max(1, Math.ceil((high - low) / 8));
  for (let bucket = low; bucket < high; bucket += step) {
    const ms = ((2 + (bucket % 2)) * 2 ** (Math.floor(bucket / 2) - 2)) / 1e6;
    context.fillText(ms >= 1000 ? `${rounded(ms / 1000)} s` : ms >= 1 ? `${rounded(ms)} ms` : `${rounded(ms * 1000)} µs`, 2, (high - bucket) * row + 4);
  }
  context.fillText("0 s", HEAT_LEFT, height - 6);
  const last = `${end.toFixed(0)} s`;
  context.fillText(last, width - context.measureText(last).width, height - 6);
  canvas.dataset.cells = cells.length;
}

const events = new EventSource("events");
let due = false;
const controls = document.getElementById("controls"), orders = document.getElementById("orders");
events.addEventListener("begin", () => { moments = []; refused = 0; turned = []; kept = {}; orders?.replaceChildren(); });
events.addEventListener("ordered", (event) => {
  const { at, what } = JSON.parse(event.data), line = document.createElement("li");
  line.textContent = `${at.toFixed(1)} s: ${what}`;
  orders?.prepend(line);
});
events.addEventListener("progress", (event) => {
  const moment = JSON.parse(event.data);
  moments.push(moment);
  state.textContent = moment.elapsed < 0 ? "starting" : "running";
  if (due) return;
  due = true; // the past comes all at once: one picture of it is enough
  requestAnimationFrame(() => {
    due = false;
    show(moments.at(-1));
    document.querySelectorAll("svg.live").forEach(draw);
    drawHeat();
  });
});
events.addEventListener("lock", (event) => {
  lock = JSON.parse(event.data);
  refused += lock.refused.length;
  turned = [...lock.refused.toReversed(), ...turned].slice(0, REFUSED);
  requestAnimationFrame(drawLanes);
});
events.addEventListener("ended", (event) => {
  const { verdict, folder, report } = JSON.parse(event.data);
  state.textContent = verdict;
  state.className = `verdict ${["ok", "violated"].includes(verdict) ? verdict : "unknown"}`;
  const link = document.createElement("a");
  link.id = "report";
  link.href = URL.createObjectURL(new Blob([report], { type: "text/html;charset=utf-8" }));
  link.target = "_blank";
  link.textContent = `${folder}/report.html`;
  if (controls) controls.hidden = true;
  document.getElementById("elapsed").replaceChildren("over; its report is ", link);
  events.close();
});
events.addEventListener("error", () => {
  if (events.readyState !== EventSource.CLOSED) state.textContent = "connection lost";
});
events.addEventListener("open", () => (state.textContent = moments.length ? "running" : "starting"));
