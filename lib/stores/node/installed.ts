import { LockOptionsError } from '../../api/errors.js';

/**
 * What an import of a package gives that the application may not have. Locks in another store do not need it.
 * @param who what needs it
 * @throws LockOptionsError when it is not installed; what the import throws when one of its own dependencies is not
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
