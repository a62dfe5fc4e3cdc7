// One pair: judge, move, blink, overlay, marks. The server knows everything; this page only asks it.
import { ask, choice, filters, help, onKeys, oneAtATime, post, say } from "./common.js";

const main = document.getElementById("main");
const showHelp = help();
// what is pressed while a page is under way belongs to no pair
const alone = oneAtATime();
let view = "side";
let blinking = 0;
let marking = true;

const pair = () => document.getElementById("pair").dataset;
const all = (selector) => Array.from(document.querySelectorAll(selector));

// -- images ----------------------------------------------------------------------------------------

/** Show tiny images by whole factors, in pixels of the screen, as large as their frames allow. */
function fit() {
  for (const image of all("img[data-width]")) {
    const frame = image.closest(".frame");
    const style = getComputedStyle(frame);
    const room = [
      frame.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight),
      frame.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom),
    ];
    const size = [Number(image.dataset.width), Number(image.dataset.height)];
    if (room[0] <= 0 || room[1] <= 0) continue;
    let factor = Math.min(room[0] / size[0], room[1] / size[1]);
    if (image.classList.contains("crisp")) {
      const dots = window.devicePixelRatio || 1;
      factor = Math.max(1, Math.floor(factor * dots)) / dots;
    } else {
      factor = Math.min(factor, 4); // a small photograph is judged better enlarged
    }
    image.style.width = `${size[0] * factor}px`;
    image.style.height = `${size[1] * factor}px`;
  }
  for (const marks of all("svg.marks")) {
    const image = marks.previousElementSibling;
    for (const [name, value] of [["left", image.offsetLeft], ["top", image.offsetTop], ["width", image.offsetWidth], ["height", image.offsetHeight]]) marks.style[name] = `${value}px`;
  }
}

function show(name) {
  const stage = document.getElementById("stage");
  const stack = document.getElementById("stack");
  if (!stack) return;
  view = name;
  stage.dataset.view = name;
  stack.hidden = name === "side";
  clearInterval(blinking);
  for (const button of all("[data-view][aria-pressed]")) button.setAttribute("aria-pressed", String(button.dataset.view === name));
  if (name === "side") return fit();
  for (const image of stack.querySelectorAll("img[data-src]")) {
    image.src = image.dataset.src;
    delete image.dataset.src;
  }
  document.getElementById("slide").hidden = name !== "overlay";
  if (name === "overlay") blend();
  else blink();
  fit();
}

function blend() {
  document.getElementById("stack-name").textContent = "Overlay";
  document.getElementById("above").style.opacity = String(document.getElementById("blend").value / 100);
}

/** Twice in three seconds or so: fast enough to see changes, slow enough to be safe. */
function blink() {
  const above = document.getElementById("above");
  const name = document.getElementById("stack-name");
  let query = false;
  const turn = () => {
    query = !query;
    above.style.opacity = query ? "1" : "0";
    name.textContent = query ? "Blink: query" : "Blink: reference";
  };
  turn();
  blinking = setInterval(turn, 700);
}

const SVG = "http://www.w3.org/2000/svg";

/** Draw boxes, in shares of the image, over an image. */
function outline(id, boxes, name) {
  const marks = document.createElementNS(SVG, "svg");
  const about = { class: "marks", viewBox: "0 0 1 1", preserveAspectRatio: "none", role: "img" };
  about["aria-label"] = `${boxes.length} ${boxes.length === 1 ? "box marks" : "boxes mark"} where the content of ${name} differs`;
  for (const [key, value] of Object.entries(about)) marks.setAttribute(key, value);
  for (const [x, y, width, height] of boxes) {
    // light under dark, to be seen on any image
    for (const role of ["under", "over"]) {
      const box = document.createElementNS(SVG, "rect");
      for (const [key, value] of Object.entries({ class: role, x, y, width, height })) box.setAttribute(key, value);
      marks.append(box);
    }
  }
  document.getElementById(id).after(marks);
}

/** Mark where the content differs, or take the marks away. The page does not wait for them. */
async function mark() {
  const more = document.getElementById("marks-more");
  const { pair: name, marks: address } = pair();
  for (const old of all("svg.marks")) old.remove();
  if (!more) return;
  more.textContent = "";
  document.getElementById("marks").checked = marking;
  if (!marking || !address) return;
  let found;
  try {
    found = await (await ask(address)).json();
  } catch {
    return; // an image is gone: the pair can be judged without marks
  }
  if (pair().pair !== name || !marking || !found.query.length || all("svg.marks").length) return;
  outline("query", found.query, "the query");
  outline("reference", found.reference, "the reference");
  // both lie in the frame of the reference there
  outline("above", found.reference, "the two images");
  if (found.more) more.textContent = `, ${found.more} more`;
  fit();
}

