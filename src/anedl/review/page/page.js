// The page: what is shown, what a key does, and what has come of it so far.

import { Grid } from "./grid.js";
import { at, element, percent, count } from "./words.js";
import { facts } from "./facts.js";
import { Inspector } from "./inspector.js";
import { Naming } from "./naming.js";
import { Wire } from "./wire.js";

const OPEN = -1;
const UNKNOWN = -2;
const SKIPPED = -3;
const DIGITS = "1234567890";
const BATCH = 300;

const filters = at("filters");
const about = { labels: [], effect: null, expected: null };
const standings = new Map(); // image → standing, where it is not open
const items = new Map(); // image → what the model says

function say(text) {
  at("spoken").textContent = text;
}

// ---------------------------------------------------------------- where images stand

const standing = (image) => standings.get(image) ?? OPEN;

function stands(image) {
  const code = standing(image);
  if (code === OPEN) return null;
  if (code === UNKNOWN) return { kind: "unknown", text: "? unknown" };
  if (code === SKIPPED) return { kind: "skip", text: "– skipped" };
  return { kind: "label", text: `✓ ${about.labels[code]}` };
}

function settle(image, code) {
  if (code === OPEN) standings.delete(image);
  else standings.set(image, code);
}

function apply(operation) {
  if (operation.path !== "decide") return;
  const { do: deed, label, at: images } = operation.body;
  if (deed === "label" && !about.labels.includes(label)) about.labels.push(label);
  const code = deed === "unknown" ? UNKNOWN : deed === "skip" ? SKIPPED : about.labels.indexOf(label);
  for (const image of images) settle(image, code);
}

function heard(answer) {
  if ("run" in answer) {
    Object.assign(about, answer);
    at("run").textContent = answer.run;
    document.title = `Review ${answer.run}`;
  }
  const fresh = answer.labels.length !== about.shownLabels;
  about.labels = answer.labels;
  about.effect = answer.effect;
  about.shownLabels = answer.labels.length;
  if (answer.whole) standings.clear();
  for (const [image, code] of answer.standings) settle(image, code);
  for (const operation of wire.waiting) apply(operation);
  if (fresh) listLabels();
  if (answer.whole || answer.standings.length) {
    grid.refill(answer.whole ? null : new Set(answer.standings.map(([image]) => image)));
    inspect();
  }
  showProgress();
}

let notice = ""; // something that stays until the next decision
let lineTrouble = null;

function status(waiting, trouble) {
  at("saved").textContent = waiting ? `${waiting} waiting` : trouble ? "not connected" : "✓ all saved";
  at("saved").classList.toggle("waiting", Boolean(waiting || trouble));
  if (trouble !== null || !waiting) lineTrouble = trouble;
  warn(notice);
}

function warn(text) {
  notice = text;
  const shown = lineTrouble ?? notice;
  if (at("trouble").textContent !== shown) at("trouble").textContent = shown; // else it is read out again
  at("trouble").hidden = !shown;
}

const wire = new Wire(heard, status, (message) => warn(`Not saved: ${message}`));

// ---------------------------------------------------------------- the grid

function fill(tile, image) {
  if (!tile.firstChild) {
    const picture = element("img", { src: `thumb/${wire.pile}/${image}`, alt: "", draggable: false, decoding: "async" });
    tile.append(picture, element("div", { className: "words" }), element("div", { className: "badge" }));
  }
  const item = items.get(image);
  const settled = stands(image);
  const focus = tile.classList.contains("focused");
  const chosen = tile.classList.contains("chosen");
  tile.className = `tile ${settled?.kind ?? ""}`;
  tile.classList.toggle("focused", focus);
  tile.classList.toggle("chosen", chosen);
  const words = item ? (item.state === "unknown" ? "unknown?" : `${about.labels[item.guess]} ${percent(item.probability)}`) : "";
  tile.children[1].textContent = words;
  tile.children[2].textContent = settled?.text ?? "";
  tile.children[2].hidden = !settled;
  tile.setAttribute("aria-label", `${item?.file ?? "image"}, ${settled ? settled.text : `the model says ${words}`}`);
}

