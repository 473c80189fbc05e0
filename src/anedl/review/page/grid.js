// A grid of any number of images of which only the visible rows exist. It knows positions in the view,
// which of them is in focus and which are selected; what a tile shows is the page's business.

const GAP = 8;
const WORDS = 30; // pixels below the picture
const AHEAD = 2; // rows drawn above and below what is visible
const PAUSE = 60; // milliseconds of rest after a leap before tiles are drawn
export const SIZES = [72, 96, 120, 152, 200, 264];

export class Grid {
  // `fill(tile, image)` writes into a tile, `wanted(images)` is told what is visible, `moved()` that the
  // focus or the selection has changed.
  constructor(host, sizer, { fill, wanted, moved }) {
    Object.assign(this, { host, sizer, fill, wanted, moved });
    this.view = new Uint32Array(0);
    this.at = 0;
    this.anchor = 0;
    this.chosen = new Set();
    this.tiles = new Map();
    this.size = 2;
    this.asked = false;
    this.top = 0;
    host.addEventListener("scroll", () => this.redraw(), { passive: true });
    new ResizeObserver(() => this.redraw()).observe(host);
    sizer.addEventListener("click", (event) => this.clicked(event));
  }

  show(view) {
    this.view = view;
    this.at = this.anchor = 0;
    this.chosen.clear();
    this.host.scrollTop = 0;
    this.clear();
    this.moved();
  }

  clear() {
    for (const [position, tile] of this.tiles) this.drop(position, tile);
    this.redraw();
  }

  measure() {
    const width = Math.max(this.sizer.clientWidth, 1);
    const wish = SIZES[this.size] + 10;
    this.columns = Math.max(1, Math.floor((width + GAP) / (wish + GAP)));
    this.tileWidth = Math.floor((width - GAP * (this.columns - 1)) / this.columns);
    this.rowHeight = this.tileWidth + WORDS - 6 + GAP;
    this.sizer.style.height = `${Math.ceil(this.view.length / this.columns) * this.rowHeight}px`;
  }

  redraw() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.draw();
    });
  }

  draw() {
    const before = this.drawn;
    this.measure();
    this.drawn = `${this.columns} ${this.rowHeight} ${this.tileWidth}`;
    const resized = before !== this.drawn;
    const first = Math.max(0, (Math.floor(this.host.scrollTop / this.rowHeight) - AHEAD) * this.columns);
    const rows = Math.ceil(this.host.clientHeight / this.rowHeight) + 2 * AHEAD + 1;
    const last = Math.min(this.view.length, first + rows * this.columns);
    for (const [position, tile] of this.tiles) {
      if (position < first || position >= last) this.drop(position, tile);
      else if (resized) this.place(tile, position);
    }
    // Who drags the scroll bar through thousands of rows sees none of them: draw where it rests.
    const leap = Math.abs(this.host.scrollTop - this.top) > this.host.clientHeight;
    this.top = this.host.scrollTop;
    if (leap) {
      clearTimeout(this.rest);
      this.rest = setTimeout(() => this.redraw(), PAUSE);
      return;
    }
    for (let position = first; position < last; position++) {
      if (!this.tiles.has(position)) this.add(position);
    }
    this.wanted(this.view.subarray(first, last));
    if (resized && before !== undefined) this.reveal();
  }

  add(position) {
    const tile = document.createElement("div");
    tile.className = "tile";
    tile.id = `tile-${position}`;
    tile.setAttribute("role", "option");
    tile.setAttribute("aria-posinset", position + 1);
    tile.setAttribute("aria-setsize", this.view.length);
    tile.dataset.position = position;
    this.place(tile, position);
    this.tiles.set(position, tile);
    this.mark(tile, position);
    this.fill(tile, this.view[position]);
    this.sizer.append(tile);
  }

  drop(position, tile) {
    tile.querySelector("img")?.removeAttribute("src"); // or it would still be fetched
    tile.remove();
    this.tiles.delete(position);
  }

  place(tile, position) {
    const row = Math.floor(position / this.columns);
    const column = position % this.columns;
    tile.style.width = `${this.tileWidth}px`;
    tile.style.height = `${this.rowHeight - GAP}px`;
    tile.style.transform = `translate(${column * (this.tileWidth + GAP)}px, ${row * this.rowHeight}px)`;
  }

  mark(tile, position) {
    tile.classList.toggle("focused", position === this.at);
    tile.classList.toggle("chosen", this.chosen.has(position));
    tile.setAttribute("aria-selected", this.chosen.has(position) || (position === this.at && !this.chosen.size));
  }

  // Write again into the tiles of these images (all, if none are named).
  refill(images = null) {
    for (const [position, tile] of this.tiles) {
      if (!images || images.has(this.view[position])) this.fill(tile, this.view[position]);
    }
  }

  remark() {
    for (const [position, tile] of this.tiles) this.mark(tile, position);
    this.host.setAttribute("aria-activedescendant", `tile-${this.at}`);
    this.moved();
  }

  reveal() {
    this.measure(); // the view may be new, and its height with it
    const top = Math.floor(this.at / this.columns) * this.rowHeight;
    // The row after it stays in sight where it can: who looks ahead is quicker.
    const rows = this.host.clientHeight >= 2 * this.rowHeight + 2 * GAP ? 2 : 1;
    const bottom = top + rows * this.rowHeight + 2 * GAP;
    if (top < this.host.scrollTop) this.host.scrollTop = top;
    else if (bottom > this.host.scrollTop + this.host.clientHeight) this.host.scrollTop = bottom - this.host.clientHeight;
  }

  // Move the focus; with `extend` the range from the anchor to it becomes the selection.
  go(position, extend = false) {
    if (!this.view.length) return;
    this.at = Math.max(0, Math.min(this.view.length - 1, position));
    if (extend) {
      this.chosen.clear();
      for (let p = Math.min(this.anchor, this.at); p <= Math.max(this.anchor, this.at); p++) this.chosen.add(p);
    } else {
      this.anchor = this.at;
      this.chosen.clear();
    }
    this.reveal();
    this.remark();
  }

  toggle(position = this.at) {
    this.at = this.anchor = position;
    if (!this.chosen.delete(position)) this.chosen.add(position);
    this.remark();
  }

  chooseAll() {
    for (let p = 0; p < this.view.length; p++) this.chosen.add(p);
    this.remark();
  }

  // The selected images, else the one in focus.
  picked() {
    if (!this.view.length) return [];
    if (!this.chosen.size) return [this.view[this.at]];
    return [...this.chosen].sort((a, b) => a - b).map((position) => this.view[position]);
  }

  // The last position of those.
  last() {
    let last = this.chosen.size ? 0 : this.at;
    for (const position of this.chosen) last = Math.max(last, position);
    return last;
  }

  clicked(event) {
    const tile = event.target.closest(".tile");
    if (!tile) return;
    const position = Number(tile.dataset.position);
    if (event.ctrlKey || event.metaKey) this.toggle(position);
    else this.go(position, event.shiftKey);
  }

  // Keys that move; true if this was one.
  key(event) {
    const page = Math.max(1, Math.floor(this.host.clientHeight / (this.rowHeight || 1))) * this.columns;
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns, PageUp: -page, PageDown: page };
    if (event.key in step) this.go(this.at + step[event.key], event.shiftKey);
    else if (event.key === "Home") this.go(0, event.shiftKey);
    else if (event.key === "End") this.go(this.view.length - 1, event.shiftKey);
    else return false;
    return true;
  }

  resize(change) {
    this.size = Math.max(0, Math.min(SIZES.length - 1, this.size + change));
    this.redraw();
  }
}
