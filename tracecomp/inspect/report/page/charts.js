// Pictures other than graphs: the roofline, the arena over time, compiling as a flame graph.

const svg = (name, attributes, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
};

function grouped(p) {
  const found = new Map();
  p.calls.forEach((call) => {
    const k = found.get(call.name) || { name: call.name, calls: 0, seconds: 0, bytes: 0, operations: 0, share: 0, longest: call };
    k.calls += 1;
    k.seconds += call.seconds || 0;
    k.bytes += call.nbytes;
    k.operations += call.operations;
    if ((call.seconds || 0) > (k.longest.seconds || 0)) k.longest = call;
    found.set(call.name, k);
  });
  found.forEach((k) => { k.share = k.longest.share; });
  return [...found.values()].sort((a, b) => b.seconds - a.seconds);
}

function drawRoofline() {
  const host = $("roofline"), W = Math.max(host.clientWidth, 260), H = 380, left = 62, right = 14, top = 30, bottom = 46, m = report.machine;
  host.replaceChildren();
  host.setAttribute("viewBox", `0 0 ${W} ${H}`);
  const kernels = grouped(program()).filter((k) => k.seconds > 0 && k.operations > 0 && k.bytes > 0);
  if (!kernels.length) return host.append(svg("text", { x: 20, y: 40 }, "No times: give the report arguments to measure with."));
  const xs = kernels.map((k) => k.operations / k.bytes), ys = kernels.map((k) => k.operations / k.seconds);
  const ridge = m.flops / m.bandwidth;
  const [x0, x1] = [Math.min(...xs, 0.1) / 2, Math.max(...xs, ridge * 2) * 2];
  const [y0, y1] = [Math.min(...ys, m.flops / 1e3) / 2, Math.max(...ys, m.flops) * 2];
  const X = (v) => left + ((W - left - right) * Math.log(v / x0)) / Math.log(x1 / x0);
  const Y = (v) => H - bottom - ((H - top - bottom) * Math.log(v / y0)) / Math.log(y1 / y0);
  for (let e = Math.ceil(Math.log10(y0)); e <= Math.log10(y1); e++) {
    host.append(svg("line", { x1: left, x2: W - right, y1: Y(10 ** e), y2: Y(10 ** e), stroke: "var(--line)" }));
    const unit = e >= 9 ? `${10 ** (e - 9)} G` : e >= 6 ? `${10 ** (e - 6)} M` : `${10 ** (e - 3)} K`;
    host.append(svg("text", { x: left - 6, y: Y(10 ** e) + 4, "text-anchor": "end" }, unit));
  }
  for (let e = Math.ceil(Math.log10(x0)); e <= Math.log10(x1); e++) {
    host.append(svg("text", { x: X(10 ** e), y: H - bottom + 16, "text-anchor": "middle" }, String(Number((10 ** e).toPrecision(1)))));
  }
  host.append(svg("text", { x: W / 2, y: H - 8, "text-anchor": "middle" }, "operations per byte"));
  host.append(svg("text", { x: 8, y: 18 }, "operations/s"));
  for (const [rate, name, dash] of [[m.bandwidth, "memory", ""], [m.cacheBandwidth, "first cache", "4 4"]]) {
    const knee = m.flops / rate;
    host.append(svg("path", { d: `M${X(x0)},${Y(rate * x0)}L${X(knee)},${Y(m.flops)}L${X(x1)},${Y(m.flops)}`, fill: "none",
      stroke: "var(--accent)", "stroke-width": 1.5, "stroke-dasharray": dash }));
    const at = Math.max(x0 * 1.6, (y0 * 2.2) / rate);
    host.append(svg("text", { x: X(at) + 4, y: Y(rate * at) - 6 }, name));
  }
  host.append(svg("text", { x: W - right, y: Y(m.flops) - 5, "text-anchor": "end" }, `arithmetic, ${m.threads} thread${m.threads > 1 ? "s" : ""}`));
  const most = Math.max(...kernels.map((k) => k.seconds));
  kernels.slice(0, 120).reverse().forEach((k) => {
    const dot = svg("circle", { cx: X(k.operations / k.bytes), cy: Y(k.operations / k.seconds), r: 3 + 13 * Math.sqrt(k.seconds / most),
      fill: "var(--hot)", "fill-opacity": 0.45, stroke: "var(--hot)", "data-kernel": k.name, tabindex: 0, role: "button",
      "aria-label": `${title(k.name)}, ${seconds(k.seconds)}` });
    dot.append(svg("title", {}, `${title(k.name)}\n${seconds(k.seconds)}, ${percent(k.share || 0)} of its peak`));
    host.append(dot);
  });
}

