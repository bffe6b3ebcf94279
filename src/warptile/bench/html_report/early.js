// Before anything is drawn: views are shown one at a time, and in the colors that were chosen last.
document.documentElement.classList.add("js");
try {
  const kept = localStorage.getItem("warptile-theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
} catch { /* storage may be off for local files */ }
