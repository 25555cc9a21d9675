// Puts the parts of the page together.

function themeButton() {
  const button = document.getElementById("theme");
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const label = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`);
  };
  // A page opened from a file may have no storage: then the choice holds until it is closed.
  const storage = {
    get: () => {
      try {
        return localStorage.getItem("memfit-theme");
      } catch {
        return null;
      }
    },
    set: (value) => {
      try {
        localStorage.setItem("memfit-theme", value);
      } catch {
        /* see above */
      }
    },
  };
  const kept = storage.get();
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    storage.set(root.dataset.theme);
    label();
  });
  system.addEventListener("change", label);
  button.hidden = false;
  label();
}

function measuredPeak(step) {
  return {
    layers: step.by_layer,
    rows: step.at_peak,
    total: step.peak_bytes,
    rest: step.at_peak_left_out,
    restBytes: step.at_peak_left_out_bytes,
    notAttributed: step.not_attributed_bytes,
  };
}

function predictedPeak(predicted) {
  const rows = predicted.tensors.map(({ predicted_bytes: bytes, ...tensor }) => ({ ...tensor, bytes }));
  return {
    layers: predicted.by_layer,
    rows,
    total: predicted.predicted_peak_bytes,
    rest: 0,
    restBytes: 0,
    notAttributed: 0,
  };
}

const stepChoice = document.getElementById("step-choice");

function showStep(number) {
  const step = data.timelines[number];
  const chart = document.getElementById("step-chart");
  if (step.points.length) stepChart(chart, step, data.operations, [stepChoice]);
  else chart.replaceChildren(html("p", { class: "nothing" }, "The profiler saw no allocation in this step."));
  const peak = document.getElementById("peak");
  if (peak && step.by_layer.length) peakView(peak, measuredPeak(step));
  else
    peak?.replaceChildren(
      html("p", { class: "nothing" }, "The profiler did not say what was in memory at the peak of this step."),
    );
}

themeButton();
for (const host of document.querySelectorAll("[data-run]")) {
  const highest = Math.max(
    0,
    ...data.runs.map((run) => run.series.peak_bytes.reduce((most, value) => Math.max(most, value ?? 0), 0)),
  );
  runChart(host, data.runs[Number(host.dataset.run)], { most: highest });
}
if (data.timelines?.length) {
  const select = document.getElementById("step");
  select.addEventListener("change", () => showStep(Number(select.value)));
  select.value = String(
    data.timelines.reduce(
      (best, step, at, all) => ((step.peak_bytes ?? 0) > (all[best].peak_bytes ?? 0) ? at : best),
      0,
    ),
  );
  showStep(Number(select.value));
} else if (data.predicted_at_peak?.tensors.length) {
  peakView(document.getElementById("peak"), predictedPeak(data.predicted_at_peak));
}
document.documentElement.dataset.ready = "true";
