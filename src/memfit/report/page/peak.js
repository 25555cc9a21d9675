// What holds the bytes at the peak: a treemap by layer and kind, and a table to sort and to filter.

const FEW = 25;

function peakView(host, { layers, rows, total, rest, restBytes, notAttributed }) {
  const state = { sort: "bytes", down: true, text: "", kind: "", layer: undefined, all: false };
  const kinds = [...new Set(layers.flatMap((each) => Object.keys(each.kinds)))];
  const tree = new Treemap(layers, choose);
  const key = html(
    "ul",
    { class: "key", "aria-label": "Colours" },
    ...kinds.map((kind) => html("li", {}, swatch(kind), words(kind))),
  );
  const search = html("input", {
    type: "search",
    "aria-label": "Filter by layer, operation or shape",
    placeholder: "layer, operation, shape",
    oninput: () => {
      state.text = search.value;
      state.all = false;
      table();
    },
  });
  const select = html(
    "select",
    {
      "aria-label": "Kind",
      onchange: () => {
        state.kind = select.value;
        table();
      },
    },
    html("option", { value: "" }, "every kind"),
    ...kinds.map((kind) => html("option", { value: kind }, words(kind))),
  );
  const clear = html("button", {
    type: "button",
    hidden: true,
    onclick: () => {
      choose(undefined);
      search.focus();
    },
  });
  const status = html("span", { role: "status", class: "small" });
  const columns = [
    ["layer", "Layer and operation", ""],
    ["kind", "Kind", "optional"],
    ["part", "Part", "optional"],
    ["bytes", "Size", "number"],
    ["bytes", "Share", "number optional"],
  ];
  const heads = columns.map(([column, label, style], at) =>
    at === 4
      ? html("th", { scope: "col", class: style }, label)
      : html(
          "th",
          { scope: "col", class: style, "aria-sort": "none", "data-column": column },
          html(
            "button",
            {
              type: "button",
              onclick: () => {
                state.down = state.sort === column ? !state.down : column === "bytes";
                state.sort = column;
                table();
              },
            },
            label,
            html("span", { class: "arrow", "aria-hidden": true }),
          ),
        ),
  );
  const body = html("tbody");
  const more = html("button", {
    type: "button",
    onclick: () => {
      state.all = true;
      table();
    },
  });
  const outside = [];
  if (rest) outside.push(`${rest} smaller tensors, ${formatSize(restBytes)} together, are left out of the table.`);
  if (notAttributed)
    outside.push(`${formatSize(notAttributed)} of the peak could not be told apart and are not drawn.`);
  host.replaceChildren(
    tree.element,
    key,
    html("p", { class: "small", hidden: !outside.length }, outside.join(" ")),
    html("div", { class: "tools held-tools" }, search, select, clear, html("span", { class: "space" }), status),
    html(
      "div",
      { class: "scroll" },
      html(
        "table",
        { class: "held" },
        html("caption", { class: "hidden" }, "Tensors in memory at the peak"),
        html("thead", {}, html("tr", {}, ...heads)),
        body,
      ),
    ),
    more,
  );

  function choose(layer) {
    state.layer = layer;
    state.all = false;
    clear.hidden = layer === undefined;
    clear.replaceChildren("only ", name(layer ?? "no layer"), " \u00d7");
    clear.setAttribute("aria-label", visible(`Show all layers again, not only ${layer ?? "no layer"}`));
    tree.press(layer);
    table();
  }

  function table() {
    const text = state.text.trim().toLowerCase();
    const match = rows.filter(
      (row) =>
        (!state.kind || row.kind === state.kind) &&
        (state.layer === undefined || row.layer === state.layer) &&
        (!text || `${row.layer ?? ""} ${row.op} ${row.op_type} ${shape(row)}`.toLowerCase().includes(text)),
    );
    const value = (row) => (state.sort === "layer" ? (row.layer ?? row.op) : (row[state.sort] ?? ""));
    match.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      const order = typeof x === "number" ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true });
      return (state.down ? -order : order) || b.bytes - a.bytes;
    });
    const shown = state.all ? match : match.slice(0, FEW);
    body.replaceChildren(...shown.map(line));
    const bytes = match.reduce((sum, row) => sum + row.bytes, 0);
    status.textContent = match.length
      ? `${match.length} of ${rows.length} tensors, ${formatSize(bytes)}`
      : "No tensor matches.";
    more.hidden = shown.length === match.length;
    more.textContent = `Show all ${match.length}`;
    for (const head of heads) {
      const { column } = head.dataset;
      if (column)
        head.setAttribute("aria-sort", column === state.sort ? (state.down ? "descending" : "ascending") : "none");
    }
  }

  const shape = (row) => (row.shape ? `${row.dtype ?? ""}[${row.shape.join(", ")}]` : "");

  function line(row) {
    const op = name(shortOp(row.op));
    const below = [
      row.layer === null ? null : op,
      " ",
      row.shape ? html("span", { class: "whole" }, shape(row)) : null,
    ];
    const what = row.layer === null ? op : name(row.layer);
    return html(
      "tr",
      {},
      html(
        "td",
        { title: row.op },
        what,
        html("span", { class: "small phone" }, " ", swatch(row.kind), words(row.kind)),
        html("span", { class: "small mono" }, ...below),
      ),
      html("td", { class: "optional" }, swatch(row.kind), words(row.kind)),
      html("td", { class: "optional" }, row.part ?? ""),
      html("td", { class: "number" }, formatSize(row.bytes)),
      html("td", { class: "number optional" }, total ? `${((100 * row.bytes) / total).toFixed(1)} %` : "unknown"),
    );
  }

  tree.draw();
  table();
  onWidth(host, () => tree.draw());
}
