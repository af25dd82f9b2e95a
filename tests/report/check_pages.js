// SPDX-License-Identifier: Apache-2.0
// What a reader would stumble over in a page: texts over each other, texts cut off, texts hard to read. Returns a list
// of lines, empty if all is well.
(() => {
  const least = 4.5; // contrast
  const smallest = 9; // pixels of a text's size
  const slack = 1; // pixels by which boxes may touch: they are higher than their letters
  const faults = [];
  const say = (what, text) => faults.push(`${what}: '${text.replace(/\s+/g, " ").slice(0, 60)}'`);

  // ---- texts, and the boxes of their lines ----

  const hidden = new Set(["STYLE", "SCRIPT", "TITLE", "DESC", "title", "desc", "style"]);
  const scrolls = (element) => /auto|scroll/.test(getComputedStyle(element).overflowX + getComputedStyle(element).overflowY);
  const clips = (element) => /hidden|clip/.test(getComputedStyle(element).overflowX + getComputedStyle(element).overflowY);
  const texts = [];
  const walker = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || hidden.has(element.tagName) || element.closest("head")) continue;
    const style = getComputedStyle(element);
    if (style.visibility !== "visible" || style.display === "none") continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const boxes = [...range.getClientRects()].filter((box) => box.width > 0 && box.height > 0);
    if (!boxes.length) continue;
    let scroller = element.parentElement;
    for (scroller = element; scroller && !scrolls(scroller); scroller = scroller.parentElement);
    texts.push({ node, element, style, boxes, scroller, text: node.data.trim() });
  }

  // ---- over each other ----

  const seen = (text, box) => { // what of it can be seen beside texts outside of its scroller
    if (!text.scroller) return box;
    const edge = text.scroller.getBoundingClientRect();
    return { left: Math.max(box.left, edge.left), right: Math.min(box.right, edge.right),
             top: Math.max(box.top, edge.top), bottom: Math.min(box.bottom, edge.bottom) };
  };
  const overlap = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > slack &&
                            Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > slack;
  const lines = texts.flatMap((text) => text.boxes.map((box) => ({ text, box }))).sort((a, b) => a.box.top - b.box.top);
  const told = new Set();
  for (let i = 0; i < lines.length; i++)
    for (let j = i + 1; j < lines.length; j++) {
      const a = lines[i], b = lines[j];
      if (a.text === b.text) continue;
      if (b.box.top >= a.box.bottom) break;
      const same = a.text.scroller === b.text.scroller;
      if (!overlap(same ? a.box : seen(a.text, a.box), same ? b.box : seen(b.text, b.box))) continue;
      const key = a.text.text + "\n" + b.text.text;
      if (!told.has(key)) say("overlap", a.text.text + "' and '" + b.text.text);
      told.add(key);
    }

  // ---- cut off ----

  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth)
    say("too wide", `the page is ${root.scrollWidth} pixels wide in a window of ${root.clientWidth}`);
  for (const text of texts)
    for (const box of text.boxes) {
      let fault = null;
      if (!text.scroller && (box.left < -slack || box.right > root.clientWidth + slack || box.top + scrollY < -slack))
        fault = "outside of the page";
      for (let e = text.element; e && !fault; e = e.parentElement) {
        const edge = e.getBoundingClientRect();
        if (scrolls(e)) {
          const left = edge.left - e.scrollLeft, top = edge.top - e.scrollTop;
          if (box.left < left - slack || box.top < top - slack || box.right > left + e.scrollWidth + slack ||
              box.bottom > top + e.scrollHeight + slack)
            fault = "out of reach";
          break; // what is outside of it now can be scrolled to
        }
        if (clips(e) && (box.left < edge.left - slack || box.right > edge.right + slack || box.top < edge.top - slack ||
                         box.bottom > edge.bottom + slack))
          fault = "cut off";
      }
      if (fault) {
        say(fault, text.text);
        break;
      }
    }

  // ---- hard to read: small, or pale ----

  for (const text of texts) {
    const svg = text.element.ownerSVGElement;
    const size = parseFloat(text.style.fontSize) * (svg ? svg.getScreenCTM().a : 1);
    if (size < smallest) say(`${size.toFixed(1)} pixels small`, text.text);
  }

  const colour = (value) => {
    const found = value.match(/^rgba?\(([\d.]+), ([\d.]+), ([\d.]+)(?:, ([\d.]+))?\)$/);
    return found ? [+found[1], +found[2], +found[3], found[4] === undefined ? 1 : +found[4]] : null;
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const light = (c) => {
    const [r, g, b] = c.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const opacity = (element) => { // of it and all it is in
    let all = 1;
    for (let e = element; e; e = e.parentElement) all *= +getComputedStyle(e).opacity;
    return all;
  };
  const behind = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      const c = colour(getComputedStyle(e).backgroundColor);
      if (c && c[3] > 0) layers.push(c);
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const fillOf = (element, style) => {
    const c = colour(style.fill);
    return c && [c[0], c[1], c[2], c[3] * +style.fillOpacity * opacity(element)];
  };
  for (const text of texts) {
    const svg = text.element.ownerSVGElement;
    const grounds = [behind(text.element)];
    let ink = colour(text.style.color);
    if (svg) { // shapes drawn before it, under its boxes
      ink = fillOf(text.element, text.style);
      for (const shape of svg.querySelectorAll("rect, circle, path")) {
        if (!(shape.compareDocumentPosition(text.element) & Node.DOCUMENT_POSITION_FOLLOWING)) continue;
        const style = getComputedStyle(shape), fill = style.fill === "none" ? null : fillOf(shape, style);
        const place = shape.getBoundingClientRect();
        if (!fill || fill[3] === 0 || !text.boxes.some((box) => overlap(box, place))) continue;
        const whole = shape.tagName === "rect" && text.boxes.every((box) => box.left >= place.left &&
                      box.right <= place.right && box.top >= place.top && box.bottom <= place.bottom);
        const under = grounds.map((ground) => over(fill, ground));
        if (whole) grounds.length = 0; // nothing else can be seen around it
        grounds.push(...under);
      }
    } else if (ink) ink[3] *= opacity(text.element);
    if (!ink) {
      say("colour not understood: " + (svg ? text.style.fill : text.style.color), text.text);
      continue;
    }
    const worst = Math.min(...grounds.map((ground) => contrast(over(ink, ground), ground)));
    if (worst < least) say(`contrast ${worst.toFixed(2)}`, text.text);
  }
  return { texts: texts.length, faults: [...new Set(faults)] };
})()
