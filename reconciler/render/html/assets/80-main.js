// Light or dark: as the system says, until somebody switches.
function startTheme() {
  const root = document.documentElement, toggle = byId("theme"), system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  const show = () => { toggle.textContent = isDark() ? "Light" : "Dark"; toggle.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`); };
  try { const kept = localStorage.getItem("reconciler-theme"); if (kept === "light" || kept === "dark") root.dataset.theme = kept; } catch { /* no storage for files */ }
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("reconciler-theme", root.dataset.theme); } catch { /* for this view, then */ }
    show();
  });
  system.addEventListener("change", show);
  show();
}

// Links within the page leave the fragment alone, which holds what is shown.
function jump(id) {
  byId(id).scrollIntoView();
  byId(id).focus({ preventScroll: true });
}

function startJumps() {
  for (const link of document.querySelectorAll("[data-jump]")) {
    link.addEventListener("click", (event) => { event.preventDefault(); jump(link.hash.slice(1)); });
  }
}

listeners.push((changed) => {
  const filtered = has(changed, ...FILTERS);
  if (filtered) applyFilters();
  if (has(changed, "by")) { fillPlaces(); buildMap(); }
  if (filtered || has(changed, "by", "colour", "node")) colourMap();
  if (has(changed, "colour")) showLegend();
  if (filtered) page = 0;
  if (filtered || has(changed, "by", "view")) showTable();
  if (has(changed, ...FILTERS, "by", "colour", "view")) showFilters();
  if (has(changed, "node")) showNode();
});

function start() {
  readFragment();
  startTheme();
  startJumps();
  startFilters();
  applyFilters();
  byId("filters").hidden = byId("bar").hidden = byId("hint").hidden = false;
  buildMap();
  colourMap();
  showLegend();
  startMap();
  startTable();
  startNode();
  showTable();
  showFilters();
  showNode();
  window.addEventListener("hashchange", () => {
    const before = { ...state };
    readFragment();
    const changed = new Set(Object.keys(state).filter((key) => state[key] !== before[key]));
    for (const listener of listeners) listener(changed);
  });
}
start();
