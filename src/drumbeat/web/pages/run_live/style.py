"""CSS of the run pages: phases, banners, workers by health."""

LOOK = """
.body--dark .bg-primary { --q-primary: #1f5fa6 !important; } .body--dark .bg-positive { --q-positive: #1b7a3d !important; }
.body--dark .bg-negative { --q-negative: #b3261e !important; } .body--dark .bg-warning { --q-warning: #8a5300 !important; }
.chart-grid { display: grid; gap: 8px; grid-template-columns: repeat(auto-fit, minmax(min(420px, 100%), 1fr)); }
.chart-card { min-width: 0; width: 100%; }
.worker-grid { display: grid; gap: 6px; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); }
.worker { border: 1px solid rgba(125,133,144,.5); border-left-width: 8px; border-radius: 4px; padding: 6px 8px;
  text-align: left; background: transparent; color: inherit; font: inherit; cursor: pointer; }
.worker .name { font-weight: 600; } .worker div { overflow-wrap: anywhere; }
.worker.healthy { border-left-color: #1b7a3d; } .worker.stale { border-left-color: #d99b00; background: rgba(217,155,0,.12); }
.worker.lost { border-left-color: #c4261c; background: rgba(196,38,28,.14); } .worker.terminated { border-left-color: #7d8590; }
.bubbles { display: flex; flex-wrap: wrap; gap: 6px; list-style: none; padding: 0; margin: 0; }
.bubble { border-radius: 999px; padding: 4px 12px; border: 2px solid #7d8590; font-size: 13px; }
.bubble.past { border-color: #1b7a3d; } .bubble.now { border-color: #1f5fa6; background: #1f5fa6; color: #fff; }
.bubble.good { border-color: #1b7a3d; background: #1b7a3d; color: #fff; }
.bubble.bad { border-color: #b3261e; background: #b3261e; color: #fff; }
.rail { border-radius: 4px; padding: 8px 12px; width: 100%; display: flex; gap: 8px; align-items: center; color: #1a1a1a;
  font-weight: 600; }
.rail.yellow { background: #ffe066; } .rail.orange { background: #ffb057; } .rail.red { background: #b3261e; color: #fff; }
.rail.grey { background: #d5dbe1; }
.run-log { height: 260px; font-size: 12px; } .run-log .WARNING { color: #8a5300; } .run-log .ERROR { color: #b3261e; }
.body--dark .run-log .WARNING { color: #f3c063; } .body--dark .run-log .ERROR { color: #ff9d94; }
"""
