// The list of steps. Only visible rows are in the page, so it scales to thousands of rows.

const BEYOND = 500; // pixels above and below the visible area

class List {
  constructor(nodes, { onActive = () => {} } = {}) {
    this.nodes = nodes;
    this.words = "";
    this.onActive = onActive;
    this.rows = new Map();
    this.heights = new Map(); // the last height of a row, by kind
    this.window = el("div", "window");
    this.element = el("div", "list", this.window);
    this.element.id = "steps";
    this.element.tabIndex = 0;
    this.element.setAttribute("role", "tree");
    this.element.setAttribute("aria-label", "Steps");
    this.element.addEventListener("click", (event) => this.#clicked(event));
    this.active = nodes[0];
    this.#flatten();
    this.watch = () => this.render();
    window.addEventListener("scroll", this.watch, { passive: true });
    this.sizes = new ResizeObserver(() => this.#resized());
    this.sizes.observe(this.element);
  }

  leave() {
    window.removeEventListener("scroll", this.watch);
    this.sizes.disconnect();
  }

  // The nodes that are not inside a collapsed one, in order.
  #flatten() {
    this.visible = [];
    const walk = (nodes) => {
      nodes.forEach((node, at) => {
        node.place = this.visible.length;
        node.among = [at + 1, nodes.length];
        this.visible.push(node);
        if (node.open) walk(kidsOf(node));
      });
    };
    walk(this.nodes);
    this.#settle();
  }

  #settle() {
    const tops = new Float64Array(this.visible.length + 1);
    this.visible.forEach((node, at) => (tops[at + 1] = tops[at] + this.#heightOf(node)));
    this.tops = tops;
    this.element.style.height = `${tops[this.visible.length]}px`;
  }

  #heightOf(node) {
    return node.height || this.heights.get(node.kind) || 32;
  }

  #at(y) {
    let low = 0;
    let high = this.visible.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.tops[middle + 1] <= y) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // Add visible rows to the page and remove the others.
  render() {
    for (let turn = 0; turn < 4; turn++) if (!this.#rendered()) return;
  }

  #rendered() {
    const top = -this.element.getBoundingClientRect().top;
    const first = this.#at(top - BEYOND);
    const last = Math.min(this.visible.length - 1, this.#at(top + window.innerHeight + BEYOND));
    const kept = new Set(this.visible.slice(first, last + 1));
    for (const [node, row] of this.rows) {
      if (!kept.has(node)) {
        row.remove();
        this.rows.delete(node);
      }
    }
    let before = null;
    for (const node of kept) {
      const row = this.#rowOf(node);
      const next = before === null ? this.window.firstChild : before.nextSibling;
      if (next !== row) this.window.insertBefore(row, next);
      before = row;
    }
    this.window.style.transform = `translateY(${this.tops[first] ?? 0}px)`;
    return this.#measure(kept, top);
  }

  #rowOf(node) {
    let row = this.rows.get(node);
    if (!row) {
      row = rowOf(node, this.words, () => this.#grown(node));
      this.rows.set(node, row);
    }
    row.setAttribute("aria-posinset", String(node.among[0]));
    row.setAttribute("aria-setsize", String(node.among[1]));
    row.classList.toggle("on", node === this.active);
    return row;
  }

  // Measure the rows. If one above the visible area changed its height, keep the scroll position steady.
  #measure(nodes, top) {
    let isOff = false;
    let shift = 0;
    for (const node of nodes) {
      const height = this.rows.get(node).getBoundingClientRect().height;
      const expected = this.#heightOf(node);
      if (Math.abs(height - expected) > 0.5) {
        isOff = true;
        if (this.tops[node.place] < top) shift += height - expected;
      }
      if (height && node.height !== height) node.height = height;
      if (!node.open) this.heights.set(node.kind, height);
    }
    if (isOff) this.#settle();
    if (shift && top > 0) window.scrollBy(0, shift);
    return isOff;
  }

  #resized() {
    const width = this.element.clientWidth;
    if (width === this.width) return;
    this.width = width;
    for (const node of this.visible) node.height = 0;
    this.render();
  }

  #grown(node) {
    node.height = 0;
    this.render();
  }

  #clicked(event) {
    const head = event.target.closest(".head");
    if (!head || String(window.getSelection()) !== "") return;
    const node = this.visible.find((one) => one.id === head.parentElement.id);
    this.choose(node, { scroll: false });
    this.toggle(node);
    this.element.focus({ preventScroll: true });
  }

  toggle(node, open = !node.open) {
    if (isLeaf(node) || node.open === open) return;
    node.open = open;
    node.height = 0;
    this.#redraw(node);
    this.#flatten();
    if (!open && this.visible[this.active.place] !== this.active) this.choose(node, { scroll: false });
    this.render();
  }

  #redraw(node) {
    this.rows.get(node)?.remove();
    this.rows.delete(node);
  }

  // Expand all iterations, or collapse everything.
  unfold(open) {
    const walk = (nodes) => {
      for (const node of nodes) {
        if (node.kids) walk(node.kids);
        if (open ? node.kind === "iteration" && node.level === 1 : true) {
          node.open = open;
          node.height = 0;
        }
      }
    };
    walk(this.nodes);
    this.rows.forEach((row) => row.remove());
    this.rows.clear();
    this.#flatten();
    if (this.visible[this.active.place] !== this.active) this.active = this.nodes[0];
    this.choose(this.active);
  }

  // Make a node the active one, to which keyboard shortcuts apply.
  choose(node, { scroll = true } = {}) {
    for (let around = node.parent; around; around = around.parent) {
      if (!around.open) {
        around.open = true;
        around.height = 0;
        this.#redraw(around);
        this.stale = true;
      }
    }
    if (this.stale) this.#flatten();
    this.stale = false;
    this.rows.get(this.active)?.classList.remove("on");
    this.active = node;
    if (scroll) this.#show(node);
    this.render();
    if (scroll) this.#show(node);
    this.rows.get(node)?.classList.add("on");
    this.element.setAttribute("aria-activedescendant", node.id);
    this.onActive(node);
  }

  #show(node) {
    const list = this.element.getBoundingClientRect().top;
    const top = list + this.tops[node.place];
    const edge = (document.querySelector(".time")?.offsetHeight ?? 0) + 8;
    const head = Math.min(this.#heightOf(node), 40);
    if (top < edge) window.scrollBy(0, top - edge);
    else if (top + head > window.innerHeight - 12) {
      const far = top > window.innerHeight * 1.5;
      window.scrollBy(0, far ? top - window.innerHeight * 0.4 : top + head - window.innerHeight + 12);
    }
  }

  step(by) {
    const place = Math.min(Math.max(this.active.place + by, 0), this.visible.length - 1);
    this.choose(this.visible[place]);
  }

  // Render all rows again, as after a new search.
  refresh(words) {
    this.words = words;
    this.rows.forEach((row) => row.remove());
    this.rows.clear();
    this.render();
  }

  // The next matching node after the active one, collapsed nodes included.
  seek(test, by = 1) {
    const all = [];
    const walk = (nodes) => {
      for (const node of nodes) {
        all.push(node);
        walk(kidsOf(node));
      }
    };
    walk(this.nodes);
    const start = all.indexOf(this.active);
    for (let step = 1; step <= all.length; step++) {
      const node = all[(((start + by * step) % all.length) + all.length) % all.length];
      if (test(node)) return node;
    }
    return null;
  }
}
