const minute = 60e9;
const nanoseconds: Record<string, number> = { ns: 1, us: 1e3, "µs": 1e3, "μs": 1e3, ms: 1e6, s: 1e9, m: minute, h: 60 * minute };
const shortest = 1e8;
const longest = 10 * 366 * 24 * 60 * minute;

const lengths = /^\+?((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+$/;
const part = /(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)/g;

// The lowest and highest number of each field, and the names of the numbers
// from the lowest on.
const fields: [low: number, high: number, names: string[]][] = [
  [0, 59, []], [0, 23, []], [1, 31, []],
  [1, 12, ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]],
  [0, 7, ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]],
];

/**
 * Reports whether an expression is valid: in the form of Schedule.cron. Use it
 * to check a caller's expression before you set it. It cannot check time zones,
 * which only the host knows.
 */
export function validSchedule(expression: string): boolean {
  if (expression.length > 255 || (expression.match(/[^\x00-\x7f]/g)?.length ?? 0) + expression.length > 255) return false;
  if (expression.startsWith("@every ")) {
    const text = expression.slice("@every ".length);
    if (!lengths.test(text)) return false;
    let period = 0;
    for (const [, count, unit] of text.matchAll(part)) period += Number(count) * nanoseconds[unit!]!;
    return period >= shortest && period <= longest;
  }
  if (/^@(yearly|annually|monthly|weekly|daily|midnight|hourly)$/.test(expression)) return true;
  const parts = expression.split(/[\t\n\v\f\r ]+/).filter((text) => text !== "");
  if (parts.length !== 5) return false;
  const sets = parts.map((text, i) => numbers(text, ...fields[i]!));
  if (sets.some((set) => set.size === 0)) return false;
  return !parts[2]!.startsWith("*") && !parts[4]!.startsWith("*") || comes(sets[2]!, sets[3]!, sets[4]!);
}

// Reports whether one of the days occurs in one of the months on one of the
// weekdays. It checks ten years, as the host does.
function comes(days: Set<number>, months: Set<number>, weekdays: Set<number>): boolean {
  let first = 6; // weekday of the month's first day, starting with 1 January 2000
  for (let year = 0; year < 10; year++) {
    for (const [month, last] of [31, year % 4 === 0 ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31].entries()) {
      for (const day of months.has(month + 1) ? days : []) {
        const weekday = (first + day - 1) % 7;
        if (day <= last && (weekdays.has(weekday) || weekday === 0 && weekdays.has(7))) return true;
      }
      first += last;
    }
  }
  return false;
}

// The numbers of a list of ranges; none if it is invalid.
function numbers(text: string, lowest: number, highest: number, names: string[]): Set<number> {
  const all = new Set<number>();
  const value = (text: string): number => {
    const at = names.indexOf(text.toLowerCase());
    return at >= 0 ? lowest + at : number(text);
  };
  for (const part of text.split(",")) {
    const [, span, every] = /^([^/]*)(?:\/([^]*))?$/.exec(part)!;
    const step = every === undefined ? 1 : number(every);
    let [low, high] = [lowest, highest];
    if (span !== "*") {
      const [, first, last] = /^([^-]*)(?:-([^]*))?$/.exec(span!)!;
      low = value(first!);
      if (last !== undefined) high = value(last);
      else if (every === undefined) high = low;
    }
    if (!(step >= 1 && step <= highest && low >= lowest && high <= highest && low <= high)) return new Set();
    for (let n = low; n <= high; n += step) all.add(n);
  }
  return all;
}

// Parses up to three digits; NaN if the text has anything else.
function number(text: string): number {
  return /^[0-9]{1,3}$/.test(text) ? Number(text) : NaN;
}
