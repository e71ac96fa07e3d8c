// Tabs with links to their headings, and the chooser of a hospital: it fills the hospital's card and marks it in every
// figure. All texts come from the page's block of data and are set as text. Without this script the page shows all
// sections one after the other.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tabs = [...document.querySelectorAll("section.tab")];
  const links = [...document.querySelectorAll(".contents a")];
  const reveal = (id) => {
    const target = document.getElementById(id);
    const open = target?.closest("section.tab");
    if (!open) return;
    tabs.forEach((tab) => { tab.hidden = tab !== open; });
    const heading = open.getAttribute("aria-labelledby");
    links.forEach((link) => {
      if (link.hash === `#${heading}`) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    });
    const folded = target.closest("details");
    if (folded) folded.open = true;
    if (id !== heading) target.scrollIntoView();
  };
  document.body.classList.add("tabbed");

  const input = document.getElementById("hospital");
  const card = document.getElementById("card");
  const places = [0, 1, 2].map((k) => document.getElementById(`table-${k}`));
  const sent = document.getElementById("sent");
  const chosenNote = document.getElementById("chosen");
  const mark = document.head.appendChild(document.createElement("style"));
  const element = (name, text, parent) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    parent?.append(made);
    return made;
  };
  // A tab with several headings begins with links to them.
  tabs.forEach((tab) => {
    const headings = [...tab.querySelectorAll("h3")].filter((heading) => !heading.closest("details, #card"));
    if (headings.length < 2) return;
    const line = document.createElement("p");
    line.className = "within";
    headings.forEach((heading, k) => {
      const target = heading.closest("figure") ?? heading;
      target.id ||= `${tab.getAttribute("aria-labelledby")}-${k}`;
      element("a", heading.textContent, line).href = `#${target.id}`;
    });
    tab.querySelector("h2").after(line);
  });
  const cell = (row, name, text, scope) => {
    const made = element(name, text, row);
    if (scope) made.scope = scope;
  };
  const table = ({ caption, columns, rows }) => {
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
    places.forEach((place) => place.replaceChildren());
    sent.hidden = !chosen?.tables[2].length;
    mark.textContent = "";
    chosenNote.textContent = "";
    if (!chosen) return;
    element("h3", chosen.name, card);
    if (chosen.page) {
      const link = element("a", "its own page", element("p", undefined, card));
      link.href = chosen.page;
    }
    chosen.lead.forEach((text) => { element("p", text, card).className = "lead"; });
    const facts = element("dl", undefined, card);
    facts.className = "facts";
    chosen.facts.forEach(([heading, text]) => {
      const line = element("div", undefined, facts);
      element("dt", heading, line);
      element("dd", text, line);
    });
    data.tables.forEach((heading, k) => {
      if (chosen.tables[k].length) places[k].append(table({ ...heading, rows: chosen.tables[k] }));
    });
    const own = `[data-h="${Number(number)}"]`;
    mark.textContent = `.chart ${own} { opacity: 1; fill-opacity: 1; }
      .chart ${own}:not(.whisker) { fill: var(--chosen); stroke: var(--ink); stroke-width: 1.2;
        transform-box: fill-box; transform-origin: center; transform: scale(2.4);
        vector-effect: non-scaling-stroke; }
      .chart .whisker${own} { stroke: var(--chosen); stroke-width: 3.5; }`;
    document.querySelectorAll(`.chart ${own}`).forEach((drawn) => drawn.parentNode.append(drawn));
  };
  const named = (name) => data.hospitals.findIndex((hospital) => hospital.name === name);
  const choose = (number) => {
    if (!data.hospitals[number]) return;
    input.value = data.hospitals[number].name;
    history.replaceState(null, "", `#hospital=${encodeURIComponent(input.value)}`);
    show(number);
  };
  const absent = (name) => { chosenNote.textContent = `There is no hospital ${name} on this page.`; };
  const follow = () => {
    let address = location.hash.slice(1);
    try { address = decodeURIComponent(address); } catch { /* an address that somebody has typed */ }
    if (!address.startsWith("hospital=") || !input) {
      reveal(address);
      return;
    }
    reveal("your-hospital");
    const name = address.slice("hospital=".length);
    if (named(name) >= 0) choose(named(name));
    else absent(name);
  };
  if (tabs.length) reveal(tabs[0].getAttribute("aria-labelledby"));
  if (input) {
    input.addEventListener("input", () => {
      const number = named(input.value);
      if (number >= 0) choose(number);
      else show(-1);
    });
    input.addEventListener("change", () => {
      if (input.value && named(input.value) < 0) absent(input.value);
    });
    document.addEventListener("click", (event) => {
      const drawn = event.target.closest?.(".chart [data-h]");
      if (drawn) choose(drawn.dataset.h);
    });
    document.querySelectorAll(".chart [data-h]").forEach((drawn) => {
      drawn.addEventListener("pointerenter", () => {
        if (drawn.querySelector("title")) return;
        const title = document.createElementNS(drawn.namespaceURI, "title");
        const hospital = data.hospitals[drawn.dataset.h];
        title.textContent = hospital ? [hospital.name, ...hospital.lead.slice(0, 1)].join(": ") : "";
        drawn.append(title);
      });
    });
    document.getElementById("chooser").hidden = false;
  }
  window.addEventListener("hashchange", follow);
  follow();
})();
