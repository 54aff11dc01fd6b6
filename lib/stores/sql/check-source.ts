import { LockOptionsError } from '../../api/errors.js';
import { invalidOption } from '../../core/options/checks.js';
import { VARIABLE_HINT, problemOfAddress, URL_OBJECT_PROBLEM, withoutAddress, type Given } from '../node/address.js';

/** @throws LockOptionsError without the text, since it may contain a password */
export function checkUrl(name: string, url: unknown, scheme: RegExp, example: string): void {
  if (typeof url !== 'string') throw invalidOption(name, url, `a URL like ${example}`);
  if (scheme.test(url)) return;
  const got = url === '' ? `an empty string. ${VARIABLE_HINT}` : 'another text.';
  throw new LockOptionsError(`${name} must be a URL like ${example}: got ${got}`);
}

/**
 * Refuses options with which a driver would connect to an unintended server.
 * @param expected the expected value, for the message
 * @param names the options that can contain the address
 * @param host the default host of the driver, without a host or a connectionString
 * @throws LockOptionsError
 */
export function checkOptions(
  name: string,
  source: object,
  expected: string,
  names: readonly string[],
  host?: string,
): void {
  const own: Given = { ...source }; // without inherited properties, like drivers do
  const given: Given = own.connectionString ? own : { ...own, host: own.host || host };
  const problem =
    source instanceof URL
      ? URL_OBJECT_PROBLEM
      : ['stream', ...names].some((each) => given[each])
        ? problemOfAddress(given)
        : withoutAddress(names.join(' or '));
  if (problem !== undefined) throw new LockOptionsError(`${name} must be ${expected}: got ${problem}`);
}
