// The data, what is selected, and who wants to know of it. A selection is always of one graph ("program") and holds
// nodes, kernels and source lines that belong together; every pane shows its part of it.

const report = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const listeners = [];
const state = { program: 0, nodes: new Set(), kernels: new Set(), lines: new Set(), calls: new Set(), from: "" };

const program = () => report.programs[state.program];
const title = (key) => program().titles[key] || key;
const shortPlace = (line) => line.split("/").pop();

function escapeHtml(text) {
  return String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
}

function seconds(value) {
  if (value == null) return "–";
  for (const [size, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) {
    if (value >= size) return `${Number((value / size).toPrecision(3))} ${unit}`;
  }
  return `${Math.round(value * 1e9)} ns`;
}

function bytes(value) {
  for (const [size, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "KB"]]) {
    if (value >= size) return `${Number((value / size).toPrecision(3))} ${unit}`;
  }
  return `${value} B`;
}

const percent = (share) => `${Math.round(100 * share)} %`;

// ---- what belongs together, looked up once for each program

const indexes = new Map();

function index() {
  const known = indexes.get(state.program);
  if (known) return known;
  const p = program();
  const made = { callsOfNode: new Map(), callsOfKernel: new Map(), nodesOfLine: new Map(), callsOfLine: new Map() };
  const put = (map, key, value) => (map.get(key) || map.set(key, []).get(key)).push(value);
  p.calls.forEach((call, n) => {
    put(made.callsOfKernel, call.name, n);
    call.nodes.forEach((id) => put(made.callsOfNode, id, n));
    call.sources.forEach((line) => put(made.callsOfLine, line, n));
  });
  p.nodes.forEach((row, id) => {
    if (p.texts[row[4]]) put(made.nodesOfLine, p.texts[row[4]], id);
  });
  indexes.set(state.program, made);
  return made;
}

function node(id) {
  const p = program(), row = p.nodes[id], text = p.texts;
  return { op: text[row[0]], type: text[row[1]], attrs: text[row[2]], scope: text[row[3]], line: text[row[4]], bytes: row[5] };
}

// ---- selecting

function select(what, from = "") {
  const p = program(), of = index();
  const nodes = new Set(), kernels = new Set(), lines = new Set(), calls = new Set();
  const addCall = (n) => {
    calls.add(n);
    kernels.add(p.calls[n].name);
  };
  if (what.kernel != null) {
    (of.callsOfKernel.get(what.kernel) || []).forEach(addCall);
    calls.forEach((n) => {
      p.calls[n].nodes.forEach((id) => nodes.add(id));
      p.calls[n].sources.forEach((line) => lines.add(line));
    });
  } else if (what.call != null) {
    addCall(what.call);
    p.calls[what.call].nodes.forEach((id) => nodes.add(id));
    p.calls[what.call].sources.forEach((line) => lines.add(line));
  } else if (what.node != null) {
    nodes.add(what.node);
    if (node(what.node).line) lines.add(node(what.node).line);
    (of.callsOfNode.get(what.node) || []).forEach(addCall);
  } else if (what.line != null) {
    lines.add(what.line);
    (of.nodesOfLine.get(what.line) || []).forEach((id) => nodes.add(id));
    (of.callsOfLine.get(what.line) || []).forEach(addCall);
  }
  Object.assign(state, { nodes, kernels, lines, calls, from, main: what });
  listeners.forEach((tell) => tell());
}

const onSelect = (tell) => listeners.push(tell);

// ---- colours

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function mix(a, b, part) {
  const number = (hex) => [1, 3, 5].map((n) => parseInt(hex.slice(n, n + 2), 16));
  const [x, y] = [number(a), number(b)];
  return `rgb(${x.map((v, n) => Math.round(v + (y[n] - v) * part)).join(",")})`;
}

function hue(text) {
  let sum = 7;
  for (const c of text) sum = (sum * 31 + c.charCodeAt(0)) % 360;
  const dark = document.documentElement.dataset.theme === "dark";
  return `hsl(${sum} 45% ${dark ? 32 : 84}%)`;
}
