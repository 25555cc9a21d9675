// A treemap of layers, coloured by kind. It is one stop of the keyboard; arrow keys move inside it.

const KIND_CLASS = (kind) =>
  ["activations", "gradients", "variables", "workspace", "parameters", "optimizer_state", "input_batch"].includes(kind)
    ? kind
    : "kind-other";
const words = (kind) => kind.replaceAll("_", " ");

function swatch(kind) {
  return svg(
    "svg",
    { class: "swatch", viewBox: "0 0 10 10", "aria-hidden": true },
    svg("rect", { class: KIND_CLASS(kind), width: 10, height: 10 }),
  );
}

/** Rectangles for values in falling order, as square as they can be (Bruls, Huizing, van Wijk 2000). */
function squarify(values, x, y, width, height) {
  const total = values.reduce((a, b) => a + b, 0);
  const areas = values.map((value) => (value / total) * width * height);
  const placed = [];
  let row = [];
  const worst = (list, side) => {
    const sum = list.reduce((a, b) => a + b, 0);
    return Math.max((side * side * list[0]) / (sum * sum), (sum * sum) / (side * side * list[list.length - 1]));
  };
  const lay = () => {
    const sum = row.reduce((a, b) => a + b, 0);
    const across = width >= height;
    const depth = sum / (across ? height : width);
    let offset = 0;
    for (const area of row) {
      const length = area / depth;
      placed.push(
        across
          ? { x, y: y + offset, width: depth, height: length }
          : { x: x + offset, y, width: length, height: depth },
      );
      offset += length;
    }
    if (across) [x, width] = [x + depth, width - depth];
    else [y, height] = [y + depth, height - depth];
    row = [];
  };
  for (const area of areas) {
    const side = Math.min(width, height);
    if (row.length && worst([...row, area], side) > worst(row, side)) lay();
    row.push(area);
  }
  if (row.length) lay();
  return placed;
}

class Treemap {
  /**
   * @param layers What to draw: layer, how many layers it stands for, and bytes by kind; largest first.
   * @param choose Called with the layer that was chosen, or undefined for all.
   */
  constructor(layers, choose) {
    this.layers = layers;
    this.choose = choose;
    this.chosen = undefined;
    this.tiles = [];
    this.element = svg("svg", {
      class: "tree",
      role: "group",
      "aria-label":
        "Bytes at the peak by layer. Arrow keys go from layer to layer, Enter shows only that layer in the table.",
      onkeydown: (event) => this.key(event),
    });
  }

  draw() {
    const width = Math.max(240, this.element.getBoundingClientRect().width);
    const height = width < 520 ? 300 : 320;
    this.element.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.element.setAttribute("height", height);
    const sizes = this.layers.map((each) => Object.values(each.kinds).reduce((a, b) => a + b, 0));
    const boxes = squarify(sizes, 0, 0, width, height);
    const focused = this.tiles.indexOf(document.activeElement);
    this.tiles = this.layers.map((each, at) => this.tile(each, sizes[at], boxes[at]));
    this.tiles[Math.max(0, focused)].setAttribute("tabindex", 0);
    this.element.replaceChildren(...this.tiles);
    this.press(this.chosen);
    this.tiles[focused]?.focus();
  }

  /** Show which layer is chosen. */
  press(chosen) {
    this.chosen = chosen;
    for (const [at, { layer, layers: count }] of this.layers.entries())
      this.tiles[at].setAttribute("aria-pressed", String(count === 1 && chosen === layer));
  }

  tile({ layer, layers: count, kinds }, size, box) {
    const label = visible(count > 1 ? `${count} smaller layers` : (layer ?? "no layer"));
    const held = Object.entries(kinds).sort((a, b) => b[1] - a[1]);
    const said = [formatSize(size), ...held.map(([kind, bytes]) => `${words(kind)} ${formatSize(bytes)}`)].join(", ");
    const group = svg(
      "g",
      {
        class: "tile",
        role: "button",
        tabindex: -1,
        "aria-label": `${label}: ${said}`,
        onclick: () => this.choose(this.chosen === layer || count > 1 ? undefined : layer),
      },
      svg("title", {}, `${label}: ${said}`),
    );
    // Side by side along the longer edge: the kinds of a layer then read as one bar.
    let done = 0;
    for (const [kind, bytes] of held) {
      const [from, share] = [done / size, bytes / size];
      done += bytes;
      const part =
        box.width >= box.height
          ? { ...box, x: box.x + from * box.width, width: share * box.width }
          : { ...box, y: box.y + from * box.height, height: share * box.height };
      group.append(rectangle(KIND_CLASS(kind), part, 0));
    }
    group.append(rectangle("ring", box, 1.5));
    const letters = Math.floor((box.width - 12) / 6.8);
    if (letters >= 4 && box.height >= 20) {
      const shown = label.length > letters ? `${label.slice(0, letters - 1)}\u2026` : label;
      group.append(svg("text", { x: box.x + 6, y: box.y + 16 }, shown));
    }
    if (letters >= 8 && box.height >= 36)
      group.append(svg("text", { class: "size", x: box.x + 6, y: box.y + 32 }, formatSize(size)));
    return group;
  }

  key(event) {
    const { tiles } = this;
    const at = tiles.indexOf(document.activeElement);
    const last = tiles.length - 1;
    const moves = {
      ArrowRight: at + 1,
      ArrowDown: at + 1,
      ArrowLeft: at - 1,
      ArrowUp: at - 1,
      Home: 0,
      End: last,
    };
    if (event.key in moves) {
      event.preventDefault();
      const next = Math.min(last, Math.max(0, moves[event.key]));
      tiles[at].setAttribute("tabindex", -1);
      tiles[next].setAttribute("tabindex", 0);
      tiles[next].focus();
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      tiles[at].dispatchEvent(new MouseEvent("click"));
    } else if (event.key === "Escape") this.choose(undefined);
  }
}

function rectangle(style, { x, y, width, height }, inset) {
  return svg("rect", {
    class: style,
    x: (x + inset).toFixed(1),
    y: (y + inset).toFixed(1),
    width: Math.max(0, width - 2 * inset).toFixed(1),
    height: Math.max(0, height - 2 * inset).toFixed(1),
  });
}
