// Draws the sections that the bridge sends, as they change.  The server sends changed items, and null for items that are
// gone.  Everything is drawn from `known`.  Text is always set as text, never as HTML.

// A browser may forbid storage, and then each use of it raises an exception: what is stored lasts as long as the page.
function storage(name) {
  try {
    return window[name];
  } catch {
    const kept = new Map();
    return { getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value), removeItem: (key) => kept.delete(key) };
  }
}
const [lasting, ofTab] = [storage("localStorage"), storage("sessionStorage")];

const known = {};
const dictionary = () => Object.create(null); // a node may be named __proto__
let clockOffset = 0; // the server's clock minus the browser's clock, seconds
let chosen = null; // key of the selected workload
let chosenByHand = false;
let chosenUid = null; // UID of the pod whose row the user chose
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

// Shows the entries as rows, in their order.  The row of a key is made once, and changed in place.
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
const count = (number) => number.toLocaleString("en-US");

// The place of each phase in the table.
const PLACES = { orphaned: 0, granted: 1, gathering: 2, unsubmitted: 2, queued: 2, bound: 3, done: 4 };
const placeIn = (phase) => PLACES[phase] ?? 5;

// The colours of the words for states; a word that is missing here is of a waiting pod.
const STATE_COLOURS = {
  Granted: "go", Starting: "go", Running: "run", Completed: "end", Ending: "end",
  Refused: "bad", Failed: "bad", Stopped: "bad", Crashing: "bad", Suspended: "bad", "Job ended": "bad",
};

// --- a list that has only the rows in view ---

// All rows have the same height.  `draw` makes the rows of the entries in view, and moves them to their place.
class VirtualList {
  constructor(scroll, room, body, height, create, update) {
    Object.assign(this, { scroll, room, body, height, create, update, entries: [] });
    scroll.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(scroll);
  }

  show(entries) {
    this.entries = entries;
    this.draw();
  }

  draw() {
    const height = this.height();
    const inView = Math.ceil(this.scroll.clientHeight / height) + 2 * SPARE;
    const last = Math.max(0, this.entries.length - inView);
    const first = Math.max(0, Math.min(last, Math.floor(this.scroll.scrollTop / height) - SPARE));
    const total = `${this.entries.length * height + this.above()}px`;
    const moved = `${first * height}px`;
    if (this.room.style.height !== total) this.room.style.height = total;
    if (this.room.style.paddingTop !== moved) this.room.style.paddingTop = moved;
    rows(this.body, this.entries.slice(first, first + inView), this.create, this.update);
  }

  above() {
    return this.body.closest("table")?.tHead.offsetHeight ?? 0;
  }

  // Scrolls as little as needed to show the entry.
  reveal(place) {
    const height = this.height();
    const [top, bottom] = [place * height, (place + 1) * height + this.above()];
    if (top < this.scroll.scrollTop) this.scroll.scrollTop = top;
    else if (bottom > this.scroll.scrollTop + this.scroll.clientHeight) this.scroll.scrollTop = bottom - this.scroll.clientHeight;
    this.draw();
  }
}
const SPARE = 8; // rows above and below those in view
const px = (name) => parseFloat(getComputedStyle(document.documentElement).getPropertyValue(name));
let rowHeight = 0;
let nodeHeight = 0;
function measure() {
  rowHeight = px("--row");
  nodeHeight = px("--node");
}

// --- pods ---

// Computed again only if a pod changes: the place of its row, and the text that the filter searches.
const places = new Map();
let ordered = []; // the results of placeOf for all pods, in the order of the table
let shownPods = []; // [uid, pod] of the pods that match the filter

const FIELDS = {
  ns: (pod) => pod.namespace,
  name: (pod) => pod.name,
  job: (pod) => `${pod.job ?? ""}`,
  state: (pod) => `${oneWord(pod.word)} ${pod.state}`,
  user: (pod) => pod.user,
  node: (pod) => pod.node,
  reason: (pod) => oneWord(pod.reason ?? ""),
  is: (pod) => LABELS[placeIn(pod.phase)] ?? "",
};
const EXACT = new Set(["node", "job", "reason", "ns", "user", "is"]);
const oneWord = (text) => text.replace(/\s+/g, "_"); // the filter is split at spaces
const LABELS = { 0: "ending", 1: "granted", 2: "waiting", 3: "running", 4: "ended" };

