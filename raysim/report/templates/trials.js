(() => {
  const trials = JSON.parse(document.getElementById("trials").textContent);
  const select = document.getElementById("trial"), text = document.getElementById("trial-text");
  if (!select) return;
  const show = (index) => {
    document.querySelectorAll(".chart .now").forEach((mark) => mark.classList.remove("now"));
    document.body.classList.toggle("choosing", index !== "");
    select.value = index;
    if (index === "") { text.textContent = ""; return; }
    document.querySelectorAll(`.chart [data-h="${index}"]`).forEach((mark) => mark.classList.add("now"));
    const trial = trials[index], said = Object.entries({...trial.figures, ...trial.params});
    text.textContent = (trial.front ? "Pareto set. " : "") + said.map(([key, value]) => `${key} ${value}`).join("; ");
  };
  select.addEventListener("change", () => show(select.value));
  document.querySelectorAll(".chart [data-h]").forEach((mark) => {
    mark.addEventListener("pointerenter", () => show(mark.dataset.h));
    mark.addEventListener("click", () => show(mark.dataset.h));
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") show(""); });
})();
