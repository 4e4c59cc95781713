"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const PAGE = 100;       // rows of the table that are added at once
  const AHEAD = 200;      // pixels below the visible rows at which further ones are added
  const FEW = 20;         // rows up to which every fold of the table is open
  const SLICE = 12;       // milliseconds of drawing before the browser gets its turn
  const DENSE = 40;       // columns from which the squares are small
  const byId = (id) => document.getElementById(id);
  document.documentElement.classList.add("live");

  const lists = { family: "families", verdict: "verdicts", protocol: "protocols", size: "sizes" };
  const plainNumbers = new Set(["attempts", "retried", "latency"]);
  const cells = data.cells.map((row, index) => {
    const cell = { index };
    data.columns.forEach((name, place) => {
      const value = row[place];
      if (name in lists) cell[name] = data[lists[name]][value];
      else cell[name] = plainNumbers.has(name) ? value : data.strings[value];
    });
    cell.os = `${cell.sourceOs}-${cell.targetOs}`;
    return cell;
  });
  const RED = new Set(["fail", "flaky", "unexpected-pass", "probe-error"]);
  const words = (name) => name.replace("-", " ");
  const number = (value) => value.toLocaleString("en");

  function make(name, className, text) {
    const element = document.createElement(name);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  }

  const alphabet = new Intl.Collator("en", { numeric: true });

  // Filters: the form, the address after the #, and the cells that match.

  const form = byId("filters");
  const facets = ["family", "verdict", "os", "machine", "protocol", "size"];
  const machinesOf = (cell) => [cell.sourceGroup, cell.targetGroup];
  const holds = {  // of the other facets, a cell has one value
    machine: (cell, value) => machinesOf(cell).includes(value),
    verdict: (cell, value) => cell.verdict === value || (value === "red" && RED.has(cell.verdict)),
  };
  let group = null;

  for (const facet of facets) {
    const present = new Set(cells.flatMap((cell) => (facet === "machine" ? machinesOf(cell) : cell[facet])));
    present.delete("");
    const order = facet in lists ? data[lists[facet]] : [...present].sort(alphabet.compare);
    for (const value of order.filter((each) => present.has(each))) {
      const label = facet === "os" ? value.replace("-", " to ")
        : facet === "protocol" ? value.toUpperCase() : facet === "verdict" ? words(value) : value;
      form.elements[facet].append(new Option(label, value));
    }
  }

  function readAddress() {
    const asked = new URLSearchParams(location.hash.slice(1));
    form.elements.q.value = asked.get("q") || "";
    for (const facet of facets) {
      const select = form.elements[facet];
      const value = asked.get(facet) || "";
      select.value = value;
      if (select.selectedIndex < 0) select.value = "";
    }
    group = asked.has("group") && data.groups[asked.get("group")] ? Number(asked.get("group")) : null;
    return ["q", "group", ...facets].some((name) => asked.has(name));
  }

  function writeAddress() {
    const asked = new URLSearchParams();
    for (const name of ["q", ...facets]) {
      if (form.elements[name].value) asked.set(name, form.elements[name].value);
    }
    if (group !== null) asked.set("group", group);
    history.replaceState(null, "", `#${asked}`);
  }

  function matching() {
    const text = form.elements.q.value.trim().toLowerCase();
    const wanted = facets.map((facet) => [facet, form.elements[facet].value]).filter((each) => each[1]);
    const some = group === null ? cells : data.groups[group].map((index) => cells[index]);
    return some.filter((cell) => wanted.every(([facet, value]) =>
      (holds[facet] ? holds[facet](cell, value) : cell[facet] === value))
      && (!text || searched(cell).includes(text)));
  }

  function searched(cell) {
    cell.search ??= [cell.id, cell.source, cell.target, cell.expected, cell.actual, cell.rule,
      cell.reason, cell.detail, cell.seen, cell.verdict].join("\n").toLowerCase();
    return cell.search;
  }

  // Heat maps: one table a family, drawn in slices, so that 10,000 cells do not freeze the page.

  const maps = byId("maps");
  let drawing = 0;

  function draw() {
    const turn = ++drawing;
    const shown = matching();
    delete document.documentElement.dataset.drawn;
    hideTip();
    maps.replaceChildren();
    byId("nothing").hidden = shown.length > 0;
    byId("shown").textContent = shown.length === cells.length
      ? `${number(cells.length)} cells` : `${number(shown.length)} of ${number(cells.length)} cells`;
    const chip = byId("group");
    chip.hidden = group === null;
    chip.firstElementChild.textContent = group === null ? "" : `Only group ${group + 1} of what is not as expected`;
    fillTable(shown);
    const work = data.families
      .map((family) => shown.filter((cell) => cell.family === family))
      .filter((some) => some.length)
      .flatMap(rowsOf);
    slice(work, 0, turn, shown.length);
  }

  function slice(work, start, turn, count) {
    if (turn !== drawing) return;
    const end = performance.now() + SLICE;
    let place = start;
    while (place < work.length && (performance.now() < end || place === start)) work[place++]();
    if (place < work.length) setTimeout(slice, 0, work, place, turn, count);
    else document.documentElement.dataset.drawn = count;
  }

  // Names under their headings, both in the order in which all the cells first name them as
  // a source; what is never a source comes last, in the order of the alphabet.
  const ranks = new Map();
  for (const name of cells.flatMap((cell) => [cell.sourceGroup, cell.source])) {
    if (!ranks.has(name)) ranks.set(name, ranks.size);
  }
  const rank = (name) => ranks.get(name) ?? Infinity;
  const before = (one, other) => (rank(one) === rank(other) ? alphabet.compare(one, other) : rank(one) - rank(other));

  function distinct(some, key, heading) {
    const found = new Map(some.map((cell) => [cell[key], cell[heading]]));
    return [...found].sort((one, other) => before(one[1], other[1]) || before(one[0], other[0]));
  }

  function rowsOf(some) {
    const sources = distinct(some, "source", "sourceGroup");
    const targets = distinct(some, "target", "targetGroup");
    const columns = new Map(targets.map(([target], index) => [target, index]));
    const across = new Set(some.map((cell) => cell.size)).size;
    const bySource = new Map(sources.map(([source]) => [source, []]));
    for (const cell of some) bySource.get(cell.source).push(cell);
    const body = make("tbody");
    const headed = new Set(targets.map((each) => each[1])).size < targets.length;
    const starts = targets.map(([, heading], index) => headed && (!index || targets[index - 1][1] !== heading));
    const first = () => frame(some, targets, starts, across, body);
    return [first, ...sources.map(([source, heading], index) => () => {
      const row = body.insertRow();
      if (index && sources[index - 1][1] !== heading) row.className = "break";
      const head = make("th", "", source);
      head.scope = "row";
      head.title = source;
      row.append(head);
      const quadrants = starts.map((start) => {
        const place = make("td", start ? "first" : "");
        row.append(place);
        return place;
      });
      for (const cell of bySource.get(source)) {
        const place = quadrants[columns.get(cell.target)];
        if (!place.firstChild) place.append(make("div", "quadrant"));
        place.firstChild.append(square(cell, across));
      }
    })];
  }

  function square(cell, across) {
    const element = make("b", `c v-${cell.verdict}`);
    element.dataset.i = cell.index;
    element.tabIndex = -1;
    element.role = "img";
    element.ariaLabel = `${words(cell.verdict)}: ${cell.source} to ${cell.target}, ${cell.protocol} ${cell.size}`;
    element.style.gridRow = cell.protocol === "udp" ? 2 : 1;
    if (across === 2) element.style.gridColumn = cell.size === "large" ? 2 : 1;
    return element;
  }

  function frame(some, targets, starts, across, body) {
    const box = make("details", "family");
    box.open = true;
    const title = make("summary", "", some[0].family);
    title.append(make("span", "", tally(some)));
    const headed = starts.includes(true);
    const table = make("table", `map${targets.length > DENSE ? " dense" : ""}${headed ? "" : " flat"}`);
    table.style.setProperty("--across", across);
    const head = table.createTHead();
    if (headed) head.append(headingsOf(targets, starts));
    const columns = head.insertRow();
    columns.className = "columns";
    columns.append(make("th", "corner", "from \\ to"));
    targets.forEach(([target], index) => {
      const name = make("th", starts[index] ? "first" : "");
      const cell = some.find((each) => each.target === target);
      name.scope = "col";
      name.title = target;
      name.append(make("span", "", cell.targetLabel));
      columns.append(name);
    });
    table.append(body);
    const scroll = make("div", "scroll");
    scroll.append(table);
    scroll.tabIndex = 0;
    scroll.role = "group";
    scroll.ariaLabel = `Heat map of ${some[0].family}; arrow keys move from cell to cell`;
    box.append(title, scroll);
    maps.append(box);
  }

  function headingsOf(targets, starts) {
    const row = make("tr", "headings");
    row.append(make("th", "corner"));
    targets.forEach(([, heading], index) => {
      if (starts[index]) row.append(make("th", "first", heading));
      row.lastElementChild.colSpan = index - starts.lastIndexOf(true, index) + 1;
      row.lastElementChild.title = heading;
    });
    return row;
  }

  function tally(some) {
    const counts = data.verdicts.map((verdict, place) => {
      const count = some.filter((cell) => cell.verdict === verdict).length;
      return count && `${number(count)} ${count === 1 ? words(verdict) : data.plurals[place]}`;
    });
    return `${number(some.length)} cells: ${counts.filter(Boolean).join(", ")}`;
  }

  // What is known of one cell: on hover and focus, kept open by a click or Enter.

  const tip = byId("tip");
  let told = null;  // the cell that it is about

  function command(text) {
    const place = make("span", "command");
    place.append(make("code", "", text));
    const button = make("button", "copy", "Copy");
    button.type = "button";
    button.dataset.copy = text;
    place.append(button);
    return place;
  }

  function showTip(element, pinned) {
    const cell = cells[element.dataset.i];
    tip.replaceChildren();
    const title = make("h4");
    title.append(make("b", `mark v-${cell.verdict}`), `${cell.source} to ${cell.target}`);
    const list = make("dl", "pairs");
    const say = (name, value) => {
      if (value === "" || value === null) return;
      const detail = make("dd");
      detail.append(value);
      list.append(make("dt", "", name), detail);
    };
    say("Verdict", words(cell.verdict));
    say("Cell", `${cell.family}, ${cell.protocol.toUpperCase()} ${cell.size}`);
    say("Expected", cell.expected);
    say("Actual", cell.actual);
    say("Why", cell.detail);
    say("Cause", cell.cause);
    say("Rule", `${cell.rule}: ${cell.reason}`);
    say("Authority", cell.authority);
    say("Seen from", cell.seen);
    say("Backend", cell.backends);
    say("Latency", cell.latency < 0 ? "" : `${cell.latency} ms`);
    say("Attempts", `${cell.attempts}${RED.has(cell.verdict) && !cell.retried ? ", not retried" : ""}`);
    say("Repeat", command(cell.repeat));
    if (cell.explain) say("Explain", command(cell.explain));
    tip.append(title, list, make("p", "hint", "Click or press Enter to keep this open; Escape closes it."));
    tip.classList.toggle("pinned", pinned);
    tip.hidden = false;
    told = element;
    placeTip();
  }

  // Beside its cell, also while the page is scrolled under a box that is kept open.
  function placeTip() {
    const element = told;
    const spot = element.getBoundingClientRect();
    const size = tip.getBoundingClientRect();
    const below = spot.bottom + 10 + size.height < innerHeight;
    const top = below ? spot.bottom + 10 : Math.max(12, spot.top - size.height - 10);
    tip.style.top = `${Math.min(top, Math.max(12, innerHeight - size.height - 12))}px`;
    tip.style.left = `${Math.max(12, Math.min(spot.left, innerWidth - size.width - 12))}px`;
  }

  function hideTip() {
    tip.hidden = true;
    tip.classList.remove("pinned");
  }

  const cellOf = (event) => event.target.closest?.(".c");
  maps.addEventListener("mouseover", (event) => {
    if (tip.classList.contains("pinned")) return;
    const element = cellOf(event);
    if (element) showTip(element, false);
    else hideTip();
  });
  maps.addEventListener("mouseleave", () => tip.classList.contains("pinned") || hideTip());
  maps.addEventListener("focusin", (event) => cellOf(event) && showTip(cellOf(event), false));
  maps.addEventListener("focusout", () => tip.classList.contains("pinned") || hideTip());
  const follow = () => { if (tip.classList.contains("pinned")) placeTip(); else hideTip(); };
  document.addEventListener("scroll", (event) => event.target === tip || follow(), true);
  addEventListener("resize", follow);
  document.addEventListener("click", (event) => {
    const element = cellOf(event);
    if (element) showTip(element, true);
    else if (!tip.contains(event.target)) hideTip();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    if (tip.contains(document.activeElement)) told.focus();
    hideTip();
  });

  maps.addEventListener("keydown", (event) => {
    const element = cellOf(event);
    const scroll = event.target.closest(".scroll");
    if (!scroll) return;
    if (element && event.key === "Enter") {
      showTip(element, true);
      tip.querySelector(".copy").focus();
      event.preventDefault();  // or it would press the button
    }
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = element ? neighbour(element, step) : scroll.querySelector(".c");
    next?.focus();
    next?.scrollIntoView({ block: "nearest", inline: "nearest" });
  });

  function neighbour(element, [down, right]) {
    const here = element.getBoundingClientRect();
    const all = element.closest(".map").querySelectorAll(".c");
    let best = null;
    let nearest = Infinity;
    for (const other of all) {
      const there = other.getBoundingClientRect();
      const [dx, dy] = [there.left - here.left, there.top - here.top];
      const [along, aside] = down ? [dy * down, Math.abs(dx)] : [dx * right, Math.abs(dy)];
      if (along > 2 && aside < 2 && along < nearest) [best, nearest] = [other, along];
    }
    return best;
  }

  // The table of everything but plain passes: a fold for each cause of red cells, and for each rule
  // of known limits. A fold has rows once it is open, a page at a time as it is scrolled.

  const table = byId("rows")?.closest("table");
  table?.closest(".scroll").addEventListener("scroll", (event) => {
    const bottom = event.target.getBoundingClientRect().bottom + AHEAD;
    for (const more of table.querySelectorAll(".more button")) {
      if (more.getBoundingClientRect().top < bottom) more.click();
    }
  });

  function foldsOf(tabled) {
    const folds = new Map();
    for (const cell of tabled) {
      const red = RED.has(cell.verdict);
      const title = red ? `Cause: ${cell.cause}` : `Known limit: ${cell.reason} (${cell.rule})`;
      if (!folds.has(title)) folds.set(title, { title, red, cells: [] });
      folds.get(title).cells.push(cell);
    }
    return [...folds.values()].sort((one, other) => other.red - one.red || other.cells.length - one.cells.length);
  }

  function fillTable(shown) {
    if (!table) return;
    const tabled = shown.filter((cell) => cell.verdict !== "pass");
    const folds = foldsOf(tabled);
    const open = folds.length === 1 || tabled.length <= FEW;
    for (const body of [...table.tBodies]) body.remove();
    for (const fold of folds) addFold(fold, open);
    byId("table-count").textContent = `${number(tabled.length)} cells that match the filter above.`;
  }

  function addFold(fold, open) {
    const body = table.createTBody();
    const head = make("th", "fold");
    head.colSpan = table.tHead.rows[0].cells.length;
    head.scope = "rowgroup";
    const button = make("button", "", fold.title);
    button.type = "button";
    button.prepend(make("b", `mark v-${fold.cells[0].verdict}`));
    button.append(make("span", "", `${number(fold.cells.length)} cell${fold.cells.length === 1 ? "" : "s"}`));
    head.append(button);
    body.insertRow().append(head);
    const turn = (opened) => {
      button.ariaExpanded = opened;
      while (body.rows.length > 1) body.deleteRow(1);
      if (opened) addRows(body, fold.cells, 0);
    };
    button.addEventListener("click", () => turn(button.ariaExpanded !== "true"));
    turn(open);
  }

  function addRows(body, some, start) {
    for (const cell of some.slice(start, start + PAGE)) {
      const row = body.insertRow();
      row.dataset.i = cell.index;
      const verdict = make("td", "verdict");
      verdict.append(make("b", `mark v-${cell.verdict}`), words(cell.verdict));
      const name = make("td");
      name.append(make("small", "", cell.family),
        `${cell.source} to ${cell.target}, ${cell.protocol.toUpperCase()} ${cell.size}`);
      const found = make("td", "", cell.actual);
      if (cell.detail) found.append(make("small", "", cell.detail));
      const repeat = make("td");
      repeat.append(command(cell.repeat));
      row.append(verdict, name, make("td", "", cell.expected), found, repeat);
    }
    const left = some.length - start - PAGE;
    if (left <= 0) return;
    const row = body.insertRow();
    const more = make("td", "more");
    more.colSpan = table.tHead.rows[0].cells.length;
    const button = make("button", "", `Show ${number(Math.min(left, PAGE))} more of ${number(left)}`);
    button.type = "button";
    button.addEventListener("click", () => { row.remove(); addRows(body, some, start + PAGE); });
    more.append(button);
    row.append(more);
  }

  // Copying: the clipboard where the browser allows it, else a selection.

  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("[data-copy]");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
    } catch {
      const area = make("textarea");
      area.value = button.dataset.copy;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
      button.focus();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1200);
  });

  let waiting = 0;
  const changed = () => { writeAddress(); draw(); };
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(changed, 120); });
  form.addEventListener("change", () => { clearTimeout(waiting); changed(); });
  form.addEventListener("reset", () => { group = null; setTimeout(changed, 0); });
  byId("group").querySelector("button").addEventListener("click", () => { group = null; changed(); });
  addEventListener("hashchange", () => {
    if (byId(location.hash.slice(1))) return;  // a heading, and no filter
    if (readAddress()) byId("matrix").scrollIntoView();
    draw();
  });
  readAddress();
  draw();
})();
