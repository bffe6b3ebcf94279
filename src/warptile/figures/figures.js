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

  // === instruction pages: operands of a multiplication, choices, swizzles, descriptors, boxes of TMA, the list ===

  const pressed = (event) => event.key === "Enter" || event.key === " ";

  // --- A, B and D: a lane in all of them; the row and column that an element of D needs ---

  const rangeOf = (text) => {
    const [first, last] = text.trim().split("–").map(Number);
    return [first, last ?? first];
  };
  const meet = ([a, b], [c, d]) => a <= d && c <= b;
  const said = ([first, last]) => (first === last ? `${first}` : `${first}–${last}`);
  const spans = (numbers) => {
    const found = [];
    for (const each of [...new Set(numbers)].sort((x, y) => x - y)) {
      if (found.length && found.at(-1)[1] === each - 1) found.at(-1)[1] = each;
      else found.push([each, each]);
    }
    return found.map(said).join(", ");
  };

  const enhanceTriple = (picture) => {
    const products = Number(picture.dataset.products);
    const readout = picture.querySelector(".wt-readout");
    const slider = picture.querySelector("input");
    const number = picture.querySelector(".wt-controls output");
    const statement = [...picture.querySelectorAll(".wt-ptx span")];
    const element = picture.querySelector(".wt-element");
    const tables = [];
    const all = [];
    const byCell = new Map();
    for (const section of picture.querySelectorAll("section")) {
      const table = section.querySelector("table");
      const columns = [...table.tHead.rows[0].cells].slice(1).map((cell) => rangeOf(cell.textContent));
      tables.push(table);
      for (const row of table.tBodies[0].rows) {
        const down = rangeOf(row.cells[0].textContent);
        for (const cell of [...row.cells].slice(1)) {
          const [, lane, register] = /^T(\d+)(.+)$/.exec(cell.textContent.trim());
          const each = {
            cell, operand: section.dataset.operand, lane: Number(lane), register, down, across: columns[cell.cellIndex - 1],
            axes: [section.dataset.down, section.dataset.across],
          };
          all.push(each);
          byCell.set(cell, each);
        }
      }
    }
    const of = (operand) => all.filter((each) => each.operand === operand);
    const perProduct = (1 + Math.max(...of("d").map((each) => each.down[1]))) / products;
    const columns = 1 + Math.max(...of("d").map((each) => each.across[1]));
    const shifted = (range, by) => range.map((each) => each + by);
    const moveOf = (d) => columns * Math.floor(d.down[0] / perProduct);
    const makes = {
      a: (one, other) => other.operand === "d" && meet(one.down, other.down),
      b: (one, other) => other.operand === "d" && meet(one.across, shifted(other.across, moveOf(other))),
      d: (one, other) => (other.operand === "a" && meet(one.down, other.down))
        || (other.operand === "b" && meet(shifted(one.across, moveOf(one)), other.across)),
    };
    const placed = (each) => `${each.axes[0]} ${said(each.down)}, ${each.axes[1]} ${said(each.across)}`;
    let pinned = null;

    const show = (one, lane) => {
      const shown = one ? one.lane : lane;
      tables.forEach((table) => table.classList.toggle("wt-marked", shown !== undefined));
      for (const each of all) {
        each.cell.classList.toggle("wt-on", each === one);
        each.cell.classList.toggle("wt-lane", each !== one && each.lane === shown);
        each.cell.classList.toggle("wt-path", Boolean(one) && makes[one.operand](one, each));
      }
      if (element) element.textContent = one ? `// ${one.operand === "d" ? "c" : one.operand}[${one.register.slice(1)}]` : "";
      statement.forEach((span) => span.classList.toggle("wt-on", Boolean(one) && span.textContent === one.register));
      if (shown !== undefined) { slider.value = shown; number.textContent = shown; }
      if (!one && shown === undefined) {
        readout.textContent = "Choose an element or a lane. Arrow keys move, Enter keeps the choice, Escape drops it.";
        return;
      }
      if (!one) {
        const held = (operand) => of(operand).filter((each) => each.lane === shown)
          .map((each) => `${each.register} (${placed(each)})`).join(", ");
        readout.textContent = `Lane ${shown} holds ${["a", "b", "d"].map(held).filter(Boolean).join("; ")}.`;
        return;
      }
      const partners = (operand) => {
        const lanes = spans(of(operand).filter((each) => makes[one.operand](one, each)).map((each) => each.lane));
        return /\D/.test(lanes) ? `lanes ${lanes}` : `lane ${lanes}`;
      };
      const start = `Lane ${one.lane}, register ${one.register}: ${one.operand.toUpperCase()} at ${placed(one)}. `;
      if (one.operand === "d") {
        const column = shifted(one.across, moveOf(one));
        readout.textContent = `${start}It needs row ${said(one.down)} of A, in ${partners("a")}, and column ${said(column)} of B, in ${partners("b")}.`;
      } else {
        const line = one.operand === "a" ? `row ${said(one.down)}` : `column ${said(one.across)}`;
        readout.textContent = `${start}The elements of D that it contributes to are in ${line}${products > 1 ? " of its product" : ""}, in ${partners("d")}.`;
      }
    };
    const pin = (one) => { pinned = pinned === one ? null : one; show(pinned ?? undefined); };
    for (const table of tables) {
      makeGrid(table, table.closest("section").querySelector("p").textContent);
      table.addEventListener("click", (event) => {
        const cell = event.target.closest("tbody td");
        if (cell) { focusCell(table, cell); pin(byCell.get(cell)); }
      });
      table.addEventListener("pointerover", (event) => {
        const cell = event.target.closest("tbody td");
        if (cell && !pinned) show(byCell.get(cell));
      });
      table.addEventListener("pointerleave", () => { if (!pinned) show(); });
      table.addEventListener("keydown", (event) => {
        const cell = event.target.closest("tbody td");
        if (!cell) return;
        if (pressed(event)) pin(byCell.get(cell));
        else if (event.key === "Escape") { pinned = null; show(); }
        else {
          const next = moved(table, cell, event.key);
          if (!next) return;
          focusCell(table, next);
          if (!pinned) show(byCell.get(next));
        }
        event.preventDefault();
      });
    }
    if (products === 1) {
      // B and D have the same columns: what is scrolled in one is in view in the other.
      const boxes = ["b", "d"].map((operand) => picture.querySelector(`[data-operand='${operand}'] .wt-scroll`));
      boxes.forEach((box, i) => box.addEventListener("scroll", () => { boxes[1 - i].scrollLeft = box.scrollLeft; }));
    }
    picture.querySelector(".wt-controls").hidden = false;
    for (const span of statement) {
      span.addEventListener("click", () => {
        // C has the layout of D.
        const register = span.textContent.replace("c", "d");
        const one = all.find((each) => each.lane === Number(slider.value) && each.register === register);
        if (one) { pinned = null; pin(one); }
      });
    }
    slider.addEventListener("input", () => { pinned = null; show(undefined, Number(slider.value)); });
    show();
  };

  // --- choices: one of the drawn states is shown ---

  const enhanceStates = (picture, changed) => {
    const states = [...picture.querySelectorAll(".wt-state")];
    const parts = [...picture.querySelectorAll("[data-part]")];
    const choose = () => {
      const key = parts.map((part) => part.value).join(" ");
      for (const part of parts) {
        if (!part.dataset.texts) continue;
        const text = part.dataset.texts.split("|")[Number(part.value)];
        part.closest("label").querySelector("output").textContent = text;
        part.setAttribute("aria-valuetext", text);
      }
      states.forEach((state) => { state.hidden = state.dataset.state !== key; });
      changed?.(states.find((state) => !state.hidden));
    };
    picture.querySelector(".wt-controls").hidden = false;
    parts.forEach((part) => part.addEventListener("input", choose));
    choose();
  };

  // --- swizzles: a phase of ldmatrix in the chosen layout, and its addresses bit by bit ---

  const enhanceSwizzle = (picture) => {
    const output = picture.querySelector(".wt-steps output");
    let state = null;
    let phase = 0;
    const show = () => {
      const map = state.querySelector(".wt-map");
      const wavefronts = map.dataset.wavefronts.split(",").map(Number);
      phase = (phase + wavefronts.length) % wavefronts.length;
      const groups = new Array(8).fill(0);
      const rows = [];
      for (const cell of map.querySelectorAll("td[data-p]")) {
        const on = Number(cell.dataset.p) === phase;
        cell.classList.toggle("wt-on", on);
        if (!on) continue;
        const group = cell.cellIndex - 1;
        groups[group] += 1;
        const [row, chunk] = cell.textContent.trim().split(".").map(Number);
        rows[row] = { chunk, place: Number(cell.parentElement.cells[0].textContent) + 16 * group };
      }
      map.querySelector(".wt-wavefronts").textContent = `${wavefronts[phase]} wavefront${wavefronts[phase] === 1 ? "" : "s"}`;
      [...map.querySelectorAll("tfoot td")].forEach((cell, group) => { cell.textContent = groups[group] || ""; });
      output.textContent = `rows 0 to 7, chunk ${phase}`;
      const bits = state.querySelector(".wt-bits");
      const top = Number(bits.dataset.top);
      [...bits.tBodies[0].rows].forEach((line, row) => {
        const { chunk, place } = rows[row];
        const linear = row * Number(bits.dataset.pitch) + 16 * chunk;
        const cells = [...line.cells].slice(1);
        for (let bit = top; bit >= 4; bit -= 1) cells[top - bit].textContent = (linear >> bit) & 1;
        for (let bit = 6; bit >= 4; bit -= 1) cells[top - 2 + 6 - bit].textContent = (place >> bit) & 1;
        const bank = (place / 4) % 32;
        cells.at(-1).textContent = `${bank}–${bank + 3}`;
      });
    };
    picture.addEventListener("click", (event) => {
      const button = event.target.closest("button[data-step]");
      const cell = event.target.closest("td[data-p]");
      if (button) phase += Number(button.dataset.step);
      else if (cell) phase = Number(cell.dataset.p);
      else return;
      show();
    });
    picture.addEventListener("keydown", (event) => {
      if (!event.target.matches("button[data-step]")) return;
      if (event.key === "ArrowLeft") phase -= 1;
      else if (event.key === "ArrowRight") phase += 1;
      else return;
      show();
      event.preventDefault();
    });
    enhanceStates(picture, (chosen) => { state = chosen; show(); });
  };

  // --- pairs: a chunk in the tensor and in shared memory ---

  const enhancePairs = (picture) => {
    let pinned = null;
    const mark = (cell) => {
      picture.querySelectorAll("td.wt-on").forEach((each) => each.classList.remove("wt-on"));
      if (!cell) return;
      cell.closest(".wt-state").querySelectorAll(`td[data-k='${cell.dataset.k}']`).forEach((each) => each.classList.add("wt-on"));
    };
    const pin = (cell) => { pinned = pinned === cell ? null : cell; mark(pinned); };
    for (const table of picture.querySelectorAll(".wt-cells")) {
      makeGrid(table, table.closest(".wt-map").querySelector("p").textContent);
      const cellOf = (event) => event.target.closest("td[data-k]");
      table.addEventListener("pointerover", (event) => { if (!pinned && cellOf(event)) mark(cellOf(event)); });
      table.addEventListener("pointerleave", () => { if (!pinned) mark(null); });
      table.addEventListener("click", (event) => {
        const cell = cellOf(event);
        if (cell) { focusCell(table, cell); pin(cell); }
      });
      table.addEventListener("keydown", (event) => {
        const cell = event.target.closest("tbody td");
        if (!cell) return;
        if (pressed(event)) pin(cell.dataset.k ? cell : null);
        else if (event.key === "Escape") { pinned = null; mark(null); }
        else {
          const next = moved(table, cell, event.key);
          if (!next) return;
          focusCell(table, next);
          if (!pinned) mark(next.dataset.k ? next : null);
        }
        event.preventDefault();
      });
    }
    enhanceStates(picture, () => { pinned = null; mark(null); });
  };

  document.querySelectorAll("[data-wt='pairs']").forEach(enhancePairs);
  document.querySelectorAll("[data-wt='swizzle']").forEach(enhanceSwizzle);

  // --- descriptors of wgmma: fields, 64 bits, addresses of core matrices ---

  const enhanceDescriptor = (picture) => {
    const fields = [...picture.querySelectorAll("[data-field]")];
    const layout = picture.querySelector("select[data-layout]");
    const word = picture.querySelector("[data-word]");
    const problems = picture.querySelector(".wt-problems");
    const cores = [...picture.querySelectorAll(".wt-cores tbody td")];
    const table = picture.querySelector(".wt-cores");
    const chunk = Number(picture.dataset.chunk);
    const line = Number(picture.dataset.line);
    const nameOf = (field) => field.closest("label").querySelector("span").textContent;
    const of = (name) => Number(fields.find((field) => field.dataset.field === name).value);
    const codes = (field) => field.dataset.codes.split(" ").map(Number);
    const codeOf = (field) => (field.dataset.codes ? codes(field).indexOf(Number(field.value)) : Number(field.value) / Number(field.step));
    const bitsOf = (field) => Number(field.dataset.bits ?? Math.log2(codes(field).length));
    const hex = (value) => `0x${value.toString(16)}`;
    let chosen = cores[0];

    const chunksOf = (terms, step) => {
      const [fixed, leadings, strides] = terms;
      const first = of("start") + fixed + leadings * of("leading") + strides * of("stride");
      const wide = of("swizzle") / chunk;
      return Array.from({ length: 8 }, (_, i) => {
        const linear = first + i * step;
        if (!wide) return linear;
        const number = Math.floor(linear / line) - of("base_offset");
        return linear ^ (((number % wide) + wide) % wide * chunk);
      });
    };

    const explain = (addresses, terms) => {
      const found = [];
      for (const [name, place] of [["leading", 1], ["stride", 2]]) {
        if (terms.every((each) => each[place] === 0)) found.push(`The ${nameOf(fields.find((field) => field.dataset.field === name))} is not used by this layout.`);
      }
      const once = new Set(addresses.flat());
      const all = addresses.length * 8;
      if (once.size < all) found.push(`Core matrices overlap: ${all} chunks are at ${once.size} addresses.`);
      return found;
    };

    const show = (fromWord) => {
      const wrong = [];
      for (const field of fields) {
        const bad = !field.dataset.codes && (field.value === "" || !field.checkValidity());
        field.setAttribute("aria-invalid", String(bad));
        if (!bad) continue;
        const step = Number(field.step);
        wrong.push(`${nameOf(field)} of ${field.value || "nothing"}: it is ${step > 1 ? `a multiple of ${step}` : "a number"} from 0 to ${field.max}.`);
      }
      word.setAttribute("aria-invalid", "false");
      picture.classList.toggle("wt-wrong", wrong.length > 0);
      if (wrong.length) { problems.textContent = wrong.join(" "); return; }
      let value = 0n;
      for (const field of fields) {
        const code = codeOf(field);
        value |= BigInt(code) << BigInt(field.dataset.low);
        picture.querySelector(`td[data-bits='${field.dataset.field}']`).textContent = code.toString(2).padStart(bitsOf(field), "0");
      }
      const text = `0x${value.toString(16).padStart(16, "0")}`;
      if (!fromWord) word.value = text;
      picture.querySelector(".wt-word").textContent = text;
      const pattern = picture.querySelector(`li[data-layout='${layout.value} ${of("swizzle")}']`);
      const terms = pattern.dataset.terms.split(" ").map((each) => each.split(",").map(Number));
      const addresses = terms.map((each) => chunksOf(each, Number(pattern.dataset.step)));
      cores.forEach((cell, i) => {
        cell.textContent = hex(addresses[i][0]);
        cell.classList.toggle("wt-on", cell === chosen);
      });
      const own = addresses[cores.indexOf(chosen)];
      const groups = new Array(8).fill(0);
      [...picture.querySelectorAll(".wt-chunks tbody tr")].forEach((row, i) => {
        const bank = (own[i] % line) / 4;
        groups[bank / 4] += 1;
        row.cells[1].textContent = hex(own[i]);
        row.cells[2].textContent = `${bank}–${bank + 3}`;
      });
      const most = Math.max(...groups);
      picture.querySelector(".wt-wavefronts").textContent = `${most} wavefront${most === 1 ? "" : "s"}`;
      problems.textContent = explain(addresses, terms).join(" ");
    };

    const decode = () => {
      const text = word.value.trim();
      const good = /^(0x)?[0-9a-f]{1,16}$/i.test(text);
      const value = good ? BigInt(text.startsWith("0x") ? text : `0x${text}`) : 0n;
      let left = value;
      for (const field of fields) left &= ~(((1n << BigInt(bitsOf(field))) - 1n) << BigInt(field.dataset.low));
      if (!good || left) {
        word.setAttribute("aria-invalid", "true");
        problems.textContent = good
          ? `64 bits of ${text}: the bits of no field are 0; these are not: ${hex(left)}.`
          : `64 bits of "${text}": they are up to 16 hexadecimal digits.`;
        return;
      }
      for (const field of fields) {
        const code = Number((value >> BigInt(field.dataset.low)) & ((1n << BigInt(bitsOf(field))) - 1n));
        field.value = field.dataset.codes ? codes(field)[code] : code * Number(field.step);
      }
      show(true);
    };

    picture.querySelector(".wt-controls").hidden = false;
    fields.forEach((field) => field.addEventListener("input", () => show()));
    layout.addEventListener("input", () => show());
    word.addEventListener("input", decode);
    makeGrid(table, picture.querySelector("section p").textContent);
    const choose = (cell) => { chosen = cell; focusCell(table, cell); show(); };
    table.addEventListener("click", (event) => {
      const cell = event.target.closest("tbody td");
      if (cell) choose(cell);
    });
    table.addEventListener("keydown", (event) => {
      const cell = event.target.closest("tbody td");
      const next = cell && moved(table, cell, event.key);
      if (!next) return;
      choose(next);
      event.preventDefault();
    });
    show();
  };

  document.querySelectorAll("[data-wt='descriptor']").forEach(enhanceDescriptor);

  // --- the list of instructions: rows in which all words of the filter occur ---

  const enhanceListing = (listing) => {
    const input = listing.querySelector("input");
    const output = listing.querySelector("output");
    const rows = [...listing.querySelectorAll("tbody tr")].map((row) => [row, row.textContent.toLowerCase()]);
    const apply = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const [row, text] of rows) {
        row.hidden = !words.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      output.textContent = `${shown} of ${rows.length}`;
    };
    listing.querySelector(".wt-controls").hidden = false;
    input.addEventListener("input", apply);
    apply();
  };

  document.querySelectorAll("[data-wt='triple']").forEach(enhanceTriple);
  document.querySelectorAll("[data-wt='listing']").forEach(enhanceListing);
})();
