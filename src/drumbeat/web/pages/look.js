/* Heads of columns that sort are reached and pressed by keyboard, and tell which way they sort. Quasar's are not and do not;
   a slot of our own would be made anew with each change of the table's rows, and whoever stood there would stand nowhere. */
(() => {
  const told = () => document.querySelectorAll('th.sortable').forEach((head) => {
    head.tabIndex = 0;
    const down = head.classList.contains('sort-desc');
    head.setAttribute('aria-sort', head.classList.contains('sorted') ? (down ? 'descending' : 'ascending') : 'none');
  });
  let due = false;
  const soon = () => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => { due = false; told(); });
  };
  new MutationObserver(soon).observe(document.documentElement, {
    subtree: true, childList: true, attributes: true, attributeFilter: ['class'],
  });
  document.addEventListener('keydown', (event) => {
    if (event.target.matches?.('th.sortable') && (event.key === 'Enter' || event.key === ' ')) {
      event.preventDefault();
      event.target.click();
    }
  });
})();
/* A chart's lines grow by what is new: points go at the beginning, others follow at the end. Nothing else is sent of them. */
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
