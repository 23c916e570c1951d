// Formatting of numbers and times, and ticks of axes.

const plain = (value, digits) =>
  value.toLocaleString("en-US", { maximumFractionDigits: digits, minimumFractionDigits: 0 });

// Three digits or so, whatever the size.
function short(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return `${plain(value / 1e9, 1)}G`;
  if (size >= 1e6) return `${plain(value / 1e6, 1)}M`;
  if (size >= 1e5) return `${plain(value / 1e3, 0)}k`;
  if (size >= 100) return plain(value, 0);
  if (size >= 10) return plain(value, 1);
  if (size >= 1 || size === 0) return plain(value, 2);
  return value.toLocaleString("en-US", { maximumSignificantDigits: 2 });
}

function count(value) {
  const whole = Math.round(value);
  // A rate that Prometheus has extrapolated is a little off a whole number.
  return Math.abs(value) >= 10 || Math.abs(value - whole) < 0.05 ? short(whole) : plain(value, 1);
}

function seconds(value) {
  if (value === 0) return "0 s";
  if (value < 0.001) return `${plain(value * 1e6, 0)} µs`;
  if (value < 1) return `${plain(value * 1e3, value < 0.01 ? 1 : 0)} ms`;
  if (value >= 120 && value % 3600 === 0) return `${plain(value / 3600, 0)} h`;
  if (value < 120) return `${plain(value, value < 10 ? 2 : value < 60 ? 1 : 0)} s`;
  if (value < 7200) return `${plain(value / 60, 1)} min`;
  return `${plain(value / 3600, 1)} h`;
}

function dollars(value) {
  if (value === 0) return "$0";
  if (Math.abs(value) >= 1e5) return `$${short(value)}`;
  if (Math.abs(value) >= 1000) return `$${plain(value, 0)}`;
  if (Math.abs(value) >= 1)
    return `$${value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
  return `$${value.toLocaleString("en-US", { maximumSignificantDigits: 2, maximumFractionDigits: 9 })}`;
}

function percent(value) {
  const hundredths = value * 100;
  // A share just below 100 % is not rounded up to it.
  if (hundredths > 99 && hundredths < 100) return `${plain(Math.floor(hundredths * 10) / 10, 1)} %`;
  return `${plain(hundredths, hundredths > 0 && hundredths < 10 ? 1 : 0)} %`;
}

const UNITS = {
  runs: count,
  calls: count,
  iterations: count,
  breakers: count,
  per_minute: (value) => `${short(value)}/min`,
  tokens_per_second: (value) => `${short(value)}/s`,
  seconds,
  ratio: percent,
  dollars,
};

function format(unit, value) {
  if (value === null || value === undefined) return "–";
  // As of a recording with an absurd number.
  if (Math.abs(value) >= 1e13) return value.toExponential(0);
  return (UNITS[unit] || short)(value);
}

const TIME_STEPS = [
  0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
  86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000,
];

// Round numbers from 0 to at least `most`: each is 1, 2 or 5 times a power of ten.
function ticks(most, unit) {
  if (unit === "ratio") return most <= 0.1 ? [0, 0.05, 0.1] : most <= 0.5 ? [0, 0.25, 0.5] : [0, 0.5, 1];
  const whole = unit === "runs" || unit === "iterations" || unit === "breakers" || unit === "calls";
  const top = most > 0 ? most : 1;
  const rough = top / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough * 0.999);
  if (whole) step = Math.max(1, Math.round(step));
  if (unit === "seconds" && rough > 30) step = TIME_STEPS.find((one) => one >= rough * 0.999) || step;
  const found = [0];
  while (found[found.length - 1] < top * 0.999) found.push(found.length * step);
  return found.map((one) => Number(one.toPrecision(6)));
}

// Round times of day in the reader's own time zone.
function timeTicks(start, end, most) {
  const step = TIME_STEPS.find((one) => (end - start) / one <= most) || TIME_STEPS[TIME_STEPS.length - 1];
  const zone = -60 * new Date(start * 1000).getTimezoneOffset();
  const found = [];
  for (let at = Math.ceil((start + zone) / step) * step - zone; at <= end + 1e-6; at += step) found.push(at);
  return { step, at: found };
}

const two = (number) => String(number).padStart(2, "0");
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const dayOf = (date) => `${date.getDate()} ${MONTHS[date.getMonth()]}`;

function tickTime(at, step) {
  const date = new Date(Math.round(at * 1000));
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}`;
  if (step >= 86400 || clock === "00:00" && step >= 60) return dayOf(date);
  if (step >= 60) return clock;
  const exact = step < 1 ? `.${Math.floor(date.getMilliseconds() / 100)}` : "";
  return `${clock}:${two(date.getSeconds())}${exact}`;
}

// A time with as much of it as a step of so many seconds needs.
function timeOf(at, step) {
  const date = new Date(Math.round(at * 1000));
  const today = new Date();
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}`;
  const exact = step < 1 ? `.${Math.floor(date.getMilliseconds() / 100)}` : "";
  const time = step < 60 ? `${clock}:${two(date.getSeconds())}${exact}` : clock;
  return date.toDateString() === today.toDateString() ? time : `${dayOf(date)} ${time}`;
}
