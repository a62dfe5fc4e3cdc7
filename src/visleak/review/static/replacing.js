// Replacements: approve, reject, ask for another candidate, move. The server decides what may be.
import { help, oneAtATime, onKeys, post, say } from "./common.js";

const main = document.getElementById("main");
const showHelp = help();
// what is pressed while the page is under way belongs to no duplicate
const alone = oneAtATime();

const here = () => document.getElementById("place").dataset;

/** Put another page in place of this one, without losing the focus. */
async function go(address, { push = true } = {}) {
  main.setAttribute("aria-busy", "true");
  try {
    const response = await fetch(address);
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    if (!page.getElementById("place")) {
      window.location.assign(address);
      return;
    }
    const focused = document.activeElement;
    const button = focused?.dataset?.do;
    main.replaceChildren(...document.adoptNode(page.getElementById("main")).childNodes);
    document.title = page.title;
    if (push) history.pushState(null, "", response.url);
    const again = button && document.querySelector(`[data-do="${button}"]`);
    if (again && !again.disabled) again.focus({ preventScroll: true });
    else if (focused && !document.contains(focused)) main.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  } finally {
    main.removeAttribute("aria-busy");
  }
}

const enabled = (name) => document.querySelector(`[data-do="${name}"]:not(:disabled)`) !== null;

const WORDS = { approve: "Approved", reject: "Rejected", withdraw: "Withdrawn" };

const decide = (name) => alone(async () => {
  if (!enabled(name)) {
    say(name === "withdraw" ? "Nothing is approved here." : "There is no candidate to decide about.");
    return;
  }
  const { place, candidate, class: chosen } = here();
  let answer;
  try {
    answer = await post("/api/replacing", { do: name, place: Number(place), candidate, class: chosen });
  } catch (error) {
    // somebody else was faster: show how it stands now
    await go(window.location.href, { push: false });
    throw error;
  }
  await go(answer.next);
  say(`${WORDS[name]} · ${answer.approved} of ${answer.total} replaced · U undoes it`);
});

const undo = () => alone(async () => {
  const answer = await post("/api/replacing", { do: "undo", class: here().class });
  if (answer.decision === null) {
    say("There is nothing to undo.");
    return;
  }
  await go(answer.next || window.location.href);
  say(`Undone: ${answer.pool} is ${answer.decision} no more.`);
});

const other = () => alone(async () => {
  if (!enabled("other")) {
    say("There is no other candidate.");
    return;
  }
  const { candidate, class: chosen } = here();
  const query = new URLSearchParams(chosen ? { class: chosen, after: candidate } : { after: candidate });
  await go(`${window.location.pathname}?${query}`);
});

const step = (where) => alone(async () => {
  const address = here()[where];
  if (address) await go(address);
  else say(where === "next" ? "This is the last duplicate." : "This is the first duplicate.");
});

const DOES = {
  approve: () => decide("approve"),
  reject: () => decide("reject"),
  withdraw: () => decide("withdraw"),
  other,
  undo,
  previous: () => step("previous"),
  next: () => step("next"),
};

main.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.do) DOES[button.dataset.do]();
});
window.addEventListener("popstate", () => alone(() => go(window.location.href, { push: false })));

const once = (action) => (event) => { if (!event.repeat) action(); };
onKeys({
  a: once(DOES.approve),
  r: once(DOES.reject),
  n: once(other),
  u: once(undo),
  ArrowLeft: DOES.previous,
  ArrowRight: DOES.next,
  "?": showHelp,
});
