"use strict";
// What every part of the page uses. Names come from a record and are only ever set as text, never as markup.

const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const MINUS = "\u2212";

/** An element with attributes and children; children that are strings become text. */
function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false)
      element.setAttribute(name, value === true ? "" : visible(String(value)));
  }
  element.append(
    ...children
      .filter((child) => child !== null && child !== undefined)
      .map((child) => (typeof child === "string" ? visible(child) : child)),
  );
  return element;
}

/** Control characters as escapes, as memfit.report.run_words.visible: a mark of direction can turn a whole line around. */
function visible(text) {
  return text.replace(
    /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]/gu,
    (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** A name from the record, kept from turning the text around it. */
function name(text) {
  return html("bdi", {}, String(text));
}

/** An operation without the calls it is wrapped in, which are the same for all. */
function shortOp(op) {
  return op.replace(/^(StatefulPartitionedCall\/)+(?=.)/, "");
}

function threeDigits(value) {
  const text = value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);
  return text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
}

/** Bytes as memfit.units.format_size writes them. */
function formatSize(bytes) {
  if (bytes === null || bytes === undefined) return "unknown";
  if (bytes < 0) return "-" + formatSize(-bytes);
  for (const [power, unit] of [
    [40, "TiB"],
    [30, "GiB"],
    [20, "MiB"],
    [10, "KiB"],
  ]) {
    const factor = 2 ** power;
    if (bytes >= factor - Math.floor(factor / 2048)) return `${threeDigits(bytes / factor)} ${unit}`;
  }
  return `${bytes} B`;
}

/** Seconds as they are read: "310 ms", "6.2 s", "3 min 20 s". */
function formatSeconds(seconds) {
  if (seconds === null || seconds === undefined) return "unknown";
  if (seconds < 0.9995e-3) return `${threeDigits(seconds * 1e6)} µs`;
  if (seconds < 0.9995) return `${threeDigits(seconds * 1e3)} ms`;
  if (seconds < 59.95) return `${threeDigits(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  const minutes = Math.round(seconds / 60);
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

/** A clock for the axis: "0:40", "12:00", "1:05:00". */
function formatClock(seconds) {
  const whole = Math.round(seconds);
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (value) => String(value).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

/** Draw again when an element becomes wider or narrower; who watched it before does so no more. */
function onWidth(host, draw) {
  host.watching?.disconnect();
  let width = host.clientWidth;
  host.watching = new ResizeObserver(() => {
    if (host.clientWidth === width) return;
    width = host.clientWidth;
    draw();
  });
  host.watching.observe(host);
}

/** The first index whose value is at least this; the array is in order. */
function firstAt(values, value) {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Round values from low to high, at most `most` of them, by the first step that is large enough. */
function ticks(low, high, most, steps) {
  const step = steps.find((each) => (high - low) / each <= most) ?? (high - low || 1);
  const found = [];
  for (let at = Math.ceil(low / step); at * step <= high * (1 + 1e-9); at++) found.push(at * step);
  return found;
}

const DECIMAL = [];
for (let power = -6; power < 16; power++) for (const digit of [1, 2, 5]) DECIMAL.push(digit * 10 ** power);
const BINARY = [];
for (let power = 0; power < 60; power += 10)
  for (const digit of [1, 2, 4, 5, 10, 20, 25, 50, 100, 128, 200, 250, 256, 500, 512]) BINARY.push(digit * 2 ** power);
const CLOCK = [
  ...DECIMAL.filter((step) => step < 1),
  1,
  2,
  5,
  10,
  15,
  30,
  60,
  120,
  300,
  600,
  900,
  1800,
  3600,
  7200,
  14400,
  28800,
  86400,
  172800,
  604800,
  2592000,
];
