"use strict";
// Sends orders to the run. The token is behind the # of the address; without it there is nothing to press.
{
  const token = location.hash.slice(1), by = (id) => document.getElementById(id);
  const controls = by("controls"), rate = by("rate"), fault = by("fault"), seconds = by("seconds");
  controls.hidden = !token;

  async function give(order) {
    const headers = { "Content-Type": "application/json", "X-Harness-Token": token };
    let why = "";
    try {
      const reply = await fetch("steer", { method: "POST", headers, body: JSON.stringify(order) });
      why = (await reply.json()).error ?? "";
    } catch {
      why = "the harness does not answer";
    }
    by("refusal").textContent = why;
    return !why;
  }

  async function arrivals(perSecond) {
    if (!(await give({ order: "rate", rate: perSecond }))) return;
    by("stop").hidden = !perSecond;
    by("start").hidden = Boolean(perSecond);
  }

  controls.addEventListener("submit", (event) => {
    event.preventDefault();
    arrivals(rate.valueAsNumber || 0);
  });
  by("stop").addEventListener("click", () => arrivals(0));
  by("start").addEventListener("click", () => arrivals(rate.valueAsNumber || Number(controls.dataset.rate)));
  by("break").addEventListener("click", () =>
    give({ order: "fault", fault: fault.value, seconds: seconds.value === "" ? null : seconds.valueAsNumber }),
  );
  by("end").addEventListener("click", () => give({ order: "end" }));
  // Whoever is killed may stay dead: only then the length can be left out.
  const limit = () => { seconds.required = !fault.value.startsWith("kill"); seconds.placeholder = seconds.required ? "" : "ever"; };
  fault.addEventListener("change", limit);
  limit();
}
