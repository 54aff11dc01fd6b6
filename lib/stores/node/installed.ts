import { LockOptionsError } from '../../api/errors.js';

/**
 * Returns an optional package, which only locks in one kind of store need.
 * @param feature what needs the package, for the message
 * @throws LockOptionsError when the package is not installed; the error of the import when one of its dependencies is missing
 */
export async function installed<T>(name: string, importing: Promise<T>, feature: string, instead = ''): Promise<T> {
  try {
    return await importing;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (!/^(ERR_)?MODULE_NOT_FOUND$/.test(code ?? '') || !message.includes(`'${name}'`)) throw error;
    const advice = `npm install ${name}.${instead}`;
    throw new LockOptionsError(`${feature} need ${name}, which is not installed: ${advice}`, { cause: error });
  }
}