function drawArena() {
  const canvas = $("arena"), ratio = devicePixelRatio || 1, memory = program().memory;
  const [w, h] = [canvas.clientWidth, canvas.clientHeight], c = canvas.getContext("2d");
  canvas.width = w * ratio;
  canvas.height = h * ratio;
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, w, h);
  const calls = Math.max(memory.calls, 1), total = Math.max(memory.arena, 1), live = new Array(calls).fill(0);
  const left = 64, right = 10, top = 44, bottom = 62;
  const X = (n) => left + ((w - left - right) * n) / calls, Y = (b) => h - bottom - ((h - top - bottom) * b) / total;
  memory.blocks.forEach((b) => {
    const on = state.kernels.has(b.made_by);
    c.fillStyle = on ? css("hot") : hue(b.made_by);
    const [x, y, right, top] = [X(b.first), Y(b.offset), X(Math.min(b.last + 1, calls)), Y(b.offset + b.nbytes)];
    c.fillRect(x, top, Math.max(right - x - 0.5, 0.7), Math.max(y - top - 0.5, 0.7));
    for (let n = b.first; n <= Math.min(b.last, calls - 1); n++) live[n] += b.nbytes;
  });
  drawArenaAxes(c, { w, h, left, right, top, bottom, calls, total, X, Y });
  c.strokeStyle = css("accent");
  c.lineWidth = 1.5;
  c.beginPath();
  live.forEach((b, n) => (n ? c.lineTo(X(n + 0.5), Y(b)) : c.moveTo(X(0.5), Y(b))));
  c.stroke();
  drawPeak(c, live, X, Y, w);
  canvas.onpointermove = (e) => {
    const n = Math.floor(((e.offsetX - left) / (w - left - right)) * calls), at = ((h - bottom - e.offsetY) / (h - top - bottom)) * total;
    const b = memory.blocks.find((x) => x.first <= n && n <= x.last && x.offset <= at && at < x.offset + x.nbytes);
    tip(n < 0 || n >= calls ? null : `call ${n}: ${bytes(live[n])} needed${b ? `; ${b.type}, ${bytes(b.nbytes)}, from ${title(b.made_by)}` : ""}`, e);
  };
  canvas.onpointerleave = () => tip(null);
}

// Bytes upwards, kernel calls to the right, and below these the phases of a training step.
function drawArenaAxes(c, { w, h, left, right, top, bottom, calls, total, X, Y }) {
  c.font = `13px ${css("sans")}`;
  c.fillStyle = css("soft");
  c.strokeStyle = css("line");
  c.lineWidth = 1;
  c.textAlign = "right";
  for (let part = 0; part <= 4; part++) {
    const y = Y((total * part) / 4);
    c.beginPath();
    c.moveTo(left, y);
    c.lineTo(w - right, y);
    c.stroke();
    c.fillText(part ? bytes((total * part) / 4) : "0", left - 6, y + 4);
  }
  c.textAlign = "center";
  const ticks = Math.max(1, Math.min(calls, Math.floor((w - left - right) / 90)));
  for (let t = 0; t <= ticks; t++) {
    const n = Math.round((calls * t) / ticks);
    c.fillText(String(n), Math.min(X(n), w - right - 10), h - bottom + 34);
  }
  c.fillText("kernel calls, in order", (left + w - right) / 2, h - 8);
  const phases = program().kernelGraph.phases, colours = { forward: css("cool"), backward: css("mark"), update: css("box-line") };
  phaseRuns(phases).forEach(([phase, first, end]) => {
    c.fillStyle = colours[phase];
    c.fillRect(X(first), h - bottom + 2, X(end) - X(first), 17);
    c.fillStyle = css("ink");
    if (X(end) - X(first) > 62) c.fillText(phase, (X(first) + X(end)) / 2, h - bottom + 15);
  });
  // Updates run between backward kernels, in pieces too narrow for a name: the corner names all colours.
  c.textAlign = "left";
  Object.keys(colours).filter((phase) => phases.includes(phase)).forEach((phase, n) => {
    c.fillStyle = colours[phase];
    c.fillRect(left + 92 * n, 6, 12, 12);
    c.fillStyle = css("soft");
    c.fillText(phase, left + 92 * n + 17, 16);
  });
}

// Neighbouring calls of one phase; calls without a phase, such as copies, belong to none.
function phaseRuns(phases) {
  const runs = [];
  phases.forEach((phase, n) => {
    const last = runs[runs.length - 1];
    if (last && last[0] === phase && last[2] === n) last[2] = n + 1;
    else if (phase) runs.push([phase, n, n + 1]);
  });
  return runs;
}

function drawPeak(c, live, X, Y, w) {
  const at = live.indexOf(Math.max(...live)), x = X(at + 0.5), text = `peak ${bytes(live[at])}, call ${at}`;
  c.fillStyle = css("accent");
  c.beginPath();
  c.arc(x, Y(live[at]), 4, 0, 7);
  c.fill();
  c.textAlign = x > w / 2 ? "right" : "left";
  c.fillText(text, x + (x > w / 2 ? -8 : 8), Y(live[at]) - 8);
}

function drawFlame() {
  const tree = program().compileTimes, rows = [];
  // Every level is a row; what a step does besides its parts is an empty place below it.
  const put = (step, level) => {
    (rows[level] ||= []).push(step);
    const parts = step.parts.reduce((sum, part) => sum + part.seconds, 0);
    step.parts.forEach((part) => put(part, level + 1));
    gap(step.seconds - parts, level + 1);
  };
  const gap = (time, level) => {
    if (level >= depth || time <= 0) return;
    (rows[level] ||= []).push({ name: "", seconds: time });
    gap(time, level + 1);
  };
  const levels = (step) => 1 + Math.max(0, ...step.parts.map(levels)), depth = levels(tree);
  put(tree, 0);
  $("flame").replaceChildren(...rows.map((row, level) => {
    const line = document.createElement("div");
    line.className = "row";
    row.forEach(({ name, seconds: time, more }) => {
      const part = document.createElement("span");
      part.style.flex = `${time} 1 0`;
      if (name) {
        part.style.setProperty("--turn", `${30 - 7 * level + (name.length * 11) % 22}deg`);
        part.textContent = name;
        part.title = `${name}: ${seconds(time)}, ${percent(time / tree.seconds)}${more ? `; ${more}` : ""}`;
      } else part.className = "gap";
      line.append(part);
    });
    return line;
  }));
}
