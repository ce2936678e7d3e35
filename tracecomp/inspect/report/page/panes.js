// Panes and tables: source, code of a kernel, where the time goes, decisions, recordings.

function table(id, head, rows, caption) {
  const cells = (row, tag) => row.map((cell, n) => `<${tag}${head[n].number ? ' class="n"' : ""}${tag === "th" ? ' scope="col"' : ""}>${cell}</${tag}>`).join("");
  const body = rows.map((r) => `<tr${r.data ? ` ${r.data} tabindex="0"` : ""}>${cells(r.cells, "td")}</tr>`).join("");
  const title = caption ? `<caption class="sr">${escapeHtml(caption)}</caption>` : "";
  $(id).innerHTML = `${title}<thead><tr>${cells(head.map((h) => escapeHtml(h.name)), "th")}</tr></thead><tbody>${body}</tbody>`;
}

const meter = (share, kind = "") => `<span class="meter ${kind}" aria-hidden="true"><i style="width:${Math.min(100, 100 * share).toFixed(1)}%"></i></span>`;
const places = (lines) => lines.map((l, n) => `<span class="place"><code title="${escapeHtml(l)}">${escapeHtml(shortPlace(l))}</code>${n + 1 < lines.length ? "," : ""}</span>`).join(" ");

function measuredMemory(m) {
  return m.measured != null ? `measured ${bytes(m.measured)}` : "";
}

function limitWords(limit) {
  if (!limit) return "";
  return `<span class="why">${escapeHtml(limit.words)}${limit.advice ? `; ${escapeHtml(limit.advice)}` : ""}</span>`;
}

// ---- the answer

function drawAnswer() {
  const facts = report.facts, costs = facts.costs, programs = report.programs;
  $("name").textContent = report.name;
  const calls = programs.reduce((sum, p) => sum + p.calls.filter((c) => !c.prepares).length, 0);
  const time = programs.length && programs[0].wall != null ? programs[0].wall : programs[0]?.seconds;
  const graphs = programs.length === 1 ? "one graph" : `${programs.length} graphs`;
  let verdict = programs.length ? `<code>${escapeHtml(report.name)}</code> is ${graphs} of ${calls} kernel calls` : escapeHtml(report.words[0]);
  if (time != null) verdict += ` and takes ${seconds(time)}`;
  if (costs?.eager && costs?.call) {
    const times = costs.eager / costs.call;
    verdict += times >= 1 ? `, ${times.toPrecision(3)} times as fast as eagerly` : `, ${(1 / times).toPrecision(3)} times as long as eagerly`;
  }
  const worst = programs.length ? grouped(programs[0])[0] : null;
  const small = worst && worst.seconds ? `The largest part, ${percent(worst.seconds / programs[0].seconds)}, goes to <b>${escapeHtml(programs[0].titles[worst.name])}</b>: ${limitWords(worst.longest.limit)}` : "";
  $("verdict").innerHTML = `${verdict}.${small ? `<small>${small}.</small>` : ""}`;
  const tiles = [];
  if (programs.length) {
    const p = programs[0];
    if (p.share != null) tiles.push(["share of the machine's peak", percent(p.share), `${p.threads} thread${p.threads > 1 ? "s" : ""}`]);
    if (costs) {
      const even = costs.eager && costs.call && costs.eager > costs.call ? Math.ceil(costs.compiling / (costs.eager - costs.call)) : null;
      tiles.push([costs.loaded ? "loading the code took" : "compiling took", seconds(costs.compiling), even ? `pays after ${even.toLocaleString("en")} calls` : costs.why_not]);
      if (costs.eager) tiles.push(["eager call", seconds(costs.eager), ""]);
    }
    const m = p.memory, predicted = m.arena + m.scratch + m.results;
    tiles.push(["memory of a call", bytes(predicted), measuredMemory(m)]);
    tiles.push(["nodes recorded", String(p.recordedNodes), `${p.steps[p.stages.length - 1].size} after all passes`]);
  }
  tiles.push(["recordings", `${facts.recordings.length} in use`, `${facts.made} call${facts.made === 1 ? "" : "s"} recorded${facts.derived ? `, ${facts.derived} recordings derived for other sizes` : ""}`]);
  $("tiles").innerHTML = tiles.map(([name, value, more]) => `<div><dt>${name}</dt><dd>${value}<small>${more || ""}</small></dd></div>`).join("");
  const notes = [facts.eager_because && `Runs eagerly: ${facts.eager_because}`, facts.broken_because && `Graph break: ${facts.broken_because}`,
    ...new Set(facts.again.map((reason) => `Recorded again: ${reason}`)), ...report.words.filter((w) => w.trim().startsWith("preempted")).map((w) => w.trim())];
  $("notes").innerHTML = notes.filter(Boolean).slice(0, 8).map((n) => `<p class="note">${escapeHtml(n)}</p>`).join("");
  drawChanges();
}

