// The timeline inside a profiled step: every allocation, with its operation and layer.

function stepChart(host, step, operations, tools) {
  const times = step.points.map((point) => point[0]);
  const values = step.points.map((point) => point[1]);
  const highest = Math.max(...values);
  const extent = (choose) => (first, last) => values.slice(first, last + 1).reduce((a, b) => choose(a, b));
  const unit = (width) => (width >= 2e6 ? [1e6, "s"] : width >= 2e3 ? [1e3, "ms"] : [1, "µs"]);
  return new Chart(host, {
    label: `Bytes in use inside ${step.phase} step ${step.step}. Arrow keys go from operation to operation, plus and minus zoom, 0 shows all, P goes to the peak.`,
    tools,
    times,
    before: Math.min(0, times[0]),
    most: highest,
    limit: null,
    summit: "peak",
    peak: values.indexOf(highest),
    formatX: (value, width) => `${threeDigits(value / unit(width)[0])} ${unit(width)[1]}`,
    stepsX: DECIMAL,
    formatY: formatSize,
    stepsY: BINARY,
    lowest: extent(Math.min),
    highest: extent(Math.max),
    valueAt: (index) => values[index],
    describe: (index) => {
      const [time, inUse, number, change] = step.points[index];
      const [op, type, layer, part] = operations[number];
      return [
        html("b", {}, name(layer ?? "no layer")),
        html("div", {}, name(shortOp(op) || "unknown operation"), type && type !== op ? ` (${type})` : ""),
        html(
          "div",
          {},
          `${part}: ${change < 0 ? "frees" : "takes"} ${formatSize(Math.abs(change))}, ${formatSize(inUse)} in use`,
        ),
        html("div", {}, `${formatSeconds(time / 1e6)} into the step`),
      ];
    },
    draw: (chart, first, last) => {
      const bottom = chart.height - BOTTOM;
      for (const band of step.bands) {
        const left = Math.max(LEFT, chart.x(band.from_us)),
          right = Math.min(chart.width - RIGHT, chart.x(band.to_us));
        if (right <= left) continue;
        chart.inner.append(
          svg("rect", {
            class: band.part,
            x: left.toFixed(1),
            y: TOP - 18,
            width: (right - left).toFixed(1),
            height: bottom - TOP + 18,
          }),
        );
        if (right - left > 60)
          chart.over.append(
            svg(
              "text",
              { class: "part-label", x: ((left + right) / 2).toFixed(1), y: TOP - 6, "text-anchor": "middle" },
              band.part,
            ),
          );
      }
      chart.inner.append(
        svg("path", { class: "in-use", d: holding(chart, first, last, true) }),
        svg("path", { class: "peak", d: holding(chart, first, last, false) }),
      );
    },
  });

  /** Bytes hold from an event until the next one. */
  function holding(chart, first, last, closed) {
    const bottom = chart.y(Math.max(0, chart.low)).toFixed(1);
    const start = first ? values[first - 1] : (step.base_bytes ?? values[0]);
    let path = closed ? `M${LEFT} ${bottom}V${chart.y(start).toFixed(1)}` : `M${LEFT} ${chart.y(start).toFixed(1)}`;
    for (let at = first; at <= last; at++)
      path += `H${chart.x(times[at]).toFixed(1)}V${chart.y(values[at]).toFixed(1)}`;
    return path + (closed ? `V${bottom}Z` : "");
  }
}
