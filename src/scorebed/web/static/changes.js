// What if, and changed circumstances: forms beside the experiment, which live.js keeps up to date. Sent through its `act`, so that
// what comes of them is shown in one way.
"use strict";

if (experiment) {
  const fields = (form, kind) => Array.from(form.querySelectorAll(`input.${kind}`));
  const values = (inputs) => inputs.map((input) => input.value);

  // ---- what if

  const outlook = async () => {
    const box = by("outlook");
    if (!by("what-if").open || box.dataset.key === String(bench.sequence())) return;
    try { await part(`${bench.page}/outlook`, LONG); } catch (error) { if (!(error instanceof Unreachable)) throw error; }
  };
  by("what-if").addEventListener("toggle", outlook);
  document.addEventListener("drawn", outlook);

  async function foresee(form) {
    const ys = fields(form, "y");
    for (const input of ys) input.removeAttribute("aria-invalid");
    by("what-if-error").textContent = by("what-if-said").textContent = "";
    const names = Array.from(document.querySelectorAll("#now .design dt"), (name) => name.textContent);
    const units = Array.from(document.querySelectorAll("#now .design dd"), (row) => (row.querySelector(".unit") || { textContent: "" }).textContent);
    const { ok, data } = await send(`${bench.api}/foresee`, { y: values(ys) });
    if (!ok) { fail(by("what-if-error"), data.detail, ys, data.field); return; }
    const shown = data.design.map((x, i) => `${names[i] || ""} ${Number(x.toPrecision(6))} ${units[i] || ""}`.trim().replace("-", "−"));
    by("what-if-said").textContent = `Then the next design would be ${shown.join(", ")}.`;
  }

  // ---- other circumstances

  const fill = () => {
    const now = by("circumstances").dataset;
    by("steps").value = now.horizon;
    const limits = now.limits ? JSON.parse(now.limits) : { low: [], high: [] };
    for (const side of ["low", "high"]) {
      fields(by("limit-form"), side).forEach((input, i) => {
        const value = limits[side][i];
        input.value = value === null || value === undefined ? "" : String(value);
      });
    }
  };
  for (const name of ["change-limits", "change-plan"]) {
    by(name).addEventListener("toggle", (event) => { if (event.target.open) fill(); });
  }

  const limit = (form) => {
    const low = fields(form, "low");
    const high = fields(form, "high");
    const where = { box: () => by("limit-error"), fields: [...low, ...high], focus: "none" };
    return bench.act("/limit", { low: values(low), high: values(high), sequence: bench.sequence() }, () => "The limits are set.", where);
  };

  // A whole number, or a sentence that says so.
  function whole(input, box, most) {
    const number = /^\d{1,9}$/.test(input.value.trim()) ? Number(input.value) : 0;
    if (number >= 1 && number <= most) return number;
    fail(box, `Expected a whole number from 1 to ${most}.`, [input], input.dataset.field);
    return null;
  }

  const plan = async () => {
    const steps = whole(by("steps"), by("plan-error"), Number(by("plan-form").dataset.most));
    if (steps === null) return;
    await bench.act("/plan", { steps, sequence: bench.sequence() }, () => `${steps} steps in all.`, { box: () => by("plan-error"), focus: "none" });
  };

  const refine = async () => {
    const seconds = whole(by("seconds"), by("refine-error"), Number(by("refine-form").dataset.most));
    if (seconds === null) return;
    by("refine-said").textContent = `Refining, for about ${seconds} seconds.`;
    const where = { box: () => by("refine-error"), focus: "none" };
    const answer = await bench.act("/refine", { seconds }, (data) => data.sentence, where);
    by("refine-said").textContent = answer.ok ? answer.data.sentence : "";
  };

  const submitted = { "what-if-form": foresee, "limit-form": limit, "plan-form": plan, "refine-form": refine };
  document.addEventListener("submit", (event) => {
    const action = submitted[event.target.id];
    if (!action) return;
    event.preventDefault();
    once(event.target.id, async () => {
      try { await action(event.target); } catch (error) {
        if (!(error instanceof Unreachable)) throw error;
        fail(by("what-if-error"), "No answer from the server. Try again when it is back.");
      }
    }, event.submitter);
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("#undo-change");
    if (button) once("undo", () => bench.act("/undo", { sequence: bench.sequence() }, () => "The last change is undone.", { box: () => by("entry-error"), focus: "none" }), button);
  });
}
