// Many pairs: the focus moves with the arrows, 1 to 4 judge where it is.
import { choice, filters, help, onKeys, oneAtATime, post, say } from "./common.js";

const showHelp = help();
const about = document.getElementById("sheet").dataset;
const cards = Array.from(document.querySelectorAll(".card"));
const names = cards.map((card) => card.dataset.pair);
// what is pressed while a page is under way belongs to no pair
const alone = oneAtATime();

/** The card that keys are about. */
const current = () => cards.find((card) => card.tabIndex === 0);

function focus(card) {
  if (!card) return;
  for (const each of cards) each.tabIndex = each === card ? 0 : -1;
  card.focus({ preventScroll: true });
  card.scrollIntoView({ block: "nearest" });
}

/** How many cards stand side by side. */
function columns() {
  const top = cards[0]?.getBoundingClientRect().top;
  const count = cards.findIndex((card) => card.getBoundingClientRect().top > top + 4);
  return count < 0 ? cards.length : count;
}

function move(steps) {
  const at = cards.indexOf(current()) + steps;
  if (at >= 0 && at < cards.length) focus(cards[at]);
}

/** Show what the server says, also of verdicts that another window gave. */
function mark(answer) {
  for (const card of cards) {
    const mine = answer.marks[card.dataset.pair] || "";
    card.dataset.mine = mine;
    for (const button of card.querySelectorAll("[data-judge]")) button.setAttribute("aria-pressed", String(button.dataset.judge === mine));
  }
  const { judged, total, run } = answer.progress;
  document.getElementById("judged").textContent = judged.toLocaleString("en");
  document.querySelector("progress").value = judged;
  document.querySelector("progress").max = Math.max(1, total);
  const row = document.getElementById("run");
  if (row) row.textContent = run;
  const likely = document.getElementById("likely");
  if (likely) likely.textContent = answer.likely.toLocaleString("en");
  count();
}

const open = () => cards.filter((card) => !card.dataset.mine);

// a pair that was never on screen is not judged with the others
const seen = new Set();
const rest = () => open().filter((card) => seen.has(card));
const grade = document.getElementById("rest-grade");

function count() {
  const [all, ready] = [open().length, rest().length];
  document.getElementById("rest").disabled = ready === 0 || !grade.value;
  document.getElementById("left").textContent = !all ? "" : ready < all ? `(${ready} of ${all} seen)` : `(${all})`;
}

// what lies under the bar at the foot is not on screen
const foot = document.querySelector(".verdict-bar").offsetHeight;
const watch = new IntersectionObserver((changes) => {
  for (const change of changes) if (change.isIntersecting) seen.add(change.target);
  count();
}, { threshold: 0.6, rootMargin: `0px 0px -${foot}px 0px` });
for (const card of cards) watch.observe(card);
grade.addEventListener("change", () => { asked = ""; count(); });

// the grade that a first press asked to confirm
let asked = "";

/** Ask for a second press where a judgment of many pairs contradicts their automatic grades. */
function agreed(pairs, judgment) {
  const leaks = (name) => name === "exact" || name === "near";
  const against = pairs.filter((card) => card.dataset.automatic && leaks(card.dataset.automatic) !== leaks(judgment));
  if (!against.length || asked === judgment) return true;
  asked = judgment;
  const words = leaks(judgment) ? "neither near nor exact" : "near or exact";
  say(`${against.length} of these ${pairs.length} pairs are ${words} by automatic grade. Press again to mark all of them as ${judgment}.`, true);
  return false;
}

const send = (pairs, judgment, open = false) =>
  post("/api/judge", { pairs, judgment, open, choice: choice(about.query), shown: names });

const judge = (card, judgment, onward) => alone(async () => {
  mark(await send([card.dataset.pair], judgment));
  if (onward) move(1);
  say(`${judgment} · U undoes it`);
});

const undo = () => alone(async () => {
  const answer = await post("/api/undo", { choice: choice(about.query), shown: names });
  mark(answer);
  const first = cards.find((card) => answer.undone.includes(card.dataset.pair));
  if (first) focus(first);
  if (!answer.count) say("Nothing is left to undo since this review began.");
  else if (!first) say(`Undone: ${answer.count === 1 ? "a verdict" : `${answer.count} verdicts`} outside this sheet.`);
  else say(answer.count === 1 ? "Undone." : `${answer.count} verdicts undone.`);
});

document.getElementById("rest").addEventListener("click", () => alone(async () => {
  const [pairs, judgment] = [rest(), grade.value];
  if (!pairs.length || !judgment || !agreed(pairs, judgment)) return;
  const answer = await send(pairs.map((card) => card.dataset.pair), judgment, true);
  mark(answer);
  grade.value = asked = "";
  count();
  say(`${answer.judged} judged ${judgment} · U undoes all of them`);
}));

document.getElementById("main").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const card = button.closest(".card");
  if (card && button.dataset.judge) judge(card, button.dataset.judge, false);
  else if (button.dataset.do === "undo") undo();
});
document.getElementById("cards").addEventListener("focusin", (event) => {
  const card = event.target.closest(".card");
  if (card) for (const each of cards) each.tabIndex = each === card ? 0 : -1;
});

const once = (action) => (event) => { if (!event.repeat) action(); };
const here = (judgment) => once(() => current() && judge(current(), judgment, true));
const leave = (address) => { if (address) window.location.assign(address); };
onKeys({
  1: here("exact"),
  2: here("near"),
  3: here("similar"),
  4: here("different"),
  u: once(undo),
  ArrowLeft: () => move(-1),
  ArrowRight: () => move(1),
  ArrowUp: () => move(-columns()),
  ArrowDown: () => move(columns()),
  n: once(() => leave(about.next)),
  p: once(() => leave(about.previous)),
  f: once(filters),
  Enter: (event) => (event.target.classList.contains("card") ? leave(event.target.querySelector("a").href) : false),
  "?": showHelp,
});
count();
if (cards.length) focus(open()[0] || cards[0]);
