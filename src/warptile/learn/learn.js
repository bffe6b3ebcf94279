// Predictions: the answer, and what follows it on its screen, are shown when a number has been given. Without this script
// all of it is there, the answers folded.
"use strict";
(() => {
  const holds = (guess, value, within) =>
    within === 1 ? guess === value : guess > 0 && guess / value <= within && value / guess <= within;

  document.querySelectorAll(".prediction").forEach((box) => {
    const details = box.querySelector("details");
    const value = Number(box.dataset.value);
    const within = Number(box.dataset.within);
    const rest = [];
    for (let next = box.nextElementSibling; next; next = next.nextElementSibling) rest.push(next);
    const form = document.createElement("form");
    const label = document.createElement("label");
    const input = document.createElement("input");
    const button = document.createElement("button");
    const skip = document.createElement("button");
    const verdict = document.createElement("span");
    input.type = "text";
    input.inputMode = "decimal";
    input.required = true;
    label.append("Your number ", input);
    button.textContent = "This is my prediction";
    skip.type = "button";
    skip.textContent = "Show me";
    verdict.className = "verdict";
    verdict.setAttribute("aria-live", "polite");
    form.append(label, button, skip, verdict);
    details.before(form);
    details.hidden = true;
    rest.forEach((each) => each.classList.add("later"));
    const reveal = () => {
      input.readOnly = true;
      button.hidden = skip.hidden = true;
      details.hidden = false;
      details.open = true;
      details.querySelector("summary").textContent = "The answer";
      for (const each of rest) {
        each.classList.remove("later");
        if (each.matches(".prediction:has(details[hidden])")) break;  // what is behind it waits for its own answer
      }
    };
    skip.addEventListener("click", reveal);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const guess = Number(input.value.replace(",", "."));
      if (input.value.trim() === "" || Number.isNaN(guess)) {
        verdict.textContent = "That is no number.";
        return;
      }
      verdict.textContent = holds(guess, value, within) ? "Right." : "Not quite.";
      reveal();
    });
  });
})();
