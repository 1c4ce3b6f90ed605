"use strict";
(() => {
  const root = document.documentElement;
  const one = (query, within = document) => within.querySelector(query);
  const all = (query, within = document) => [...within.querySelectorAll(query)];
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  let data, images, playing = 0;

  const formatNumber = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    const text = size >= 1e6 || (size > 0 && size < 1e-3) ? value.toExponential(2)
      : size >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4)));
    return text.replace("-", "−");
  };
  const place = (step, kimg) => `step ${step.toLocaleString("en")} · ${formatNumber(kimg)} kimg`;

  // Sample animation: a frame by index, and its position on every chart.
  const show = (index) => {
    const frame = data.frames[index], image = one("#frame"), text = place(frame.step, frame.kimg);
    image.src = frame.src;
    image.alt = image.alt.replace(/step [\d,]+/, `step ${frame.step}`);
    one("#at").textContent = text;
    one("#time").value = index;
    one("#time").setAttribute("aria-valuetext", text);
    for (const svg of all("svg[data-left]")) {
      const x = across(svg, frame.kimg);
      one(".frame", svg).setAttribute("x1", x);
      one(".frame", svg).setAttribute("x2", x);
    }
  };
  const pause = () => {
    clearInterval(playing);
    playing = 0;
    if (one("#play")) { one("#play").textContent = "▶"; one("#play").setAttribute("aria-label", "Play the animation"); }
  };
  const play = () => {
    const last = data.frames.length - 1;
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
  const across = (svg, kimg) => {
    const left = Number(svg.dataset.left), right = Number(svg.dataset.right);
    return left + (right - left) * Math.min(1, kimg / data.kimg);
  };
  const nearest = (xs, kimg) => {
    let low = 0, high = xs.length - 1;
    while (high - low > 1) { const middle = (low + high) >> 1; if (xs[middle] < kimg) low = middle; else high = middle; }
    return Math.abs(xs[low] - kimg) <= Math.abs(xs[high] - kimg) ? low : high;
  };
  const read = (kimg) => {
    for (const figure of all("figure.chart")) {
      const chart = data.charts[figure.dataset.chart], svg = one("svg", figure), cursor = one(".cursor", svg);
      if (!chart.x.length) continue;
      const i = nearest(chart.x, kimg), x = across(svg, chart.x[i]), line = one(".readout", figure);
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      line.replaceChildren(...chart.labels.map((label, n) => {
        const part = document.createElement("span"), value = document.createElement("b");
        value.textContent = formatNumber(chart.lines[n][i]);
        part.append(chart.labels.length > 1 ? `${label} ` : "", value);
        return part;
      }), place(chart.step[i], chart.x[i]));
      figure.classList.add("reading");
    }
  };
  const unread = () => all(".reading").forEach((figure) => {
    figure.classList.remove("reading");
    one(".readout", figure).removeAttribute("aria-live");
  });
  const listen = (figure) => {
    const svg = one("svg", figure), chart = data.charts[figure.dataset.chart];
    let index = chart.x.length - 1;
    const under = (event) => {
      const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
      const left = Number(svg.dataset.left), right = Number(svg.dataset.right);
      return ((event.clientX - box.left) * scale - left) / (right - left) * data.kimg;
    };
    svg.addEventListener("pointermove", (event) => { const kimg = under(event); index = nearest(chart.x, kimg); read(kimg); });
    svg.addEventListener("pointerleave", () => { if (document.activeElement !== svg) unread(); });
    svg.addEventListener("blur", unread);
    svg.addEventListener("keydown", (event) => {
      const last = chart.x.length - 1;
      const to = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: last }[event.key];
      if (event.key === "Escape") unread();
      if (to === undefined || last < 0) return;
      event.preventDefault();
      one(".readout", figure).setAttribute("aria-live", "polite");
      index = Math.max(0, Math.min(last, to));
      read(chart.x[index]);
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
    images = data.frames.length;
    all("figure.chart").forEach(listen);
    all(".copy").forEach((button) => button.addEventListener("click", () => copy(button)));
    if (!images) return;
    one("#time").addEventListener("input", (event) => { pause(); show(Number(event.target.value)); });
    one("#play").addEventListener("click", () => (playing ? pause() : play()));
    show(index === undefined ? images - 1 : index);
  };

  // Theme: that of the system, unless the user selects the other one.
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  try { const stored = localStorage.getItem("paragan-theme"); if (stored === "dark" || stored === "light") root.dataset.theme = stored; } catch { /* storage is not available */ }
  one("#theme").addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("paragan-theme", root.dataset.theme); } catch { /* storage is not available */ }
  });

  // Live report: the new page replaces this one in place; slider, open tables and focus are preserved.
  const swap = (text) => {
    const page = new DOMParser().parseFromString(text, "text/html");
    const was = images ? { at: Number(one("#time").value), step: data.frames[Number(one("#time").value)].step } : undefined;
    const followed = !was || was.at === images - 1, focused = document.activeElement && document.activeElement.id;
    const open = new Set(all("details[open]").map((details) => details.dataset.keep));
    pause();
    one("#page").replaceWith(document.adoptNode(one("#page", page)));
    document.title = page.title;
    all("details").forEach((details) => { details.open = open.has(details.dataset.keep); });
    const frames = JSON.parse(one("#data").textContent).frames;
    begin(followed ? undefined : Math.max(0, frames.findLastIndex((frame) => frame.step <= was.step)));
    if (focused && one(`#${focused}`)) one(`#${focused}`).focus({ preventScroll: true });
  };
  let token = root.dataset.live;
  const poll = async () => {
    const started = performance.now();
    try {
      if (!document.hidden && !playing && !one(".reading")) {
        const state = await (await fetch("state", { cache: "no-store" })).json();
        if (state.token !== token) swap(await (await fetch("./", { cache: "no-store" })).text());
        token = state.token;
      }
    } catch { /* the server is unreachable or busy: retry */ }
    setTimeout(poll, Math.max(2000, 4 * (performance.now() - started)));
  };
  begin();
  if ("live" in root.dataset) poll();
})();
