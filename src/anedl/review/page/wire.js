// The line to the server: what is decided goes out in order, one after the other, and is repeated until
// the server has confirmed it. Until then it is kept in the browser's storage, so that neither a reload
// nor a server that went away nor a closed tab loses it: the next page that opens sends it. Sending
// twice does no harm, for every request has a key of its own.

const RETRY = 1000;
const POLL = 2500;

function randomName() {
  return Array.from(crypto.getRandomValues(new Uint8Array(9)), (byte) => byte.toString(36).padStart(2, "0")).join("");
}

function tabName() {
  if (!sessionStorage.getItem("tab")) sessionStorage.setItem("tab", randomName());
  return sessionStorage.getItem("tab");
}

export class Wire {
  // `heard(answer)` gets every answer with changes, `status(waiting, trouble)` how saving goes, and
  // `refused(message)` is told of what will never be saved.
  constructor(heard, status, refused) {
    Object.assign(this, { heard, status, refused });
    this.pile = null;
    this.seen = 0;
    this.waiting = [];
    this.sending = false;
    this.tab = tabName();
    addEventListener("pagehide", () => {
      for (const operation of this.waiting) {
        navigator.sendBeacon(operation.path, new Blob([this.body(operation)], { type: "application/json" }));
      }
    });
    setInterval(() => this.poll(), POLL);
    document.addEventListener("visibilitychange", () => this.poll());
  }

  async start() {
    for (;;) {
      try {
        const answer = await this.get("state");
        this.take(answer);
        break;
      } catch (error) {
        this.status(0, error.refused ? error.message : "The server does not answer; waiting for it …");
        await new Promise((done) => setTimeout(done, RETRY));
      }
    }
    this.waiting = this.left();
    this.keep();
    this.send();
  }

  place(tab = this.tab) {
    return `waiting:${this.pile}:${tab}`;
  }

  // What this tab, and tabs that are no more, had not sent.
  left() {
    const places = Object.keys(localStorage).filter((name) => name.startsWith(this.place("")));
    const operations = places.flatMap((name) => JSON.parse(localStorage.getItem(name)));
    for (const name of places) localStorage.removeItem(name);
    return operations;
  }

  async get(path) {
    return (await this.ask(path)).json();
  }

  async ask(path, options = {}) {
    let response;
    try {
      response = await fetch(path, { cache: "no-store", ...options });
    } catch (cause) {
      throw Object.assign(new Error("the server does not answer", { cause }), { away: true });
    }
    if (response.ok) return response;
    const message = (await response.text()) || response.statusText;
    const gone = response.status >= 500;
    throw Object.assign(new Error(message), { away: gone, refused: !gone, status: response.status });
  }

  // Put an operation in line; `told(answer)` is called when the server has confirmed it.
  queue(path, body, told) {
    const operation = { path, body: { ...body, pile: this.pile, key: `${this.tab}:${randomName()}` } };
    Object.defineProperty(operation, "told", { value: told, enumerable: false });
    this.waiting.push(operation);
    this.keep();
    this.send();
  }

  keep() {
    if (this.waiting.length) {
      try {
        localStorage.setItem(this.place(), JSON.stringify(this.waiting));
      } catch { /* the storage is full: this page still holds them */ }
    } else localStorage.removeItem(this.place());
    this.report();
  }

  body(operation) {
    return JSON.stringify({ ...operation.body, seen: this.seen });
  }

  report(trouble = null) {
    this.status(this.waiting.length, trouble);
  }

  async send() {
    if (this.sending) return;
    this.sending = true;
    while (this.waiting.length) {
      const operation = this.waiting[0];
      try {
        const body = this.body(operation);
        const headers = { "content-type": "application/json" };
        const answer = await (await this.ask(operation.path, { method: "POST", body, headers })).json();
        this.waiting.shift();
        this.keep();
        this.take(answer);
        operation.told?.(answer);
      } catch (error) {
        if (error.refused && error.status !== 403) {
          // It will never be accepted: say so, and show what really holds.
          this.waiting.shift();
          this.keep();
          this.refused(error.message);
          try { this.take(await this.get("state")); } catch { /* the next poll finds out */ }
          continue;
        }
        const n = this.waiting.length;
        const kept = `${n} ${n === 1 ? "decision is" : "decisions are"} kept in this browser`;
        this.report(
          error.message.startsWith("not saved")
            ? `The disk refuses (${error.message}). ${kept} and will be saved as soon as that is possible.`
            : `The server does not answer. ${kept}; start “anedl review” again, and this page goes on by itself.`,
        );
        await new Promise((done) => setTimeout(done, RETRY));
      }
    }
    this.sending = false;
  }

  async poll() {
    if (document.hidden || this.pile === null || this.waiting.length) return;
    try {
      const answer = await this.get(`changes?seen=${this.seen}`);
      if (this.waiting.length) return;
      if (answer.pile !== this.pile) location.reload();
      else this.take(answer);
      this.report();
    } catch (error) {
      this.report(error.refused ? error.message : "The server does not answer; start “anedl review” again, and this page goes on by itself.");
    }
  }

  take(answer) {
    this.pile = answer.pile;
    this.seen = answer.seen;
    this.heard(answer);
  }
}