function placeOf(uid, pod) {
  const kept = places.get(uid);
  if (kept?.pod === pod) return kept;
  const place = placeIn(pod.phase);
  const fields = Object.fromEntries(Object.entries(FIELDS).map(([name, of]) => [name, String(of(pod)).toLowerCase()]));
  const made = { uid, pod, place, at: place === 2 ? pod.created : -pod.created, fields };
  made.text = `${Object.values(fields).join(" ")} ${String(pod.why).toLowerCase()}`;
  places.set(uid, made);
  return made;
}

function order() {
  const pods = known.pods ?? {};
  const all = [];
  for (const uid in pods) all.push(placeOf(uid, pods[uid]));
  if (places.size > all.length) for (const uid of places.keys()) if (!(uid in pods)) places.delete(uid);
  all.sort((a, b) => a.place - b.place || a.at - b.at || (a.pod.name < b.pod.name ? -1 : a.pod.name > b.pod.name ? 1 : 0));
  ordered = all;
}

function matcher(text) {
  const tests = text.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const [field, ...rest] = word.split(":");
    const wanted = rest.join(":");
    if (!rest.length || !Object.hasOwn(FIELDS, field)) return (place) => place.text.includes(word);
    return EXACT.has(field) ? (place) => place.fields[field] === wanted : (place) => place.fields[field].includes(wanted);
  });
  return (place) => tests.every((test) => test(place));
}

function drawPods() {
  order();
  const first = ordered[0]?.pod.namespace;
  $("pods").classList.toggle("spaces", ordered.some(({ pod }) => pod.namespace !== first));
  filterPods();
  drawQueue();
  drawStanding();
}

function filterPods() {
  const wanted = $("filter").value.trim();
  const found = wanted ? ordered.filter(matcher(wanted)) : ordered;
  shownPods = found.map((place) => [place.uid, place.pod]);
  podList.show(shownPods);
  const all = Object.values(known.counts ?? {}).reduce((sum, each) => sum + each, 0);
  const left = Math.max(0, all - ordered.length);
  const note = known.about?.note;
  let says = "";
  if (note) says = note;
  else if (wanted) says = `${count(found.length)} of ${count(ordered.length)} pods${left ? `; ${count(left)} more are not listed` : ""}`;
  else if (left) says = `and ${count(left)} more`;
  else if (!ordered.length) says = "No pods yet.";
  $("none").hidden = !says;
  write($("none"), says);
  if (!chosenByHand && shownPods.length) {
    const stillThere = chosen !== null && ordered.some(({ pod }) => pod.key === chosen && pod.phase !== "done");
    const best = shownPods.find(([, pod]) => pod.phase === "bound") ?? shownPods[0];
    if (!stillThere) choose(best[1].key);
  }
}

function createPod(uid) {
  const row = make("tr");
  row.dataset.uid = uid;
  for (const name of ["name", "kind", "job", "node", "why", "age number"]) row.append(make("td", name));
  row.addEventListener("click", () => chooseByHand(row.dataset.uid));
  return row;
}

function updatePod(row, pod) {
  const [nameCell, kind, job, node, why, since] = row.cells;
  write(nameCell, pod.name);
  nameCell.dataset.ns = pod.namespace;
  nameCell.title = `${pod.namespace}/${pod.name}`;
  kind.replaceChildren(make("span", `phase ${STATE_COLOURS[pod.word] ?? "wait"}`, pod.word));
  job.replaceChildren(...(pod.job === null ? [] : [`${pod.job} `, make("span", "state", pod.state)]));
  job.title = pod.user ? `as Slurm user ${pod.user}` : "";
  write(node, pod.node);
  write(why, pod.why);
  why.title = pod.why;
  since.dataset.at = pod.created;
  write(since, age(pod.created));
  row.className = pod.phase === "done" ? "over" : "";
  markRow(row, pod);
}

// All pods of the chosen workload are selected; the row that the user chose has a mark.
function markRow(row, pod) {
  row.setAttribute("aria-selected", String(pod?.key === chosen));
  row.classList.toggle("current", row.dataset.uid === chosenUid);
}

