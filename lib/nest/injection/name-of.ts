/** `Class.method` for messages, also of a static one; `Class` where there is no member. */
export function nameOf(target: object, member: string | symbol | undefined): string {
  const { name } = typeof target === 'function' ? target : target.constructor;
  return member === undefined ? name : `${name}.${String(member)}`;
}
