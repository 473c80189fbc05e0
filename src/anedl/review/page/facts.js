// The results so far, as terms and descriptions.

import { element, percent, count as number } from "./words.js";

const sum = (counts) => counts.reduce((total, count) => total + count, 0);

function needed({ states, effect }) {
  const missing = states.map((state, i) => [state, effect.sample_needed[i]]).filter(([, count]) => count);
  return missing.map(([state, count]) => `${count} ${state}`).join(", ");
}

export function facts(about) {
  const { effect, expected, states } = about;
  const settled = sum(effect.settled);
  const right = sum(effect.right);
  const share = ({ share: middle, low, high }) => `${percent(middle)} (${percent(low)} to ${percent(high)})`;
  const made = [];
  const add = (term, figure, ...notes) => {
    const small = notes.filter(Boolean).map((textContent) => element("small", { textContent }));
    made.push(element("dt", { textContent: term }), element("dd", {}, element("b", { textContent: figure }), ...small));
  };
  add(
    "Settled",
    number(settled),
    `${number(effect.labelled)} labelled, ${number(effect.unknown)} unknown${settled ? ` (${percent(effect.unknown / settled)})` : ""}`,
    effect.of_new_classes && `${number(effect.of_new_classes)} of the labelled in new classes`,
    effect.skipped && `${number(effect.skipped)} skipped`,
  );
  if (settled) {
    const parts = states.map((state, i) => effect.settled[i] && `${state} ${number(effect.right[i])} of ${number(effect.settled[i])}`);
    const guessed = effect.settled[states.indexOf("review")] && "an image for review counts by its likeliest class";
    add("The model's likeliest answer was right", `${percent(right / settled)}`, parts.filter(Boolean).join(", "), guessed);
  }
  if (effect.outliers) {
    add("Outliers in the pile", share(effect.outliers), "from your fair sample, 90 % interval", expected && `the fit said ${share(expected)}`);
  } else {
    add("Outliers in the pile", expected ? share(expected) : "–", expected && "said the fit, 90 % interval", `to check it, order by random sample and settle ${needed(about)}`);
  }
  const piles = states.map((state, i) => `${state} ${number(effect.sorted_pile[i])}`);
  made.push(element("dt", { textContent: "The pile is now" }), element("dd", { textContent: piles.join(", ") }));
  return made;
}
