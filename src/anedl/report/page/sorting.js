// Tables that a click, or a key, on a heading sorts.

const named = new Intl.Collator("en", { numeric: true });

function startSorting(table) {
  const headings = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];

  const valueOf = (row, column) => {
    const cell = row.cells[column];
    if (!("value" in cell.dataset)) return cell.textContent;
    return cell.dataset.value === "" ? null : Number(cell.dataset.value);
  };

  function sort(column) {
    const falling = headings[column].ariaSort === "ascending";
    const order = falling ? -1 : 1;
    const compare = (one, two) => {
      const [a, b] = [valueOf(one, column), valueOf(two, column)];
      if (a === null || b === null) return (a === null) - (b === null); // nothing comes last, either way
      return order * (typeof a === "string" ? named.compare(a, b) : a - b);
    };
    body.append(...[...body.rows].sort(compare));
    headings.forEach((heading, i) => heading.setAttribute("aria-sort", i === column ? (falling ? "descending" : "ascending") : "none"));
  }

  headings.forEach((heading, column) => {
    const button = element("button", { type: "button" }, ...heading.childNodes);
    button.addEventListener("click", () => sort(column));
    heading.append(button);
    heading.setAttribute("aria-sort", "none");
  });
}
