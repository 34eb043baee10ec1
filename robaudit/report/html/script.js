(() => {
  'use strict';
  const compare = {
    rank: (a, b) => a.dataset.rank - b.dataset.rank,
    '-rank': (a, b) => b.dataset.rank - a.dataset.rank,
    class: (a, b) => a.dataset.class - b.dataset.class || a.dataset.rank - b.dataset.rank,
    name: (a, b) => a.dataset.name.localeCompare(b.dataset.name, 'en', { numeric: true }),
  };
  for (const gallery of document.querySelectorAll('[data-gallery]')) {
    const controls = gallery.querySelector('.controls');
    const order = gallery.querySelector('[data-sort]');
    const search = gallery.querySelector('[data-search]');
    const filters = [...gallery.querySelectorAll('[data-filter]')];
    const levels = [...gallery.querySelectorAll('[data-level]')];
    const cards = [...gallery.querySelectorAll('.card')];
    const texts = new Map(cards.map((card) => [card, card.textContent.toLowerCase()]));
    const sort = () => {
      for (const level of levels) {
        const list = level.querySelector('.cards');
        list.append(...[...list.children].sort(compare[order.value]));
      }
    };
    const filter = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const chosen = words.length > 0 || filters.some(({ value }) => value);
      let shown = 0;
      for (const card of cards) {
        const fits = filters.every(({ value, dataset }) => {
          if (!value) return true;
          if (dataset.filter === 'level') return card.closest('[data-level]').dataset.level === value;
          return dataset.filter === 'classes' ? card.dataset.classes.split(' ').includes(value) : card.dataset[dataset.filter] === value;
        });
        card.hidden = !(fits && words.every((word) => texts.get(card).includes(word)));
        shown += card.hidden ? 0 : 1;
      }
      for (const level of levels) {
        level.hidden = ![...level.querySelectorAll('.card')].some((card) => !card.hidden);
        if (chosen && !level.hidden && level.tagName === 'DETAILS') level.open = true;
      }
      gallery.querySelector('[data-count]').textContent = `${shown} of ${cards.length} samples`;
      gallery.querySelector('[data-empty]').hidden = shown > 0;
    };
    order.addEventListener('change', sort);
    search.addEventListener('input', filter);
    for (const one of filters) one.addEventListener('change', filter);
    controls.hidden = false;
    sort();
    filter();
  }
})();
