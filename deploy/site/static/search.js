// Search in the index of all sections, which is loaded when somebody searches.
const field = document.getElementById("search");
const list = document.getElementById("results");

function load() {
  if (searchIndex || document.getElementById("index")) return;
  const script = document.createElement("script");
  script.id = "index";
  script.src = siteRoot + "search-index.js";
  script.onload = show;
  document.head.append(script);
}

// search returns the best sections for a query: all its words must occur.
function search(index, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = [];
  for (const part of words.length ? index : []) {
    const title = part.t.toLowerCase();
    const text = part.x.toLowerCase();
    let score = 0;
    for (const word of words) {
      const inTitle = title.includes(word);
      if (!inTitle && !text.includes(word)) {
        score = -1;
        break;
      }
      score += inTitle ? 10 : Math.min(text.split(word).length - 1, 5);
    }
    if (score > 0) found.push({ part, score });
  }
  return found.sort((a, b) => b.score - a.score || a.part.u.localeCompare(b.part.u)).slice(0, 20).map((f) => f.part);
}

// excerpt returns the text around the first word of a query.
function excerpt(text, query) {
  const word = query.toLowerCase().split(/\s+/)[0];
  const from = Math.max(0, text.toLowerCase().indexOf(word) - 60);
  return (from > 0 ? "... " : "") + text.slice(from, from + 160);
}

function show() {
  list.replaceChildren();
  list.hidden = !searchIndex || !field.value.trim();
  if (list.hidden) return;
  for (const part of search(searchIndex, field.value)) {
    const link = document.createElement("a");
    link.href = siteRoot + part.u;
    link.textContent = part.t;
    const small = document.createElement("small");
    small.textContent = excerpt(part.x, field.value);
    link.append(small);
    const entry = document.createElement("li");
    entry.append(link);
    list.append(entry);
  }
  if (!list.children.length) list.textContent = "Nothing found";
}

field.addEventListener("focus", load);
field.addEventListener("input", show);
document.addEventListener("keydown", (e) => {
  if (e.key === "/" && document.activeElement !== field) {
    e.preventDefault();
    field.focus();
  }
  if (e.key === "Escape") list.hidden = true;
});
