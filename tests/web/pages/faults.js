// What axe calls serious or critical on this page, and texts too faint for their ground where axe cannot tell the ground.
//
// A dialog's backdrop is taken away while contrast is measured, and what is behind it is left out: axe takes it for the ground
// of buttons on the card before it. The card must be opaque for that to be fair, and one that is not is a fault.
//
// Told "colours", it looks for faint texts alone: the rest is no other in the dark.
async what => {
  const GRAVE = ['serious', 'critical'];
  const told = (id, help, elements) => `${id}: ${help}: ${elements.map(each => each.outerHTML.slice(0, 200)).join(' | ')}`;

  const parsed = colour => {
    const found = colour.match(/^rgba?\(([^)]+)\)$/);
    if (!found) throw new Error(`expected a colour as rgb(), got ${colour}`);
    const [red, green, blue, alpha = 1] = found[1].split(/[ ,/]+/).map(Number);
    return [red, green, blue, alpha];
  };
  const upon = (top, ground) => [0, 1, 2].map(n => top[n] * top[3] + ground[n] * (1 - top[3])).concat(1);
  const groundOf = element => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
      const colour = parsed(getComputedStyle(each).backgroundColor);
      layers.unshift(colour);
      if (colour[3] === 1) break;
    }
    return layers.reduce((ground, layer) => upon(layer, ground), [255, 255, 255, 1]);
  };
  const light = colour => {
    const [red, green, blue] = colour.slice(0, 3).map(n => n / 255).map(n => n <= .03928 ? n / 12.92 : ((n + .055) / 1.055) ** 2.4);
    return .2126 * red + .7152 * green + .0722 * blue;
  };
  const contrast = element => {
    const ground = groundOf(element), ink = upon(parsed(getComputedStyle(element).color), ground);
    const [low, high] = [light(ink), light(ground)].sort((a, b) => a - b);
    return (high + .05) / (low + .05);
  };
  const needed = element => {
    const style = getComputedStyle(element), size = parseFloat(style.fontSize);
    return size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
  };
  const isOff = element => element.closest('.disabled, [disabled], [aria-disabled=true]') !== null;

  const whole = what === 'colours' ? {violations: []} : await axe.run(document,
    {resultTypes: ['violations'], elementRef: true, preload: false, rules: {'color-contrast': {enabled: false}}});
  const cards = [...document.querySelectorAll('.q-dialog__inner > *')];
  const backdrops = [...document.querySelectorAll('.q-dialog__backdrop')];
  const glassy = cards.filter(card => parsed(getComputedStyle(card).backgroundColor)[3] < 1);
  backdrops.forEach(each => { each.style.visibility = 'hidden'; });
  const looked = () => axe.run(cards.length ? {include: cards} : document,
    {runOnly: ['color-contrast'], resultTypes: ['violations', 'incomplete'], elementRef: true, preload: false});
  let inks = await looked();
  for (let again = 0; again < 3 && inks.violations.length; again++) {  // while it was being drawn, perhaps
    await new Promise(drawn => setTimeout(drawn, 500));
    inks = await looked();
  }
  backdrops.forEach(each => { each.style.visibility = ''; });

  const of = results => results.flatMap(each => each.nodes.map(node => node.element));
  const doubtful = of(inks.incomplete).filter(each => !isOff(each) && contrast(each) < needed(each));
  const faint = of(inks.violations).concat(doubtful);
  return whole.violations.filter(each => GRAVE.includes(each.impact)).map(each => told(each.id, each.help, of([each])))
    .concat(faint.length ? [told('color-contrast', `texts too faint (${faint.map(each => contrast(each).toFixed(2))})`, faint)] : [])
    .concat(glassy.length ? [told('glassy', 'a dialog one can see through', glassy)] : []);
}
