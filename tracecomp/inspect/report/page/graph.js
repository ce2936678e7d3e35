// Graphs on a canvas. Which node stands in which row of which scope is in the data; here rows become coordinates, anew
// whenever a scope is opened or closed. Only what lies in view is drawn.

const NODE_HEIGHT = 42, GAP_X = 14, GAP_Y = 26, PAD = 14, TITLE = 26;
const FIRST = 0.95; // least scale at which a graph is first shown: its labels have some 12 pixels
const READABLE = 60; // items that are open at first
const MANY = 24; // in one box, which is closed at first

class GraphView {
  constructor(canvas) {
    this.canvas = canvas;
    this.closed = new Set();
    this.scale = 1;
    this.x = this.y = 0;
    this.focus = null;
    this._listen();
    onSelect(() => {
      if (this.table) this.reveal();
      this.draw();
    });
  }

  // ---- what is shown

  show(table, labels) {
    this.table = table;
    this.labels = labels;
    const boxes = table.boxes;
    this.parent = new Array(boxes.length).fill(-1);
    this.home = [];
    boxes.forEach(([, rows], b) => rows.forEach((row) => row.forEach((item) => {
      if (item < 0) this.parent[-1 - item] = b;
      else this.home[item] = b;
    })));
    this.depth = boxes.map((_, b) => {
      let depth = 0;
      for (let at = b; this.parent[at] >= 0; at = this.parent[at]) depth++;
      return depth;
    });
    this.inside = boxes.map(() => 0);
    this.home.forEach((b) => { for (let at = b; at >= 0; at = this.parent[at]) this.inside[at]++; });
    this.users = table.inputs.map(() => []);
    table.inputs.forEach((read, n) => read.forEach((m) => this.users[m].push(n)));
    this.closeAll();
    this.fit();
  }

  closeAll() {
    const boxes = this.table.boxes, count = boxes.map(([, rows]) => rows.reduce((sum, row) => sum + row.length, 0));
    this.closed = new Set(boxes.map((_, b) => b).filter((b) => b));
    let shown = count[0];
    const outsideIn = [...this.closed].sort((a, b) => this.depth[a] - this.depth[b] || count[a] - count[b]);
    for (const b of outsideIn) {
      if (this.closed.has(this.parent[b]) || count[b] > MANY || shown + count[b] > READABLE) continue;
      this.closed.delete(b);
      shown += count[b];
    }
    this.layout();
  }

  openAll() {
    this.closed.clear();
    this.layout();
  }

  toggle(b) {
    if (this.closed.has(b)) this.closed.delete(b);
    else this.closed.add(b);
    this.layout();
    this.draw();
  }

  // ---- coordinates

  layout() {
    const boxes = this.table.boxes;
    this.size = [];
    const measure = (b) => {
      if (this.closed.has(b)) return (this.size[b] = [Math.max(96, 40 + 8.2 * this.title(b).length), 34]);
      let width = b ? 28 + 8 * this.title(b).length : 0, height = b ? TITLE : 0;
      boxes[b][1].forEach((row) => {
        let w = 0, h = 0;
        row.forEach((item) => {
          const [iw, ih] = item < 0 ? measure(-1 - item) : this.nodeSize(item);
          w += iw + GAP_X;
          h = Math.max(h, ih);
        });
        width = Math.max(width, w - GAP_X);
        height += h + GAP_Y;
      });
      return (this.size[b] = [width + 2 * PAD, height - GAP_Y + 2 * PAD]);
    };
    measure(0);
    this.at = [];
    this.boxAt = [];
    const place = (b, x, y) => {
      this.boxAt[b] = [x, y];
      if (this.closed.has(b)) return;
      let top = y + PAD + (b ? TITLE : 0);
      boxes[b][1].forEach((row) => {
        const sizes = row.map((item) => (item < 0 ? this.size[-1 - item] : this.nodeSize(item)));
        const width = sizes.reduce((sum, s) => sum + s[0] + GAP_X, -GAP_X);
        const height = Math.max(...sizes.map((s) => s[1]));
        let left = x + (this.size[b][0] - width) / 2;
        row.forEach((item, n) => {
          if (item < 0) place(-1 - item, left, top + (height - sizes[n][1]) / 2);
          else this.at[item] = [left, top + (height - NODE_HEIGHT) / 2];
          left += sizes[n][0] + GAP_X;
        });
        top += height + GAP_Y;
      });
    };
    place(0, 0, 0);
    this._edges();
  }

