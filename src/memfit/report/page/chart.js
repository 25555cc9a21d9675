// A chart over time that can be zoomed by dragging, by buttons and by keyboard alone.

const LEFT = 72,
  RIGHT = 14,
  TOP = 24,
  BOTTOM = 34;

class Chart {
  /**
   * @param host An empty element.
   * @param model label, times (in order) and starts of the points, most (the highest value), limit, formatX, stepsX, formatY, stepsY,
   *   lowest(from, to) and highest(from, to) by index, draw(chart, from, to), describe(index) -> nodes,
   *   valueAt(index), peak (index of the highest), summit (what it is called), before (where the first point begins), tools (elements).
   */
  constructor(host, model) {
    this.host = host;
    this.range = null;
    this.cursor = null;
    this.drag = null;
    this.fromZero = true;
    this.canvas = svg("svg", {
      tabindex: 0,
      role: "application",
      "aria-roledescription": "chart that can be zoomed",
      onkeydown: (event) => this.key(event),
      onpointerdown: (event) => this.press(event),
      onpointermove: (event) => this.move(event),
      onpointerup: (event) => this.release(event),
      onpointercancel: () => this.cancel(),
      onpointerleave: () => this.leave(),
      onblur: () => this.point(null),
      ondblclick: () => this.zoom(null),
    });
    this.tip = html("div", { class: "tip", hidden: true });
    this.spoken = html("div", { class: "hidden", "aria-live": "polite" });
    const button = (label, sign, action) =>
      html("button", { type: "button", "aria-label": label, title: label, onclick: action }, sign);
    this.buttons = {
      closer: button("Zoom in", "+", () => this.scale(0.5)),
      wider: button("Zoom out", MINUS, () => this.scale(2)),
      earlier: button("Earlier", "\u2190", () => this.shift(-0.5)),
      later: button("Later", "\u2192", () => this.shift(0.5)),
      all: button("Show all", "Show all", () => this.zoom(null)),
    };
    this.zero = html("input", {
      type: "checkbox",
      checked: true,
      onchange: () => {
        this.fromZero = this.zero.checked;
        this.redraw();
      },
    });
    this.tools = html(
      "div",
      { class: "tools" },
      ...(model.tools ?? []),
      html("span", { class: "space" }),
      html("label", {}, this.zero, "from zero"),
      html("span", { class: "together" }, ...Object.values(this.buttons)),
    );
    const plot = html("div", { class: "chart" }, this.canvas, this.tip);
    host.replaceChildren(this.tools, plot, this.spoken);
    this.show(model);
    onWidth(host, () => this.redraw());
  }

  /** Another set of values in the same frame. */
  show(model) {
    this.model = model;
    this.canvas.setAttribute("aria-label", model.label);
    this.cursor = null;
    this.redraw();
  }

  get full() {
    const { times, before } = this.model;
    const last = times[times.length - 1];
    return [before, last > before ? last : before + 1];
  }

  zoom(range) {
    const [start, stop] = this.full;
    if (range) {
      const least = (stop - start) / 1e5;
      const width = Math.min(stop - start, Math.max(least, range[1] - range[0]));
      const from = Math.min(Math.max(start, range[0]), stop - width);
      range = width >= (stop - start) * 0.999 ? null : [from, from + width];
    }
    this.range = range;
    this.redraw();
  }

  scale(factor) {
    const [from, to] = this.range ?? this.full;
    const at = this.cursor === null ? (from + to) / 2 : this.model.times[this.cursor];
    const middle = at >= from && at <= to ? at : (from + to) / 2;
    const share = (middle - from) / (to - from);
    const width = (to - from) * factor;
    this.zoom([middle - width * share, middle + width * (1 - share)]);
  }

  shift(share) {
    const [from, to] = this.range ?? this.full;
    this.zoom([from + (to - from) * share, to + (to - from) * share]);
  }

  redraw() {
    const { model } = this;
    this.width = Math.max(240, this.canvas.parentNode.clientWidth);
    this.height = this.width < 520 ? 240 : 300;
    [this.from, this.to] = this.range ?? this.full;
    const first = firstAt(model.times, this.from);
    const last = Math.min(model.times.length - 1, firstAt(model.times, this.to));
    this.scaleY(first, last);
    const clip = `clip-${this.canvas.id || (this.canvas.id = `chart-${Chart.count++}`)}`;
    this.inner = svg("g", { "clip-path": `url(#${clip})` });
    this.over = svg("g");
    this.canvas.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.canvas.setAttribute("height", this.height);
    this.canvas.replaceChildren(
      svg(
        "clipPath",
        { id: clip },
        svg("rect", { x: LEFT, y: 0, width: this.width - LEFT - RIGHT, height: this.height }),
      ),
      this.axes(),
      this.inner,
      this.over,
    );
    model.draw(this, first, last);
    this.markPeak();
    for (const [key, off] of [
      ["all", !this.range],
      ["wider", !this.range],
      ["earlier", !this.range || this.from <= this.full[0]],
      ["later", !this.range || this.to >= this.full[1]],
    ]) {
      const { [key]: button } = this.buttons;
      // A button that has the focus must not lose it by being switched off.
      if (button !== document.activeElement) button.disabled = off;
    }
    this.canvas.dataset.from = this.from;
    this.canvas.dataset.to = this.to;
    this.point(this.cursor, { quiet: true });
  }

