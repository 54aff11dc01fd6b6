/** Lists the cells, in the order in which they run. */
import { FAULTS } from './faults.mjs';
import { PARTICIPANTS } from './settings.mjs';

export function planCells({ libraries, faults, seeds }) {
  return seeds.flatMap((seed) => {
    const cells = faults.flatMap((fault) =>
      libraries.filter((id) => takesPart(id, fault)).map((contestant) => ({ contestant, fault, seed })),
    );
    // The longest cells first, so that the run does not wait for them at the end.
    return cells.sort((a, b) => watchMs(b) - watchMs(a));
  });
}

export function takesPart(id, faultId) {
  const participant = PARTICIPANTS[id];
  const { form = 'one', stores, listens } = { ...FAULTS[faultId] };
  if (stores && !stores.includes(participant.store)) return false;
  if (listens && !participant.listens && !participant.isControl) return false;
  if (participant.faults && !participant.faults.includes(faultId)) return false;
  return participant.forms.includes(form === 'replica' ? 'one' : form);
}

const watchMs = ({ fault }) => FAULTS[fault].watchMs ?? 0;
