// The page of a live experiment. The server renders every part, escaped; this script replaces the parts that changed, sends what
// is entered, and asks every second whether somebody else has entered something.
"use strict";

const PERIOD = 1000; // milliseconds between two questions
const MOMENT = 200; // milliseconds after which a button says that it waits
const PATIENCE = 20000; // milliseconds that an answer may take
const LONG = 600000; // and one that waits for a posterior, the first of which compiles

const main = document.getElementById("main");
const experiment = main.dataset.experiment;
const by = (id) => document.getElementById(id);
const show = (element, text) => { element.textContent = text.charAt(0).toUpperCase() + text.slice(1); };

// A token of ours for one submission: sent again, it is recognised. (randomUUID needs a secure context, which a bench may not have.)
function fresh() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}

class Unreachable extends Error {}
const bench = {}; // what changes.js needs of the experiment below

async function ask(path, options = {}, patience = PATIENCE) {
  const control = new AbortController();
  const timer = setTimeout(() => control.abort(), patience);
  try {
    const response = await fetch(path, { credentials: "same-origin", cache: "no-store", signal: control.signal, ...options });
    if (!by("offline").hidden) { by("offline").hidden = true; document.dispatchEvent(new Event("back")); }
    return response;
  } catch {
    by("offline").hidden = false;
    throw new Unreachable("No answer from the server.");
  } finally {
    clearTimeout(timer);
  }
}

// Answered at once, even where the next design takes a while: the page shows that it is being found.
async function send(path, body) {
  const headers = { "Content-Type": "application/json", Prefer: "respond-async" };
  const response = await ask(path, { method: "POST", headers, body: JSON.stringify(body) }, LONG);
  let data = {};
  try { data = await response.json(); } catch { /* a status without words is told below */ }
  if (!data.detail && !response.ok) data.detail = "The server could not do that.";
  return { ok: response.ok, status: response.status, data };
}

async function part(path, patience) {
  const response = await ask(path, {}, patience);
  if (response.status === 401) { location.reload(); return false; }
  if (response.ok) patch(await response.text());
  return response.ok;
}

// Replace the elements whose key changed. The focus stays on what has the same id; open details stay open.
function patch(html) {
  const parsed = new DOMParser().parseFromString(html, "text/html");
  for (const next of parsed.querySelectorAll("[data-key]")) {
    const old = by(next.id);
    if (!old) continue;
    if (old.dataset.key === next.dataset.key) {
      if (next.dataset.sequence) old.dataset.sequence = next.dataset.sequence;
      continue;
    }
    const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
    keepTyped(old, next);
    old.replaceWith(document.adoptNode(next));
    const again = focused && by(focused);
    if (again) again.focus({ preventScroll: true });
  }
}

// What is typed for one of several designs stays while others come and go; the design it was typed for has to be there still.
function keepTyped(old, next) {
  if (!old.querySelector("form[data-several]") || !next.querySelector("form[data-several]")) return;
  const chosen = old.querySelector("input.which:checked");
  if (chosen && !next.querySelector(`#${chosen.id}`)) return;
  for (const input of old.querySelectorAll("input")) {
    const same = next.querySelector(`#${input.id}`);
    if (!same) continue;
    if (input.type === "radio") same.checked = input.checked;
    else same.value = input.value;
  }
  const folded = next.querySelector("details");
  if (folded) folded.open = old.querySelector("details").open;
}

function fail(box, text, fields = [], field = "") {
  show(box, text);
  for (const input of fields) input.removeAttribute("aria-invalid");
  const wrong = fields.find((input) => input.dataset.field === field) || null;
  if (wrong) {
    const folded = wrong.closest("details");
    if (folded) folded.open = true;
    wrong.setAttribute("aria-invalid", "true");
    wrong.focus();
    wrong.select();
  }
}

// One action at a time per button or form: a second press is the same press. A button that waits for more than a moment says so.
const busy = new Set();
async function once(name, action, button) {
  if (busy.has(name)) return;
  busy.add(name);
  const words = button ? button.textContent : "";
  if (button) button.setAttribute("aria-busy", "true");
  const timer = setTimeout(() => { if (button) button.textContent = button.dataset.waiting || `${words.trim()} …`; }, MOMENT);
  try { await action(); } finally {
    clearTimeout(timer);
    busy.delete(name);
    if (button) { button.removeAttribute("aria-busy"); button.textContent = words; }
  }
}

// ---- the list

