"use strict";
// The drawing, and how it and the lists move together. Names and texts come from documents: they are set as text alone.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = new Map(data.nodes.map((node, at) => [node.id, at]));
  const items = [];
  for (const item of document.querySelectorAll("details[data-node]")) items[Number(item.dataset.node)] = item;
  const near = data.nodes.map(() => new Map());
  data.edges.forEach(([source, target, kind, text]) => {
    near[source].set(target, [kind, text]);
    near[target].set(source, [kind, text]);
  });
  const narrow = matchMedia("(max-width: 820px)");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const KINDS = { entity: 0, passage: 1, community: 2 };
  let chosen = -1, under = -1, matching = null, colours = {}, sigma = null;
  const unshown = new Set();

  // The lists

  const MOST = 200;
  const address = (at) => "#node=" + encodeURIComponent(data.nodes[at].id).replaceAll("%3A", ":");
  function fill(at) {
    const list = items[at].querySelector(".neighbours");
    if (!list || list.dataset.full) return;
    list.dataset.full = "yes";
    const lines = [...near[at]].slice(0, MOST).map(([other, [kind, text]]) => {
      const line = document.createElement("li"), link = document.createElement("a"), name = document.createElement("bdi");
      link.href = address(other);
      name.textContent = data.nodes[other].label;
      link.append(name);
      line.append(items[other].querySelector("svg").cloneNode(true), link);
      if (text || kind === "bridge" || kind === "related") {
        const said = document.createElement("span");
        said.className = "soft";
        said.textContent = text ? ` – ${text}` : ` – ${kind}`;
        line.append(said);
      }
      return line;
    });
    if (near[at].size > MOST) {
      const more = document.createElement("li");
      more.textContent = `and ${near[at].size - MOST} more`;
      lines.push(more);
    }
    list.replaceChildren(...lines);
  }

  function choose(at, { move = false, reveal = true, record = true } = {}) {
    if (at === chosen) return;
    if (chosen >= 0) {
      items[chosen].classList.remove("chosen");
      items[chosen].open = false;
    }
    chosen = at;
    if (at >= 0) {
      fill(at);
      const item = items[at];
      item.parentElement.hidden = false;
      item.classList.add("chosen");
      item.open = true;
      if (reveal) item.parentElement.scrollIntoView({ block: narrow.matches ? "start" : "nearest" });
    }
    if (record) {
      const place = at < 0 ? location.pathname + location.search : address(at);
      try { history.replaceState(null, "", place); } catch { /* a page without an address has none to change */ }
    }
    if (sigma) {
      if (at >= 0 && move) {
        const shown = sigma.getNodeDisplayData(String(at));
        const ratio = Math.min(sigma.getCamera().ratio, 0.5);
        sigma.getCamera().animate({ x: shown.x, y: shown.y, ratio }, { duration: still.matches ? 0 : 300 });
      }
      repaint();
    }
  }

  for (const item of items) {
    item.addEventListener("toggle", () => {
      const at = Number(item.dataset.node);
      if (item.open) choose(at, { move: true, reveal: false });
      else if (chosen === at) choose(-1);
    });
  }

  function follow() {
    const [name, value] = location.hash.slice(1).split("=");
    if (name !== "node" || value === undefined) return;
    let id = value;
    try { id = decodeURIComponent(value); } catch { /* not encoded */ }
    const at = byId.get(id);
    if (at !== undefined) choose(at, { move: true, record: false });
  }
  addEventListener("hashchange", () => {
    follow();
    if (chosen >= 0) items[chosen].querySelector("summary").focus({ preventScroll: true });
  });
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    search.value = "";
    find();
    choose(-1);
  });

  const search = document.getElementById("search"), count = document.getElementById("count");
  document.getElementById("finder").hidden = false;
  const texts = items.map((item) => item.textContent.toLocaleLowerCase());
  function find() {
    const wanted = search.value.trim().toLocaleLowerCase();
    matching = wanted ? new Set([...texts.keys()].filter((at) => texts[at].includes(wanted))) : null;
    items.forEach((item, at) => {
      item.parentElement.hidden = unshown.has(data.nodes[at].kind) || (matching !== null && !matching.has(at));
    });
    count.textContent = matching ? `${matching.size} of ${items.length} nodes` : "";
    if (sigma) repaint();
  }
  let waiting = 0;
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(find, 120);
  });
  for (const box of document.querySelectorAll("#legend input")) {
    box.addEventListener("change", () => {
      if (box.checked) unshown.delete(box.value);
      else unshown.add(box.value);
      find();
    });
  }

  // The drawing

  function paint() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["ground", "text", "soft", "edge", "faint", "path", "passage", "entity", "community", "other", "line"]) {
      colours[name] = style.getPropertyValue(`--${name}`).trim();
    }
  }
  const colourOf = (kind) => colours[kind in KINDS ? kind : "other"];

  function program(NodeProgram, floatColor) {
    const { FLOAT, UNSIGNED_BYTE, POINTS } = WebGLRenderingContext;
    // One point per node; the shape is drawn inside it. From 4 up a shape has a ring around it.
    return class extends NodeProgram {
      getDefinition() {
        return {
          VERTICES: 1,
          VERTEX_SHADER_SOURCE: `
            attribute vec4 a_id; attribute vec4 a_color; attribute vec2 a_position;
            attribute float a_size; attribute float a_shape;
            uniform float u_sizeRatio; uniform float u_pixelRatio; uniform mat3 u_matrix;
            varying vec4 v_color; varying float v_shape; varying float v_soft;
            void main() {
              gl_Position = vec4((u_matrix * vec3(a_position, 1)).xy, 0, 1);
              gl_PointSize = a_size / u_sizeRatio * u_pixelRatio * 2.0;
              v_soft = 1.0 / max(gl_PointSize, 1.0);
              v_shape = a_shape;
              #ifdef PICKING_MODE
              v_color = a_id;
              #else
              v_color = a_color;
              #endif
              v_color.a *= 255.0 / 254.0;
            }`,
          FRAGMENT_SHADER_SOURCE: `
            precision highp float;
            varying vec4 v_color; varying float v_shape; varying float v_soft;
            void main() {
              vec2 m = gl_PointCoord - vec2(0.5);
              bool ringed = v_shape > 3.5;
              float shape = ringed ? v_shape - 4.0 : v_shape;
              float d = length(m);
              if (shape > 2.5) d = (abs(m.x) + abs(m.y));
              else if (shape > 1.5) { m.y -= 0.08; d = max(abs(m.x) * 0.866 - m.y * 0.5, m.y) * 1.19; }
              else if (shape > 0.5) d = max(abs(m.x), abs(m.y)) * 1.13;
              #ifdef PICKING_MODE
              if (d > 0.5) discard;
              gl_FragColor = v_color;
              #else
              float inside = 1.0 - smoothstep(0.5 - v_soft, 0.5, d);
              if (ringed) inside *= max(1.0 - smoothstep(0.30, 0.30 + v_soft, d), smoothstep(0.40, 0.40 + v_soft, d));
              gl_FragColor = v_color * inside;
              #endif
            }`,
          METHOD: POINTS,
          UNIFORMS: ["u_sizeRatio", "u_pixelRatio", "u_matrix"],
          ATTRIBUTES: [
            { name: "a_position", size: 2, type: FLOAT },
            { name: "a_size", size: 1, type: FLOAT },
            { name: "a_color", size: 4, type: UNSIGNED_BYTE, normalized: true },
            { name: "a_shape", size: 1, type: FLOAT },
            { name: "a_id", size: 4, type: UNSIGNED_BYTE, normalized: true },
          ],
        };
      }
      processVisibleItem(id, start, shown) {
        this.array.set([shown.x, shown.y, shown.size, floatColor(shown.color), shown.shape], start);
        this.array[start + 5] = id;
      }
      setUniforms({ sizeRatio, pixelRatio, matrix }, { gl, uniformLocations }) {
        gl.uniform1f(uniformLocations.u_pixelRatio, pixelRatio);
        gl.uniform1f(uniformLocations.u_sizeRatio, sizeRatio);
        gl.uniformMatrix3fv(uniformLocations.u_matrix, false, matrix);
      }
    };
  }

  function label(context, shown, settings, plate) {
    if (!shown.label) return;
    context.font = `${settings.labelWeight} ${settings.labelSize}px ${settings.labelFont}`;
    const width = context.measureText(shown.label).width, room = context.canvas.clientWidth || Infinity;
    const right = shown.x + shown.size + 3, fits = right + width + 4 < room;
    const x = fits ? right : Math.max(4, shown.x - shown.size - 3 - width), y = shown.y + settings.labelSize / 3;
    if (plate) {
      context.fillStyle = colours.ground;
      context.strokeStyle = colours.text;
      context.lineWidth = 1;
      context.beginPath();
      context.rect(x - 3, y - settings.labelSize, width + 6, settings.labelSize + 6);
      context.fill();
      context.stroke();
    } else {
      context.strokeStyle = colours.ground;
      context.lineWidth = 3;
      context.lineJoin = "round";
      context.strokeText(shown.label, x, y);
    }
    context.fillStyle = colours.text;
    context.fillText(shown.label, x, y);
  }

  const short = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);

  function draw() {
    const graph = new graphology.Graph({ type: "directed", multi: false });
    // Many nodes, or a small screen: smaller ones, so that they do not cover each other.
    const scale = Math.max(0.6, Math.min(1, Math.sqrt(400 / data.nodes.length))) * (narrow.matches ? 0.7 : 1);
    data.nodes.forEach((node, at) => {
      graph.addNode(String(at), {
        x: node.x, y: node.y, size: node.size * scale, label: short(node.label, 30), kind: node.kind,
        shape: (KINDS[node.kind] ?? 3) + (node.role ? 4 : 0), zIndex: node.role ? 1 : 0,
      });
    });
    data.edges.forEach(([source, target, kind, , path]) => {
      if (source !== target && !graph.hasDirectedEdge(String(source), String(target))) {
        graph.addDirectedEdge(String(source), String(target), { kind, path: Boolean(path), size: path ? 2.5 : 0.6 });
      }
    });
    const centre = () => (chosen >= 0 ? chosen : under);
    const lit = (at) => {
      const middle = centre();
      if (matching !== null && !matching.has(at) && at !== middle) return false;
      return middle < 0 || at === middle || near[middle].has(at);
    };
    const many = data.nodes.length > 800;
    paint();
    sigma = new Sigma(graph, document.getElementById("graph"), {
      nodeProgramClasses: { shape: program(Sigma.rendering.NodeProgram, Sigma.utils.floatColor) },
      edgeProgramClasses: { line: Sigma.rendering.EdgeLineProgram, wide: Sigma.rendering.EdgeRectangleProgram },
      defaultNodeType: "shape",
      defaultEdgeType: "line",
      labelFont: "system-ui, sans-serif",
      labelSize: 13,
      labelDensity: 0.6,
      labelGridCellSize: 130,
      labelRenderedSizeThreshold: 5 * scale,
      zIndex: true,
      hideEdgesOnMove: many,
      stagePadding: narrow.matches ? 24 : 40,
      minCameraRatio: 0.02,
      maxCameraRatio: 4,
      enableCameraRotation: false,
      defaultDrawNodeLabel: (context, shown, settings) => label(context, shown, settings, false),
      defaultDrawNodeHover: (context, shown, settings) => label(context, shown, settings, true),
      nodeReducer: (node, given) => {
        const at = Number(node), found = { ...given, color: colourOf(given.kind) };
        if (unshown.has(given.kind)) return { ...found, hidden: true };
        if (!lit(at)) return { ...found, color: colours.edge, label: "", zIndex: 0 };
        if (at === centre()) Object.assign(found, { size: given.size + 3, forceLabel: true, label: data.nodes[at].label, zIndex: 3 });
        else if (centre() >= 0) Object.assign(found, { zIndex: 2, forceLabel: near[centre()].size <= 12 });
        return found;
      },
      edgeReducer: (edge, given) => {
        const [source, target] = graph.extremities(edge).map(Number);
        if (given.path) Object.assign(given = { ...given }, { color: colours.path, type: "wide", zIndex: 2 });
        else given = { ...given, color: many ? colours.faint : colours.edge, zIndex: 0 };
        const middle = centre();
        if (middle >= 0) {
          if (source !== middle && target !== middle) return { ...given, hidden: true };
          return { ...given, color: given.path ? colours.path : colours.soft, size: given.path ? 3 : 1.2, zIndex: 2 };
        }
        return given;
      },
    });
    // Lighting up the neighbours of whatever the pointer passes takes longer than a frame where there are many nodes.
    const shown = document.getElementById("graph");
    sigma.on("enterNode", ({ node }) => { under = Number(node); shown.style.cursor = "pointer"; if (chosen < 0 && !many) repaint(); });
    sigma.on("leaveNode", () => { under = -1; shown.style.cursor = ""; if (chosen < 0 && !many) repaint(); });
    sigma.on("clickNode", ({ node }) => choose(Number(node)));
    sigma.on("clickStage", () => choose(-1));
    const move = (name) => sigma.getCamera()[name]({ duration: still.matches ? 0 : 200 });
    document.getElementById("nearer").addEventListener("click", () => move("animatedZoom"));
    document.getElementById("farther").addEventListener("click", () => move("animatedUnzoom"));
    document.getElementById("whole").addEventListener("click", () => move("animatedReset"));
    dark.addEventListener("change", () => { paint(); repaint(); });
    document.getElementById("tools").hidden = false;
  }

  function repaint() {
    sigma.refresh({ skipIndexation: true });
  }

  document.getElementById("legend").hidden = false;
  try {
    draw();
  } catch (error) {
    sigma = null;
    document.getElementById("absent").hidden = false;
    console.warn(error);
  }
  window.explorer = { sigma, choose };  // for those who look at a page by script
  follow();
})();
