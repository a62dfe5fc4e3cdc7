// What the pages share: speaking to the server, telling the reviewer, the help, single keys.

/** Ask the server; throw an Error in plain words where it does not answer. */
export async function ask(address, options) {
  try {
    return await fetch(address, options);
  } catch {
    throw new Error("The server does not answer. Is visleak review still running?");
  }
}

/** Send a value; return the answer, or throw an Error with the server's words. */
export async function post(path, value) {
  const response = await ask(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Visleak": "review" },
    body: JSON.stringify(value),
  });
  const text = await response.text();
  let answer = {};
  try {
    answer = JSON.parse(text);
  } catch {
    // a refusal in plain words
  }
  if (!response.ok) throw new Error(answer.error || text.trim().slice(0, 200) || `error ${response.status}`);
  return answer;
}

let hiding = 0;

/** Say something at the foot of the page, to screen readers too. */
export function say(text, bad = false) {
  const status = document.getElementById("status");
  status.textContent = text;
  status.classList.toggle("bad", bad);
  status.classList.add("shown");
  clearTimeout(hiding);
  hiding = setTimeout(() => status.classList.remove("shown"), bad ? 8000 : 1600);
}

/** Return what does one thing at a time: what is asked for meanwhile is refused aloud, not queued. */
export function oneAtATime() {
  let busy = false;
  return async (work) => {
    if (busy) return say("Not counted: the page was still changing. Press again.", true);
    busy = true;
    try {
      await work();
    } catch (error) {
      say(error.message, true);
    } finally {
      busy = false;
    }
  };
}

/** The filters of an address, as the server wants them back. */
export function choice(query) {
  return Object.fromEntries(new URLSearchParams(query));
}

const KEYS = "visleak-review-keys";

function keysOn() {
  try {
    return localStorage.getItem(KEYS) !== "off";
  } catch {
    return true;
  }
}

/** Whether a key press is meant for a field, a menu or the browser. */
function elsewhere(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return true;
  if (document.querySelector("dialog[open]")) return true;
  const at = event.target;
  if (at instanceof HTMLInputElement && at.type === "range") return event.key.startsWith("Arrow");
  if (at instanceof HTMLInputElement && at.type === "checkbox") return event.key === " ";
  return at instanceof HTMLInputElement || at instanceof HTMLSelectElement || at instanceof HTMLTextAreaElement;
}

/** Call the action of a key. A key that is held down counts once. */
export function onKeys(actions) {
  document.addEventListener("keydown", (event) => {
    if (elsewhere(event)) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const action = actions[key];
    if (!action) return;
    if (event.key.length === 1 && event.key !== "?" && !keysOn()) return say("Single-key shortcuts are off; press ? to switch them on.", true);
    if (action(event) !== false) event.preventDefault();
  });
}

/** The help, and the switch of the single keys in it. */
export function help() {
  const dialog = document.getElementById("help");
  const on = document.getElementById("keys-on");
  on.checked = keysOn();
  on.addEventListener("change", () => {
    try {
      localStorage.setItem(KEYS, on.checked ? "on" : "off");
    } catch {
      say("This browser does not remember the switch.", true);
    }
  });
  document.getElementById("help-button").addEventListener("click", () => dialog.showModal());
  return () => dialog.showModal();
}

// Escape closes the filters, wherever the focus is, before it does anything else.
document.addEventListener("keydown", (event) => {
  const box = document.getElementById("filters");
  if (event.key !== "Escape" || !box?.open || document.querySelector("dialog[open]")) return;
  box.open = false;
  box.querySelector("summary").focus();
  event.preventDefault();
  event.stopImmediatePropagation();
});

/** Open or close the filters. */
export function filters() {
  const box = document.getElementById("filters");
  box.open = !box.open;
  if (box.open) box.querySelector("select, input").focus();
}
