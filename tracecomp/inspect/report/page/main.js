// Putting it together: which graph is shown where, in which colours; keys, search, links.

const views = { left: new GraphView($("left")), right: new GraphView($("right")) };

const SHADES = {
  kernel: "Kernel", time: "Time", share: "Share of peak", memory: "Memory", error: "Error against float64", changes: "What the step changed", none: "None",
};

function stageChoices() {
  return [["kernels", "kernels"], ...program().stages.map((s, n) => [String(n), `${n ? `${n}. ` : ""}${s.name}`])];
}

function fill(id, choices, chosen) {
  $(id).innerHTML = choices.map(([value, name]) => `<option value="${value}"${value === chosen ? " selected" : ""}>${escapeHtml(name)}</option>`).join("");
}

// ---- what a view shows

function showIn(view, choice) {
  const p = program();
  view.choice = choice;
  if (choice === "kernels") showKernels(view, p.kernelGraph);
  else showStage(view, Number(choice));
}

function showKernels(view, graph) {
  const calls = (n) => graph.calls[n];
  view.isChosen = (n) => calls(n).some((c) => state.calls.has(c));
  const called = (n) => (calls(n).length === 1 ? program().calls[calls(n)[0]].computed : graph.names[n]);
  view.meaning = (n) => (calls(n).length === 1 ? { call: calls(n)[0] } : { kernel: program().calls[calls(n)[0]]?.name });
  view.value = (n, what) => {
    const found = calls(n).map((c) => program().calls[c]);
    if (what === "time") return found.reduce((sum, c) => sum + (c.seconds || 0), 0);
    if (what === "share") return Math.max(0, ...found.map((c) => c.share || 0));
    if (what === "memory") return found.reduce((sum, c) => sum + c.nbytes, 0);
    if (what === "error") return Math.max(0, ...found.flatMap((c) => c.nodes.map(errorShade)));
    return null;
  };
  view.kernelOf = (n) => graph.names[n];
  view.changed = () => "";
  dress(view);
  view.show(graph, (n) => {
    const time = view.value(n, "time");
    return [called(n), time ? `${seconds(time)}` : ""];
  });
}

function showStage(view, stage) {
  const p = program(), table = p.tables[p.stages[stage].table], ids = table.ids, of = index();
  const other = otherStage(view, stage), known = new Set(other.ids);
  view.isChosen = (n) => state.nodes.has(ids[n]);
  view.meaning = (n) => ({ node: ids[n] });
  view.value = (n, what) => {
    if (what === "memory") return p.nodes[ids[n]][5];
    if (what === "error") return errorShade(ids[n]);
    const found = (of.callsOfNode.get(ids[n]) || []).map((c) => p.calls[c]);
    if (what === "time") return found.reduce((sum, c) => sum + (c.seconds || 0) / Math.max(c.nodes.length, 1), 0);
    if (what === "share") return Math.max(0, ...found.map((c) => c.share || 0));
    return null;
  };
  view.kernelOf = (n) => p.calls[(of.callsOfNode.get(ids[n]) || [])[0]]?.name || "";
  view.changed = (n) => (known.has(ids[n]) ? "" : other.before ? "added" : "gone");
  dress(view);
  view.show(table, (n) => [p.texts[p.nodes[ids[n]][0]], p.texts[p.nodes[ids[n]][1]]]);
}

// How far a node is from float64, on a scale of powers of ten: 0 at 1e-9, 1 where nothing is right.
const errorShade = (id) => {
  const error = program().errors[id];
  return error ? Math.min(Math.max(1 + Math.log10(error) / 9, 0.02), 1) : 0;
};

// The graph that changes are told against: the one beside it, else the step before.
function otherStage(view, stage) {
  const p = program(), beside = view === views.left ? $("beside").value : $("stage").value;
  const at = beside !== "" && beside !== "kernels" ? Number(beside) : Math.max(stage - 1, 0);
  return { ids: p.tables[p.stages[at].table].ids, before: at <= stage };
}

function dress(view) {
  const what = () => $("colour").value;
  let most = null, of = null;
  view.colour = (n) => {
    const kind = what();
    if (kind === "none") return null;
    if (kind === "kernel") return view.kernelOf(n) ? hue(view.kernelOf(n)) : null;
    if (kind === "changes") return null;
    if (of !== kind) {
      of = kind;
      most = 0;
      view.table.inputs.forEach((_, m) => { most = Math.max(most, view.value(m, kind)); });
    }
    const value = view.value(n, kind);
    if (!value || !most) return null;
    const part = { share: Math.sqrt(Math.min(value, 1)), error: value }[kind] ?? Math.sqrt(value / most);
    return mix(css("cool"), css("hot"), part);
  };
  view.border = (n) => {
    const change = what() === "changes" ? view.changed(n) : "";
    return change === "added" ? css("good") : change === "gone" ? css("bad") : null;
  };
  view.colourOfBox = (b) => {
    const kind = what();
    if (!["time", "memory"].includes(kind)) return css("cool");
    let inside = 0, all = 0;
    view.table.inputs.forEach((_, n) => {
      const value = view.value(n, kind);
      all += value;
      for (let at = view.home[n]; at >= 0; at = view.parent[at]) if (at === b) inside += value;
    });
    return all ? mix(css("cool"), css("hot"), Math.sqrt(inside / all)) : css("cool");
  };
}

function showBoth() {
  const beside = $("beside").value;
  $("right").hidden = beside === "";
  showIn(views.left, $("stage").value);
  if (beside !== "") showIn(views.right, beside);
  drawLegend();
  Object.values(views).forEach((v) => v.table && v.reveal());
}