const podList = new VirtualList($("pods-scroll"), $("pods-room"), $("pods").tBodies[0], () => rowHeight, createPod, updatePod);

function drawCounts() {
  const sums = new Map();
  for (const [phase, number] of items("counts")) {
    const label = LABELS[placeIn(phase)] ?? phase;
    sums.set(label, (sums.get(label) ?? 0) + number);
  }
  const shown = ["waiting", "granted", "running", "ending", "ended"].filter((label) => sums.get(label));
  rows($("counts"), shown.map((label) => [label, sums.get(label)]), createCount, (row, number, label) =>
    row.firstChild.replaceChildren(make("b", "", count(number)), ` ${label}`));
}

function createCount(label) {
  const button = make("button", "plain");
  button.type = "button";
  button.addEventListener("click", () => toggleFilter(`is:${label}`));
  return make("li", "", button);
}

// --- the filter ---

function setFilter(text) {
  $("filter").value = text;
  $("pods-scroll").scrollTop = 0;
  filterPods();
}

function toggleFilter(word) {
  setFilter($("filter").value.trim() === word ? "" : word);
}
$("filter").addEventListener("input", () => setFilter($("filter").value));

// --- why pods wait ---

function drawQueue() {
  const reasons = new Map();
  let waiting = 0;
  for (const { pod, place } of ordered) {
    if (place !== 2) continue;
    waiting += 1;
    const reason = pod.reason || pod.word;
    const kept = reasons.get(reason) ?? { pods: 0, since: Infinity, why: pod.why, word: pod.reason ? `reason:${oneWord(reason)}` : `state:${oneWord(pod.word)}` };
    kept.pods += 1;
    if (pod.created < kept.since) Object.assign(kept, { since: pod.created, why: pod.why });
    reasons.set(reason, kept);
  }
  const entries = [...reasons].sort(([, a], [, b]) => b.pods - a.pods).slice(0, MOST_REASONS);
  $("queue-panel").hidden = !entries.length;
  write($("queue-total"), entries.length ? `${count(waiting)} pods` : "");
  rows($("queue"), entries, createReason, (row, { pods, since, why, word }, reason) => {
    const [button] = row.children;
    button.dataset.word = word;
    button.title = why;
    const old = make("span", "quiet number age", age(since));
    old.dataset.at = since;
    button.replaceChildren(make("b", "number", count(pods)), make("span", "", reason), old);
  });
}
const MOST_REASONS = 12;

function createReason() {
  const button = make("button", "plain");
  button.type = "button";
  button.addEventListener("click", () => toggleFilter(button.dataset.word));
  return make("li", "", button);
}

// --- one workload ---

function choose(key) {
  chosen = key;
  for (const row of $("pods").tBodies[0].rows) {
    markRow(row, known.pods[row.dataset.uid]);
  }
  readDetail();
}

function chooseByHand(uid) {
  if (!known.pods[uid]) return;
  chosenByHand = true;
  chosenUid = uid;
  choose(known.pods[uid].key);
}

function step(by) {
  if (!shownPods.length) return;
  const same = shownPods.findIndex(([uid]) => uid === chosenUid);
  const now = same >= 0 ? same : shownPods.findIndex(([, pod]) => pod.key === chosen);
  const place = Math.max(0, Math.min(shownPods.length - 1, now + by));
  podList.reveal(place);
  chooseByHand(shownPods[place][0]);
}

let reading = false;
async function readDetail() {
  if (chosen === null || reading) return;
  reading = true;
  const wanted = chosen;
  try {
    const answer = await fetch(`workloads/${encodeURIComponent(wanted)}`, { headers: authorization() });
    const content = answer.ok ? await answer.json() : null;
    if (wanted !== chosen) return; // another workload was chosen meanwhile
    if (content) drawDetail(content);
    else if (answer.status === 404) chosenByHand = false; // the bridge forgot the workload: choose another
  } catch {
    // the stream shows that the bridge does not answer
  } finally {
    reading = false;
    if (wanted !== chosen) readDetail();
  }
}

const COLOURS = { "waiting for Slurm": "wait", "created → asked Slurm": "wait", runs: "run", "job ended": "end" };

