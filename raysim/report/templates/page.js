// The chooser of a hospital: fills its card and marks it in every figure. All texts come from the page's block of data
// and are set as text. Without this script the page shows everything but the card.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const select = document.getElementById("hospital");
  const card = document.getElementById("card");
  const mark = document.head.appendChild(document.createElement("style"));
  if (!select || !card) return;
  const element = (name, text, parent) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    parent?.append(made);
    return made;
  };
  const cell = (row, name, text, scope) => {
    const made = element(name, text, row);
    if (scope) made.scope = scope;
  };
  const table = (caption, columns, rows) => {
    const wide = element("div");
    wide.className = "wide";
    wide.tabIndex = 0;
    wide.setAttribute("role", "region");
    wide.setAttribute("aria-label", caption);
    const made = element("table", undefined, wide);
    made.className = "words";
    element("caption", caption, made);
    const head = element("tr", undefined, element("thead", undefined, made));
    columns.forEach((text) => cell(head, "th", text, "col"));
    const body = element("tbody", undefined, made);
    rows.forEach(([first, ...rest]) => {
      const row = element("tr", undefined, body);
      cell(row, "th", first, "row");
      rest.forEach((text) => cell(row, "td", text));
    });
    return wide;
  };
  const show = (number) => {
    const chosen = data.hospitals[number];
    card.replaceChildren();
    mark.textContent = "";
    if (!chosen) return;
    element("h3", chosen.name, card);
    const facts = element("dl", undefined, card);
    facts.className = "facts";
    chosen.facts.forEach(([heading, text]) => {
      const line = element("div", undefined, facts);
      element("dt", heading, line);
      element("dd", text, line);
    });
    card.append(table(`How each model serves it (${data.over})`, data.columns, chosen.rows));
    card.append(table("What left this hospital. Patients' rows do only where it says rows; all else is computed from them.", ["Strategy", "Kinds and bytes"], chosen.sent));
    const own = `[data-h="${Number(number)}"]`;
    mark.textContent = `.chart ${own} { opacity: 1; fill-opacity: 1; }
      .chart ${own}:not(.whisker) { fill: var(--chosen); stroke: var(--ink); stroke-width: 1.2;
        transform-box: fill-box; transform-origin: center; transform: scale(2.4);
        vector-effect: non-scaling-stroke; }
      .chart .whisker${own} { stroke: var(--chosen); stroke-width: 3.5; }`;
    document.querySelectorAll(`.chart ${own}`).forEach((drawn) => drawn.parentNode.append(drawn));
  };
  const choose = (number) => {
    select.value = number;
    show(number);
  };
  select.addEventListener("change", () => show(select.value));
  document.addEventListener("click", (event) => {
    const drawn = event.target.closest?.(".chart [data-h]");
    if (drawn) choose(drawn.dataset.h);
  });
  document.querySelectorAll(".chart [data-h]").forEach((drawn) => {
    drawn.addEventListener("pointerenter", () => {
      if (drawn.querySelector("title")) return;
      const title = document.createElementNS(drawn.namespaceURI, "title");
      title.textContent = data.hospitals[drawn.dataset.h]?.name ?? "";
      drawn.append(title);
    });
  });
  document.getElementById("chooser").hidden = false;
  if (select.value) show(select.value);
})();
