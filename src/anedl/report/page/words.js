// Small things that every part of the page uses.

const at = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// An image of the album; its words are text, whatever they hold.
const thumbnail = (image, words) =>
  drawn("svg", { class: "thumb", viewBox: "0 0 1 1", role: "img", "aria-label": words }, drawn("use", { href: `#${image}` }));

const count = (number) => number.toLocaleString("en");

function percent(share) {
  const value = 100 * share;
  const rounded = value >= 1 ? value.toFixed(1) : String(Number(value.toPrecision(2)));
  return `${rounded.replace(/\.0$/, "")} %`;
}