if (main.hasAttribute("data-list")) {
  let token = "";
  window.addEventListener("pageshow", () => { token = fresh(); });
  by("begin").addEventListener("submit", (event) => {
    event.preventDefault();
    once("begin", async () => {
      const name = by("name").value.trim();
      by("begin-error").textContent = "";
      try {
        const { ok, data } = await send("/api/experiments", { name: name || null, token });
        if (!ok) { fail(by("begin-error"), data.detail); by("name").focus(); return; }
        location.assign(`/experiments/${data.experiment}`);
      } catch (error) {
        if (!(error instanceof Unreachable)) throw error;
        fail(by("begin-error"), "No answer from the server. Try again: nothing is begun twice.");
      }
    }, event.submitter);
  });
  const look = async () => {
    try {
      if (!document.hidden) {
        const response = await ask("/version");
        if (response.status === 401) { location.reload(); return; }
        if (response.ok && (await response.text()) !== by("list").dataset.key) await part("/list");
      }
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error;
    }
    setTimeout(look, 2 * PERIOD);
  };
  setTimeout(look, 2 * PERIOD);
}

// ---- one experiment

if (experiment) {
  const api = `/api/experiments/${experiment}`;
  const page = `/experiments/${experiment}`;
  let known = Number(by("now").dataset.sequence); // the latest event that this page shows
  let drawn = -1; // and the latest whose posterior it shows
  let token = fresh();
  let refreshing = null;
  let told = ""; // what was said when the design was still being found

  const say = (text) => show(by("said"), text);
  const finding = () => by("now").dataset.finding === "yes";

  const refresh = (own) => {
    if (!refreshing) refreshing = update(own).finally(() => { refreshing = null; });
    return refreshing;
  };

  async function update(own) {
    const before = by("entry").dataset.key;
    const wasFinding = finding();
    const form = by("observe");
    const typed = form ? Array.from(form.querySelectorAll("input.y"), (input) => input.value.trim()).filter(Boolean) : [];
    await part(`${page}/now`);
    known = Number(by("now").dataset.sequence);
    if (by("entry").dataset.key !== before) {
      token = fresh();
      const kept = by("observe") && by("observe").dataset.several && typed.length && by("y-0").value.trim() === typed[0];
      if (wasFinding) {
        say(`${told} ${heading()}${finding() ? "" : "."}`.trim());
        if (!finding()) told = "";
        if (!typed.length && by("y-0") && document.activeElement === document.body) by("y-0").focus({ preventScroll: true });
      } else if (!own && !kept) {
        const lost = typed.length ? ` You had typed ${typed.join(", ")}; it was not stored.` : "";
        say(`Something was entered elsewhere. ${heading()}.${lost}`);
      }
    }
    think();
  }

  // A server that was started again knows of no posterior, and so could not say what is improbable.
  document.addEventListener("back", () => { drawn = -1; });

  // The posterior may take a while; the design is on the page by then.
  let thinking = false;
  async function think() {
    if (thinking) return;
    thinking = true;
    try {
      while (drawn !== known) {
        const goal = known;
        if (!(await part(`${page}/knowledge`, LONG))) return; // asked again by `watch`
        drawn = goal;
        document.dispatchEvent(new Event("drawn"));
      }
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error;
    } finally {
      thinking = false;
    }
  }

  function heading() {
    const values = Array.from(document.querySelectorAll("#now .design div"), (row) => row.textContent.replace(/\s+/g, " ").trim());
    return [by("now-title").textContent, ...values].join(" ").trim();
  }

  // Send, show what came of it, and put the focus where the next thing is entered.
  async function act(path, body, words, { box, fields = [], focus = "y-0", done = () => {} }) {
    if (box()) box().textContent = "";
    for (const input of fields) input.removeAttribute("aria-invalid");
    try {
      const answer = await send(api + path, body);
      if (!answer.ok) {
        if (!answer.data.improbable) {
          if (answer.status === 401) { location.reload(); return answer; }
          if (answer.status === 409) await refresh(true);
          if (box()) fail(box(), answer.data.detail, fields, answer.data.field);
        }
        return answer;
      }
      done();
      if (refreshing) await refreshing;
      await refresh(true);
      token = fresh();
      if (by(focus)) by(focus).focus({ preventScroll: false });
      told = finding() ? words(answer.data) : "";
      say(`${words(answer.data)} ${heading()}${finding() ? "" : "."}`);
      return answer;
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error;
      if (box()) fail(box(), "No answer from the server, so this may or may not be stored. Send it again when the server is back: it is never stored twice.");
      return { ok: false, data: {} };
    }
  }

  // What is improbable is asked back; "keep" sends it again without the question.
  async function surely(path, body, told, where) {
    const answer = await act(path, { ...body, ask: true }, told, where);
    if (!answer.data.improbable) return answer;
    show(by("ask-text"), answer.data.detail);
    const back = document.activeElement;
    const choice = await new Promise((resolve) => {
      const dialog = by("ask");
      dialog.returnValue = "again";
      dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
      dialog.showModal();
    });
    if (choice === "keep") return act(path, { ...body, ask: false }, told, where);
    const field = where.fields[0] || back;
    field.focus();
    if (field.select) field.select();
    return answer;
  }

  async function store(form) {
    const ys = Array.from(form.querySelectorAll("input.y"));
    const xis = Array.from(form.querySelectorAll("input.xi"));
    const other = xis.some((input) => input.value.trim() !== "");
    const measured = meant(form);
    if (!measured) return;
    const body = {
      y: ys.map((input) => input.value),
      xi: other ? xis.map((input, i) => (input.value.trim() === "" ? measured.design[i] : input.value)) : null,
      proposal: measured.proposal,
      token,
    };
    const words = (data) => `Stored: step ${data.stored.step}.`;
    const done = () => { for (const input of form.querySelectorAll("input")) { if (input.type === "radio") input.checked = false; else input.value = ""; } };
    await surely("/observe", body, words, { box: () => by("entry-error"), fields: [...ys, ...xis], done });
  }

  // The design that an entry is about. Of several, one has to be chosen.
  function meant(form) {
    if (!form.dataset.several) {
      const design = Array.from(form.querySelectorAll("input.xi"), (input) => Number(input.dataset.proposed));
      return { proposal: Number(form.dataset.proposal), design };
    }
    const chosen = form.querySelector("input.which:checked");
    if (chosen) return { proposal: Number(chosen.value), design: JSON.parse(chosen.dataset.design) };
    fail(by("entry-error"), "Several designs wait for an outcome. Say which of them was measured.");
    form.querySelector("input.which").focus();
    return null;
  }

  async function skip(button) {
    const measured = meant(by("observe"));
    if (!measured) return;
    const body = button.dataset.step ? which(button) : { proposal: measured.proposal };
    await act("/skip", body, (data) => `Skipped: step ${data.stored.step}.`, { box: entryError });
  }

  function openCorrection(button) {
    const y = JSON.parse(button.dataset.y);
    const xi = JSON.parse(button.dataset.xi);
    by("correct-step").textContent = button.dataset.step;
    by("correct-error").textContent = "";
    y.forEach((value, i) => { const input = by(`correct-y-${i}`); input.value = String(value); input.removeAttribute("aria-invalid"); });
    xi.forEach((value, i) => { const input = by(`correct-xi-${i}`); input.value = String(value); input.dataset.stored = String(value); });
    by("correct").showModal();
    by("correct-y-0").focus();
    by("correct-y-0").select();
  }

  async function correct(form) {
    const ys = Array.from(form.querySelectorAll("input.y"));
    const xis = Array.from(form.querySelectorAll("input.xi"));
    const changed = xis.some((input) => input.value.trim() !== input.dataset.stored);
    const step = Number(by("correct-step").textContent);
    const body = { step, y: ys.map((input) => input.value), xi: changed ? xis.map((input) => input.value) : null };
    const where = { box: () => by("correct-error"), fields: [...ys, ...xis], focus: "none" };
    const answer = await surely("/correct", body, () => `Corrected: step ${step}.`, where);
    if (!answer.ok) return;
    by("correct").close();
    if (by(`correct-${step}`)) by(`correct-${step}`).focus();
  }

  const entryError = () => by("entry-error");
  const which = (button) => ({ step: Number(button.dataset.step) });

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.id === "observe") {
      event.preventDefault();
      once("observe", () => store(form), by("store"));
    } else if (form.id === "correct-form") {
      event.preventDefault();
      once("correct", () => correct(form), event.submitter);
    } else if (form.id === "note-form") {
      event.preventDefault();
      once("note", async () => {
        const where = { box: () => by("note-error"), focus: "note" };
        const answer = await act("/note", { text: by("note").value }, () => "Noted.", where);
        if (answer.ok) by("note").value = "";
      }, event.submitter);
    }
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.classList.contains("answer")) {
      by(button.dataset.for).value = button.dataset.value;
      if (button.dataset.store) button.form.requestSubmit();
    } else if (button.id === "skip") {
      once("observe", () => skip(button), button);
    } else if (button.classList.contains("undo")) {
      once("undo", () => act("/undo", which(button), () => `Undone: step ${button.dataset.step}.`, { box: entryError }), button);
    } else if (button.classList.contains("correct")) {
      openCorrection(button);
    } else if (button.id === "correct-cancel") {
      by("correct").close();
    } else if (button.id === "finish" || button.id === "reopen") {
      const ends = button.id === "finish";
      const body = { sequence: known };
      once("end", () => act(ends ? "/finish" : "/undo", body, () => (ends ? "Finished." : "Open again."), { box: entryError, focus: ends ? "reopen" : "y-0" }), button);
    }
  });

  Object.assign(bench, { act, api, page, say, sequence: () => known });

  const watch = async () => {
    try {
      if (!document.hidden) {
        const response = await ask(`${api}/version`);
        if (response.status === 401) { location.reload(); return; }
        if (response.ok) {
          const { sequence } = await response.json();
          const waiting = Array.from(busy).some((name) => name !== "refine-form"); // which takes long
          if ((sequence > known || finding()) && !waiting) await refresh(false);
          else if (drawn !== known) think();
        }
      }
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error;
    }
    setTimeout(watch, finding() ? PERIOD / 4 : PERIOD);
  };

  if (by("y-0")) by("y-0").focus({ preventScroll: true });
  think();
  setTimeout(watch, PERIOD);
}
