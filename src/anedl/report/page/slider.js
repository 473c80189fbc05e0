// The threshold slider: counts, expected loss and the images that change sides at any cut.

const STEPS = 1000;
const MOST_SHOWN = 24;

function unpacked(text) {
  const bytes = Uint8Array.from(atob(text.slice(1)), (character) => character.charCodeAt(0));
  return text[0] === "4" ? new Float32Array(bytes.buffer) : new Float64Array(bytes.buffer);
}

// How many of the ascending scores lie below the cut.
function below(scores, cut) {
  let low = 0;
  let high = scores.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (scores[middle] < cut) low = middle + 1;
    else high = middle;
  }
  return low;
}

function startSlider() {
  const data = JSON.parse(at("slider-data").textContent);
  const groups = data.groups.map((group) => unpacked(group.scores));
  const loss = data.loss && Object.fromEntries(Object.entries(data.loss).map(([name, text]) => [name, unpacked(text)]));
  const shownScores = data.shown.map(([, score]) => score);
  const own = data.cut === null ? -Infinity : data.cut;
  const range = at("cut-range");
  const number = at("cut-number");
  const rows = [...at("cut-counts").tBodies[0].rows];
  const width = Number(at("cut-line").ownerSVGElement.viewBox.baseVal.width);

  const scoreAt = (share) =>
    data.logarithmic ? data.low * (data.high / data.low) ** share : data.low + share * (data.high - data.low);
  const shareOf = (score) => {
    const share = data.logarithmic ? Math.log(score / data.low) / Math.log(data.high / data.low) : (score - data.low) / (data.high - data.low);
    return Math.min(1, Math.max(0, Number.isFinite(share) ? share : 0));
  };

  function showCounts(cut) {
    groups.forEach((scores, i) => {
      const rejected = below(scores, cut);
      const cells = rows[i].cells;
      cells[1].textContent = count(scores.length - rejected);
      cells[2].textContent = count(rejected);
      cells[3].textContent = ((100 * rejected) / scores.length).toFixed(1);
    });
    if (!loss) return;
    const rejectsNothing = groups.every((scores) => below(scores, cut) === 0);
    at("cut-harmless").hidden = !rejectsNothing;
    at("cut-promise").hidden = rejectsNothing;
    const rank = below(loss.inliers, cut);
    at("cut-loss").textContent = percent(loss.bounds[rank]);
    at("cut-range-words").textContent = ` (${percent(loss.low[rank])} to ${percent(loss.high[rank])} in nine calibrations of ten)`;
  }

  function showChanges(cut) {
    const [first, last] = [own, cut].sort((a, b) => a - b);
    const changed = below(groups[0], last) - below(groups[0], first);
    let chosen = data.shown.slice(below(shownScores, first), below(shownScores, last));
    // The images nearest to the moved cut, nearest first.
    chosen = cut > own ? chosen.slice(-MOST_SHOWN).reverse() : chosen.slice(0, MOST_SHOWN);
    const verdict = cut > own ? "now below the cut" : "now above the cut";
    const part = chosen.length && chosen.length < changed ? `; the ${chosen.length} shown are nearest to the cut` : "";
    const images = `${count(changed)} ${changed === 1 ? "image" : "images"}`;
    // Without a cut of the run's own there are no sides to change from.
    const told = own === -Infinity ? `Below the cut: ${images}` : `${images} ${changed === 1 ? "changes" : "change"} sides: ${verdict}`;
    at("cut-changes").textContent = changed ? `${told}${part}.` : own === -Infinity ? "No image is below the cut." : "No image changes sides.";
    at("cut-images").replaceChildren(
      ...chosen.map(([image, score, name, guess, likeness]) => {
        const words = `${name}: ${likeness}, score ${score.toPrecision(4)}`;
        const caption = element("figcaption", {}, element("span", { textContent: guess }), element("span", { textContent: score.toPrecision(4) }));
        return element("figure", { className: "tile", title: words }, thumbnail(image, words), caption);
      }),
    );
  }

  function move(cut) {
    const place = width * shareOf(cut);
    at("cut-line").setAttribute("x1", place);
    at("cut-line").setAttribute("x2", place);
    at("cut-shade").setAttribute("width", place);
    at("cut-reset").disabled = cut === own;
    showCounts(cut);
    showChanges(cut);
    range.setAttribute("aria-valuetext", `cut at ${Number.isFinite(cut) ? cut.toPrecision(4) : "none"}, ${rows[0].cells[2].textContent} below it`);
  }

  function reset() {
    range.value = STEPS * shareOf(own);
    number.value = Number.isFinite(own) ? Number(own.toPrecision(6)) : "";
    move(own);
  }

  range.addEventListener("input", () => {
    const cut = scoreAt(range.value / STEPS);
    number.value = Number(cut.toPrecision(6));
    move(Number(number.value));
  });
  number.addEventListener("input", () => {
    if (number.value === "") return;
    range.value = STEPS * shareOf(number.valueAsNumber);
    move(number.valueAsNumber);
  });
  at("cut-reset").addEventListener("click", reset);
  reset();
}
