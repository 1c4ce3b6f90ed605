"use strict";
(() => {
  const root = document.documentElement;
  const one = (query, within = document) => within.querySelector(query);
  const all = (query, within = document) => [...within.querySelectorAll(query)];
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  let data, stops, playing = 0;

  const formatNumber = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    const text = size >= 1e6 || (size > 0 && size < 1e-3) ? value.toExponential(2)
      : size >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4)));
    return text.replace("-", "−");
  };
  const duration = (s) => s < 120 ? `${formatNumber(s)} s` : s < 7200 ? `${formatNumber(s / 60)} min`
    : s < 172800 ? `${formatNumber(s / 3600)} h` : `${formatNumber(s / 86400)} d`;
  // The horizontal axis of all charts: "kimg" or "seconds".
  const axis = () => one("[name=axis]:checked").value;
  const along = (value) => axis() === "kimg" ? `${formatNumber(value)} kimg` : duration(value);
  const place = (at) => `step ${at.step.toLocaleString("en")} · ${along(at[axis()])}`;

  // Samples of one run or several: the frames of a stop of the slider, and their positions on every chart.
  const show = (index) => {
    const frames = data.tracks.map((track, n) => track[stops[index][n]]);
    const latest = frames.reduce((a, b) => (b.kimg > a.kimg ? b : a));
    const text = frames.length > 1 ? `up to ${formatNumber(latest.kimg)} kimg` : place(latest);
    for (const image of all("[data-track]")) {
      const frame = frames[image.dataset.track], at = one(`[data-place="${image.dataset.track}"]`);
      image.src = frame.src;
      image.alt = image.alt.replace(/step [\d,]+/, `step ${frame.step}`);
      if (at) at.textContent = place(frame);
    }
    one("#at").textContent = text;
    one("#time").value = index;
    one("#time").setAttribute("aria-valuetext", text);
    for (const svg of all("svg[data-left]")) {
      all(".frame", svg).forEach((line, n) => {
        const x = across(svg, frames[n][axis()]);
        line.setAttribute("x1", x);
        line.setAttribute("x2", x);
      });
    }
  };
  const pause = () => {
    clearInterval(playing);
    playing = 0;
    if (one("#play")) { one("#play").textContent = "▶"; one("#play").setAttribute("aria-label", "Play the animation"); }
  };
  const play = () => {
    const last = stops.length - 1;
    if (Number(one("#time").value) >= last) show(0);
    one("#play").textContent = "❚❚";
    one("#play").setAttribute("aria-label", "Pause the animation");
    playing = setInterval(() => {
      const next = Number(one("#time").value) + 1;
      show(next);
      if (next >= last) pause();
    }, calm.matches ? 1000 : 130);
  };

  // Charts: the position under the pointer or the arrow keys, with its values on all of them.
  const across = (svg, value) => {
    const left = Number(svg.dataset.left), right = Number(svg.dataset.right);
    return left + (right - left) * Math.min(1, value / data.end[axis()]);
  };
  // Number of positions up to a value, and the index of the nearest one.
  const countTo = (xs, value) => {
    let low = 0, high = xs.length;
    while (low < high) { const middle = (low + high) >> 1; if (xs[middle] <= value) low = middle + 1; else high = middle; }
    return low;
  };
  const nearest = (xs, value) => {
    const after = Math.min(countTo(xs, value), xs.length - 1), before = Math.max(0, after - 1);
    return value - xs[before] < xs[after] - value ? before : after;
  };
  const linesOf = (figure) => data.charts[figure.dataset.chart].map((line) => ({ ...line, at: data.places[line.places] }));
  // Latest value of a line up to there: none before its first point, nor long after its last one, as in the tables;
  // of several runs, none after the end of a run.
  const valueAt = (line, here) => {
    const xs = line.at[axis()], n = countTo(xs, here) - 1, end = xs.length - 1;
    return n >= 0 && here <= xs[end] + (end && data.one_run ? 0.9 * (xs[end] - xs[end - 1]) : 0) ? line.values[n] : null;
  };
  const read = (value) => {
    for (const figure of all("figure.chart")) {
      const lines = linesOf(figure), svg = one("svg", figure), cursor = one(".cursor", svg);
      const found = lines.filter((line) => line.at.step.length).map(({ at }) => {
        const index = nearest(at[axis()], value);
        return { step: at.step[index], kimg: at.kimg[index], seconds: at.seconds[index], far: Math.abs(at[axis()][index] - value) };
      }).sort((a, b) => a.far - b.far)[0];
      if (!found) continue;
      const here = found[axis()], x = across(svg, here);
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      const spans = lines.map((line) => {
        const part = document.createElement("span"), number = document.createElement("b");
        number.textContent = formatNumber(valueAt(line, here));
        part.append(lines.length > 1 ? `${line.label} ` : "", number);
        return part;
      });
      one(".readout", figure).replaceChildren(...spans, data.one_run ? place(found) : along(here));
      figure.classList.add("reading");
    }
  };
  const unread = () => all(".reading").forEach((figure) => {
    figure.classList.remove("reading");
    one(".readout", figure).removeAttribute("aria-live");
  });
  const listen = (figure) => {
    const svg = one("svg", figure), track = linesOf(figure).map((line) => line.at).reduce((a, b) => (b.step.length > a.step.length ? b : a));
    let index = track.step.length - 1;
    const under = (event) => {
      const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
      const left = Number(svg.dataset.left), right = Number(svg.dataset.right);
      return ((event.clientX - box.left) * scale - left) / (right - left) * data.end[axis()];
    };
    svg.addEventListener("pointermove", (event) => {
      const value = under(event);
      if (track.step.length) index = nearest(track[axis()], value);
      read(value);
    });
    svg.addEventListener("pointerleave", () => { if (document.activeElement !== svg) unread(); });
    svg.addEventListener("blur", unread);
    svg.addEventListener("keydown", (event) => {
      const last = track.step.length - 1;
      const to = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: last }[event.key];
      if (event.key === "Escape") unread();
      if (to === undefined || last < 0) return;
      event.preventDefault();
      one(".readout", figure).setAttribute("aria-live", "polite");
      index = Math.max(0, Math.min(last, to));
      read(track[axis()][index]);
    });
  };

  const copy = async (button) => {
    const code = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  };

  const begin = (index) => {
    data = JSON.parse(one("#data").textContent);
    stops = data.stops;
    all("figure.chart").forEach(listen);
    all(".copy").forEach((button) => button.addEventListener("click", () => copy(button)));
    if (!stops.length) return;
    one("#time").addEventListener("input", (event) => { pause(); show(Number(event.target.value)); });
    one("#play").addEventListener("click", () => (playing ? pause() : play()));
    show(index === undefined ? stops.length - 1 : index);
  };

  all("[name=axis]").forEach((button) => button.addEventListener("change", () => {
    unread();
    if (stops.length) show(Number(one("#time").value));
  }));

  // Theme: that of the system, unless the user selects the other one.
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  try { const stored = localStorage.getItem("paragan-theme"); if (stored === "dark" || stored === "light") root.dataset.theme = stored; } catch { /* storage is not available */ }
  one("#theme").addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("paragan-theme", root.dataset.theme); } catch { /* storage is not available */ }
  });

  // While the run lasts, a newer page replaces this one in place; slider, open tables and focus are preserved.
  const swap = (text) => {
    const page = new DOMParser().parseFromString(text, "text/html");
    const was = stops.length ? { at: Number(one("#time").value), step: data.tracks[0][Number(one("#time").value)].step } : undefined;
    const followed = !was || was.at === stops.length - 1, focused = document.activeElement && document.activeElement.id;
    const open = new Set(all("details[open]").map((details) => details.dataset.keep));
    pause();
    one("#page").replaceWith(document.adoptNode(one("#page", page)));
    document.title = page.title;
    all("details").forEach((details) => { details.open = open.has(details.dataset.keep); });
    const frames = JSON.parse(one("#data").textContent).tracks[0] || [];
    begin(followed ? undefined : Math.max(0, frames.findLastIndex((frame) => frame.step <= was.step)));
    if (focused && one(`#${focused}`)) one(`#${focused}`).focus({ preventScroll: true });
    return "reloads" in page.documentElement.dataset;
  };
  let version, isRunning = "reloads" in root.dataset;
  const poll = async () => {
    const started = performance.now();
    try {
      if (!document.hidden && !playing && !one(".reading")) {
        const { headers } = await fetch(location.href, { method: "HEAD", cache: "no-store" });
        // with the length: the time is in whole seconds
        const newest = `${headers.get("last-modified")} ${headers.get("content-length")}`;
        if (newest !== version) isRunning = swap(await (await fetch(location.href, { cache: "no-store" })).text());
        version = newest;
      }
    } catch { /* the server is unreachable or busy: retry */ }
    if (isRunning) setTimeout(poll, Math.max(2000, 4 * (performance.now() - started)));
  };
  begin();
  if (isRunning && location.protocol !== "file:") poll();
})();