// One request at a time, for what is visible by then.
let visible = [];
let asking = false;
async function wanted(images) {
  visible = images;
  if (asking) return;
  asking = true;
  for (;;) {
    const batch = [...visible].filter((image) => !items.has(image)).slice(0, BATCH);
    if (!batch.length) break;
    try {
      for (const item of await wire.get(`items?at=${batch.join(",")}`)) items.set(item.at, item);
    } catch {
      await new Promise((done) => setTimeout(done, 1000)); // the line reports what is wrong
      continue;
    }
    grid.refill(new Set(batch));
    if (batch.includes(grid.view[grid.at])) inspect();
  }
  asking = false;
}

function moved() {
  const shown = grid.view.length;
  const chosen = grid.chosen.size;
  at("about").replaceChildren(
    element("b", { textContent: `${count(shown)} ${shown === 1 ? "image" : "images"}` }),
    chosen
      ? ` · ${count(chosen)} selected: one key settles them all`
      : shown ? " · press the number of the class you see, u if it is none of them, s to skip" : "",
  );
  at("grid").hidden = !shown;
  at("empty").hidden = Boolean(shown);
  if (!shown) {
    at("empty").textContent = filters.elements.show.value === "open"
      ? "Nothing is left to settle here. Choose other images on the left."
      : "No image fits what is chosen on the left.";
  }
  inspect();
}

const inspector = new Inspector(about, wire);
const grid = new Grid(at("grid"), at("sizer"), { fill, wanted, moved });

// The class that the model says, null for unknown.
const said = (item) => (item.state === "unknown" ? null : about.labels[item.guess]);

function inspect() {
  const image = grid.view[grid.at];
  const item = items.get(image);
  for (const button of at("keys").querySelectorAll("button")) {
    button.classList.toggle("guess", Boolean(item) && button.said === said(item));
  }
  inspector.show(image, item, stands(image)?.text);
}

// ---------------------------------------------------------------- deciding

const many = (images) => (images.length === 1 ? (items.get(images[0])?.file ?? "1 image") : `${count(images.length)} images`);

function decide(images, deed, label = null) {
  if (!images.length) return;
  warn("");
  const operation = { path: "decide", body: { do: deed, label, at: images } };
  apply(operation);
  if (about.labels.length !== about.shownLabels) listLabels();
  wire.queue("decide", operation.body);
  grid.refill(new Set(images));
  say(`${many(images)}: ${label ?? { unknown: "unknown", skip: "skipped" }[deed]}`);
}

function act(deed, label = null) {
  decide(grid.picked(), deed, label);
  goOn();
}

function agree() {
  const groups = new Map();
  for (const image of grid.picked()) {
    const item = items.get(image);
    if (!item) return say("still loading; press again");
    const label = said(item);
    groups.set(label, [...(groups.get(label) ?? []), image]);
  }
  for (const [label, images] of groups) decide(images, label === null ? "unknown" : "label", label);
  goOn();
}

// To the next image that is still open, if there is one.
function goOn(from = grid.last()) {
  for (let position = from + 1; position < grid.view.length; position++) {
    if (standing(grid.view[position]) === OPEN) return grid.go(position);
  }
  for (let position = 0; position <= from && position < grid.view.length; position++) {
    if (standing(grid.view[position]) === OPEN) return grid.go(position);
  }
  grid.go(Math.min(from, grid.view.length - 1));
  if (grid.view.length) say("All images shown are settled.");
}