function drawChanges() {
  if (!report.changes) return;
  const rows = report.changes.map((c) => `<tr><td>${escapeHtml(c.what)}</td><td class="gone">${escapeHtml(c.before)}</td><td class="added">${escapeHtml(c.after)}</td></tr>`);
  $("changes").innerHTML = rows.length
    ? `<h2>What has changed</h2><div class="scroll"><table><thead><tr><th>What</th><th>Before</th><th>Now</th></tr></thead><tbody>${rows.join("")}</tbody></table></div>`
    : "<p class=\"note\">Nothing has changed against the earlier report.</p>";
}

// ---- kernels

function drawKernels() {
  const p = program(), total = p.seconds || 0;
  const rows = grouped(p).map((k) => ({
    data: `data-kernel="${escapeHtml(k.name)}"`,
    cells: [
      total ? `${seconds(k.seconds)}${meter(k.seconds / total)}` : "–", total ? percent(k.seconds / total) : "",
      k.share != null ? `${percent(k.share)}${meter(k.share, "peak")}` : "–",
      `<b title="${escapeHtml(k.name)}">${escapeHtml(title(k.name))}</b>${k.calls > 1 ? ` <span class="faint">× ${k.calls}</span>` : ""}<br>${limitWords(k.longest.limit)}`,
    ],
  }));
  table("kernel-table", [{ name: "Time", number: true }, { name: "Share", number: true }, { name: "Of peak", number: true },
    { name: "Kernel, and the first reason why it is not faster" }], rows, "Kernels by time");
}

// ---- source

function heatOfLines() {
  const heat = new Map(), total = program().seconds || 0;
  if (total) program().calls.forEach((c) => c.sources.forEach((l) => heat.set(l, (heat.get(l) || 0) + (c.seconds || 0) / c.sources.length / total)));
  return heat;
}

function drawSource() {
  const heat = heatOfLines(), of = index(), parts = [];
  const most = Math.max(...heat.values(), 1e-9);
  for (const [file, lines] of Object.entries(report.sources)) {
    parts.push(`<div class="file">${escapeHtml(file)}</div>`);
    let before = null;
    for (const [n, text] of Object.entries(lines)) {
      if (before !== null && Number(n) !== before + 1) parts.push('<div class="l faint">  ⋮</div>');
      before = Number(n);
      const line = `${file}:${n}`, known = of.nodesOfLine.has(line);
      const share = heat.get(line) || 0, colour = share ? mix(css("cool"), css("hot"), share / most) : "transparent";
      const attributes = known ? ` data-line="${escapeHtml(line)}" tabindex="-1" title="${share ? `about ${percent(share)} of the time` : ""}"` : "";
      parts.push(`<div class="l"${attributes}><span class="heat" style="background:${colour}"></span><span class="num">${n}</span>${escapeHtml(text)}</div>`);
    }
  }
  $("source").innerHTML = parts.join("") || '<div class="file">The source of this program is not at hand.</div>';
}

