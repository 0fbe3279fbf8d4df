// What the bridge tells, section by section, drawn as it changes.  The server sends items that changed and null for those
// that are gone; everything is drawn from `known`.  Text is only ever set as text.

const known = {};
let clockOffset = 0; // the server's clock less ours, seconds
let chosen = null; // key of the selected workload
let chosenByHand = false;
let shownDetail = "";

const $ = (id) => document.getElementById(id);
const serverNow = () => Date.now() / 1000 + clockOffset;
const items = (section) => Object.entries(known[section] ?? {});

function make(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Rows by key: made once, changed in place, in the order given.
function rows(parent, entries, create, update) {
  parent.kept ??= new Map();
  const stale = new Set(parent.kept.keys());
  entries.forEach(([key, item], place) => {
    stale.delete(key);
    let row = parent.kept.get(key);
    if (!row) parent.kept.set(key, (row = create(key, item)));
    const content = JSON.stringify(item);
    if (row.content !== content) {
      row.content = content;
      update(row, item, key);
    }
    if (parent.children[place] !== row) parent.insertBefore(row, parent.children[place] ?? null);
  });
  for (const key of stale) {
    parent.kept.get(key).remove();
    parent.kept.delete(key);
  }
}

// --- words ---

function span(seconds) {
  if (seconds < 0.0995) return `${(Math.max(0, seconds) * 1000).toFixed(seconds < 0.00995 ? 1 : 0)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

function age(at) {
  const seconds = Math.max(0, serverNow() - at);
  return seconds < 120 ? `${Math.floor(seconds)} s` : span(seconds);
}

const timeOf = (at) => new Date(at * 1000).toLocaleTimeString([], { hour12: false });
const count = (number) => number.toLocaleString("en-US").replaceAll(",", "\u202f");

// What a phase is called, its colour, and where its rows stand.
const PHASES = {
  orphaned: ["Job ended", "bad", 0],
  granted: ["Granted", "go", 1],
  gathering: ["Gathering", "wait", 2],
  unsubmitted: ["Not asked yet", "wait", 2],
  queued: ["Queued", "wait", 2],
  bound: ["Running", "run", 3],
  done: ["Ended", "end", 4],
};

function phaseOf(pod) {
  const [name, colour, place] = PHASES[pod.phase] ?? [pod.phase, "", 5];
  if (pod.phase === "bound" && pod.pod === "Pending") return ["Starting", "go", place];
  if (pod.pod === "Terminating") return ["Terminating", "end", place];
  if (pod.gated) return ["Gated", "wait", place];
  if (pod.phase === "done") return [pod.pod, pod.pod === "Failed" ? "bad" : "end", place];
  return [name, colour, place];
}

// --- pods ---

function drawPods() {
  const entries = items("pods").sort(([, a], [, b]) => {
    const [x, y] = [phaseOf(a)[2], phaseOf(b)[2]];
    return x - y || (x === 2 ? a.created - b.created : b.created - a.created) || a.name.localeCompare(b.name);
  });
  rows($("pods").tBodies[0], entries, createPod, updatePod);
  const all = Object.values(known.counts ?? {}).reduce((sum, each) => sum + each, 0);
  $("none").hidden = entries.length >= all && entries.length > 0;
  write($("none"), entries.length ? `and ${count(all - entries.length)} more` : "No pods yet.");
  if (!chosenByHand && entries.length) {
    const stillThere = chosen !== null && entries.some(([, pod]) => pod.key === chosen && pod.phase !== "done");
    const best = entries.find(([, pod]) => pod.phase === "bound") ?? entries[0];
    if (!stillThere) choose(best[1].key);
  }
}

function createPod(uid) {
  const row = make("tr");
  row.tabIndex = 0;
  row.dataset.uid = uid;
  for (const name of ["name", "kind", "job", "node", "why", "age number"]) row.append(make("td", name));
  const pick = () => {
    chosenByHand = true;
    choose(known.pods[uid].key);
  };
  row.addEventListener("click", pick);
  row.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      pick();
    }
  });
  return row;
}

function updatePod(row, pod) {
  const [name, colour] = phaseOf(pod);
  const [nameCell, kind, job, node, why, since] = row.cells;
  write(nameCell, pod.name);
  nameCell.title = `${pod.namespace}/${pod.name}`;
  kind.replaceChildren(make("span", `phase ${colour}`, name));
  job.replaceChildren(...(pod.job === null ? [] : [`${pod.job} `, make("span", "state", pod.state)]));
  job.title = pod.user ? `as Slurm user ${pod.user}` : "";
  write(node, pod.node);
  write(why, pod.why);
  why.title = pod.why;
  since.dataset.at = pod.created;
  write(since, age(pod.created));
  row.className = pod.phase === "done" ? "over" : "";
  row.setAttribute("aria-selected", String(pod.key === chosen));
}

function drawCounts() {
  const sums = new Map();
  for (const [phase, number] of items("counts")) {
    const label = { 0: "ending", 1: "granted", 2: "waiting", 3: "running", 4: "ended" }[(PHASES[phase] ?? [])[2]] ?? phase;
    sums.set(label, (sums.get(label) ?? 0) + number);
  }
  const shown = ["waiting", "granted", "running", "ending", "ended"].filter((label) => sums.get(label));
  $("counts").replaceChildren(...shown.map((label) => make("li", "", make("b", "", count(sums.get(label))), ` ${label}`)));
}

// --- one workload ---

function choose(key) {
  chosen = key;
  for (const row of $("pods").tBodies[0].rows) {
    row.setAttribute("aria-selected", String(known.pods[row.dataset.uid]?.key === key));
  }
  readDetail();
}

let reading = false;
async function readDetail() {
  if (chosen === null || reading) return;
  reading = true;
  const wanted = chosen;
  try {
    const answer = await fetch(`workloads/${encodeURIComponent(wanted)}`);
    const content = answer.ok ? await answer.json() : null;
    if (wanted !== chosen) return; // another was chosen meanwhile
    if (content) drawDetail(content);
    else chosenByHand = false; // it is forgotten: go on with another
  } catch {
    // the stream says that nobody answers
  } finally {
    reading = false;
    if (wanted !== chosen) readDetail();
  }
}

const COLOURS = { "waiting for Slurm": "wait", "created → asked Slurm": "wait", runs: "run", "job ended": "end" };

function drawDetail({ story, waterfall }) {
  const pod = items("pods").find(([, each]) => each.key === chosen)?.[1];
  if (pod) write($("detail-pod"), `of pod ${pod.namespace}/${pod.name}${pod.job === null ? "" : `, Slurm job ${pod.job}`}`);
  const now = serverNow();
  const from = Math.min(...waterfall.map((step) => step.start));
  const to = Math.max(...waterfall.map((step) => step.end ?? now), from + 0.001);
  $("waterfall").replaceChildren(
    ...waterfall.map((step) => {
      const end = step.end ?? now;
      const bar = make("span", `bar ${COLOURS[step.name] ?? ""} ${step.end === null ? "open" : ""}`);
      const left = (100 * (step.start - from)) / (to - from);
      bar.style.left = `min(${left}%, 100% - 2px)`;
      bar.style.width = `${Math.max(0, (100 * (end - step.start)) / (to - from))}%`;
      const took = `${span(end - step.start)}${step.end === null ? " …" : ""}`;
      return make("li", "", make("span", "", step.name), make("span", "track", bar), make("span", "number", took));
    }),
  );
  const content = JSON.stringify(story);
  if (content === shownDetail) return;
  shownDetail = content;
  $("story").replaceChildren(...story.map(({ at, what }) => make("li", "", make("time", "", timeOf(at)), make("span", "", what))));
  $("story").scrollTop = $("story").scrollHeight;
}

// --- nodes, sides ---

function drawNodes() {
  rows($("nodes"), items("nodes").sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true })), () => make("li"), updateNode);
}

function updateNode(row, node, name) {
  const slurm = node.slurm;
  const states = slurm ? slurm.states.filter((state) => !["EXTERNAL", "DYNAMIC_NORM"].includes(state)).join(" ") : "not in Slurm";
  const trouble = /DRAIN|DOWN|FAIL|NOT_RESPONDING/.test(states);
  const kube = node.ready === undefined ? "not in Kubernetes" : !node.ready ? "NotReady" : node.cordoned ? "cordoned" : "";
  const said = make("span", "");
  if (kube) said.append(make("span", "bad", kube), " · ");
  said.append(make("span", trouble ? "bad" : "quiet", states));
  said.title = node.says ?? slurm?.reason ?? "";
  const amounts = make("div", "amounts");
  row.replaceChildren(make("div", "top", make("b", "", name), said), amounts);
  for (const [label, key] of [["CPUs", "cpus"], ["GPUs", "devices"]]) {
    const pair = node[key] ?? slurm?.[key];
    if (!pair || !pair[1]) continue;
    const meter = make("meter");
    meter.max = pair[1];
    meter.value = pair[0];
    const line = make("div", "amount", make("span", "", label), meter, make("span", "", `${pair[0]}/${pair[1]}`));
    if (slurm) line.title = `pods take ${pair[0]} of ${pair[1]}; our Slurm jobs hold ${slurm[key][0]} of ${slurm[key][1]}`;
    amounts.append(line);
  }
}

function drawSides() {
  const { Kubernetes, Slurm, slurmdbd, bridge } = known.sides ?? {};
  if (!bridge) return;
  const about = known.about ?? {};
  const line = (name, lost, said) => {
    const made = make("li", lost ? "bad" : "", make("b", "", name), " ", make("span", "", lost ? "does not answer" : said));
    if (lost) made.title = lost;
    return made;
  };
  const polled = bridge.polled === null ? "not polled yet" : `polled ${span(Math.max(0.1, serverNow() - bridge.polled))} ago`;
  const life = about.life > 1 ? `life ${about.life}, ` : "";
  const missing = bridge.missing.length ? `waits for ${bridge.missing[0]}` : `${life}up ${age(bridge.started)}`;
  const self = make("li", bridge.missing.length ? "busy" : "", make("b", "", "bridge"), " ", make("span", "", missing));
  $("sides").replaceChildren(
    line("Kubernetes", Kubernetes.since !== null && Kubernetes.why, about.kubernetes ?? "answers"),
    line("Slurm", Slurm.since !== null && Slurm.why, [about.slurm, polled].filter(Boolean).join(", ")),
    self,
  );
  const lost = [Kubernetes, Slurm, slurmdbd].filter((side) => (side?.since ?? null) !== null);
  if (!disconnected) trouble(lost.map((side) => `${side.why} (since ${timeOf(side.since)})`).join("  "));
}

function trouble(text) {
  write($("trouble"), text);
  $("trouble").hidden = !text;
}

// --- what a demonstration adds ---

function drawFaults() {
  const entries = items("faults");
  $("faults-panel").hidden = !entries.length;
  rows($("faults"), entries, createFault, (button, fault) => {
    write(button, fault.label);
    button.title = fault.unavailable || fault.does;
    button.disabled = Boolean(fault.unavailable);
    if (fault.on === null) button.removeAttribute("aria-pressed");
    else button.setAttribute("aria-pressed", String(fault.on));
  });
}

function createFault(name) {
  const button = make("button");
  button.type = "button";
  button.dataset.fault = name;
  button.addEventListener("click", async () => {
    const answer = await fetch(`faults/${name}`, { method: "POST", headers: { "X-Slurm-Bridge": "dev" } }).catch(() => null);
    write($("note"), answer ? (await answer.json()).note : "Nobody answers.");
    $("note").hidden = false;
  });
  return button;
}

function drawPromises() {
  const entries = items("promises");
  $("promises-panel").hidden = !entries.length;
  rows($("promises"), entries, () => make("li"), (row, promise, name) => {
    const broken = promise.broken > 0;
    const mark = broken ? make("span", "mark bad", "✗") : make("span", promise.checked ? "mark run" : "mark quiet", promise.checked ? "✓" : "·");
    row.replaceChildren(mark, make("b", "", name), make("span", "", promise.says), make("span", "count", count(promise.checked)));
  });
  const broken = entries.reduce((sum, [, promise]) => sum + promise.broken, 0);
  write($("kept"), broken ? `${broken} broken` : "all kept · times checked");
  $("kept").className = broken ? "bad" : "quiet";
  const violations = items("violations").map(([, each]) => each);
  $("violations").hidden = !violations.length;
  $("violations").replaceChildren(...violations.map(({ at, what }) => make("li", "", make("time", "", timeOf(at)), what)));
}

function drawAbout() {
  const { title, commands } = known.about ?? {};
  write($("title"), title ?? "");
  $("try").hidden = !commands?.length;
  $("try").replaceChildren("Try it:", ...(commands ?? []).map((command) => make("code", "", command)));
}

const DRAW = {
  pods: drawPods,
  counts: () => (drawCounts(), drawPods()),
  nodes: drawNodes,
  sides: drawSides,
  faults: drawFaults,
  promises: drawPromises,
  violations: drawPromises,
  about: () => (drawAbout(), drawSides()),
};

// --- the stream ---

let disconnected = true;
let fresh = true;

// What was told last stays to be read; it is not said to be so any more, and nothing can be done about it.
function away(now) {
  disconnected = now;
  document.body.classList.toggle("away", now);
  $("faults").disabled = now;
}

function connect() {
  const stream = new EventSource("events");
  stream.onopen = () => (fresh = true);
  stream.onmessage = ({ data }) => {
    const { now, changed } = JSON.parse(data);
    if (fresh) for (const section of Object.keys(known)) known[section] = {}; // a new stream begins with everything
    const sections = new Set([...Object.keys(changed), ...(fresh ? Object.keys(known) : [])]);
    if (disconnected) trouble("");
    fresh = false;
    away(false);
    clockOffset = now - Date.now() / 1000;
    for (const [section, told] of Object.entries(changed)) {
      const kept = (known[section] ??= {});
      for (const [key, item] of Object.entries(told)) {
        if (item === null) delete kept[key];
        else kept[key] = item;
      }
    }
    for (const section of sections) DRAW[section]?.();
    if (sections.has("pods")) readDetail();
  };
  stream.onerror = () => {
    away(true);
    trouble("The bridge does not answer; trying again.");
    if (stream.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
  };
}

setInterval(() => {
  for (const cell of document.querySelectorAll("td.age")) write(cell, age(Number(cell.dataset.at)));
  if (!disconnected) {
    drawSides();
    readDetail();
  }
}, 1000);

connect();
