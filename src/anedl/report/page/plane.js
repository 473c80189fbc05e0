// The plane of doubts: the image of the point that the pointer or the focus is on.

const REACH = 14; // pixels of the picture within which a point answers

function startPlane() {
  const picture = document.querySelector("svg.plane");
  if (!picture) return;
  const peek = at("peek");
  const points = [...picture.querySelectorAll(".point")].map((mark) => {
    const { e: x, f: y } = mark.transform.baseVal.getItem(0).matrix;
    const title = mark.querySelector("title");
    const words = title.textContent;
    title.remove(); // the browser's own hint would lie over the image
    mark.setAttribute("tabindex", "-1");
    mark.setAttribute("role", "img");
    mark.setAttribute("aria-label", words);
    return { mark, x, y, words, image: mark.dataset.image };
  });
  const across = [...points].sort((a, b) => a.x - b.x || a.y - b.y);
  const upwards = [...points].sort((a, b) => b.y - a.y || a.x - b.x);
  across[0].mark.setAttribute("tabindex", "0");
  let shown = null;

  function show(point) {
    if (shown === point) return;
    shown?.mark.classList.remove("seen");
    shown = point;
    peek.hidden = !point;
    if (!point) return;
    point.mark.classList.add("seen");
    const words = element("span", { textContent: point.words });
    peek.replaceChildren(...(point.image ? [thumbnail(point.image, point.words)] : []), words);
    const scale = picture.clientWidth / picture.viewBox.baseVal.width;
    const right = point.x * scale + 16;
    const flips = right + peek.offsetWidth > picture.clientWidth;
    peek.style.left = `${Math.max(0, flips ? point.x * scale - 16 - peek.offsetWidth : right)}px`;
    peek.style.top = `${Math.max(0, Math.min(point.y * scale - 40, picture.clientHeight - peek.offsetHeight))}px`;
  }

  function nearest(event) {
    const matrix = picture.getScreenCTM().inverse();
    const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix);
    const far = (point) => Math.hypot(point.x - x, point.y - y);
    const best = points.reduce((a, b) => (far(b) < far(a) ? b : a));
    return far(best) <= REACH ? best : null;
  }

  function focus(point) {
    picture.querySelector('[tabindex="0"]').setAttribute("tabindex", "-1");
    point.mark.setAttribute("tabindex", "0");
    point.mark.focus({ preventScroll: true });
  }

  picture.addEventListener("pointermove", (event) => show(nearest(event)));
  picture.addEventListener("pointerdown", (event) => show(nearest(event)));
  picture.addEventListener("pointerleave", () => show(null));
  picture.addEventListener("focusin", (event) => {
    const point = points.find(({ mark }) => mark === event.target);
    if (!point) return;
    show(point);
    at("peek-words").textContent = point.words;
  });
  picture.addEventListener("focusout", () => show(null));
  picture.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return show(null);
    const order = { ArrowLeft: across, ArrowRight: across, ArrowUp: upwards, ArrowDown: upwards }[event.key];
    const here = order?.findIndex(({ mark }) => mark === event.target);
    if (here === undefined || here < 0) return undefined;
    event.preventDefault();
    const step = event.key === "ArrowRight" || event.key === "ArrowUp" ? 1 : -1;
    return focus(order[(here + step + order.length) % order.length]);
  });
}
