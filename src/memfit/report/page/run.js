// The timeline over the run: memory, step time or host memory of each step, with what happened on the way.

const SHOWN = {
  memory: { values: "peak_bytes", summit: "peak", words: "Device memory", format: formatSize, steps: BINARY },
  time: { values: "seconds", summit: "slowest", words: "Step time", format: formatSeconds, steps: DECIMAL },
  host: { values: "host_bytes", summit: "most", words: "Host memory", format: formatSize, steps: BINARY },
};

function runChart(host, run, { most = null, last = null } = {}) {
  const { series, marks, epochs, limit_bytes: limit } = run;
  const kinds = Object.keys(SHOWN).filter((kind) => series[SHOWN[kind].values].some((value) => value !== null));
  if (!kinds.length) return null;
  let chart = null;
  const buttons = kinds.map((kind) =>
    html(
      "button",
      {
        type: "button",
        "aria-pressed": String(kind === kinds[0]),
        onclick: (event) => {
          for (const button of buttons) button.setAttribute("aria-pressed", String(button === event.target));
          chart.show(model(kind));
        },
      },
      SHOWN[kind].words,
    ),
  );
  const tools =
    kinds.length > 1
      ? [html("span", { class: "together", role: "group", "aria-label": "What to show" }, ...buttons)]
      : [];

  function model(kind) {
    const { values: column, summit, words, format, steps } = SHOWN[kind];
    const values = series[column];
    const memory = kind === "memory";
    const highest = values.reduce((most, value) => Math.max(most, value ?? 0), 0);
    // A limit far above everything would press the run to the floor of the chart.
    const limited = memory && limit && highest > 0.35 * limit;
    const extent = (choose, start, all) => (first, until) => {
      let found = start;
      for (const numbers of all)
        for (let at = first; at <= until; at++) if (numbers[at] !== null) found = choose(found, numbers[at]);
      return Number.isFinite(found) ? found : 0;
    };
    const lines = memory ? [values, series.in_use_bytes, series.least_in_use_bytes] : [values];
    const starts = series.at.map((at, index) => at - (series.seconds[index] ?? Infinity) * series.count[index]);
    return {
      starts,
      label: `${words} over the run. Arrow keys read values, plus and minus zoom, 0 shows all, P goes to the peak.`,
      times: series.at,
      before: Math.min(series.at[0], Math.max(0, series.at[0] - (series.seconds[0] ?? 0) * series.count[0])),
      tools,
      most: Math.max(memory && most !== null ? most : highest, limited ? limit : 0),
      limit: limited ? limit : null,
      formatX: (value, width) => (width < 20 ? `${threeDigits(value)} s` : formatClock(value)),
      stepsX: CLOCK,
      formatY: format,
      stepsY: steps,
      lowest: extent(Math.min, Infinity, lines),
      highest: extent(Math.max, -Infinity, lines),
      summit,
      peak: highest ? values.indexOf(highest) : null,
      valueAt: (index) => values[index],
      describe: (index) => describe(index),
      draw: (drawn, first, until) => draw(drawn, first, until, values, memory, limited),
    };
  }

  function describe(index) {
    const of = (column) => series[column][index];
    const first = of("first"),
      count = of("count");
    const number = count > 1 ? `steps ${first} to ${first + count - 1}` : `step ${first}`;
    const epoch = of("epoch") === null ? "" : `, epoch ${of("epoch")}`;
    const near = marks.filter((mark) => Math.abs(chart.x(mark.at) - chart.x(of("at"))) < 4);
    return [
      html("b", {}, `${of("phase")} ${number}${epoch}`),
      html("div", {}, `peak ${formatSize(of("peak_bytes"))}, ${formatSize(of("in_use_bytes"))} in use after it`),
      html(
        "div",
        {},
        `${formatSeconds(of("seconds"))} a step${count > 1 ? `, slowest ${formatSeconds(of("slowest_seconds"))}` : ""}`,
      ),
      html("div", {}, `host ${formatSize(of("host_bytes"))}, ${formatSeconds(of("at"))} into the run`),
      ...near.slice(0, 3).map((mark) => html("div", {}, name(mark.words))),
    ];
  }

  function draw(drawn, first, until, values, memory, limited) {
    const { inner } = drawn;
    const bottom = drawn.height - BOTTOM;
    drawEpochs(drawn);
    inner.append(svg("path", { class: "under", d: drawn.outline(values, first, until, { closed: true }) }));
    if (memory)
      inner.append(
        svg("path", { class: "in-use", d: drawn.outline(series.in_use_bytes, first, until, { closed: true }) }),
      );
    inner.append(svg("path", { class: "peak", d: drawn.outline(values, first, until) }));
    if (limited) {
      const y = drawn.y(limit).toFixed(1);
      if (limit >= drawn.low && limit <= drawn.high) {
        inner.append(
          svg("line", { class: "limit", x1: LEFT, x2: drawn.width - RIGHT, y1: y, y2: y }),
          svg(
            "text",
            { class: "limit-label", x: drawn.width - RIGHT - 2, y: y - 5, "text-anchor": "end" },
            `limit ${formatSize(limit)}`,
          ),
        );
      }
    }
    // The strip below the axis: which phase ran when.
    for (let at = first; at <= until;) {
      const phase = series.phase[at];
      let end = at;
      while (end < until && series.phase[end + 1] === phase && drawn.begin(end + 1) === series.at[end]) end++;
      const left = drawn.x(drawn.begin(at)),
        right = drawn.x(series.at[end]);
      inner.append(
        svg("rect", {
          class: phase,
          x: left.toFixed(1),
          y: bottom + 3,
          width: Math.max(0.5, right - left).toFixed(1),
          height: 6,
        }),
      );
      at = end + 1;
    }
    // What matters most is drawn last, so that nothing covers it.
    const order = ["retrace", "recovery", "out_of_memory"];
    for (const mark of [...marks].sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind))) {
      if (mark.at < drawn.from || mark.at > drawn.to) continue;
      const x = drawn.x(mark.at);
      const shape = { out_of_memory: "M-5-5L5 5M-5 5L5-5", recovery: "M0-5L5 5H-5Z", retrace: "M0-4L4 0L0 4L-4 0Z" }[
        mark.kind
      ];
      inner.append(
        svg(
          "g",
          { class: `mark ${mark.kind}`, transform: `translate(${x.toFixed(1)} 0)` },
          svg("title", {}, mark.words),
          mark.kind === "retrace" ? null : svg("line", { y1: 16, y2: bottom }),
          svg("path", {
            d: shape,
            transform: "translate(0 9)",
            "stroke-width": mark.kind === "out_of_memory" ? 2.5 : 1,
          }),
        ),
      );
    }
  }

  function drawEpochs(drawn) {
    const ends = epochs.filter((row) => row.phase === "train" && row.epoch !== null);
    let start = drawn.model.before,
      taken = -Infinity;
    for (const row of ends) {
      const left = Math.max(LEFT, drawn.x(start)),
        right = Math.min(drawn.width - RIGHT, drawn.x(row.at));
      if (right > LEFT && left < drawn.width - RIGHT) {
        drawn.inner.append(
          svg("line", {
            class: "epoch",
            x1: drawn.x(row.at).toFixed(1),
            x2: drawn.x(row.at).toFixed(1),
            y1: TOP,
            y2: drawn.height - BOTTOM,
          }),
        );
        const middle = (left + right) / 2;
        if (right - left > 8 && middle - taken > 64) {
          drawn.inner.append(
            svg(
              "text",
              { x: middle.toFixed(1), y: drawn.height - BOTTOM - 6, "text-anchor": "middle", class: "epoch-label" },
              `epoch ${row.epoch}`,
            ),
          );
          taken = middle;
        }
      }
      start = row.at;
    }
  }

  chart = new Chart(host, model(kinds[0]));
  return chart;
}