function drawLegend() {
  const kind = $("colour").value;
  const ramp = `<i style="background:linear-gradient(90deg,${css("cool")},${css("hot")})"></i>`;
  $("legend").innerHTML = { time: `little ${ramp} most time`, share: `0 % ${ramp} of peak`, memory: `little ${ramp} most bytes`, error: `1e-9 ${ramp} 1`,
    changes: '<span class="added">green: added</span> <span class="gone">red: gone</span>' }[kind] || "";
}

// ---- the page

function showProgram(n) {
  state.program = n;
  const p = program(), timed = p.seconds != null;
  const known = { time: timed, share: timed, error: Object.keys(p.errors).length > 0 };
  const shades = Object.entries(SHADES).filter(([kind]) => known[kind] ?? true);
  fill("stage", stageChoices(), "kernels");
  fill("beside", [["", "nothing"], ...stageChoices()], "");
  fill("colour", shades, timed ? "time" : "kernel");
  [drawKernels, drawRoofline, drawSource, drawSteps, drawFlame, drawMemoryWords, drawArena, drawDecisions].forEach((draw) => draw());
  select({});
  showBoth();
}

function searching(text) {
  const wanted = text.trim().toLowerCase(), p = program();
  if (!wanted) return select({});
  const kernel = Object.keys(p.kernels).find((k) => `${k} ${title(k)}`.toLowerCase().includes(wanted));
  const line = Object.entries(report.sources).flatMap(([file, lines]) => Object.entries(lines).map(([n, t]) => [`${file}:${n}`, t]))
    .find(([place, t]) => index().nodesOfLine.has(place) && (shortPlace(place).includes(wanted) || t.toLowerCase().includes(wanted)));
  const stage = $("stage").value, ids = stage === "kernels" ? p.tables[p.tables.length - 1].ids : p.tables[p.stages[Number(stage)].table].ids;
  const id = ids.find((i) => p.texts[p.nodes[i][0]] === wanted) ?? ids.find((i) => p.nodes[i].slice(0, 4).some((t) => p.texts[t].toLowerCase().includes(wanted)));
  if (kernel) select({ kernel }, "search");
  else if (id !== undefined) select({ node: id }, "search");
  else if (line) select({ line: line[0] }, "search");
  else $("detail").textContent = `Nothing found for ${text}.`;
}

function follow(target, from) {
  const row = target.closest("[data-kernel],[data-line]");
  if (!row) return false;
  const { kernel, line } = row.dataset;
  if (from === "code" && line) select({ line }, from);
  else select(kernel != null ? { kernel } : { line }, from);
  return true;
}

function listen() {
  document.addEventListener("click", (e) => {
    const pane = e.target.closest(".code, table, svg, .scroll");
    if (pane) follow(e.target, pane.id);
  });
  document.addEventListener("keydown", (e) => {
    const typing = e.target.matches("input, select");
    if (e.key === "Enter" && e.target.matches("tr, circle, .l")) follow(e.target, "");
    if (e.key === "Escape") { $("search").value = ""; select({}); e.target.blur?.(); }
    if (typing || e.ctrlKey || e.metaKey || e.altKey) return;
    const both = (act) => () => Object.values(views).forEach((v) => v.table && act(v));
    const act = { "/": () => $("search").focus(), f: both((v) => v.fit(true)), "+": both((v) => v.zoom(1.25)), "-": both((v) => v.zoom(0.8)),
      o: both((v) => { v.openAll(); v.fit(); }), c: both((v) => { v.closeAll(); v.fit(); }), d: theme }[e.key];
    if (act) { e.preventDefault(); act(); }
  });
  $("search").addEventListener("input", (e) => searching(e.target.value));
  $("program").addEventListener("change", (e) => showProgram(Number(e.target.value)));
  ["stage", "beside"].forEach((id) => $(id).addEventListener("change", showBoth));
  $("colour").addEventListener("change", () => { drawLegend(); Object.values(views).forEach((v) => { v.table && dress(v); v.draw(); }); });
  const press = { open: (v) => { v.openAll(); v.fit(); }, close: (v) => { v.closeAll(); v.fit(); }, fit: (v) => v.fit(true), in: (v) => v.zoom(1.25), out: (v) => v.zoom(0.8) };
  Object.entries(press).forEach(([id, act]) => $(id).addEventListener("click", () => Object.values(views).forEach((v) => v.table && act(v))));
  document.querySelectorAll("[data-tab]").forEach((b) => b.addEventListener("click", () => { tab = b.dataset.tab; drawCode(); }));
  $("theme").addEventListener("click", theme);
  addEventListener("resize", () => { Object.values(views).forEach((v) => v.draw()); drawArena(); drawRoofline(); });
}

function theme() {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  Object.values(views).forEach((v) => v.draw());
  [drawLegend, drawArena, drawSource, lightSource].forEach((draw) => report.programs.length && draw());
}

onSelect(() => {
  lightSource();
  drawCode();
  drawDetail();
  drawArena();
  document.querySelectorAll("tr[data-kernel]").forEach((row) => row.classList.toggle("on", state.kernels.has(row.dataset.kernel)));
});

drawAnswer();
drawRecordings();
$("environment-text").textContent = report.environment;
listen();
if (report.programs.length) {
  fill("program", report.programs.map((p, n) => [String(n), `${p.name} (${p.phase})`]), "0");
  showProgram(0);
} else {
  ["kernels", "work", "memory", "compile", "decisions"].forEach((id) => { $(id).hidden = true; });
}
document.documentElement.dataset.ready = "yes";
