// A legend's entry hides and shows its marks; a heading of a table sorts its rows. Without this script both stay as they are.
(() => {
  document.querySelectorAll("figure .legend li[data-s]").forEach((entry) => {
    const marks = `.chart [data-s="${entry.dataset.s}"]`, figure = entry.closest("figure");
    if (!figure.querySelector(marks)) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...entry.childNodes);
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", shown);
      figure.querySelectorAll(marks).forEach((mark) => mark.classList.toggle("off", !shown));
    });
    entry.append(button);
  });
  // The number that a cell begins with; a text where it has none. What is undefined comes last.
  const value = (row, column) => {
    const text = row.cells[column].textContent.trim().replace(/\u2212/g, "-").replace(/(\d),(?=\d{3})/g, "$1");
    const number = parseFloat(text.replace(/^\D*?(?=[-+]?\.?\d)/, ""));
    return Number.isNaN(number) ? text : number;
  };
  const order = (a, b, sign) => typeof a === typeof b
    ? sign * (typeof a === "number" ? a - b : a.localeCompare(b)) : (typeof a === "number" ? -1 : 1);
  document.querySelectorAll("table.sortable").forEach((table) => {
    const body = table.tBodies[0], headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const down = heading.getAttribute("aria-sort") === "ascending";
        headings.forEach((each) => each.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...body.rows].sort((a, b) => order(value(a, column), value(b, column), down ? -1 : 1));
        body.append(...rows);
      });
    });
  });
})();