function lightSource() {
  let first = null;
  $("source").querySelectorAll("[data-line]").forEach((row) => {
    const on = state.lines.has(row.dataset.line);
    row.classList.toggle("on", on);
    if (on && !first) first = row;
  });
  if (first && state.from !== "source") scrollInto($("source"), first);
}

function scrollInto(host, row) {
  host.scrollTop = row.offsetTop - host.offsetTop - host.clientHeight / 3;
}

// ---- code

let tab = "loops";

function drawCode() {
  const name = [...state.kernels][0] || grouped(program())[0]?.name, kernel = program().kernels[name];
  document.querySelectorAll("[data-tab]").forEach((b) => b.setAttribute("aria-selected", String(b.dataset.tab === tab)));
  if (!kernel) return ($("code").textContent = "");
  if (state.from === "code" && $("code").dataset.shown === `${name} ${tab}`) return lightCode();
  $("code").dataset.shown = `${name} ${tab}`;
  const lines = tab === "schedule" ? kernel.schedule.split("\n") : kernel[tab];
  const origin = kernel[`${tab}Lines`] || [];
  $("code").innerHTML = `<div class="file" data-key="${escapeHtml(name)}">${escapeHtml(title(name))}</div>` + lines.map((text, n) => {
    const line = origin[n] != null && origin[n] >= 0 ? program().texts[origin[n]] : "";
    return `<div class="l" data-kernel="${escapeHtml(name)}"${line ? ` data-line="${escapeHtml(line)}" title="${escapeHtml(shortPlace(line))}"` : ""}>${escapeHtml(text) || " "}</div>`;
  }).join("");
  lightCode();
}

function lightCode() {
  let first = null;
  const few = state.main && (state.main.line != null || state.main.node != null);
  $("code").querySelectorAll("div.l").forEach((row) => {
    const on = Boolean(few && row.dataset.line && state.lines.has(row.dataset.line));
    row.classList.toggle("on", on);
    if (on && !first) first = row;
  });
  if (first && state.from !== "code") scrollInto($("code"), first);
}

// ---- what is selected, in words

function drawDetail() {
  const parts = [], main = state.main || {};
  if (main.node != null) {
    const n = node(main.node), error = program().errors[main.node];
    parts.push(`<b>${escapeHtml(n.op)}</b> ${escapeHtml(n.type)} ${n.attrs ? `<span class="faint">{${escapeHtml(n.attrs)}}</span>` : ""} ${n.scope ? `in ${escapeHtml(n.scope)}` : ""} ${n.line ? places([n.line]) : ""}${error != null ? `, ${error.toPrecision(2)} from float64` : ""}`);
  }
  if (main.line != null) parts.push(`${places([main.line])}: ${state.nodes.size} nodes, ${state.calls.size} kernel calls`);
  const calls = [...state.calls].map((n) => program().calls[n]);
  const unique = [...new Map(calls.map((c) => [c.name, c])).values()];
  unique.slice(0, 4).forEach((c) => {
    const time = c.seconds != null ? `, ${seconds(c.seconds)}, ${percent(c.share)} of peak` : "";
    parts.push(`<b>${escapeHtml(c.title)}</b>: ${c.operators.length} operators, ${bytes(c.nbytes)}${time}. ${limitWords(c.limit)}`);
  });
  if (unique.length > 4) parts.push(`and ${unique.length - 4} more kernels`);
  $("detail").innerHTML = parts.map((p) => `<div>${p}</div>`).join("") || '<span class="faint">Nothing selected.</span>';
}

// ---- decisions, recordings

function section(title, count, body, open = false) {
  return `<details${open ? " open" : ""}><summary><strong>${escapeHtml(title)}</strong> <span class="faint">${count}</span></summary>${body}</details>`;
}

function plainTable(head, rows) {
  return `<div class="scroll"><table><thead><tr>${head.map((h) => `<th scope="col">${h}</th>`).join("")}</tr></thead><tbody>${rows.join("")}</tbody></table></div>`;
}