function toggleMarks() {
  const box = document.getElementById("marks");
  if (!box || box.disabled) return;
  marking = !marking;
  mark();
}

/** Load the images and marks of the next pair in advance. */
function prefetch() {
  const soon = pair().soon.split(" ").filter(Boolean);
  // the last one is for blinking and overlay
  for (const address of view === "side" ? soon.slice(0, -1) : soon) {
    if (!address.startsWith("/marks/")) new Image().src = address;
    else if (marking) ask(address).catch(() => {});
  }
}

// -- moving ----------------------------------------------------------------------------------------

/** Put another page in place of this one, without losing the view or the focus. */
async function go(address, { push = true } = {}) {
  const response = await ask(address);
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  if (!page.getElementById("pair")) {
    window.location.assign(address);
    return;
  }
  const focused = document.activeElement;
  const button = focused?.dataset?.judge || focused?.dataset?.do;
  const open = document.getElementById("filters").open;
  clearInterval(blinking);
  main.replaceChildren(...document.adoptNode(page.getElementById("main")).childNodes);
  document.title = page.title;
  if (push) history.pushState(null, "", response.url);
  document.getElementById("filters").open = open;
  const again = button && document.querySelector(`[data-judge="${button}"], [data-do="${button}"]`);
  if (again && !again.disabled) again.focus({ preventScroll: true });
  else if (focused && !document.contains(focused)) main.focus({ preventScroll: true });
  arrived();
  window.scrollTo(0, 0);
}

function arrived() {
  show(document.getElementById("stack") ? view : "side");
  fit();
  mark();
  prefetch();
}

const step = (where) => alone(async () => {
  const address = pair()[where];
  if (address) await go(address);
  else say(where === "next" ? "This is the last pair." : "This is the first pair.");
});

const WORDS = { exact: "exact", near: "near-duplicate", similar: "very similar", different: "different" };

const judge = (judgment) => alone(async () => {
  const { pair: name, query } = pair();
  const answer = await post("/api/judge", { pairs: [name], judgment, choice: choice(query) });
  const mark = query ? `?${query}` : "";
  if (answer.next === null) {
    window.location.assign(`/result${mark}`);
    return;
  }
  await go(`/pair/${answer.next}${mark}`);
  say(`${WORDS[judgment]} · U undoes it`);
});

const undo = () => alone(async () => {
  const answer = await post("/api/undo", {});
  if (!answer.count) {
    say("Nothing is left to undo since this review began.");
    return;
  }
  const { pair: name, query } = pair();
  const there = answer.undone[0] || name;
  await go(`/pair/${there}${query ? `?${query}` : ""}`, { push: there !== name });
  say(answer.count === 1 ? "Undone." : `${answer.count} verdicts undone.`);
});

const DOES = { previous: () => step("previous"), next: () => step("next"), skip: () => step("next"), undo };

// -- what the reviewer does ------------------------------------------------------------------------

main.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.judge) judge(button.dataset.judge);
  else if (button.dataset.do) DOES[button.dataset.do]();
  else if (button.dataset.view) show(button.dataset.view);
});
main.addEventListener("input", (event) => {
  if (event.target.id === "blend") blend();
  else if (event.target.id === "marks") toggleMarks();
});
window.addEventListener("popstate", () => alone(() => go(window.location.href, { push: false })));
window.addEventListener("resize", fit);

const once = (action) => (event) => { if (!event.repeat) action(); };
onKeys({
  1: once(() => judge("exact")),
  2: once(() => judge("near")),
  3: once(() => judge("similar")),
  4: once(() => judge("different")),
  u: once(undo),
  s: once(() => step("next")),
  ArrowLeft: () => step("previous"),
  ArrowRight: () => step("next"),
  b: once(() => show(view === "blink" ? "side" : "blink")),
  o: once(() => show(view === "overlay" ? "side" : "overlay")),
  m: once(toggleMarks),
  f: once(filters),
  Escape: () => (view === "side" ? false : show("side")),
  "?": showHelp,
});
arrived();