  nodeSize(n) {
    const [first, second] = this.labels(n);
    return [Math.min(Math.max(18 + 8 * Math.max(first.length, 0.92 * second.length), 64), 270), NODE_HEIGHT];
  }

  title(b) {
    const name = this.table.boxes[b][0];
    return this.closed.has(b) ? `${name} · ${this.inside[b]}` : name;
  }

  standsFor(n) {
    let shown = null;
    for (let b = this.home[n]; b >= 0; b = this.parent[b]) if (this.closed.has(b)) shown = -1 - b;
    return shown === null ? n : shown;
  }

  rect(item) {
    if (item < 0) return [...this.boxAt[-1 - item], ...this.size[-1 - item]];
    return [...this.at[item], ...this.nodeSize(item)];
  }

  _edges() {
    const seen = new Set();
    this.edges = [];
    const rep = this.home.map((_, n) => this.standsFor(n));
    this.rep = rep;
    this.table.inputs.forEach((read, n) => read.forEach((m) => {
      const [a, b] = [rep[m], rep[n]], key = `${a}>${b}`;
      if (a === b || seen.has(key)) return;
      seen.add(key);
      this.edges.push([a, b]);
    }));
  }

  // ---- the view

  fit(whole = false) {
    const [w, h] = this.resize(), [gw, gh] = this.size[0];
    this.scale = Math.min(Math.min(w / gw, h / gh), 1.2);
    if (!whole) this.scale = Math.max(this.scale, FIRST);
    this.x = gw * this.scale > w && !whole ? 6 : (w - gw * this.scale) / 2;
    this.y = gh * this.scale > h ? 6 : (h - gh * this.scale) / 2;
    this.draw();
  }

  zoom(factor, cx, cy) {
    const { canvas } = this, [px, py] = [cx ?? canvas.clientWidth / 2, cy ?? canvas.clientHeight / 2];
    const next = Math.min(Math.max(this.scale * factor, 0.01), 4);
    this.x = px - ((px - this.x) * next) / this.scale;
    this.y = py - ((py - this.y) * next) / this.scale;
    this.scale = next;
    this.draw();
  }

  center(item) {
    const [x, y, w, h] = this.rect(item), { clientWidth: cw, clientHeight: ch } = this.canvas;
    this.scale = Math.max(this.scale, 0.6);
    this.x = cw / 2 - (x + w / 2) * this.scale;
    this.y = ch / 2 - (y + h / 2) * this.scale;
    this.draw();
  }

  reveal() {
    const chosen = this.chosen();
    this.lit = new Set(chosen.map((n) => this.rep[n]));
    if (!chosen.length || state.from === this.canvas.id) return;
    const [x, y, w, h] = this.rect(this.rep[chosen[0]]), s = this.scale;
    const [left, top] = [x * s + this.x, y * s + this.y];
    if (left < 0 || top < 0 || left + w * s > this.canvas.clientWidth || top + h * s > this.canvas.clientHeight) {
      this.center(this.rep[chosen[0]]);
    }
  }

  chosen() {
    const found = [];
    this.table.inputs.forEach((_, n) => { if (this.isChosen(n)) found.push(n); });
    return found;
  }

