// Interactions of warptile's figures. Without this script every figure is whole: it only adds marking and stepping.
"use strict";
(() => {
  // --- grids: one cell of a table is reached by Tab, the others by arrow keys ---

  const cellsOf = (table) => [...table.tBodies[0].rows].map((row) => [...row.cells].filter((cell) => cell.tagName === "TD"));

  const makeGrid = (table, label) => {
    table.setAttribute("role", "grid");
    table.setAttribute("aria-label", label);
    cellsOf(table).forEach((row, i) => row.forEach((cell, j) => { cell.tabIndex = i || j ? -1 : 0; }));
  };

  const focusCell = (table, cell) => {
    table.querySelectorAll("td[tabindex='0']").forEach((other) => { other.tabIndex = -1; });
    cell.tabIndex = 0;
    cell.focus();
  };

  const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

  const moved = (table, cell, key) => {
    const rows = cellsOf(table);
    const i = rows.findIndex((row) => row.includes(cell));
    const j = rows[i].indexOf(cell);
    if (key === "Home") return rows[i][0];
    if (key === "End") return rows[i].at(-1);
    const [down, right] = STEPS[key] || [0, 0];
    return rows[i + down]?.[j + right];
  };

  // --- fragments: an element of the matrix and its register in the table of lanes mark each other ---

  const enhanceFragment = (picture) => {
    const figure = picture.closest("figure");
    const matrix = picture.querySelector("table");
    const lanes = figure.querySelector(".wt-data table");
    const readout = picture.querySelector(".wt-readout");
    const caption = figure.querySelector("figcaption").textContent.trim();
    const registers = [...lanes.tHead.rows[0].cells].slice(1).map((cell) => cell.textContent.trim());
    const rows = cellsOf(lanes);
    const columns = [...matrix.tHead.rows[0].cells].slice(1).map((cell) => cell.textContent.trim());
    let pinned = null;

    // A cell of the matrix says "T5" and below it "a1"; a cell of the other table is in the row of its lane.
    const held = new Map();
    for (const cell of matrix.querySelectorAll("tbody td")) {
      const [, lane, register] = /^T(\d+)(.+)$/.exec(cell.textContent.trim());
      held.set(cell, [Number(lane), registers.indexOf(register)]);
    }
    const registerOf = (cell) => held.get(cell) ?? [cell.parentElement.sectionRowIndex, cell.cellIndex - 1];

    const show = (at) => {
      figure.querySelectorAll(".wt-on, .wt-lane").forEach((marked) => marked.classList.remove("wt-on", "wt-lane"));
      if (!at) {
        readout.textContent = "Choose an element: its lane and register are marked here and in the table of lanes.";
        return;
      }
      const [lane, register] = at;
      const places = [];
      for (const [cell, [ofLane, ofRegister]] of held) {
        if (ofLane !== lane) continue;
        cell.classList.add("wt-lane");
        if (ofRegister === register) {
          cell.classList.add("wt-on");
          const down = cell.parentElement.cells[0].textContent.trim();
          places.push(`${picture.dataset.down} ${down}, ${picture.dataset.across} ${columns[cell.cellIndex - 1]}`);
        }
      }
      const own = rows[lane]?.[register];
      if (own) {
        own.classList.add("wt-on");
        own.parentElement.classList.add("wt-lane");
      }
      readout.textContent = `Lane ${lane}, register ${registers[register]}: ${places.join("; ") || "nothing"}`;
    };

    const pin = (cell) => {
      const at = registerOf(cell);
      pinned = pinned && String(pinned) === String(at) ? null : at;
      show(pinned);
    };

    for (const [table, label] of [[matrix, caption], [lanes, `${caption}: registers by lane`]]) {
      makeGrid(table, label);
      table.addEventListener("click", (event) => {
        const cell = event.target.closest("tbody td");
        if (cell) { focusCell(table, cell); pin(cell); }
      });
      table.addEventListener("pointerover", (event) => {
        const cell = event.target.closest("tbody td");
        if (cell && !pinned) show(registerOf(cell));
      });
      table.addEventListener("pointerleave", () => { if (!pinned) show(null); });
      table.addEventListener("keydown", (event) => {
        const cell = event.target.closest("tbody td");
        if (!cell) return;
        if (event.key === "Enter" || event.key === " ") pin(cell);
        else if (event.key === "Escape") { pinned = null; show(null); }
        else {
          const next = moved(table, cell, event.key);
          if (!next) return;
          focusCell(table, next);
          if (!pinned) show(registerOf(next));
        }
        event.preventDefault();
      });
    }
    show(null);
    if (matchMedia("(max-width: 60rem)").matches) figure.querySelector(".wt-data").open = false;
  };

  // --- bank maps: the same phase in every map ---

  const enhanceBanks = (picture) => {
    const phases = Number(picture.dataset.phases);
    const output = picture.querySelector("output");
    const words = [...picture.closest("figure").querySelectorAll(".wt-data tbody tr")].map((row) => row.cells[0].textContent.trim());
    let phase = 0;
    const show = () => {
      output.textContent = words[phase];
      for (const map of picture.querySelectorAll(".wt-map")) {
        const groups = new Array(8).fill(0);
        for (const cell of map.querySelectorAll("td[data-p]")) {
          const on = Number(cell.dataset.p) === phase;
          cell.classList.toggle("wt-on", on);
          if (on) groups[cell.cellIndex - 1] += 1;
        }
        const count = Number(map.dataset.wavefronts.split(",")[phase]);
        map.querySelector(".wt-wavefronts").textContent = `${count} wavefront${count === 1 ? "" : "s"}`;
        [...map.querySelectorAll("tfoot td")].forEach((cell, group) => { cell.textContent = groups[group] || ""; });
      }
    };
    const step = (by) => { phase = (phase + by + phases) % phases; show(); };
    picture.addEventListener("click", (event) => {
      const button = event.target.closest("button[data-step]");
      if (button) { step(Number(button.dataset.step)); return; }
      const cell = event.target.closest("td[data-p]");
      if (cell) { phase = Number(cell.dataset.p); show(); }
    });
    picture.addEventListener("keydown", (event) => {
      if (!event.target.matches("button[data-step]")) return;
      if (event.key === "ArrowLeft") step(-1);
      else if (event.key === "ArrowRight") step(1);
      else return;
      event.preventDefault();
    });
  };

  // --- timelines: what the bar under the pointer or chosen by arrow keys is, one time through all rows, zoom ---

  const barsOf = (track) => [...track.querySelectorAll("path")].flatMap((path) => {
    const texts = path.dataset.t.split(" ");
    let x = 0;
    let y = 0;
    return [...path.getAttribute("d").matchAll(/m(-?\d+) (-?\d+)h(\d+)/g)].map(([, right, down, length], i) => {
      const start = x + Number(right);
      y += Number(down);
      x = start + Number(length);
      return { start, end: x, y, text: Number(texts[i]) };
    });
  }).sort((one, other) => one.start - other.start || one.y - other.y);

  const enhanceTimeline = (picture) => {
    const clocks = Number(picture.dataset.clocks);
    const texts = picture.dataset.texts.split("\n").map((text) => text.split("\t"));
    const frame = picture.querySelector(".wt-window");
    const plots = picture.querySelector(".wt-plots");
    const axis = picture.querySelector(".wt-clocks");
    const readout = picture.querySelector(".wt-readout");
    const tracks = [...picture.querySelectorAll(".wt-track")];
    const bars = tracks.map(() => null);
    const inTrack = (row) => (bars[row] ??= barsOf(tracks[row]));
    const hint = "Point at a bar, or press Tab and use the arrow keys; Home and End go to a row's ends.";
    const marks = document.createElement("i");
    const now = document.createElement("div");
    now.className = "wt-now";
    let chosen = null;

    const count = (value) => value.toLocaleString("en-US");

    const say = (row, bar) => {
      const [words, line] = texts[bar.text];
      return `${tracks[row].dataset.of}: ${words}, clocks ${count(bar.start)} to ${count(bar.end)} `
        + `(${count(bar.end - bar.start)})${line ? `, ${line}` : ""}`;
    };

    const show = (row, bar) => {
      if (!bar) {
        marks.remove();
        now.remove();
        readout.textContent = hint;
        return;
      }
      marks.style.left = `${(100 * bar.start) / clocks}%`;
      marks.style.width = `${(100 * (bar.end - bar.start)) / clocks}%`;
      tracks[row].append(marks);
      now.style.left = `${(100 * bar.start) / clocks}%`;
      plots.append(now);
      readout.textContent = say(row, bar);
    };

    const reveal = (bar) => {
      const left = (bar.start / clocks) * plots.clientWidth;
      const right = (bar.end / clocks) * plots.clientWidth;
      if (left < frame.scrollLeft || right > frame.scrollLeft + frame.clientWidth) {
        frame.scrollLeft = (left + Math.min(right, left + frame.clientWidth)) / 2 - frame.clientWidth / 2;
      }
    };

    const at = (row, time, y) => {
      const found = inTrack(row).filter((bar) => bar.start <= time && time <= bar.end);
      return found.reduce((best, bar) => (best && Math.abs(best.y - y) <= Math.abs(bar.y - y) ? best : bar), undefined);
    };

    const nearest = (row, time) => inTrack(row).reduce((best, bar) => {
      const away = Math.max(bar.start - time, time - bar.end, 0);
      return best && best.away <= away ? best : { away, bar };
    }, null)?.bar;

    const choose = (row, bar) => {
      chosen = { row, bar };
      show(row, bar);
      reveal(bar);
    };

    const beside = (key) => {
      const { row, bar } = chosen;
      const own = inTrack(row);
      if (key === "Home") return [row, own[0]];
      if (key === "End") return [row, own.at(-1)];
      if (key === "ArrowLeft" || key === "ArrowRight") {
        return [row, own[own.indexOf(bar) + (key === "ArrowLeft" ? -1 : 1)]];
      }
      const down = { ArrowUp: -1, ArrowDown: 1 }[key];
      for (let other = row + down; down && tracks[other]; other += down) {
        if (inTrack(other).length) return [other, nearest(other, bar.start)];
      }
      return [row, undefined];
    };

    const setZoom = (to) => {
      const middle = (frame.scrollLeft + frame.clientWidth / 2) / plots.clientWidth;
      const time = chosen ? chosen.bar.start / clocks : middle;
      plots.style.setProperty("--wt-zoom", to);
      picture.querySelectorAll("[data-zoom]").forEach((button) => {
        button.setAttribute("aria-pressed", String(Number(button.dataset.zoom) === to));
      });
      drawTicks();
      frame.scrollLeft = time * plots.clientWidth - frame.clientWidth / 2;
    };

    // Round figures that are at least TICK_PX apart, as many as the zoom has room for.
    const TICK_PX = 80;
    const drawTicks = () => {
      if (!plots.clientWidth) return;
      const least = (clocks * TICK_PX) / plots.clientWidth;
      const power = 10 ** Math.floor(Math.log10(least));
      const step = Math.max(1, power * [1, 2, 5, 10].find((each) => each * power >= least));
      axis.replaceChildren(...Array.from({ length: Math.floor(clocks / step) + 1 }, (_, i) => {
        const tick = document.createElement("i");
        tick.style.left = `${(100 * i * step) / clocks}%`;
        const label = document.createElement("span");
        label.textContent = count(i * step);
        tick.classList.toggle("wt-last", (1 - (i * step) / clocks) * plots.clientWidth < TICK_PX / 2);
        tick.append(label);
        return tick;
      }));
    };

    frame.setAttribute("role", "application");
    frame.setAttribute("aria-roledescription", "timeline");
    picture.querySelector(".wt-steps").hidden = false;
    picture.querySelector(".wt-steps").addEventListener("click", (event) => {
      const button = event.target.closest("[data-zoom]");
      if (button) setZoom(Number(button.dataset.zoom));
    });
    plots.addEventListener("pointermove", (event) => {
      const track = event.target.closest(".wt-track");
      if (!track) return;
      const box = track.getBoundingClientRect();
      const row = tracks.indexOf(track);
      const bar = at(row, ((event.clientX - box.left) / box.width) * clocks, event.clientY - box.top);
      if (bar) show(row, bar);
      else show(chosen?.row, chosen?.bar);
    });
    plots.addEventListener("pointerleave", () => show(chosen?.row, chosen?.bar));
    plots.addEventListener("click", (event) => {
      const track = event.target.closest(".wt-track");
      if (!track) return;
      const box = track.getBoundingClientRect();
      const row = tracks.indexOf(track);
      const bar = at(row, ((event.clientX - box.left) / box.width) * clocks, event.clientY - box.top);
      if (bar) choose(row, bar);
    });
    frame.addEventListener("focus", () => {
      const row = tracks.findIndex((_, place) => inTrack(place).length);
      if (!chosen && row >= 0 && frame.matches(":focus-visible")) choose(row, inTrack(row)[0]);
    });
    frame.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      if (event.key === "Escape") {
        chosen = null;
        show();
      } else if (/^(Arrow|Home|End)/.test(event.key)) {
        const first = tracks.findIndex((_, place) => inTrack(place).length);
        const [row, bar] = chosen ? beside(event.key) : [first, inTrack(first)?.[0]];
        if (bar) choose(row, bar);
        event.preventDefault();
      }
    });
    addEventListener("beforeprint", () => setZoom(1));
    new ResizeObserver(drawTicks).observe(frame);
    show();
  };

  // --- boxes that scroll are stops of the keyboard only while there is something to scroll ---

  const watchScrolling = (boxes) => {
    const settle = (box) => {
      const scrolls = box.scrollWidth > box.clientWidth;
      if (scrolls) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    };
    const observer = new ResizeObserver((entries) => entries.forEach((entry) => settle(entry.target)));
    boxes.forEach((box) => observer.observe(box));
  };

  // --- charts: what a screen reader says of a row is also shown where a mouse rests on it ---

  document.querySelectorAll(".wt-chart").forEach((chart) => chart.addEventListener("pointerover", (event) => {
    const plot = event.target.closest(".wt-plot");
    if (plot) plot.title = plot.parentElement.querySelector(".wt-hidden")?.textContent.trim() ?? "";
  }));

  document.querySelectorAll("[data-wt='fragment']").forEach(enhanceFragment);
  document.querySelectorAll("[data-wt='banks']").forEach(enhanceBanks);
  document.querySelectorAll("[data-wt='timeline']").forEach(enhanceTimeline);
  watchScrolling([...document.querySelectorAll(".wt-scroll")]);
})();