  scaleY(first, last) {
    const { model } = this;
    if (this.fromZero) {
      this.low = 0;
      this.high = (model.most || 1) * 1.12;
    } else {
      const [low, high] = [model.lowest(first, last), model.highest(first, last)];
      const room = Math.max((high - low) * 0.08, high * 1e-6, 1e-9);
      [this.low, this.high] = [Math.max(0, low - room), high + room];
    }
  }

  x(time) {
    return LEFT + ((this.width - LEFT - RIGHT) * (time - this.from)) / (this.to - this.from);
  }

  y(value) {
    const bottom = this.height - BOTTOM;
    return bottom - ((bottom - TOP) * (value - this.low)) / (this.high - this.low);
  }

  axes() {
    const { model } = this;
    const group = svg("g", { "aria-hidden": true });
    for (const value of ticks(this.low, this.high, 6, model.stepsY)) {
      const y = this.y(value).toFixed(1);
      group.append(
        svg("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: y, y2: y }),
        svg("text", { x: LEFT - 8, y, dy: "0.35em", "text-anchor": "end" }, value ? model.formatY(value) : "0"),
      );
    }
    const bottom = this.height - BOTTOM;
    group.append(svg("line", { class: "axis", x1: LEFT, x2: this.width - RIGHT, y1: bottom, y2: bottom }));
    for (const value of ticks(this.from, this.to, Math.max(4, Math.floor(this.width / 110)), model.stepsX)) {
      const x = this.x(value);
      // Half a label beside the drawing would be cut off.
      if (x > this.width - 22) continue;
      group.append(
        svg(
          "text",
          { x: x.toFixed(1), y: this.height - 6, "text-anchor": "middle" },
          model.formatX(value, this.to - this.from),
        ),
      );
    }
    return group;
  }

  /** Where a point begins: where the one before ended, unless nothing ran for longer than the point itself took. */
  begin(at) {
    const { times, starts, before } = this.model;
    const earlier = at ? times[at - 1] : before;
    const idle = starts[at] - earlier;
    return idle > times[at] - starts[at] && this.x(starts[at]) - this.x(earlier) > 3 ? starts[at] : earlier;
  }

  /** The outline of values that hold while their steps run, as an SVG path; unknown values and idle time leave gaps. */
  outline(values, first, last, { closed = false } = {}) {
    const { times } = this.model;
    const bottom = this.y(Math.max(0, this.low)).toFixed(1);
    let path = "",
      open = false,
      end = 0,
      left = 0,
      waiting = null;
    const draw = (right) => {
      if (waiting === null) return;
      const y = this.y(waiting).toFixed(1);
      path += (open ? `V${y}` : `M${left.toFixed(1)} ${closed ? `${bottom}V${y}` : y}`) + `H${right.toFixed(1)}`;
      [open, waiting, left] = [true, null, right];
    };
    const close = () => {
      draw(end);
      if (open && closed) path += `V${bottom}Z`;
      open = false;
    };
    for (let at = first; at <= last; at++) {
      const start = this.begin(at),
        right = this.x(times[at]);
      if (values[at] === null || (at > first && start > times[at - 1])) close();
      if (values[at] !== null) {
        if (!open && waiting === null) left = this.x(start);
        // Several points on one pixel become one, with the highest value.
        waiting = waiting === null ? values[at] : Math.max(waiting, values[at]);
        if (right - left >= 0.7) draw(right);
      }
      end = right;
    }
    close();
    return path;
  }

  markPeak() {
    const { model } = this;
    if (model.peak === null) return;
    const time = model.times[model.peak];
    const value = model.valueAt(model.peak);
    if (time < this.from || time > this.to || value > this.high || value < this.low) return;
    const x = this.x(time),
      y = this.y(value);
    const anchor = x > this.width - 120 ? "end" : x < LEFT + 60 ? "start" : "middle";
    this.over.append(
      svg("circle", { class: "dot", cx: x.toFixed(1), cy: y.toFixed(1), r: 3.5 }),
      svg(
        "text",
        { class: "peak-label", x: x.toFixed(1), y: (y - 9).toFixed(1), "text-anchor": anchor },
        `${model.summit} ${model.formatY(value)}`,
      ),
    );
  }

  /** Put the cursor on a point and say what is there. */
  point(index, { quiet = false } = {}) {
    this.cursor = index;
    this.cross?.remove();
    this.tip.hidden = true;
    if (index === null || index === undefined) return;
    const time = this.model.times[index];
    if (time < this.from || time > this.to) return;
    const x = this.x(time),
      value = this.model.valueAt(index);
    this.cross = svg(
      "g",
      { "aria-hidden": true },
      svg("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: this.height - BOTTOM }),
      value === null
        ? null
        : svg("circle", { class: "dot", cx: x, cy: this.y(Math.min(this.high, Math.max(this.low, value))), r: 4 }),
    );
    this.over.append(this.cross);
    this.tip.replaceChildren(...this.model.describe(index));
    this.tip.hidden = false;
    const space = this.width - this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(space, x + (x > this.width / 2 ? -this.tip.offsetWidth - 12 : 12)))}px`;
    // Below the point where there is room, so that the line can be seen.
    const low = this.height - BOTTOM - this.tip.offsetHeight - 6;
    this.tip.style.top = `${value !== null && this.y(value) + 10 > low ? TOP + 4 : low}px`;
    if (!quiet) this.spoken.textContent = this.tip.innerText.replace(/\n+/g, "; ");
  }

  nearest(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = ((event.clientX - box.left) * this.width) / box.width;
    const time =
      this.from +
      ((this.to - this.from) * (Math.min(this.width - RIGHT, Math.max(LEFT, x)) - LEFT)) / (this.width - LEFT - RIGHT);
    return { time, index: Math.min(this.model.times.length - 1, firstAt(this.model.times, time)) };
  }

  press(event) {
    if (event.button) return;
    this.drag = this.nearest(event).time;
    this.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    const { time, index } = this.nearest(event);
    if (this.drag === null) return this.point(index, { quiet: true });
    this.selection?.remove();
    const [left, right] = [this.x(this.drag), this.x(time)].sort((a, b) => a - b);
    this.selection = svg("rect", {
      class: "selection",
      x: left,
      width: right - left,
      y: TOP,
      height: this.height - BOTTOM - TOP,
    });
    this.over.append(this.selection);
  }

  release(event) {
    if (this.drag === null) return;
    const { time, index } = this.nearest(event);
    const [from, to] = [this.drag, time].sort((a, b) => a - b);
    const wide = this.x(to) - this.x(from) > 6;
    this.cancel();
    if (wide) this.zoom([from, to]);
    else this.point(index, { quiet: true });
  }

  cancel() {
    this.drag = null;
    this.selection?.remove();
  }

  leave() {
    if (this.drag === null && document.activeElement !== this.canvas) this.point(null);
  }

  /** The next point that is a pixel away: of thousands, one press each would be no way to go through them. */
  step(direction) {
    const { times } = this.model;
    const begin = direction > 0 ? firstAt(times, this.from) : Math.min(times.length - 1, firstAt(times, this.to));
    if (this.cursor === null || times[this.cursor] < this.from || times[this.cursor] > this.to) return begin;
    let next = this.cursor;
    do next += direction;
    while (next > 0 && next < times.length - 1 && Math.abs(this.x(times[next]) - this.x(times[this.cursor])) < 1);
    return Math.min(times.length - 1, Math.max(0, next));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { times, peak } = this.model;
    const go = (index) => {
      if (times[index] < this.from || times[index] > this.to) {
        const half = (this.to - this.from) / 2;
        this.zoom([times[index] - half, times[index] + half]);
      }
      this.point(index);
    };
    const actions = {
      ArrowLeft: () => (event.shiftKey ? this.shift(-0.25) : go(this.step(-1))),
      ArrowRight: () => (event.shiftKey ? this.shift(0.25) : go(this.step(1))),
      Home: () => go(firstAt(times, this.from)),
      End: () => go(Math.max(0, firstAt(times, this.to + 1e-12) - 1)),
      "+": () => this.scale(0.5),
      "=": () => this.scale(0.5),
      "-": () => this.scale(2),
      0: () => this.zoom(null),
      Escape: () => this.zoom(null),
      p: () => peak !== null && go(peak),
      P: () => peak !== null && go(peak),
    };
    if (actions[event.key]) {
      event.preventDefault();
      actions[event.key]();
    }
  }
}
Chart.count = 0;