function drawDetail({ story, waterfall, waits = "" }) {
  const byHand = known.pods[chosenUid];
  const pod = byHand?.key === chosen ? byHand : ordered.find((each) => each.pod.key === chosen)?.pod;
  if (pod) write($("detail-pod"), `of pod ${pod.namespace}/${pod.name}${pod.job === null ? "" : `, Slurm job ${pod.job}`}`);
  write($("waits"), waits);
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

const podsOn = new Map(); // names of pods by node

function drawStanding() {
  podsOn.clear();
  for (const { pod } of ordered) {
    if (!pod.node || pod.phase === "done") continue;
    const there = podsOn.get(pod.node);
    if (there) there.push(pod.name);
    else podsOn.set(pod.node, [pod.name]);
  }
  drawNodes();
}

let nodesInOrder = [];
const byNumber = new Intl.Collator("en", { numeric: true });
function sortNodes() {
  nodesInOrder = Object.keys(known.nodes ?? {}).sort(byNumber.compare);
}

function drawNodes() {
  nodeList.show(nodesInOrder.map((name) => [name, { ...known.nodes[name], names: (podsOn.get(name) ?? []).slice(0, MOST_NAMES), podCount: podsOn.get(name)?.length ?? 0 }]));
  write($("nodes-total"), nodesInOrder.length > 8 ? `${count(nodesInOrder.length)}; taken of what there is` : "taken of what there is");
}
const MOST_NAMES = 8;

function createNode(name) {
  const row = make("li");
  const button = make("button", "plain stands");
  button.type = "button";
  button.addEventListener("click", () => toggleFilter(`node:${name}`));
  row.append(make("div", "top"), make("div", "amounts"), button);
  return row;
}

// States as scontrol writes them, the base state first: IDLE+DRAIN.
const BASES = ["IDLE", "MIXED", "ALLOCATED", "DOWN", "ERROR", "FUTURE", "UNKNOWN"];
function statesOf({ states }) {
  const shown = states.filter((state) => !["EXTERNAL", "DYNAMIC_NORM"].includes(state));
  return shown.sort((a, b) => BASES.includes(b) - BASES.includes(a)).join("+");
}

function updateNode(row, node, name) {
  const slurm = node.slurm;
  const states = slurm ? statesOf(slurm) : "not in Slurm";
  const trouble = /DRAIN|DOWN|FAIL|NOT_RESPONDING/.test(states);
  const kube = node.ready === undefined ? "not in Kubernetes" : !node.ready ? "NotReady" : node.cordoned ? "cordoned" : "";
  const said = make("span", "");
  if (kube) said.append(make("span", "bad", kube), " · ");
  said.append(make("span", trouble ? "bad" : "quiet", states));
  if (trouble && slurm.reason) said.append(make("span", "quiet", ` · ${slurm.reason}`));
  said.title = node.says ?? slurm?.reason ?? "";
  const [top, amounts, stands] = row.children;
  top.replaceChildren(make("b", "", name), said);
  amounts.replaceChildren();
  const more = node.podCount - node.names.length;
  write(stands, node.podCount ? `${node.names.join(", ")}${more ? ` and ${count(more)} more` : ""}` : "");
  stands.title = node.podCount ? `${count(node.podCount)} pods; show them in the table` : "";
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

const nodeList = new VirtualList($("nodes-scroll"), $("nodes-room"), $("nodes"), () => nodeHeight, createNode, updateNode);

function drawSides() {
  const { Kubernetes, Slurm, slurmdbd, bridge } = known.sides ?? {};
  if (!bridge) {
    $("sides").replaceChildren();
    return;
  }
  const about = known.about ?? {};
  const line = (name, lost, said) => {
    const made = make("li", lost ? "bad" : "", make("b", "", name), " ", make("span", "", lost ? "does not answer" : said));
    if (lost) made.title = lost;
    return made;
  };
  const polled = bridge.polled === null ? "not polled yet" : `polled ${span(Math.max(0.1, serverNow() - bridge.polled))} ago`;
  const process = about.process > 1 ? `process ${about.process}, ` : "";
  const missing = bridge.missing.length ? `waits for ${bridge.missing[0]}` : `${process}up ${age(bridge.started)}`;
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

// --- latency over time ---

// p50 and p90 from "created" to bound, by minute, on a logarithmic scale.
function drawLatency() {
  const minutes = items("latency").map(([at, each]) => [Number(at), each.created]).filter(([, each]) => each).sort(([a], [b]) => a - b);
  $("latency-panel").hidden = !minutes.length;
  if (!minutes.length) return;
  const values = minutes.flatMap(([, each]) => [each.p50, each.p90]);
  const [low, high] = [Math.log(Math.min(...values) / 1.5), Math.log(Math.max(...values) * 1.5)];
  const [from, to] = [minutes[0][0], Math.max(minutes.at(-1)[0], minutes[0][0] + 60)];
  const point = (name) => ([at, each]) => `${(4 + (292 * (at - from)) / (to - from)).toFixed(1)},${(66 - (62 * (Math.log(each[name]) - low)) / (high - low)).toFixed(1)}`;
  const drawn = ["p90", "p50"].map((name) => {
    const line = document.createElementNS($("latency").namespaceURI, "polyline");
    line.setAttribute("class", name);
    const points = minutes.map(point(name));
    line.setAttribute("points", points.length > 1 ? points.join(" ") : `${points[0]} ${points[0].replace(/^[\d.]+/, "296")}`);
    return line;
  });
  $("latency").replaceChildren(...drawn);
  const newest = minutes.at(-1);
  write($("latency-says"), `created → bound, ${minutes.length} min`);
  const granted = known.latency[newest[0]]?.granted;
  const legend = `at ${timeOf(newest[0]).slice(0, 5)}: ${count(newest[1].n)} pods, half within ${span(newest[1].p50)}, nine tenths within ${span(newest[1].p90)}, all within ${span(newest[1].max)}`;
  write($("latency-legend"), granted ? `${legend}; granted → bound ${span(granted.p50)}` : legend);
}

// --- sections of slurm-bridge dev ---

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
    write($("note"), answer ? (await answer.json()).note : "The bridge does not answer.");
    $("note").hidden = false;
  });
  return button;
}