  resize() {
    const { canvas } = this, ratio = devicePixelRatio || 1, [w, h] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
      canvas.width = Math.round(w * ratio);
      canvas.height = Math.round(h * ratio);
    }
    return [w, h];
  }

  // ---- drawing

  draw() {
    if (this.asked || !this.table) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.paint();
    });
  }

  paint() {
    const [w, h] = this.resize(), ratio = devicePixelRatio || 1, c = this.canvas.getContext("2d");
    if (!w) return;
    this.view = [-this.x / this.scale, -this.y / this.scale, w / this.scale, h / this.scale];
    this.ink = Object.fromEntries(
      ["ink", "soft", "box", "box-line", "node", "edge", "accent", "mark", "mark-ink"].map((n) => [n, css(n)]));
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, w, h);
    c.setTransform(ratio * this.scale, 0, 0, ratio * this.scale, ratio * this.x, ratio * this.y);
    this._paintBox(c, 0, false);
    this._paintEdges(c);
    this._paintBox(c, 0, true);
    this.table.inputs.forEach((_, n) => { if (this.rep[n] === n && this._inView(this.rect(n))) this._paintNode(c, n); });
  }

  _inView([x, y, w, h]) {
    const [vx, vy, vw, vh] = this.view;
    return x < vx + vw && y < vy + vh && x + w > vx && y + h > vy;
  }

  // First what is open, then, above the edges, what is closed.
  _paintBox(c, b, closedOnes) {
    const rect = this.rect(-1 - b), closed = this.closed.has(b), lit = closed && this.lit && this.lit.has(-1 - b);
    if (!this._inView(rect)) return;
    if (b && closed === closedOnes) {
      c.beginPath();
      c.roundRect(...rect, 7);
      c.fillStyle = lit ? this.ink.mark : closed ? this.colourOfBox(b) : this.depth[b] % 2 ? this.ink.box : css("card");
      c.fill();
      c.lineWidth = (lit ? 2.5 : 1) / Math.max(this.scale, 0.5);
      c.strokeStyle = lit ? this.ink.accent : this.ink["box-line"];
      c.stroke();
      if (this.scale > 0.18) {
        c.fillStyle = lit ? this.ink["mark-ink"] : closed ? this.ink.ink : this.ink.soft;
        c.font = `600 13px ${css("sans")}`;
        c.fillText(`${closed ? "▸" : "▾"} ${this.title(b)}`, rect[0] + 8, rect[1] + (closed ? 22 : 18));
      }
    }
    if (closed) return;
    this.table.boxes[b][1].forEach((row) => row.forEach((item) => { if (item < 0) this._paintBox(c, -1 - item, closedOnes); }));
  }

  _paintEdges(c) {
    const far = this.scale < 0.12;
    c.lineWidth = 1 / Math.max(this.scale, 0.35);
    for (const lit of [false, true]) {
      c.strokeStyle = lit ? this.ink.accent : this.ink.edge;
      c.globalAlpha = lit ? 1 : far ? 0.25 : 0.55;
      c.beginPath();
      for (const [a, b] of this.edges) {
        const on = this.lit && (this.lit.has(a) || this.lit.has(b));
        if (Boolean(on) !== lit) continue;
        const [ax, ay, aw, ah] = this.rect(a), [bx, by, bw] = this.rect(b);
        const [x1, y1, x2, y2] = [ax + aw / 2, ay + ah, bx + bw / 2, by];
        if (!this._inView([Math.min(x1, x2), Math.min(y1, y2), Math.abs(x1 - x2) + 1, Math.abs(y1 - y2) + 1])) continue;
        const bend = Math.min(Math.max(Math.abs(y2 - y1) / 2, 14), 80);
        c.moveTo(x1, y1);
        c.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
      }
      c.stroke();
    }
    c.globalAlpha = 1;
  }

  _paintNode(c, n) {
    const [x, y, w, h] = this.rect(n), on = this.isChosen(n);
    c.beginPath();
    c.roundRect(x, y, w, h, 5);
    c.fillStyle = on ? this.ink.mark : this.colour(n) || this.ink.node;
    c.fill();
    c.lineWidth = on || this.focus === n ? 2.5 : 1;
    c.strokeStyle = on || this.focus === n ? this.ink.accent : this.border(n) || this.ink["box-line"];
    c.stroke();
    if (this.scale < 0.3) return;
    const [first, second] = this.labels(n);
    c.fillStyle = on ? this.ink["mark-ink"] : this.ink.ink;
    c.font = `600 13px ${css("mono")}`;
    c.fillText(this._cut(first, w), x + 7, y + 17);
    c.fillStyle = on ? this.ink["mark-ink"] : this.ink.soft;
    c.font = `12px ${css("mono")}`;
    c.fillText(this._cut(second, w * 1.08), x + 7, y + 33);
  }

  _cut(text, width) {
    const most = Math.max(3, Math.floor((width - 14) / 7.9));
    return text.length > most ? `${text.slice(0, most - 1)}…` : text;
  }

  // ---- pointer and keys

  hit(px, py) {
    const [x, y] = [(px - this.x) / this.scale, (py - this.y) / this.scale];
    const holds = ([l, t, w, h]) => x >= l && y >= t && x <= l + w && y <= t + h;
    for (let n = 0; n < this.rep.length; n++) if (this.rep[n] === n && holds(this.rect(n))) return n;
    let found = null;
    const search = (b) => {
      if (!holds(this.rect(-1 - b))) return;
      if (b && (this.closed.has(b) || y < this.boxAt[b][1] + TITLE)) found = -1 - b;
      if (!this.closed.has(b)) {
        this.table.boxes[b][1].forEach((row) => row.forEach((i) => { if (i < 0) search(-1 - i); }));
      }
    };
    search(0);
    return found;
  }

  press(item) {
    if (item === null) return select({}, this.canvas.id);
    if (item < 0) return this.toggle(-1 - item);
    this.focus = item;
    select(this.meaning(item), this.canvas.id);
  }

  _listen() {
    const { canvas } = this, down = new Map();
    let moved = 0, apart = 0;
    canvas.addEventListener("pointerdown", (e) => {
      canvas.setPointerCapture(e.pointerId);
      down.set(e.pointerId, [e.offsetX, e.offsetY]);
      moved = 0;
    });
    canvas.addEventListener("pointermove", (e) => {
      const before = down.get(e.pointerId);
      if (!before) return this._hover(e);
      const [dx, dy] = [e.offsetX - before[0], e.offsetY - before[1]];
      moved += Math.abs(dx) + Math.abs(dy);
      down.set(e.pointerId, [e.offsetX, e.offsetY]);
      if (down.size === 2) {
        const [a, b] = [...down.values()], now = Math.hypot(a[0] - b[0], a[1] - b[1]);
        if (apart) this.zoom(now / apart, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2);
        apart = now;
      } else if (moved > 3) {
        this.x += dx;
        this.y += dy;
        this.draw();
      }
    });
    const up = (e) => {
      if (down.size === 1 && moved <= 3 && e.type === "pointerup") this.press(this.hit(e.offsetX, e.offsetY));
      down.delete(e.pointerId);
      apart = 0;
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", () => tip(null));
    canvas.addEventListener("wheel", (e) => {
      e.preventDefault();
      if (e.ctrlKey || e.metaKey || !e.shiftKey) this.zoom(Math.exp(-e.deltaY * 0.0016), e.offsetX, e.offsetY);
    }, { passive: false });
    canvas.addEventListener("keydown", (e) => this._key(e));
  }

  _hover(e) {
    const item = this.hit(e.offsetX, e.offsetY);
    this.canvas.style.cursor = item === null ? "grab" : "pointer";
    if (item === null) return tip(null);
    tip(item < 0 ? `${this.title(-1 - item)}: ${this.inside[-1 - item]} inside` : this.labels(item).join("  "), e);
  }

  _key(e) {
    const now = this.focus ?? this.chosen()[0] ?? 0;
    const first = (list) => list.find((n) => this.rep[n] === n) ?? list[0];
    const row = this.table.boxes[this.home[now]][1].find((r) => r.includes(now)) || [];
    const beside = (step) => row.filter((i) => i >= 0)[row.filter((i) => i >= 0).indexOf(now) + step];
    const to = { ArrowDown: () => first(this.users[now]), ArrowUp: () => first(this.table.inputs[now]),
      ArrowLeft: () => beside(-1), ArrowRight: () => beside(1) }[e.key];
    if (to) {
      e.preventDefault();
      const next = to();
      if (next === undefined) return;
      for (let b = this.home[next]; b > 0; b = this.parent[b]) this.closed.delete(b);
      this.layout();
      this.press(next);
      this.center(next);
    } else if (e.key === "Enter") {
      for (let b = this.home[now]; b > 0; b = this.parent[b]) if (this.closed.has(b)) return this.toggle(b);
      if (this.home[now]) this.toggle(this.home[now]);
    }
  }
}

function tip(text, e) {
  const box = $("tip");
  box.hidden = text === null;
  if (text === null) return;
  box.textContent = text;
  box.style.left = `${Math.min(e.clientX + 14, innerWidth - 260)}px`;
  box.style.top = `${e.clientY + 16}px`;
}
