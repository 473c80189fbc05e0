// The image in focus: large, with all that the model says about it; and larger still on demand.

import { at, element, percent } from "./words.js";

const SMALL = 64; // images up to this side are shown pixel by pixel
const PAUSE = 150; // milliseconds in focus before the whole image is asked for

function bar(share) {
  const filled = element("i");
  filled.style.width = `${100 * share}%`;
  return element("span", { className: "meter" }, filled);
}

export class Inspector {
  constructor(about, wire) {
    Object.assign(this, { about, wire, image: undefined, item: null, decided: null });
    at("zoom").addEventListener("click", () => at("zoom").close());
  }

  show(image, item, decided) {
    at("inspector").hidden = image === undefined;
    if (image === undefined || !item) return;
    const fresh = image !== this.image;
    Object.assign(this, { image, item, decided });
    if (fresh) this.picture();
    at("file").textContent = item.file;
    at("reason").textContent = item.reason;
    at("details").tBodies[0].replaceChildren(
      ...this.rows().map(([name, ...cells]) =>
        element("tr", {}, element("th", { scope: "row", textContent: name }), element("td", {}, ...cells)),
      ),
    );
    if (at("zoom").open) this.enlarge();
  }

  isSmall() {
    return Math.max(this.item.width, this.item.height) <= SMALL;
  }

  thumbnail() {
    return `thumb/${this.wire.pile}/${this.image}`;
  }

  picture() {
    const image = this.image;
    at("large").classList.toggle("pixels", this.isSmall());
    at("large").src = this.thumbnail();
    if (this.isSmall()) return;
    setTimeout(() => {
      if (this.image !== image) return;
      const whole = new Image();
      whole.onload = () => {
        if (this.image === image) at("large").src = whole.src;
      };
      whole.src = `image/${image}`;
    }, PAUSE);
  }

  rows() {
    const { item } = this;
    const { labels } = this.about;
    return [
      ["Decided", this.decided ?? "not yet"],
      ["The model says", item.state],
      ["Likeliest", `${labels[item.guess]} ${percent(item.probability)}`, bar(item.probability)],
      item.second >= 0 && ["Second", `${labels[item.second]} ${percent(item.secondProbability)}`, bar(item.secondProbability)],
      ["p-value", item.p.toPrecision(2)],
      ["Inlier score", item.score.toPrecision(4)],
      item.epistemic !== null && ["Epistemic", item.epistemic.toPrecision(3)],
      item.aleatoric !== null && ["Aleatoric", item.aleatoric.toPrecision(3)],
      item.cluster !== null && ["Cluster", String(item.cluster)],
      item.alike !== null && ["Near-duplicates", `group ${item.alike}`],
      ["Size", `${item.width} × ${item.height}`],
    ].filter(Boolean);
  }

  zoom() {
    if (at("zoom").open) at("zoom").close();
    else if (this.item) this.enlarge();
  }

  enlarge() {
    const picture = at("zoomed");
    if (picture.dataset.image !== String(this.image)) {
      picture.dataset.image = this.image;
      picture.onerror = () => {
        picture.onerror = null; // the file has gone: what is left is the thumbnail
        picture.src = this.thumbnail();
      };
      picture.src = `image/${this.image}`;
      picture.classList.toggle("pixels", this.isSmall());
    }
    at("zoom-text").textContent = `${this.item.file} · ${this.decided ?? this.item.reason}`;
    if (!at("zoom").open) at("zoom").showModal();
  }
}
