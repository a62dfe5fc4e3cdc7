"use strict";
// The pairs of the page: filters, pages, the table, a closer look. Names come from attributes and
// from the data in the page; they are only ever compared, or shown as text.

const byId = (id) => document.getElementById(id);
const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));

// -- copying -----------------------------------------------------------------------------------------

function say(text) {
  const status = byId("copied");
  status.textContent = text;
  clearTimeout(say.hiding);
  say.hiding = setTimeout(() => (status.textContent = ""), 2500);
}

/** Show the buttons that only scripts give a meaning. */
function enable(within) {
  for (const each of all(".copy, .enlarge", within)) each.hidden = false;
}

function copying() {
  enable(document);
  document.addEventListener("click", async (event) => {
    const button = event.target.closest(".copy");
    if (!button) return;
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      say("Copied.");
    } catch {
      getSelection().selectAllChildren(code);
      say("Selected; press Ctrl-C to copy.");
    }
  });
}

// -- the listed pairs --------------------------------------------------------------------------------

/** A probability with three decimals; what is not certain never reads as certain. */
function chance(probability) {
  if (probability > 0 && probability < 0.0005) return "<0.001";
  if (probability >= 0.9995 && probability < 1) return ">0.999";
  return probability.toFixed(3);
}

/** Make characters visible that hide, or that turn text around. */
function visible(text) {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (sign) => "\\u" + sign.charCodeAt(0).toString(16).padStart(4, "0"));
}

/** Turn the data of the page into objects, strongest pair first. */
function listedPairs() {
  const { columns, names, rows } = JSON.parse(byId("data").textContent);
  return rows.map((values, place) => {
    const pair = { place };
    columns.forEach((name, at) => (pair[name] = names[name] ? names[name][values[at]] : values[at]));
    pair.between = pair.query_set === pair.reference_set ? `within ${pair.query_set}` : `${pair.query_set} → ${pair.reference_set}`;
    pair.text = [pair.query, pair.reference, pair.query_label, pair.reference_label, pair.judged && "judged"].join(" ").toLowerCase();
    return pair;
  });
}

/**
 * Return the cards. Those after the first page are text, which a browser with scripts does not parse,
 * until they are shown: hundreds of images would keep the page from answering for a second.
 */
