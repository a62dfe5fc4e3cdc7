"use strict";
// Filters and sorts the gallery, and hides its marks. Names stay in attributes and are only ever compared as text.
(function () {
  const form = document.getElementById("controls");
  const list = document.getElementById("cards");
  if (!form || !list) return;
  const cards = Array.from(list.children);
  const count = document.getElementById("count");
  const none = document.getElementById("none-left");
  const order = {
    place: (a, b) => a.dataset.place - b.dataset.place,
    similarity: (a, b) => b.dataset.similarity - a.dataset.similarity || order.place(a, b),
    query: (a, b) =>
      a.dataset.query < b.dataset.query ? -1 : a.dataset.query > b.dataset.query ? 1 : order.place(a, b),
  };
  let sorted = "place";

  function value(name) {
    const field = form.elements.namedItem(name);
    return field ? field.value : "";
  }

  function update() {
    const words = value("text").toLowerCase().split(/\s+/).filter(Boolean);
    const disputed = form.elements.namedItem("conflict");
    let shown = 0;
    for (const card of cards) {
      const data = card.dataset;
      const fits =
        ["kind", "between", "label"].every((name) => !value(name) || data[name] === value(name)) &&
        (!disputed || !disputed.checked || data.conflict === "yes") &&
        words.every((word) => data.text.includes(word));
      card.hidden = !fits;
      if (fits) shown += 1;
    }
    const marks = form.elements.namedItem("marks");
    list.classList.toggle("unmarked", Boolean(marks && !marks.checked));
    if (value("sort") !== sorted) {
      sorted = value("sort");
      list.append(...cards.sort(order[sorted]));
    }
    count.textContent = shown + " of " + cards.length + " shown";
    none.hidden = shown > 0;
  }

  // A link to a card that the filters hide shows it again.
  function reveal() {
    const card = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (card && card.hidden && list.contains(card)) {
      form.reset();
      update();
      card.scrollIntoView();
    }
  }

  form.hidden = false;
  form.addEventListener("input", update);
  form.addEventListener("reset", () => setTimeout(update, 0));
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", reveal);
  update();
})();