function undo(again = false) {
  wire.queue("undo", { again }, ({ entry }) => {
    if (!entry) return say(again ? "nothing to redo" : "nothing to undo");
    const what = `${many(entry.at)} as ${entry.label ?? { unknown: "unknown", skip: "skipped" }[entry.do]}`;
    say(`${again ? "put back" : "taken back"}: ${what}`);
    // What was cleared away is listed again, unless that would take somebody from open images.
    const isDone = !grid.view.some((image) => standing(image) === OPEN);
    const find = () => {
      const position = grid.view.indexOf(entry.at[0]);
      if (position >= 0) grid.go(position);
      return position >= 0;
    };
    if (!find() && isDone) load().then(find);
  });
}

const naming = new Naming((images, label) => {
  decide(images, "label", label);
  goOn();
});

function name(images, fresh) {
  if (images.length) naming.open(images, many(images), fresh, about.labels);
}

for (const button of document.querySelectorAll("dialog button[value=cancel]")) {
  button.addEventListener("click", () => button.closest("dialog").close());
}

// ---------------------------------------------------------------- keys

// Of what is selected, else of the whole cluster that is looked at, else of the image in focus.
function newClass() {
  const ofCluster = !grid.chosen.size && filters.elements.cluster.value !== "*";
  name(ofCluster ? [...grid.view] : grid.picked(), true);
}

const KEYS = {
  a: agree,
  u: () => act("unknown"),
  s: () => act("skip"),
  z: () => undo(),
  Z: () => undo(true),
  y: () => undo(true),
  l: () => name(grid.picked(), false),
  n: newClass,
  x: () => grid.toggle(),
  o: () => goOn(),
  r: () => load(),
  "+": () => grid.resize(1),
  "=": () => grid.resize(1),
  "-": () => grid.resize(-1),
  "?": () => at("help").showModal(),
  " ": () => inspector.zoom(),
  Escape: () => grid.go(grid.at),
};

function pressed(event) {
  if (event.defaultPrevented || at("naming").open || at("help").open) return;
  const field = event.target.closest("input:not([type=checkbox]), select");
  if (field) {
    if (event.key === "Escape" || (event.key === "Enter" && field.matches("input"))) at("grid").focus();
    return;
  }
  const command = event.ctrlKey || event.metaKey;
  let work = null;
  if (command && event.key === "a") work = () => grid.chooseAll();
  else if (command && event.key.toLowerCase() === "z") work = () => undo(event.shiftKey);
  else if (command || event.altKey) return;
  else if (DIGITS.includes(event.key)) {
    const label = about.labels[DIGITS.indexOf(event.key)];
    work = label === undefined ? () => say("no class has this number") : () => act("label", label);
  } else if (event.key === " " && event.target.closest("button, input")) return;
  else if (event.key === "Escape" && at("zoom").open) return; // the dialog closes by itself
  else if (Object.hasOwn(KEYS, event.key)) work = KEYS[event.key];
  if (work) work();
  else if (!grid.view.length || !grid.key(event)) return;
  event.preventDefault();
}
document.addEventListener("keydown", pressed);
at("help-button").addEventListener("click", () => at("help").showModal());
at("new-class").addEventListener("click", newClass);

function listLabels() {
  const button = (key, text, work, says) => {
    const made = element("button", { type: "button", title: text }, element("kbd", { textContent: key }), element("span", { textContent: text }));
    made.said = says;
    made.addEventListener("click", () => { work(); at("grid").focus(); });
    return made;
  };
  const labels = about.labels.slice(0, DIGITS.length);
  const more = about.labels.length - labels.length;
  at("keys").replaceChildren(
    ...labels.map((label, i) => button(DIGITS[i], label, () => act("label", label), label)),
    button("l", more > 0 ? `${more} more …` : "by name …", KEYS.l),
    element("span", { className: "gap" }),
    button("a", "agree", agree),
    button("u", "unknown", KEYS.u, null),
    button("s", "skip", KEYS.s),
    button("z", "undo", () => undo()),
  );
  const chosen = filters.elements.class.value;
  filters.elements.class.replaceChildren(
    element("option", { value: "*", textContent: "any" }),
    ...about.labels.map((label) => element("option", { value: `=${label}`, textContent: label })),
    element("option", { value: "=", textContent: "called unknown" }),
  );
  filters.elements.class.value = chosen || "*";
  about.shownLabels = about.labels.length;
}