function cardsOf(list) {
  const more = byId("more-cards")?.textContent.split(/(?=<li id="pair-)/).slice(1) ?? [];
  const made = document.createElement("template");
  made.innerHTML = more.map((text) => text.slice(0, text.indexOf(">") + 1)).join("");
  const card = (item, text) => {
    const { query, reference, kind, between, label, text: words, conflict } = item.dataset;
    const similarity = Number(item.dataset.similarity);
    let whole = text ? null : item;
    const parsed = () => {
      made.innerHTML = text;
      enable(made.content);
      return made.content.firstElementChild;
    };
    return { id: item.id, get item() { return (whole ??= parsed()); }, query, reference, kind, between, query_label: label, text: words, similarity, place: Number(item.dataset.place), conflict: conflict === "yes" };
  };
  const openings = [...made.content.children];
  return [...all(":scope > li", list).map((item) => card(item)), ...openings.map((item, at) => card(item, more[at]))];
}

const GRADES = ["exact", "near", "similar", "different", "hard", "soft", "ungraded"];
const texts = (name) => (a, b) => (a[name] < b[name] ? -1 : a[name] > b[name] ? 1 : a.place - b.place);
const falling = (name) => (a, b) => (b[name] ?? -2) - (a[name] ?? -2) || a.place - b.place;
const ORDERS = {
  place: (a, b) => a.place - b.place,
  probability: falling("probability"),
  similarity: falling("similarity"),
  query: texts("query"),
  reference: texts("reference"),
  kind: (a, b) => GRADES.indexOf(a.kind) - GRADES.indexOf(b.kind) || a.place - b.place,
};
const PER_PAGE = { cards: window.innerWidth < 800 ? 12 : 24, table: 50 };
const FIELDS = ["text", "kind", "between", "label", "sort", "view"];

let cardOf = () => undefined; // the card of an id

function gallery() {
  const form = byId("controls");
  if (!form) return;
  const list = byId("cards");
  const table = byId("table");
  const pager = byId("pager");
  const pairs = listedPairs();
  const cards = cardsOf(list);
  cardOf = (id) => cards.find((each) => each.id === id);
  let page = 0;
  let reversed = false;
  let sorted = "place";

  const field = (name) => form.elements.namedItem(name);
  const value = (name) => field(name)?.value ?? "";

  function fitting(items) {
    const words = value("text").toLowerCase().split(/\s+/).filter(Boolean);
    const [kind, between, label] = ["kind", "between", "label"].map(value);
    const conflict = field("conflict")?.checked;
    const found = items.filter((each) =>
      (!kind || each.kind === kind) && (!between || each.between === between) && (!label || each.query_label === label) &&
      (!conflict || each.conflict) && words.every((word) => each.text.includes(word)));
    found.sort(ORDERS[sorted]);
    return reversed ? found.reverse() : found;
  }

  function showCards(shown) {
    const items = shown.map((each) => each.item);
    if (items.length !== list.children.length || items.some((item, at) => item !== list.children[at])) list.replaceChildren(...items);
  }

  function cell(row, text, kind) {
    const made = row.insertCell();
    if (kind === "id" || kind === "label") {
      const name = document.createElement("bdi");
      name.textContent = visible(text);
      if (kind === "id") name.className = "id";
      made.append(name);
    } else {
      made.textContent = text;
      if (kind) made.className = kind;
    }
    return made;
  }

  function showTable(shown) {
    const body = table.querySelector("tbody");
    body.replaceChildren();
    for (const pair of shown) {
      const row = body.insertRow();
      for (const side of ["query", "reference"]) {
        const set = document.createElement("bdi");
        set.className = "small quiet";
        set.textContent = ` ${pair[`${side}_set`]}`;
        cell(row, pair[side], "id").append(set);
      }
      const grade = cell(row, "", "");
      const chip = document.createElement("span");
      chip.className = `chip ${pair.kind}`;
      chip.textContent = pair.kind;
      grade.append(chip);
      cell(row, pair.probability === null ? "" : chance(pair.probability), "num");
      cell(row, pair.similarity === null ? "" : pair.similarity.toFixed(3), "num");
      const labels = pair.query_label === pair.reference_label ? [pair.query_label] : [pair.query_label, pair.reference_label];
      cell(row, labels.map((label) => label || "(none)").join(" and "), "label");
      const link = document.createElement("a");
      link.href = pair.card ? `#${pair.card}` : address({ text: `${pair.query} ${pair.reference}`, view: "table" });
      link.textContent = pair.card ? "images" : "link";
      link.setAttribute("aria-label", pair.card ? `Images of the group of ${pair.query}` : `Link to the pair of ${pair.query}`);
      cell(row, "", "").append(link);
    }
    for (const head of all("[data-column]", table)) {
      const own = head.dataset.column === sorted;
      head.setAttribute("aria-sort", !own ? "none" : ["query", "reference", "kind"].includes(sorted) === reversed ? "descending" : "ascending");
    }
  }

  /** The filters as an address in this page. */
  function address(values) {
    const query = new URLSearchParams(Object.entries(values).filter(([, text]) => text)).toString();
    return `#gallery${query ? "?" : ""}${query}`;
  }

  function state() {
    const initial = { sort: "place", view: "cards" };
    const values = Object.fromEntries(FIELDS.map((name) => [name, value(name) === initial[name] ? "" : value(name)]));
    return { ...values, conflict: field("conflict")?.checked ? "yes" : "", down: reversed ? "yes" : "", page: page ? String(page + 1) : "" };
  }

  function update({ remember = true } = {}) {
    sorted = value("sort") || sorted;
    const view = value("view");
    const [images, rows] = [fitting(cards), fitting(pairs)];
    const found = view === "table" ? rows : images;
    const size = PER_PAGE[view];
    const pages = Math.max(1, Math.ceil(found.length / size));
    page = Math.min(page, pages - 1);
    const shown = found.slice(page * size, (page + 1) * size);
    list.hidden = view === "table";
    table.hidden = view !== "table";
    if (view === "table") showTable(shown);
    else showCards(shown);
    list.classList.toggle("unmarked", field("marks")?.checked === false);
    byId("count").textContent = `${rows.length.toLocaleString("en")} of ${pairs.length.toLocaleString("en")} pairs, ${images.length.toLocaleString("en")} of ${cards.length.toLocaleString("en")} with images`;
    byId("printed").textContent = printedPart(shown.length, page * size, found.length, view);
    byId("page-of").textContent = `Page ${page + 1} of ${pages}`;
    pager.hidden = pages < 2;
    const [back, on] = all("button", pager);
    back.disabled = page === 0;
    on.disabled = page === pages - 1;
    byId("none-left").hidden = found.length > 0;
    if (remember) history.replaceState(null, "", address(state()));
  }

  /** What a print of the page holds of the pairs, for its readers cannot turn pages. */
  function printedPart(count, before, total, view) {
    const narrowed = Object.values(state()).slice(0, 4).some(Boolean) || field("conflict")?.checked ? " that meet the filters" : "";
    if (count === total && !narrowed) return "";
    const what = view === "table" ? "pairs" : "pairs with images";
    return `Printed: ${what} ${(before + 1).toLocaleString("en")} to ${(before + count).toLocaleString("en")} of ${total.toLocaleString("en")}${narrowed}. The page in a browser has all.`;
  }

  function turn(to) {
    page = to;
    update();
    byId("controls").scrollIntoView();
  }

  /** Set the filters that an address names, or show the card that it names. */
  function arrive() {
    const hash = location.hash.slice(1);
    if (hash.startsWith("gallery?")) {
      const values = new URLSearchParams(hash.slice("gallery?".length));
      form.reset();
      for (const name of FIELDS) {
        const given = values.get(name);
        if (given === null || !field(name)) continue;
        field(name).value = given;
        if (field(name).value !== given) field(name).value = field(name).options?.[0]?.value ?? "";
      }
      if (field("conflict")) field("conflict").checked = values.get("conflict") === "yes";
      reversed = values.get("down") === "yes";
      page = Math.max(0, (parseInt(values.get("page"), 10) || 1) - 1);
      update({ remember: false });
      byId("gallery").scrollIntoView();
      return;
    }
    const card = cardOf(hash);
    for (const each of all(".found", list)) each.classList.remove("found");
    if (!card) return;
    if (value("view") === "table") field("view").value = "cards";
    if (!fitting(cards).includes(card)) form.reset();
    sorted = value("sort");
    page = Math.floor(fitting(cards).indexOf(card) / PER_PAGE.cards);
    update({ remember: false });
    card.item.classList.add("found");
    card.item.scrollIntoView();
  }

  /** A text as a cell of a CSV file that no spreadsheet takes for a formula. */
  function quoted(value) {
    let text = value === null ? "" : String(value);
    if (typeof value === "string" && /^[=+\-@\t\r']/.test(text)) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  function download() {
    const names = ["query_set", "query", "reference_set", "reference", "grade", "probability", "similarity", "query_label", "reference_label"];
    const lines = fitting(pairs).map((pair) => names.map((name) => quoted(name === "grade" ? pair.kind : pair[name])).join(","));
    const file = new Blob([[names.join(","), ...lines, ""].join("\r\n")], { type: "text/csv" });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(file);
    link.download = "pairs.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  form.hidden = false;
  form.addEventListener("input", () => { page = 0; reversed = false; update(); });
  form.addEventListener("reset", () => setTimeout(() => { page = 0; reversed = false; sorted = "place"; update(); }, 0));
  form.addEventListener("submit", (event) => event.preventDefault());
  byId("export").addEventListener("click", download);
  pager.addEventListener("click", (event) => {
    const step = event.target.closest("[data-step]");
    if (step) turn(page + Number(step.dataset.step));
  });
  table.addEventListener("click", (event) => {
    const head = event.target.closest("[data-column]");
    if (!head) return;
    const column = head.dataset.column;
    reversed = sorted === column && !reversed;
    sorted = column;
    field("sort").value = column;
    page = 0;
    update();
  });
  window.addEventListener("hashchange", arrive);
  update({ remember: false });
  arrive();
}

// -- a closer look -----------------------------------------------------------------------------------

function closer() {
  const dialog = byId("compare");
  if (!dialog) return;
  const stage = byId("stage");
  const large = new Map(all("#strongest [data-card]").map((item) => [item.dataset.card, item]));
  let at = null;
  let blinking = 0;
  let mode = "side";

  /** A copy of an image as large as there is room for, and at most four times its size. */
  function copy(image, width, height) {
    const made = image.cloneNode();
    made.loading = "eager";
    const [w, h] = [image.naturalWidth || image.width, image.naturalHeight || image.height];
    const crisp = image.classList.contains("crisp");
    let factor = Math.min(width / w, height / h, crisp ? 24 : 4);
    if (crisp) factor = Math.max(1, Math.floor(factor));
    made.style.width = `${w * factor}px`;
    made.style.height = `${h * factor}px`;
    return made;
  }

  /** Lay the query over the reference: the nine numbers go from query to reference, both of side 1. */
  function laidOver(image, like, matrix) {
    const [w, h] = [parseFloat(like.style.width), parseFloat(like.style.height)];
    image.style.width = `${w}px`;
    image.style.height = `${h}px`;
    if (!matrix) return;
    const [a, b, c, d, e, f, g, i, j] = matrix.split(" ").map(Number);
    const [A, B, C, D, E, F, G, H] = [a, (b * w) / h, c * w, (d * h) / w, e, f * h, g / w, i / h];
    image.style.transformOrigin = "0 0";
    image.style.transform = `matrix3d(${[A, D, 0, G, B, E, 0, H, 0, 0, 1, 0, C, F, 0, j].join(",")})`;
  }

  function draw() {
    clearInterval(blinking);
    const source = large.get(at.id) ?? at;
    const [query, reference] = all(".thumbs img", source);
    stage.replaceChildren();
    stage.className = mode;
    for (const name of ["side", "blink"]) dialog.querySelector(`[data-do=${name}]`).setAttribute("aria-pressed", String(mode === name));
    if (!query || !reference) return;
    const [width, height] = [stage.clientWidth, Math.max(200, window.innerHeight - 260)];
    if (mode === "side") {
      stage.append(copy(query, width / 2 - 12, height), copy(reference, width / 2 - 12, height));
      return;
    }
    const below = copy(reference, width, height);
    const above = copy(query, width, height);
    laidOver(above, below, at.dataset.matrix);
    const pile = document.createElement("div");
    pile.className = "pile";
    pile.style.width = below.style.width;
    pile.style.height = below.style.height;
    pile.append(below, above);
    const name = document.createElement("p");
    stage.append(pile, name);
    let shown = false;
    const turn = () => {
      shown = !shown;
      above.style.visibility = shown ? "visible" : "hidden";
      name.textContent = shown ? "query, laid over the reference" : "reference";
    };
    turn();
    blinking = setInterval(turn, 700); // slow enough to be safe
  }

  function open(item) {
    at = item;
    byId("compare-h").textContent = `${item.dataset.kind}: ${visible(item.dataset.query)}`;
    // of a card that the table hides, the text has no line breaks
    const names = [...item.querySelectorAll("h3 > *")].map((part) => part.textContent || "and");
    byId("compare-names").textContent = names.join(" ");
    if (!dialog.open) dialog.showModal();
    draw();
  }

  /** The next or previous card of the page with images. */
  function step(by) {
    const shown = all("#cards > li").filter((item) => item.querySelector(".thumbs"));
    const next = shown[shown.indexOf(at) + by];
    if (next) open(next);
  }

  function look(name) {
    mode = name;
    draw();
  }

  const does = { close: () => dialog.close(), side: () => look("side"), blink: () => look("blink"), previous: () => step(-1), next: () => step(1) };
  dialog.addEventListener("click", (event) => {
    const button = event.target.closest("[data-do]");
    if (button) does[button.dataset.do]();
    else if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener("close", () => clearInterval(blinking));
  dialog.addEventListener("keydown", (event) => {
    const keys = { ArrowLeft: "previous", ArrowRight: "next", b: "blink", s: "side" };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    does[keys[event.key] === "blink" && mode === "blink" ? "side" : keys[event.key]]();
  });
  window.addEventListener("resize", () => { if (dialog.open) draw(); });
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-do=enlarge], .thumbs img")) return;
    const strong = event.target.closest("[data-card]");
    const item = strong ? cardOf(strong.dataset.card)?.item : event.target.closest("#cards > li");
    if (item?.querySelector(".thumbs")) open(item);
  });
}

copying();
gallery();
closer();
