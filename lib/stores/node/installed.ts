import { LockOptionsError } from '../../api/errors.js';

/**
 * Returns an optional package, which only locks in one kind of store need.
 * @param who the feature that needs it, for the message
 * @throws LockOptionsError when the package is not installed; the error of the import when one of its dependencies is missing
 */
export async function installed<T>(name: string, importing: Promise<T>, who: string, instead = ''): Promise<T> {
  try {
    return await importing;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (!/^(ERR_)?MODULE_NOT_FOUND$/.test(code ?? '') || !message.includes(`'${name}'`)) throw error;
    const todo = `npm install ${name}.${instead}`;
    throw new LockOptionsError(`${who} need ${name}, which is not installed: ${todo}`, { cause: error });
  }
}
