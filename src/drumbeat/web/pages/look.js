/* Make the headers of sortable columns usable by keyboard, and set aria-sort. Quasar does neither. A custom header slot is no
   alternative: Quasar rebuilds it with each change of the rows, which loses the keyboard focus. */
(() => {
  const markHeaders = () => document.querySelectorAll('th.sortable').forEach((head) => {
    head.tabIndex = 0;
    const descending = head.classList.contains('sort-desc');
    head.setAttribute('aria-sort', head.classList.contains('sorted') ? (descending ? 'descending' : 'ascending') : 'none');
  });
  let due = false;
  const schedule = () => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => { due = false; markHeaders(); });
  };
  new MutationObserver(schedule).observe(document.documentElement, {
    subtree: true, childList: true, attributes: true, attributeFilter: ['class'],
  });
  document.addEventListener('keydown', (event) => {
    if (event.target.matches?.('th.sortable') && (event.key === 'Enter' || event.key === ' ')) {
      event.preventDefault();
      event.target.click();
    }
  });
})();
/* Update a chart's lines: drop points at the beginning, keep the next ones, and add new points at the end. */
window.extendChart = (id, lines) => {
  const chart = getElement(id);
  if (!chart?.options) return;
  lines.forEach((line, n) => {
    const series = chart.options.series[n];
    series.data = series.data.slice(line.drop, line.drop + line.keep).concat(line.add);
    if ('area' in line) series.markArea = line.area;
  });
  chart.update_chart();
};