function drawInvariants() {
  const entries = items("invariants");
  $("invariants-panel").hidden = !entries.length;
  rows($("invariants"), entries, () => make("li"), (row, invariant, name) => {
    const broken = invariant.broken > 0;
    const mark = broken ? make("span", "mark bad", "✗") : make("span", invariant.checked ? "mark run" : "mark quiet", invariant.checked ? "✓" : "·");
    row.replaceChildren(mark, make("b", "", name), make("span", "", invariant.says), make("span", "count", count(invariant.checked)));
  });
  const broken = entries.reduce((sum, [, invariant]) => sum + invariant.broken, 0);
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

// Sections and the function that draws them.  In each draw, a function runs at most once, in this order.
const DRAW = [
  [["about"], drawAbout],
  [["nodes"], () => (sortNodes(), drawNodes())],
  [["counts"], drawCounts],
  [["pods", "counts", "about"], drawPods],
  [["sides", "about"], drawSides],
  [["latency"], drawLatency],
  [["faults"], drawFaults],
  [["invariants", "violations"], drawInvariants],
];

// --- the stream ---

let disconnected = true;
let fresh = true;

// While the bridge does not answer, the last state stays on the page, marked as old, and the fault buttons are disabled.
function away(now) {
  disconnected = now;
  document.body.classList.toggle("away", now);
  $("faults").disabled = now;
}

// The token is in the session storage of this tab alone, and never in an address.
const TOKEN = "slurm-bridge-token";
function authorization() {
  const token = ofTab.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  ofTab.setItem(TOKEN, $("token").value.trim().replace(/[^\x21-\x7e]/g, ""));
  $("token").value = "";
  connect();
});

function askForToken() {
  write($("token-wrong"), ofTab.getItem(TOKEN) ? "The bridge does not accept this token." : "");
  ofTab.removeItem(TOKEN);
  away(true);
  trouble("");
  write($("none"), "Give the token to see pods.");
  $("token-form").hidden = false;
  $("token").focus();
}

let stream = null;
let lastRead = 0; // when something was last read from the stream
const SILENT_MS = 45000; // the bridge writes an empty line every 15 s