// ---------------------------------------------------------------- filters and results

function query() {
  const form = filters.elements;
  const states = [...form.state].filter((box) => box.checked).map((box) => box.value);
  const asks = new URLSearchParams({ show: form.show.value, order: form.order.value });
  if (states.length) asks.set("state", states.join(","));
  if (form.class.value !== "*") asks.set("class", form.class.value.slice(1));
  if (form.cluster.value !== "*") asks.set("cluster", form.cluster.value);
  for (const bound of ["low", "high"]) if (form[bound].value) asks.set(bound, form[bound].value);
  return asks;
}

let pointing = false;
document.addEventListener("pointerdown", () => { pointing = true; }, true);
document.addEventListener("keydown", () => { pointing = false; }, true);

let loads = 0;
async function load() {
  const mine = ++loads;
  const asks = query();
  sessionStorage.setItem("filters", asks);
  try {
    const view = new Uint32Array(await (await wire.ask(`view?${asks}`)).arrayBuffer());
    if (mine === loads) grid.show(view);
    // Who points at a filter goes on with the images; who moves by keyboard stays in the field.
    const inField = ["INPUT", "SELECT"].includes(document.activeElement.tagName);
    if (mine === loads && (pointing || !inField)) at("grid").focus();
  } catch (error) {
    warn(`The images could not be listed: ${error.message}`);
  }
}

function restore(asks) {
  const form = filters.elements;
  const states = asks.get("state")?.split(",") ?? [];
  for (const box of form.state) box.checked = states.includes(box.value);
  form.show.value = asks.get("show") ?? "open";
  form.order.value = asks.get("order") ?? "worth";
  form.class.value = asks.has("class") ? `=${asks.get("class")}` : "*";
  form.cluster.value = asks.get("cluster") ?? "*";
  for (const bound of ["low", "high"]) form[bound].value = asks.get(bound) ?? "";
}

function usual() {
  const review = about.states.indexOf("review");
  return new URLSearchParams(about.effect.total[review] > about.effect.done[review] ? { state: "review" } : { state: about.states.join(",") });
}

filters.addEventListener("change", (event) => {
  // A cluster holds images that the model called unknown: they are not to be filtered away.
  if (event.target.name === "cluster" && event.target.value !== "*") for (const box of filters.elements.state) box.checked = true;
  load();
});
filters.addEventListener("submit", (event) => event.preventDefault());
at("reset").addEventListener("click", () => { restore(usual()); load(); });

function showProgress() {
  const { effect, states } = about;
  const review = states.indexOf("review");
  const [done, total] = [effect.done[review], effect.total[review]];
  at("progress").max = total || 1;
  at("progress").value = done;
  at("progress-text").textContent =
    total ? `${count(done)} of ${count(total)} doubtful images done` : "no doubtful images";
  for (const box of filters.elements.state) {
    const i = states.indexOf(box.value);
    box.parentElement.querySelector("output").textContent = count(effect.total[i] - effect.done[i]);
  }
  at("facts").replaceChildren(...facts(about));
}

await wire.start();
filters.elements.cluster.replaceChildren(
  element("option", { value: "*", textContent: "any" }),
  ...about.clusters.map(([number, size]) => element("option", { value: number, textContent: `${number} (${size} images)` })),
);
[filters.elements.low.placeholder, filters.elements.high.placeholder] = about.scores.map((score) => score.toPrecision(3));
if (about.damaged) warn(`${about.damaged} ${about.damaged === 1 ? "line" : "lines"} of decisions.jsonl could not be read.`);
restore(sessionStorage.getItem("filters") ? new URLSearchParams(sessionStorage.getItem("filters")) : usual());
await load();