function drawDecisions() {
  const p = program();
  const apart = p.apart.map((a) => `<tr data-kernel="${escapeHtml(a.consumer)}" tabindex="0"><td>${escapeHtml(a.titles[0])} → ${escapeHtml(a.titles[1])}</td><td>${escapeHtml(a.reason)}</td><td class="n">${a.count}</td><td class="n">${bytes(a.nbytes)}</td><td>${a.source ? places([a.source]) : ""}</td></tr>`);
  const choices = p.steps.flatMap((s) => s.choices.map(([subject, chosen, reason, source]) => `<tr${source ? ` data-line="${escapeHtml(source)}" tabindex="0"` : ""}><td>${escapeHtml(s.name)}</td><td>${escapeHtml(subject)}</td><td>${escapeHtml(chosen)}</td><td>${escapeHtml(reason)}</td><td>${source ? places([source]) : ""}</td></tr>`));
  const rules = p.steps.flatMap((s) => Object.entries(s.rules).map(([rule, n]) => `<tr><td>${escapeHtml(s.name)}</td><td>${escapeHtml(rule)}</td><td class="n">${n}</td></tr>`));
  const once = p.calls.filter((c) => c.prepares).map((c) => `<tr data-kernel="${escapeHtml(c.name)}" tabindex="0"><td>${escapeHtml(c.title)}</td><td>${bytes(c.nbytes)}</td></tr>`);
  $("decision-tables").innerHTML = [
    section("Kernels that were not fused", apart.length, plainTable(["Kernels", "Reason", "Times", "Bytes between", "Line"], apart.slice(0, 400)), true),
    section("Layouts and other choices", choices.length, plainTable(["Step", "What", "Chosen", "Reason", "Line"], choices), choices.length > 0),
    section("Prepacked: run once for many calls", once.length, plainTable(["Kernel", "Bytes"], once)),
    section("Rules that fired", rules.length, plainTable(["Step", "Rule", "Times"], rules)),
  ].join("");
}

function drawRecordings() {
  const all = [report.facts, ...report.facts.parts];
  const why = all.flatMap((f) => f.again.map((reason) => `<tr><td>${escapeHtml(f.name)}</td><td>${escapeHtml(reason)}</td></tr>`));
  const parts = [section("Why calls were recorded again", why.length, plainTable(["Function", "What was, and what is"], why), why.length > 0)];
  all.forEach((f) => f.recordings.forEach((r) => {
    const lists = [...Object.entries(r.inputs), ...Object.entries(r.outputs), ["runs this way as long as these values stay", r.predicates], ["used again while", r.guards]];
    const rows = lists.flatMap(([title, items]) => items.map((item) => `<tr><td class="faint">${escapeHtml(title)}</td><td>${escapeHtml(item)}</td></tr>`));
    parts.push(section(`${r.name}: ${r.calls} calls since`, `${r.guards.length} guards`, plainTable(["Role", "What"], rows)));
  }));
  $("recording-tables").innerHTML = parts.join("");
}

function drawSteps() {
  const rows = program().steps.map((s) => ({ cells: [escapeHtml(s.name), s.seconds ? seconds(s.seconds) : "–", escapeHtml(s.size)] }));
  table("steps", [{ name: "Step" }, { name: "Time", number: true }, { name: "Then" }], rows, "Steps of the compilation");
}

function drawMemoryWords() {
  const m = program().memory;
  $("memory-words").textContent = `A call takes ${bytes(m.arena + m.scratch + m.results)} beside what it reads${measuredMemory(m) ? ` (${measuredMemory(m)})` : ""}: `
    + `${bytes(m.arena)} of temporary values in one arena, ${bytes(m.scratch)} of scratch, ${bytes(m.results)} of results. It reads ${bytes(m.arguments + m.state + m.constants)}: `
    + `arguments ${bytes(m.arguments)}, state ${bytes(m.state)}, constants ${bytes(m.constants)}.`;
}
