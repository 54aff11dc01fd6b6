/** Whether an import failed because the package itself is not installed, and not one of its own dependencies. */
export function isMissing(error: unknown, name: string): boolean {
  const { code, message } = error as NodeJS.ErrnoException;
  return /^(ERR_)?MODULE_NOT_FOUND$/.test(code ?? '') && message.includes(`'${name}'`);
}