async function connect() {
  try {
    stream = new AbortController();
    lastRead = Date.now();
    const answer = await fetch("events", { headers: authorization(), cache: "no-store", signal: stream.signal });
    if (answer.status === 401) return askForToken();
    $("token-form").hidden = true;
    if (!answer.ok) throw new Refused((await answer.text()).trim() || `The bridge answers ${answer.status}.`);
    fresh = true;
    await listen(answer.body.pipeThrough(new TextDecoderStream()).getReader());
    throw new Error("the stream ended");
  } catch (error) {
    away(true);
    trouble(error instanceof Refused ? error.message : "The bridge does not answer; trying again.");
    setTimeout(connect, 2000);
  }
}

class Refused extends Error {}

// Lines of JSON; an empty line says that the bridge still answers.
async function listen(reader) {
  let parts = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    lastRead = Date.now();
    let from = 0;
    for (let end; (end = value.indexOf("\n", from)) >= 0; from = end + 1) {
      parts.push(value.slice(from, end));
      const line = parts.join("");
      parts = [];
      if (line) receive(JSON.parse(line));
    }
    if (from < value.length) parts.push(value.slice(from));
  }
}

const toDraw = new Set();
let drawing = false;
const times = (window.updates = []); // milliseconds of the main thread for each of the last updates

function receive({ now, changed }) {
  const began = performance.now();
  if (fresh) for (const section of Object.keys(known)) (known[section] = dictionary()), toDraw.add(section); // a new stream begins with everything
  if (disconnected) trouble("");
  fresh = false;
  if (disconnected) away(false);
  clockOffset = now - Date.now() / 1000;
  for (const [section, items] of Object.entries(changed)) {
    const kept = (known[section] ??= dictionary());
    for (const [key, item] of Object.entries(items)) {
      if (item === null) delete kept[key];
      else kept[key] = item;
    }
    toDraw.add(section);
  }
  if (!drawing) {
    drawing = true;
    setTimeout(draw, 0); // many messages are drawn at once
  }
  note(began);
}

function draw() {
  const began = performance.now();
  drawing = false;
  for (const [sections, of] of DRAW) if (sections.some((section) => toDraw.has(section))) of();
  if (toDraw.has("pods")) readDetail();
  if (shownPods.length && !performance.getEntriesByName("rows").length) performance.mark("rows");
  toDraw.clear();
  note(began);
}

function note(began) {
  times.push(performance.now() - began);
  if (times.length > 200) times.shift();
}

setInterval(() => {
  for (const cell of document.querySelectorAll(".age[data-at]")) write(cell, age(Number(cell.dataset.at)));
  if (disconnected) return;
  if (Date.now() - lastRead > SILENT_MS) stream.abort();
  drawSides();
  readDetail();
}, 1000);

// --- keyboard ---

const THEMES = ["system", "light", "dark"];
function useTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  write($("theme"), `Theme: ${theme}`);
}
function nextTheme() {
  const theme = THEMES[(THEMES.indexOf(lasting.getItem("theme") ?? "system") + 1) % THEMES.length];
  lasting.setItem("theme", theme);
  useTheme(theme);
}

const KEYS = {
  "/": () => $("filter").select(),
  j: () => step(1),
  k: () => step(-1),
  t: nextTheme,
  "?": () => $("help").showModal(),
  Escape: () => (document.activeElement === $("detail") ? $("pods-scroll").focus() : setFilter("")),
};
const TABLE_KEYS = { ArrowDown: () => step(1), ArrowUp: () => step(-1), Enter: () => $("detail").focus() };

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
  const inTable = document.activeElement === $("pods-scroll");
  if (event.target instanceof HTMLInputElement) {
    if (event.target !== $("filter") || !["Enter", "Escape"].includes(event.key)) return;
    if (event.key === "Escape") setFilter("");
    $("pods-scroll").focus();
  } else {
    const act = KEYS[event.key] ?? (inTable ? TABLE_KEYS[event.key] : undefined);
    if (!act) return;
    act();
  }
  event.preventDefault();
}
document.addEventListener("keydown", pressed);
$("theme").addEventListener("click", nextTheme);
$("help-button").addEventListener("click", () => $("help").showModal());
window.addEventListener("resize", () => (measure(), podList.draw(), nodeList.draw()));

write($("none"), "Connecting …");
useTheme(lasting.getItem("theme") ?? "system");
measure();
connect();
