// The holder timeline: who held the key when, who waited, what the resource said. Wheel or drag to zoom,
// double click for everything, arrow keys to move. Data: rows of
// [called, granted, released, fence, write (0 accepted, 1 stale, 2 other), frozen, arrival, violation or "", when], times in ms.
(() => {
  const root = document.getElementById("timeline");
  if (!root) return;
  const data = JSON.parse(document.getElementById("timeline-data").textContent);
  const canvas = root.querySelector("canvas"), told = root.querySelector(".told");
  const context = canvas.getContext("2d");
  const end = data.rows.reduce((most, row) => Math.max(most, row[2]), 1);
  let view = data.focus ? [data.focus[0], Math.min(data.focus[1], end)] : [0, end], drag = null;
  // Those who hold at the same time go below each other: more than one row is more than one holder.
  const lanes = [], lane = data.rows.map((row) => {
    let free = lanes.findIndex((until) => until <= row[1]);
    if (free < 0) free = lanes.push(0) - 1;
    lanes[free] = row[2];
    return free;
  });
  const changes = data.rows.flatMap((row) => [[row[0], 1], [row[1], -1]]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let waiting = 0, most = 1;
  const depth = changes.map(([at, change]) => { waiting += change; most = Math.max(most, waiting); return [at, waiting]; });
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const TOP = 26, HOLDS = 92, GAP = 30, DEPTH = 72;

  function draw() {
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = width * ratio; canvas.height = height * ratio;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const x = (at) => (at - view[0]) / (view[1] - view[0]) * width;
    context.fillStyle = colour("--ground"); context.fillRect(0, 0, width, height);
    context.font = "11px system-ui, sans-serif";
    const span = view[1] - view[0], step = [1, 2, 5].flatMap((f) => [-3, -2, -1, 0, 1, 2, 3, 4, 5].map((p) => f * 10 ** p))
      .sort((a, b) => a - b).find((s) => span / s <= 10) || span;
    for (let at = Math.ceil(view[0] / step) * step; at <= view[1]; at += step) {
      context.fillStyle = colour("--line"); context.fillRect(x(at), TOP, 1, height - TOP);
      context.fillStyle = colour("--dim");
      const label = step >= 100 ? (at / 1000).toFixed(step >= 1000 ? 0 : 1) + " s" : at.toFixed(step < 1 ? 2 : 0) + " ms";
      if (x(at) + 3 + context.measureText(label).width <= width) context.fillText(label, x(at) + 3, 14);
    }
    for (const [name, from, to] of data.faults || []) {
      if (to < view[0] || from > view[1]) continue;
      context.globalAlpha = .14; context.fillStyle = colour("--bad");
      context.fillRect(x(from), TOP, Math.max(x(to) - x(from), 2), height - TOP); context.globalAlpha = 1;
    }
    context.fillStyle = colour("--dim");
    context.fillText("holds", 4, TOP + 10);
    context.fillText("waiting, at most " + most, 4, TOP + HOLDS + GAP - 6);
    const thick = Math.min(30, HOLDS / Math.max(lanes.length, 1) - 2);
    data.rows.forEach((row, number) => {
      if (row[2] < view[0] || row[1] > view[1]) return;
      const left = x(row[1]), wide = Math.max(x(row[2]) - left, 1), top = TOP + 16 + lane[number] * (thick + 2);
      context.fillStyle = row[4] === 1 ? colour("--bad") : row[5] ? colour("--frozen") : colour(number % 2 ? "--hold" : "--hold2");
      context.fillRect(left, top, wide, thick);
      if (row[7]) {  // a broken promise: red from top to bottom where it happened
        context.fillStyle = colour("--bad"); context.fillRect(left, top, wide, thick);
        context.fillRect(x(row[8]) - 1, TOP, 3, HOLDS + 4);
        context.fillText("✕ " + row[7], Math.min(Math.max(x(row[8]), 0) + 6, width - 280), TOP + HOLDS + 2);
      }
      const label = ["fence " + row[3], String(row[3])].find((text) => context.measureText(text).width + 8 < wide);
      if (label) { context.fillStyle = "#fff"; context.fillText(label, left + 4, top + thick / 2 + 4); }
    });
    const floor = TOP + HOLDS + GAP + DEPTH;
    context.beginPath(); context.moveTo(0, floor);
    let last = 0;
    for (const [at, count] of depth) {
      if (at > view[1]) break;
      if (at >= view[0]) { context.lineTo(x(at), floor - last / most * DEPTH); context.lineTo(x(at), floor - count / most * DEPTH); }
      else { context.moveTo(0, floor); context.lineTo(0, floor - count / most * DEPTH); }
      last = count;
    }
    context.lineTo(width, floor - last / most * DEPTH); context.lineTo(width, floor); context.closePath();
    context.globalAlpha = .35; context.fillStyle = colour("--doubt"); context.fill(); context.globalAlpha = 1;
    const ends = [];  // of the names of faults, in rows from below: none is written over another, or past the edge
    for (const [name, from, to] of data.faults || []) {
      if (to < view[0] || from > view[1]) continue;
      const wide = context.measureText(name).width, left = Math.max(4, Math.min(x(from) + 4, width - wide - 4));
      let line = ends.findIndex((end) => end < left);
      if (line < 0) line = ends.length;
      ends[line] = left + wide + 8;
      context.fillStyle = colour("--bad"); context.fillText(name, left, height - 6 - 13 * line);
    }
    if (drag) {
      context.globalAlpha = .2; context.fillStyle = colour("--hold");
      context.fillRect(Math.min(drag[0], drag[1]), 0, Math.abs(drag[1] - drag[0]), height); context.globalAlpha = 1;
    }
    root.dataset.from = view[0].toFixed(3); root.dataset.to = view[1].toFixed(3); root.dataset.drawn = data.rows.length;
    root.dataset.violations = data.rows.filter((row) => row[7]).length;
  }
  const at = (pixel) => view[0] + pixel / canvas.clientWidth * (view[1] - view[0]);
  function zoom(from, to) {
    from = Math.max(0, from); to = Math.min(end, to);
    if (to - from > 1e-3) { view = [from, to]; draw(); }
  }
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const centre = at(event.offsetX), factor = event.deltaY > 0 ? 1.3 : 1 / 1.3;
    zoom(centre - (centre - view[0]) * factor, centre + (view[1] - centre) * factor);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => { drag = [event.offsetX, event.offsetX]; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) { drag[1] = event.offsetX; draw(); return; }
    const time = at(event.offsetX), row = data.rows.find((row) => row[1] <= time && time <= row[2]);
    told.textContent = row ? `arrival ${row[6]}: fence ${row[3]}, waited ${(row[1] - row[0]).toFixed(3)} ms, granted at ` +
      `${row[1].toFixed(3)} ms, held ${(row[2] - row[1]).toFixed(3)} ms, its write was ${["accepted", "refused as stale", "not made or unknown"][row[4]]}` +
      (row[5] ? "; frozen on purpose" : "") + (row[7] ? "; VIOLATION: " + row[7] : "") : "nobody holds the key at " + time.toFixed(3) + " ms";
  });
  canvas.addEventListener("pointerup", () => {
    if (!drag) return;
    const [a, b] = drag.map(at); drag = null;
    Math.abs(b - a) / (view[1] - view[0]) > .01 ? zoom(Math.min(a, b), Math.max(a, b)) : draw();
  });
  canvas.addEventListener("dblclick", () => zoom(0, end));
  canvas.addEventListener("keydown", (event) => {
    const span = view[1] - view[0], move = { ArrowLeft: [-.2, -.2], ArrowRight: [.2, .2], "+": [.2, -.2], "-": [-.3, .3], "0": [-1e9, 1e9] }[event.key];
    if (move) { event.preventDefault(); zoom(view[0] + move[0] * span, view[1] + move[1] * span); }
  });
  root.querySelector("button").addEventListener("click", () => zoom(0, end));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("resize", draw);
  draw();
})();
