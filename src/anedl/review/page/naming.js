// The dialog in which a class is chosen by its name, or a new one is named.

import { at, element } from "./words.js";

export class Naming {
  // `done(images, label)` is called when a name was chosen.
  constructor(done) {
    this.done = done;
    this.choice = 0;
    this.found = [];
    at("label").addEventListener("input", () => {
      this.choice = 0;
      this.offer();
    });
    at("label").addEventListener("keydown", (event) => {
      if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
      this.choice += event.key === "ArrowDown" ? 1 : -1;
      this.offer();
      event.preventDefault();
    });
    at("choices").addEventListener("click", (event) => this.finish(event.target.closest("li")?.textContent));
    at("naming").querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.finish(this.found[this.choice] ?? at("label").value.trim());
    });
  }

  // `fresh`: a new class is wanted, so those there are are not offered.
  open(images, words, fresh, labels) {
    Object.assign(this, { images, fresh, labels, choice: 0 });
    at("naming-title").textContent = `${fresh ? "New class from" : "Label"} ${words}`;
    at("label").value = "";
    this.offer();
    at("naming").showModal();
  }

  offer() {
    const typed = at("label").value.trim();
    const matching = this.labels.filter((label) => label.toLowerCase().includes(typed.toLowerCase()));
    this.found = this.fresh ? [] : matching;
    this.choice = Math.max(0, Math.min(this.choice, this.found.length - 1));
    at("choices").replaceChildren(
      ...this.found.map((label, i) => {
        const chosen = String(i === this.choice);
        return element("li", { id: `choice-${i}`, textContent: label, role: "option", ariaSelected: chosen });
      }),
    );
    at("choices").children[this.choice]?.scrollIntoView({ block: "nearest" });
    at("label").setAttribute("aria-activedescendant", this.found.length ? `choice-${this.choice}` : "");
    at("naming-note").textContent = this.note(typed);
  }

  note(typed) {
    if (typed && !this.found.length) {
      return this.labels.includes(typed) ? `“${typed}” exists; these images join it.` : `“${typed}” becomes a new class.`;
    }
    return this.fresh
      ? "All of them get this class; one undo takes all of it back. To leave some out, select the others first."
      : "Type to find a class; ↑ and ↓ choose.";
  }

  finish(label) {
    if (!label) return;
    at("naming").close();
    this.done(this.images, label);
  }
}
