// On paper nothing can be opened, so everything is open; on screen the contents say where one is.

function startPrinting() {
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((one) => (one.open = true));
  });
  addEventListener("afterprint", () => closed.forEach((one) => (one.open = false)));
}

function startContents() {
  const links = [...document.querySelectorAll("nav a")];
  const places = links.map((link) => at(link.hash.slice(1)));
  const mark = () => {
    const line = innerHeight / 3;
    const atEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
    const passed = places.filter((place) => place.getBoundingClientRect().top <= line).length;
    const here = atEnd ? links.length - 1 : Math.max(0, passed - 1);
    links.forEach((link, i) => (i === here ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current")));
  };
  addEventListener("scroll", mark, { passive: true });
  mark();
}
