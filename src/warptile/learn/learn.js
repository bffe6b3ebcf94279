// Predictions: the answer opens when a number has been given. Without this script a reader opens it themselves.
"use strict";
(() => {
  const holds = (guess, value, within) =>
    within === 1 ? guess === value : guess > 0 && guess / value <= within && value / guess <= within;

  document.querySelectorAll(".prediction").forEach((box) => {
    const details = box.querySelector("details");
    const value = Number(box.dataset.value);
    const within = Number(box.dataset.within);
    const form = document.createElement("form");
    const label = document.createElement("label");
    const input = document.createElement("input");
    const button = document.createElement("button");
    const verdict = document.createElement("span");
    input.type = "text";
    input.inputMode = "decimal";
    input.required = true;
    label.append("Your number ", input);
    button.textContent = "This is my prediction";
    verdict.className = "verdict";
    verdict.setAttribute("aria-live", "polite");
    form.append(label, button, verdict);
    details.before(form);
    details.hidden = true;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const guess = Number(input.value.replace(",", "."));
      if (input.value.trim() === "" || Number.isNaN(guess)) {
        verdict.textContent = "That is no number.";
        return;
      }
      verdict.textContent = holds(guess, value, within) ? "Right." : "Not quite.";
      input.readOnly = true;
      button.hidden = true;
      details.hidden = false;
      details.open = true;
    });
  });
})();
